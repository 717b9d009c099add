r"""What an answer says: every token of it accounted for, or `Unreadable`.

A token is accounted for as parsed mathematics, or by one of these rules, none of which can change the value:

* dress: `$ $`, `\( \)`, `\left`, spacing, `**emphasis**`, quotes, a full stop, brackets around the whole;
* a unit from the known list behind a number, a plain noun that is counted (`units`), a currency or percent sign;
* `about`, `exactly`, `a total of` before it, and `in total`, `each`, `because ...` behind it;
* the name of what the value is of (`x =`, `f(2) =`, `Total cost =`);
* a comma, semicolon, `and` or `or` between members of a list.

What is left over means that the answer is refused: `double 5`, `5 tenths`, `not 5` and `5 xy` are none of them 5. What
comes out is LaTeX in which products, mixed numbers and arguments are written out, since the parser behind it
(latex2sympy) would read `2(3)` as 5, drop the base of `204_5`, and ignore a prime.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction

from whet.grading.tokens import Token, Unreadable, tokenize
from whet.grading.units import NO_UNIT, SYMBOLS, UNITS, Unit, unit_of

__all__ = ["Member", "Reading", "Unreadable", "read"]

MAX_TOKENS = 3000
MAX_DEPTH = 40


@dataclass(frozen=True, slots=True)
class Member:
    """One member of the list that an answer is; most answers have one."""

    sides: tuple[str, ...]
    """LaTeX. Several: an equation, or a chain of equal values, as in `3 \\cdot 6 = 18`."""
    name: str = ""
    """LaTeX of what the value was said to be of, as the `x` of `x = 5`. Empty: it has no name, or one in words."""
    is_rough: bool = False
    """The sides are equal but for rounding."""
    unit: Unit = NO_UNIT
    """Of the last side; the other sides are already in it."""
    base: int | None = None
    """Of a numeral written with one, as `204_5`."""

    @property
    def number(self) -> Decimal | None:
        """The exact value of a lone plain number."""
        return number(self.sides[0]) if len(self.sides) == 1 else None


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer that was understood."""

    members: tuple[Member, ...]

    @property
    def key(self) -> str:
        """The same for answers that are written alike but for dress; what majority votes count."""
        return ", ".join(sorted(_shown(member.sides[-1]) for member in self.members))


def _shown(latex: str) -> str:
    value = number(latex)
    return latex.replace(" ", "") if value is None else plain(value)


def read(text: str, *, math: bool = False, nouns: frozenset[str] = frozenset()) -> Reading:
    r"""What an answer says.

    Args:
        math: the text is mathematics as a whole, as what stands in `\boxed{}`: single letters are variables there, and
            may be units elsewhere.
        nouns: words that may be counted beside those of the known list, lower case: the question's.
    Raises: Unreadable, with what in it nothing accounts for.
    """
    tokens = tokenize(text, math=math)
    if len(tokens) > MAX_TOKENS:
        raise Unreadable(f"it has {len(tokens)} tokens")
    tokens = _without_dress(tokens)
    if not tokens:
        raise Unreadable("it is empty")
    members = [member for part in _list(tokens) for member in _member(part, nouns)]
    if not members:
        raise Unreadable("it is empty")
    return Reading(tuple(members))


# --- numbers --------------------------------------------------------------------------------------------------------

_SCIENTIFIC = re.compile(
    r"\(?([-+]?)\s*([0-9]*\.?[0-9]*)\s*\)?(?:\\(?:cdot|times)\s*10\s*\^\{\s*([-+]?)\s*([0-9]{1,3})\s*\})?"
)


def number(latex: str) -> Decimal | None:
    r"""The exact value of a plain number as `read` writes it: `-0.50`, `2.9\cdot 10^{-19}`. None for anything else."""
    match = _SCIENTIFIC.fullmatch(latex.strip())
    if not match or not re.search("[0-9]", match[2]) or len(match[2]) > 1000:
        return None
    sign, digits, minus, power = match.groups(default="")
    return Decimal(f"{sign}{digits}e{minus}{power or 0}")


def plain(value: Decimal) -> str:
    """All digits, without trailing zeros: `18.0` is `18`."""
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


# --- dress and lists ------------------------------------------------------------------------------------------------

