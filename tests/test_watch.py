"""A run that learns nothing says so while it runs: the states by hand, and real tiny runs that fail and succeed."""

import json
from dataclasses import asdict, replace

import pytest
from rich.console import Console

from test_runs import metrics, weights, whet
from whet.config import load
from whet.recipes.critique_rl_config import CritiqueRLConfig
from whet.recipes.opening import resume, start
from whet.recipes.session import prepare
from whet.recipes.solve_answers import POLICY
from whet.recipes.solve_config import PRESETS, SolveConfig
from whet.report.progress import RichProgress
from whet.training.files import RunError
from whet.training.folder import RunFolder
from whet.training.watch import Signs, Watch, after_loss, after_replies

GOOD = Signs(replies=8, right=4)
WRONG = Signs(replies=8, taught=False)


def told(*steps, every=2, watch=None):
    """What is said at each step: the event's name, or None."""
    said = []
    watch = watch or Watch()
    for signs in steps:
        watch, found = after_replies(watch, [signs], every)
        said.append(found and found.event)
    return said


# --- by hand --------------------------------------------------------------------------------------------------------


def test_steps_without_credit_are_told_once_and_again_when_they_have_doubled():
    assert told(*[WRONG] * 9) == [None, "no_credit", None, "no_credit", None, None, None, "no_credit", None]
    assert told(GOOD, WRONG, GOOD, WRONG, WRONG) == [None, None, None, None, "no_credit"]
    assert told(*[WRONG] * 4, every=3) == [None, None, "no_credit", None]


def test_a_step_in_which_nothing_ended_neither_counts_nor_forgives():
    assert told(WRONG, Signs(replies=0), WRONG) == [None, None, "no_credit"]


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ({"ungraded": 8}, "the grading of all 8 replies failed; look at the grader"),
        ({"cut": 8, "unread": 8}, "all 8 replies ran into the token limit; try a larger max_new_tokens"),
        ({"unread": 8}, "all 8 replies are without a readable answer; look at some in traces/"),
        ({"unread": 6, "ungraded": 2}, "all 8 replies are without a readable answer; look at some in traces/"),
    ],
)
def test_a_dead_first_batch_is_told_at_once_with_its_cause(lost, said):
    dead = replace(WRONG, **lost)
    watch, found = after_replies(Watch(), [dead], 2)
    assert (found.event, found.level) == ("dead_batch", "warning")
    assert said in found.text
    assert said in after_replies(watch, [dead], 2)[1].text.replace("16", "8")  # and it is the cause of what comes after
    assert told(dead)[0] == "dead_batch"
    assert told(GOOD, dead) == [None, None]  # later on it may be chance
    assert told(replace(dead, right=1, taught=True)) == [None]
    assert told(replace(dead, **{name: count - 1 for name, count in lost.items()}))[0] is None  # one had a chance


def test_others_whose_texts_matter_are_looked_at_too():
    answers = Signs(what="answers", replies=4, cut=4)
    _, found = after_replies(Watch(), [GOOD, Signs(what="refinements", replies=0), answers], 2)
    assert found.text.startswith("in the first batch all 4 answers ran into the token limit")


def test_the_cause_of_steps_without_credit():
    right = replace(WRONG, right=8)
    _, found = after_replies(Watch(begun=True), [right], 1)
    assert (found.event, found.level) == ("all_right", "info")
    _, found = after_replies(Watch(begun=True), [WRONG], 1)
    assert "all 8 replies are wrong; try easier problems" in found.text
    _, found = after_replies(Watch(begun=True), [replace(WRONG, cut=7)], 1)
    assert "all 8 replies are wrong, 7 of them cut off; try a larger max_new_tokens first" in found.text
    _, found = after_replies(Watch(begun=True), [replace(WRONG, replies=128, right=120)], 1)
    assert (found.event, found.level) == ("all_right", "info")
    assert "120 of 128 replies are right" in found.text
    _, found = after_replies(Watch(begun=True), [replace(WRONG, right=4)], 1)
    assert "paid alike (4 of 8 are right); try more of them a problem" in found.text


@pytest.mark.parametrize(
    ("losses", "event"),
    [
        ([2.0, 2.0, 2.0, 1.99], "loss_stuck"),
        ([2.0, 1.9, 1.8, 1.7], None),
        ([0.05, 0.04, 0.05, 0.05], None),  # learnt before the warm start
        ([0.05, 0.05, 0.2, 0.9], "loss_rises"),
        ([0.001, 0.001, 0.002, 0.002], None),
    ],
)
def test_a_loss_that_stands_still_or_rises_is_told_once(losses, event):
    watch, said = Watch(), []
    for loss in losses * 2:
        watch, found = after_loss(watch, loss, 2)
        said.append(found and found.event)
    assert said == [None, None, None, event, None, None, None, None]


