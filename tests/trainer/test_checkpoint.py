"""Run folders: what belongs to a checkpoint, what is whole, what a run goes on from, and what it refuses to."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from support import commands
from support.commands import config_of, events, same_bits
from whet.digests import digest
from whet.errors import RunError
from whet.run import launch, provenance, start
from whet.run_folder.files import write_atomic
from whet.run_folder.folder import RunFolder
from whet.run_folder.logs import LOGS, Logs
from whet.trainer.buffers import Store
from whet.trainer.checkpoint import MANIFEST, damage, load_state, newest_first, newest_whole, save_checkpoint
from whet.trainer.local import trainer_of

SETTINGS = (
    "policy.path=model", "seed=3", "data.num_train=16", "data.num_validation=4", "data.num_test=4", "num_steps=4",
    "prompts_per_step=2", "group_size=2", "validate_every=4", "evaluation.num_samples=0", "checkpoint_every=1",
    "sampling.max_new_tokens=16", "advantage=reward", "signed=true",
)  # fmt: skip
CONFIG = config_of("grpo", *SETTINGS)


class Quiet(commands.Quiet):
    def __init__(self):
        self.told = []

    def tell(self, level, text):
        if level == "warning" and not text.startswith("train "):  # what is watched while training is told as well
            self.told.append(text)


class Killed(Exception):
    pass


class KillAt(Quiet):
    """Stops a run as a kill does: after a step was logged, before it is saved."""

    phase = ""

    def begin(self, phase, done, total):
        self.phase = phase

    def step(self, step, shown):
        if (self.phase, step) == ("train", 4):
            raise Killed


@pytest.fixture(scope="module")
def made(random_model, tmp_path_factory) -> Path:
    """A model, a run with it that ended, and one that was killed in its fourth step."""
    place = tmp_path_factory.mktemp("made")
    shutil.copytree(random_model, place / "model")
    before = Path.cwd()
    os.chdir(place)
    try:
        launch.start(CONFIG, Path("unbroken"), Quiet()).go()
        with pytest.raises(Killed):
            launch.start(CONFIG, Path("run"), KillAt()).go()
    finally:
        os.chdir(before)
    return place


@pytest.fixture
def run(made, tmp_path, monkeypatch) -> Path:
    """The killed run, with its model beside it, as relative paths."""
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return Path("run")


def newest(run: Path) -> Path:
    return newest_first(run)[0]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def rewrite_state(run: Path, change) -> None:
    """As another whet would have written it: the manifest fits."""
    for folder in newest_first(run):
        state = load_state(folder)
        change(state)
        (folder / "state.json").write_text(json.dumps(state))
        manifest = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps(manifest | {"state.json": digest(folder / "state.json")}))


# --- resuming ---------------------------------------------------------------------------------------------------------


def test_a_killed_run_goes_on_to_the_same_bits_without_a_word(run):
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"phase": "torn')
    (run / "checkpoints" / "latest").unlink()
    seen = Quiet()
    launch.resume(run, seen).go()
    same_bits(Path("unbroken"), run)
    assert events(run, "resumed") == ["goes on from step_000005"]
    assert seen.told == []


def cut(name: str):
    return lambda run: os.truncate(run / name, (run / name).stat().st_size // 3)


def edit_config(run: Path) -> None:
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("group_size: 2", "group_size: 3"))


def link_away(name: str):
    def do(run: Path) -> None:
        if (run / name).exists():
            shutil.move(run / name, "elsewhere")
        else:
            Path("elsewhere").write_text("precious")
        (run / name).symlink_to(Path("elsewhere").absolute())

    return do


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda run: flip(Path("model/model.safetensors")), "path = model, file model.safetensors, was replaced"),
        (lambda run: os.remove("model/generation_config.json"), "generation_config.json, is gone since the run began"),
        (lambda run: Path("model/added_tokens.json").write_text("{}"), "added_tokens.json, is new since the run began"),
        (edit_config, "group_size: 2 -> 3"),
        (cut("metrics.jsonl"), "metrics.jsonl is shorter than it was"),
        (cut("traces/train.jsonl"), "traces/train.jsonl is shorter than it was"),
        (lambda run: flip(run / "metrics.jsonl"), "metrics.jsonl was altered"),
        (lambda run: flip(run / "traces/before.jsonl"), "traces/before.jsonl was altered"),
        (lambda run: (run / "traces/before.jsonl").unlink(), "traces/before.jsonl is gone"),
        (lambda run: shutil.rmtree(run / "checkpoints"), "no checkpoint, though its metrics.jsonl goes on to train"),
        (lambda run: [flip(path / "rng.safetensors") for path in newest_first(run)], "no checkpoint in run is whole"),
        (
            lambda run: rewrite_state(run, lambda state: state.update(format=2)),
            f"written by whet {provenance.version()}",
        ),
        (lambda run: rewrite_state(run, lambda state: state.pop("format")), "has a layout that this whet"),
        (
            lambda run: rewrite_state(run, lambda state: state["origin"]["settings"].update(colour="red")),
            "with settings that whet",
        ),
        *(
            (link_away(name), "is a symbolic link")
            for name in (
                "metrics.jsonl", "events.jsonl", "traces", "checkpoints", ".lock", "report.html", "checkpoints/latest",
            )
        ),
    ],
)  # fmt: skip
def test_a_run_does_not_go_on_as_another(run, harm, says):
    harm(run)
    logged = Path("elsewhere").stat().st_size if Path("elsewhere").is_file() else None
    with pytest.raises(RunError, match=says.replace(".", r"\.").replace(" -> ", ".*")) as refused:
        launch.resume(run, Quiet())
    assert "\n" not in str(refused.value)
    assert logged is None or Path("elsewhere").stat().st_size == logged


def test_a_refused_run_is_let_go_of(run):
    config = (run / "config.yaml").read_text()
    edit_config(run)
    with pytest.raises(RunError):
        launch.resume(run, Quiet())
    (run / "config.yaml").write_text(config)
    launch.resume(run, Quiet()).close()


def test_another_number_of_threads_is_refused_though_none_was_asked_for(run):
    torch.set_num_threads(2)
    try:
        with pytest.raises(RunError, match=r"the CPU threads were 1 and would be 2 \(OMP_NUM_THREADS=1"):
            launch.resume(run, Quiet())
    finally:
        torch.set_num_threads(1)


def test_an_input_that_changes_while_it_is_read_is_refused(run, monkeypatch):
    load_all = start.prepare

    def prepare(*arguments):
        session = load_all(*arguments)
        path = Path("model/config.json")
        path.write_text(path.read_text() + " ")
        return session

    monkeypatch.setattr(start, "prepare", prepare)
    for begin in (lambda: launch.resume(run, Quiet()), lambda: launch.start(CONFIG, Path("new"), Quiet())):
        with pytest.raises(RunError, match=r"while it was read, policy.path = model, file config.json, was replaced"):
            begin()


def test_other_code_of_the_same_version_is_told(run, monkeypatch, tmp_path):
    (tmp_path / "module.py").write_text("edited = True")
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    told = Quiet()
    launch.resume(run, told).close()
    assert "goes on with other versions (whet's code " in told.told[0]


def test_a_run_without_a_checkpoint_says_that_it_starts_over(run):
    shutil.rmtree(run / "checkpoints")
    (run / "metrics.jsonl").write_text("")
    said = []
    told = Quiet()
    told.tell = lambda level, text: said.append(text)
    launch.resume(run, told).close()
    assert said[0] == "run has no checkpoint yet: the run starts from the beginning"


def test_a_lock_that_is_deleted_still_keeps_others_out(tmp_path):
    first, second = RunFolder(tmp_path), RunFolder(tmp_path)
    first.acquire()
    (tmp_path / ".lock").unlink()
    with pytest.raises(RunError, match="another process is writing"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_a_run_that_cannot_be_deleted_is_still_one(tmp_path, monkeypatch):
    for name in ("config.yaml", "summary.json", "checkpoints/kept"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    folder = RunFolder(tmp_path)
    folder.acquire()
    with pytest.raises(RunError, match="Permission denied"):
        folder.clear()
    folder.release()
    assert (tmp_path / "config.yaml").exists()
    assert not (tmp_path / "summary.json").exists()


def test_changes_that_are_accepted_are_in_the_events_and_asked_for_once(run):
    flip(Path("model/model.safetensors"))
    os.truncate(run / "metrics.jsonl", 9)
    seen = KillAtTheEnd()
    with pytest.raises(Killed):
        launch.resume(run, seen, accept_changes=True).go()
    [message] = events(run, "changes_accepted")  # what exactly is in the event's `which`
    assert "model.safetensors, was replaced" in message
    assert "metrics.jsonl is shorter" in message
    assert message in seen.told
    summary = launch.resume(run, Quiet()).go()
    assert list(summary["rows"]) == ["best", "last"]  # the test before training was in the lines that are gone
    assert len(events(run, "changes_accepted")) == 1


class KillAtTheEnd(KillAt):
    def step(self, step, shown):
        if (self.phase, step) == ("after", 2):
            raise Killed


def test_a_damaged_newest_checkpoint_is_named_with_the_steps_that_are_lost(run):
    broken, older = newest_first(run)
    flip(broken / "optim" / "policy.safetensors")
    seen = Quiet()
    launch.resume(run, seen).go()
    same_bits(Path("unbroken"), run)
    said = (
        f"{broken.name} is damaged: optim/policy.safetensors is not what was written. Going on from {older.name}: "
        "1 step is done again"
    )
    assert events(run, "passed_over") == [said]
    assert seen.told == [said]


def test_logs_of_the_checkpoint_before_are_gone_on_from_there(run):
    older = newest_first(run)[1]
    os.truncate(run / "metrics.jsonl", load_state(older)["logs"]["metrics.jsonl"]["bytes"])
    seen = Quiet()
    launch.resume(run, seen).go()
    same_bits(Path("unbroken"), run)
    assert f"Going on from {older.name}" in seen.told[0]


def test_other_versions_are_a_warning(run):
    rewrite_state(run, lambda state: state["origin"]["versions"].update(torch="2.0"))
    seen = Quiet()
    launch.resume(run, seen).close()
    assert f"torch 2.0 -> {torch.__version__}" in seen.told[0]
    assert len(events(run, "other_versions")) == 1


def test_a_key_that_is_new_since_the_run_began_has_its_default(run):
    rewrite_state(run, lambda state: state["origin"]["settings"]["learning"].pop("max_grad_norm"))
    config = run / "config.yaml"
    config.write_text("".join(row for row in config.read_text().splitlines(True) if "probe_every" not in row))
    launch.resume(run, Quiet()).close()
    rewrite_state(run, lambda state: state["origin"]["settings"]["learning"].update(max_grad_norm=2.0))
    with pytest.raises(RunError, match=r"learning\.max_grad_norm: 2\.0 -> 1\.0"):
        launch.resume(run, Quiet())


@pytest.mark.parametrize("text", ["", "{", "[1]", "\0\0\0", '{"rows": 1}', "[" * 100_000])
def test_a_broken_summary_is_made_again(run, text):
    done = Path("unbroken")
    before = json.loads((done / "summary.json").read_text())
    (done / "summary.json").write_text(text)
    seen = Quiet()
    begun = launch.resume(done, seen)
    assert seen.told == ["summary.json is damaged: it is made again from the last checkpoint"]
    assert begun.go()["rows"] == before["rows"]
    assert json.loads((done / "summary.json").read_text())["rows"] == before["rows"]


def test_a_config_that_cannot_be_read_is_no_other_folder(run):
    (run / "config.yaml").write_bytes(b"\xff\xfe")
    for command in (lambda: launch.resume(run, Quiet()), lambda: launch.start(CONFIG, run, Quiet())):
        with pytest.raises(ValueError, match=r"config file run/config\.yaml is not UTF-8"):
            command()


def test_a_missing_or_torn_file_of_no_consequence_does_not_matter(run):
    (run / "env.json").unlink()
    os.truncate(run / "events.jsonl", (run / "events.jsonl").stat().st_size - 5)
    launch.resume(run, Quiet()).close()
    assert json.loads((run / "env.json").read_text())["seed"] == 3
    lines = (run / "events.jsonl").read_text().splitlines()
    assert json.loads(lines[-2])["event"] == "resumed"  # on a line of its own


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("latest", [None, b"", b"\xff\xfe", b"step_999999", b"../../unbroken", b"step\0"])
def test_latest_is_a_convenience(run, latest):
    pointer = run / "checkpoints" / "latest"
    pointer.unlink()
    if latest is not None:
        pointer.write_bytes(latest)
    assert newest_whole(run) == (newest(run), [])


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda folder: flip(folder / "policies/policy/model.safetensors"), "safetensors is not what was written"),
        (lambda folder: (folder / "rng.safetensors").unlink(), "rng.safetensors is missing"),
        (lambda folder: (folder / "policies/policy/extra.json").write_text("{}"), "extra.json is not in"),
        (lambda folder: (folder / MANIFEST).unlink(), "cannot be read"),
        (lambda folder: (folder / MANIFEST).write_text(""), "cannot be read"),
        (lambda folder: (folder / MANIFEST).write_bytes(b"\xff"), "cannot be read"),
        (lambda folder: (folder / MANIFEST).write_text("[" * 100_000), "cannot be read"),
        (lambda folder: (folder / MANIFEST).write_text("{}"), "is no list of a checkpoint's files"),
        (lambda folder: (folder / MANIFEST).write_text("[1]"), "is no list of a checkpoint's files"),
        (lambda folder: add_to_manifest(folder, "../../config.yaml"), "config.yaml is missing"),
        (lambda folder: add_to_manifest(folder, "/etc/hostname"), "/etc/hostname is missing"),
        (lambda folder: add_to_manifest(folder, "a\0b"), r"'a\x00b' is missing"),
        (lambda folder: (folder / "optim/x.safetensors").symlink_to("policy.safetensors"), "is not in its"),
    ],
)  # fmt: skip
def test_what_is_no_whole_checkpoint(run, harm, says):
    folder = newest(run)
    assert damage(folder) is None
    harm(folder)
    assert says in (damage(folder) or "")


def add_to_manifest(folder: Path, name: str) -> None:
    """With the digest that is there: names that lead out of the checkpoint are not looked at."""
    known = digest(folder / name) if "\0" not in name and (folder / name).exists() else ""
    (folder / MANIFEST).write_text(json.dumps(json.loads((folder / MANIFEST).read_text()) | {name: known}))


def test_every_file_of_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path, random_policy, monkeypatch):
    synced, real, named = set(), os.fsync, []
    monkeypatch.setattr(os, "fsync", lambda number: (synced.add(os.fstat(number).st_ino), real(number)))
    rename = Path.rename

    def watch(self, target):
        named.append({path.stat().st_ino for path in [self, *self.rglob("*")]} - synced)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", watch)
    saved = save_checkpoint(tmp_path, 1, {"policy": trainer_of(random_policy)}, {}, {"step": 1}, Store())
    assert named == [set()]
    assert {saved.parent.stat().st_ino, (saved.parent / "latest").stat().st_ino} <= synced


def test_what_a_kill_left_and_what_was_passed_over_is_cleared_away(tmp_path, random_policy):
    root = tmp_path / "checkpoints"
    (root / ".step_000001.tmp" / "policies").mkdir(parents=True)
    (root / "step_000009").mkdir()
    (root / "notes.txt").write_text("mine")
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, {"policy": trainer_of(random_policy)}, {}, {"step": step}, Store())
    assert sorted(path.name for path in root.iterdir()) == ["latest", "notes.txt", "step_000002", "step_000003"]


def test_a_link_and_a_name_without_a_number_are_no_checkpoints(tmp_path):
    root = tmp_path / "checkpoints"
    for name in ("step_2", "step_10", "step_ten", "mine"):
        (root / name).mkdir(parents=True)
    (root / "step_99").symlink_to("step_2")
    assert [path.name for path in newest_first(tmp_path)] == ["step_10", "step_2"]


# --- logs and files ---------------------------------------------------------------------------------------------------


def test_marks_are_the_length_and_digest_of_what_was_written(tmp_path):
    (tmp_path / "traces").mkdir()
    logs = Logs(tmp_path)
    logs.append("metrics.jsonl", {"step": 1, "text": "é\ud800"})
    logs.append("events.jsonl", {"event": "x"})
    logs.put("answers.jsonl", "é\n")
    assert logs.marks()["answers.jsonl"] == {"bytes": 3, "sha256": hashlib.sha256("é\n".encode()).hexdigest()}
    data = (tmp_path / "metrics.jsonl").read_bytes()
    assert logs.marks()["metrics.jsonl"] == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert "events.jsonl" not in logs.marks()
    logs.append("metrics.jsonl", {"step": 2})
    logs.close()
    again = Logs(tmp_path)  # another process
    again.append("metrics.jsonl", {"step": 3})
    data = (tmp_path / "metrics.jsonl").read_bytes()
    assert again.marks()["metrics.jsonl"]["sha256"] == hashlib.sha256(data).hexdigest()
    assert [row["step"] for row in again.rows("metrics.jsonl")] == [1, 2, 3]


def test_rewinding_never_lengthens_a_file(tmp_path):
    (tmp_path / "traces").mkdir()
    logs = Logs(tmp_path)
    for step in (1, 2, 3):
        logs.append("metrics.jsonl", {"step": step})
        logs.append("traces/a.jsonl", {"step": step})
    marks = logs.marks()
    logs.append("metrics.jsonl", {"step": 4})
    logs.append("traces/b.jsonl", {"step": 4})
    assert logs.misfit(marks) is None
    os.truncate(tmp_path / "traces/a.jsonl", 15)  # in the middle of the second line
    assert logs.misfit(marks) == "traces/a.jsonl is shorter than it was (15 of 36 bytes)"
    logs.rewind(marks)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'
    assert (tmp_path / "traces/a.jsonl").read_text() == '{"step": 1}\n'
    assert not (tmp_path / "traces/b.jsonl").exists()


@pytest.mark.parametrize("name", LOGS)
def test_a_step_that_is_made_again_is_in_each_log_once(name, tmp_path):
    (tmp_path / "traces").mkdir()
    logs = Logs(tmp_path)
    logs.append(name, {"step": 1})
    marks = logs.marks()
    logs.append(name, {"step": 2})  # then the run is killed
    again = Logs(tmp_path)
    again.rewind(marks)
    again.append(name, {"step": 2})
    assert [row["step"] for row in again.rows(name)] == [1, 2]
    again.rewind({})
    assert not (tmp_path / name).exists()


def test_a_log_altered_while_the_run_goes_on_is_a_sentence(tmp_path):
    logs = Logs(tmp_path)
    logs.append("metrics.jsonl", {"step": 1})
    (tmp_path / "metrics.jsonl").write_text("\0" * 12)
    with pytest.raises(RunError, match=r"metrics\.jsonl was altered"):
        logs.rows("metrics.jsonl")


def test_nothing_is_written_through_a_link(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("precious")
    for name in ("summary.json", "metrics.jsonl"):
        (tmp_path / name).symlink_to(outside)
    write_atomic(tmp_path / "summary.json", "{}")
    assert not (tmp_path / "summary.json").is_symlink()
    with pytest.raises(RunError):
        Logs(tmp_path).append("metrics.jsonl", {"step": 1})
    assert outside.read_text() == "precious"


def test_of_two_writers_of_one_file_neither_fails_and_the_last_text_is_whole(tmp_path, monkeypatch):
    place, sync, texts = tmp_path / "summary.json", os.fsync, ["{}"]

    def sync_late(number):
        if texts:  # another process writes the same file in the middle
            write_atomic(place, texts.pop())
        sync(number)

    monkeypatch.setattr(os, "fsync", sync_late)
    write_atomic(place, "x" * 9)
    assert place.read_text() == "x" * 9
    assert os.listdir(tmp_path) == ["summary.json"]


def test_a_file_that_cannot_be_put_in_place_leaves_nothing_aside(tmp_path):
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(RunError, match=r"could not write .*summary\.json"):
        write_atomic(tmp_path / "summary.json", "{}")
    assert os.listdir(tmp_path) == ["summary.json"]


def test_a_folder_that_is_a_link_can_be_a_run(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    folder = RunFolder(tmp_path / "link")
    folder.acquire()
    with pytest.raises(RunError, match="another process"):
        RunFolder(tmp_path / "real").acquire()
    folder.release()


# --- what is compared -------------------------------------------------------------------------------------------------


def test_the_origin_of_a_run_has_every_file_that_it_reads(tmp_path, random_model):
    (tmp_path / "data.jsonl").write_text('{"question": "1?", "answer": "1"}\n')
    settings = ["data.kind=file", f"data.path={tmp_path / 'data.jsonl'}", "prompts=english", "num_threads=7"]
    config = config_of("ppo", *settings, f"policy.path={random_model}", f"value.path={random_model}")
    found = provenance.compute_provenance(config)
    assert found["num_threads"] == 7
    assert found["inputs"][f"data.path = {tmp_path / 'data.jsonl'}"] == digest(tmp_path / "data.jsonl")
    for setting in ("policy.path", "value.path"):
        names = {name.split(", file ")[1].rstrip(",") for name in found["inputs"] if name.startswith(setting)}
        assert {"model.safetensors", "config.json", "tokenizer.json"} <= names


def test_a_hub_id_is_the_files_of_its_snapshot_in_the_cache(tmp_path, monkeypatch):
    snapshot = tmp_path / "models--some--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--some--model" / "refs").mkdir()
    (tmp_path / "models--some--model" / "refs" / "main").write_text("abc")
    (snapshot / "config.json").write_text("{}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(tmp_path), raising=False)
    config = config_of("grpo", "policy.path=some/model")
    assert provenance.compute_provenance(config)["inputs"] == {
        "policy.path = some/model, file config.json,": digest(snapshot / "config.json")
    }
