"""What is put to models fits, loses no letter, and is what was trained: measured in tokens, before a run begins."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from whet.config import ConfigError, load
from whet.config.parts import ModelConfig
from whet.methods.critic.critique_rl_config import CritiqueRLConfig
from whet.methods.warm_start import check_texts, demonstration_row
from whet.models.policy import Policy, load_policies
from whet.models.prompts import Conversation, check_prompts, measured, of_rounds
from whet.models.stand_in import CHATML
from whet.models.tiny import tiny_tokenizer
from whet.rollout.critique import CritiqueRound
from whet.rollout.driver import roll_out
from whet.rollout.roles import PolicyRole
from whet.run.data import load_tasks
from whet.run.session import prepare
from whet.run_folder.folder import RunFolder
from whet.tasks.demonstrations import read_demonstrations
from whet.tasks.demonstrators import Examples, demonstrator
from whet.tasks.files import DataError
from whet.tasks.prompts import CHAINS, ENGLISH, PROMPTS
from whet.types import Completion, Grade, Sampling, Task


@pytest.fixture(scope="module")
def words() -> PreTrainedTokenizerFast:
    """Byte-level BPE with one token for a run of 64 `a`, and about one a letter for all else."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    bpe.train_from_iterator(["a" * 64] * 10, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = CHATML
    return tokenizer


