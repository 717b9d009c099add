"""A follower of a run: each step once, whatever the run, the tracker and the follower go through."""

import json

import pytest

from whet.report.records import ReportError
from whet.run_folder.logs import Logs
from whet.tracking.follow import Feed, TrackSettings, follow
from whet.tracking.protocol import TrackError
from whet.tracking.state import locked

SUMMARY = {"rows": {"before": {"acc": 0.25, "n": 8.0}, "best": {"acc": 0.5, "n": 8.0}}, "seconds": 1.0}


def send(run, **settings):
    """Sends what is there, and raises what the tracker raised."""
    feed = Feed(run.path, "json", TrackSettings(**settings))
    failures = []
    with locked(feed.file):
        feed.load()
        follow([feed], lambda: True, report=lambda _, error: failures.append(error))
    if failures:
        raise failures[0]
    return feed


def calls(run, what=None, folder=None):
    file = (folder or run.path / "tracking/json") / "lines.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return rows if what is None else [row[1:] for row in rows if row[0] == what]


def cut_back(run, marks):
    """As a resume does."""
    run.logs.rewind(marks)


def test_numbers_traces_table_alerts(run, step, lines):
    step("train", 0)
    step("train", 1)
    run.event("warning", "flat", "train step 1: nothing is learnt")
    run.write("summary.json", json.dumps(SUMMARY))
    feed = send(run, num_traces=2)
    first, *_, last = calls(run)
    assert first[:3] == ["begin", {"method": "grpo", "seed": 3}, "run"]
    assert last == ["end", True]
    assert calls(run, "log") == [[0, {"train/reward/mean": 0.0}], [1, {"train/reward/mean": 0.1}]]
    assert calls(run, "traces") == [[0, ["train0a", "train0b"]], [1, ["train1a", "train1b"]]]
    [[name, rows]] = calls(run, "table")
    assert (name, rows[1]["policy"], rows[1]["Acc"], rows[1]["n"]) == ("results", "Best", 0.5, 8.0)
    alerts = calls(run, "alert")
    assert ["warning", "train step 1: nothing is learnt"] in alerts
    assert any("8 problems" in sentence for _, sentence in alerts)  # a health note
    assert "2 steps, 4 traces" in feed.in_words()
    assert send(run).in_words() == "json: nothing new"
    assert len(calls(run, "begin")) == 1  # nothing to send: the tracker is left alone


def test_steps_count_on_from_phase_to_phase(run, step, lines):
    for phase, numbers in (("before", [1]), ("train", [0, 1, 2]), ("after", [1, 2])):
        for number in numbers:
            step(phase, number)
    send(run)
    assert [number for number, _ in calls(run, "log")] == [1, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("goes_on", [False, True], ids=["another follower", "the same follower"])
def test_a_resumed_run_sends_each_step_once(run, step, lines, goes_on):
    step("before", 1)
    for number in (0, 1, 2):
        step("train", number)
    marks = run.logs.marks()
    for number in (3, 4):
        step("train", number)
    looks = iter([False, False, True])
    feed = Feed(run.path, "json", TrackSettings())
    feed.load()
    feed.pump()
    cut_back(run, marks)
    step("train", 3, again=1.0)
    if goes_on:
        feed.pump()  # in the middle of what it has
    for number in (4, 5):
        step("train", number, again=1.0)
    run.write("summary.json", json.dumps(SUMMARY))
    if goes_on:
        follow([feed], lambda: next(looks), report=lambda _, error: pytest.fail(str(error)))
    else:
        send(run)
    assert [number for number, _ in calls(run, "log")] == [1, 1, 2, 3, 4, 5, 6]
    assert [number for number, _ in calls(run, "traces")] == [1, 1, 2, 3, 4, 5, 6]
    assert calls(run, "log")[4][1] == {"train/reward/mean": 0.3}  # as it was made first
    begins = [row[2] for row in calls(run, "begin")]
    assert begins == ([0] if goes_on else [0, 6])


def test_traces_of_a_resumed_run_do_not_pile_up(run, step, lines):
    step("train", 1)
    marks = run.logs.marks()
    run.traces("train", [{"phase": "train", "step": 2, "task": "before the kill"}])  # and no metrics: it was killed
    feed = Feed(run.path, "json", TrackSettings(num_traces=9))
    feed.load()
    feed.pump()
    cut_back(run, marks)
    step("train", 2)
    feed.pump()
    assert calls(run, "traces")[-1] == [2, ["train2a", "train2b", "train2c"]]


def test_a_failing_tracker_is_left_out_and_sends_the_rest_later(run, step, lines):
    for number in (1, 2, 3):
        step("train", number)
    lines.fails_at = 2
    with pytest.raises(ConnectionError):
        send(run)
    lines.fails_at = None
    send(run)
    # The first batch was not noted as sent: step 1 comes again, and the tracker is told from where on.
    assert [row[2] for row in calls(run, "begin")] == [0, 0]
    assert [number for number, _ in calls(run, "log")] == [1, 1, 2, 3]


def test_another_place_gets_everything_and_again_sends_anew(run, step, lines, tmp_path):
    step("train", 1)
    send(run)
    send(run, out=tmp_path / "elsewhere")
    assert len(calls(run, "log", tmp_path / "elsewhere")) == 1
    feed = Feed(run.path, "json", TrackSettings())
    feed.load(anew=True)
    feed.pump()
    assert len(calls(run, "log")) == 2


def test_a_run_that_began_anew_in_the_folder_is_another_run(run, step, lines):
    step("train", 1)
    feed = Feed(run.path, "json", TrackSettings())
    feed.load()
    feed.pump()
    [before] = {row[3] for row in calls(run, "begin")}
    run.logs.close()
    (run.path / "events.jsonl").unlink()
    Logs(run.path).rewind({})
    run.event("info", "started", "another one")
    with pytest.raises(TrackError, match="another run has begun"):
        feed.pump()
    step("train", 1)
    send(run)
    assert [number for number, _ in calls(run, "log")] == [1, 1]
    assert calls(run, "begin")[1][3] != before


def test_damaged_states_and_odd_rows(run, step, lines):
    step("train", 1)
    send(run)
    for damage in ("", "[]", '{"steps": {"train": "x"}}', '{"run": 3}'):
        (run.path / "tracking/json.json").write_text(damage)
        send(run)
    assert len(calls(run, "log")) == 5
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write(
            '3\n{"phase": "train", "step": 2, "a": true, "b": null, "c": "x", "d": 1e999, "e": 2}\n{"phase": "tr'
        )
    send(run)
    assert calls(run, "log")[-1] == [2, {"train/e": 2.0}]


def test_two_followers_of_one_tracker_do_not_mix(run, lines):
    feed = Feed(run.path, "json", TrackSettings())
    with (
        locked(feed.file),
        pytest.raises(TrackError, match="another process sends this run to json"),
        locked(feed.file),
    ):
        pass
    waits = iter([True, True, False])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whet.tracking.state.WAIT_S", 0.0)
        with locked(feed.file), pytest.raises(TrackError), locked(feed.file, wait=lambda: next(waits)):
            pass
    with locked(feed.file):
        pass


def test_no_run(tmp_path, lines):
    with pytest.raises(TrackError, match="there is no tracker 'tensorbord': choose of tensorboard"):
        Feed(tmp_path, "tensorbord", TrackSettings())
    with pytest.raises(ReportError, match="is no folder"):
        Feed(tmp_path / "none", "json", TrackSettings())
    (tmp_path / "config.yaml").write_text("method: grpo\n")
    feed = Feed(tmp_path, "json", TrackSettings())
    feed.load()
    feed.pump()  # a run that has not begun to write
