"""A user's own reward, wording and method, each in a file: trained with, resumed, and refused once it has changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import whet
from support.commands import whet as whet_command
from whet.config import ConfigError
from whet.credit.rewards import outcome, rewarded
from whet.rewards import RewardError
from whet.tasks.chains import sample_chains
from whet.trainer.checkpoint import load_state, newest_first

OWN = Path(__file__).parents[1] / "plugins"
SMALL = [
    "num_threads=1", "num_steps=2", "prompts_per_step=4", "checkpoint_every=1", "evaluation.num_samples=0",
    "evaluation.num_validation=4", "evaluation.num_test=4",
]  # fmt: skip


def command(*arguments: object, fails: bool | str = False) -> str:
    """What a command says: on stdout, or where it has to fail its sentence, spaces evened out.

    Args:
        fails: what stderr holds besides, where it may.
    """
    done = whet_command(*arguments, check=False)
    assert (done.returncode != 0) == bool(fails), done.stdout + done.stderr
    assert fails == "Traceback" or "Traceback" not in done.stderr, done.stderr
    return " ".join(done.stderr.split()) if fails else done.stdout


@pytest.fixture(scope="module")
def chains(tmp_path_factory) -> Path:
    """The tiny world's problems, as a file of questions and answers."""
    file = tmp_path_factory.mktemp("data") / "chains.jsonl"
    stream = sample_chains("train", 0, min_steps=3, max_steps=4)
    rows = [{"question": chain.text, "answer": str(chain.values[-1])} for chain, _ in zip(stream, range(80))]  # noqa: B905
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def metrics(run: Path) -> list[dict]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "throughput/"))} for row in rows]


def interrupted(run: Path) -> Path:
    """A copy of a run as if it had been killed after its last checkpoint but one."""
    copy = run.with_name("interrupted")
    shutil.copytree(run, copy)
    shutil.rmtree(newest_first(copy)[0])
    (copy / "summary.json").unlink()
    return copy


def test_a_reward_a_grader_and_a_wording(tmp_path, chains):
    """With the shipped model, which also answers where its question is put a little otherwise."""
    mine, words = shutil.copy(OWN / "my_reward.py", tmp_path), shutil.copy(OWN / "my_words.yaml", tmp_path)
    own = [f"plugins=[{mine}]", "data.kind=file", f"data.path={chains}", "data.grader=ends_right", f"prompts={words}"]
    run = tmp_path / "run"
    command("train", "grpo", *SMALL, *own, "rewards={brief: 0.1}", "group_size=4", "--out", run)
    rows = [row for row in metrics(run) if row["phase"] == "train" and row["step"]]
    for row in rows:
        assert row["reward/brief"] == pytest.approx(-row["length/mean"] / 100)
        assert row["reward/mean"] == pytest.approx(row["reward/correct"] + 0.1 * row["reward/brief"])
    assert 0 < sum(row["reward/correct"] for row in rows) < len(rows)  # the grader tells replies apart

    inputs = load_state(newest_first(run)[0])["origin"]["inputs"]
    assert {f"plugins = {mine}", f"prompts = {words}", f"data.path = {chains}"} <= inputs.keys()

    copy = interrupted(run)
    command("resume", copy)
    assert metrics(copy) == metrics(run)

    shutil.rmtree(copy)
    copy = interrupted(run)
    Path(mine).write_text(Path(mine).read_text().replace("/ 100", "/ 10"))
    assert f"plugins = {mine} was replaced since the run began" in command("resume", copy, fails=True)
    command("resume", copy, "--accept-changes")
    assert "was replaced" in (copy / "events.jsonl").read_text()


def test_a_run_whose_helper_was_edited_does_not_go_on_silently(tmp_path, random_model):
    (tmp_path / "helper.py").write_text("WEIGHT = 1.0\n")
    mine = tmp_path / "mine.py"
    reward = f"@whet.reward('{tmp_path.name}')\ndef mine(episode, index):\n    from helper import WEIGHT\n"
    mine.write_text(f"import whet\n{reward}    return WEIGHT\n")
    run, copy = tmp_path / "run", tmp_path / "interrupted"
    small = [*SMALL, f"policy.path={random_model}", "group_size=2", "data.num_train=16", "data.num_test=4",
             "data.num_validation=4"]  # fmt: skip
    command("train", "grpo", f"plugins=[{mine}]", f"rewards={{{tmp_path.name}: 1}}", *small, "--out", run)
    assert [row[f"reward/{tmp_path.name}"] for row in metrics(run) if row["phase"] == "train" and row["step"]] == [1, 1]
    assert interrupted(run) == copy
    (tmp_path / "helper.py").write_text("WEIGHT = 2.0\n")
    said = command("resume", copy, fails=True)
    assert f"plugins = {mine}, module helper.py, was replaced since the run began" in said
    (tmp_path / "helper.py").write_text("WEIGHT = 1.0\n")
    command("resume", copy)
    assert metrics(copy) == metrics(run)


