"""A run folder of an older layout is refused in one sentence, and left as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from whet.cli import app


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """As whet 0.1 began one: no sheet, and a config whose `recipe` is a `method` now."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text("recipe: solve\nseed: 3\n")
    (folder / "env.json").write_text(json.dumps({"whet": "0.1.0", "commit": "b2550cd68b4d0123456789"}))
    (folder / "metrics.jsonl").write_text(json.dumps({"phase": "train", "step": 1, "reward/mean": 0.5}) + "\n")
    return folder


def said(*arguments: object, code: int = 2) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return " ".join(done.output.split())


@pytest.mark.parametrize("command", ["resume", "eval", "report", "export", "chat"])
def test_it_is_refused_in_one_sentence_that_names_its_maker(run, command):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    sentence = said(command, run, *([run.parent / "out"] if command == "export" else []))
    assert "has a layout that this whet (0.2" in sentence
    assert "written by whet 0.1.0 (commit b2550cd68b4d); install that one for it, or start another run" in sentence
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_who_wrote_it_may_be_unknown(run):
    (run / "env.json").unlink()
    assert "it was written by a whet that env.json does not name" in said("report", run)


def test_no_run_is_begun_over_it(run):
    assert "holds something that is no run; choose another --out" in said("train", "grpo", "--out", run, code=1)
    assert "holds something that is no run" in said("train", "grpo", "--overwrite", "--out", run, code=1)
