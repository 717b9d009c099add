"""Writes the CPU seconds of every test: `pytest --cpu-times FILE`. They hardly depend on what else the machine does.

A line holds the test and its seconds of setup, call and teardown, tabs between them. They are those of the process, of
its children that have ended and of commands that were forked for it. What a module shares is in the setup of the first
test that asks for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.forked import cpu_seconds, own_cpu_seconds

PHASES = ("setup", "call", "teardown")


def spent() -> float:
    """CPU seconds so far: of this process, its ended children and the commands that were forked for it."""
    return own_cpu_seconds() + cpu_seconds()


class CPUTimes:
    """Appends one line a test to a file; processes of xdist share it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.seconds: dict[str, float] = defaultdict(float)

    def _measure(self, phase: str) -> Iterator[None]:
        before = spent()
        try:
            return (yield)
        finally:
            self.seconds[phase] = spent() - before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        return (yield from self._measure("setup"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        return (yield from self._measure("call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        return (yield from self._measure("teardown"))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if not self.seconds:  # the controller of xdist hears of every test and runs none
            return
        columns = "\t".join(f"{self.seconds[phase]:.2f}" for phase in PHASES)
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(f"{nodeid}\t{columns}\n")
        self.seconds.clear()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-times", metavar="FILE", help="append each test's CPU seconds to FILE")


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("--cpu-times"):
        config.pluginmanager.register(CPUTimes(Path(file).absolute()), "cpu-times")