def test_a_method(tmp_path, random_model):
    mine = OWN / "my_method.py"
    settings = [f"plugins=[{mine}]", *SMALL, "n=2", f"policy.path={random_model}", "data.num_train=16"]
    run = tmp_path / "run"
    shown = command("train", "best_of_n", *settings, "--out", run)
    assert "Before training" in shown
    assert (run / "report.html").exists()
    copy = interrupted(run)
    command("resume", copy)
    assert metrics(copy) == metrics(run)
    command("eval", run, "--critic", "last")
    assert "# Replies to each, of which one trains.\nn: 2" in command("config", "best_of_n", *settings)


def test_they_are_listed_and_suggested(tmp_path):
    files = [f"plugins=[{OWN / 'my_reward.py'}, {OWN / 'my_method.py'}]"]
    shown = " ".join(command("list", "--plugins", OWN / "my_reward.py", "--plugins", OWN / "my_method.py").split())
    assert "brief A hundredth off for every token. my_reward.py" in shown
    assert "ends_right Right where the reply ends in the answer" in shown
    assert "best_of_n REINFORCE on the best of n replies to each problem my_method.py" in shown
    assert all(name in shown for name in ("critique_rl", "math_verify", "rloo_whitened", "english"))
    config = " ".join(command("config", "grpo", *files, "data.kind=file", "data.path=x").replace("#", " ").split())
    assert "each with its weight. Of plug-ins: brief. May go with the step" in config
    assert "to compare with its numbers. Of plug-ins: ends_right." in config
    only = command("list", "prompts")
    assert "english" in only
    assert "critique_rl" not in only
    assert "did you mean 'best_of_n'?" in command("train", "best_of_m", *files, fails=True)
    wrong = ["rewards={breif: 1}", "--out", tmp_path / "a"]
    assert "did you mean 'brief'?" in command("train", "grpo", *files, *wrong, fails=True)
    assert not (tmp_path / "a" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return {}['x']", "line 4, raised KeyError: 'x'"),
        ("return float('nan')", "gave 'nan' for task"),
        ("return 'much'", "gave 'much' for task"),
        ("return 1e308", "gave '1e+308' for task"),
        ("return 10 ** 5000", "gave one of type int for task"),
        ("raise ValueError('\\ud800')", "line 4, raised ValueError"),
        ("raise SystemExit", "line 4, raised SystemExit"),
    ],
)
def test_a_reward_that_breaks_stops_the_run_with_its_name(tmp_path, random_model, body, says):
    file = tmp_path / "mine.py"
    file.write_text(f"import whet\n@whet.reward('{tmp_path.name}')\ndef mine(episode, index):\n    {body}\n")
    with pytest.raises(RewardError) as error:
        whet.train(
            "grpo", out=tmp_path / "run", plugins=[file], rewards={tmp_path.name: 1}, group_size=2,
            policy={"path": str(random_model)}, prompts_per_step=2, num_threads=1, progress=False,
            data={"num_train": 8, "num_test": 2, "num_validation": 2}, evaluation={"num_samples": 0},
        )  # fmt: skip
    assert f"the reward term '{tmp_path.name}' of {file}" in str(error.value)
    assert says in str(error.value)


def test_a_method_that_breaks_is_named_and_no_mistake_of_ours(tmp_path, random_model):
    file = tmp_path / "broken.py"
    text = (OWN / "my_method.py").read_text().replace('"best_of_n"', '"broken"')
    file.write_text(text.replace("        yield self.evaluator.before()", "        yield self.nothing"))
    settings = [f"plugins=[{file}]", f"policy.path={random_model}", "data.num_train=16"]
    said = command("train", "broken", *settings, "--dry-run", fails="Traceback")
    number = file.read_text().split("\n").index("        yield self.nothing") + 1
    assert (
        f"whet: the plug-in {file}, line {number}: AttributeError: 'BestOfN' object has no attribute 'nothing'" in said
    )
    assert "mistake in whet" not in said


def test_what_no_reward_term_can_be():
    with pytest.raises(ValueError, match="has to take"):
        whet.reward("x")(lambda completion: 1.0)
    with pytest.raises(ValueError, match="cannot be named total"):
        whet.reward("total")


def test_a_term_of_the_methods_own_is_not_replaced():
    with pytest.raises(ConfigError, match=r"rewards\.outcome: the name is taken"):
        rewarded([], "solver", {"outcome": outcome()}, added={"outcome": 1.0})
