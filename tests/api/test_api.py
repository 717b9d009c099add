"""`import whet`: instant, and the whole way from training to a critic at work; the README's lines are run too."""

from __future__ import annotations

import ast
import logging
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import whet
import whet.kit
from whet.config import ConfigError
from whet.config.parts import ChainData, EngineConfig, SamplingConfig
from whet.errors import RunError
from whet.report.records import ReportError
from whet.rollout.samples import fork
from whet.run.data import load_tasks
from whet.tasks.chains import answer_text, parse_chain
from whet.tasks.prompts import CHAINS

ROOT = Path(__file__).parents[2]
TINY = {"num_train": 32, "num_validation": 4, "num_test": 6}
SMALL = {
    "num_threads": 1, "num_steps": 2, "prompts_per_step": 4, "group_size": 2, "data": TINY,
    "evaluation": {"num_samples": 0}, "checkpoint_every": 1,
}  # fmt: skip


# --- progress ---------------------------------------------------------------------------------------------------------


def test_progress_takes_a_function_that_is_called_after_each_step(random_model, tmp_path):
    seen = []
    settings = {"policy.path": str(random_model), "num_steps": 2, "prompts_per_step": 2, "group_size": 2,
                "num_threads": 1, "data.num_train": 8, "data.num_validation": 2, "data.num_test": 2}  # fmt: skip
    whet.train("grpo", out=tmp_path / "run", progress=lambda *step: seen.append(step), **settings)
    trained = [step for step in seen if step[0] == "train"]
    assert [step[:3] for step in trained] == [("train", 1, 2), ("train", 2, 2)]
    assert all("reward/mean" in step[3] for step in trained)
    assert {step[0] for step in seen} > {"train"}  # measuring has phases too


@pytest.mark.parametrize("progress", [None, "yes", 3, lambda: None, lambda step: None])
def test_what_is_no_progress_is_told_what_is(progress, tmp_path):
    with pytest.raises(ConfigError, match=r"has to be True, False, a function that takes \(phase, step, num_steps"):
        whet.train("grpo", out=tmp_path / "run", progress=progress, num_steps=1)
    assert not (tmp_path / "run").exists()


# --- importing --------------------------------------------------------------------------------------------------------


def test_importing_is_instant_and_loads_no_torch():
    code = (
        "import sys, time; t = time.process_time(); import whet; print(time.process_time() - t, 'torch' in sys.modules)"
    )
    spent, torch_is_there = min(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(3)
    )
    assert float(spent) < 0.4
    assert torch_is_there == "False"


def test_looking_at_a_run_loads_no_torch(run):
    code = f"import sys, whet; run = whet.Run.open({str(run.folder)!r}); run.table, run.metrics, str(run)"
    code += "; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("module", [whet, whet.kit], ids=lambda module: module.__name__)
