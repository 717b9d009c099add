"""Runs on a user's own files: what is trained on, what is measured, what is said, kept and refused."""

import json

import huggingface_hub
import pytest

from support.commands import Quiet, config_of
from support.files import CHAINS, chain_rows, write_jsonl, write_parquet
from whet.config import ConfigError, check_all_read, describe, load
from whet.methods.evaluator import EvalSettings
from whet.run.data import load_tasks
from whet.run.evaluate import evaluate, target_of
from whet.run.launch import saved_config, start
from whet.run.provenance import changed_inputs, compute_provenance
from whet.run.session import prepare
from whet.run_folder.folder import RunFolder
from whet.tasks.row_formats import DataError

SHORT = ("num_steps=1", "prompts_per_step=2", "group_size=2", "evaluation.num_samples=0", "num_threads=1")
COMMIT, LATER = "a" * 40, "b" * 40


class Listening(Quiet):
    def __init__(self):
        self.told = []

    def tell(self, level, text):
        self.told.append((level, text))


@pytest.fixture
def files(tmp_path):
    """60 problems to train on, of which 3 are among the 20 of the test."""
    rows = chain_rows(77)
    return {
        "train": write_jsonl(tmp_path / "train.jsonl", rows[:60]),
        "test": write_parquet(tmp_path / "test.parquet", rows[57:]),
    }


def settings_of(files):
    return [*CHAINS, *(f"data.{split}_path={file}" for split, file in files.items())]


def measured(target, *settings, split="test"):
    """What `whet eval` was told, and the metrics by row."""
    config, run = target_of(str(target), None, settings)
    asked = EvalSettings(split=split, changed=tuple(settings) if run is not None else ())
    listening = Listening()
    found, _ = evaluate(config, run, asked, listening)
    return listening.told, found


def test_a_run_on_two_files(tmp_path, files):
    told, run = Listening(), tmp_path / "run"
    config = config_of("grpo", *settings_of(files), *SHORT)
    summary = start(config, run, told).go()
    assert summary["rows"]["last"]["n"] == 20
    [said] = [text for level, text in told.told if level == "warning" and text.startswith("data: ")]
    assert "3 of the " in said
    assert (
        "questions of train.jsonl for training are among those of test.parquet for the test, and were dropped" in said
    )
    events = (run / "events.jsonl").read_text()
    assert "among those of test.parquet for the test" in events

    before = compute_provenance(config)
    assert {f"data.train_path = {files['train']}", f"data.test_path = {files['test']}"} <= before["inputs"].keys()
    told, found = measured(run)
    assert told == [("info", "measured: 20 problems, all of test.parquet (20 plain rows (question, answer))")]
    assert found["last"]["n"] == 20
    assert found["last"]["acc"] == summary["rows"]["last"]["acc"]

    other = write_jsonl(tmp_path / "other.jsonl", [*chain_rows(5), *chain_rows(30, seed=2)])
    told, found = measured(run, f"data.test_path={other}")
    assert found["last"]["n"] == 35
    num_known = len({row["question"] for row in chain_rows(5)} & _trained_on(run))
    assert told[1] == ("warning", f"the run was trained on {num_known} of these 35 problems")
    [record] = [json.loads(file.read_text()) for file in (run / "eval").glob("last-*n35*.json")]
    assert record["data"] == told[0][1]
    with pytest.raises(DataError, match=r"data\.path would have no effect"):
        measured(run, f"data.path={other}")

    write_parquet(files["test"], chain_rows(9, seed=3))
    assert changed_inputs(before, compute_provenance(config)) == [
        f"data.test_path = {files['test']} was replaced since the run began"
    ]


def test_files_and_folders_of_environments_are_inputs_too(tmp_path):
    words, recipes = tmp_path / "words.txt", tmp_path / "recipes"
    words.write_text("crane\n")
    (recipes / "deep").mkdir(parents=True)
    (recipes / "deep" / "stick.json").write_text("{}")
    settings = f"data.settings={{wordle: {{words: {words}}}, textcraft: {{recipes: {recipes}, max_distractors: 1}}}}"
    config = config_of("agent", "data.env=wordle,textcraft", settings)
    before = compute_provenance(config)
    assert changed_inputs(before, compute_provenance(config)) == []
    words.write_text("slate\n")
    (recipes / "deep" / "stick.json").rename(recipes / "deep" / "plank.json")
    assert changed_inputs(before, compute_provenance(config)) == [
        f"data.settings.textcraft.recipes = {recipes} was replaced since the run began",
        f"data.settings.wordle.words = {words} was replaced since the run began",
    ]


