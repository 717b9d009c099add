"""Runs with one thing wrong: each is stopped or said, before the first step or in it, in its own sentence."""

import re
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.markup import escape

from whet.report.progress import print_note
from whet.run.launch import resume
from whet.run.session import Session

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import planted_faults
from planted_faults import FAULTS


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_with_its_sentence(name, tmp_path):
    fault = FAULTS[name]
    result = planted_faults.found(fault, tmp_path)
    said = [" ".join(text.split()) for text in result.texts]
    assert any(re.search(fault.sentence, text) for text in said), said
    assert result.stopped == fault.stops, said


def test_the_same_runs_without_a_fault_are_told_nothing(tmp_path):
    """Their environment, and the replies that they sample, are otherwise as they should be."""
    for method, settings in (
        ("grpo", planted_faults.solve()),
        ("grpo", planted_faults.model()),
        ("agent_grpo", planted_faults.environment("planted_nothing")),
    ):
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        place.mkdir()
        fault = planted_faults.Fault("nothing", "never said", method, settings)
        result = planted_faults.found(fault, place)
        assert not result.stopped
        expected = [] if method == "grpo" else [r"all 16 episodes are wrong|0% of the groups"]  # it pays nothing
        others = [t for t in result.texts if "starts at" not in t]
        assert all(any(re.search(e, t) for e in expected) for t in others), others


@pytest.mark.parametrize(
    ("name", "start"), [("env_draws_its_own_chance", "{random.random():.6f}"), ("env_keeps_something", "{self.number}")]
)
def test_starts_that_differ_are_said_and_end_nothing_where_the_user_wants_that(name, start, tmp_path):
    fault, planted = FAULTS[name], planted_faults.environment(f"warned_{name}", start=start)
    warns = replace(fault, settings=lambda folder: [*planted(folder), "watch.same_start=warn"])
    result = planted_faults.found(warns, tmp_path)
    said = [" ".join(text.split()) for text in result.texts]
    assert not result.stopped, said
    assert any(re.search(fault.sentence, text) for text in said), said


def test_a_run_that_a_check_ended_is_saved_and_goes_on(tmp_path):
    """Its engine has the newest weights again, so that what was found is found no more."""
    result = planted_faults.found(FAULTS["engine_of_other_weights"], tmp_path)
    assert result.stopped
    sentence = result.texts[-1].replace(str(tmp_path / "run"), "runs/a")
    assert "`whet resume runs/a` goes on" in sentence
    console = Console(file=StringIO(), width=80, force_terminal=True, color_system=None)
    print_note(console, escape(sentence))
    lines = console.file.getvalue().splitlines()
    assert len(lines) > 2
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(" ".join(lines).split()) == " ".join(sentence.split())  # no word is broken
    progress = planted_faults.Told()
    session = resume(tmp_path / "run", progress)
    assert isinstance(session, Session)
    assert session.loop.step == 1  # the step that was found is not made again
    session.go()
    assert (tmp_path / "run" / "summary.json").exists()
    assert not [text for text in progress.texts if "nats a token apart" in text]
