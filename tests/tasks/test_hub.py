"""Sets of the hub: by the real clients, from folders, from the hub's cache, and from a hub on loopback."""

import importlib.util

import huggingface_hub
import pytest

from support.files import sums, write_parquet
from support.hub import Hub, serving
from whet.config.parts import SPLITS, FileData
from whet.tasks import hub
from whet.tasks.hub import commit_of
from whet.tasks.row_formats import DataError
from whet.tasks.sources import load_files, pinned

OLD, NEW = "a" * 40, "b" * 40
CARD = """---
configs:
- config_name: main
  data_files:
  - {split: train, path: main/train-*}
  - {split: test, path: main/test-*}
- config_name: small
  data_files:
  - {split: train, path: small/train-*}
---
"""


def loaded(**settings):
    return load_files(FileData(**settings), 0)


def write_set(folder, num_train=40):
    write_parquet(folder / "data" / "train-00000-of-00002.parquet", sums(range(num_train - 10)))
    write_parquet(folder / "data" / "train-00001-of-00002.parquet", sums(range(num_train - 10, num_train)))
    write_parquet(folder / "data" / "test-00000-of-00001.parquet", sums(range(100, 110)))
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The hub's, empty, and no network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache" / "datasets--me--sums"


def test_a_folder_as_datasets_reads_it(tmp_path, cache):
    folder = write_set(tmp_path / "set")
    found = loaded(hub=str(folder))
    assert len(found.tasks["test"]) == 10
    assert len(found.tasks["train"]) + len(found.tasks["validation"]) == 40
    assert found.parts["test"] == f"all of split test of {folder}"
    assert found.parts["validation"] == f"10 % of split train of {folder} by a hash of the question"
    own = loaded(hub=str(folder), test_path=str(folder / "data" / "train-00001-of-00002.parquet"))
    assert len(own.tasks["test"]) == 10
    assert own.leaks[-1].endswith("for the test, and were dropped")


def test_subsets_and_splits_are_named_or_said(tmp_path, cache):
    for subset in ("main", "small"):
        for split, numbers in (("train", range(40)), ("test", range(100, 110))):
            write_parquet(tmp_path / "set" / subset / f"{split}-0.parquet", sums(numbers))
    (tmp_path / "set" / "README.md").write_text(CARD)
    folder = str(tmp_path / "set")
    assert len(loaded(hub=folder, subset="main").tasks["test"]) == 10
    small = loaded(hub=folder, subset="small")
    assert small.parts["test"].startswith("10 % of split train of")
    for settings, says in (
        ({}, "has several subsets: give data.subset one of main, small"),
        ({"subset": "big"}, "has no subset 'big': give data.subset one of main, small"),
        (
            {"subset": "main", "splits": {"validation": "dev"}},
            r"no split 'dev' .data\.splits\.validation.; it has train",
        ),
        ({"subset": "main", "revision": "main"}, r"data\.revision is of sets on the hub, and .* is a folder here"),
        ({"subset": "main", "columns": {"prompt": "qestion"}}, r"split train of .*, row 1: .* did you mean question\?"),
    ):
        with pytest.raises(DataError, match=says):
            loaded(hub=folder, **settings)


@pytest.mark.parametrize("card", ["README.md", ".huggingface.yaml"])
@pytest.mark.parametrize(
    "place", ["/etc/passwd", "../secret.jsonl", "data/../../secret.jsonl", "file:///etc/passwd", "http://127.0.0.1:9/x"]
)
def test_a_card_reads_nothing_outside_of_its_set(tmp_path, cache, card, place):
    folder = write_set(tmp_path / "set")
    (tmp_path / "secret.jsonl").write_text('{"question": "1?", "answer": "1"}\n')
    configs = (
        f"configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: [data/train-*, {place!r}]\n"
    )
    (folder / card).write_text(f"---\n{configs}---\n" if card == "README.md" else configs)
    with pytest.raises(DataError, match=f"its card reads '{place}', which is not in the set's folder: take another"):
        loaded(hub=str(folder))


