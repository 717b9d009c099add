"""Plain numbers, exactly."""

from __future__ import annotations

import re
from decimal import Decimal

_SCIENTIFIC = re.compile(
    r"([-+]?)\(?\s*([-+]?)\s*([0-9]*\.?[0-9]*)\s*\)?(?:\\cdot\s*10\s*\^\{\s*([-+]?)\s*([0-9]{1,3})\s*\})?\)?"
)


def number(latex: str) -> Decimal | None:
    r"""The exact value of a plain number as `read` writes it: `-0.50`, `2.9\cdot 10^{-19}`. None for anything else."""
    match = _SCIENTIFIC.fullmatch(latex.strip())
    if not match or not re.search("[0-9]", match[3]) or len(match[3]) > 1000:
        return None
    sign, inner, digits, minus, power = match.groups(default="")
    return Decimal(f"{'-' * (sign + inner).count('-') if sign != inner else ''}{digits}e{minus}{power or 0}")


def plain(value: Decimal) -> str:
    """All digits, without trailing zeros: `18.0` is `18`."""
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text