def test_what_it_offers_is_said_three_times_and_alike(module):
    """To Python when a name is used, to type checkers, and to `from whet import *`."""
    tree = ast.parse(Path(module.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == module._MODULE_OF
    assert sorted(typed) == sorted(module.__all__)
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'trian'"):
        module.trian  # noqa: B018


def test_the_version_is_that_of_the_distribution():
    assert re.fullmatch(r"\d+\.\d+.*", whet.__version__)


# --- train, Run, evaluate ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory, random_model) -> whet.Run:
    out = tmp_path_factory.mktemp("runs") / "grpo"
    return whet.train("grpo", out=out, policy={"path": str(random_model)}, progress=False, **SMALL)


def test_a_run_says_what_its_folder_holds(run):
    assert run.finished
    assert run.config.num_steps == run.settings["num_steps"] == 2
    assert [row["step"] for row in run.metrics_of("train")] == [0, 1, 2]
    assert {row["phase"] for row in run.metrics} == {"before", "train", "after"}
    assert any(event["event"] == "finished" for event in run.events)
    assert {"question", "answer"} <= run.traces[0].keys()
    # The end of a phase counts as a step; the third is the end of training, with its optimiser.
    assert [path.name for path in run.checkpoints] == ["step_000008", "step_000006", "step_000005"]
    assert list(run.table) == ["before", "best", "last"]
    assert run.table["last"]["n"] == 6
    assert (run.folder / "report.html").exists()
    assert "Before training" in str(run)
    assert repr(run) == f"<Run {run.folder}: policy_gradient, finished>"
    assert whet.Run.open(str(run.folder)) == run


def test_a_run_that_goes_on_can_be_looked_at(run, tmp_path):
    (tmp_path / "config.yaml").write_text("method: policy_gradient\n")
    unfinished = whet.Run.open(tmp_path)
    assert repr(unfinished) == str(unfinished) == f"<Run {tmp_path}: policy_gradient, unfinished, no step yet>"
    (tmp_path / "metrics.jsonl").write_text('{"phase": "train", "step": 1, "x": 2.0}\n{"phase": "tra')
    assert unfinished.metrics == [{"phase": "train", "step": 1, "x": 2.0}]
    assert "unfinished, train step 1" in repr(unfinished)
    assert (unfinished.table, unfinished.finished, unfinished.traces, unfinished.checkpoints) == ({}, False, [], [])
    with pytest.raises(ReportError, match="is no folder"):
        whet.Run.open(tmp_path / "nothing")


def test_settings_may_come_in_every_form(run, random_model, tmp_path):
    """As mappings, with dots, from a file, from another run: the same run, which goes on as it is."""
    file = tmp_path / "mine.yaml"
    file.write_text(f"policy: {{path: {random_model}}}\nnum_steps: 2\nnum_threads: 1\n")
    flat = {"data.num_train": 32, "data.num_validation": 4, "data.num_test": 6, "evaluation.num_samples": 0}
    settings = {"prompts_per_step": 4, "group_size": 2, "checkpoint_every": 1}
    before = (run.folder / "metrics.jsonl").stat().st_mtime_ns
    assert whet.train("grpo", out=run.folder, config=file, progress=False, **settings, **flat) == run
    assert whet.train("grpo", out=run.folder, config=run.config, progress=False) == run
    assert whet.train("grpo", out=run.folder, config=run.settings, progress=False) == run
    assert (run.folder / "metrics.jsonl").stat().st_mtime_ns == before
    with pytest.raises(RunError, match=r"(?s)another config: .*\n  seed: 0 -> 1$"):
        whet.train("grpo", out=run.folder, config=run.config, seed=1, progress=False)


def test_text_stays_text_on_the_way(tmp_path):
    """What YAML would take for something else is quoted."""
    from whet.api.commands import overrides_of
    from whet.config.loading import parse_override

    values = {
        "a": "no",
        "b": "1e-3",
        "c": "",
        "d": "x: y #z",
        "e": ["*", "{q}"],
        "f": {"g": None, "h": 1e-5},
        "i": "\n\t'",
    }
    assert {k: v for each in overrides_of(values) for k, v in parse_override(each).items()} == values
    assert overrides_of({"a": (1, 2), "b": Path("x"), "c": SamplingConfig()})[:2] == ["a=[1, 2]", "b=x"]
    with pytest.raises(ConfigError, match="n: Tensor"):
        overrides_of({"n": torch.ones(1)})


def test_the_same_run_twice_in_one_process_has_the_same_bits_and_leaves_torch_as_it_was(run, tmp_path):
    torch.manual_seed(7)
    expected = torch.rand(2)
    torch.manual_seed(7)
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    again = whet.train("grpo", out=tmp_path / "again", config=run.config, progress=False)
    assert torch.equal(torch.rand(2), expected)
    assert torch.get_num_threads() == threads
    assert torch.are_deterministic_algorithms_enabled() == deterministic
    timeless = [[{k: v for k, v in row.items() if not k.startswith(("time/", "throughput/"))} for row in r.metrics]
                for r in (run, again)]  # fmt: skip
    assert timeless[0] == timeless[1]


def test_a_run_may_be_trained_in_a_thread(run, tmp_path):
    """Where no signal handler can be set."""
    found = []
    thread = threading.Thread(
        target=lambda: found.append(whet.train("grpo", out=tmp_path / "run", config=run.config, progress=False))
    )
    thread.start()
    thread.join()
    assert found[0].table == run.table


def test_evaluate(run, random_model):
    assert whet.evaluate(run)["last"]["acc"] == run.table["last"]["acc"]
    found = whet.evaluate(run.folder, names="best", samples=2, temperature=0.5, data={"num_test": 3})
    assert list(found) == ["best"]
    assert (found["best"]["n"], found["best"]["k"]) == (3, 2)
    alone = whet.evaluate("grpo", policy={"path": str(random_model)}, **{"data.num_test": 6, "data.num_train": 32})
    assert alone["policy"]["acc"] == run.table["before"]["acc"]


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda run: whet.train("grpp", out="x"), "did you mean 'grpo'"),
        (lambda run: whet.train("grpo", out="x", num_stepz=1), "num_steps"),
        (lambda run: whet.train("grpo", out="x", plugins=["nowhere.py"]), "is not there"),
        (lambda run: whet.evaluate("nowhere"), "neither a run folder nor a method; `whet methods` lists those"),
        (lambda run: whet.evaluate(run, split="tests"), "train, validation, test"),
        (lambda run: whet.evaluate(run, samples=0), "at least 1"),
        (lambda run: whet.evaluate(run, names="worst"), "choose of: best, last"),
        (lambda run: whet.evaluate(run, policy={"path": "tiny"}), "changes the model"),
        (lambda run: whet.load_critic(run.folder), "none of whose policies critiques"),
        (lambda run: whet.load_critic("tiny"), "give prompts='english'"),
        (lambda run: whet.load_critic("tiny", "stage2", prompts="chains"), "leave the name out"),
        (lambda run: whet.load_critic("tiny", prompts="chain"), "did you mean 'chains'"),
    ],
)
def test_what_cannot_be_is_one_sentence(run, act, says):
    with pytest.raises(whet.WhetError, match=re.escape(says)) as error:
        act(run)
    assert "\n" not in str(error.value)