def test_the_state_survives_a_checkpoint():
    watch, _ = after_replies(Watch(), [WRONG], 2)
    watch, _ = after_loss(watch, 0.5, 2)
    assert Watch.restored(json.loads(json.dumps(asdict(watch)))) == watch
    assert Watch.restored(json.loads(json.dumps(asdict(Watch())))) == Watch()


# --- real runs ------------------------------------------------------------------------------------------------------


class Told:
    """A progress that keeps what it is told."""

    def __init__(self):
        self.lines = []

    def begin(self, phase, done, total): ...
    def step(self, step, shown): ...
    def end(self): ...
    def tell(self, level, text):
        self.lines.append((level, text))


SOLVE = (
    "num_threads=1", "data.num_train=24", "data.num_validation=4", "data.num_test=4", "num_steps=6",
    "prompts_per_step=4", "group_size=4", "evaluation.num_samples=0", "watch.steps=2", "sampling.max_new_tokens=48",
    "checkpoint_every=0",
)  # fmt: skip


def solve_config(*settings):
    return load(SolveConfig, None, [*SOLVE, *settings], base=PRESETS["grpo"])


def events(run, *names):
    rows = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [(row["event"], row["step"]) for row in rows if row["event"] in names]


def test_an_actor_that_always_fails_is_told_stopped_and_resumed_to_the_same_bits(tmp_path, random_model):
    progress, unbroken, run = Told(), tmp_path / "unbroken", tmp_path / "run"
    start(solve_config(f"policy.path={random_model}"), unbroken, progress).go()
    expected = [("dead_batch", 1), ("no_credit", 2), ("no_credit", 4)]
    assert events(unbroken, "dead_batch", "no_credit", "all_right") == expected
    assert [level for level, _ in progress.lines] == ["warning"] * 3
    assert "train step 1: in the first batch all 16 replies are without a readable answer" in progress.lines[0][1]
    assert {row["group/all_wrong"] for row in metrics(unbroken) if "group/all_wrong" in row} == {1.0}

    with pytest.raises(RunError, match=r"stopped at train step 1, as watch.then = stop asks for: .*whet resume"):
        start(solve_config(f"policy.path={random_model}", "watch.then=stop"), run, Told()).go()
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
    start(solve_config("sampling.max_new_tokens=4", "num_steps=1"), tmp_path, progress).go()
    assert ("warning", "train step 1: in the first batch all 16 replies ran into the token limit") in [
        (level, text.partition(";")[0]) for level, text in progress.lines
    ]


def test_a_loss_that_blows_up_ends_the_run_with_a_sentence(tmp_path, small_run):
    settings = [*small_run, "warm_start.learning.learning_rate=1e30"]
    with pytest.raises(RunError, match="lower the learning rate"):
        start(load(CritiqueRLConfig, None, settings), tmp_path, Told()).go()


def test_an_actor_that_is_always_right_is_told_so_and_goes_on(tmp_path):
    """The shipped model, on those problems that it solves, with next to no chance in its sampling."""
    config = solve_config(
        "data.num_train=64", "sampling.temperature=0.01", "watch.then=stop", "num_steps=4", "prompts_per_step=2"
    )
    progress, folder = Told(), RunFolder(tmp_path)
    session = prepare(config, progress, folder)
    recipe = session.recipe
    greedy = recipe.solvers.answers(recipe.solvers.flow(POLICY, "look", greedy=True), recipe.tasks["train"])
    solved = [episode.task for [episode] in greedy if episode.segments[0].grade.score == 1]
    recipe.rollouts.tasks = solved[:8]
    assert len(solved) >= 8
    folder.acquire()
    session.go()
    assert events(tmp_path, "all_right") == [("all_right", 2), ("all_right", 4)]
    assert events(tmp_path, "dead_batch", "no_credit") == []
    assert [level for level, _ in progress.lines] == ["info"] * 2
    assert "as all 16 replies are right: harder problems would teach more" in progress.lines[0][1]
    assert {row["group/all_right"] for row in metrics(tmp_path) if "group/all_right" in row} == {1.0}


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


def test_a_good_run_is_told_nothing(tmp_path):
    """The shipped models, as they come."""
    settings = ["num_threads=1", "data.num_train=64", "data.num_validation=4", "data.num_test=4", "watch.steps=2",
                "warm_start.actor_steps=4", "warm_start.critic_steps=4", "warm_start.rows_per_step=16",
                "stage1.num_steps=2", "stage1.prompts_per_step=8", "stage2.num_steps=2", "stage2.prompts_per_step=8",
                "stage1.learning.minibatch_rows=16", "stage2.learning.minibatch_rows=16"]  # fmt: skip
    progress = Told()
    start(load(CritiqueRLConfig, None, settings), tmp_path, progress).go()
    assert progress.lines == []


@pytest.mark.slow
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
