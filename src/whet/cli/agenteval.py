"""`whet eval --env agenteval`: one agent in all environments of AgentGym that can run here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.markup import escape

from whet.cli.console import file_and_settings, out, progress_bar, usage

NAME = "agenteval"
OPTIONS = ("--policy", "--model", "--env", "--items", "--out", "--temperature", "--plugins")
"""Those that this evaluation reads."""
FOLDER = Path("runs/agenteval")


def refuse_unread(env: str, given: Collection[str]) -> None:
    """Refuses options that the evaluation of `--env` does not read.

    Args:
        given: the options on the command line.
    """
    if env == NAME:
        if unread := [option for option in given if option not in OPTIONS]:
            raise usage(f"--env {NAME} does not read {', '.join(unread)}: leave it out")
    elif strange := sorted({"--items", "--out"}.intersection(given)):
        raise usage(f"{' and '.join(strange)} {'is' if len(strange) == 1 else 'are'} of --env {NAME}: leave it out")


def policy_and_settings(target: str, policy: str, settings: list[str]) -> tuple[str, list[str]]:
    """The agent's folder or address, and the settings with the one that stands in the target's place.

    Args:
        target: the command's first argument: a run's folder, or the first setting. Empty: there is none.
        policy: as `--policy` gives it: a run's folder is its best policy.
    """
    if target and not _is_run(target):
        return policy_folder(policy), [target, *settings]
    if target and policy:
        raise usage(f"{target} and --policy {policy} are two agents: leave one of them out")
    return policy_folder(target or policy), settings


def _is_run(folder: str) -> bool:
    return (Path(folder) / "config.yaml").is_file()


def policy_folder(policy: str) -> str:
    """The best policy of a run, where its folder is given; else the policy as it is."""
    run = Path(policy)
    if not policy or not _is_run(policy):
        return policy
    if not (run / "best").is_dir():
        raise usage(f"{run} is a run that has not finished: give the folder of one of its models as --policy")
    return str(run / "best")


def show_agenteval(
    agent: Sequence[str], settings: Sequence[str], *, items: int | None, temperature: float | None, to: Path | None
) -> None:
    """Measure it, or go on with it, and show the tables.

    Args:
        agent: the settings of `--policy` and `--model`.
        settings: from the command line; a file's name may be among them.
    """
    from whet.config.loading import merged, parse_override
    from whet.config.yaml_text import read_file
    from whet.report.agenteval import agenteval_notes, agenteval_tables
    from whet.run.agenteval import measure_agenteval
    from whet.run.agenteval_part import Asked

    file, singles = file_and_settings(list(settings))
    tree: Any = read_file(file) if file is not None else {}
    for single in [*agent, *singles]:
        tree = merged(tree, parse_override(single))
    folder = to or FOLDER
    with closing(progress_bar()) as progress:
        result = measure_agenteval(Asked(tree, items, temperature), folder, progress)
    out.print(escape(f"AgentEval of {result.policy}"), highlight=False, soft_wrap=True)
    for table in agenteval_tables(result):
        out.print(table)
    for sentence in agenteval_notes(result):
        out.print(escape(sentence), highlight=False, soft_wrap=True)
    kept = f"kept in {folder} ({result.seconds:,.0f} s); `whet show {folder}/*/*.episodes.jsonl` shows the episodes"
    out.print(escape(kept), highlight=False, soft_wrap=True)
