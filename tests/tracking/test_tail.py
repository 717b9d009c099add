"""A reader of a log that grows, and that a resumed run cuts back."""

import json

from whet.tracking.tail import Tail


def write(path, *rows, mode="a"):
    with path.open(mode) as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def test_it_gives_each_whole_line_once(tmp_path):
    path = tmp_path / "log.jsonl"
    tail = Tail(path)
    assert tail.read() == ([], False)
    write(path, {"step": 1}, {"step": 2})
    with path.open("a") as file:
        file.write('{"step": 3')  # a kill, or a look in the middle of a write
    assert tail.read() == ([{"step": 1}, {"step": 2}], False)
    assert tail.read() == ([], False)
    with path.open("a") as file:
        file.write('}\nno json\n{"step": 4}\n')
    assert tail.read() == ([{"step": 3}, {"step": 4}], False)


def test_a_log_that_was_cut_back_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "log.jsonl"
    tail = Tail(path)
    write(path, {"step": 1}, {"step": 2})
    tail.read()
    write(path, {"step": 1}, mode="w")
    assert tail.read() == ([{"step": 1}], True)
    assert tail.read() == ([], False)


def test_a_cut_is_seen_though_the_log_has_grown_past_it(tmp_path):
    path = tmp_path / "log.jsonl"
    tail = Tail(path)
    write(path, {"step": 1, "time": 0.5}, {"step": 2, "time": 0.5})
    tail.read()
    write(path, {"step": 1, "time": 0.5}, {"step": 2, "time": 0.75}, {"step": 3, "time": 0.5}, mode="w")
    rows, was_cut = tail.read()
    assert was_cut
    assert [row["step"] for row in rows] == [1, 2, 3]


def test_equal_bytes_are_no_cut_and_a_deleted_log_is_one(tmp_path):
    path = tmp_path / "log.jsonl"
    tail = Tail(path)
    write(path, {"step": 1}, {"step": 2})
    tail.read()
    write(path, {"step": 1}, {"step": 2}, {"step": 3}, mode="w")
    assert tail.read() == ([{"step": 3}], False)
    path.unlink()
    assert tail.read() == ([], True)
    assert tail.read() == ([], False)


def test_a_line_longer_than_a_chunk_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("whet.tracking.tail.CHUNK", 16)
    path = tmp_path / "log.jsonl"
    write(path, {"text": "x" * 100}, {"step": 2})
    tail = Tail(path)
    seen = []
    while rows := tail.read()[0]:
        seen += rows
    assert seen == [{"text": "x" * 100}, {"step": 2}]