def test_warnings_are_logged_where_nothing_is_shown(caplog, capsys):
    from whet.api.watching import _Quiet

    with caplog.at_level(logging.WARNING):
        _Quiet().tell("warning", "look here")
        _Quiet().tell("info", "never mind")
    assert caplog.messages == ["look here"]
    assert capsys.readouterr().out == ""


# --- a critic at work -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def critic() -> whet.Critic:
    return whet.load_critic("tiny", prompts="chains")


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    """Right answers and ones with a wrong last step, in turn."""
    tasks = load_tasks(ChainData(num_train=1, num_validation=1, num_test=24)).tasks["test"]
    chains = [parse_chain(task.prompt) for task in tasks]
    values = [[*chain.values[:-1], (chain.values[-1] + i % 2) % 10] for i, chain in enumerate(chains)]
    return [(chain.text, answer_text(chain, value)) for chain, value in zip(chains, values, strict=True)]


def test_a_greedy_verdict_is_the_likelier_one(critic, pairs):
    found = critic.critique_all(pairs)
    assert {each.verdict for each in found} == {"correct", "wrong"}
    for each in found:
        assert each.text.endswith(CHAINS.closing(right=each.verdict == "correct"))
        assert 0 < each.probability < 1
        assert (each.probability > 0.5) == (each.verdict == "correct")


