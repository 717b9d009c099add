"""A user's callbacks: what they are told, in which order, and what becomes of their errors."""

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

import whet
from support.commands import events, same_bits
from whet.callbacks import CALLBACKS, Callbacks, StepMade, callback, read_only
from whet.errors import RunError
from whet.plugins import as_loaded
from whet.registry import UnknownName

FILE = """
import torch
import whet
calls = []

@whet.callback("told_{name}")
class Told:
    def begin(self, record): calls.append(("begin", record.is_resumed, record.total_steps, record.config["seed"]))
    def step(self, record): calls.append(("step", record.phase, record.step, record.total_steps)); torch.rand(9)
    def validation(self, record): calls.append(("validation", record.phase, record.step, sorted(record.metrics)[-1]))
    def checkpoint(self, record): calls.append(("checkpoint", record.folder.name, record.folder.is_dir()))
    def end(self, record): calls.append(("end", record.summary is not None, record.reason[:30]))

@whet.callback("breaks_{name}")
class Breaks:
    def step(self, record):
        {statement}
"""
TINY = {
    "num_steps": 3, "prompts_per_step": 2, "group_size": 2, "validate_every": 3, "num_threads": 1, "seed": 4,
    "data.num_train": 8, "data.num_validation": 2, "data.num_test": 2, "evaluation.num_samples": 0,
    "checkpoint_every": 2,
}  # fmt: skip


@pytest.fixture
def plugin(tmp_path):
    def write(name, statement="pass"):
        """A file with two callbacks. Each test has its own names, as a process keeps those of all its plug-ins."""
        file = tmp_path / "mine.py"
        file.write_text(FILE.replace("{statement}", statement).replace("{name}", name))
        return str(file)

    return write


def calls_of(file):

    return as_loaded(Path(file))[0].calls


def test_order_and_bits(tmp_path, plugin):
    file = plugin("bits")
    whet.train("grpo", out=tmp_path / "plain", progress=False, plugins=[file], **TINY)
    use = {"callbacks.use": ["told_bits", "breaks_bits"]}
    whet.train("grpo", out=tmp_path / "run", progress=False, plugins=[file], **TINY, **use)
    same_bits(tmp_path / "plain", tmp_path / "run")  # though it drew random numbers
    calls = calls_of(file)
    assert calls[0] == ("begin", False, 0, 4)
    assert calls[-1] == ("end", True, "")
    train = [call for call in calls if "train" in call or call[0] == "checkpoint"]
    assert [call[:3] for call in train[1:]] == [
        ("validation", "train", 0),
        ("step", "train", 1),
        ("step", "train", 2),
        ("checkpoint", "step_000004", True),
        ("validation", "train", 3),
        ("step", "train", 3),
        ("checkpoint", "step_000006", True),
        ("checkpoint", "step_000009", True),
    ]
    assert train[1][3] == "validation/truncated"


def test_what_raises_is_told_once_with_its_line(tmp_path, plugin):
    file = plugin("once", "raise KeyError(record.step)")
    use = {"callbacks.use": ["breaks_once"]}
    whet.train("grpo", out=tmp_path / "run", progress=False, plugins=[file], **TINY, **use)
    first, again = events(tmp_path / "run", "callback_failed")
    line = FILE.split("\n").index("        {statement}") + 1
    assert first.startswith(
        f"the callback 'breaks_once' of {file}, line {line}, raised KeyError: 1 in step; the run goes on"
    )
    assert "raised 6 times" in again  # with the step before and the two after
    assert (tmp_path / "run" / "summary.json").exists()


def test_it_ends_the_run_where_asked_and_a_resume_may_change_that(tmp_path, plugin):
    file = plugin("stop", "if record.phase == 'train' and record.step == 2: raise SystemExit(3)")
    more = {"plugins": [file], "callbacks.use": ["told_stop", "breaks_stop"], **TINY}
    with pytest.raises(RunError, match="raised SystemExit: 3 in step") as error:
        whet.train("grpo", out=tmp_path / "run", progress=False, **more, **{"callbacks.on_error": "stop"})
    assert "whet resume" in str(error.value)
    assert calls_of(file)[-1][:2] == ("end", False)
    whet.train("grpo", out=tmp_path / "run", progress=False, **more)  # warns, from here on
    resumed = calls_of(file)[calls_of(file).index(("begin", True, 3, 4)) :]
    assert resumed[1][:3] == ("validation", "train", 3)
    assert resumed[-1] == ("end", True, "")


def test_records_are_read_only():
    record = StepMade(phase="train", step=1, num_steps=2, total_steps=1, metrics=read_only({"a": 1.0, "b": {"c": [1]}}))
    with pytest.raises(FrozenInstanceError):
        record.step = 2
    with pytest.raises(TypeError):
        record.metrics["a"] = 2.0
    with pytest.raises(TypeError):
        record.metrics["b"]["c"] = 0
    assert record.metrics["b"]["c"] == (1,)


def test_what_is_refused():
    with pytest.raises(ValueError, match="has to be a class"):
        callback("mine")(lambda record: None)
    with pytest.raises(ValueError, match="none of the methods begin, step"):
        callback("mine")(type("Empty", (), {}))
    with pytest.raises(ValueError, match=r"has to take \(self, record\) in step"):
        callback("mine")(type("Bare", (), {"step": lambda self: None}))
    assert "mine" not in CALLBACKS
    with pytest.raises(UnknownName, match="no callback 'mine'"):
        Callbacks(["mine"]).check()
