"""MLflow: a local database, or the server that `MLFLOW_TRACKING_URI` names. Traces and tables are files of the run."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from whet.report.records import TraceRecord
from whet.tracking.episodes import as_markdown, table_as_markdown
from whet.tracking.protocol import Destination

RUN = "whet.run"
"""The tag that finds a run again."""
MAX_PARAMETER = 500
"""Characters of a setting's value; the whole settings are in `settings.json`."""
_NOT_IN_NAMES = re.compile(r"[^\w\-. /]")


class MLflow:
    """A run of MLflow. A follower that starts again finds it by a tag, and sends no number twice."""

    def __init__(self, destination: Destination) -> None:
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self._client_of, self._metric, self._param = MlflowClient, Metric, Param
        self._destination = destination
        self._step = 0
        self._sent: dict[str, set[int]] = {}
        """By metric, the steps that a killed follower has sent and did not note."""

    def begin(self, config: Mapping[str, Any], name: str, next_step: int) -> None:
        project = self._destination.project or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "whet"
        folder, place = self._destination.folder, os.environ.get("MLFLOW_TRACKING_URI")
        folder.mkdir(parents=True, exist_ok=True)
        self._client = self._client_of(tracking_uri=place or f"sqlite:///{folder.resolve() / 'mlflow.db'}")
        experiment = self._client.get_experiment_by_name(project)
        files = None if place else str(folder.resolve() / "artifacts")
        identity = (
            experiment.experiment_id if experiment else self._client.create_experiment(project, artifact_location=files)
        )
        found = self._client.search_runs([identity], f"tags.`{RUN}` = '{self._destination.run_id}'")
        if found:
            self._run = found[0].info.run_id
            self._sent = {
                key: {metric.step for metric in self._client.get_metric_history(self._run, key)}
                for key in found[0].data.metrics
            }
        else:
            tags = {RUN: self._destination.run_id}
            self._run = self._client.create_run(identity, tags=tags, run_name=name).info.run_id
            parameters = [self._param(key, value[:MAX_PARAMETER]) for key, value in _flat(config) if value]
            for start in range(0, len(parameters), 100):  # the most that a server takes at once
                self._client.log_batch(self._run, params=parameters[start : start + 100])
            self._client.log_dict(self._run, dict(config), "settings.json")
        self._step = max(0, next_step - 1)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._step, now = step, int(time.time() * 1000)
        named = {_NOT_IN_NAMES.sub("_", name): value for name, value in numbers.items()}
        metrics = [
            self._metric(name, value, now, step)
            for name, value in named.items()
            if step not in self._sent.get(name, ())
        ]
        for start in range(0, len(metrics), 1000):  # the most that a server takes at once
            self._client.log_batch(self._run, metrics=metrics[start : start + 1000])

    def traces(self, step: int, episodes: Sequence[TraceRecord]) -> None:
        for phase in dict.fromkeys(episode.phase for episode in episodes):
            texts = [as_markdown(episode) for episode in episodes if episode.phase == phase]
            place = f"traces/{_NOT_IN_NAMES.sub('_', phase)}/step_{step:06}.md"
            self._client.log_text(self._run, "\n\n---\n\n".join(texts), place)

    def table(self, name: str, rows: Sequence[Mapping[str, float | str | None]]) -> None:
        self._client.log_text(self._run, table_as_markdown(rows), f"{name}.md")
        self._client.log_dict(self._run, {"rows": [dict(row) for row in rows]}, f"{name}.json")

    def alert(self, level: str, sentence: str) -> None:
        # A file for each: a follower that starts again does not have the earlier ones, and must not write over them.
        name = sha256(sentence.encode(errors="replace")).hexdigest()[:8]
        self._client.log_text(self._run, f"**{level}**: {sentence}", f"alerts/step_{self._step:06}_{name}.md")

    def flush(self) -> None:
        """Each call is written when it returns."""

    def end(self, summary: Mapping[str, Any] | None) -> None:
        if summary is not None:
            self._client.set_terminated(self._run, status="FINISHED")


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names with dots, as they are set on the command line, and values."""
    for key, value in settings.items():
        name = _NOT_IN_NAMES.sub("_", f"{prefix}{key}")
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{name}.")
        elif value is not None:
            yield name, str(value)
