"""`whet reward test`: planted holes are found, sound rewards pass, and what cannot be tested is one sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from whet.checks.attacks import NO_SCORE
from whet.checks.reward_test import RewardReport, check_reward
from whet.checks.samples import built_in_tasks, tasks_of_file
from whet.checks.scorers import scorer_of
from whet.cli import app
from whet.grading import GRADERS
from whet.plugins import load_plugins

PLUGINS = Path(__file__).parents[1] / "plugins"
HOLES = load_plugins([PLUGINS / "holes.py"])[0].HOLES


TWO = """
import whet


@whet.grader("two_loose")
def loose(completion, answer):
    return float(answer in completion)


@whet.reward("two_brief")
def brief(episode, index):
    return -len(episode.segments[index].tokens) / 100
"""


def asked(*args: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["reward", "test", *map(str, args)])
    return done.exit_code, " ".join(done.output.split())


def report_of(name: str) -> RewardReport:
    tasks = built_in_tasks(8, name)
    hangs = HOLES.get(name, ("", ""))[1] == "hung"
    scorer = scorer_of("grader" if name in GRADERS else "reward", name, tasks, 0.4 if hangs else 10.0)
    try:
        return check_reward(scorer, tasks)
    finally:
        scorer.close()


@pytest.mark.integration
@pytest.mark.parametrize("name", HOLES)
def test_a_planted_hole_is_found(name):
    case, verdict = HOLES[name]
    report = report_of(name)
    (row,) = [row for row in report.rows if row.case == case]
    assert row.verdict == verdict, report.rows
    assert row.advice
    assert row in report.holes


@pytest.mark.parametrize("name", ["sound", "chains", "basics"])
def test_a_sound_grader_has_no_hole(name):
    """The grader of `basics` took 50 s for 100,000 spaces, which this test found."""
    assert report_of(name).holes == []


LAST_NUMBER = """
import re

import whet


@whet.grader("last_number")
def last_number(completion, answer):
    said = re.findall(r"\\d+", completion)
    return float(said[-1] == answer) if said else None
"""


def test_advice_fits_what_happened(tmp_path):
    """A grader that reads the last number, where 9 is right: of `5 or 9` and of 9**9**9**9 it is right by luck."""
    file, rows = tmp_path / "last_number.py", tmp_path / "rows.jsonl"
    file.write_text(LAST_NUMBER)
    sums = [{"question": f"What is {a} + {b}?", "answer": str(a + b)} for a, b in [(8, 1), (7, 2), (6, 3), (1, 1)]]
    rows.write_text("".join(json.dumps(row) + "\n" for row in sums))
    load_plugins([file])
    scorer = scorer_of("grader", "last_number", tasks := tasks_of_file(rows, 8), 10.0)
    try:
        by_case = {row.case: row for row in check_reward(scorer, tasks).holes}
    finally:
        scorer.close()
    two = by_case["wrong or right"]
    assert (two.verdict, "last" in two.advice, "names two" in two.advice) == ("hole", False, True)
    powers = by_case["huge powers"]
    assert (powers.verdict, "eval" in powers.advice, "give 0" in powers.advice) == ("hole", False, True)
    assert by_case["empty"].advice == f"gave None; {NO_SCORE}"


ALARMED = """
import signal

import whet


@whet.grader("alarmed")
def alarmed(completion, answer):
    return float(0 < signal.getitimer(signal.ITIMER_REAL)[0] < 100)