def test_the_probability_is_the_models_own(critic, pairs):
    """By a plain forward pass over question, answer and critique up to the label."""
    found = critic.critique(*pairs[0])
    tokenizer, model = critic.policy.tokenizer, critic.policy.model
    chat = tokenizer.apply_chat_template(
        critic.prompts.critique_messages(*pairs[0]), add_generation_prompt=True, return_dict=False
    )
    ids = [*chat, *tokenizer.encode(found.text[: found.text.rindex(":")], add_special_tokens=False)]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1]
    right, wrong = (tokenizer.encode(f": {word}", add_special_tokens=False)[0] for word in ("Correct", "Wrong"))
    assert found.probability == pytest.approx(float(torch.sigmoid(logits[right] - logits[wrong])), abs=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_batch_equals_singles(critic, pairs, temperature):
    batch = critic.critique_all(pairs[:6], temperature=temperature, seed=3)
    for pair, each in zip(pairs, batch, strict=False):
        alone = critic.critique(*pair, temperature=temperature, seed=3)
        assert (alone.text, alone.verdict) == (each.text, each.verdict)
        assert alone.probability == pytest.approx(each.probability, abs=1e-5)
    assert batch != critic.critique_all(pairs[:6], temperature=1.0, seed=4)
    assert critic.critique_all([]) == []


def test_a_critique_that_comes_to_no_verdict_has_no_probability(critic, pairs):
    cut = critic.critique(*pairs[0], max_new_tokens=4)
    assert (cut.verdict, cut.probability) == (None, None)


def test_labels_of_several_tokens_part_at_the_first_that_differs(small_model):
    """A byte-level BPE, and labels that begin alike; where the label is cut before its verdict, where it is wrapped in
    emphasis, and in other words than the labels': there is a place, and so a probability."""
    from dataclasses import replace

    english = replace(whet.PROMPTS.get("english"), right="answer right", wrong="answer wrong")
    critic = whet.load_critic(small_model, prompts="english")
    critic = whet.Critic(critic.policy, english, critic.sampling, EngineConfig())
    tokenizer = critic.policy.tokenizer
    for said in ("...: answer right", "...:", "...: **answer wrong**", "...: maybe"):
        text = said.replace("...", f"Step sentence: 1\n\n{english.verdict_line}")
        ids = (*tokenizer.encode(text), tokenizer.eos_token_id)
        (right, wrong), context = fork(tokenizer, english, _segment(text, ids)), (5, 6)
        for row in (right, wrong):
            assert tuple(row.tokens[:2]) == context
            shown = tokenizer.decode(row.tokens[2:])
            assert shown.startswith(text[: text.index(":", 20)])
        ends = [tokenizer.decode(row.tokens[-1:]) for row in (right, wrong)]
        assert ends[0] != ends[1]
        assert tuple(right.tokens[:-1]) == tuple(wrong.tokens[:-1])
        assert tokenizer.eos_token_id not in right.tokens
        (chance,) = critic._chances([_segment(text, ids)])
        assert 0 < chance < 1
    assert fork(tokenizer, english, _segment("nothing", tuple(tokenizer.encode("nothing")))) is None


def _segment(text: str, ids: tuple[int, ...]) -> whet.Segment:
    return whet.Segment(
        role="critic", policy="critic", added=(5, 6), tokens=ids, logprobs=(0.0,) * len(ids), versions=((0, len(ids)),),
        text=text, stop_reason="eos", temperature=0.0, seed=0, parent=None,
    )  # fmt: skip


def test_the_critics_of_a_run(critique_run):
    run = whet.Run.open(critique_run)
    critic = whet.load_critic(run.folder)
    assert critic.policy.name == "critic_stage2"
    assert critic.sampling == run.config.roles.critique
    assert whet.load_critic(run.folder, "sft_critic").policy.name == "critic_sft"
    assert whet.load_critic(run.folder, "critic").policy.name == "critic"
    place = run.checkpoints[0] / "policies" / "critic_stage2"
    model = whet.load_critic(place, prompts="chains")
    pair = (run.traces[0]["question"], run.traces[0]["answer"])
    assert model.critique(*pair, max_new_tokens=80) == critic.critique(*pair)
    for name in ("actor", "stage3"):
        with pytest.raises(
            ConfigError, match=f"no critic '{name}'; choose of: critic_sft, critic_stage1, critic_stage2"
        ):
            whet.load_critic(run.folder, name)


# --- the README -------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_the_readmes_lines_run(tmp_path, monkeypatch):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.search(r"<!-- python: run in tests -->\n+```python\n(.*?)```", text, re.DOTALL)[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
