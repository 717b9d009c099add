"""Mathematics by name: commands, functions, letters, words, environments, each written so that it has one reading."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import replace

from mathgrade.reading.tokens import Token, Unreadable, is_command, is_sign

Piece = tuple[str, str, bool]
"""LaTeX; its kind, for the next piece; whether a value before it multiplies it.

Kinds are "" (nothing), "operator", "function" (one that waits for its argument), "letter" (a variable) and "value"
(anything else that can be multiplied)."""

_SPELLED_LETTERS = {
    "E": r"\text{capitalE}",
    "I": r"\text{capitalI}",
    "d": r"\text{smalld}",
    r"\gamma": r"\text{smallgamma}",
    r"\Gamma": r"\text{capitalgamma}",
}
r"""Letters that are written as words, as is `e` with a subscript. The parser would read E as e, I as the imaginary unit
without its power or subscript, `d\cdot b` as one name, and a gamma as a function."""
_E_WITH_SUBSCRIPT = r"\text{smalle}"
FUNCTIONS = {
    *("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "arccot", "sinh", "cosh", "tanh"),
    *("log", "ln", "exp", "max", "min", "gcd", "lcm", "det", "sum", "prod"),
}
OF_ANGLES = {"sin", "cos", "tan", "cot", "sec", "csc"}
"""Functions whose argument may be in degrees."""
SPELLED = {
    "pi": "pi", "infinity": "infty", "inf": "infty", "theta": "theta", "alpha": "alpha", "beta": "beta", "union": "cup",
}  # fmt: skip
"""Commands that are also written without a backslash."""
LETTERS = {
    *("alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota", "kappa"),
    *("lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "phi", "varphi", "chi", "psi", "omega", "Gamma", "Delta"),
    *("Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega", "ell"),
}
_CONSTANTS = {"pi", "infty"}
_SETS = {"emptyset", "varnothing"}
RELATIONS = {
    "le": r"\le ", "leq": r"\le ", "leqslant": r"\le ", "ge": r"\ge ", "geq": r"\ge ", "geqslant": r"\ge ",
    "ne": r"\ne ", "neq": r"\ne ", "lt": "<", "gt": ">", "in": r"\in ", "cup": r"\cup ", "cap": r"\cap ",
    "setminus": r"\setminus ", "subset": r"\subset ", "subseteq": r"\subset ", "notin": r"\notin ",
}  # fmt: skip
OPERATORS = {"cdot": r"\cdot ", "times": r"\cdot ", "div": "/", "ast": r"\cdot ", "bmod": r"\mod ", "mod": r"\mod "}
_SHAPES = {"angle", "triangle", "overline", "overrightarrow", "vec", "hat", "bar", "widehat", "underline"}
_FENCES = {"lfloor": "rfloor", "lceil": "rceil"}
_BARS = {"|", "lvert", "rvert", "vert", "mid"}
_ENGLISH = frozenset(
    """
    the not and but two six ten one all any yes no is it so he she we of to in as at by be or if an my me on up us
    few off out per sum was are her his its for nor yet too low odd old new ago ask get has had
    """.split()  # noqa: SIM905
)
"""Short words that are no products of letters."""
_ENVIRONMENTS = {"pmatrix", "bmatrix", "matrix", "vmatrix", "array"}


def with_spelled_letters(letter: str) -> str:
    """A letter as LaTeX that latex2sympy reads as a variable."""
    return _SPELLED_LETTERS.get(letter, letter)


def without_spelled_letters(latex: str) -> str:
    """LaTeX with the letters as they were."""
    for letter, spelled in (*_SPELLED_LETTERS.items(), ("e", _E_WITH_SUBSCRIPT)):
        latex = latex.replace(spelled, letter)
    return latex


class Commands(ABC):
    """A cursor over tokens, and what to do with those that have a name."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.at = tokens, 0
        self.letters = False
        """A variable was read."""

    @abstractmethod
    def sequence(self, closers: frozenset[str]) -> str:
        """Mathematics up to one of the closing tokens, which is left."""

    @abstractmethod
    def argument(self, *, brackets: bool = False, whole_number: bool = False) -> str:
        """A command's argument: a group, or one token."""

    def take(self) -> Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def peek(self, ahead: int = 0) -> Token | None:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def expect(self, closing: str) -> None:
        token = self.peek()
        if token is None or token.text != closing:
            raise Unreadable(f"a bracket without its {closing}")
        self.at += 1

    def _letter(self, token: Token) -> Piece:
        self.take()
        self.letters = True
        subscript = self._subscript()
        latex = (_E_WITH_SUBSCRIPT if token.text == "e" and subscript else with_spelled_letters(token.text)) + subscript
        following = self.peek()
        if following is not None and is_sign(following, "'"):
            raise Unreadable("a prime")
        if following is not None and is_sign(following, "(") and token.text in "fghFGHPQpqWTVEN":
            self.at += 1
            inside = self.sequence(frozenset({")"}))
            self.expect(")")
            return f"{latex}({inside})", "value", False
        return latex, "letter", False

    def _subscript(self) -> str:
        following = self.peek()
        if following is None or not is_sign(following, "_"):
            return ""
        self.at += 1
        token = self.peek()
        inside = re.sub(r"[^A-Za-z0-9,+-]", "", without_spelled_letters(self.argument()))
        if not inside or token is None:
            raise Unreadable("an empty subscript")
        return f"_{{{inside}}}"

    def _word(self, token: Token, before: str) -> Piece:
        """A word in mathematics: a function's name, or letters side by side."""
        if token.text in FUNCTIONS or token.text == "sqrt":
            self.tokens[self.at] = replace(token, kind="command")
            return self._command(self.tokens[self.at], before)
        if token.text in SPELLED:
            self.tokens[self.at] = replace(token, kind="command", text=SPELLED[token.text])
            return self._command(self.tokens[self.at], before)
        is_name = token.math and token.text.isupper()
        if (token.text.lower() in _ENGLISH and not token.math) or len(token.text) > (8 if is_name else 3):
            raise Unreadable(f"nothing accounts for {token.text!r}")
        self.take()
        self.letters = True
        return r"\cdot ".join(map(with_spelled_letters, token.text)) + self._subscript(), "letter", False

    def _text(self, token: Token, before: str) -> Piece:
        r"""`\mathrm{lcm}`, `\text{E}`, `\text{Area}` where mathematics may stand."""
        if token.text in FUNCTIONS:
            self.tokens[self.at] = replace(token, kind="command")
            return self._command(self.tokens[self.at], before)
        if not re.fullmatch(r"[A-Za-z]{1,20}", token.text) or before in ("value", "letter"):
            raise Unreadable(f"nothing accounts for {token.text!r}")
        self.take()
        self.letters = True
        latex = with_spelled_letters(token.text) if len(token.text) == 1 else rf"\text{{{token.text}}}"
        return latex + self._subscript(), "letter", False

    def _environment(self, token: Token) -> Piece:
        name = token.text.partition(":")[2]
        if token.text.startswith("e:") or name not in _ENVIRONMENTS:
            raise Unreadable(f"nothing accounts for {name!r}")
        self.take()
        rows: list[str] = []
        cells: list[str] = []
        end = f"e:{name}"
        while True:
            cells.append(self.sequence(frozenset({"&", "\\\\", end, "\\"})))
            token_or_none = self.peek()
            if token_or_none is None:
                raise Unreadable(f"{name} has no end")
            mark = self.take().text
            if mark == "&":
                continue
            if any(cells):
                rows.append(" & ".join(cells))
            cells = []
            if mark == end:
                break
        shown = "pmatrix" if name in ("array", "matrix", "bmatrix") else name
        return rf"\begin{{{shown}}}" + r" \\ ".join(rows) + rf"\end{{{shown}}}", "value", True

    def _command(self, token: Token, before: str) -> Piece:
        name = token.text
        self.take()
        if name in ("frac", "dfrac", "tfrac", "cfrac"):
            return rf"\frac{{{self.argument()}}}{{{self.argument()}}}", "value", True
        if name in ("binom", "dbinom", "tbinom"):
            return rf"\binom{{{self.argument()}}}{{{self.argument()}}}", "value", True
        if name == "sqrt":
            return self._root()
        if name in FUNCTIONS:
            return self._function(name)
        if name in LETTERS:
            self.letters = True
            return with_spelled_letters(rf"\{name}") + (self._subscript() or " "), "letter", False
        if name in _CONSTANTS:
            return rf"\{name} ", "letter", False
        if name in _SETS:
            return r"\emptyset ", "value", False
        if name == "mathbb":
            return rf"\mathbb{{{self.argument()}}}", "value", False
        if name in RELATIONS:
            return RELATIONS[name], "operator", False
        if name in OPERATORS:
            return OPERATORS[name], "operator", False
        if name in _SHAPES:
            return self._shape(name)
        if name in _FENCES:
            inside = self.sequence(frozenset({_FENCES[name]}))
            self.expect(_FENCES[name])
            return rf"\{name} {inside}\{_FENCES[name]} ", "value", True
        if name in _BARS:
            return self._bar()
        raise Unreadable(f"nothing accounts for \\{name}")

    def _root(self) -> Piece:
        index = ""
        following = self.peek()
        if following is not None and is_sign(following, "["):
            self.at += 1
            index = f"[{self.sequence(frozenset({']'}))}]"
            self.expect("]")
        return rf"\sqrt{index}{{{self.argument(brackets=True)}}}", "value", True

    def _function(self, name: str) -> Piece:
        latex = rf"\{name}"
        for mark in ("_", "^", "_"):
            following = self.peek()
            if following is not None and is_sign(following, mark):
                self.at += 1
                latex += f"{mark}{{{self.argument()}}}"
        if self.peek() is None:
            raise Unreadable(f"{name} of nothing")
        return f"{latex} ", "function", False

    def _shape(self, name: str) -> Piece:
        r"""`\overline{AB}`, `\angle ABC`: names, whose letters are no product."""
        self.letters = True
        if name in ("angle", "triangle"):
            following = self.take() if self.peek() is not None else None
            if following is None or following.kind not in ("word", "letter"):
                raise Unreadable(f"nothing accounts for \\{name}")
            return rf"\text{{{name}{following.text}}}", "letter", False
        inside = re.sub(r"[^A-Za-z0-9]", "", self.argument())
        if not inside:
            raise Unreadable(f"\\{name} over nothing")
        return rf"\text{{{name}{inside}}}", "letter", False

    def _bar(self) -> Piece:
        inside = self.sequence(frozenset({"|", "rvert", "vert", "mid"}))
        if self.peek() is None or not inside:
            raise Unreadable("a bar without a partner")
        self.at += 1
        return f"|{inside}|", "value", True

    def _degree(self) -> Piece:
        r"""The sign of degrees in `\sin 30^\circ`, as a factor."""
        num_braces = 0
        while is_sign(self.take(), "{"):
            num_braces += 1
        for _ in range(num_braces):
            self.expect("}")
        return r"\cdot \frac{\pi}{180}", "value", False

    def _is_degree(self, at: int) -> bool:
        while at < len(self.tokens) and is_sign(self.tokens[at], "{"):
            at += 1
        return at < len(self.tokens) and is_command(self.tokens[at], "circ", "degree")
