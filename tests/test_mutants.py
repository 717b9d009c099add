"""`scripts/mutants.py`: what it changes, that it changes nothing here, and that a fault is found by the tests."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "mutants.py"
CODE = '''"""Says 1 + 1."""
__all__ = ["f"]
def f(x: int, flag: bool = True) -> int | None:
    """More than 2."""
    if x < 0 or not flag:
        raise ValueError(f"{x + 1} is below 0")
    return x * 3 - 4
'''


@pytest.fixture
def script(monkeypatch):
    spec = importlib.util.spec_from_file_location("mutants", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mutants", module)
    spec.loader.exec_module(module)
    return module


def test_operators_and_constants_change_and_words_and_types_do_not(script):
    changes = {(mutant.line, mutant.was, mutant.becomes) for mutant in script.mutants_of("src/whet/a.py", CODE)}
    assert changes == {
        (3, "True", "False"), (5, "<", "<="), (5, "or", "and"), (5, "0", "(0 + 1)"), (7, "*", "/"), (7, "-", "+"),
        (7, "3", "(3 + 1)"), (7, "4", "(4 + 1)"),
    }  # fmt: skip


def test_a_seed_draws_the_same_mutants_and_each_is_python(script, tmp_path):
    one, again, other = (script.drawn(seed, 200, script.ROOMS) for seed in (0, 0, 1))
    assert one == again != other
    assert len({mutant.name for mutant in one}) == 200
    mutant = one[0]
    before = (script.ROOT / mutant.file).read_text()
    script.planted(mutant, tmp_path)
    assert (script.ROOT / mutant.file).read_text() == before
    assert (tmp_path / mutant.file).read_text() != before


def small_house(tmp_path: Path) -> Path:
    """A repository with one function and one test, and the script in it."""
    for name, text in {
        "scripts/mutants.py": SCRIPT.read_text(),
        "src/whet/__init__.py": "",
        "src/whet/credit/__init__.py": "def double(x):\n    return 2 * x\n\ndef idle(x):\n    return x - 1\n",
        "tests/credit/test_it.py": "from whet.credit import double, idle\n\ndef test_it():\n    assert double(2) == 4\n"
        "    idle(1)\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "scripts" / "mutants.py"


def test_a_fault_that_a_test_sees_is_killed_and_another_survives_and_a_second_call_goes_on(tmp_path):
    command = [sys.executable, small_house(tmp_path), "--out", tmp_path / "out.jsonl", "--rooms", "credit"]
    first = subprocess.run([*map(str, command), "--marker", ""], capture_output=True, text=True, check=True)
    assert "4 mutants: 2 killed, 2 survived" in first.stdout
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {(row["line"], row["outcome"]) for row in rows} == {(2, "killed"), (5, "survived")}
    assert all("test_it" in row["by"] for row in rows if row["outcome"] == "killed")
    again = subprocess.run([*map(str, command), "--marker", ""], capture_output=True, text=True, check=True)
    assert again.stdout.splitlines()[0] == first.stdout.splitlines()[4]  # nothing was tried anew


def test_a_map_names_the_tests_of_a_line_those_of_the_room_first(script, tmp_path):
    coverage = pytest.importorskip("coverage", reason="only a map of mutants needs it: CONTRIBUTING.md")
    data = coverage.CoverageData(str(tmp_path / "map"))
    credit, other = "tests/credit/test_it.py::test_it[a@x|b]", "tests/api/test_that.py::test_that"
    for context in (f"{other}|run", f"{credit}@test_it |run", f"{credit}@test_it made=grpo|setup", ""):
        data.set_context(context)
        data.add_lines({str(script.ROOT / "src/whet/credit/a.py"): [7]})
    data.write()
    mutant = script.Mutant("src/whet/credit/a.py", 7, 0, "1", "2")
    assert script.tests_of(mutant, tmp_path / "map", 150, ()) == [[credit, other]]
    assert script.tests_of(mutant, tmp_path / "map", 1, ()) == [[credit]]

    later_line_of_the_statement = script.Mutant("src/whet/credit/a.py", 8, 0, "1", "2")
    assert script.tests_of(later_line_of_the_statement, tmp_path / "map", 150, ()) == [[credit, other]]
    at_import = script.Mutant("src/whet/credit/a.py", 3, 0, "1", "2")
    assert script.tests_of(at_import, tmp_path / "map", 1, ()) == [[credit]]
    in_a_file_that_no_test_reaches = script.Mutant("src/whet/credit/b.py", 7, 0, "1", "2")
    assert script.tests_of(in_a_file_that_no_test_reaches, tmp_path / "map", 150, ()) == []
    data.erase()
    data.set_context(f"{credit}|run")
    data.add_lines({"/elsewhere/src/whet/credit/a.py": [7]})
    data.write()
    with pytest.raises(SystemExit, match="make the map in this checkout"):
        script.tests_of(mutant, tmp_path / "map", 150, ())
