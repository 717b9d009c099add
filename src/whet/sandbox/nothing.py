"""A program that does nothing, for `client.why_not`: whether a sandbox can be made at all."""

from __future__ import annotations

from typing import Any


def warm() -> None:
    pass


def prepare(common: dict[str, Any]) -> None:
    pass


def answer(prepared: None, private: dict[str, Any]) -> dict[str, Any]:
    return {}
