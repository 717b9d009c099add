"""Reads the lines that a log of a run has gained. Logs grow, and a resumed run cuts them back."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from whet.run_folder.logs import readable
from whet.tracking.protocol import is_folder

CHUNK = 16_000_000
"""Bytes that are read at once. A longer line is read whole."""
CHECKED = 4096
"""Bytes before the position that have to be as they were."""


@dataclass
class Tail:
    """A position in a log. The lines before it have been read."""

    path: Path
    position: int = 0
    _digest: bytes = field(default=b"", repr=False)
    """Of the `CHECKED` bytes before the position."""

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The next whole lines, and whether the log was cut back before them.

        A log that was cut is read from its beginning again, even if it has grown past the position since. Empty: there
        is nothing new, or no log. A line that is no JSON object is left out.

        Raises: TrackError where the log is a folder.
        """
        try:
            with self.path.open("rb") as file:
                was_cut = not self._is_as_it_was(file)
                if was_cut:
                    self.position = 0
                file.seek(self.position)
                data = file.read(CHUNK)
                while b"\n" not in data and (more := file.read(CHUNK)):
                    data += more
                data = data[: data.rfind(b"\n") + 1]
                self.position += len(data)
                if data or was_cut:
                    self._digest = self._digest_before(file)
        except IsADirectoryError as error:
            raise is_folder(self.path) from error
        except FileNotFoundError:
            was_cut, self.position, self._digest = self.position > 0, 0, b""
            return [], was_cut
        return readable(data), was_cut

    def _is_as_it_was(self, file: Any) -> bool:
        return self.position == 0 or self._digest_before(file) == self._digest

    def _digest_before(self, file: Any) -> bytes:
        start = max(0, self.position - CHECKED)
        file.seek(start)
        data = file.read(self.position - start)
        return sha256(data).digest() if len(data) == self.position - start else b""
