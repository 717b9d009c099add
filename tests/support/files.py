"""Files of questions, as users have them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from whet.tasks.chains import sample_chains

CHAINS = ("data.kind=file", "data.grader=chains")
"""Settings for files of `chain_rows`: the tiny model answers them in its own dialect."""


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    return path


def sums(numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Plain rows, a question each."""
    return [{"question": f"What is {n} + {n}?", "answer": 2 * n} for n in numbers]


def chain_rows(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Problems of the tiny world."""
    chains = islice(sample_chains("train", seed, min_steps=3, max_steps=4), count)
    return [{"question": chain.text, "answer": str(chain.values[-1])} for chain in chains]
