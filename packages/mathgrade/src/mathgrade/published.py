r"""The rule-based verifier of the published Critique-RL evaluation (itself after MAmmoTH's), written from its
description, so that numbers can be compared with published ones. For training use `mathgrade.grade`.

Its quirks are kept, since the published numbers contain them. Triggers are case-sensitive, and the first number after
`The answer is` counts (`20% of 50 = 10` is 20). There is no numeric tolerance, an article can be read as option A, and
two texts without any number are equal. Two quirks are not kept. Model text is never evaluated as code, so a formula
that is no plain number, fraction or power of ten stays text. And `.35625`, of which the published pattern reads 35625,
is read as 0.35625.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Literal, get_args

from mathgrade.boxes import last_boxed

SetName = Literal["gsm8k", "svamp", "math", "aqua", "mathqa", "theoremqa"]
SET_NAMES: tuple[str, ...] = get_args(SetName)

_TRIGGER = re.compile(r"[Tt]he answer is:?")
_NUMBER = re.compile(r"-?(?:\d+/?\.?\d*|\.\d+)")
_QUANTITY = re.compile(r"(-?\d[\d,./]*)\s*[A-Za-z]{2}[A-Za-z .^\d]*")
"""A number and its unit."""


def extract(set_name: str, text: str) -> str:
    """The final answer in `text`, normalised; empty where there is none.

    Raises: ValueError for a set that is not one of `SET_NAMES`.
    """
    if set_name not in _READERS:
        raise ValueError(f"no published verifier for {set_name!r}; there is one for {', '.join(SET_NAMES)}")
    parts = _TRIGGER.split(text)
    return _READERS[set_name](parts[-1].strip("\n").rstrip("./ \n").strip(), len(parts) > 1)


def same_answer(set_name: str, reference: str, reply: str) -> bool:
    """Whether both texts have the same final answer: equal letter by letter, but for case and `\\text{}`."""
    gold, answer = (_plain(extract(set_name, text)) for text in (reference, reply))
    if re.fullmatch(r"\([a-z]\)", gold):
        return gold in answer
    return gold == answer


def _plain(text: str) -> str:
    return re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text).strip().lower()


# --- one reader a set: (text after the last trigger, whether there was a trigger) -> answer -----------------------


def _first_or_last(matches: list[str], triggered: bool) -> str:
    return (matches[0] if triggered else matches[-1]) if matches else ""


def _read_number(text: str, triggered: bool) -> str:
    return _as_number(_first_or_last(_NUMBER.findall(text.replace(",", "")), triggered))


def _read_option(text: str, triggered: bool) -> str:
    return _first_or_last(re.findall(r"\b[A-J]\b", text.upper()), triggered)


def _read_math(text: str, triggered: bool) -> str:
    boxed = last_boxed(text)
    if boxed:
        return _clean_latex(boxed[1])
    if triggered:
        right = text.rpartition("=")[2].strip(" $.")
        quantity = _QUANTITY.fullmatch(right)
        return _clean_latex(quantity[1] if quantity else right)
    return _read_number(text, triggered)


def _read_theorem(text: str, triggered: bool) -> str:
    lowered = text.lower()
    if "yes" in lowered or "true" in lowered:
        return "True"
    if "no" in lowered or "false" in lowered:
        return "False"
    option = re.search(r"\([a-d]\)", lowered)
    if option:
        return option.group()
    boxed = last_boxed(text)
    right = (boxed[1] if boxed else text).rpartition("=")[2].strip(" $.")
    quantity = _QUANTITY.fullmatch(right)
    return _evaluate(quantity[1] if quantity else right)


_READERS: dict[str, Callable[[str, bool], str]] = {
    "gsm8k": _read_number,
    "svamp": _read_number,
    "math": _read_math,
    "aqua": _read_option,
    "mathqa": _read_option,
    "theoremqa": _read_theorem,
}


# --- normal forms ---------------------------------------------------------------------------------------------------


def _as_number(text: str) -> str:
    """The number without trailing zeros; a fraction as a decimal."""
    text = re.sub(r"^(-?)\.", r"\g<1>0.", text.rstrip("/."))
    top, slash, bottom = text.partition("/")
    if slash and len(text) < 40 and Fraction(bottom.rstrip(".")):  # x/0 stays text
        return _as_number(f"{float(Fraction(top) / Fraction(bottom)):.15g}")
    return text.rstrip("0").rstrip(".") if "." in text else text


_TEN = r"(?:\*|\\times|\\cdot|x|×)\s*10\s*\^\s*\{?(?P<power>[+-]?\d{1,2})\}?"
_VALUE = re.compile(rf"(?P<top>-?\d+(?:\.\d*)?|-?\.\d+)\s*(?:/\s*(?P<bottom>\d+(?:\.\d+)?)|{_TEN})?")


def _evaluate(text: str) -> str:
    r"""A number, a fraction or a power of ten as a decimal; any other text unchanged."""
    bare = re.sub(r"\\[dt]?frac\{(-?[\d.]+)\}\{([\d.]+)\}", r"\1/\2", text.replace(",", ""))
    match = _VALUE.fullmatch(bare.strip())
    if not match or len(bare) > 40 or (match["bottom"] and not Fraction(match["bottom"])):
        return text
    value = Fraction(match["top"].rstrip(".")) / Fraction(match["bottom"] or 1)
    return f"{float(value * Fraction(10) ** int(match['power'] or 0)):.15g}"


_LATEX_RULES = (
    (r"\\[dt]frac", r"\\frac"),
    (r"\\(?:left|right|!)(?![a-z])", ""),
    (r"\^\s*\{?\s*\\circ\s*\}?|°", ""),
    (r"\\?%|\\?\$|\\ ", ""),
    (r"\s+", ""),
    (r"^[A-Za-z]\w?=", ""),
    (r"\\frac(\d)(\d)(?!\d)", r"\\frac{\1}{\2}"),
    (r"\\frac(\d)\{", r"\\frac{\1}{"),
    (r"^(-?\d+)/(\d+)$", r"\\frac{\1}{\2}"),
)


def _clean_latex(text: str) -> str:
    for pattern, replacement in _LATEX_RULES:
        text = re.sub(pattern, replacement, text)
    return text.rstrip(".")
