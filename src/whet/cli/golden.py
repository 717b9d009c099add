"""`--golden TEXT`: how a right reply looks, for the commands that try a grader."""

from __future__ import annotations

from typing import Annotated

import typer

from whet.cli.console import usage

GoldenOption = Annotated[
    str | None,
    typer.Option("--golden", metavar="TEXT", help="How a right reply looks, with {answer}. Default: tried out."),
]


def check_golden(golden: str | None) -> None:
    """Raises: ConfigError where a text has no place for the answer."""
    if golden is not None and "{answer}" not in golden:
        raise usage("--golden has no {answer}: write how a right reply looks, such as '#### {answer}'")
