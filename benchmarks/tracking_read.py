"""Prints as JSON what a tracker holds of a run: `python benchmarks/tracking_read.py KIND FOLDER`.

It runs in the tracker's own environment, and imports nothing of whet: the tracker's files are read as its users would.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEADER = 32768, 7
"""Of wandb's files, which are logs in LevelDB's format after seven bytes of their own."""


def tensorboard(folder: Path) -> dict[str, Any]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    tags = events.Tags()
    texts = {
        tag: [[text.decode() for text in make_ndarray(event.tensor_proto)] for event in events.Tensors(tag)]
        for tag in tags["tensors"]
    }
    return {
        "points": [(tag, point.step, point.value) for tag in tags["scalars"] for point in events.Scalars(tag)],
        "traces": sum(len(part) for tag in texts if tag.endswith("/traces") for part in texts[tag]),
        "table": texts.get("results", [[""]])[-1][0],
        "alerts": len(texts.get("alerts", [[]])[-1]),
    }


def trackio(folder: Path) -> dict[str, Any]:
    with sqlite3.connect(folder / "whet.db") as database:
        rows = [(step, json.loads(metrics)) for step, metrics in database.execute("select step, metrics from metrics")]
        spans = [json.loads(spans) for (spans,) in database.execute("select spans from traces")]
        alerts = database.execute("select count(*) from alerts").fetchone()[0]
    numbers = [(step, name, value) for step, metrics in rows for name, value in metrics.items()]
    points = [(name, step, value) for step, name, value in numbers if isinstance(value, int | float)]
    tables = [metrics["results"]["_value"] for _, metrics in rows if "results" in metrics]
    return {
        "points": points,
        "traces": len(spans),
        "spans": sum(map(len, spans)),
        "table": json.dumps(tables[-1]) if tables else "",
        "alerts": alerts,
    }


def wandb(folder: Path) -> dict[str, Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    points, alerts, texts, num_traces = [], 0, "", 0
    for file in sorted(folder.rglob("*.wandb")):
        for data in _records(file.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            alerts += kind == "alert"
            if kind != "history":
                continue
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            step = items.pop("_step", record.history.step.num)
            points += [
                (name, step, value)
                for name, value in items.items()
                if name[0] != "_" and isinstance(value, int | float)
            ]
    for file in sorted(folder.rglob("*.table.json")):
        table = json.loads(file.read_text())
        if file.name.startswith("results"):
            texts = json.dumps(table)
        else:
            num_traces += len(table["data"])
    return {"points": points, "traces": num_traces, "table": texts, "alerts": alerts}


def mlflow(folder: Path) -> dict[str, Any]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    [run] = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    histories = [client.get_metric_history(run.info.run_id, name) for name in run.data.metrics]
    files = folder / "artifacts" / run.info.run_id / "artifacts"
    texts = [file.read_text() for file in files.glob("traces/*/*.md")]
    return {
        "points": [(point.key, point.step, point.value) for history in histories for point in history],
        "traces": sum(len(text.split("\n\n---\n\n")) for text in texts),
        "table": (files / "results.md").read_text(),
        "alerts": len(list(files.glob("alerts/*.md"))),
    }


def _records(data: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log. One that a kill cut off is left out."""
    position, whole = HEADER, b""
    while position + HEADER <= len(data):
        if BLOCK - position % BLOCK < HEADER:
            position += BLOCK - position % BLOCK
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        part = data[position + HEADER : position + HEADER + length]
        position += HEADER + length
        if kind == 0 or len(part) < length:
            return
        whole = part if kind in (1, 2) else whole + part
        if kind in (1, 4):  # full, or the last part
            yield whole


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]))))
