"""`whet doctor`: planted faults are found that `whet train --dry-run` lets pass, and a sound run has none."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, normalizers
from typer.testing import CliRunner

from whet.checks import rows
from whet.checks.machine import usable_cores
from whet.cli import app
from whet.models.stand_in import save_stand_in
from whet.types import Task

PLUGIN = Path(__file__).parents[1] / "plugins" / "faulty_rewards.py"
Row = dict[str, str]
Setup = Callable[[Path], list[str]]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


def command(*args: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(arg) for arg in args])
    return done.exit_code, " ".join(done.output.split())


# --- what is planted --------------------------------------------------------------------------------------------------


def sums(first: int, count: int) -> list[Row]:
    return [
        {"question": f"Tom has {n} red and {3 * n} blue marbles. How many are there?", "answer": str(4 * n)}
        for n in range(first, first + count)
    ]


def written(folder: Path, name: str, rows: list[Row]) -> Path:
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def model(folder: Path, **changes: Any) -> Path:
    """A random model that reads such rows, with changes of its tokenizer_config.json."""
    place = folder / "model"
    save_stand_in([row["question"] for row in sums(0, 60)], place)
    file = place / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    if (place / "chat_template.jinja").exists() and "chat_template" in changes:
        (place / "chat_template.jinja").write_text(changes["chat_template"])
    return place


def settings(folder: Path, train: list[Row], test: list[Row], **changes: Any) -> list[str]:
    given = {
        "policy.path": folder / "model",
        "prompts": "english",
        "data.kind": "file",
        "data.train_path": written(folder, "train.jsonl", train),
        "data.test_path": written(folder, "test.jsonl", test),
        "num_threads": 1,
        "num_steps": 2,
        "prompts_per_step": 4,
        "group_size": 4,
        "sampling.max_new_tokens": 24,
        **changes,
    }
    return ["grpo", *(f"{key}={value}" for key, value in given.items())]


def bad_rows(folder: Path) -> list[str]:
    model(folder)
    train = sums(10, 40)
    train[0]["question"] += " (answer: 40)"
    train[1]["question"] = train[1]["question"].replace("Tom", "Tomâ€™s sister")
    train[2]["question"] += " {question}"
    train[3]["question"] = f"<|im_start|>user\n{train[3]['question']}<|im_end|>"
    train[4]["question"] = " ".join(f"Tom has {n} red marbles." for n in range(300, 800)) + " How many are there?"
    for row in train[5:11]:
        row["answer"] = "it may be a few or rather many, who knows"
    copies = [{**row, "question": row["question"].replace("are there", "are there now")} for row in train[20:28]]
    return settings(folder, train, copies)


def one_sided(folder: Path) -> list[str]:
    model(folder)
    train = [
        {"question": row["question"].replace("How many are there?", "Are some red?"), "answer": "yes"}
        for row in sums(10, 40)
    ]
    return settings(folder, train, sums(100, 60))


def bad_settings(folder: Path) -> list[str]:
    model(folder)
    worked = [
        {
            **row,
            "answer": f"Tom has red and blue marbles, so we add the red ones to the blue ones.\n#### {row['answer']}",
        }
        for row in sums(10, 20)
    ]
    changes = {
        "num_threads": usable_cores() + 1,
        "num_steps": 200,
        "checkpoint_every": 0,
        "sampling.temperature": 0.05,
        "sampling.max_new_tokens": 8,
    }
    return settings(folder, worked, sums(100, 60), **changes)


def bad_rewards(folder: Path) -> list[str]:
    model(folder)
    terms = {"rewards": "{doctor_brief: 50, doctor_broken: 1, doctor_same: 1}", "data.grader": "doctor_tagged"}
    return [*settings(folder, sums(10, 20), sums(100, 60), **terms), f"plugins=[{PLUGIN}]"]


def bad_references(folder: Path) -> list[str]:
    model(folder)
    train = sums(10, 40)
    for row in train[20:]:
        row["answer"] = f"1,{row['answer']:0>3}"
    return [*settings(folder, train, sums(100, 60), **{"data.grader": "doctor_floats"}), f"plugins=[{PLUGIN}]"]


def flat_reward(folder: Path) -> list[str]:
    model(folder)
    return [*settings(folder, sums(10, 20), sums(100, 60), **{"data.grader": "doctor_flat"}), f"plugins=[{PLUGIN}]"]


def bad_template(folder: Path) -> list[str]:
    template = (
        "Today is {{ strftime_now('%d %B %Y') }}. {% for m in messages %}<|im_start|>{{ m['role'] }}\n"
        "{{ m['content'][:150] }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<|im_end|>"
        "{% endif %}"
    )
    model(folder, chat_template=template)
    long = [{**row, "question": f"{'Read this with care. ' * 10}{row['question']}"} for row in sums(10, 20)]
    return settings(folder, long, sums(100, 60))


def bad_tokenizer(folder: Path) -> list[str]:
    place = model(folder)
    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.save(str(place / "tokenizer.json"))
    rows = [{"question": f"汤姆有{n}个红色的弹珠和很多蓝色的弹珠一共有多少个", "answer": str(n)} for n in range(10, 30)]
    return settings(folder, [*rows, *sums(10, 4)], sums(100, 60))


FAULTS: dict[Setup, dict[str, str]] = {
    bad_rows: {
        "copies of training questions in the test": "8 of 8 test questions are near copies",
        "a question that says its answer": "training questions say their answer",
        "a file read in a wrong encoding": "characters of a wrong decoding",
        "a placeholder left": "a placeholder that nothing filled",
        "a chat template applied before": "control tokens as text",
        "a test of eight": "the test has 8 questions",
        "references that are sentences": "references are sentences",
        "one prompt that is far too long": "it alone sets the memory of a step",
    },
    one_sided: {
        "one answer": "so a constant wins",
        "a test of another kind": "the test asks for what training never rewards",
    },
    bad_settings: {
        "solutions that do not fit": "of the worked solutions have more tokens",
        "more threads than cores": "which slows every step",
        "a temperature near 0": "so that there is nothing to compare",
        "no checkpoint in 200 steps": "so a kill loses them all",
        "forty passes": "learns them by heart",
    },
    bad_rewards: {
        "a form that no prompt asks for": "the prompts never ask for that",
        "a slow grader": "grading takes",
        "a weight that outweighs the answer": "'doctor_brief' with weight 50 gives a short wrong reply",
        "a term that breaks on an empty reply": "'doctor_broken' raised ZeroDivisionError",
        "a term that is the same for all": "'doctor_same' is 1 for every sample reply",
    },
    bad_references: {"references that the grader refuses": "references against themselves"},
    flat_reward: {"a grader that tells nothing apart": "scores no right answer above a wrong one"},
    bad_template: {
        "a template that cuts questions": "cuts or rewrites",
        "a template with today's date": "writes today's date",
        "a prompt that ends by the end token": "its end token, so that the model has nothing to go on with",
        "replies that never end": "ran into max_new_tokens",
        "groups without signal": "has replies of different reward",
    },
    bad_tokenizer: {
        "a tokenizer that lower-cases": "changes upper and lower case",
        "a script that is spelt in bytes": "it does not know their script",
    },
}
"""By set-up: what is planted, and words of the finding."""


@cache
def examined(setup: Setup, folder: Path) -> tuple[int, str, str]:
    """Exit code and output of the doctor, and what a dry run says. Nothing is left behind."""
    args = setup(folder)
    before = sorted(folder.rglob("*"))
    here = sorted(os.listdir())
    dry_code, dry = command("train", *args, "--dry-run")
    assert dry_code == 0, dry  # the existing checks let it pass
    code, said = command("doctor", *args)
    assert sorted(folder.rglob("*")) == before
    assert sorted(os.listdir()) == here
    return code, said, dry


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Setup, Path]:
    return {setup: tmp_path_factory.mktemp(setup.__name__) for setup in FAULTS}


@pytest.mark.parametrize(("setup", "fault"), [(setup, fault) for setup, faults in FAULTS.items() for fault in faults])
def test_a_planted_fault_is_found(setup, fault, folders):
    code, said, dry = examined(setup, folders[setup])
    words = FAULTS[setup][fault]
    assert words in said
    assert words not in dry
    assert code == 1
    assert "to mend before a run" in said


def test_answers_that_a_model_can_never_write(random_model, tmp_path):
    rows = [{"question": f"{n} + 3 - 1", "answer": f"é{n}"} for n in range(10, 60)]
    args = settings(tmp_path, rows, rows, prompts=PLUGIN.with_name("tiny_words.yaml"), **{"policy.path": random_model})
    args = [arg for arg in args if not arg.startswith("data.test_path")]
    code, said = command("doctor", *args)
    assert code == 1
    assert "has no tokens for" in said


CHOICE = """
import re

