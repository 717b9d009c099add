"""A program for the sandbox that runs the Python that a request holds. The scorer is for it to attack."""

from __future__ import annotations

from typing import Any


def score(text: str) -> float:
    return 1.0 if text == "right" else 0.0


def warm() -> None:
    import ctypes  # noqa: F401 - so that it costs an attack no time


def prepare(common: dict[str, Any]) -> dict[str, Any]:
    if common.get("do") == "raise":
        raise ValueError("no such item")
    while common.get("do") == "hang":
        pass
    return {"calls": []}


def answer(prepared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    prepared["calls"].append(own)
    space = {"prepared": prepared, "own": own}
    exec(own.get("code", ""), space)
    return {"score": score(own.get("text", "")), "calls": len(prepared["calls"]), "said": space.get("said")}
