r"""Reads mathematics token by token and writes it as LaTeX that has one reading.

Products are written out (latex2sympy reads `2(3)` as the mixed number 2 + 3). So are mixed numbers, repeating decimals
and the arguments of commands (`\frac12`). A numeral's base is kept beside it. Anything that latex2sympy would ignore,
such as a prime, is refused.
"""

from __future__ import annotations

from dataclasses import replace

from mathgrade.reading.commands import FUNCTIONS, OF_ANGLES, SPELLED, Piece, with_spelled_letters
from mathgrade.reading.numerals import Numerals
from mathgrade.reading.phrases import MODIFIERS, known
from mathgrade.reading.tokens import Token, Unreadable, is_command, is_sign, words_of
from mathgrade.reading.units import unit_of

MAX_DEPTH = 40
_MATH_UNITS = frozenset(
    {"cm", "mm", "km", "kg", "ml", "mph", "kmh", "ft", "lb", "lbs", "oz", "sec", "hr", "hrs", "min", "pct"}
)
"""Short units that are read as such in mathematics, where other letters side by side are a product: `3rs`, `2mg`."""


class Rewriter(Numerals):
    """Stops at the first token that is no mathematics: a unit, a noun. `at` is its index.

    Args:
        nouns: counted nouns beside the known list.
    """

    def __init__(self, tokens: list[Token], nouns: frozenset[str]) -> None:
        super().__init__(tokens)
        self.nouns = nouns
        self._depth = 0
        self._of_angle = False
        """Inside the argument of a function of angles: degrees are a factor there, and elsewhere the answer's unit."""

    def side(self) -> str:
        latex = self.sequence(frozenset())
        if not latex:
            shown = " ".join(token.text for token in self.tokens[:6])
            raise Unreadable(f"nothing accounts for {shown!r}")
        return latex

    def sequence(self, closers: frozenset[str]) -> str:
        """Mathematics up to one of the closing tokens, which is not taken, or up to its end."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable("its brackets nest too deep")
        out: list[str] = []
        before = ""
        opened: int | None = None
        """The start of a function's argument without brackets."""
        outer = self._of_angle
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if self._closes(token, closers) or (not closers and self._is_tail(token, before)):
                break
            start = self.at
            piece, after, joins = self._next(token, before, bool(closers))
            if opened is not None and len(out) > opened and (after in ("operator", "function") or piece == ","):
                _close_argument(out, opened)
                opened, self._of_angle = None, outer
            if joins and before == "value":
                out.append(r"\cdot ")
            out.append(piece)
            if after == "function":
                opened, self._of_angle = len(out), token.text in OF_ANGLES
            elif opened == len(out) - 1 and is_sign(self.tokens[start], "(") and not self._is_powered():
                opened, self._of_angle = None, outer
            before = after
        if opened is not None:
            _close_argument(out, opened)
        self._of_angle = outer
        if before == "operator":
            raise Unreadable("it ends with an operator")
        self._depth -= 1
        return "".join(out).strip()

    def _closes(self, token: Token, closers: frozenset[str]) -> bool:
        name = token.text if token.kind in ("sign", "command") else f"end:{token.text}"
        return token.kind in ("sign", "command", "environment") and (
            name in closers or (token.kind == "environment" and token.text in closers)
        )

    def _is_tail(self, token: Token, before: str) -> bool:
        """Whether the mathematics ends here: a unit, a noun, a sign of one."""
        if before not in ("value", "letter"):
            return False
        following = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else None
        if is_sign(token, "%"):
            after = self.tokens[self.at + 2] if self.at + 2 < len(self.tokens) else None
            return after is None or following is None or following.text != "of" or after.kind != "number"
        if token.kind in ("text", "currency"):
            return True
        if is_sign(token, "^") and self._is_degree(self.at + 1):
            return not self._of_angle
        if is_command(token, "circ", "degree", "percent"):
            return True
        if token.kind == "word":
            return self._is_word_behind(token, following)
        if token.kind == "letter" and (not token.math or token.text == "L") and before == "value":
            return not self.letters and self._is_unit_letter(token, following)
        if (is_sign(token, "/") or is_sign(token, "(")) and following is not None and before == "value":
            words = words_of(following)
            after = self.tokens[self.at + 2] if self.at + 2 < len(self.tokens) else None
            if len(words) == 1 and len(words[0]) == 1:  # `5 (m)`, `5/h`; not `2(x + 1)`
                return unit_of(words[0]) is not None and not self.letters and (after is None or is_sign(after, ")"))
            return bool(words) and words[0] not in FUNCTIONS and words[0] not in SPELLED and words[0] != "sqrt"
        return False

    def _is_word_behind(self, token: Token, following: Token | None) -> bool:
        """A unit or noun, or something that nothing accounts for; not a function, nor letters side by side."""
        if token.text in SPELLED or token.text == "sqrt":
            return False
        if token.text in FUNCTIONS:  # `5 min`
            return following is None and unit_of(token.text) is not None
        if len(token.text) > 3 or (token.spaced and not token.math):
            return True
        if token.math:
            return token.text.lower() in _MATH_UNITS
        return token.text.lower() in MODIFIERS or known(token.text, self.nouns) is not None

    def _is_unit_letter(self, token: Token, following: Token | None) -> bool:
        """`5 m`, `18 a day`, `1.5 k dollars`; not `5 m n`."""
        if following is not None and (following.kind == "letter" or is_sign(following, "=", "+", "*", "(")):
            return False
        is_word = token.text in "ak" and following is not None and following.kind == "word"
        return is_word or unit_of(token.text) is not None

    def _next(self, token: Token, before: str, inside: bool) -> Piece:
        """Takes the next piece.

        Returns: its LaTeX, what it leaves before the next one, and whether a value before it multiplies it.
        """
        if token.kind == "number":
            return self._number(before)
        if token.kind == "letter":
            return self._letter(token)
        if token.kind == "word":
            return self._word(token, before)
        if token.kind == "text":
            return self._text(token, before)
        if token.kind == "environment":
            return self._environment(token)
        if token.kind == "command":
            return self._command(token, before)
        if token.kind == "sign":
            return self._sign(token, before, inside)
        raise Unreadable(f"nothing accounts for {token.text!r}")

    def _sign(self, token: Token, before: str, inside: bool) -> Piece:
        text = token.text
        self.take()
        if text in ("+", "-"):
            return text, "operator", False
        if text in ("*", "/", "**", "<", ">", ":"):
            if before not in ("value", "letter"):
                raise Unreadable(f"nothing stands before {text}")
            if text == ":":
                self._check_ratio()
            if text == "**":
                return self._power(), "value", False
            return {"*": r"\cdot ", ":": "/"}.get(text, text), "operator", False
        if text == "%":  # `20% of 50`
            self.at += 1
            return r"\cdot \frac{1}{100}\cdot ", "operator", False
        if text == "^":
            if before not in ("value", "letter"):
                raise Unreadable("a power of nothing")
            if self._of_angle and self._is_degree(self.at):
                return self._degree()
            return self._power(), "value", False
        if text == "!":
            following = self.peek()
            if before not in ("value", "letter") or (following is not None and is_sign(following, "!")):
                raise Unreadable("an exclamation mark")
            return "!", "value", False
        if text in ("(", "[", "\\{", "{"):
            return self._bracket(text, before)
        if text == "|":
            return self._bar()
        if text in (",", ";") and inside:
            return ",", "", False
        if text == "=" and inside:
            return "=", "operator", False
        raise Unreadable(f"nothing accounts for {text!r}")

    def _check_ratio(self) -> None:
        following, after = self.peek(), self.peek(1)
        if following is not None and following.kind == "number" and not following.text.strip("0."):
            raise Unreadable("a time, or a ratio to nothing")
        if after is not None and is_sign(after, ":"):
            raise Unreadable("a ratio of three")

    def _power(self) -> str:
        """The exponent, which may not have one of its own without brackets: readers differ on `2^3^2`."""
        latex = self._exponent()
        following = self.peek()
        if following is not None and is_sign(following, "^", "**"):
            raise Unreadable("a power of a power without brackets")
        return latex

    def _exponent(self) -> str:
        following = self.peek()
        if following is not None and is_sign(following, "-"):
            self.at += 1
            return f"^{{-{self.argument(whole_number=True)}}}"
        return f"^{{{self.argument(brackets=True, whole_number=True)}}}"

    def _bracket(self, opening: str, before: str) -> Piece:
        if opening == "{":
            inside = self.sequence(frozenset({"}"}))
            self.expect("}")
            if "," in inside:  # a set, as people write it who forget the backslash
                return rf"\{{{inside}\}}", "value", True
            return f"({inside})" if inside else "", "value" if inside else before, True
        if opening == "\\{":
            inside = self.sequence(frozenset({"\\}"}))
            self.expect("\\}")
            return rf"\{{{inside}\}}", "value", True
        inside = self.sequence(frozenset({")", "]"}))
        closing = self.peek()
        if closing is None:
            raise Unreadable("a bracket without a partner")
        if not inside:
            raise Unreadable("empty brackets")
        self.at += 1
        if "," not in inside and (opening, closing.text) != ("(", ")"):
            if (opening, closing.text) != ("[", "]"):
                raise Unreadable("brackets that do not match")
            return f"({inside})", "value", True
        if before in ("value", "letter") and "," in inside:
            raise Unreadable("a list in brackets behind a value")
        return f"{opening}{inside}{closing.text}", "value", True

    def argument(self, *, brackets: bool = False, whole_number: bool = False) -> str:
        r"""A command's argument: a group, or one token, of a number its first digit, as in TeX.

        Args:
            brackets: round brackets are a group too, as in `sqrt(2)`.
            whole_number: a number is taken whole, as people mean `2^10`.
        """
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable("its commands nest too deep")
        latex = self._argument(brackets=brackets, whole_number=whole_number)
        self._depth -= 1
        return latex

    def _argument(self, *, brackets: bool, whole_number: bool) -> str:
        token = self.peek()
        if token is None:
            raise Unreadable("a command without its argument")
        if is_sign(token, "{") or (brackets and is_sign(token, "(")):
            self.at += 1
            closing = "}" if token.text == "{" else ")"
            inside = self.sequence(frozenset({closing}))
            self.expect(closing)
            if not inside:
                raise Unreadable("an empty argument")
            return inside
        if token.kind == "number":
            if whole_number or len(token.text) == 1:
                self.at += 1
                return token.text
            # \frac12: the digits are an argument each
            self.tokens[self.at] = replace(token, text=token.text[1:], spaced=False)
            return token.text[0]
        if token.kind == "text":
            self.at += 1
            return token.text
        if token.kind == "word":
            self.tokens[self.at] = replace(token, text=token.text[1:], kind="word" if len(token.text) > 2 else "letter")
            self.letters = True
            return with_spelled_letters(token.text[0])
        if token.kind in ("letter", "command") or is_sign(token, "-"):
            if token.kind == "sign":
                self.at += 1
                return f"-{self.argument()}"
            piece, _, _ = self._next(token, "", True)
            return piece.strip()
        raise Unreadable("a command without its argument")


def _close_argument(out: list[str], opened: int) -> None:
    """Put brackets around a function's argument, up to here: `\\ln 2 \\cdot 3` is `\\ln(2) \\cdot 3`."""
    argument = "".join(out[opened:]).strip()
    if not argument:
        raise Unreadable("a function of nothing")
    del out[opened:]
    out.append(f"({argument})")
