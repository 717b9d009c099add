"""Weights & Biases. Offline, unless the environment says otherwise; `wandb sync` uploads an offline run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from whet.report.records import TraceRecord
from whet.tracking.episodes import said, title_of
from whet.tracking.protocol import Destination

COLUMNS = ("step", "phase", "split", "writer", "task", "texts", "reward", "score", "outcome", "reason")
"""Of the table of traces."""


class WandB:
    """A run of Weights & Biases. Each session of the run is a folder of its own there, with one id."""

    def __init__(self, destination: Destination) -> None:
        import wandb

        self._wandb = wandb
        self._destination = destination
        self._pending: list[list[Any]] = []
        self._step = 0

    def begin(self, config: Mapping[str, Any], name: str, next_step: int) -> None:
        folder = self._destination.folder
        folder.mkdir(parents=True, exist_ok=True)
        mode = os.environ.get("WANDB_MODE", "offline")
        settings = self._wandb.Settings(console="off", silent=True, x_disable_stats=True, disable_git=True)
        self._run = self._wandb.init(
            project=self._destination.project or os.environ.get("WANDB_PROJECT") or "whet",
            name=name,
            id=self._destination.run_id,
            dir=str(folder),
            config=dict(config),
            mode=mode,
            resume=None if mode == "offline" else "allow",
            settings=settings,
        )
        self._step = max(0, next_step - 1)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._step = step
        self._run.log(dict(numbers), step=step)

    def traces(self, step: int, episodes: Sequence[TraceRecord]) -> None:
        for episode in episodes:
            texts = "\n\n".join(f"[{one.role}] {one.text}" for one in said(episode))
            of_episode = (episode.phase, episode.split, episode.writer, episode.task, texts)
            ending = (episode.reward, episode.answer_score, episode.outcome, episode.reason)
            self._pending.append([step, *of_episode, *ending])

    def table(self, name: str, rows: Sequence[Mapping[str, float | str | None]]) -> None:
        columns = list(rows[0])
        data = [[row.get(column) for column in columns] for row in rows]
        self._run.log({name: self._wandb.Table(columns=columns, data=data)}, step=self._step)

    def alert(self, level: str, sentence: str) -> None:
        levels = self._wandb.AlertLevel
        rank = levels.ERROR if level == "error" else levels.WARN
        self._run.alert(title=title_of(sentence), text=sentence, level=rank, wait_duration=0)

    def flush(self) -> None:
        if self._pending:  # one table for all new steps: each table is a file
            table = self._wandb.Table(columns=list(COLUMNS), data=self._pending)
            self._run.log({"traces": table}, step=self._step)
            self._pending = []

    def end(self, summary: Mapping[str, Any] | None) -> None:
        self.flush()
        self._run.finish()
