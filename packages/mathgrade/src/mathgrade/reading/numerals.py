r"""Numbers in mathematics: mixed numbers and coefficients written out, bases kept, repeating decimals as fractions."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

from mathgrade.reading.commands import OPERATORS, RELATIONS, Commands, Piece
from mathgrade.reading.tokens import Unreadable, is_command, is_sign

_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_NO_FACTORS = {*OPERATORS, *RELATIONS, "approx", "circ", "pm", "mp", "degree"}


def base_of(text: str) -> int | None:
    """The base that a text names: `5` or `five`. None: it names none."""
    return _BASES.get(text.lower()) or (int(text) if re.fullmatch("[0-9]{1,2}", text) else None)


class Numerals(Commands):
    """Reads a number with the parts after it that belong to it."""

    base: int | None = None
    """Of the last numeral that was written with one."""

    def _number(self, before: str) -> Piece:
        token = self.take()
        if before == "letter":
            raise Unreadable(f"a letter before {token.text}")
        if before == "value":
            previous = self.tokens[self.at - 2]
            if previous.kind == "number":
                raise Unreadable(f"several numbers side by side: {previous.text} {token.text}")
        digits, exponent, power = token.text.lower().partition("e")
        latex = f"0{digits}" if digits.startswith(".") else digits
        if exponent:
            return rf"({latex}\cdot 10^{{{int(power)}}})", "value", True
        following = self.peek()
        if following is not None and is_sign(following, "_"):
            self.at += 1
            self.base = self._base(latex)
        elif (
            following is not None
            and is_command(following, "overline", "bar")
            and latex.rstrip("0123456789").endswith(".")
        ):
            self.at += 1
            latex = self._repeating(latex)
        elif "." not in latex and before != "value":
            latex = self._mixed(latex) if before == "operator" or not before else latex
            if "+" not in latex:
                latex = self._coefficient(latex)
        return latex, "value", True

    def _coefficient(self, top: str) -> str:
        r"""`3/4x` as `\frac{3}{4}x`: latex2sympy takes the letter below. The number itself before anything else."""
        slash, bottom, after = self.peek(), self.peek(1), self.peek(2)
        if slash is None or bottom is None or after is None or not is_sign(slash, "/") or bottom.kind != "number":
            return top
        is_factor = after.kind in ("letter", "command") or (after.kind == "word" and len(after.text) <= 3)
        is_factor = is_factor and not (after.kind == "command" and after.text in _NO_FACTORS)
        if not (is_factor or is_sign(after, "(")) or not re.fullmatch("[0-9]{1,15}", bottom.text):
            return top
        self.at += 2
        return rf"\frac{{{top}}}{{{bottom.text}}}"

    def _base(self, latex: str) -> int:
        following = self.peek(1)
        if following is not None and following.kind == "word" and is_sign(self.tokens[self.at], "{"):  # 204_{five}
            self.tokens[self.at + 1] = replace(following, kind="text")
            self.at += 1
            subscript = self.take().text
            self.expect("}")
        else:
            subscript = self.argument()
        base = base_of(subscript)
        if base is None or not re.fullmatch("[0-9]+", latex):
            raise Unreadable("a subscript at a number that is no base")
        return base

    def _repeating(self, latex: str) -> str:
        r"""`0.1\overline{6}` as a fraction."""
        period = self.argument()
        if not re.fullmatch("[0-9]{1,40}", period) or len(latex) > 80:
            raise Unreadable("a line over something else than a few digits")
        whole, _, decimals = latex.partition(".")
        scale = 10 ** len(decimals)
        value = Fraction(int(whole + decimals), scale) + Fraction(int(period), (10 ** len(period) - 1) * scale)
        return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"

    def _mixed(self, whole: str) -> str:
        r"""`3 1/2`, `3\frac{1}{2}` as a sum; the number itself where no proper fraction follows it."""
        start = self.at
        following = self.peek()
        fraction: tuple[str, str] | None = None
        if following is not None and is_command(following, "frac", "dfrac", "tfrac", "cfrac"):
            self.at += 1
            fraction = self.argument(), self.argument()
        elif following is not None and following.kind == "number" and following.spaced:
            slash, bottom = self.peek(1), self.peek(2)
            if slash is not None and bottom is not None and is_sign(slash, "/") and bottom.kind == "number":
                self.at += 3
                fraction = following.text, bottom.text
        if fraction is not None and _is_proper(*fraction):
            if self._is_powered():
                raise Unreadable("a power of a mixed number")
            return rf"({whole}+\frac{{{fraction[0]}}}{{{fraction[1]}}})"
        self.at = start
        return whole

    def _is_powered(self) -> bool:
        following = self.peek()
        return following is not None and is_sign(following, "^", "**", "!")


def _is_proper(top: str, bottom: str) -> bool:
    return all(re.fullmatch("[0-9]{1,15}", part) for part in (top, bottom)) and 0 < int(top) < int(bottom)
