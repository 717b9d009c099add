"""A trace as trackers show it: who said what, in order, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.report.records import TraceRecord
from whet.tracking.protocol import MAX_TEXT
from whet.types import shortened

FROM_OUTSIDE = ("observation", "question")
"""Roles whose text no model wrote."""


@dataclass(frozen=True, slots=True)
class Said:
    """One text of an episode."""

    role: str
    """`question`, `answer`, `critique`, `refinement`, `observation`, or the role of an agent's turn."""
    text: str
    result: str = ""
    """What became of it, such as a score, a verdict or `invalid action`. Empty: not recorded."""


def said(episode: TraceRecord) -> list[Said]:
    """The texts of an episode, in order."""
    texts = [Said("question", episode.question)] if episode.question else []
    if episode.turns:
        texts += [
            Said(turn.role, turn.text, _joined(turn.note, _named("reward", turn.reward))) for turn in episode.turns
        ]
    else:
        texts += [Said("answer", episode.answer, _named("score", episode.answer_score))]
        if episode.critique is not None:
            texts.append(Said("critique", episode.critique, _joined("", _named("verdict", episode.verdict))))
        if episode.refinement is not None:
            texts.append(Said("refinement", episode.refinement, _named("score", episode.refinement_score)))
    return [Said(one.role, shortened(one.text, MAX_TEXT), one.result) for one in texts]


def as_markdown(episode: TraceRecord) -> str:
    """An episode as Markdown. Its texts stand in code blocks, so that none of them is formatted."""
    title = " · ".join([episode.writer, episode.split, *_facts(episode)])
    parts = [f"**{title}**"]
    for one in said(episode):
        result = f" ({one.result})" if one.result else ""
        indented = "\n".join(f"    {line}" for line in one.text.split("\n"))
        parts.append(f"*{one.role}*{result}\n\n{indented}")
    return "\n\n".join(parts)


def table_as_markdown(rows: Sequence[object]) -> str:
    """Rows of one set of columns as a table of Markdown."""
    dicts = [row for row in rows if isinstance(row, dict)]
    columns = list(dicts[0]) if dicts else []
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_cell(row.get(column)) for column in columns) + " |" for row in dicts]
    return "\n".join(lines)


def title_of(sentence: str) -> str:
    """A short title for an alert: what stands before its first colon."""
    return sentence.partition(":")[0][:60]


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def _facts(episode: TraceRecord) -> list[str]:
    reward = _named("reward", episode.reward)
    return [fact for fact in (reward, episode.outcome, episode.reason) if fact]


def _named(name: str, value: float | str | None) -> str:
    if value is None:
        return ""
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def _joined(*texts: str) -> str:
    return ", ".join(filter(None, texts))