import whet


@whet.grader("doctor_choice")
def doctor_choice(completion, answer):
    said = re.findall(r"^Choice: \\((.+)\\)$", completion, re.MULTILINE)
    return float(said == [answer])
"""


@pytest.mark.integration
def test_a_grader_that_reads_a_form_of_its_own_passes_with_that_form(tmp_path):
    model(tmp_path)
    file = tmp_path / "doctor_choice.py"
    file.write_text(CHOICE)
    train, test = sums(10, 20), sums(100, 60)
    args = ["doctor", *settings(tmp_path, train, test, **{"data.grader": "doctor_choice"}), "--plugins", file]
    fault = "scores no right answer above a wrong one, in any of 8 forms such as 'The answer is"
    said = command(*args)[1]
    assert fault in said
    assert "--golden 'TEXT {answer}'" in said
    said = command(*args, "--golden", "Choice: ({answer})")[1]
    assert "scores no right answer" not in said
    assert "--golden has no {answer}" in command(*args, "--golden", "Choice")[1]


@pytest.mark.integration
def test_a_grader_that_hangs_does_not_hang_the_doctor(tmp_path):
    model(tmp_path)
    hanging = {"data.grader": "doctor_hangs", "data.timeout_s": 0.5}
    begun = time.monotonic()
    code, said = command("doctor", *settings(tmp_path, sums(10, 20), sums(100, 60), **hanging), "--plugins", PLUGIN)
    assert code == 1
    assert "it gives no score: the grader 'doctor_hangs' (hangs) timed out after 0.5 s" in said
    assert "no step is measured" in said
    assert time.monotonic() - begun < 60


def test_a_term_for_critiques_is_not_tried_on_answers(small_run):
    _, said = command("doctor", "critique_rl", *small_run, "rewards={doctor_broken: 1}", f"plugins=[{PLUGIN}]")
    assert "sample replies" not in said


def test_a_sound_run_of_the_tiny_world_has_nothing_to_mend():
    code, said = command("doctor", "grpo", "num_threads=1", "num_steps=3")
    assert code == 0, said
    assert "nothing to mend, 0 to look at" in said
    assert "memory on cpu" in said
    assert "an estimate: 3 steps from one measured step" in said


def test_every_phase_is_measured(small_run, monkeypatch):
    monkeypatch.setattr("whet.checks.steps.MOST_S", 600.0)  # however busy the machine is
    code, said = command("doctor", "critique_rl", *small_run)
    assert "stage2" in said.partition("an estimate")[2]
    assert code == 1  # a random model


def test_the_machine_alone():
    code, said = command("doctor")
    assert code == 0
    assert "versions" in said
    assert "GiB free on disk" in said


def test_what_a_start_refuses_is_a_finding_too(tmp_path):
    code, said = command("doctor", "grpo", f"policy.path={tmp_path}")
    assert code == 1
    assert "fail settings" in said
    code, said = command("doctor", "grpo", "no_such_key=1")
    assert code == 2
    assert "whet:" in said


# --- near copies ------------------------------------------------------------------------------------------------------


def random_questions(count: int, words: Sequence[str], seed: int) -> list[Task]:
    random = Random(seed)
    texts = (" ".join(random.choices(words, k=random.randint(1, 14))) for _ in range(count))
    return [Task(id=str(number), prompt=text + random.choice(["", " 7"])) for number, text in enumerate(texts)]


@pytest.mark.parametrize("num_words", [6, 12, 40])
def test_near_copies_are_those_that_comparing_all_pairs_finds(num_words):
    words = [chr(97 + number // 26) + chr(97 + number % 26) for number in range(num_words)]
    train, test = random_questions(150, words, 1), random_questions(80, words, 2)
    copies = [
        task
        for task in test
        if any(rows._numbers(task) == rows._numbers(other) and rows._alike(rows._words(task), rows._words(other))
               for other in train)
    ]  # fmt: skip
    said = [finding.text for finding in rows._copies(train, test)]
    assert [int(text.split()[0]) for text in said] == [len(copies)] * bool(copies)


def test_questions_without_numbers_are_not_compared_with_one_another_all(monkeypatch):
    compared = []
    monkeypatch.setattr(rows, "_alike", lambda one, two: compared.append(one) is not None)
    words = [f"{first}{second}{third}" for first in "abcdefghij" for second in "klmnopqrst" for third in "uvwxyzuvwx"]
    list(rows._copies(random_questions(2000, words, 1), random_questions(200, words, 2)))
    assert len(compared) < 2000 * 200 / 20