_OPEN = {"(", "[", "\\{", "{"}
_CLOSE = {")", "]", "\\}", "}"}
_LEADS = {"approximately", "about", "roughly", "exactly", "only", "just", "simply", "precisely", "around"}
"""Words before a number that leave it what it is."""
_CLOSINGS = (
    ("in", "total"), ("in", "all"), ("in", "the", "end"), ("each",), ("altogether",), ("total",), ("left",), ("overall",),
    ("old",), ("remaining",), ("long",), ("tall",), ("high",), ("wide",), ("away",), ("apiece",), ("per", "person"),
)  # fmt: skip
"""Words behind a number and its unit that leave it what it is."""
_MODIFIERS = frozenset(
    "more new different total whole full extra additional other remaining distinct possible red blue green yellow "
    "white black brown pink orange purple small large big long short of the square cubic sq cu positive unique".split()
)
"""Words between a number and a noun that leave the number what it is."""
_REASONS = {"because", "since"}
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_NAME_STOPS = {"not", "never", "no", "isn", "half", "twice", "double", "triple", "third", "quarter", "but"}


def _is(token: Token, *texts: str) -> bool:
    return token.kind == "sign" and token.text in texts


def _words(token: Token) -> list[str]:
    """The words of a word or text token. Empty for other tokens, and where there is more to it than words."""
    if token.kind == "text":
        return token.text.split() if re.fullmatch(r"[A-Za-z .'-]+", token.text) else []
    return [token.text] if token.kind == "word" or (token.kind == "letter" and not token.math) else []


def _without_dress(tokens: list[Token]) -> list[Token]:
    """Without what stands around the whole: emphasis, quotes, final punctuation, a reason."""
    for index, token in enumerate(tokens):
        if not token.math and token.kind == "word" and token.text in _REASONS and index:
            tokens = tokens[:index]
            break
    while tokens:
        first, last = tokens[0], tokens[-1]
        if _is(last, ".", ",", ";", ":") or (_is(last, "*", "**", "`", "_", '"', "'") and not _is_prime(tokens)):
            tokens = tokens[:-1]
        elif _is(first, "*", "**", "`", "_", '"', "'", ":", "•") or _is_command(first, "therefore", "bullet"):
            tokens = tokens[1:]
        else:
            break
    # Emphasis within: `**5** apples`. A power sign stands between two operands, without space on either side.
    kept: list[Token] = []
    for index, token in enumerate(tokens):
        inside = 0 < index < len(tokens) - 1
        if _is(token, "`") or (_is(token, "**") and not (inside and _is_operand(tokens[index - 1], tokens[index + 1]))):
            continue
        kept.append(token)
    return kept


def _is_prime(tokens: list[Token]) -> bool:
    return _is(tokens[-1], "'") and not any(_is(token, "'") for token in tokens[:-1])


def _is_operand(before: Token, after: Token) -> bool:
    ends = before.kind in ("number", "letter") or _is(before, ")", "}")
    return ends and (after.kind in ("number", "letter") or _is(after, "(", "-"))


def _is_command(token: Token, *names: str) -> bool:
    return token.kind == "command" and token.text in names


