"""`whet track --follow` beside a run that is only starting."""

import threading

from typer.testing import CliRunner

from whet.cli import app, track


def test_a_follower_waits_for_the_folder_of_a_run(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(track, "POLL_S", 0.02)
    folder = tmp_path / "run"

    def begin():
        folder.mkdir()
        (folder / "config.yaml").write_text("method: grpo\n")

    threading.Timer(0.2, begin).start()
    track._wait_for(folder)
    assert (folder / "config.yaml").is_file()
    assert capfd.readouterr().out.count("waiting for a run") == 1  # said once
    track._wait_for(folder)
    assert "waiting" not in capfd.readouterr().out


def test_a_run_that_never_begins_is_refused_and_without_follow_at_once(monkeypatch, tmp_path):
    monkeypatch.setattr(track, "POLL_S", 0.02)
    monkeypatch.setattr(track, "START_S", 0.1)
    for options, waits in ((["--follow"], True), ([], False)):
        done = CliRunner().invoke(app, ["track", str(tmp_path / "gone"), "--to", "tensorboard", *options])
        assert done.exit_code != 0
        assert ("waiting for a run" in done.output) == waits
        assert "give the folder of a run" in done.output
