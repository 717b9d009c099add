"""The settings of AutoMathCritique."""

from __future__ import annotations

from typing import Literal

from whet.methods.critique_data.config import CritiqueDataConfig


class AutoCritiqueConfig(CritiqueDataConfig):
    """AutoMathCritique: wrong solutions, critiques of them with hints, and filters."""

    method: Literal["auto_critique"] = "auto_critique"
