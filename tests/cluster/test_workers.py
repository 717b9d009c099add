"""Rollouts by workers: the bits of units in process, and the same errors; also where a worker is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import worker_cases
from typer.testing import CliRunner

import same_numbers
from whet.cli import app
from whet.run_folder.logs import Logs

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("ray")]  # one Ray at a time


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    worker_cases.watch_pools()
    yield
    import ray

    ray.shutdown()


@pytest.fixture(scope="module")
def in_process(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return worker_cases.run("grpo", tmp_path_factory.mktemp("alone") / "run", 0)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_workers_gives_the_bits_of_units_in_process(in_process, count, tmp_path):
    assert worker_cases.run("grpo", tmp_path / "run", count) == in_process
    steps = [row for row in Logs(tmp_path / "run").rows("metrics.jsonl") if "cluster/busy" in row]
    assert steps
    assert all(0 < row["cluster/busy"] <= 1 and row["cluster/restarts"] == 0 for row in steps)


def test_killed_workers_change_no_bit_and_are_reported(in_process, tmp_path):
    found = worker_cases.run("grpo", tmp_path / "run", 2, "cluster.restarts=9", kills=2)
    assert found == in_process
    deaths = worker_cases.deaths(tmp_path / "run")
    assert 1 <= len(deaths) <= 2  # a fast run ends before the second
    assert all("it was killed" in event["message"] and "takes its place" in event["message"] for event in deaths)


def test_a_critic_and_an_actor_travel_too(tmp_path):
    alone = worker_cases.run("critique_rl", tmp_path / "alone", 0)
    assert worker_cases.run("critique_rl", tmp_path / "workers", 2) == alone


def test_units_give_the_tokens_of_a_run_without_them(tmp_path):
    name = "grpo"
    whole = same_numbers.run(name, tmp_path / "whole")
    units = same_numbers.run(name, tmp_path / "units", "cluster.unit=4")
    assert same_numbers.differences(whole, units) == []


def test_a_grader_that_breaks_ends_the_run_with_the_words_of_a_run_in_process(tmp_path):
    plugin, data = tmp_path / "mine.py", tmp_path / "data.jsonl"
    plugin.write_text(
        "import whet\n@whet.grader('ends')\ndef ends(completion):\n    raise ValueError('no such answer')\n"
    )
    data.write_text("".join(json.dumps({"question": f"{n % 9} + 1", "answer": "1"}) + "\n" for n in range(60)))
    words = tmp_path / "words.yaml"
    words.write_text("extends: chains\n")
    texts = []
    for count in (0, 1):
        command = [
            *("train", "grpo", "num_threads=1", "num_steps=2", "prompts_per_step=3", "group_size=3"),
            *("evaluation.num_samples=1", "sampling.max_new_tokens=8", "data.kind=file", f"data.path={data}"),
            *("data.grader=ends", f"plugins=[{plugin}]", "faults.budget=0.1", f"prompts={words}"),
            *("cluster.unit=8", f"cluster.workers={count}"),
        ]
        result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / f"run{count}")])
        assert result.exit_code != 0
        texts.append([line for line in result.output.splitlines() if "faults.budget" in line])
    assert "no such answer" in texts[0][0]
    assert texts[0] == texts[1]


def test_another_unit_is_refused_where_a_run_goes_on_and_other_workers_are_not(tmp_path):
    out = tmp_path / "run"
    worker_cases.run("grpo", out, 0)
    refused = CliRunner().invoke(app, ["resume", str(out), "cluster.unit=5"])
    assert refused.exit_code != 0
    assert "cluster.unit" in refused.output
    longer = CliRunner().invoke(app, ["resume", str(out), "num_steps=3", "cluster.workers=1"])
    assert longer.exit_code == 0, longer.output
    assert json.loads((out / "summary.json").read_text())["rows"]