def test_a_file_at_home_is_an_input(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_jsonl(tmp_path / "mine.jsonl", chain_rows(4))
    config = config_of("grpo", *CHAINS, "data.path=~/mine.jsonl")
    assert "data.path = ~/mine.jsonl" in compute_provenance(config)["inputs"]


def test_files_of_a_remote_environment_are_its_servers(tmp_path):
    (tmp_path / "words.txt").write_text("crane\n")
    settings = f"data.settings={{wordle: {{words: {tmp_path / 'words.txt'}}}}}"
    config = config_of("agent", "data.env={wordle: {url: 'http://127.0.0.1:1'}}", settings)
    assert not [name for name in compute_provenance(config)["inputs"] if "wordle" in name]


def _trained_on(run):
    return {task.prompt for task in load_tasks(saved_config(run).data).tasks["train"]}


@pytest.mark.parametrize("method", ["grpo", "critique_rl"])
@pytest.mark.parametrize("key", ["path", "test_path"])
def test_a_method_is_measured_on_all_of_a_file(files, method, key):
    """Which has no solutions to warm up with, and too few problems to train on."""
    settings = (*CHAINS, f"data.{key}={files['test']}", "num_threads=1")
    told, found = measured(method, *settings)
    assert told == [("info", "measured: 20 problems, all of test.parquet (20 plain rows (question, answer))")]
    assert {row["n"] for row in found.values()} == {20}
    told, found = measured(method, *settings, "evaluation.num_test=7")
    assert "measured: the first 7 (evaluation.num_test) of 20 problems, all of test.parquet" in told[0][1]
    assert {row["n"] for row in found.values()} == {7}


def test_training_without_training_problems_says_what_is_missing(tmp_path, files):
    config = config_of("grpo", *CHAINS, f"data.test_path={files['test']}")
    with pytest.raises(DataError, match=r"give data\.train_path, or data\.path"):
        prepare(config, Quiet(), RunFolder(tmp_path))


def trained_on_in_turn(files, folder, *settings):
    """The questions of a run's first steps, once round the training file."""
    session = prepare(config_of("grpo", *settings_of(files), *SHORT, *settings), Quiet(), RunFolder(folder))
    run = session.algorithm.run
    assert [len(tasks) for tasks in run.tasks.values()] == [54, 6, 20]
    num_steps = len(run.tasks["train"]) // 2
    return [task.prompt for step in range(1, num_steps + 1) for task in run.next_tasks(step, 2)]


def test_the_runs_seed_draws_the_order_of_the_training_questions(tmp_path, files):
    files = {"train": files["train"], "test": write_jsonl(tmp_path / "t.jsonl", chain_rows(20, seed=4))}
    in_file = trained_on_in_turn(files, tmp_path, "data.shuffle=false")
    rows = [row["question"] for row in chain_rows(77)[:60]]
    assert in_file == [question for question in rows if question in in_file]
    assert in_file == trained_on_in_turn(files, tmp_path, "data.shuffle=false", "seed=8")
    first, again = (trained_on_in_turn(files, tmp_path, "seed=7") for _ in range(2))
    other = trained_on_in_turn(files, tmp_path, "seed=8")
    assert first == again
    assert len({tuple(order) for order in (in_file, first, other)}) == 3
    assert sorted(first) == sorted(other) == sorted(in_file)


@pytest.mark.parametrize(
    ("more", "key"),
    [
        (["data.test_share=0.2"], "data.test_share"),
        (["data.revision=main"], "data.revision"),
        (["data.splits.train=all"], "data.splits.train"),
        (["data.validation_path={test}", "data.validation_share=0.3"], "data.validation_share"),
        (["data.path={train}", "data.validation_share=0.3", "data.validation_path={other}"], "data.path"),
    ],
)
def test_settings_without_effect_are_refused(tmp_path, files, more, key):
    other = write_jsonl(tmp_path / "other.jsonl", chain_rows(9, seed=5))
    files = files | {"test": write_jsonl(tmp_path / "t.jsonl", chain_rows(20, seed=4))}
    given = [each.format(other=other, train=files["train"], test=other) for each in more]
    config = config_of("grpo", *settings_of(files), *SHORT, *given)
    prepare(config, Quiet(), RunFolder(tmp_path))
    with pytest.raises(ConfigError, match=f"{key}.* has no effect"):
        check_all_read(config)


def test_a_printed_config_is_no_list_of_settings_without_effect(tmp_path, files):
    other = write_jsonl(tmp_path / "other.jsonl", chain_rows(9, seed=5))
    config = config_of("grpo", *settings_of(files), f"data.validation_path={other}", *SHORT)
    (tmp_path / "printed.yaml").write_text(describe(config))
    again = load(type(config), tmp_path / "printed.yaml", base=config_of("grpo"))
    prepare(again, Quiet(), RunFolder(tmp_path))
    check_all_read(again)


def test_a_run_keeps_the_commit_of_its_set(tmp_path, monkeypatch):
    """And goes on with it, by resume and by the same command, when the hub has a newer one."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    cache = tmp_path / "datasets--me--chains"
    for commit in (COMMIT, LATER):
        write_parquet(cache / "snapshots" / commit / "train.parquet", chain_rows(60))
        write_parquet(cache / "snapshots" / commit / "test.parquet", chain_rows(9, seed=2))
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(COMMIT)
    config = config_of("grpo", *CHAINS, "data.hub=me/chains", *SHORT)
    start(config, tmp_path / "run", Quiet()).go()
    assert saved_config(tmp_path / "run").data.revision == COMMIT
    (cache / "refs" / "main").write_text(LATER)
    assert start(config, tmp_path / "run", Quiet())["rows"]["last"]["n"] == 9
    told, _ = measured(tmp_path / "run")
    assert f"all of split test of me/chains at {COMMIT[:12]}" in told[0][1]


def test_a_folder_of_a_set_is_among_the_inputs(tmp_path):
    write_parquet(tmp_path / "set" / "data" / "train.parquet", chain_rows(60))
    config = config_of("grpo", *CHAINS, f"data.hub={tmp_path / 'set'}", *SHORT)
    before = compute_provenance(config)
    write_parquet(tmp_path / "set" / "data" / "train.parquet", chain_rows(50))
    [said] = changed_inputs(before, compute_provenance(config))
    assert said == f"data.hub = {tmp_path / 'set'}, file data/train.parquet, was replaced since the run began"