def _list(tokens: list[Token]) -> list[list[Token]]:
    """The members of the list, which commas, semicolons, `and` and `or` part outside of brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.kind == "sign" and token.text in _OPEN) - (token.kind == "sign" and token.text in _CLOSE)
        depth += token.kind == "environment" and (1 if token.text.startswith("b") else -1)
        is_word = token.kind in ("word", "text") and token.text in ("and", "or")
        if depth <= 0 and (is_word or _is(token, ",", ";")):
            # `1, and 2`: the comma and the word are one.
            if parts[-1] or not (is_word and len(parts) > 1):
                parts.append([])
            continue
        parts[-1].append(token)
    if any(not part for part in parts):
        raise Unreadable("a list in it has an empty place")
    return parts


# --- one member -----------------------------------------------------------------------------------------------------


@dataclass
class _Side:
    """One side of an equation, while it is read."""

    latex: str
    unit: Unit = NO_UNIT
    base: int | None = None
    is_words: bool = False
    is_name: bool = False
    has_letters: bool = False


def _member(tokens: list[Token], nouns: frozenset[str]) -> list[Member]:
    r"""A part of the list as its members: two where it holds `\pm`."""
    if any(_is_command(token, "pm", "mp") for token in tokens):
        upper = [_signed(token, "+", "-") for token in tokens]
        lower = [_signed(token, "-", "+") for token in tokens]
        return [*_member(upper, nouns), *_member(lower, nouns)]
    sides: list[list[Token]] = [[]]
    is_rough = False
    depth = 0
    for token in tokens:
        depth += (token.kind == "sign" and token.text in _OPEN) - (token.kind == "sign" and token.text in _CLOSE)
        if depth <= 0 and (_is(token, "=") or _is_command(token, "approx", "simeq", "doteq")):
            is_rough |= token.kind == "command"
            sides.append([])
        else:
            sides[-1].append(token)
    if not sides[0] and len(sides) > 1:  # `= 5`
        sides = sides[1:]
    if any(not side for side in sides):
        raise Unreadable("a side of an equation is empty")
    read_sides = [_side(side, nouns, may_be_words=index < len(sides) - 1) for index, side in enumerate(sides)]
    return [_joined(read_sides, is_rough)]


def _signed(token: Token, pm: str, mp: str) -> Token:
    return replace(token, kind="sign", text=pm if token.text == "pm" else mp) if _is_command(token, "pm", "mp") else token


def _joined(sides: list[_Side], is_rough: bool) -> Member:
    """`name = value`, `value = name`, a chain of values, or an equation."""
    name = ""
    if len(sides) > 1 and (sides[0].is_words or sides[0].is_name):
        name = "" if sides[0].is_words else sides[0].latex
        sides = sides[1:]
    elif len(sides) == 2 and sides[1].is_name and not sides[0].has_letters:
        name, sides = sides[1].latex, sides[:1]
    last = sides[-1]
    latex = []
    for side in sides:
        if side.unit.dimension and last.unit.dimension and side.unit.dimension != last.unit.dimension:
            raise Unreadable("its sides have other units")
        same = not (side.unit.dimension and last.unit.dimension) or side.unit.size == last.unit.size
        latex.append(side.latex if same else scaled(side.latex, side.unit.size / last.unit.size))
    return Member(tuple(latex), name, is_rough, last.unit, last.base)


def scaled(latex: str, factor: Fraction) -> str:
    """The LaTeX of a value times a factor."""
    return latex if factor == 1 else rf"({latex})\cdot \frac{{{factor.numerator}}}{{{factor.denominator}}}"


def _side(tokens: list[Token], nouns: frozenset[str], *, may_be_words: bool) -> _Side:
    """The mathematics of a side, and the unit behind it.

    Args:
        may_be_words: the side may be a name in words, as it is not the last one.
    """
    words = [word for token in tokens for word in _words(token)]
    if may_be_words and all(_words(token) for token in tokens) and len(words) <= 8:
        if {word.lower() for word in words} & _NAME_STOPS:
            raise Unreadable(f"nothing accounts for {' '.join(words)!r}")
        if any(len(word) > 1 for word in words):
            return _Side(" ".join(words), is_words=True)
    tokens, unit = _leads(list(tokens))
    rewriter = _Rewriter(tokens, nouns)
    latex = rewriter.side()
    tail = tokens[rewriter.at :]
    power, found, is_rate = _tail(tail, nouns)
    if power:
        latex = rf"({latex})\cdot 10^{{{power}}}"
    if found.dimension and unit.dimension and not is_rate and found != unit:
        raise Unreadable("it has two units")
    unit = unit.times(found) if is_rate or not unit.dimension else unit
    is_name = not tail and _NAME.fullmatch(latex.replace(" ", "")) is not None
    return _Side(latex, unit, rewriter.base, is_name=is_name, has_letters=rewriter.letters)


_ATOM = r"(?:(?!\\(?:pi|infty|cdot|frac|sqrt|binom)\b)\\?[A-Za-z]+(?:_\{[^{}]*\})?|\\text\{[A-Za-z0-9]+\})"
_PRODUCT = rf"{_ATOM}(?:(?:\\cdot)?{_ATOM}){{0,3}}"
_NAME = re.compile(
    rf"{_PRODUCT}|{_ATOM}\([^()]*\)|\|{_PRODUCT}\||{_PRODUCT}/{_PRODUCT}|\\frac\{{{_PRODUCT}\}}\{{{_PRODUCT}\}}"
    rf"|\({_PRODUCT}(?:,{_PRODUCT})*\)"
)
"""`x`, `x_{1}`, `AB`, `f(2)`, `|AB|`, `A:B`, `(x,y)`: what a value may be of."""


def _leads(tokens: list[Token]) -> tuple[list[Token], Unit]:
    """The tokens without words that leave the number what it is and without a currency sign; and that currency."""
    unit = NO_UNIT
    while len(tokens) > 1:
        words = [token.text.lower() for token in tokens[:3] if token.kind == "word"]
        if tokens[0].kind in ("word", "text") and tokens[0].text.lower() in _LEADS:
            tokens = tokens[1:]
        elif tokens[0].text.lower() == "a" and words[:2] == ["total", "of"]:
            tokens = tokens[3:]
        elif tokens[0].kind == "currency" and tokens[0].text in SYMBOLS:
            tokens, unit = tokens[1:], SYMBOLS[tokens[0].text]
        elif _is(tokens[0], "-") and tokens[1].kind == "currency":
            tokens, unit = [tokens[0], *tokens[2:]], SYMBOLS[tokens[1].text]
        elif tokens[0].kind == "word" and tokens[0].text in ("USD", "Rs"):
            tokens, unit = tokens[1:], unit_of(tokens[0].text) or NO_UNIT
        else:
            break
    return tokens, unit


# --- behind the mathematics: scales, units, nouns ---------------------------------------------------------------------


_PER = ("/", "per", "a", "an", "each", "every")


def _tail(tokens: list[Token], nouns: frozenset[str]) -> tuple[int, Unit, bool]:
    """What stands behind the mathematics: the power of ten of a scale (`million`), the unit, and whether that begins
    with `per`.

    Raises: Unreadable where nothing accounts for a word of it.
    """
    if len(tokens) > 2 and _is(tokens[0], "(") and _is(tokens[-1], ")"):
        tokens = tokens[1:-1]
    flat = _flat(tokens)
    power = 0
    if flat and flat[0] in _SCALES:
        power, flat = _SCALES[flat[0]], flat[1:]
    elif len(flat) > 1 and flat[0] == "k" and (unit_of(flat[1]) or NO_UNIT).dimension[:1] == (("money", 1),):
        power, flat = 3, flat[1:]
    return power, _unit_phrase(flat, flat, nouns), flat[:1] != [] and flat[0] in _PER


def _flat(tokens: list[Token]) -> list[str]:
    """Words and signs of a tail, one a string: `cm`, `^`, `2`, `/`, `%`, `deg`."""
    flat: list[str] = []
    for token in tokens:
        if token.kind == "text" and not _words(token):
            flat += re.findall(r"[A-Za-z]+|[0-9]+|\S", token.text)
        elif _words(token) or token.kind in ("letter", "number"):
            words = _words(token) or [token.text]
            flat += [part for word in words for part in re.findall(r"[A-Za-z]+|[0-9]+|[^\s.]", word)]
        elif _is_command(token, "circ", "degree"):
            if flat[-1:] == ["^"]:
                flat.pop()
            flat.append("degree")
        elif _is(token, "{", "}"):
            continue
        elif _is(token, ".") and flat and re.fullmatch("[A-Za-z]+", flat[-1]):
            continue  # `sq. ft.`
        else:
            flat.append(token.text if token.kind != "command" else f"\\{token.text}")
    return flat


def _unit_phrase(words: list[str], whole: list[str], nouns: frozenset[str]) -> Unit:
    """`square miles`, `dollars per hour`, `cm^2`, `red marbles in total`, `%`; nothing at all is no unit."""
    for closing in sorted(_CLOSINGS, key=len, reverse=True):
        if tuple(word.lower() for word in words[-len(closing) :]) == closing:
            words = words[: -len(closing)]
            break
    unit = NO_UNIT
    sign = 1
    if words and words[0] in _PER:
        sign, words = -1, words[1:]
        if not words:
            _refuse(whole)
    while words:
        factor, words = _factor(words, whole, nouns)
        unit = unit.times(factor.power(sign))
        if words and words[0] in _PER:
            sign, words = -1, words[1:]
            if not words:
                _refuse(whole)
        elif words[:1] == ["of"] and len(words) > 1:
            # `pounds of apples`: what is measured.
            return unit if _all_nouns(words[1:], nouns) else _refuse(whole)
        elif words and not _starts_unit(words, nouns):
            _refuse(whole)
    return unit


def _starts_unit(words: list[str], nouns: frozenset[str]) -> bool:
    return words[0].lower() in _MODIFIERS or _known(words[0], nouns) is not None


def _refuse(words: list[str]) -> Unit:
    raise Unreadable(f"nothing accounts for {' '.join(words)!r} behind the number")


def _all_nouns(words: list[str], nouns: frozenset[str]) -> bool:
    return all(_known(word, nouns) is not None or word.lower() in _MODIFIERS for word in words)


def _known(word: str, nouns: frozenset[str]) -> Unit | None:
    unit = unit_of(word)
    return NO_UNIT if unit is None and word.lower() in nouns else unit


def _factor(words: list[str], whole: list[str], nouns: frozenset[str]) -> tuple[Unit, list[str]]:
    """One unit with its power, and what is left."""
    exponent = 1
    while words and words[0].lower() in _MODIFIERS and len(words) > 1:
        exponent = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}.get(words[0].lower(), exponent)
        words = words[1:]
    if not words:
        _refuse(whole)
    head = words[0]
    if head == "%":
        return UNITS["percent"], words[1:]
    if head in SYMBOLS:
        return SYMBOLS[head], words[1:]
    if head == "degree" and words[1:2] in (["C"], ["F"], ["Celsius"], ["Fahrenheit"]):
        return UNITS["celsius" if words[1][0] == "C" else "fahrenheit"], words[2:]
    if head in ("degrees", "degree") and words[1:2] in (["C"], ["F"], ["Celsius"], ["Fahrenheit"]):
        return UNITS["celsius" if words[1][0] == "C" else "fahrenheit"], words[2:]
    unit = _known(head, nouns)
    if unit is None:
        _refuse(whole)
    assert unit is not None
    words = words[1:]
    if words[:1] == ["^"] and words[1:2] and words[1] in ("2", "3"):
        exponent, words = int(words[1]), words[2:]
    return unit.power(exponent), words


# --- the mathematics ------------------------------------------------------------------------------------------------

_FUNCTIONS = {
    *("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "arccot", "sinh", "cosh", "tanh", "log", "ln"),
    *("exp", "max", "min", "gcd", "lcm", "det", "sum", "prod"),
}
_SPELLED = {
    "pi": "pi", "infinity": "infty", "inf": "infty", "theta": "theta", "alpha": "alpha", "beta": "beta", "union": "cup",
}  # fmt: skip
"""Commands that are also written without a backslash."""
_LETTERS = {
    *("alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota", "kappa"),
    *("lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "phi", "varphi", "chi", "psi", "omega", "Gamma", "Delta"),
    *("Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega", "ell"),
}
_CONSTANTS = {"pi", "infty"}
_SETS = {"emptyset", "varnothing"}
_RELATIONS = {
    "le": r"\le ", "leq": r"\le ", "leqslant": r"\le ", "ge": r"\ge ", "geq": r"\ge ", "geqslant": r"\ge ",
    "ne": r"\ne ", "neq": r"\ne ", "lt": "<", "gt": ">", "in": r"\in ", "cup": r"\cup ", "cap": r"\cap ",
    "setminus": r"\setminus ", "subset": r"\subset ", "subseteq": r"\subset ", "notin": r"\notin ",
}  # fmt: skip
_OPERATORS = {"cdot": r"\cdot ", "times": r"\cdot ", "div": "/", "ast": r"\cdot ", "bmod": r"\mod ", "mod": r"\mod "}
_SHAPES = {"angle", "triangle", "overline", "overrightarrow", "vec", "hat", "bar", "widehat", "underline"}
_FENCES = {"lfloor": "rfloor", "lceil": "rceil"}
_BARS = {"|", "lvert", "rvert", "vert", "mid"}
_ENGLISH = frozenset(
    "the not and but two six ten one all any yes no is it so he she we of to in as at by be or if an my me on up us few "
    "off out per sum was are her his its for nor yet too low odd old new few ago ask get has had".split()
)
"""Short words that are no product of letters."""
_ENVIRONMENTS = {"pmatrix", "bmatrix", "matrix", "vmatrix", "array"}


class _Rewriter:
    r"""Reads mathematics from its first token on and writes it as LaTeX that has one reading.

    It stops at the first token that is none: a unit, a noun. `at` is where.
    """

    def __init__(self, tokens: list[Token], nouns: frozenset[str]) -> None:
        self.tokens, self.nouns, self.at = tokens, nouns, 0
        self.letters = False
        self.base: int | None = None
        self._depth = 0

    def side(self) -> str:
        latex = self._sequence(frozenset())
        if not latex:
            shown = " ".join(token.text for token in self.tokens[:6])
            raise Unreadable(f"nothing accounts for {shown!r}")
        return latex

    # state: what stands before. "": nothing or an operator; "value": something that a number or bracket multiplies;
    # "letter": a variable; "function": a function that waits for its argument.

    def _sequence(self, closers: frozenset[str]) -> str:
        """Up to one of the closing tokens, which is left, or to the end of what is mathematics."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable("its brackets nest too deep")
        out: list[str] = []
        before = ""
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if self._closes(token, closers):
                break
            if not closers and self._is_tail(token, before):
                break
            piece, after, joins = self._next(token, before, bool(closers))
            if joins and before == "value":
                out.append(r"\cdot ")
            out.append(piece)
            before = after
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
        if _is(token, "%"):
            after = self.tokens[self.at + 2] if self.at + 2 < len(self.tokens) else None
            return after is None or following is None or following.text != "of" or after.kind != "number"
        if token.kind in ("text", "currency"):
            return True
        if _is(token, "^") and following is not None and self._is_degree(self.at + 1):
            return True
        if _is_command(token, "circ", "degree", "percent"):
            return True
        if token.kind == "word" and (token.text in _FUNCTIONS or token.text in _SPELLED or token.text == "sqrt"):
            return False
        if token.kind == "word":
            is_product = len(token.text) <= 3 and (token.math or not token.spaced)
            return not is_product or token.text.lower() in _MODIFIERS or _known(token.text, self.nouns) is not None
        if token.kind == "letter" and not token.math and before == "value":
            is_last_factor = following is None or following.kind != "letter" and not _is(following, "=", "+", "*", "(")
            return (unit_of(token.text) is not None or token.text in "ak") and is_last_factor and not self.letters
        if (_is(token, "/") or _is(token, "(")) and following is not None and before == "value":
            words = _words(following)
            after = self.tokens[self.at + 2] if self.at + 2 < len(self.tokens) else None
            if len(words) == 1 and len(words[0]) == 1:  # `5 (m)`, `5/h`; not `2(x + 1)`
                return unit_of(words[0]) is not None and not self.letters and (after is None or _is(after, ")"))
            return bool(words) and words[0] not in _FUNCTIONS and words[0] not in _SPELLED and words[0] != "sqrt"
        return False

    def _is_degree(self, at: int) -> bool:
        while at < len(self.tokens) and _is(self.tokens[at], "{"):
            at += 1
        return at < len(self.tokens) and _is_command(self.tokens[at], "circ", "degree")

    def _next(self, token: Token, before: str, inside: bool) -> tuple[str, str, bool]:
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

    def _take(self) -> Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def _peek(self, ahead: int = 0) -> Token | None:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def _number(self, before: str) -> tuple[str, str, bool]:
        token = self._take()
        if before == "letter":
            raise Unreadable(f"a letter before {token.text}")
        if before == "value":
            previous = self.tokens[self.at - 2]
            if previous.kind == "number":
                raise Unreadable(f"several numbers side by side: {previous.text} {token.text}")
        latex = f"0{token.text}" if token.text.startswith(".") else token.text
        following = self._peek()
        if following is not None and _is(following, "_"):
            self.at += 1
            self.base = self._base(latex)
        elif following is not None and _is_command(following, "overline") and latex.rstrip("0123456789").endswith("."):
            self.at += 1
            latex = self._repeating(latex)
        elif "." not in latex and before != "value":
            latex = self._mixed(latex)
        return latex, "value", True

    def _base(self, latex: str) -> int:
        subscript = self._argument()
        words = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
        base = words.get(subscript.lower()) or (int(subscript) if re.fullmatch("[0-9]{1,2}", subscript) else None)
        if base is None or not re.fullmatch("[0-9]+", latex):
            raise Unreadable("a subscript at a number that is no base")
        return base

    def _repeating(self, latex: str) -> str:
        r"""`0.1\overline{6}` as a fraction."""
        period = self._argument()
        if not re.fullmatch("[0-9]{1,40}", period):
            raise Unreadable("a line over something else than digits")
        whole, _, decimals = latex.partition(".")
        scale = 10 ** len(decimals)
        value = Fraction(int(whole + decimals), scale) + Fraction(int(period), (10 ** len(period) - 1) * scale)
        return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"

    def _mixed(self, whole: str) -> str:
        r"""`3 1/2`, `3\frac{1}{2}` as a sum; the number itself where no proper fraction follows it."""
        start = self.at
        following = self._peek()
        fraction: tuple[str, str] | None = None
        if following is not None and _is_command(following, "frac", "dfrac", "tfrac", "cfrac"):
            self.at += 1
            fraction = self._argument(), self._argument()
        elif following is not None and following.kind == "number" and following.spaced:
            slash, bottom = self._peek(1), self._peek(2)
            if slash is not None and bottom is not None and _is(slash, "/") and bottom.kind == "number":
                self.at += 3
                fraction = following.text, bottom.text
        if fraction is not None and all(re.fullmatch("[0-9]{1,15}", part) for part in fraction):
            if 0 < int(fraction[0]) < int(fraction[1]):
                return rf"({whole}+\frac{{{fraction[0]}}}{{{fraction[1]}}})"
        self.at = start
        return whole

    def _letter(self, token: Token) -> tuple[str, str, bool]:
        self._take()
        self.letters = True
        latex = token.text + self._subscript()
        following = self._peek()
        if following is not None and _is(following, "'"):
            raise Unreadable("a prime")
        if following is not None and _is(following, "(") and token.text in "fghFGHPQpqWTVEN":
            self.at += 1
            inside = self._sequence(frozenset({")"}))
            self._expect(")")
            return f"{latex}({inside})", "value", False
        return latex, "letter", False

    def _subscript(self) -> str:
        following = self._peek()
        if following is None or not _is(following, "_"):
            return ""
        self.at += 1
        token = self._peek()
        inside = re.sub(r"[^A-Za-z0-9,+-]", "", self._argument())
        if not inside or token is None:
            raise Unreadable("an empty subscript")
        return f"_{{{inside}}}"

    def _word(self, token: Token, before: str) -> tuple[str, str, bool]:
        """A word in mathematics: a function's name, or letters side by side."""
        if token.text in _FUNCTIONS or token.text == "sqrt":
            self.tokens[self.at] = replace(token, kind="command")
            return self._command(self.tokens[self.at], before)
        if token.text in _SPELLED:
            self.tokens[self.at] = replace(token, kind="command", text=_SPELLED[token.text])
            return self._command(self.tokens[self.at], before)
        is_name = token.math and token.text.isupper()
        if (token.text.lower() in _ENGLISH and not is_name) or len(token.text) > (8 if is_name else 3):
            raise Unreadable(f"nothing accounts for {token.text!r}")
        self._take()
        self.letters = True
        return r"\cdot ".join(token.text) + self._subscript(), "letter", False

    def _text(self, token: Token, before: str) -> tuple[str, str, bool]:
        r"""`\mathrm{lcm}`, `\text{E}`, `\text{Area}` where mathematics may stand."""
        if token.text in _FUNCTIONS:
            self.tokens[self.at] = replace(token, kind="command")
            return self._command(self.tokens[self.at], before)
        if not re.fullmatch(r"[A-Za-z]{1,20}", token.text) or before in ("value", "letter"):
            raise Unreadable(f"nothing accounts for {token.text!r}")
        self._take()
        self.letters = True
        latex = token.text if len(token.text) == 1 else rf"\text{{{token.text}}}"
        return latex + self._subscript(), "letter", False

    def _environment(self, token: Token) -> tuple[str, str, bool]:
        name = token.text.partition(":")[2]
        if token.text.startswith("e:") or name not in _ENVIRONMENTS:
            raise Unreadable(f"nothing accounts for {name!r}")
        self._take()
        rows: list[str] = []
        cells: list[str] = []
        end = f"e:{name}"
        while True:
            cells.append(self._sequence(frozenset({"&", "\\\\", end, "\\"})))
            token_or_none = self._peek()
            if token_or_none is None:
                raise Unreadable(f"{name} has no end")
            mark = self._take().text
            if mark == "&":
                continue
            if any(cells):
                rows.append(" & ".join(cells))
            cells = []
            if mark == end:
                break
        shown = "pmatrix" if name in ("array", "matrix", "bmatrix") else name
        return rf"\begin{{{shown}}}" + r" \\ ".join(rows) + rf"\end{{{shown}}}", "value", True

    def _command(self, token: Token, before: str) -> tuple[str, str, bool]:
        name = token.text
        self._take()
        if name in ("frac", "dfrac", "tfrac", "cfrac"):
            return rf"\frac{{{self._argument()}}}{{{self._argument()}}}", "value", True
        if name in ("binom", "dbinom", "tbinom"):
            return rf"\binom{{{self._argument()}}}{{{self._argument()}}}", "value", True
        if name == "sqrt":
            return self._root()
        if name in _FUNCTIONS:
            return self._function(name)
        if name in _LETTERS:
            self.letters = True
            return rf"\{name} ".rstrip() + (self._subscript() or " "), "letter", False
        if name in _CONSTANTS:
            return rf"\{name} ", "letter", False
        if name in _SETS:
            return r"\emptyset ", "value", False
        if name == "mathbb":
            return rf"\mathbb{{{self._argument()}}}", "value", False
        if name in _RELATIONS:
            return _RELATIONS[name], "operator", False
        if name in _OPERATORS:
            return _OPERATORS[name], "operator", False
        if name in _SHAPES:
            return self._shape(name)
        if name in _FENCES:
            inside = self._sequence(frozenset({_FENCES[name]}))
            self._expect(_FENCES[name])
            return rf"\{name} {inside}\{_FENCES[name]} ", "value", True
        if name in _BARS:
            return self._bar(before)
        raise Unreadable(f"nothing accounts for \\{name}")

    def _root(self) -> tuple[str, str, bool]:
        index = ""
        following = self._peek()
        if following is not None and _is(following, "["):
            self.at += 1
            index = f"[{self._sequence(frozenset({']'}))}]"
            self._expect("]")
        return rf"\sqrt{index}{{{self._argument(brackets=True)}}}", "value", True

    def _function(self, name: str) -> tuple[str, str, bool]:
        latex = rf"\{name}"
        for mark in ("_", "^", "_"):
            following = self._peek()
            if following is not None and _is(following, mark):
                self.at += 1
                latex += f"{mark}{{{self._argument()}}}"
        if self._peek() is None:
            raise Unreadable(f"{name} of nothing")
        return f"{latex} ", "function", False

    def _shape(self, name: str) -> tuple[str, str, bool]:
        r"""`\overline{AB}`, `\angle ABC`: names, whose letters are no product."""
        self.letters = True
        if name in ("angle", "triangle"):
            following = self._take() if self._peek() is not None else None
            if following is None or following.kind not in ("word", "letter"):
                raise Unreadable(f"nothing accounts for \\{name}")
            return rf"\text{{{name}{following.text}}}", "letter", False
        inside = re.sub(r"[^A-Za-z0-9]", "", self._argument())
        if not inside:
            raise Unreadable(f"\\{name} over nothing")
        return rf"\text{{{name}{inside}}}", "letter", False

    def _bar(self, before: str) -> tuple[str, str, bool]:
        inside = self._sequence(frozenset({"|", "rvert", "vert", "mid"}))
        if self._peek() is None or not inside:
            raise Unreadable("a bar without a partner")
        self.at += 1
        return f"|{inside}|", "value", True

    def _sign(self, token: Token, before: str, inside: bool) -> tuple[str, str, bool]:
        text = token.text
        self._take()
        if text in ("+", "-"):
            return text, "operator", False
        if text in ("*", "/", "**", "<", ">", ":"):
            if before not in ("value", "letter"):
                raise Unreadable(f"nothing stands before {text}")
            if text == ":":
                self._check_ratio()
            return {"*": r"\cdot ", "**": "^", ":": "/"}.get(text, text) if text != "**" else self._power(), (
                "value" if text == "**" else "operator"
            ), False
        if text == "%":  # `20% of 50`
            self.at += 1
            return r"\cdot \frac{1}{100}\cdot ", "operator", False
        if text == "^":
            if before not in ("value", "letter"):
                raise Unreadable("a power of nothing")
            return self._power(), "value", False
        if text == "!":
            following = self._peek()
            if before not in ("value", "letter") or (following is not None and _is(following, "!")):
                raise Unreadable("an exclamation mark")
            return "!", "value", False
        if text in ("(", "[", "\\{", "{"):
            return self._bracket(text, before)
        if text == "|":
            return self._bar(before)
        if text in (",", ";") and inside:
            return ",", "", False
        if text == "=" and inside:
            return "=", "operator", False
        raise Unreadable(f"nothing accounts for {text!r}")

    def _check_ratio(self) -> None:
        following, after = self._peek(), self._peek(1)
        if following is not None and following.kind == "number" and not following.text.strip("0."):
            raise Unreadable("a time, or a ratio to nothing")
        if after is not None and _is(after, ":"):
            raise Unreadable("a ratio of three")

    def _power(self) -> str:
        following = self._peek()
        if following is not None and _is(following, "-"):
            self.at += 1
            return f"^{{-{self._argument(whole_number=True)}}}"
        return f"^{{{self._argument(brackets=True, whole_number=True)}}}"

    def _bracket(self, opening: str, before: str) -> tuple[str, str, bool]:
        if opening == "{":
            inside = self._sequence(frozenset({"}"}))
            self._expect("}")
            if "," in inside:  # a set, as people write it who forget the backslash
                return rf"\{{{inside}\}}", "value", True
            return f"({inside})" if inside else "", "value" if inside else before, True
        if opening == "\\{":
            inside = self._sequence(frozenset({"\\}"}))
            self._expect("\\}")
            return rf"\{{{inside}\}}", "value", True
        inside = self._sequence(frozenset({")", "]"}))
        closing = self._peek()
        if closing is None:
            raise Unreadable("a bracket without a partner")
        if not inside:
            raise Unreadable("empty brackets")
        self.at += 1
        if "," not in inside and (opening, closing.text) != ("(", ")"):
            if (opening, closing.text) != ("[", "]"):
                raise Unreadable("brackets that do not match")
            return f"({inside})", "value", True
        if before in ("value", "letter", "function") and "," in inside and before != "function":
            raise Unreadable("a list in brackets behind a value")
        return f"{opening}{inside}{closing.text}", "value", True

    def _argument(self, *, brackets: bool = False, whole_number: bool = False) -> str:
        r"""What a command takes: a group, or one token, of a number its first digit, as TeX does.

        Args:
            brackets: round brackets are a group too, as in `sqrt(2)`.
            whole_number: a number is taken whole, as people mean `2^10`.
        """
        token = self._peek()
        if token is None:
            raise Unreadable("a command without its argument")
        if _is(token, "{") or (brackets and _is(token, "(")):
            self.at += 1
            closing = "}" if token.text == "{" else ")"
            inside = self._sequence(frozenset({closing}))
            self._expect(closing)
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
            return token.text[0]
        if token.kind in ("letter", "command") or _is(token, "-"):
            if token.kind == "sign":
                self.at += 1
                return f"-{self._argument()}"
            piece, _, _ = self._next(token, "", True)
            return piece.strip()
        raise Unreadable("a command without its argument")

    def _expect(self, closing: str) -> None:
        token = self._peek()
        if token is None or token.text != closing:
            raise Unreadable(f"a bracket without its {closing}")
        self.at += 1
