"""trackio: a local database with a dashboard of its own. Its traces show an episode's spans."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from whet.report.records import TraceRecord
from whet.tracking.episodes import FROM_OUTSIDE, said, title_of
from whet.tracking.protocol import Destination

WRITTEN_S = 1.0
"""Seconds after which trackio has written what it was given: its thread writes every 0.5 s, and tells nobody."""


class Trackio:
    """A run in trackio's local database. Two runs of one name are kept apart by the end of their names there."""

    def __init__(self, destination: Destination) -> None:
        if not destination.is_default:
            os.environ["TRACKIO_DIR"] = str(destination.folder)  # read when the package is imported
        import trackio

        self._trackio = trackio
        self._destination = destination
        self._step = 0
        self._is_written = True

    def begin(self, config: Mapping[str, Any], name: str, next_step: int) -> None:
        project = self._destination.project or os.environ.get("TRACKIO_PROJECT") or "whet"
        run = f"{name}-{self._destination.run_id[:6]}"
        self._run = self._trackio.init(
            project, name=run, config=dict(config), resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False
        )
        self._step = max(0, next_step - 1)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._step = step
        self._log(dict(numbers))

    def traces(self, step: int, episodes: Sequence[TraceRecord]) -> None:
        self._step = step
        self._log({f"{episode.phase}/traces": self._traces_of(episodes, episode.phase) for episode in episodes})

    def table(self, name: str, rows: Sequence[Mapping[str, float | str | None]]) -> None:
        columns = list(rows[0])
        data = [[row.get(column) for column in columns] for row in rows]
        self._log({name: self._trackio.Table(columns=columns, data=data)})

    def alert(self, level: str, sentence: str) -> None:
        levels = self._trackio.AlertLevel
        rank = levels.ERROR if level == "error" else levels.WARN
        self._run.alert(title=title_of(sentence), text=sentence, level=rank, step=self._step)
        self._is_written = False

    def flush(self) -> None:
        if not self._is_written:
            time.sleep(WRITTEN_S)
            self._is_written = True

    def end(self, summary: Mapping[str, Any] | None) -> None:
        self._trackio.finish()

    def _log(self, values: Mapping[str, Any]) -> None:
        self._run.log(dict(values), step=self._step)
        self._is_written = False

    def _traces_of(self, episodes: Sequence[TraceRecord], phase: str) -> list[Any]:
        return [self._trace(episode) for episode in episodes if episode.phase == phase]

    def _trace(self, episode: TraceRecord) -> Any:
        """An episode as messages, and as spans: one for the whole, and one for each text below it."""
        texts = said(episode)
        is_agent = bool(episode.turns)
        messages = [
            {"role": "user" if one.role in FROM_OUTSIDE else "assistant", "content": one.text, "name": one.role}
            for one in texts
        ]
        failed = episode.outcome not in ("ok", "truncated")
        status = {"status": "error" if failed else "ok", **({"error": episode.reason} if episode.reason else {})}
        whole = {"id": "episode", "name": episode.task or "episode", "kind": "span", **status}
        kinds = {"observation": "tool"}
        spans = [
            {
                "id": f"{index}",
                "parent_id": "episode",
                "name": one.role,
                "kind": kinds.get(one.role, "generation"),
                "output": one.text,
                "metadata": {"result": one.result},
            }
            for index, one in enumerate(texts)
            if one.role != "question" or is_agent
        ]
        metadata = {
            "task": episode.task,
            "split": episode.split,
            "writer": episode.writer,
            "outcome": episode.outcome,
            "reward": episode.reward,
            "score": episode.answer_score,
            "status": status["status"],
        }
        return self._trackio.Trace(messages=messages, metadata=metadata, spans=[whole, *spans])
