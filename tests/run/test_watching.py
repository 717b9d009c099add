"""A run that learns nothing says so while it runs: real tiny runs that fail and succeed."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from support.commands import metrics, weights, whet
from support.files import chain_rows, write_jsonl
from whet.config import load
from whet.errors import RunError
from whet.methods.critic.critique_rl_config import CritiqueRLConfig
from whet.methods.names import POLICY
from whet.methods.registry import config_of
from whet.methods.solvers import solve_rollout
from whet.report.page import write_report
from whet.report.progress import RichProgress
from whet.run.launch import resume, start
from whet.run.session import prepare
from whet.run_folder.folder import RunFolder


class Told:
    """A progress that keeps what it is told."""

    def __init__(self):
        self.lines = []

    def begin(self, phase, done, total): ...
    def step(self, step, shown): ...
    def end(self): ...
    def tell(self, level, text):
        self.lines.append((level, text))

    @property
    def findings(self):
        """But for what a phase starts from, which every one says."""
        return [line for line in self.lines if "starts at" not in line[1]]


SOLVE = (
    "num_threads=1", "data.num_train=24", "data.num_validation=4", "data.num_test=4", "num_steps=6",
    "prompts_per_step=4", "group_size=4", "evaluation.num_samples=0", "watch.steps=2", "sampling.max_new_tokens=48",
    "checkpoint_every=0",
)  # fmt: skip


def grpo_config(*settings):
    return config_of("grpo", None, [*SOLVE, *settings])


def events(run, *names):
    rows = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [(row["event"], row["step"]) for row in rows if row["event"] in names]


@pytest.mark.integration
def test_an_actor_that_always_fails_is_told_stopped_and_resumed_to_the_same_bits(tmp_path, random_model):
    progress, unbroken, run = Told(), tmp_path / "unbroken", tmp_path / "run"
    start(grpo_config(f"policy.path={random_model}"), unbroken, progress).go()
    expected = [("dead_batch", 1), ("no_credit", 2), ("no_credit", 4)]
    assert events(unbroken, "dead_batch", "no_credit", "all_right") == expected
    assert [level for level, _ in progress.findings] == ["warning"] * 3
    assert "train step 1: in the first batch all 16 replies are without a readable answer" in progress.findings[0][1]
    assert {row["group/all_wrong"] for row in metrics(unbroken) if "group/all_wrong" in row} == {1.0}

    with pytest.raises(RunError, match=r"stopped at train step 1, as watch.then = stop asks for: .*whet resume"):
        start(grpo_config(f"policy.path={random_model}", "watch.then=stop"), run, Told()).go()
    for step in (2, 4):
        with pytest.raises(RunError, match=f"stopped at train step {step}"):
            resume(run, Told()).go()
    resume(run, Told()).go()
    assert events(run, "dead_batch", "no_credit") == expected
    assert metrics(run) == metrics(unbroken)
    left, right = weights(run), weights(unbroken)
    assert all((left[name] == right[name]).all() for name in left)


def test_replies_that_are_all_cut_off_are_told_with_what_to_try(tmp_path):
    progress = Told()
    start(grpo_config("sampling.max_new_tokens=4", "num_steps=1"), tmp_path, progress).go()
    assert ("warning", "train step 1: in the first batch all 16 replies ran into the token limit") in [
        (level, text.partition(";")[0]) for level, text in progress.lines
    ]


def test_a_loss_that_blows_up_ends_the_run_with_a_sentence(tmp_path, small_run):
    settings = [*small_run, "warm_start.learning.learning_rate=1e30"]
    with pytest.raises(RunError, match="lower the learning rate"):
        start(load(CritiqueRLConfig, None, settings), tmp_path, Told()).go()


def test_an_actor_that_is_always_right_is_told_so_and_goes_on(tmp_path):
    """The shipped model, on those problems that it solves, with next to no chance in its sampling."""
    config = grpo_config(
        "data.num_train=64", "sampling.temperature=0.01", "watch.then=stop", "num_steps=4", "prompts_per_step=2"
    )
    progress, folder = Told(), RunFolder(tmp_path)
    session = prepare(config, progress, folder)
    method = session.algorithm
    greedy = method.run.runtime.by_task(solve_rollout(method, POLICY, "look", greedy=True), method.run.tasks["train"])
    solved = [episode.task for [episode] in greedy if episode.segments[0].grade.score == 1]
    method.run = replace(method.run, tasks={**method.run.tasks, "train": solved[:8]})
    assert len(solved) >= 8
    folder.acquire()
    session.go()
    assert events(tmp_path, "all_right") == [("all_right", 2), ("all_right", 4)]
    assert events(tmp_path, "dead_batch", "no_credit") == []
    assert [level for level, _ in progress.findings] == ["info"] * 2
    assert "as all 16 replies are right: harder problems would teach more" in progress.findings[0][1]
    assert {row["group/all_right"] for row in metrics(tmp_path) if "group/all_right" in row} == {1.0}


@pytest.mark.integration
def test_critics_and_warm_starts_are_watched(tmp_path, small_run):
    """A random critic has no readable verdict; a learning rate of next to nothing moves no loss."""
    settings = [*small_run, "watch.steps=2", "warm_start.actor_steps=4", "warm_start.critic_steps=4", "data.num_test=4",
                "warm_start.learning.learning_rate=1e-9", "checkpoint_every=0"]  # fmt: skip
    progress = Told()
    start(load(CritiqueRLConfig, None, settings), tmp_path, progress).go()
    found = events(tmp_path, "loss_stuck", "dead_batch", "no_credit")
    assert found[:3] == [("loss_stuck", 4), ("loss_stuck", 4), ("dead_batch", 1)]
    assert found.count(("no_credit", 2)) >= 1
    said = " ".join(text for _, text in progress.lines)
    assert "and does not fall: try a higher learning rate" in said
    assert "stage1 step 1: in the first batch all 16 critiques are without a readable verdict" in said
    wrong = [row["group/all_wrong"] for row in metrics(tmp_path) if "group/all_wrong" in row]
    assert wrong[0] == 1.0


@pytest.mark.integration
def test_a_good_run_is_told_nothing(tmp_path):
    """The shipped models, as they come."""
    settings = ["num_threads=1", "data.num_train=64", "data.num_validation=4", "data.num_test=4", "watch.steps=2",
                "warm_start.actor_steps=4", "warm_start.critic_steps=4", "warm_start.rows_per_step=16",
                "stage1.num_steps=2", "stage1.prompts_per_step=8", "stage2.num_steps=2", "stage2.prompts_per_step=8",
                "stage1.learning.minibatch_rows=16", "stage2.learning.minibatch_rows=16"]  # fmt: skip
    progress = Told()
    start(load(CritiqueRLConfig, None, settings), tmp_path, progress).go()
    assert progress.findings == []
    assert [level for level, _ in progress.lines] == ["info"] * 2


def test_the_command_stops_with_exit_code_1_and_one_sentence(tmp_path, random_model):
    settings = [*SOLVE, f"policy.path={random_model}", "watch.then=stop"]
    done = whet("train", "grpo", *settings, "--out", tmp_path, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"`whet resume {tmp_path}` goes on" in " ".join(done.stderr.split())
    assert "train step 1, as watch.then = stop asks for: in the first batch all 16 replies" in done.stderr


def test_a_line_that_is_told_stands_beside_a_living_bar():
    console = Console(force_terminal=True, width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    progress = RichProgress(console)
    progress.begin("train", 0, 3)
    progress.tell("warning", "train step 1: [all] replies are wrong")
    progress.step(1, {"reward/mean": 0.0})
    progress.end()
    progress.close()
    assert "look: train step 1: [all] replies are wrong\n" in console.export_text()


def test_a_loss_that_falls_to_nothing_is_said_on_console_and_page(tmp_path):
    """One and the same text, thousands of times: it is known by heart at once, and nothing was learnt."""
    file = write_jsonl(tmp_path / "same.jsonl", [{**row, "correct": True, "answer": "0"} for row in chain_rows(8)])
    settings = [
        f"file={file}", "num_threads=1", "num_steps=60", "rows_per_step=8", "watch.steps=5", "validate_every=60",
        "learning.learning_rate=3e-2", "data.num_train=8", "data.num_validation=2", "data.num_test=2",
        "evaluation.num_samples=0", "checkpoint_every=0",
    ]  # fmt: skip
    progress, run = Told(), tmp_path / "run"
    start(config_of("imitation", None, settings), run, progress).go()
    [(_, step)] = events(run, "loss_gone")
    assert step <= 50
    [said] = [text for level, text in progress.lines if "the loss fell to" in text and level == "warning"]
    assert said.startswith(f"train step {step}: the loss fell to ")
    page = write_report(run).read_text()
    assert "the loss fell to" in page
