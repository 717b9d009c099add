"""Files and folders that are whole or not there, whatever interrupts their writer."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.disk import real_fsync
from whet.files import ASIDE, sync, whole_folder, write_atomic, write_link


def test_a_file_is_replaced_whole_and_nothing_is_left_aside(tmp_path):
    place = tmp_path / "file"
    for content in (b"old", b"new"):
        write_atomic(place, content)
        assert place.read_bytes() == content
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_is_replaced_and_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    (tmp_path / "file").symlink_to(outside)
    write_atomic(tmp_path / "file", b"new")
    assert outside.read_bytes() == b"precious"
    assert not (tmp_path / "file").is_symlink()


def test_a_link_leads_to_its_new_target_at_once(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_link(tmp_path / "link", Path(name))
        assert (tmp_path / "link").readlink() == Path(name)
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "link"]


@pytest.mark.parametrize("write", [lambda path: write_atomic(path, b"x"), lambda path: write_link(path, Path("x"))])
def test_what_cannot_be_put_in_place_leaves_nothing_aside(tmp_path, write):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write(tmp_path / "folder")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_folder_is_there_once_it_is_whole(tmp_path):
    with whole_folder(tmp_path / "made") as aside:
        (aside / "file").write_text("x")
        assert not (tmp_path / "made").exists()
    assert os.listdir(tmp_path / "made") == ["file"]
    with pytest.raises(FileNotFoundError), whole_folder(tmp_path / "made", over=True) as aside:
        (aside / "folder" / "other").write_text("y")
    assert os.listdir(tmp_path / "made") == ["file"]
    with whole_folder(tmp_path / "made", over=True) as aside:
        (aside / "other").write_text("y")
    assert os.listdir(tmp_path / "made") == ["other"]
    with pytest.raises(OSError, match="made"), whole_folder(tmp_path / "made") as aside:
        (aside / "third").write_text("z")
    assert os.listdir(tmp_path / "made") == ["other"]
    assert os.listdir(tmp_path) == ["made"]


def test_what_is_written_reaches_the_disk_itself(tmp_path, monkeypatch):
    """Elsewhere tests do not wait for it (`support.disk`)."""
    monkeypatch.setattr(os, "fsync", real_fsync)
    write_atomic(tmp_path / "file", b"x")
    with whole_folder(tmp_path / "made") as aside:
        (aside / "file").write_text("x")
    sync([tmp_path, tmp_path / "file", tmp_path / "made"])
    assert (tmp_path / "file").read_bytes() == (tmp_path / "made" / "file").read_bytes() == b"x"


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    synced: set[int] = set()
    fsync, replace, rename = os.fsync, Path.replace, Path.rename
    late: list[set[int]] = []

    def sync(number: int) -> None:
        synced.add(os.fstat(number).st_ino)
        fsync(number)

    def watched(move):
        def moved(self: Path, target: Path) -> Path:
            late.append({path.stat().st_ino for path in [self, *self.rglob("*")]} - synced)
            return move(self, target)

        return moved

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", watched(replace))
    monkeypatch.setattr(Path, "rename", watched(rename))
    write_atomic(tmp_path / "file", b"x")
    with whole_folder(tmp_path / "made") as aside:
        (aside / "inner").mkdir()
        (aside / "inner" / "file").write_text("x")
    assert late == [set(), set()]
    assert tmp_path.stat().st_ino in synced


def test_a_writer_that_is_killed_leaves_the_old_file(tmp_path):
    """Killed in the middle of its sync, when the new content is written and has not its name yet."""
    (tmp_path / "file").write_bytes(b"old")
    program = (
        "import os, signal; from pathlib import Path; from whet.files import write_atomic\n"
        "os.fsync = lambda number: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_atomic(Path('file'), b'new')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "file").read_bytes() == b"old"
    assert len(os.listdir(tmp_path)) == 2


def test_what_a_killed_writer_left_aside_goes_with_the_next_one_of_its_file(tmp_path):
    place = tmp_path / "a[1].json"
    left = tmp_path / f".{place.name}.{'0' * 16}{ASIDE}"
    of_others = [tmp_path / f".b.json.{'0' * 16}{ASIDE}", tmp_path / f".{place.name}.old{ASIDE}"]
    for file in (left, *of_others):
        file.write_bytes(b"half")
    with left.open("rb") as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        write_atomic(place, b"one")
        assert left.exists(), "its writer lives"
    write_atomic(place, b"two")
    assert sorted(tmp_path.iterdir()) == sorted([place, *of_others])
    assert place.read_bytes() == b"two"


def test_a_writer_whose_file_was_taken_for_a_killed_ones_writes_it_again(tmp_path, monkeypatch):
    locked = fcntl.flock

    def taken_once(file, operation):
        if operation == fcntl.LOCK_EX and not place.exists() and not calls:
            calls.append([aside.unlink() for aside in tmp_path.glob(f".*{ASIDE}")])
        locked(file, operation)

    place, calls = tmp_path / "a.json", []
    monkeypatch.setattr(fcntl, "flock", taken_once)
    write_atomic(place, b"whole")
    assert calls
    assert place.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [place]
