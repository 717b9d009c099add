"""Every way to give files for the splits, and the law of all of them: no question of the test is trained on."""

import random
from itertools import product

import pytest
from pydantic import ValidationError

from support.files import sums, write_jsonl
from support.idle import idle_keys
from whet.config.parts import SPLITS, FileData
from whet.tasks.row_formats import DataError
from whet.tasks.sources import load_files, load_measured
from whet.tasks.splits import num_shared

SEED = 7


def loaded(**settings):
    return load_files(FileData(**settings), SEED)


def sizes(problems):
    return tuple(len(problems.tasks[split]) for split in SPLITS)


def prompts(problems, split):
    return {task.prompt for task in problems.tasks[split]}


@pytest.fixture
def files(tmp_path):
    """By name: rest and train of 200 questions, test and validation of 40; none is in two of them."""
    numbers = {"rest": range(200), "train": range(200, 400), "validation": range(400, 440), "test": range(440, 480)}
    return {name: str(write_jsonl(tmp_path / f"{name}.jsonl", sums(each))) for name, each in numbers.items()}


def test_path_alone_is_divided_and_so_is_train_alone(files):
    by_path, by_train = loaded(path=files["rest"]), loaded(train_path=files["rest"])
    assert sum(sizes(by_path)) == 200
    assert all(sizes(by_path))
    assert [prompts(by_path, split) for split in SPLITS] == [prompts(by_train, split) for split in SPLITS]
    assert by_path.sentence == (
        "200 plain rows (question, answer) in rest.jsonl; train: the rest of rest.jsonl; validation: 10 % of "
        "rest.jsonl by a hash of the question; test: 10 % of rest.jsonl by a hash of the question"
    )


@pytest.mark.parametrize("name", ["path", "train_path"])
def test_a_test_file_is_whole_and_validation_comes_from_training(files, name):
    found = loaded(**{name: files["train"], "test_path": files["test"]})
    assert len(found.tasks["test"]) == 40
    assert sum(sizes(found)) == 240
    assert found.parts == {
        "train": "the rest of train.jsonl",
        "validation": "10 % of train.jsonl by a hash of the question",
        "test": "all of test.jsonl",
    }


def test_three_files_are_whole(files):
    own = {f"{split}_path": files[split] for split in SPLITS}
    found = loaded(**own)
    assert sizes(found) == (200, 40, 40)
    assert set(found.parts.values()) == {"all of train.jsonl", "all of validation.jsonl", "all of test.jsonl"}
    assert {"path", "validation_share", "test_share"} <= idle_keys(FileData(**own, path=files["rest"])).keys()


def test_path_serves_what_has_no_file_and_nothing_of_it_is_left_over(files):
    both = loaded(path=files["rest"], train_path=files["train"])
    assert sizes(both)[0] == 200
    assert sum(sizes(both)) == 400
    assert both.parts["test"] == "50 % of rest.jsonl by a hash of the question"
    uneven = loaded(path=files["rest"], train_path=files["train"], validation_share=0.1, test_share=0.3)
    assert uneven.parts["validation"] == "25 % of rest.jsonl by a hash of the question"
    one = {"path": files["rest"], "train_path": files["train"], "test_path": files["test"]}
    assert loaded(**one).parts["validation"] == "all of rest.jsonl"
    assert {"validation_share", "test_share"} <= idle_keys(FileData(**one)).keys()
    some = loaded(path=files["rest"], validation_path=files["validation"])
    assert prompts(some, "test") == prompts(loaded(path=files["rest"]), "test")


def test_without_training_problems_there_is_only_measuring(files):
    with pytest.raises(DataError, match=r"no problems to train on: give data\.train_path, or data\.path"):
        loaded(test_path=files["test"])
    with pytest.raises(DataError, match="no problems to train on"):
        loaded(validation_path=files["validation"], test_path=files["test"])
    measured = load_measured(FileData(test_path=files["test"]), "test", SEED, None)
    assert sizes(measured) == (0, 0, 40)
    assert measured.parts == {"test": "all of test.jsonl"}


@pytest.mark.parametrize("settings", [{}, {"path": "a", "hub": "b"}])
def test_questions_are_somewhere_and_in_one_place(settings):
    with pytest.raises(ValidationError, match="give"):
        FileData(**settings)


def test_idle_settings():
    def idle(**settings):
        return {key.removesuffix("_share") for key in idle_keys(FileData(**settings)) if key.endswith("_share")}

    assert idle(path="a") == idle(train_path="a") == idle(path="a", train_path="b") == idle(hub="a") == set()
    assert idle(path="a", test_path="b") == {"test"}
    assert idle(path="a", validation_path="b") == {"validation"}
    assert idle(hub="a", splits={"validation": "dev"}) == {"validation"}
    assert idle(train_path="a", validation_path="b", test_path="c") == {"validation", "test"}
    assert {"revision", "subset", "splits"} <= idle_keys(FileData(path="a")).keys()
    assert idle_keys(FileData(hub="a", test_path="b")).keys() == {"test_share", "splits.test"}


def test_a_question_of_two_files_is_dropped_where_it_trains(tmp_path):
    """Whatever its case, spacing and punctuation; but another operator makes another question."""
    test = write_jsonl(tmp_path / "test.jsonl", [*sums(range(10)), {"question": "What is 50 - 50?", "answer": 0}])
    said_otherwise = [{"question": f"what is {n}+{n}", "answer": 2 * n} for n in range(4)]
    train = write_jsonl(tmp_path / "train.jsonl", [*said_otherwise, *sums(range(20, 60))])
    found = loaded(train_path=str(train), validation_path=str(write_jsonl(tmp_path / "v.jsonl", sums(range(8, 22)))),
                   test_path=str(test))  # fmt: skip
    assert sizes(found) == (38, 12, 11)
    assert "What is 50 + 50?" in prompts(found, "train")
    assert found.leaks == (
        "2 of the 14 questions of v.jsonl for validation are among those of test.jsonl for the test, and were dropped",
        "4 of the 44 questions of train.jsonl for training are among those of test.jsonl for the test, and were "
        "dropped",
        "2 of the 40 questions of train.jsonl for training are among those of v.jsonl for validation, and were dropped",
    )
    with pytest.raises(DataError, match=r"all 11 questions for validation .* are among those of"):
        loaded(train_path=str(train), validation_path=str(test), test_path=str(test))