def test_a_folder_of_data_outside_of_the_set_is_refused_too(tmp_path, cache):
    folder = write_set(tmp_path / "set")
    (folder / "README.md").write_text("---\nconfigs:\n- config_name: default\n  data_dir: ..\n---\n")
    with pytest.raises(DataError, match=r"its card reads '\.\.'"):
        loaded(hub=str(folder))


def test_folders_that_are_no_set(tmp_path, cache, monkeypatch):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty cannot be loaded .*doesn't contain any data files"):
        loaded(hub=str(tmp_path / "empty"))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "train.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="broken cannot be "):
        loaded(hub=str(tmp_path / "broken"))
    found = importlib.util.find_spec
    monkeypatch.setattr(hub, "find_spec", lambda name: None if name == "datasets" else found(name))
    with pytest.raises(DataError, match=r"not installed: in whet's checkout, `make setup EXTRAS=data`"):
        loaded(hub=str(write_set(tmp_path / "set")))


def test_without_a_network_the_copy_in_the_cache_is_taken(cache):
    with pytest.raises(DataError, match=r"data\.hub = me/sums: .* has no such set, and HF_HUB_OFFLINE is set; check"):
        loaded(hub="me/sums")
    write_set(cache / "snapshots" / OLD)
    assert f"at {OLD[:12]}" in loaded(hub="me/sums").parts["test"]
    write_set(cache / "snapshots" / NEW)
    with pytest.raises(DataError, match=f"the cache has {OLD}, {NEW}: give data.revision one of these commits"):
        loaded(hub="me/sums")
    assert f"at {NEW[:12]}" in loaded(hub="me/sums", revision=NEW).parts["test"]
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(OLD)
    assert pinned(FileData(hub="me/sums")).revision == OLD
    for name in ("./none", "a/b/c", "no set"):
        with pytest.raises(DataError, match="no such folder, and no set of the hub has such a name"):
            loaded(hub=name)


def test_a_hub_is_asked_for_the_commit_and_its_files_once(tmp_path, cache, monkeypatch):
    """The real client, and a hub on loopback."""
    commits = {OLD: write_set(tmp_path / "old"), NEW: write_set(tmp_path / "new", num_train=60)}
    (commits[NEW] / "run_me.py").write_text("raise SystemExit")
    served = Hub(commits, {"main": NEW, "v1": OLD})
    with serving(served) as address:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
        template = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        assert (commit_of("me/sums", None), commit_of("me/sums", "v1")) == (NEW, OLD)
        assert pinned(FileData(hub="me/sums", revision=OLD)).revision == OLD
        found = loaded(hub="me/sums")
        assert sum(len(found.tasks[split]) for split in SPLITS) == 70
        assert {path.name for path in (cache / "snapshots" / NEW).rglob("*.*")} == {
            *("train-00000-of-00002.parquet", "train-00001-of-00002.parquet", "test-00000-of-00001.parquet"),
        }
        for settings in ({"hub": "me/none"}, {"hub": "me/sums", "revision": "v9"}):
            with pytest.raises(DataError, match="the hub has no such set or revision, or asks for a token"):
                loaded(**settings)
        served.branches["main"] = OLD
        assert sum(len(tasks) for tasks in loaded(hub="me/sums", revision=NEW).tasks.values()) == 70
    monkeypatch.setattr(hub, "ANSWER_S", 0.5)  # nobody is there any more
    assert sum(len(tasks) for tasks in loaded(hub="me/sums", revision=NEW).tasks.values()) == 70
    next((cache / "snapshots" / NEW).rglob("train*")).unlink()
    with pytest.raises(DataError, match=r"the hub cannot be reached .*the cache has only some of its files"):
        loaded(hub="me/sums", revision=NEW)
