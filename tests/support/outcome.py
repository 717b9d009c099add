"""What a run came to, without what depends on the clock."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from whet.run_folder.logs import Logs

NOT_COMPARED = ("time/", "throughput/", "cluster/")


def outcome(folder: Path) -> dict[str, Any]:
    """Metrics of all steps, and digests of the weights that the run ended with."""
    rows = [
        {key: value for key, value in row.items() if not key.startswith(NOT_COMPARED)}
        for row in Logs(folder).rows("metrics.jsonl")
    ]
    newest = sorted((folder / "checkpoints").glob("step_*"))[-1]
    weights = {str(f.relative_to(newest)): sha256(f.read_bytes()).hexdigest() for f in newest.rglob("*.safetensors")}
    return {"rows": rows, "weights": weights}
