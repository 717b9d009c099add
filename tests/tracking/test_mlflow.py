"""MLflow's own client, on what is written for it."""

import json

import pytest

from whet.tracking.follow import Feed, TrackSettings, follow

pytest.importorskip("mlflow")
pytest.importorskip("sqlalchemy")


@pytest.fixture(autouse=True)
def no_server(monkeypatch):
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


def send(run):
    feed = Feed(run.path, "mlflow", TrackSettings())
    feed.load()
    follow([feed], lambda: True, report=lambda _, error: pytest.fail(str(error)))


def held(run):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{run.path / 'tracking/mlflow/mlflow.db'}")
    [found] = client.search_runs([client.get_experiment_by_name("whet").experiment_id])
    return client, found


def test_numbers_settings_traces_alerts_and_table(run, step):
    step("before", 1)
    for number in (0, 1, 2):
        step("train", number)
    run.event("warning", "flat", "train: nothing is learnt")
    run.write("summary.json", json.dumps({"rows": {"best": {"acc": 0.5, "n": 8.0}}, "seconds": 1.0}))
    send(run)
    client, found = held(run)
    points = client.get_metric_history(found.info.run_id, "train/reward/mean")
    assert [(point.step, point.value) for point in points] == [(1, 0.0), (2, 0.1), (3, 0.2)]
    assert found.data.params == {"method": "grpo", "seed": "3"}
    assert found.info.status == "FINISHED"
    files = run.path / "tracking/mlflow/artifacts" / found.info.run_id / "artifacts"
    traces = sorted(str(file.relative_to(files / "traces")) for file in files.glob("traces/*/*"))
    assert traces == ["before/step_000001.md", *(f"train/step_{number:06}.md" for number in (1, 2, 3))]
    assert "| Best | 0.5 |" in (files / "results.md").read_text()
    assert "**warning**: train: nothing is learnt" in [file.read_text() for file in files.glob("alerts/*.md")]


def test_what_a_killed_follower_sent_and_did_not_note_counts_once(run, step):
    step("train", 1)
    send(run)
    state = run.path / "tracking/mlflow.json"
    noted = state.read_text()
    step("train", 2)
    send(run)
    state.write_text(noted)  # as a kill before the note leaves it
    step("train", 3)
    send(run)
    client, found = held(run)
    points = client.get_metric_history(found.info.run_id, "train/reward/mean")
    assert [point.step for point in points] == [1, 2, 3]


def test_a_follower_that_starts_again_writes_over_no_alert(run, step):
    for number, sentence in enumerate(("train: nothing is learnt", "train: the entropy falls"), 1):
        step("train", number)
        run.event("warning", "told", sentence)
        send(run)
    _, found = held(run)
    files = run.path / "tracking/mlflow/artifacts" / found.info.run_id / "artifacts/alerts"
    told = " ".join(file.read_text() for file in files.iterdir())
    assert "nothing is learnt" in told
    assert "the entropy falls" in told
