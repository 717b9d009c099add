"""Training while rollouts go on: by a log in one process, on servers with vLLM's routes, and what is refused."""

from __future__ import annotations

import json

import pytest

from support.benches import method_of
from support.commands import Quiet, config_of
from support.vllm_server import serving
from whet.config import ConfigError
from whet.config.parts import ModelConfig
from whet.methods.ahead import tasks_a_unit
from whet.models.policy import load_policies
from whet.report.page import render
from whet.report.read import read_run
from whet.run import launch
from whet.run_folder.folder import RunFolder
from whet.run_folder.logs import Logs
from whet.tasks.files import DataError

SMALL = (
    "num_threads=1", "data.num_train=24", "data.num_validation=2", "data.num_test=2", "num_steps=4",
    "prompts_per_step=2", "group_size=2", "validate_every=9", "evaluation.num_samples=0", "checkpoint_every=1",
    "learning.minibatch_rows=4", "sampling.max_new_tokens=12", "off_policy.kind=async", "traces_per_step=2",
)  # fmt: skip
LOG = {1: [[0, 1], [1, 1]], 2: [[3, 1], [4, 2]], 3: [[2, 1], [5, 2]], 4: [[6, 4], [7, 3]]}
"""A step trains on two units of one group each; unit 2 is slow."""
AGES = {1: (0, 0), 2: (0.5, 1), 3: (1.5, 2), 4: (0.5, 1)}
"""Mean and maximum, of the log."""


@pytest.fixture
def log(tmp_path):
    return write(tmp_path / "other.jsonl", LOG)


def write(path, batches):
    path.write_text("".join(json.dumps({"step": step, "units": units}) + "\n" for step, units in batches.items()))
    return path


def small(log, *settings):
    return config_of("grpo", *SMALL, f"off_policy.log={log}", *settings)


def trained(folder):
    return [row for row in Logs(folder).rows("metrics.jsonl") if row["phase"] == "train" and row["step"]]


def weights(folder):
    newest = sorted((folder / "checkpoints").glob("step_*"))[-1]
    return (newest / "policies/policy/model.safetensors").read_bytes()


def untimed(rows):
    return [{key: row[key] for key in row if not key.startswith(("time/", "throughput/"))} for row in rows]


def test_a_log_says_which_weights_wrote_what_a_step_trains_on(log, tmp_path):
    launch.start(small(log), tmp_path / "run", Quiet()).go()
    rows = trained(tmp_path / "run")
    assert {row["step"]: (row["age/mean"], row["age/max"]) for row in rows} == AGES
    # One update a step, so updates count as steps do.
    assert [row["staleness/max"] for row in rows] == [0, 1, 2, 1]
    assert [row["episodes/started"] for row in rows] == [4, 4, 4, 4]
    page = render(read_run(tmp_path / "run"))
    assert "Age of the batches" in page
    assert "Who waits for whom" in page
    assert "Workers busy" not in page, "a chart without a measurement"
    assert (tmp_path / "run/async.jsonl").read_bytes() == log.read_bytes()
    traces = [trace for trace in RunFolder(tmp_path / "run").read_traces("train") if trace["split"] == "train"]
    assert len({trace["task"] for trace in traces}) == 8, "eight problems, each in one unit"


@pytest.mark.integration
def test_a_run_that_was_stopped_anywhere_goes_on_to_the_same_bits(log, tmp_path):
    launch.start(small(log), tmp_path / "whole", Quiet()).go()
    for step in (1, 2, 3):
        run = tmp_path / f"run{step}"
        session = launch.start(small(log), run, Quiet())
        made = session.loop._step

        def then_stops(phase, number, trainers, made=made, session=session, step=step):
            made(phase, number, trainers)
            session.loop._stop_asked = phase.name == "train" and number == step

        session.loop._step = then_stops
        with pytest.raises(Exception, match="whet resume"):
            session.go()
        launch.resume(run, Quiet()).go()
        assert (run / "async.jsonl").read_bytes() == log.read_bytes()
        assert untimed(trained(run)) == untimed(trained(tmp_path / "whole"))
        assert weights(run) == weights(tmp_path / "whole")


