"""Phases as long as earlier ones found them to be, stores that outlive a phase, gates that open in mid-run: all of it
the same bits after a stop or a kill."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from support.commands import Quiet, config_of, has_logged, killed_when, logged, metrics, same_bits, weights, whet
from whet.config.schedule import Gate
from whet.errors import RunError
from whet.plugins import load_plugins
from whet.run import launch
from whet.trainer.checkpoint import load_state, newest_first
from whet.trainer.loop import Stopped

PLUGIN = Path(__file__).parents[1] / "plugins" / "second_look.py"
SIZES = ("num_threads=1", "seed=3", "data.num_train=12", "data.num_validation=4", "data.num_test=4",
         "evaluation.num_samples=0", "sampling.max_new_tokens=48")  # fmt: skip
SMALL = (f"plugins=[{PLUGIN}]", *SIZES, "checkpoint_every=1")
GRPO = (*SIZES, "num_steps=6", "prompts_per_step=4", "group_size=4", "learning.minibatch_rows=8", "validate_every=6",
        "checkpoint_every=0")  # fmt: skip


def saved(run: Path) -> dict:
    return load_state(newest_first(run)[0])


class StopAt(Quiet):
    """Ctrl-C at one step of one phase."""

    def __init__(self, phase: str, step: int) -> None:
        self.place, self.phase = (phase, step), ""

    def begin(self, phase, done, total):
        self.phase = phase

    def step(self, step, shown):
        if (self.phase, step) == self.place:
            signal.raise_signal(signal.SIGINT)


def begun(name: str, run: Path, *settings: str, progress=None):
    return launch.start(config_of(name, *settings), run, progress or Quiet())


def stopped(name: str, run: Path, phase: str, step: int, *settings: str) -> None:
    with pytest.raises(Stopped):
        begun(name, run, *settings, progress=StopAt(phase, step)).go()


def stopped_again(run: Path, phase: str, step: int) -> None:
    """Resumed, and stopped at a later place."""
    with pytest.raises(Stopped):
        launch.resume(run, StopAt(phase, step)).go()


# --- what one phase finds, the next can use ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Path:
    load_plugins([PLUGIN])
    run = tmp_path_factory.mktemp("runs") / "unbroken"
    begun("second_look", run, *SMALL).go()
    return run


def test_the_second_phase_is_as_long_as_the_first_one_found(unbroken):
    rows = logged(unbroken)
    found = saved(unbroken)["done"][-1]["found"]["look"]
    count = len(found["hard"])
    assert 2 <= count < 12
    steps = [(row["phase"], row["step"]) for row in rows]
    drills = [("drill", step) for step in range(count + 1)]
    assert steps == [("before", 1), *(("look", step) for step in (1, 2, 3)), *drills, ("after", 1), ("after", 2)]
    assert [done["num_steps"] for done in saved(unbroken)["done"]] == [1, 3, count, 2]
    assert rows[3]["look/hard"] == count
    trained = [row for row in rows if row["phase"] == "drill" and "optim/grad_norm" in row]
    assert all("loss/nll" in row for row in trained[:3])  # the right replies of three looks
    assert all(row["drill/rows"] == 8 for row in trained)  # earlier replies and new ones


def test_a_phase_may_take_all_that_another_put_into_the_store(unbroken):
    last = newest_first(unbroken)[0] / "store"
    assert (last / "tasks" / "hard.jsonl").read_text() == ""
    assert (last / "episodes" / "hard.jsonl").read_text() == ""


def test_stopped_in_any_phase_it_goes_on_to_the_same_bits(unbroken, tmp_path):
    """One run, stopped and resumed seven times: after first, middle and last steps of its phases."""
    run, first = tmp_path / "run", ("before", 1)
    stopped("second_look", run, *first, *SMALL)
    for place in (("look", 1), ("look", 3), ("drill", 1), ("drill", 2), ("after", 1), ("after", 2)):
        stopped_again(run, *place)
    launch.resume(run, Quiet()).go()
    same_bits(unbroken, run)
    assert saved(run)["done"] == saved(unbroken)["done"]


@pytest.mark.integration
@pytest.mark.parametrize(("phase", "step"), [("look", 2), ("drill", 2)])
def test_killed_it_goes_on_to_the_same_bits(unbroken, tmp_path, phase, step):
    run = tmp_path / "run"
    killed_when(run, lambda: has_logged(run, phase, step), "train", "second_look", *SMALL, "--out", run)
    whet("resume", run)  # which finds the plug-in by the run's own config
    same_bits(unbroken, run)


def test_what_is_planned_is_what_can_be_known(unbroken, tmp_path):
    shown = whet("train", "second_look", *SMALL, "--out", tmp_path / "run", "--dry-run").stdout
    assert "steps of the phases: before 1, then what it finds decides" in " ".join(shown.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("gone", "says"),
    [("look", "of phase 'look' where this whet comes to 'drill'"), ("drill", "of phase 'drill' where .* to 'after'")],
)
def test_a_run_whose_phases_became_others_does_not_go_on(unbroken, tmp_path, gone, says):
    run = tmp_path / "run"
    stopped("second_look", run, "drill", 1, *SMALL)
    session = launch.resume(run, Quiet())
    session.loop.found = saved(run)["done"][-1]["found"]  # what the phases are made from, as they are all made here
    others = [phase for phase in session.algorithm.phases() if phase.name != gone]
    session.algorithm.phases = lambda: iter(others)
    with pytest.raises(RunError, match=says):
        session.go()


# --- gates ------------------------------------------------------------------------------------------------------------

GATES = {
    # Lengths are some 20 tokens from the start: open after step 2.
    "overlong": ("schedule.overlong={kind: gated, values: [0, 40], metric: length/mean, above: 1, patience: 2}", 2),
    "temperature": (
        "schedule.sampling.temperature={kind: gated, values: [1.0, 0.7, 1.3], metric: entropy, above: 0}", 1,
    ),
    "bounds": (
        "schedule.loss.bounds.high={kind: gated, values: [1.2, 1.001], metric: ratio/mean, below: 9, patience: 3}", 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.integration] * (name != "overlong")) for name in GATES]
)
def test_a_gate_that_opened_is_open_after_a_stop(name, tmp_path):
    setting, opens = GATES[name]
    key = setting.partition("=")[0].removeprefix("schedule.")
    whole, shut = begun("grpo", tmp_path / "unbroken", *GRPO, setting), begun("grpo", tmp_path / "shut", *GRPO)
    whole.go()
    shut.go()
    assert metrics_up_to(tmp_path / "unbroken", opens) == metrics_up_to(tmp_path / "shut", opens)
    run = tmp_path / "run"
    for stop in sorted({max(1, opens - 1), opens, opens + 1, 5}):  # of one run, which goes on to the next stop
        if run.exists():
            stopped_again(run, "train", stop)
        else:
            stopped("grpo", run, "train", stop, *GRPO, setting)
        gate = Gate(**saved(run)["gates"][key])
        if name == "temperature":
            assert gate.position == min(stop, 2)
        else:
            assert gate == (Gate(1) if stop >= opens else Gate(0, stop))
    launch.resume(run, Quiet()).go()
    same_bits(tmp_path / "unbroken", run)
    differs = [
        (weights(tmp_path / "unbroken")[each] != value).any() for each, value in weights(tmp_path / "shut").items()
    ]
    assert any(differs)  # the value behind the gate is one that the run acts on


def test_a_gate_may_wait_for_a_validation_and_begins_anew_with_each_phase(tmp_path):
    """`validation/acc` is measured after step 2 alone (and before step 1, when no step has ended): open from step 3."""
    gate = "schedule.signed={kind: gated, values: [false, true], metric: validation/acc, above: -1}"
    begun("grpo", tmp_path / "run", *GRPO, "num_steps=4", "validate_every=2", gate).go()
    rewards = {row["step"]: row for row in metrics(tmp_path / "run") if row["phase"] == "train" and row["step"]}
    for step, row in rewards.items():
        scored = row["reward/correct"] * 2 - 1 if step > 2 else row["reward/correct"]
        assert row["reward/outcome"] == pytest.approx(scored)
    assert saved(tmp_path / "run")["gates"] in ({}, {"signed": {"position": 0, "streak": 0}})  # of the last phase
    told = [row["message"] for row in events(tmp_path / "run") if row["event"] == "gate"]
    assert told == ["train step 2: signed = True from the next step on"]


def test_a_gate_whose_metric_is_never_logged_is_told(tmp_path):
    gate = "schedule.signed={kind: gated, values: [false, true], metric: nosuch, above: 0}"
    begun("grpo", tmp_path / "run", *GRPO, "num_steps=1", gate).go()
    [told] = [row for row in events(tmp_path / "run") if row["event"] == "shut_gate"]
    assert "waited for nosuch" in told["message"]


def test_a_gate_that_waits_for_a_misspelt_metric_is_told_at_once(tmp_path):
    gate = "schedule.signed={kind: gated, values: [false, true], metric: reward/corect, above: 0}"
    begun("grpo", tmp_path / "run", *GRPO, "num_steps=2", gate).go()
    told = [row["message"] for row in events(tmp_path / "run") if row["event"] == "misspelt_gate"]
    assert told == [
        "schedule.signed waits for reward/corect, which the first step has not logged: it has reward/correct"
    ]


def events(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def metrics_up_to(run: Path, step: int) -> list[dict]:
    return [
        row for row in metrics(run) if row["phase"] == "before" or (row["phase"] == "train" and row["step"] <= step)
    ]
