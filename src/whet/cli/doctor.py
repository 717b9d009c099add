"""`whet doctor`: what would make a run fail or be worthless, before time is spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from whet.cli.app import app
from whet.cli.console import METHODS_HELP, SettingsArgument, SettingsCommand, config_of, guarded, out
from whet.cli.golden import GoldenOption, check_golden
from whet.cli.own_files import PluginsOption, load_own, with_plugins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whet.checks.findings import Finding

COLOURS = {"ok": "green", "warning": "yellow", "fail": "red"}


@app.command(cls=SettingsCommand)
def doctor(
    method: Annotated[str | None, typer.Argument(metavar="[METHOD]", help=METHODS_HELP)] = None,
    settings: SettingsArgument = None,
    golden: GoldenOption = None,
    plugins: PluginsOption = None,
) -> None:
    """Examine this machine, and with a method the run that `whet train` would start. It starts and writes no run.

    Without a method: versions, extras, devices, disk, and the sizes of model that fit. With one, also your rows
    (copies between train and test, leaks, one-sided answers), tokenizer and chat template on them, the reward on five
    of them, settings, memory, and the time by one measured small step. Exits with 1 where the run would fail or be
    worth nothing.

    Examples: whet doctor;  whet doctor critique_rl;
    whet doctor grpo my.yaml data.kind=file data.path=problems.jsonl --plugins mine.py --golden 'Choice: ({answer})'
    """

    findings: list[Finding] = []

    def work() -> None:
        from whet.checks.machine import machine_findings

        check_golden(golden)
        load_own(plugins)
        _show(machine_findings(Path()), findings)
        if method is not None:
            config = config_of(method, with_plugins(settings, plugins))
            from whet.checks.doctor import examine

            _show(examine(config, golden), findings)
        counts = {level: sum(finding.level == level for finding in findings) for level in COLOURS}
        if counts["fail"]:
            out.print(f"{counts['fail']} to mend before a run, {counts['warning']} to look at; nothing was written")
        else:
            out.print(f"nothing to mend, {counts['warning']} to look at; nothing was written")

    guarded(work, None)
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(1)


def _show(made: Iterator[Finding], findings: list[Finding]) -> None:
    """Print findings as they are made, and add them to those that there are."""
    for finding in made:
        findings.append(finding)
        level = f"[{COLOURS[finding.level]}]{finding.level:<8}[/{COLOURS[finding.level]}]"
        out.print(f"{level}{finding.area:<10} {escape(finding.text)}", soft_wrap=True, highlight=False)
