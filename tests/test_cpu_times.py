"""`--cpu-times`: what a command takes counts for the test that gave it, though it runs in a process of another's."""

from __future__ import annotations

from support.commands import whet
from support.cpu_times import spent
from support.forked import cpu_seconds


def test_a_forked_command_counts():
    before, commands = spent(), cpu_seconds()
    whet("list", "prompts")
    took = cpu_seconds() - commands
    assert took > 0
    assert spent() - before >= took
