"""Rows of critiques in files, read back as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whet.methods.critique_data.formats import CritiqueRecord
from whet.types import Task


def record_of_row(row: Mapping[str, Any]) -> CritiqueRecord:
    """The inverse of `row_of`, but for `example`."""
    texts = {"id": row["id"], "question": row["question"], "response": row["answer"], "right": row["correct"]}
    texts |= {name: row[name] for name in ("critique", "refinement")}
    return CritiqueRecord.of(Task(id=row["id"], prompt=row["question"], info={**row["info"], **texts}))
