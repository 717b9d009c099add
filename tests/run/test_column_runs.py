"""Rows' columns in a real run: the grader gets them, buffers keep them, traces and prompts have none of them."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from support.commands import Quiet, whet
from support.files import chain_rows, write_jsonl
from whet.methods.registry import config_of
from whet.run.data import load_tasks
from whet.run.launch import start
from whet.tasks.files import read_tasks
from whet.trainer.buffers import decoded, encoded
from whet.types import Episode

PLUGIN = Path(__file__).parents[1] / "plugins" / "column_readers.py"
MARK = "never-shown-to-a-model"


DIALECT = """solve: "Solve: {question}"
critique: "Critique: {question}\\n{answer}"
critique_again: "Critique: {answer}"
refine: "Refine: {critique}"
"""
"""The tiny world's own words, which the shipped model knows."""


def settings_of(rows):
    prompts = rows.with_name("own.yaml")
    prompts.write_text(DIALECT)
    return [
        f"prompts={prompts}",
        "num_threads=1", f"plugins=[{PLUGIN}]", "data.kind=file", f"data.path={rows}", "data.grader=by_level",
        "data.timeout_s=30", "num_steps=1", "prompts_per_step=4", "group_size=2", "evaluation.num_samples=0",
        "sampling.max_new_tokens=16", "checkpoint_every=0", "data.validation_share=0.2", "data.test_share=0.2",
    ]  # fmt: skip


def test_a_run_whose_grader_reads_columns(tmp_path):
    rows = [{**row, "level": "hard", "secret": {"text": MARK}} for row in chain_rows(24)]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    run = tmp_path / "run"
    start(config_of("grpo", None, settings_of(path)), run, Quiet()).go()
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    [step] = [row for row in metrics if row["step"] == 1 and row["phase"] == "train"]
    assert step["reward/mean"] is not None  # every reply was graded: an assertion in the grader leaves no score
    assert not [value for name, value in step.items() if name == "grader/errors" and value]
    traces = "".join(file.read_text() for file in run.glob("traces/*"))
    assert '"question"' in traces
    assert MARK not in traces


def test_episodes_of_a_buffer_keep_their_columns(tmp_path):
    path = write_jsonl(tmp_path / "x.jsonl", [{"question": "Q?", "answer": 1, "deep": {"a": [1, {"b": None}]}}])
    [task] = read_tasks(path).tasks
    back = decoded(json.loads(json.dumps(encoded(Episode(task=task, segments=(), outcome="ok")))))
    assert asdict(back.task) == asdict(task)
    assert back.task.info["deep"] == {"a": [1, {"b": None}]}


def test_a_run_whose_rows_lack_the_column_does_not_begin(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", chain_rows(24))
    done = whet("train", "grpo", *settings_of(path), "--out", tmp_path / "run", check=False)
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "the grader 'by_level' (by_level) asks for level, which task" in said
    assert "24 of 24 rows lack it: add the column" in said
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").glob("checkpoints/*"))


@pytest.mark.parametrize("template", ['"{question}"', '"{first}{second}"'])
def test_a_template_of_columns_is_what_the_model_is_asked(tmp_path, template):
    rows = [{**row, "level": "easy"} for row in chain_rows(24)]
    halves = [{**row, "first": row["question"][:5], "second": row["question"][5:]} for row in rows]
    path = write_jsonl(tmp_path / "rows.jsonl", halves)
    config = config_of("grpo", None, [*settings_of(path), f"data.columns.prompt={template}"])
    tasks = load_tasks(config.data).tasks
    assert {task.prompt for split in tasks.values() for task in split} == {row["question"] for row in rows}


def test_a_warm_starts_columns_act_and_are_refused_without_a_file(tmp_path):
    rows = [{"text": row["question"], "reply": row["question"], "fine": True} for row in chain_rows(6)]
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    named = ["columns.prompt=text", "columns.answer=reply", "columns.correct=fine"]
    few = ["num_threads=1", "data.num_train=8", "data.num_validation=2", "data.num_test=2"]
    whet("train", "imitation", f"file={file}", *named, *few, "--dry-run")
    done = whet("train", "imitation", f"file={file}", *named[1:], *few, "--dry-run", check=False)
    assert done.returncode == 2
    assert "; every row needs a question and an answer: say which column holds it, columns.prompt=NAME" in (
        " ".join(done.stderr.split())
    )
    for key in ("imitation", "columns.prompt=text"), ("critique_rl", "warm_start.columns.prompt=text"):
        done = whet("train", *key, *few, "--dry-run", check=False)
        assert done.returncode == 2
        assert "columns.prompt" in done.stderr
        assert "no effect" in " ".join(done.stderr.split())