"""


def test_a_function_that_hangs_ends_after_its_parent_did(tmp_path):
    """An alarm whose default action is death runs while the function does."""
    file = tmp_path / "alarmed.py"
    file.write_text(ALARMED)
    load_plugins([file])
    (task,) = built_in_tasks(1, "alarmed")
    scorer = scorer_of("grader", "alarmed", [task], 10.0)
    try:
        assert scorer.score("7", task).value == 1.0
    finally:
        scorer.close()


@pytest.mark.integration
def test_what_hangs_on_powers_is_told_not_to_evaluate():
    (row,) = [row for row in report_of("hole_evaluates").rows if row.case == "huge powers"]
    assert "never eval or exec" in row.advice


@pytest.mark.integration
def test_the_command_shows_holes_and_exits_with_1(tmp_path):
    file = tmp_path / "two.py"
    file.write_text(TWO)
    code, said = asked(file)
    assert code == 1
    assert "grader two_loose" in said
    assert "everything boxed" in said
    assert "reward two_brief" in said
    assert "a constant output would win" in said  # a note, as it is no judge of correctness
    assert "no holes" in said


def test_rows_of_ones_own_and_a_form_of_ones_own(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"question": f"Is {n} even?", "answer": "yes"}) + "\n" for n in range(0, 40, 2)))
    plugin = tmp_path / "marked.py"
    plugin.write_text(
        "import whet\n\n\n@whet.grader('marked')\ndef marked(completion, answer):\n"
        "    return float(completion == f'=> {answer}')\n"
    )
    code, said = asked(plugin, "--data", rows)
    assert (code, "no right answer wins" in said) == (1, True)
    code, said = asked("marked", "--plugins", plugin, "--data", rows, "--golden", "=> {answer}")
    assert code == 1
    assert "best constant: '=> yes' 1 against 1 hole a constant output would win" in said
    assert "1 hole;" in said


@pytest.mark.integration
def test_columns_of_ones_own(tmp_path):
    """The advice of the first command works as it is written."""
    rows = tmp_path / "rows.jsonl"
    sums = [{"query": f"What is {n} + 1?", "label": str(n + 1)} for n in range(20)]
    rows.write_text("".join(json.dumps(row) + "\n" for row in sums))
    code, said = asked("math_verify", "--data", rows)
    assert (code, "data.columns.prompt=NAME data.columns.answer=NAME" in said) == (2, True)
    named = ("data.columns.prompt=query", "data.columns.answer=label")
    code, said = asked("math_verify", "--data", rows, *named, "--samples", 6)
    assert (code, "no holes" in said) == (0, True)
    code, said = asked("math_verify", "--data", rows, "data.columns.promt=query")
    assert (code, "did you mean prompt?" in said) == (2, True)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["no_such_grader"], "there is no grader and no reward"),
        (["no_such_file.py"], "is not there"),
        (["chains", "--golden", "answer"], "has no {answer}"),
        (["reasoning_gym"], "its own generators"),
        (["mine:columns", "--plugins", PLUGINS / "column_readers.py"], "there is no grader"),
        (["chains", "--data", "no_such_rows.jsonl"], "there is no such file"),
    ],
)
def test_what_cannot_be_tested_is_one_sentence(args, words):
    code, said = asked(*args)
    assert code == 2
    assert words in said
    assert said.count("whet: ") == 1


def grader_file(folder: Path, score: str, reads: str = "The answer is ") -> Path:
    """A grader whose score is an expression of `completion`, `answer` and the number that it `found`, or None."""
    name = re.sub(r"\W", "_", folder.name)  # no two tests of a process may register one name
    file = folder / f"{name}.py"
    file.write_text(
        f"import re\nimport whet\n\n\n@whet.grader('{name}')\ndef score(completion, answer):\n"
        f"    match = re.fullmatch(r'{reads}(-?[0-9]{{1,9}})', completion.strip())\n"
        f"    answer, found = int(answer), int(match[1]) if match else None\n    return float({score})\n"
    )
    return file


@pytest.mark.parametrize(
    ("score", "said"),
    [
        ("0.9 * (found == answer)", ["golden gets 1", "only a score of 1 counts as right", "41 of 42 cases are fine"]),
        ('completion == "I don\'t know" or found == answer', ["best constant"]),
        ("found is not None and abs(found - answer) <= 1", ["one more", "compare whole numbers exactly"]),
    ],
)
def test_a_grader_with_one_fault_has_one_hole(score, said, tmp_path):
    code, output = asked(grader_file(tmp_path, score))
    assert code == 1
    assert "1 hole" in output
    assert all(text in output for text in said)


def test_a_grader_that_pays_wrong_replies_for_their_work_has_a_note(tmp_path):
    """Every other line is measured from a wrong reply's reward, so 0.9 for three steps would pass as nothing."""
    steps = "Step 1: a Step 2: b Step 3: c The answer is "
    file = grader_file(tmp_path, "found == answer or 0.9 * (completion.count('Step') > 2)", steps)
    code, said = asked(file, "--golden", f"{steps}{{answer}}")
    assert code == 0
    assert "wrong gets little" in said
    assert "0.9 against 1" in said
