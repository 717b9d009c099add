"""The two tiers of tests: every test is of one, CI runs both, and what needs a program of others is of the second."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_make_runs_one_tier_and_ci_both():
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci" / "run").read_text()
    selected = re.findall(r"^\t@\$\(PYTEST\) -m (.+)$", makefile, re.MULTILINE)
    assert selected == ["'not integration'", "integration"]
    assert re.search(r"^test-all: test integration$", makefile, re.MULTILINE)
    assert re.findall(r"^(?:exec )?make (.+)$", ci, re.MULTILINE) == [
        "test",
        "integration",
        "release-check",
        "docker-check",
    ]


def test_there_is_one_marker_of_tiers():
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    assert [marker.partition(":")[0] for marker in markers] == ["integration"]


def test_a_test_that_kills_a_run_is_of_the_integration_tier():
    killers = {"killed_when", "train_until_killed"}
    tests = {}
    for file in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                called = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
                if called & killers and file != Path(__file__):
                    marks = {ast.unparse(decorator) for decorator in node.decorator_list}
                    tests[f"{file.stem}.{node.name}"] = "pytest.mark.integration" in marks
    assert len(tests) >= 5
    assert [name for name, is_marked in tests.items() if not is_marked] == []


@pytest.mark.parametrize("fixture", ["chromium", "java"])
def test_a_fixture_that_starts_a_program_of_others_marks_its_tests(request, fixture):
    """By the hook of `conftest.py`, which is given such a test here."""
    item = request.node
    names, item.fixturenames[:] = list(item.fixturenames), [fixture]
    try:
        item.config.hook.pytest_collection_modifyitems(session=item.session, config=item.config, items=[item])
        assert item.get_closest_marker("integration")
    finally:
        item.fixturenames[:] = names


@pytest.mark.xdist_group("one process")
def test_groups_of_tests_reach_the_processes(request):
    """Without the mark in its id a group's tests go to all processes, and each makes what the group shares."""
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@one process")
    else:
        assert request.node.get_closest_marker("xdist_group").args == ("one process",)
