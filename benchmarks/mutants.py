r"""Near misses of reference answers, which no grader may accept, and rewritings, which it must.

Each function takes a reference and yields texts by rule; nothing here knows how the grader reads. A near miss is
another value, another unit, another option or more than one answer; a rewriting is the same answer in another dress.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from decimal import Decimal

Pairs = Iterator[tuple[str, str]]
"""A reference (the set's own, or one made from it, such as one with a unit) and an answer."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,11})")
_DECIMAL = re.compile(r"-?[0-9]{1,9}\.[0-9]{1,6}")
_FRACTION = re.compile(r"\\[dt]?frac\{(-?[0-9]{1,6})\}\{([0-9]{1,6})\}")
_TUPLE = re.compile(r"(?:\\left)?\(([^()]*,[^()]*)(?:\\right)?\)")
_PROSE = re.compile(r"[0-9](th|st|nd|rd)|[a-zA-Z]{5}|text|mbox|[A-Z][a-z]|:")
_OPTION = re.compile(r"[A-E]")
WORDS = (
    "double {}", "twice {}", "half of {}", "one third of {}", "{} tenths", "{} hundredths", "{} halves",
    "{} below zero", "{} squared", "{} xy", "not {}", "minus {}", "negative {}", "{} dozen", "{} hundred",
    "at least {}", "less than {}",
    "more than {}", "{} and a half", "the square root of {}", "{} factorial", "{} times two", "{} percent of 50",
    "anything but {}", "{} pairs", "a quarter of {}", "{} less than before", "three times {}", "{} point five",
    "the reciprocal of {}", "{} to the power of 3", "the opposite of {}", "{} short of 100", "all except {}",
)  # fmt: skip
UNITS = (
    ("cm", "m"), ("km", "m"), ("hours", "minutes"), ("kg", "g"), ("dollars", "cents"), ("feet", "inches"),
    ("liters", "ml"), ("square feet", "feet"), ("miles", "km"), ("days", "weeks"), ("pounds", "ounces"),
)  # fmt: skip


def is_number(reference: str) -> bool:
    return bool(_INTEGER.fullmatch(reference) or _DECIMAL.fullmatch(reference))


def sign(reference: str, rng: random.Random) -> Pairs:
    if is_number(reference) and Decimal(reference):
        negated = reference[1:] if reference.startswith("-") else f"-{reference}"
        yield reference, negated
        yield reference, f"{negated}{rng.choice(['.0', ' dollars', ' cm'])}" if "." not in negated else f"{negated} cm"
    elif _FRACTION.fullmatch(reference):
        yield reference, reference.replace("{-", "{") if "{-" in reference else f"-{reference}"
    elif re.search(r"[a-z0-9}] ?- ?[a-z0-9\\]", reference) and "pm" not in reference:
        yield reference, re.sub(r"([a-z0-9}]) ?- ?([a-z0-9\\])", r"\1+\2", reference, count=1)


def digit(reference: str, rng: random.Random) -> Pairs:
    places = [m.start() for m in re.finditer(r"(?<![_\[])[0-9]", reference)]
    if not places or _OPTION.fullmatch(reference) or re.search(r"text|[a-zA-Z]{4}", reference.replace("frac", "")):
        return
    for _ in range(2):
        at = rng.choice(places)
        other = rng.choice([d for d in "123456789" if d != reference[at]])
        mutant = reference[:at] + other + reference[at + 1 :]
        if not (_FRACTION.fullmatch(reference) and same_ratio(reference, mutant)):
            yield reference, mutant


def same_ratio(one: str, other: str) -> bool:
    a, b = _FRACTION.fullmatch(one), _FRACTION.fullmatch(other)
    return bool(a and b and int(a[1]) * int(b[2]) == int(b[1]) * int(a[2]))


def exclamation(reference: str, rng: random.Random) -> Pairs:
    if is_number(reference) and abs(Decimal(reference)) not in (1, 2):  # -1! is -(1!)
        yield reference, f"{reference}!"


def fraction_dropped(reference: str, rng: random.Random) -> Pairs:
    unit = rng.choice(["cm", " km", "L", "°C", " hours", " (cups)", "/hour", ""])
    if _INTEGER.fullmatch(reference):
        decimals = rng.choice(["5", "25", "75", "1"])
        yield reference, f"{reference}.{decimals}{unit}"
        yield f"{reference}.{decimals}", f"{reference}{unit}"
        if not reference.startswith("-"):
            yield reference, f"{reference} 1/2{unit}"
            yield reference, rf"{reference}\frac{{1}}{{2}}{unit}"
    elif _DECIMAL.fullmatch(reference) and Decimal(reference) % 1:
        yield reference, reference.partition(".")[0] + unit
    elif _FRACTION.fullmatch(reference):
        match = _FRACTION.fullmatch(reference)
        assert match
        if match[2] != "1":
            yield reference, match[1]


def operator(reference: str, rng: random.Random) -> Pairs:
    if is_number(reference):
        value = Decimal(reference)
        forms = ("{}+1", "{}*2", "2*{}", "{}/2", "{}-1", "1-{}", "2**{}", "{}+x", "{}x", "x{}", "{}^2", "2^{}",
                 r"{}\cdot 3")  # fmt: skip
        for form in rng.sample(forms, 4):
            mutant = form.format(reference)
            if value in (0, 1, Decimal("0.5")) or (value == 2 and "**" in form + "^2"):
                continue
            if form in ("2**{}", "2^{}") and abs(value) > 60:
                continue
            yield reference, mutant
        return
    if _OPTION.fullmatch(reference) or "text" in reference:
        return
    swapped = re.sub(r"(?<=[a-z0-9}]) ?\+ ?(?=[a-z0-9\\])", "-", reference, count=1)
    if swapped != reference and "pm" not in reference:
        yield reference, swapped
    if not re.search(r"[,=<>]|\\le|\\ge|\\in|\\cup|[a-zA-Z]{5}", reference.replace("frac", "")):
        yield reference, f"{reference}+1"
        yield reference, f"2({reference})" if reference != "0" else "2"


def unit(reference: str, rng: random.Random) -> Pairs:
    if is_number(reference) and Decimal(reference):
        for one, other in rng.sample(UNITS, 2):
            yield f"{reference} {one}", f"{reference} {other}"
            yield rf"{reference}\text{{ {other}}}", f"{reference} {one}"


def word(reference: str, rng: random.Random) -> Pairs:
    if is_number(reference) and Decimal(reference) not in (0, 1):
        for form in rng.sample(WORDS, 3):
            if Decimal(reference) == 2 and "factorial" in form:
                continue
            yield reference, form.format(reference)


def neighbour(reference: str, rng: random.Random) -> Pairs:
    match = _TUPLE.fullmatch(reference)
    bare = re.fullmatch(r"[^()\[\]{}a-zA-Z]*,[^()\[\]{}a-zA-Z]*", reference)
    inside = match[1] if match else reference if bare else None
    if inside is None or "," not in inside:
        if _INTEGER.fullmatch(reference):  # pairs made of a reference and its neighbours
            n = int(reference)
            yield f"({n}, {n + 1})", f"({n + 1}, {n})"
            yield f"({n}, {n + 1})", f"({n}, {n + 2})"
            yield f"{n}, {n + 3}", f"{n}, {n + 2}"
            yield rf"\{{{n}, {n + 1}, {n + 4}\}}", f"{n}, {n + 1}"
            yield f"[{n}, {n + 5})", f"[{n}, {n + 5}]"
        return
    parts = [part.strip() for part in inside.split(",")]
    wrap = "({})" if match else "{}"
    if match and len(set(parts)) > 1:
        yield reference, wrap.format(", ".join(parts[1:] + parts[:1]))
    yield reference, wrap.format(", ".join([*parts[:-1], "17"] if parts[-1] != "17" else [*parts[:-1], "19"]))
    if not match:
        yield reference, ", ".join([*parts, "1001"])


def option(reference: str, rng: random.Random) -> Pairs:
    if not _OPTION.fullmatch(reference):
        return
    others = [letter for letter in "ABCDE" if letter != reference]
    for form in ("{}", "({})", "option {}", "({}) 40", "{}. 12 km", r"\text{{({})}}", "**{}**", "{}) 5 or 6"):
        for other in others:
            yield reference, form.format(other)
    hedges = ("not {}", "anything but {}", "{} or not", "all but {}", "I do not think {}", "neither {}", "{}, or not")
    for form in hedges:
        yield reference, form.format(reference)
    for other in others:
        for form in ("{} or {}", "{} and {}", "either {} or {}", "({}) or ({})", "({}), ({})", "{}/{}", "{} if not {}"):
            yield reference, form.format(reference, other)
    if reference == "A":
        yield reference, "a number"


def two_answers(reference: str, rng: random.Random) -> Pairs:
    if is_number(reference):
        other = str(int(Decimal(reference)) + rng.randrange(1, 20))
        forms = ("{a} or {b}", "{b} or {a}", "{a}, {b}", "{a} and {b}", "{a} {b}", "{a}; {b}", "{a}/{b}", r"\pm {a}",
                 "{a} (or {b})", "{a}, not {b}", "{a}, {a}", "{b} = {a}", "x = {b} = {a}")  # fmt: skip
        for form in rng.sample(forms, 3):
            if r"\pm" in form and (Decimal(reference) == 0):
                continue
            if form == "{a}/{b}" and other in ("0", "1"):
                continue
            yield reference, form.format(a=reference, b=other)


NEAR_MISSES: dict[str, Callable[[str, random.Random], Pairs]] = {
    "sign": sign, "digit": digit, "!": exclamation, "fraction dropped": fraction_dropped, "operator": operator,
    "unit": unit, "word": word, "neighbour": neighbour, "another option": option, "two answers": two_answers,
}  # fmt: skip


# --- rewritings -------------------------------------------------------------------------------------------------------


def rewritten(reference: str, rng: random.Random) -> Pairs:
    """The same answer in another dress."""
    if _INTEGER.fullmatch(reference):
        n = int(reference)
        forms = [f"{n}.0", f"{n}.00", f"{n:,}", f"{n} apples", f"x = {n}", f"**{n}**", f"${n}$ hours", f"{n} cm",
                 rf"\frac{{{2 * n}}}{{2}}", f"{n}/1", rf"{n}\text{{ miles}}", rf"{n}\%", f"{n} square feet", f"({n})",
                 rf"{n - 1} + 1",
                 rf"\$ {n}" if n >= 0 else f"{n}", f"{n} dollars per hour", f"exactly {n}", f"{n}$", rf"{n}^\circ",
                 f"{n} (cups)", f"total = {n}", f"{n} students", f"{n:,}.00 dollars"]  # fmt: skip
        for form in rng.sample(forms, 3):
            yield reference, form
        if n >= 0:
            mixed = (f"{n} 1/2 cups", rf"{n}\frac{{1}}{{2}} cups", f"{n}.5L", f"{n}.5°C", rf"\frac{{{2 * n + 1}}}{{2}}")
            yield f"{n}.5", rng.choice(mixed)
    elif _DECIMAL.fullmatch(reference):
        forms = ["{}0", "{} cm", "${}", "{}km", "{} dollars", "x = {}", "about {}", "{} hours"]
        for form in rng.sample(forms, 2):
            if not (form == "${}" and reference.startswith("-")):
                yield reference, form.format(reference)
    elif _OPTION.fullmatch(reference):
        forms = ("({})", "{}.", "option {}", r"\text{{({})}}", "**{}**", "({}) 40", "{}) 12 km", "Option ({})")
        for form in rng.sample(forms, 3):
            yield reference, form.format(reference)
    elif re.fullmatch(r"[0-9]{1,3}(,(\\!)? ?[0-9]{3})+", reference):
        yield reference, re.sub("[^0-9]", "", reference)
    elif len(reference) > 1 and not _PROSE.search(re.sub("frac|sqrt", "", reference)):
        forms = [reference.replace(r"\frac", r"\dfrac"), re.sub(r"(?<=[+=-])(?=[a-z0-9])", " ", reference),
                 rf"\displaystyle {reference}", reference.replace("(", r"\left(").replace(")", r"\right)")]  # fmt: skip
        if not re.search(r"[,=<>]|\\le|\\ge|\\in|\\cup|\\infty|\\pm|\\%|circ|\\\$|_", reference):
            forms += [f"y = {reference}", f"({reference})", f"{reference} + 0", rf"1 \cdot ({reference})"]
        yield reference, rng.choice(forms)
        if re.fullmatch(r"[^()\[\]{}a-zA-Z]*, ?[^()\[\]{}a-zA-Z]*", reference):
            parts = [part.strip() for part in reference.split(",")]
            yield reference, " and ".join(reversed(parts)) if len(parts) == 2 else ", ".join(reversed(parts))


FRAMES = ("{}", r"Thus we get \boxed{{{}}}.", "The answer is {}.", "We add them up.\nThe answer is: {}", "#### {}")
MATH_FRAMES = ("{}", r"Thus we get \boxed{{{}}}.", "The answer is ${}$.", "The answer is {}.")


def framed(answer: str, rng: random.Random) -> str:
    r"""A reply that gives the answer. Words stay out of `$ $` and boxes take `\text{}` as they are."""
    if "$" in answer:
        return rng.choice(("{}", "The answer is {}.", "We add.\nThe answer is: {}")).format(answer)
    is_math = "\\" in answer and not re.search(r"[a-zA-Z]{3,}", re.sub(r"\\[a-zA-Z]+(?:\{[^{}]*\})?", "", answer))
    return rng.choice(MATH_FRAMES if is_math else FRAMES).format(answer)
