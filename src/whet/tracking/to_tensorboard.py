"""TensorBoard: event files, written without torch or TensorFlow."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from whet.report.records import TraceRecord
from whet.tracking.episodes import as_markdown, table_as_markdown
from whet.tracking.protocol import Destination


class TensorBoard:
    """Numbers as scalars; traces, alerts, settings and tables as text."""

    def __init__(self, destination: Destination) -> None:
        self._folder = destination.folder
        self._step = 0
        self._alerts: list[str] = []

    def begin(self, config: Mapping[str, Any], name: str, next_step: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._writer = EventFileWriter(str(self._folder))
        # TensorBoard then leaves out what earlier files hold from this step on.
        self._add(next_step, session_log=SessionLog(status=SessionLog.START))
        if next_step == 0:
            settings = json.dumps(config, indent=1, ensure_ascii=False, default=str)
            self._text("settings", 0, ["\n".join(f"    {line}" for line in settings.split("\n"))])
        self._step = max(0, next_step - 1)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._step = step
        values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        self._add(step, summary=Summary(value=values))

    def traces(self, step: int, episodes: Sequence[TraceRecord]) -> None:
        for phase in dict.fromkeys(episode.phase for episode in episodes):
            texts = [as_markdown(episode) for episode in episodes if episode.phase == phase]
            self._text(f"{phase}/traces", step, texts)

    def table(self, name: str, rows: Sequence[Mapping[str, float | str | None]]) -> None:
        self._text(name, self._step, [table_as_markdown(rows)])

    def alert(self, level: str, sentence: str) -> None:
        # One text with all of them: of several at a step, TensorBoard shows the last.
        self._alerts.append(f"**{level}**: {sentence}")
        self._text("alerts", self._step, self._alerts)

    def flush(self) -> None:
        self._writer.flush()

    def end(self, summary: Mapping[str, Any] | None) -> None:
        self._writer.close()

    def _text(self, tag: str, step: int, texts: Sequence[str]) -> None:
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=len(texts))])
        content = [text.encode(errors="replace") for text in texts]
        tensor = TensorProto(dtype=DT_STRING, string_val=content, tensor_shape=shape)
        metadata = create_summary_metadata(display_name=tag, description="")
        self._add(step, summary=Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)]))

    def _add(self, step: int, **content: Any) -> None:
        self._writer.add_event(Event(wall_time=time.time(), step=step, **content))
