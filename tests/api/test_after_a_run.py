"""What a finished run can be put to: the link to its best policy, the exported folder, and talking to it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

import whet
from whet.api.card import _data
from whet.cli import app
from whet.cli.console import program
from whet.config import ConfigError
from whet.config.parts import BasicsData, ChainData, FileData
from whet.errors import RunError
from whet.run.load import load_run
from whet.run_folder.folder import RunFolder
from whet.tasks.prompts import find_prompts

SMALL = {
    "num_threads": 1, "num_steps": 2, "prompts_per_step": 4, "group_size": 2, "validate_every": 1,
    "data": {"num_train": 32, "num_validation": 4, "num_test": 6}, "evaluation": {"num_samples": 0},
}  # fmt: skip
QUESTION = "7 + 5 * 3"
ANSWER = "Step 1: 7 + 5 = 2\nStep 2: 2 * 3 = 7\nThe answer is 7"


@pytest.fixture(scope="module")
def adapters(tmp_path_factory, random_model) -> whet.Run:
    """A run of one policy with LoRA."""
    model = {"path": str(random_model), "lora": {"rank": 4}}
    return whet.train("grpo", out=tmp_path_factory.mktemp("runs") / "lora", policy=model, progress=False, **SMALL)


@pytest.fixture(scope="module")
def critics(tmp_path_factory) -> whet.Run:
    """Actor and critic of the shipped model, as they are but for a step each."""
    steps = {"actor_steps": 1, "critic_steps": 1}
    out = tmp_path_factory.mktemp("runs") / "critics"
    settings = {key: value for key, value in SMALL.items() if key != "evaluation"}
    return whet.train("critique_dpo", out=out, progress=False, warm_start=steps, **settings)


def logits(place: Path) -> torch.Tensor:
    return AutoModelForCausalLM.from_pretrained(place)(torch.tensor([[5, 21, 6, 22, 7]])).logits


# --- the link ---------------------------------------------------------------------------------------------------------


def test_the_link_leads_to_the_best_weights_and_stores_nothing_twice(adapters):
    assert adapters.best == adapters.folder / "best"
    assert (adapters.folder / "best").readlink().parts[-1] == "policy_best"
    assert not (adapters.folder / "best").readlink().is_absolute()
    assert load_run(adapters.folder).names == ("policy_best", "policy")


def test_a_file_system_without_links_gets_a_sentence(monkeypatch, tmp_path):
    def refused(*_args, **_more):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refused)
    place = tmp_path / "checkpoints" / "step_1" / "policies" / "policy"
    said = RunFolder(tmp_path).link_best(place)
    assert said == f"{tmp_path}/best could not be made a link (Operation not permitted): the best policy is in {place}"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_the_users_is_left_alone_and_the_link_goes_with_the_run(tmp_path):
    folder = RunFolder(tmp_path)
    (tmp_path / "best").mkdir()
    assert "is none of the run's, so it stays as it is" in folder.link_best(tmp_path / "checkpoints" / "step_1")
    (tmp_path / "best").rmdir()
    for step in ("step_1", "step_2"):
        assert folder.link_best(tmp_path / "checkpoints" / step) is None
    assert str((tmp_path / "best").readlink()) == "checkpoints/step_2"
    folder.acquire()
    folder.clear()
    folder.release()
    assert not (tmp_path / "best").is_symlink()


def test_the_last_lines_of_train_say_how_to_go_on(critics):
    done = CliRunner().invoke(app, ["train", "critique_dpo", str(critics.folder / "config.yaml"), "--out",
                                    str(critics.folder)])  # fmt: skip
    lines = done.output.splitlines()
    assert lines[-5] == f"trained: {critics.folder}/best (critic_preferred)"
    assert [line.split()[:2] for line in lines[-3:]] == [[program(), name] for name in ("chat", "serve", "export")]


# --- export -----------------------------------------------------------------------------------------------------------


def test_an_adapter_loads_over_its_base_to_the_bit_and_merged_up_to_rounding(adapters, random_model, tmp_path):
    policy = load_run(adapters.folder).load(["policy_best"])["policy_best"]
    own = policy.model(torch.tensor([[5, 21, 6, 22, 7]])).logits
    place = whet.export(adapters.folder, tmp_path / "adapter")
    base = AutoModelForCausalLM.from_pretrained(random_model)
    assert torch.equal(PeftModel.from_pretrained(base, place)(torch.tensor([[5, 21, 6, 22, 7]])).logits, own)
    merged = whet.export(adapters.folder, tmp_path / "merged", merge=True)
    assert not (merged / "adapter_config.json").exists()
    torch.testing.assert_close(logits(merged), own, atol=1e-4, rtol=1e-4)
    assert AutoTokenizer.from_pretrained(merged).chat_template
    assert "library_name: peft" in (place / "README.md").read_text()
    assert "the LoRA adapter merged into them" in (merged / "README.md").read_text()


def test_the_card_says_what_it_is_and_whose_licence_it_has(critics, tmp_path):
    card = (whet.export(critics.folder, tmp_path / "out") / "README.md").read_text()
    head = yaml.safe_load(card.split("---\n")[1])
    assert head == {
        "library_name": "transformers", "pipeline_tag": "text-generation",
        "tags": ["whet", "critique_dpo", "arxiv:2305.18290"],
        "license": "apache-2.0",
    }  # fmt: skip
    assert "# critic_preferred, trained with critique_dpo" in card
    assert "a copy of `critic` after" in card
    assert "In brackets: the 95 % interval of Acc@Refine." in card
    assert len(re.findall(r"\d\*{0,2} \([\d.]+–[\d.]+\) \|", card)) == len(critics.table)
    assert "| selected by | train step" in card
    assert "validation/acc_refine = " in card
    for row in critics.table:
        assert f"| {critics.report_spec.title(row)} |" in card, row
    assert "Licence apache-2.0, which is the base model's. Its text is in `LICENSE`." in card
    assert (tmp_path / "out" / "LICENSE").read_text() == (Path(__file__).parents[2] / "LICENSE").read_text()
    assert "| which came from | ships with whet |" in card


def test_the_card_does_not_call_weights_trained_that_no_update_has_moved(adapters, tmp_path):
    """No validation of a random model is better than the first, so its best weights are those of step 0."""
    assert load_run(adapters.folder).versions["policy_best"] == 0
    card = (whet.export(adapters.folder, tmp_path / "out") / "README.md").read_text()
    assert "# policy_best, which a run of policy_gradient holds and has not trained" in card
    assert "| selected by | train step 0: validation/acc = " in card


def test_another_policy_by_name(critics, tmp_path):
    done = CliRunner().invoke(app, ["export", str(critics.folder), str(tmp_path / "actor"), "--policy", "actor"])
    assert done.output.splitlines()[-1] == "licence apache-2.0"
    assert torch.equal(logits(tmp_path / "actor"), logits(critics.checkpoints[0] / "policies" / "actor"))
    assert "It answers questions when" in (tmp_path / "actor" / "README.md").read_text()


def test_the_cards_snippet_writes_what_the_actor_answers(critics, tmp_path, capsys):
    card = (whet.export(critics.folder, tmp_path / "actor", "actor") / "README.md").read_text()
    snippet = card.split("```python\n")[1].split("```")[0]
    worded = find_prompts(critics.config.prompts).solve_messages(QUESTION)[-1]["content"]
    exec(snippet.replace('"DIR"', repr(str(tmp_path / "actor"))).replace('"..."', repr(worded)), {})
    assert capsys.readouterr().out.strip() == whet.load_actor(critics.folder).answer(QUESTION).strip()
    assert f"`num_steps={critics.config.num_steps}`" in card  # and what else was set


def test_what_cannot_be_exported_says_so_and_writes_nothing(critics, tmp_path, monkeypatch):
    full = tmp_path / "full"
    full.mkdir()
    (full / "x").write_text("x")
    for arguments, says in (
        ((critics.folder, full), "is there and not empty"),
        ((critics.folder, tmp_path / "a", "nobody"), "no policy 'nobody'; choose of: critic_preferred, actor, critic"),
        ((tmp_path, tmp_path / "a"), "holds no run"),
    ):
        with pytest.raises(ConfigError, match=says):
            whet.export(*arguments)
    with pytest.raises(ConfigError, match="no adapter to merge"):
        whet.export(critics.folder, tmp_path / "a", merge=True)
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(critics.folder / "config.yaml", bare)
    with pytest.raises(RunError, match="no checkpoint yet"):
        whet.export(bare, tmp_path / "a")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="could not write"):
        whet.export(critics.folder, tmp_path / "file" / "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bare", "file", "full"]
    with pytest.raises(ConfigError, match="lies in the run itself"):
        whet.export(critics.folder, critics.folder / "checkpoints" / "step_000099")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert (whet.export(critics.folder, ".") / "README.md").is_file()
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".empty.tmp").mkdir()
    assert json.loads((whet.export(critics.folder, tmp_path / "empty") / "config.json").read_text())
    assert (tmp_path / ".empty.tmp").is_dir()  # somebody else's


# --- chat -------------------------------------------------------------------------------------------------------------


def piped(run: whet.Run, text: str, *options: str) -> str:
    done = CliRunner().invoke(app, ["chat", str(run.folder), *options], input=text)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def said(monkeypatch):
    """What is said where somebody types."""
    monkeypatch.setattr("whet.cli.chat._is_typed", lambda: True)
    return piped


@pytest.mark.integration
def test_a_pipe_has_a_question_a_line(adapters):
    """Of a policy that answers alone: two lines are two questions, and the end of the input is no error."""
    other = "Solve: 2 + 2 * 3"
    actor = whet.load_actor(adapters.folder)
    for text in (f"{QUESTION}\n{other}\n", f"{QUESTION}\n\n\n{other}"):
        output = piped(adapters, text)
        assert output.count("answer by policy_best") == 2
        first, second = output.split("answer by policy_best\n")[1:]
        assert first.split(other)[0].split()[: len(actor.answer(QUESTION).split())] == actor.answer(QUESTION).split()
        assert second.split() == actor.answer(other).split()
    assert piped(adapters, f"{QUESTION}\n/quit\n{other}\n").count("answer by") == 1
    assert "answer by" not in piped(adapters, "\n\n")


def test_a_line_of_a_pipe_may_bring_the_answer_that_is_to_be_judged(critics):
    answer = ANSWER.splitlines()[0]
    output = piped(critics, f"{QUESTION}\t{answer}\n{QUESTION}\n")
    own = whet.load_critic(critics.folder).critique(QUESTION, answer)
    assert output.count("critique by") == output.count("refinement by") == 2
    assert output.count("answer by actor") == 1
    assert own.text.splitlines()[-1] in output
    assert ">" not in output.replace("<", "")  # nothing is asked of a pipe


def test_a_critic_judges_what_it_is_given_and_the_actor_refines_on_request(critics, said):
    output = said(critics, f"{QUESTION}\n\n{ANSWER}\n\n\n")
    own = whet.load_critic(critics.folder).critique(QUESTION, ANSWER)
    actor = whet.load_actor(critics.folder)
    assert "critic_preferred and actor of" in output
    assert f"verdict: {own.verdict}   p(right) = {own.probability:.3f}" in output
    assert own.text.splitlines()[-1] in output
    refined = actor.refine(QUESTION, ANSWER, own.text)
    assert output.split("refinement by actor")[1].split() == [*refined.split(), "question>"]


def test_the_actor_answers_where_the_user_does_not_and_problems_of_the_run_are_graded(critics, said):
    output = said(critics, f"/tasks\n/help\n/task\n\nn\n{QUESTION}\n\n\nn\n/reference 0\n/quit\n")
    assert "answer by actor" in output
    assert output.count("There is no command") == 1
    assert output.count("graded ") >= 2
    assert "(reference: 0)" in output
    assert "refinement" not in output
    assert whet.load_actor(critics.folder).answer(QUESTION).splitlines()[-1] in output


def test_a_policy_that_answers_alone_and_texts_with_empty_lines(adapters, critics, said):
    output = said(critics, f'"""{QUESTION}\n\n"""\n', "--policy", "actor")
    assert "answer by actor" in output
    assert "critique" not in output
    assert "answer by policy_best" in said(adapters, f"{QUESTION}\n")  # the end of the input ends the question


def test_who_is_not_there_is_said_and_no_input_is_no_error(critics, said):
    assert CliRunner().invoke(app, ["chat", str(critics.folder), "--policy", "nobody"]).exit_code == 2
    assert said(critics, "").count("question>") == 1


# --- what is said of a run, and what is refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (ChainData(), "the tiny world (chains of arithmetic, read from left to right and modulo 10), sha256"),
        (BasicsData(), "basics, sha256"),
        (
            FileData(train_path="a.jsonl", test_path="b.jsonl"),
            "file: train_path `a.jsonl`, test_path `b.jsonl`, sha256",
        ),
        (FileData(hub="openai/gsm8k", subset="main"), "file: hub `openai/gsm8k`, subset `main`, sha256"),
    ],
)
def test_a_card_names_the_data(data, named):
    assert _data(data).startswith(named)


def test_numbers_out_of_range_and_prompts_without_room_are_refused(critics):
    critic, actor = whet.load_critic(critics.folder), whet.load_actor(critics.folder)
    for temperature in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="has to be 0 or more"):
            actor.answer(QUESTION, temperature=temperature)
    for count in (0, -1):
        with pytest.raises(ConfigError, match=f"max_new_tokens = {count} at least 1"):
            critic.critique(QUESTION, ANSWER, max_new_tokens=count)
    with pytest.raises(ConfigError, match=r"has 1024 positions; a prompt takes 1\d\d\d tokens"):
        critic.critique("7 + 5 " * 500, ANSWER)
    with pytest.raises(ConfigError, match="temperature = -1 has to be 0 or more"):
        whet.evaluate(critics.folder, samples=2, temperature=-1)


def test_an_adapter_over_another_base_is_refused(random_model, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(random_model, base)
    model = {"path": str(base), "lora": {"rank": 4}}
    run = whet.train("grpo", out=tmp_path / "run", policy=model, progress=False, **SMALL)
    assert whet.load_actor(run.folder).answer(QUESTION)
    weights = base / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(RunError, match=r"lie over a base that is not there as it was: policy.path = .*was replaced"):
        whet.load_actor(run.folder)


def test_a_command_is_no_answer(critics, said):
    output = said(critics, f"{QUESTION}\n\n/quit\n{ANSWER}\n\nn\n/quit\n")
    assert "An answer, or an empty line; commands are for the next question." in output
    assert output.count("critique by") == 1


# --- an agent ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def agents(tmp_path_factory) -> whet.Run:
    """A run of the shipped agent, as it is but for a step."""
    settings = {"num_threads": 1, "num_steps": 1, "prompts_per_step": 2, "group_size": 2, "max_turns": 3}
    data = {"env": "textcraft", "num_validation": 2, "num_test": 6}
    out = tmp_path_factory.mktemp("runs") / "agent"
    return whet.train("agent_grpo", out=out, progress=False, data=data, evaluation={"max_turns": 4}, **settings)


def test_the_card_of_an_agent_says_where_it_acts_and_how(agents, tmp_path):
    card = (whet.export(agents.folder, tmp_path / "agent") / "README.md").read_text()
    assert "A language model that acts in environments, turn by turn." in card
    assert "environments: env `textcraft`" in card
    assert "read in the format `react`" in card
    assert "`whet eval --policy DIR --env textcraft` runs it" in card
    assert "(absent)" not in card


def test_an_agent_does_not_chat_and_says_what_plays_it(agents):
    done = CliRunner().invoke(app, ["chat", str(agents.folder)])
    assert done.exit_code == 2
    assert "it acts in environments, and `whet eval" in " ".join(done.output.split())
