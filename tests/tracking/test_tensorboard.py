"""TensorBoard's own reader, on what is written for it."""

import json

import pytest

from whet.tracking.follow import Feed, TrackSettings, follow

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def send(run):
    feed = Feed(run.path, "tensorboard", TrackSettings())
    feed.load()
    follow([feed], lambda: True, report=lambda _, error: pytest.fail(str(error)))


def held(run):
    events = accumulator.EventAccumulator(str(run.path / "tracking/tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return events


def test_scalars_texts_and_table(run, step):
    step("before", 1)
    for number in (0, 1, 2):
        step("train", number)
    run.event("warning", "flat", "train: nothing is learnt")
    run.write("summary.json", json.dumps({"rows": {"best": {"acc": 0.5, "n": 8.0}}, "seconds": 1.0}))
    send(run)
    events = held(run)
    points = [(point.step, round(point.value, 6)) for point in events.Scalars("train/reward/mean")]
    assert points == [(1, 0.0), (2, 0.1), (3, 0.2)]
    assert {"before/traces", "train/traces", "results", "alerts", "settings"} <= set(events.Tags()["tensors"])
    [table] = events.Tensors("results")[-1].tensor_proto.string_val
    assert b"| Best | 0.5 |" in table


def test_what_a_killed_follower_sent_and_did_not_note_counts_once(run, step):
    step("train", 1)
    send(run)
    state = run.path / "tracking/tensorboard.json"
    noted = state.read_text()
    step("train", 2)
    send(run)
    state.write_text(noted)  # as a kill before the note leaves it
    step("train", 3)
    send(run)
    assert [point.step for point in held(run).Scalars("train/reward/mean")] == [1, 2, 3]
