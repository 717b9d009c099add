"""What a codemod has renamed since numbers were recorded: former names to new ones, outside of the library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FILE = Path(__file__).parents[1] / "data" / "renamed.json"


@dataclass(frozen=True)
class Renamed:
    """Former names to new ones, by what they name.

    A name of `metrics` or `settings` is whole or a run of its parts, which `/` and `.` divide: `episodes` stands for
    `validation/episodes/lost` too. The longest name that fits is taken, and each part is renamed once.

    Raises: ValueError where a new name is a former one too: then nobody could tell what was renamed already.
    """

    metrics: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """By key, or by `key=value` where the value is renamed too."""
    phases: Mapping[str, str] = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    file: Path = FILE

    def __post_init__(self) -> None:
        for table in (self.metrics, self.settings, self.phases, self.methods):
            if both := table.keys() & set(table.values()):
                raise ValueError(f"{self.file}: {', '.join(sorted(both))} is a former name and a new one")

    def __bool__(self) -> bool:
        return any((self.metrics, self.settings, self.phases, self.methods))

    def metric(self, name: str) -> str:
        return with_parts_renamed(name, self.metrics, "/")

    def setting(self, setting: str) -> str:
        """`key=value`, with the new key."""
        if setting in self.settings:
            return self.settings[setting]
        key, equals, value = setting.partition("=")
        return with_parts_renamed(key, self.settings, ".") + equals + value

    def method(self, name: str) -> str:
        return self.methods.get(name, name)

    def place(self, place: str) -> str:
        """`phase/step`, with the new name of the phase."""
        phase, slash, step = place.rpartition("/")
        return self.phases.get(phase, phase) + slash + step

    def back(self) -> Renamed:
        """New names to former ones.

        Raises: ValueError where two former names became one.
        """
        tables = []
        for table in (self.metrics, self.settings, self.phases, self.methods):
            backwards = {new: former for former, new in table.items()}
            if len(backwards) < len(table):
                raise ValueError(f"{self.file}: two former names became one, so there is no way back")
            tables.append(backwards)
        return Renamed(*tables, file=self.file)


def with_parts_renamed(name: str, table: Mapping[str, str], separator: str) -> str:
    parts, new, at = name.split(separator), [], 0
    while at < len(parts):
        for end in range(len(parts), at, -1):
            run = separator.join(parts[at:end])
            if run in table:
                new.append(table[run])
                break
        else:
            end = at + 1
            new.append(parts[at])
        at = end
    return separator.join(new)


def load_renamed(file: Path = FILE) -> Renamed:
    return Renamed(**json.loads(file.read_text()), file=file)


RENAMED = load_renamed()
"""Of this checkout."""
