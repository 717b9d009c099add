"""Answers that pick an option, A to J."""

from __future__ import annotations

import re

from mathgrade.texts import DRESS, without_text_commands

_LABEL = r"(?:\(([A-Ja-j])\)|([A-J])[).:]|([a-j])\)|([A-J]))"
_LEAD = r"(?:the\s+)?(?:correct\s+)?(?:option|choice|answer|letter)\s*(?:is\s*)?:?\s*"
_CHOICE = re.compile(rf"(?:{_LEAD})?{_LABEL}(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_TAKEN_BACK = re.compile(
    r"\b(?:not|cannot|false|wrong|incorrect|impossible|excluded|ruled|never|instead|rather|maybe|perhaps|unless|except|but|if)\b"
    r"|n't|\bor not\b",
    re.IGNORECASE,
)
_OPEN_OPTION = re.compile(r"(?:it )?(?:cannot|can't|can not) be determined.*", re.IGNORECASE | re.DOTALL)
_OTHER_LABEL = re.compile(r"[(\[][A-Ja-j][)\]]|(?<![\w'.])[A-HJ](?![\w'])(?!\s+[a-z]{2})|(?<!\w)[A-Ja-j][)](?!\w)")


def choice(text: str) -> str | None:
    """The one option, A to J, that a text picks: `C`, `(C) 40`, `C. 40`, `option C`. None: none, several, or a text
    that says more than the option's text (`C or not`, `anything but C`)."""
    text = DRESS.sub("", without_text_commands(text)).strip().strip("*_").strip().rstrip(".").strip()
    if re.fullmatch(r"[a-j]", text):
        return text.upper()
    match = _CHOICE.fullmatch(text)
    if not match:
        return None
    letter = next(group for group in match.groups()[:4] if group)
    rest = match["rest"].lstrip(" \t\n,.:;*-\u2013").rstrip()
    if match[4] and (rest or not match[4].isupper()):  # `C 40`, `a number`: not a label
        return None
    if _OTHER_LABEL.search(rest) or (_TAKEN_BACK.search(rest) and not _OPEN_OPTION.fullmatch(rest)):
        return None
    return letter.upper()


def is_choice(reference: str) -> bool:
    r"""Whether a reference is an option: `C`, `(C)`, `\text{(C)}`."""
    return re.fullmatch(r"[A-J]|\([A-Ja-j]\)", DRESS.sub("", without_text_commands(reference)).strip()) is not None
