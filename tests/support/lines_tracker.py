"""A tracker whose files are lines of JSON."""

import json
import time
from typing import Any

from whet.tracking.protocol import Destination


class Lines:
    """Writes each call as a line. `fails_at`: the step whose numbers it refuses."""

    fails_at: int | None = None

    def __init__(self, destination: Destination) -> None:
        self.folder = destination.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run_id = destination.run_id

    def _write(self, what: str, *values: Any) -> None:
        with (self.folder / "lines.jsonl").open("a") as file:
            file.write(json.dumps([what, *values]) + "\n")

    def begin(self, config, name, next_step):
        self._write("begin", config, name, next_step, self.run_id)

    def log(self, step, numbers):
        if step == self.fails_at:
            raise ConnectionError("the server is gone")
        self._write("log", step, numbers)

    def traces(self, step, episodes):
        self._write("traces", step, [episode.task for episode in episodes])

    def table(self, name, rows):
        self._write("table", name, list(rows))

    def alert(self, level, sentence):
        self._write("alert", level, sentence)

    def flush(self): ...

    def end(self, summary):
        self._write("end", summary is not None)


class Hangs(Lines):
    """Never comes back from a step, as a server that takes and does not answer."""

    def log(self, step, numbers):
        time.sleep(600)