@pytest.fixture(scope="module")
def model(words, tmp_path_factory) -> Path:
    """A small random model with that tokenizer and 1,024 positions."""
    folder = tmp_path_factory.mktemp("models") / "words"
    words.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Qwen2Config(
        vocab_size=len(words), num_key_value_heads=1, max_position_embeddings=1024, eos_token_id=words.eos_token_id,
        **sizes,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def policy(model) -> Policy:
    return load_policies({"actor": ModelConfig(path=str(model))})["actor"]


def solve(*questions: str, written: int = 100) -> list[Conversation]:
    return [Conversation("actor", [(q,) for q in questions], CHAINS.solve_messages, "", written)]


# --- lengths ----------------------------------------------------------------------------------------------------------


def test_the_longest_question_is_the_one_with_the_most_tokens(policy):
    letters, tokens = "a" * 6000, "7 + 5 = " * 300  # 100 tokens or so, and 2,400
    check_prompts(solve(letters), {"actor": policy})
    with pytest.raises(ConfigError, match=r"'7 \+ 5 = .*actor.path has 1024 positions"):
        check_prompts(solve(letters, tokens), {"actor": policy})
    with pytest.raises(ConfigError, match="lower max_new_tokens"):
        check_prompts(solve(letters, written=1000), {"actor": policy})


def run_config(model: Path, data: Path, *more: str) -> CritiqueRLConfig:
    settings = [f"actor.path={model}", f"critic.path={model}", "data.kind=file", f"data.path={data}", *more]
    return load(CritiqueRLConfig, None, [*settings, "prompts=english"])


def checked(config: CritiqueRLConfig, tasks: list[Task], policy: Policy, role: str) -> None:
    kinds = ("critique",) if role == "critic" else ("solve", "refine")
    shown = demonstrator(Examples(config.warm_start.file), config.data, {"train": tasks}, ENGLISH)
    check_texts(shown, kinds, replace(policy, name=role))


def prepared(config: CritiqueRLConfig, tmp_path: Path) -> None:
    prepare(config, None, RunFolder(tmp_path)).close()


def lines(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


QUESTIONS = [{"question": f"What is {n} + {n}?", "answer": f"{n} + {n} = {2 * n}.\n#### {2 * n}"} for n in range(40)]


@pytest.mark.parametrize("where", range(3))  # whatever split it falls to
def test_every_split_and_both_seats_are_measured(model, tmp_path, where):
    long = [{"question": text, "answer": "#### 4"} for text in (f"{where}: " + "7 + 5 = " * 70, "a" * 600)]
    data = lines(tmp_path / "data.jsonl", *QUESTIONS, *long)
    none = ["warm_start.actor_steps=0", "warm_start.critic_steps=0"]
    with pytest.raises(ConfigError, match=r"'\d: 7 \+ 5 = .*(actor|critic).path has 1024 positions"):
        prepared(run_config(model, data, *none), tmp_path / "run")


def test_cached_answers_of_a_file_are_measured_too(model, tmp_path):
    data = lines(tmp_path / "data.jsonl", *QUESTIONS)
    answers = [{"question": row["question"], "answer": "2."} for row in QUESTIONS]
    for row in answers[:8]:  # some are training problems
        row["answer"] = "7 + 5 = " * 200
    file = lines(tmp_path / "answers.jsonl", *answers)
    settings = ["warm_start.actor_steps=0", "warm_start.critic_steps=0", "answers=cached", f"answers_file={file}"]
    settings += [f"roles.{role}.max_new_tokens=8" for role in ("answer", "critique", "refinement")]
    with pytest.raises(ConfigError, match=r"question 'What is \d \+ \d\?'.* positions"):
        prepared(run_config(model, data, *settings), tmp_path / "run")


def test_a_demonstration_past_the_positions_is_refused_with_its_line(model, policy, tmp_path):
    rows = [
        {"question": "7 + 5?", "answer": "12", "correct": True},
        {"question": "7 + 5?", "answer": "a" * 5000, "correct": True},
        {"question": "7 + 5?", "answer": "12", "refinement": "7 + 5 = " * 200},
    ]
    config = run_config(model, tmp_path / "unread", f"warm_start.file={lines(tmp_path / 'rows.jsonl', *rows)}")
    with pytest.raises(DataError, match="no rows to imitate of kind 'critique'"):
        checked(config, [], policy, "critic")
    with pytest.raises(DataError, match=r"rows.jsonl, line 3: .*refine.* has \d+ tokens.* 1024 positions"):
        checked(config, [], policy, "actor")


def test_a_worked_solution_past_the_positions_is_refused(model, policy, tmp_path):
    long = {"question": "And this?", "answer": "7 + 5 = 12, and so on. " * 50 + "\n#### 4"}
    data = lines(tmp_path / "data.jsonl", *QUESTIONS, long)
    config = run_config(model, data)
    tasks = [task for split in load_tasks(config.data).tasks.values() for task in split]
    checked(config, [t for t in tasks if t.prompt != long["question"]], policy, "actor")
    for role in ("actor", "critic"):
        with pytest.raises(DataError, match=r"the worked solution of task .* positions"):
            checked(config, tasks, policy, role)


# --- letters ----------------------------------------------------------------------------------------------------------


def test_characters_that_the_tiny_tokenizer_drops_are_named():
    texts = ["7 + 5 * 3", "Solve: 7 ÷ 5", "7 +5", "Step 1: 7 + 5 = 2\nThe answer is 2", ""]
    found = [lost for _, lost in measured(texts, tiny_tokenizer())]
    assert found == ["", "'÷'", "'+'", "", ""]


def test_a_question_with_such_a_character_is_refused(random_model):
    policies = load_policies({"actor": ModelConfig(path=str(random_model))})
    assert policies["actor"].tokenizer.decode(policies["actor"].tokenizer.encode("7 ÷ 5")) == "75"  # why
    with pytest.raises(ConfigError, match=r"actor.path has no token for '÷' in '7 ÷ 5'"):
        check_prompts(solve("7 + 5", "7 ÷ 5"), policies)


@pytest.mark.parametrize("name", ["english", "short", "steps"])
@pytest.mark.parametrize("data", ["chains", "file"])
def test_prompts_whose_words_the_tiny_tokenizer_lacks_are_refused(random_model, tmp_path, name, data):
    file = lines(tmp_path / "data.jsonl", *({"question": f"{n} + {n}", "answer": "2"} for n in range(10)))
    more = ["data.kind=file", f"data.path={file}"] if data == "file" else []
    settings = [f"actor.path={random_model}", f"critic.path={random_model}", f"prompts={name}", *more]
    settings += ["warm_start.actor_steps=0", "warm_start.critic_steps=0"]
    with pytest.raises(ConfigError, match=r"packaged tiny model, actor.path, does not know the words of these prompts"):
        prepared(load(CritiqueRLConfig, None, settings), tmp_path / "run")


def test_words_and_prefills_of_a_template_that_a_tokenizer_lacks_are_named(random_model, words):
    policies = load_policies({"actor": ModelConfig(path=str(random_model))})
    check_prompts(of_rounds(("actor", "actor"), CHAINS, [("7 + 5",)], 100, num_rounds=3), policies)
    with pytest.raises(ConfigError, match="would leave 'S', 'o' out of 'So'"):
        check_prompts([replace(solve("7 + 5")[0], prefill="So")], policies)
    wordlevel = Tokenizer(models.WordLevel({"[UNK]": 0, "7": 1}, unk_token="[UNK]"))
    few = PreTrainedTokenizerFast(tokenizer_object=wordlevel, unk_token="[UNK]", chat_template=CHATML)
    actor = replace(policies["actor"], tokenizer=few)
    with pytest.raises(ConfigError, match=r"no token for 'S', 'o', .* in the words of the prompts \('Solve: 7'\)"):
        check_prompts(solve("7"), {"actor": actor})


def test_what_a_tokenizer_rewrites_is_not_lost(words):
    """Bytes of a letter, white space and forms that are evened out."""
    assert all(lost == "" for _, lost in measured(["a  b\t\u2028c", "Ünïcode ½ 𝛑 🙂", "e\u0301\u200b"], words))
    wordpiece = Tokenizer(models.WordPiece({"[UNK]": 0, "cafe": 1, "1": 2, "##2": 3}, unk_token="[UNK]"))
    wordpiece.normalizer = normalizers.BertNormalizer(strip_accents=True, lowercase=True)
    wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=wordpiece, unk_token="[UNK]")
    found = [lost for _, lost in measured(["CAFÉ  12", "café ÷", "1\u200b2"], tokenizer)]
    assert found == ["", "'÷'", ""]


# --- the warm start trains what is played ----------------------------------------------------------------------------

QUESTION, ANSWER, REFINED = "What is 7 + 5?", "7 + 5 = 12. The answer is 12.", "It is 12. The answer is 12."
PREAMBLE = "Let me see.\n"
TASK = Task(id="t", prompt=QUESTION, answer="12")


def contexts_of_play(prompts, tokenizer) -> dict[str, tuple[int, ...]]:
    """Play a critique round with given replies; the contexts that it asks with."""
    found = {}
    replies = {"answer": ANSWER, "critique": PREAMBLE + f"Step sentence: {ANSWER}", "refine": REFINED}

    def writer(requests):
        (request,) = requests
        kind = list(replies)[len(found)]
        found[kind] = request.context
        tokens = tuple(tokenizer.encode(replies[kind], add_special_tokens=False))
        return [Completion(tokens=tokens, logprobs=(0.0,) * len(tokens), stop_reason="stop", version=0)]

    role = PolicyRole("any", "any", tokenizer, Sampling())
    rollout = CritiqueRound(prompts=prompts, actor=role, critic=role, reviser=role, key=(0,))
    roll_out([rollout(TASK)], {"any": writer, "grader": lambda asked: [Grade(score=1.0) for _ in asked]})
    return found


@pytest.mark.parametrize("name", PROMPTS.names())
@pytest.mark.parametrize("with_prefill", [False, True])  # as a run's own traces have them
def test_the_warm_start_trains_the_contexts_that_are_played(words, tmp_path, name, with_prefill):
    prompts = PROMPTS.get(name)
    first, second = (prompts.solve_prefill, prompts.refine_prefill) if with_prefill else ("", "")
    row = {"question": QUESTION, "answer": first + ANSWER, "correct": True, "refinement": second + REFINED}
    # In the tiny world, where no marker is looked for, the actor is shown all of a critique.
    file = lines(tmp_path / "rows.jsonl", row | {"critique": PREAMBLE + f"Step sentence: {ANSWER}"})
    episodes = contexts_of_play(prompts, words)
    read = {each.kind: each for each in read_demonstrations(file, prompts)}
    for kind, asked, text in (("solve", "answer", ANSWER), ("refine", "refine", REFINED)):
        trained = demonstration_row(read[kind], "actor", words)
        before = trained.trains[0]
        assert tuple(trained.tokens[:before]) == episodes[asked], kind
        assert trained.trains.tolist() == list(range(before, len(trained.tokens)))
        assert words.decode(trained.tokens[before:-1]) == text
    critique = demonstration_row(read["critique"], "critic", words)
    assert tuple(critique.tokens[: critique.trains[0]]) == episodes["critique"]


def test_every_broken_line_of_a_warm_start_file_is_named(tmp_path):
    good = json.dumps({"question": "q", "answer": "a", "correct": True})
    for line, says in (
        ("{", "line 2: not JSON"),
        ("5", "line 2: expected an object"),
        ('{"question": 5, "answer": "a"}', "line 2: question must be text, not 5"),
        ('{"question": "q"}', "line 2: no answer"),
        ('{"question": "q", "answer": ""}', "line 2: no answer"),
        ('{"question": "q", "answer": "a", "critiqe": "c"}', "line 2: unknown field 'critiqe'; the fields are"),
        ('{"question": "q", "answer": "a", "correct": "false"}', "line 2: correct must be true or false, not 'false'"),
        ('{"question": "q", "answer": "a", "critique": ["c"]}', "line 2: critique must be text"),
        ('{"question": "q\\ud800", "answer": "a"}', "line 2: half a character"),
        ("[" * 100_000, "line 2: nested too deeply"),
    ):
        file = tmp_path / "rows.jsonl"
        file.write_text(f"{good}\n{line}\n")
        with pytest.raises(DataError) as caught:
            read_demonstrations(file, ENGLISH)
        assert says in str(caught.value)
    for text, says in (("", "is empty"), ("\n \n", "is empty"), ('{"question": "q", "answer": "a"}', "to imitate")):
        file.write_text(text)
        with pytest.raises(DataError, match=says):
            read_demonstrations(file, ENGLISH)
