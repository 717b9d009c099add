"""Runs of the version before (`tests/data/former_run_*`, commit b2550cd), and what can still be done with them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.commands import config_of
from whet.cli import app
from whet.digests import digest
from whet.models.tiny import SHIPPED
from whet.report.read import read_run
from whet.runs import opening
from whet.runs.checkpoint import MANIFEST, damage, load_state, newest_first
from whet.runs.sheets import CRITIQUE, SOLVE

DATA = Path(__file__).parents[1] / "data"
RUNS = {"grpo": ("policy_gradient", SOLVE, ["before", "best", "last"]),
        "critique": ("critique_rl", CRITIQUE, ["no_critic", "sft_critic", "stage1", "stage2"])}  # fmt: skip


@pytest.fixture(params=RUNS)
def run(request, tmp_path) -> Path:
    return Path(shutil.copytree(DATA / f"former_run_{request.param}", tmp_path / request.param))


def said(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return " ".join(done.output.split())


def with_weights(run: Path) -> Path:
    """Its last checkpoint, made whole again with the shipped model in place of what it learnt."""
    [saved] = newest_first(run)
    for name in load_state(saved)["versions"]:
        shutil.copytree(SHIPPED, saved / "policies" / name)
    files = [path for path in saved.rglob("*") if path.is_file()]
    (saved / MANIFEST).write_text(json.dumps({str(path.relative_to(saved)): digest(path) for path in files}))
    assert damage(saved) is None
    return saved


def test_its_report_shows_its_table_its_curves_and_its_texts(run):
    _, sheet, rows = RUNS[run.name]
    found = read_run(run)
    assert found.sheet == sheet
    assert found.flaws == ()
    assert list(found.summary["rows"]) == rows
    assert len(found.exchanges) == sum(len(path.read_text().splitlines()) for path in (run / "traces").iterdir())
    assert {exchange.writer for exchange in found.exchanges} <= {*rows, "training"}
    said("report", run)
    page = (run / "report.html").read_text()
    assert all(sheet.title(row) in page for row in rows)
    assert all(column.title in page for column in sheet.columns if not column.is_sampled)


def test_its_settings_are_read_under_the_names_of_today(run):
    config = opening.saved_config(run)
    name, *_ = RUNS[run.name]
    assert config.method == name
    assert (config.seed, config.data.num_test, config.checkpoint_every) == (3, 4, 1)
    expected = config_of(name)
    assert config.watch == expected.watch
    assert config.schedule == {}
    assert "recipe" in (run / "config.yaml").read_text()  # it is left as it was written


def test_a_finished_one_is_shown(run):
    assert "is finished" in said("resume", run)


def test_it_can_be_measured(run):
    with_weights(run)
    name, *_ = RUNS[run.name]
    subjects = ["best", "last"] if name == "policy_gradient" else ["no_critic", "sft_critic", "stage1", "stage2"]
    shown = said("eval", run)
    assert "kept in" in shown
    records = {path.name.split("-")[0]: path for path in (run / "eval").glob("*[!s].json")}
    assert sorted(records) == sorted(subjects)
    found = {name: json.loads(path.read_text())["metrics"] for name, path in records.items()}
    assert all(metrics["n"] == 4 for metrics in found.values())
    every = [metrics for name, metrics in found.items() if name != "no_critic"]
    assert all(metrics == every[0] for metrics in every)  # they are all the shipped model


def test_it_is_not_gone_on_with_and_the_one_that_can_is_named(run):
    saved = with_weights(run)
    (run / "summary.json").unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    sentence = said("resume", run, code=1)
    assert f"{saved.name} was written by whet 0.1.0, in a form that this whet" in sentence
    assert "install the one that made it (commit b2550cd68b4d)" in sentence
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"} == before
    (run / "env.json").unlink()
    assert "names no commit" in said("resume", run, code=1)


def test_another_run_is_not_begun_over_it(run):
    other = "critique_rl" if run.name == "grpo" else "grpo"
    assert "holds a run of another method" in said("train", other, "--out", run, code=1)
    assert "seed: 3 -> 0" in said("train", RUNS[run.name][0], "--out", run, code=1)
