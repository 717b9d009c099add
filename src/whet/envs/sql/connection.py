"""Runs one statement on a SQLite database: reading only, within limits, with the same result each time.

A statement is counted in steps of SQLite's virtual machine, so that the limit does not depend on the machine's speed.
The limit of seconds stands behind it. What a statement may call on is listed: reading, calculating, and looking at the
schema. `now` is a fixed time, and `random()` a fixed sequence, so that no result depends on when it was computed.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from whet.errors import text_of
from whet.seeds import seed_of

NOW = "2025-01-01 12:00:00"
"""What `now` and `current_timestamp` mean to every statement."""
STEPS_A_LOOK = 100
"""Steps of the virtual machine between two looks at the limits."""
ROWS_A_FETCH = 100
MAX_STATEMENT = 20_000
"""Bytes of a statement."""
MAX_DEPTH = 200
"""Of an expression."""
MAX_PATTERN = 500
"""Bytes of a pattern of LIKE or GLOB, as long ones are slow."""

Row = tuple[Any, ...]

_REFUSED = frozenset(
    {
        *(sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT),
        *(sqlite3.SQLITE_CREATE_VTABLE, sqlite3.SQLITE_DROP_VTABLE),
        *(sqlite3.SQLITE_CREATE_TEMP_TABLE, sqlite3.SQLITE_CREATE_TEMP_VIEW),
        *(sqlite3.SQLITE_CREATE_TEMP_INDEX, sqlite3.SQLITE_CREATE_TEMP_TRIGGER),
    }
)
"""Everything else that writes is refused by SQLite itself, as the database is read-only, in words that agents know."""
_PRAGMAS = frozenset({"table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list"})
"""Those that only show the schema."""
_REFUSED_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer"})
_TIMES = ("date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff")
MAX_RANDOM_BYTES = 4096
"""The most that `randomblob` gives."""


class QueryError(Exception):
    """SQLite refused the statement, or a limit stopped it. The text is what an agent reads."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one statement may cost."""

    max_steps: int
    """Steps of SQLite's virtual machine."""
    timeout_s: float
    """Seconds, where the steps are slow ones."""
    max_rows: int
    """Of its result."""
    max_bytes: int
    """Of its result, over all rows."""
    max_value: int
    """Bytes of one text or blob, also of one on the way to the result."""


def run_query(database: bytes | Path, statement: str, limits: Limits) -> list[Row]:
    """The rows of a statement, all of them.

    Args:
        database: the bytes of a database file, or its path. It is opened for this statement, and never written.
    Raises: QueryError.
    """
    try:
        with ExitStack() as opened:
            connection = opened.enter_context(closing(_open(database)))
            connection.execute("PRAGMA query_only = 1")
            _fix_chance(connection, opened.enter_context(closing(sqlite3.connect(":memory:"))))
            return _fetch(connection, statement, limits)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
        raise QueryError(text_of(error) or type(error).__name__) from error


def _open(database: bytes | Path) -> sqlite3.Connection:
    if isinstance(database, Path):
        return sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.deserialize(database)
    return connection


def _fetch(connection: sqlite3.Connection, statement: str, limits: Limits) -> list[Row]:
    for limit, most in (
        (sqlite3.SQLITE_LIMIT_LENGTH, limits.max_value),
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, MAX_STATEMENT),
        (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, MAX_DEPTH),
        (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
    ):
        connection.setlimit(limit, most)
    connection.set_authorizer(_authorize)
    meter = _Meter(limits)
    connection.set_progress_handler(meter, STEPS_A_LOOK)
    try:
        return list(_counted(connection.execute(statement), limits))
    except sqlite3.OperationalError as error:
        if meter.reason:
            raise QueryError(meter.reason) from error
        raise


class _Meter:
    """Stops a statement at its limit of steps or seconds."""

    def __init__(self, limits: Limits) -> None:
        self._steps_left, self._limits = limits.max_steps, limits
        self._end = time.monotonic() + limits.timeout_s
        self.reason = ""

    def __call__(self) -> bool:
        self._steps_left -= STEPS_A_LOOK
        if self._steps_left < 0:
            self.reason = f"interrupted: the query takes more than {self._limits.max_steps:,} steps"
        elif time.monotonic() > self._end:
            self.reason = f"interrupted: the query takes more than {self._limits.timeout_s:g} seconds"
        return bool(self.reason)


def _counted(cursor: sqlite3.Cursor, limits: Limits) -> Iterator[Row]:
    num_rows = num_bytes = 0
    while rows := cursor.fetchmany(ROWS_A_FETCH):
        num_rows += len(rows)
        num_bytes += sum(len(value) if isinstance(value, str | bytes) else 8 for row in rows for value in row)
        if num_rows > limits.max_rows:
            raise QueryError(f"interrupted: the result has more than {limits.max_rows:,} rows")
        if num_bytes > limits.max_bytes:
            raise QueryError(f"interrupted: the result has more than {limits.max_bytes:,} bytes")
        yield from rows


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    is_refused = action in _REFUSED
    if action == sqlite3.SQLITE_FUNCTION:
        is_refused = (second or "").lower() in _REFUSED_FUNCTIONS
    elif action == sqlite3.SQLITE_PRAGMA:
        is_refused = (first or "").lower() not in _PRAGMAS
    return sqlite3.SQLITE_DENY if is_refused else sqlite3.SQLITE_OK


def _fix_chance(connection: sqlite3.Connection, plain: sqlite3.Connection) -> None:
    """Puts a fixed time and a fixed sequence in the place of the clock and of chance.

    Args:
        plain: another connection, which computes dates and times.
    """
    for name in _TIMES:
        connection.create_function(name, -1, _at_fixed_time(plain, name), deterministic=True)
    for name, form in (("timestamp", "%Y-%m-%d %H:%M:%S"), ("date", "%Y-%m-%d"), ("time", "%H:%M:%S")):
        function = _at_fixed_time(plain, "strftime", form)
        connection.create_function(f"current_{name}", 0, function, deterministic=True)
    draws = count()
    connection.create_function("random", 0, lambda: seed_of("random()", next(draws)) - 2**63)
    connection.create_function("randomblob", 1, lambda size: _random_bytes(size, next(draws)))


def _at_fixed_time(plain: sqlite3.Connection, name: str, *given: str) -> Callable[..., Any]:
    """SQLite's own function, with `NOW` in the place of now. `given` are its first arguments."""
    place = 1 if name == "strftime" else 0

    def call(*arguments: Any) -> Any:
        values = [*given, *arguments]
        if len(values) == place:
            values.append(NOW)  # without a time, it is now
        values = [NOW if isinstance(value, str) and value.strip().lower() == "now" else value for value in values]
        return plain.execute(f"SELECT {name}({', '.join('?' * len(values))})", values).fetchone()[0]

    return call


def _random_bytes(size: Any, draw: int) -> bytes:
    num_bytes = min(MAX_RANDOM_BYTES, max(1, size if isinstance(size, int) else 1))
    parts = range(-(-num_bytes // 8))
    return b"".join(seed_of("randomblob", draw, part).to_bytes(8, "big") for part in parts)[:num_bytes]
