"""A store of trajectories: a folder of Parquet files, one for every append, which are never changed afterwards.

Rows come back in the order of writing. Repeated episodes are stored repeatedly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

from whet.distribution import how_to_install
from whet.envs.protocol import EnvError, cannot_write
from whet.files import write_new
from whet.trajectories.records import Message, Trajectory, check, item_number

_PART = re.compile(r"part-(\d{6,})\.parquet")
BATCH_ROWS = 256
"""Read at one time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which trajectories to give. The default is all of them."""

    environments: Collection[str] = ()
    """Of these environments. Empty: of any."""
    items: Collection[str] = ()
    """Of these items, by published name. Empty: of any."""
    sources: Collection[str] = ()
    """Of these sources. Empty: of any."""
    success: bool | None = None
    """True or False: recorded so. None: any, recorded or not."""
    least_reward: float | None = None
    """At least this much; one without a reward is left out. None: any."""
    least_turns: int = 0
    most_turns: int | None = None
    """None: any number."""

    def __post_init__(self) -> None:
        for name in ("environments", "items", "sources"):
            if isinstance(getattr(self, name), str):  # a text is a collection too, of letters
                raise EnvError(f"{name} of a query is the text {getattr(self, name)!r}; give a list of names")


class Store:
    """The store in a folder.

    Args:
        folder: is made by the first append.
    Raises: EnvError where pyarrow is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        if find_spec("pyarrow") is None:
            raise EnvError(f"a store of trajectories needs a package that is not installed: {how_to_install('data')}")
        self.folder = Path(folder)

    def parts(self) -> list[Path]:
        """The files, in the order in which they were written."""
        if not self.folder.is_dir():
            return []
        names = [path.name for path in self.folder.iterdir() if _PART.fullmatch(path.name)]
        return [self.folder / name for name in sorted(names, key=lambda name: (len(name), name))]

    def append(self, trajectories: Iterable[Trajectory]) -> Path | None:
        """Write them as a new file: all of them, or none. Two appends at one time do not harm each other.

        Returns: the file. None: there were no trajectories.
        Raises: DataError for a malformed trajectory, EnvError where the file cannot be written.
        """
        import pyarrow
        import pyarrow.parquet

        rows = [_row(check(trajectory, f"trajectory {number}")) for number, trajectory in enumerate(trajectories, 1)]
        if not rows:
            return None
        buffer = BytesIO()
        table = pyarrow.Table.from_pylist(rows, schema=_schema())
        pyarrow.parquet.write_table(table, buffer, compression="zstd")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvError(f"cannot make the folder {self.folder} ({error.strerror}); name another") from error
        number = self._next()
        try:
            while not write_new(path := self.folder / f"part-{number:06d}.parquet", buffer.getvalue()):
                number += 1
        except OSError as error:
            raise cannot_write(path, error) from error
        return path

    def read(self, query: Query | None = None) -> Iterator[Trajectory]:
        """The trajectories that match the query, in order.

        Raises: EnvError for a file that is damaged, or of another kind.
        """
        for row in self._rows(query or Query(), None):
            yield _trajectory(row)

    def count(self, query: Query | None = None) -> dict[str, int]:
        """The number of trajectories by environment, in the order of names."""
        counts: dict[str, int] = {}
        for row in self._rows(query or Query(), ["environment"]):
            counts[row["environment"]] = counts.get(row["environment"], 0) + 1
        return dict(sorted(counts.items()))

    def _next(self) -> int:
        numbers = [int(match[1]) for path in self.parts() if (match := _PART.fullmatch(path.name))]
        return max(numbers, default=-1) + 1

    def _rows(self, query: Query, columns: list[str] | None) -> Iterator[dict[str, Any]]:
        import pyarrow
        import pyarrow.dataset

        wanted = _filter(query)
        for path in self.parts():
            try:
                file = pyarrow.dataset.dataset(str(path), format="parquet")
                if not file.schema.equals(_schema()):
                    raise EnvError(f"{path} is not a file of a trajectory store; move it out of {self.folder}")
                batches = file.to_batches(columns=columns, filter=wanted, batch_size=BATCH_ROWS, use_threads=False)
                for batch in batches:
                    yield from batch.to_pylist()
            except (pyarrow.ArrowException, OSError) as error:
                reason = (str(error).splitlines() or [""])[0][:200]
                raise EnvError(f"{path} cannot be read ({reason}); take it out of the store and append anew") from error


def _schema() -> Any:
    import pyarrow

    message = pyarrow.struct(
        [
            pyarrow.field("who", pyarrow.string(), nullable=False),
            pyarrow.field("text", pyarrow.string(), nullable=False),
            pyarrow.field("loss", pyarrow.bool_()),
        ]
    )
    return pyarrow.schema(
        [
            ("environment", pyarrow.string()),
            ("item", pyarrow.int64()),
            ("item_id", pyarrow.string()),
            ("reward", pyarrow.float64()),
            ("success", pyarrow.bool_()),
            ("num_turns", pyarrow.int32()),
            ("messages", pyarrow.list_(message)),
            ("source", pyarrow.string()),
            ("info", pyarrow.string()),
        ]
    )


def _filter(query: Query) -> Any:
    """None: everything."""
    import pyarrow.compute

    def column(name: str) -> Any:
        return pyarrow.compute.field(name)

    parts = [
        column(name).isin(sorted(allowed))
        for name, allowed in (("environment", query.environments), ("item_id", query.items), ("source", query.sources))
        if allowed
    ]
    if query.success is not None:
        parts.append(column("success") == query.success)
    if query.least_reward is not None:
        parts.append(column("reward") >= query.least_reward)
    if query.least_turns:
        parts.append(column("num_turns") >= query.least_turns)
    if query.most_turns is not None:
        parts.append(column("num_turns") <= query.most_turns)
    whole = None
    for part in parts:
        whole = part if whole is None else whole & part
    return whole


def _row(trajectory: Trajectory) -> dict[str, Any]:
    try:
        item = item_number(trajectory.item_id)
    except EnvError:  # named after a trial
        item = None
    return {
        "environment": trajectory.environment,
        "item": item,
        "item_id": trajectory.item_id,
        "reward": trajectory.reward,
        "success": trajectory.success,
        "num_turns": trajectory.num_turns,
        "messages": [
            {"who": message.who, "text": message.text, "loss": message.loss} for message in trajectory.messages
        ],
        "source": trajectory.source,
        "info": json.dumps(dict(trajectory.info)),
    }


def _trajectory(row: dict[str, Any]) -> Trajectory:
    return Trajectory(
        item_id=row["item_id"],
        messages=tuple(Message(message["who"], message["text"], message["loss"]) for message in row["messages"]),
        reward=row["reward"],
        success=row["success"],
        source=row["source"],
        info=json.loads(row["info"]),
    )