def test_units_of_several_groups_and_other_methods_repeat_a_log(tmp_path):
    log = write(tmp_path / "log.jsonl", {1: [[0, 1]], 2: [[1, 1]], 3: [[2, 1]]})
    settings = ("prompts_per_step=4", "cluster.unit=8", "num_steps=3", "proximal=true", "correction={}")
    launch.start(small(log, *settings), tmp_path / "run", Quiet()).go()
    assert [row["age/max"] for row in trained(tmp_path / "run")] == [0, 1, 2]


@pytest.mark.parametrize(
    ("num_tasks", "group_size", "unit", "size"),
    [(16, 8, 64, 8), (16, 8, 100, 8), (6, 4, 16, 3), (5, 8, 64, 5), (4, 8, 4, 1), (4, 8, None, 1)],
)
def test_a_unit_has_whole_groups_and_as_many_as_divide_a_step(num_tasks, group_size, unit, size):
    assert tasks_a_unit(num_tasks, group_size, unit) == size


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["off_policy.max_age=1"], "its unit 2 is 2 steps old, and off_policy.max_age is 1"),
        (["num_steps=5"], "it has 4 steps and lacks step 5: num_steps = 5"),
        (["prompts_per_step=3"], "trains on 2 units, and here a step has 3: it is of a run with other"),
        (["off_policy.log=null"], "needs processes that roll out while this one trains: set cluster.workers"),
        (["resample=2"], "resample does not go with off_policy.kind = async"),
        (["engine.rollout=free", "engine.latency=null"], "does not go with engine.latency = null"),
        (["schedule.group_size={kind: steps, values: [2, 4], at: [2]}"], "schedule.group_size does not go with"),
        (["engine.kind=vllm", "engine.urls=[http://127.0.0.1:1]"], "log does not go with engine.kind = vllm"),
        (["off_policy.staleness=2"], "off_policy.staleness"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_in_a_sentence(log, settings, sentence, tmp_path):
    with pytest.raises(ConfigError, match="(?s)" + sentence.replace("(", r"\(")) as error:
        method_of(small(log, *settings), tmp_path / "run")
    assert sentence in str(error.value)


@pytest.mark.parametrize("text", ["[1]\n", '{"play": 3}\n', '{"step": 1, "units": [[1]]}\n', "no\n"])
def test_another_file_is_no_log(text, tmp_path):
    (tmp_path / "log.jsonl").write_text(text)
    with pytest.raises(DataError, match="log"):
        method_of(small(tmp_path / "log.jsonl"), tmp_path / "run")


def test_max_age_of_another_regime_is_refused():
    with pytest.raises(ConfigError, match="max_age"):
        config_of("grpo", "off_policy.kind=replay", "off_policy.max_age=2")


# --- on servers -------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_replies_on_a_server_go_on_while_the_policy_trains(tmp_path):
    """Some are of several versions; what trains is never older than max_age, by the spans of its own tokens."""
    policy = load_policies({"policy": ModelConfig()})["policy"]
    with serving(policy, chunk=3) as server:
        url = ("engine.kind=vllm", f"engine.urls=[{server.url}]", "engine.limit_s=60")
        launch.start(config_of("grpo", *SMALL, *url, "num_steps=5"), tmp_path / "run", Quiet()).go()
    rows = trained(tmp_path / "run")
    assert len(rows) == 5
    assert all(row["age/max"] <= 2 and row["staleness/max"] <= 2 for row in rows)
    assert max(row["age/max"] for row in rows) > 0
    assert all(row["kl/sampler"] < 1e-3 for row in rows if "kl/sampler" in row and not row["staleness/max"])
    paths = [path for path, _ in server.calls]
    assert "/inference/v1/generate" in paths
    units = [unit for row in Logs(tmp_path / "run").rows("async.jsonl") for unit, _ in row["units"]]
    assert sorted(units) == list(range(10))
