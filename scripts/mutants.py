"""Plants small faults in the code, one at a time, and counts those that the tests find.

.venv/bin/python scripts/mutants.py --out mutants.jsonl                  # 200 mutants, by `make test`'s tests
.venv/bin/python scripts/mutants.py --out all.jsonl --marker ''          # the same mutants, by every test
.venv/bin/python scripts/mutants.py --out mutants.jsonl --map .coverage  # only tests that run the mutant's line

A mutant is one changed operator or constant in a copy of `src`; the working tree stays as it is. The seed draws the
same mutants from the same code. What was tried is in the file of `--out`, and a second call goes on from there. The
tests of the mutant's own room run first, then those that `--rest` names. With `--map` they are those that a run of
`pytest --cov=whet --cov-context=test` saw on the line. Where it saw none, as on a line that runs at import, they are
those of the whole file. Some lines run in thousands of tests: `--most` of them are tried, those of the room first.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
ROOMS = ("objectives", "credit", "trainer", "rollout")
REST = ("tests/methods", "tests/run", "tests/trainer", "tests/credit", "tests/evaluation", "tests/api")
"""Tests that run after those of the room; the most of a run goes through them."""
SWAPS: Mapping[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*",
    ast.FloorDiv: "*", ast.Mod: "*", ast.Pow: "*", ast.And: "or", ast.Or: "and", ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip
ENDING = re.compile(r"(@[^][|]*)?\|(setup|run|teardown)$")
"""What pytest-xdist and pytest-cov write behind a test's name: the test's group and its phase."""
NO_SUCH_TEST = 4
"""Exit code of pytest."""


@dataclass(frozen=True)
class Mutant:
    """One changed place."""

    file: str
    """Below the repository."""
    line: int
    column: int
    was: str
    becomes: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}:{self.column} {self.was} -> {self.becomes}"


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """Every mutant of a file: operators, numbers and truth values; nothing of types, docstrings, messages or `__all__`.

    Args:
        text: of the file, whose lines a mutant's place is in; columns are bytes, as in `ast`.
    """
    tree = ast.parse(text)
    lines = text.splitlines()
    unused = set(_unused(tree))
    for node in ast.walk(tree):
        if node in unused:
            continue
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            yield from (
                mutant
                for left, operator, right in zip(sides, node.ops, sides[1:], strict=False)
                for mutant in _swapped(file, lines, left, operator, right)
            )
        elif isinstance(node, ast.BinOp):
            yield from _swapped(file, lines, node.left, node.op, node.right)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from _swapped(file, lines, left, node.op, right)
        elif isinstance(node, ast.Constant) and node.lineno == node.end_lineno:
            was = lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()
            if isinstance(node.value, bool):
                yield Mutant(file, node.lineno, node.col_offset, was, str(not node.value))
            elif isinstance(node.value, int | float):
                yield Mutant(file, node.lineno, node.col_offset, was, f"({was} + 1)")


def _swapped(file: str, lines: Sequence[str], left: ast.expr, operator: ast.AST, right: ast.expr) -> Iterator[Mutant]:
    """The operator between two operands of one line, as another."""
    if type(operator) not in SWAPS or left.end_lineno != right.lineno:
        return
    between = lines[right.lineno - 1].encode()[left.end_col_offset : right.col_offset].decode()
    was = between.strip(" ()\t")
    if was and between.count(was) == 1:
        column = (left.end_col_offset or 0) + len(between[: between.index(was)].encode())
        yield Mutant(file, right.lineno, column, was, SWAPS[type(operator)])


def _unused(tree: ast.Module) -> Iterator[ast.AST]:
    """What says nothing that a test could see: types, docstrings, what an error says, `__all__`."""
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.AnnAssign | ast.arg):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [node.returns]
        elif isinstance(node, ast.Raise | ast.JoinedStr):
            parts = [node]
        elif isinstance(node, ast.Assign):
            is_union = isinstance(node.value, ast.BinOp) and " | " in ast.unparse(node.value)  # types under a name
            parts = [node] if is_union or ast.unparse(node.targets[0]) == "__all__" else []
        for part in parts:
            if part is not None:
                yield from ast.walk(part)


def drawn(seed: int, count: int, rooms: Sequence[str]) -> list[Mutant]:
    """So many mutants of all in these rooms, in the order in which they are tried."""
    found = [
        mutant
        for room in rooms
        for file in sorted((SOURCE / "whet" / room).rglob("*.py"))
        for mutant in mutants_of(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"))
    ]
    return random.Random(seed).sample(found, min(count, len(found)))


def planted(mutant: Mutant, folder: Path) -> Path:
    """A copy of `src` with the fault in it.

    Raises: SyntaxError where the changed file is no Python.
    """
    copy = folder / "src"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / mutant.file
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    line = lines[mutant.line - 1].encode()
    was = mutant.was.encode()
    assert line[mutant.column : mutant.column + len(was)] == was, mutant.name
    lines[mutant.line - 1] = (
        line[: mutant.column] + mutant.becomes.encode() + line[mutant.column + len(was) :]
    ).decode()
    file.write_text("".join(lines), encoding="utf-8")
    compile(file.read_text(encoding="utf-8"), str(file), "exec")
    return copy


def tests_of(mutant: Mutant, map_file: Path | None, most: int, rest: Sequence[str]) -> list[list[str]]:
    """What is run to find it: lists of tests, one after the other until one fails."""
    room = f"tests/{Path(mutant.file).parts[2]}"
    if map_file is not None:
        from coverage import CoverageData

        data = CoverageData(str(map_file))
        data.read()
        if not any(Path(file).is_relative_to(SOURCE) for file in data.measured_files()):
            sys.exit(f"{map_file} has no file of {SOURCE}: make the map in this checkout")
        seen = data.contexts_by_lineno(str(ROOT / mutant.file))
        line = max((line for line in seen if line <= mutant.line), default=0)  # a statement may have several lines
        tests = _named(seen.get(line, ())) or _named(chain.from_iterable(seen.values()))
        random.Random(mutant.name).shuffle(tests)
        tests.sort(key=lambda test: not test.startswith(f"{room}/"))
        return [tests[:most]] if tests else []  # none reaches the file
    return [[place] for place in (room, *(each for each in rest if each != room)) if (ROOT / place).exists()]


def _named(contexts: Iterable[str]) -> list[str]:
    return sorted({ENDING.sub("", context) for context in contexts if "::" in context})


def outcome(mutant: Mutant, lists: Sequence[Sequence[str]], marker: str, timeout: float) -> tuple[str, str]:
    """`killed`, `survived` or `untested`, and the test that found it."""
    with tempfile.TemporaryDirectory(prefix="whet-mutant-") as folder:
        try:
            source = planted(mutant, Path(folder))
        except SyntaxError:
            return "killed", "no Python"
        environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        ran = False
        for tests in lists:
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", "-m", marker]
            try:
                done = subprocess.run(
                    [*command, *tests], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout,
                    check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return "killed", f"no end within {timeout:.0f} s of {tests[0]}"
            if done.returncode == NO_SUCH_TEST:
                sys.exit(f"pytest does not find what --map names: {done.stderr.strip()}; make the map anew")
            if done.returncode not in (0, 5):
                failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return "killed", failed[0] if failed else f"exit code {done.returncode} of {tests[0]}"
            ran = ran or done.returncode == 0
        return ("survived" if ran else "untested"), ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where each mutant's outcome is added, a line each")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="+", default=ROOMS, help="folders of src/whet")
    parser.add_argument("--rest", nargs="*", default=REST, help="tests to run after those of the room")
    parser.add_argument("--marker", default="not integration", help="pytest's -m; '' for every test")
    parser.add_argument("--map", type=Path, help="a coverage file with contexts")
    parser.add_argument("--most", type=int, default=150, help="tests of a line, with --map")
    parser.add_argument("--timeout", type=float, default=900, help="seconds of one list of tests")
    asked = parser.parse_args()
    if gone := [room for room in asked.rooms if not (SOURCE / "whet" / room).is_dir()]:
        sys.exit(f"there is no room {gone[0]} in src/whet: name those there are with --rooms")
    lines = asked.out.read_text(encoding="utf-8").splitlines() if asked.out.exists() else []
    outcomes = {row["name"]: row["outcome"] for row in map(json.loads, lines)}
    mutants = drawn(asked.seed, asked.count, asked.rooms)
    for mutant in mutants:
        if mutant.name in outcomes:
            continue
        found, by = outcome(mutant, tests_of(mutant, asked.map, asked.most, asked.rest), asked.marker, asked.timeout)
        outcomes[mutant.name] = found
        with asked.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": mutant.name, "outcome": found, "by": by, **asdict(mutant)}) + "\n")
        print(f"{found:9} {mutant.name}  {by}", flush=True)
    counts = Counter(outcomes[mutant.name] for mutant in mutants)
    print(f"{len(mutants)} mutants: " + ", ".join(f"{count} {found}" for found, count in sorted(counts.items())))
    print("\n".join(f"survived  {mutant.name}" for mutant in mutants if outcomes[mutant.name] == "survived"))


if __name__ == "__main__":
    main()