def test_no_question_of_the_test_is_trained_on_however_the_files_are_given(tmp_path):
    rng = random.Random(0)
    names = ("path", *(f"{split}_path" for split in SPLITS))
    num_leaks = 0
    for given in product([False, True], repeat=4):
        chosen = [name for name, is_given in zip(names, given, strict=True) if is_given]
        numbers = {name: rng.sample(range(300), 120) for name in chosen}
        paths = {n: str(write_jsonl(tmp_path / f"{n}.jsonl", sums(each))) for n, each in numbers.items()}
        if not {"path", "train_path"} & paths.keys():
            continue
        limit = rng.choice([None, 60])
        found = loaded(**paths, limit=limit)
        num_leaks += len(found.leaks)
        for split, others in (("train", ("validation", "test")), ("validation", ("test",))):
            for other in others:
                assert not prompts(found, split) & prompts(found, other)
        if "test_path" in paths:  # all of the file, also what the limit leaves out
            whole = {row["question"] for row in sums(numbers["test_path"])}
            assert not (prompts(found, "train") | prompts(found, "validation")) & whole
            assert len(found.tasks["test"]) == (limit or 120)
        ids = [task.id for tasks in found.tasks.values() for task in tasks]
        assert len(ids) == len(set(ids))
    assert num_leaks > 10


def test_rows_that_are_numbered_from_0_in_every_file_are_told_apart(tmp_path):
    """Greedy answers are kept by a task's id."""
    rows = {"train": range(100, 140), "test": range(40)}
    paths = {
        f"{split}_path": str(write_jsonl(tmp_path / split, [r | {"idx": i} for i, r in enumerate(sums(numbers))]))
        for split, numbers in rows.items()
    }
    found = loaded(**paths)
    assert found.tasks["test"][0].id == "test/0"
    assert not {t.id for t in found.tasks["test"]} & {t.id for t in (*found.tasks["train"], *found.tasks["validation"])}


def test_files_of_one_name_are_called_by_their_paths(tmp_path):
    for folder, numbers in (("a", range(40)), ("b", range(40, 60))):
        (tmp_path / folder).mkdir()
        write_jsonl(tmp_path / folder / "data.jsonl", sums(numbers))
    found = loaded(path=str(tmp_path / "a" / "data.jsonl"), test_path=str(tmp_path / "b" / "data.jsonl"))
    assert found.parts["test"] == f"all of {tmp_path / 'b' / 'data.jsonl'}"
    assert found.parts["train"] == f"the rest of {tmp_path / 'a' / 'data.jsonl'}"


def test_a_limit_is_of_each_file_and_said(files):
    found = loaded(train_path=files["train"], test_path=files["test"], limit=30)
    assert sum(sizes(found)) == 60
    assert found.parts["test"] == "the first 30 of test.jsonl"
    assert found.parts["train"] == "the rest of the first 30 of train.jsonl"


def test_what_is_measured(files):
    def measured(split="test", changed=None, **settings):
        found = load_measured(FileData(**settings), split, SEED, changed)
        assert [s for s in SPLITS if found.tasks[s]] == [split]
        return found.parts[split], len(found.tasks[split])

    rest, test = {"path": files["rest"]}, {"test_path": files["test"]}
    share = len(loaded(**rest).tasks["test"])
    # Of a method by name: all of the file. Of a run: its own test problems, or all of a file given to be measured.
    assert measured(**rest) == measured(**rest, changed=["data.path"]) == ("all of rest.jsonl", 200)
    assert measured(**rest, changed=[]) == ("10 % of rest.jsonl by a hash of the question", share)
    assert measured(**rest, **test, changed=[]) == ("all of test.jsonl", 40)
    assert measured(path="gone.jsonl", **test, changed=["data.test_path"]) == ("all of test.jsonl", 40)
    assert measured(split="validation", **rest)[0] == "10 % of rest.jsonl by a hash of the question"
    assert measured(split="validation", validation_path=files["validation"]) == ("all of validation.jsonl", 40)
    assert measured(**rest, limit=5) == ("the first 5 of rest.jsonl", 5)
    with pytest.raises(DataError, match=r"data\.path would have no effect"):
        load_measured(FileData(**rest, **test), "test", SEED, ["data.path"])


def test_the_official_test_of_gsm8k_is_measured_whole(data_folder):
    train, test = (str(data_folder / "gsm8k" / f"{name}.jsonl") for name in ("train", "test"))
    measured = load_measured(FileData(path=test), "test", SEED, None)
    assert len(measured.tasks["test"]) == 1319
    found = loaded(train_path=train, test_path=test)
    assert len(found.tasks["test"]) == 1319
    assert len(found.tasks["train"]) + len(found.tasks["validation"]) == 7473  # none of them is in the test
    assert found.leaks == ()
    assert num_shared(found.tasks["train"], found.tasks["test"]) == 0
    taken = loaded(path=test, test_path=str(data_folder / "realcritic" / "gsm8k" / "test.jsonl"))
    assert sum(len(found) for found in taken.tasks.values()) == 1319  # all of RealCritic's are GSM8K's test questions
    assert len(taken.tasks["test"]) == 273
