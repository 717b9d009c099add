r"""Finds the final answer in a reply: the text that `reading` then has to account for, token by token.

An answer is judged only if every token of it is accounted for, as parsed mathematics or by a named rule that cannot
change the value (`reading` lists them); what is left over means refused. Where a reply commits itself to an answer is a
question of its own, and is decided here: after the last of `The answer is`, `Answer:` and `####`, or in the last
`\boxed{}`, whichever stands last, so that a reply has one answer and a list of guesses has none of them. Without any of
these, its last line counts if it is an answer, or a sentence that says one.

Everything here takes time linear in the text and never evaluates it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from whet.grading.reading import Reading, Unreadable, read
from whet.tasks.layouts import Box, boxes

_CHECKED = r"(?!\s*(?:in)?(?:correct|right|wrong|valid|reasonable|consistent|verified)\b)"
_TRIGGER = re.compile(
    rf"\banswer[\s*_]*is\b{_CHECKED}[\s*_]*:?|(?:^[ \t*_#]*|\bfinal\s+)answer[\s*_]*(?::|(?=\$|\\[\[(]))",
    re.IGNORECASE | re.MULTILINE,
)
"""`The answer is 5`, or `Answer: 5` at the start of a line; not `our answer is correct`, `We check our answer: ...`."""
_BOX = re.compile(r"\\(?:boxed|fbox)\b")
_HASHES = re.compile(r"(?<!#)####(?!#)[ \t]*(\S[^\n]*)")
_DISPLAY = re.compile(r"\\\[(.*?)\\\]|\$\$(.*?)\$\$", re.DOTALL)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
"""A word; names of LaTeX commands are none."""
_CONNECTED = re.compile(r"(?:\s|\$|\\[()\[\],;: ]|\\q?quad|\\text\s*\{\s*(?:and|or)\s*\}|and|or|,|;)*")
_CONNECTOR = re.compile(r"and|or|,|;")
_ABBREVIATIONS = ("sq", "cu", "ft", "in", "hr", "approx", "Rs", "no", r"p\.m", r"a\.m", "Mrs", "Mr", "Ms", "Dr", "St")
_FULL_STOP = re.compile("".join(rf"(?<!\b{word})" for word in _ABBREVIATIONS) + r"\.(?=\s)")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reply commits itself to."""

    text: str
    """As it stands there."""
    is_math: bool = False
    r"""It is mathematics as a whole, such as the content of `\boxed{}`."""

    def read(self, nouns: frozenset[str] = frozenset()) -> Reading:
        """What it says: all of it, or what a sentence says at its end (`... so she earns 18 dollars`).

        Raises: Unreadable.
        """
        try:
            return read(self.text, math=self.is_math, nouns=nouns)
        except Unreadable as refusal:
            for candidate in sentence_ends(self.text):
                try:
                    return read(candidate, math=self.is_math, nouns=nouns)
                except Unreadable:
                    continue
            raise refusal from None


def find_answer(reply: str) -> Answer | None:
    """The answer that a reply commits itself to. None: it gives none, or breaks off before it."""
    found = _marked(reply)
    if found is not None:
        return found if found.text.strip(" \t\n.*_$") else None
    lines = [line for line in reply.splitlines() if line.strip(" \t*_`$")]
    if not lines or _BOX.search(lines[-1]):  # a box that never closes: broken off
        return None
    last = Answer(lines[-1].strip())
    if len(_WORD.findall(last.text)) <= 3:
        return last
    try:
        last.read()
    except Unreadable:
        return None
    return last


def find_reference(reference: str) -> Answer:
    """The answer that a reference gives: what its last marker points to if it has one (a worked solution), else all."""
    return _marked(reference) or Answer(reference.strip())


def final_answer(reply: str) -> str | None:
    """The final answer in the form that majority votes count: equal for answers that are written alike but for dress,
    such as `$1,080.00` and `1080 dollars`. None: there is none."""
    found = find_answer(reply)
    return None if found is None else key_of(found)


def key_of(answer: Answer, nouns: frozenset[str] = frozenset()) -> str:
    try:
        return answer.read(nouns).key
    except Unreadable:
        return " ".join(answer.text.split())


def _marked(text: str) -> Answer | None:
    """What follows the marker that starts last. None: there is no marker."""
    found: list[tuple[int, Answer]] = []
    boxed = boxes(text)
    if boxed:
        found.append((boxed[-1].start, _boxed(text, boxed)))
    triggers = list(_TRIGGER.finditer(text))
    if triggers:
        found.append((triggers[-1].start(), _statement(text[triggers[-1].end() :])))
    hashes = [match for match in _HASHES.finditer(text) if not _is_heading(match[1])]
    if hashes:
        found.append((hashes[-1].start(), Answer(hashes[-1][1].strip())))
    return max(found, key=lambda each: each[0])[1] if found else None


def _is_heading(text: str) -> bool:
    """Whether words after `####` are no answer: `#### Step 1`."""
    if not _WORD.search(text) or choice(text):
        return False
    try:
        read(text)
    except Unreadable:
        return True
    return False


_TOUCHES_BEFORE = re.compile(
    r"(?:[0-9)}^*/-]|(?<![A-Za-z\\])[A-Za-z]|\\(?:cdot|times|div|pm|mp|frac|sqrt|sin|cos|tan|log|ln|pi)\s*)$"
)
_TOUCHES_AFTER = re.compile(r"[0-9^_/*]")


def _boxed(text: str, found: list[Box]) -> Answer:
    r"""What the last box holds, or a list of what the last boxes hold where only `and`, `or` and commas are between
    them. What touches a box belongs to it: `-\boxed{5}`."""
    outer = [box for i, box in enumerate(found) if not any(other.end >= box.end for other in found[:i])]
    last = found[-1]
    if last not in outer:
        return Answer(last.content, is_math=True)
    joined = [last]
    for box in reversed(outer[:-1]):
        between = text[box.end : joined[0].start]
        if not (_CONNECTED.fullmatch(between) and _CONNECTOR.search(between)):
            break
        joined.insert(0, box)
    if len(joined) > 1:
        return Answer(", ".join(box.content for box in joined), is_math=True)
    before, after = _TOUCHES_BEFORE.search(text[: last.start]), _TOUCHES_AFTER.match(text[last.end :])
    if before or after:
        start, stop = before.start() if before else last.start, last.end + (after.end() if after else 0)
        return Answer(text[start:stop], is_math=True)
    return Answer(last.content, is_math=True)


def _statement(text: str) -> Answer:
    """The first sentence or displayed formula."""
    text = text.lstrip(" \t\n\r:*_")
    display = _DISPLAY.match(text)
    if display:
        return Answer((display[1] or display[2] or "").strip(), is_math=True)
    return Answer(_FULL_STOP.split(text.partition("\n")[0], maxsplit=1)[0].strip())


# --- a sentence that says an answer -----------------------------------------------------------------------------------

_VERB = re.compile(
    r"\b(?:is|are|was|were|equals?|be|becomes?|(?:[sw]?he|it|they|[A-Z][a-z]+) "
    r"(?:has|have|had|earns?|gets?|needs?|costs?|makes?|sells?|sold|pays?|paid|spends?|spent|buys?|bought|eats?|ate|"
    r"takes?|took|saves?|saved|uses?|used|gives?|gave|drives?|drove|walks?|runs?|ran|reads?|"
    r"will have|will need|will pay|would have|can make|can buy))\b[ :]*"
)
_HEDGE = re.compile(r"\b(?:not|never|no|neither|nor|without|unless|if|except|but|instead|wrong|incorrect)\b|n't", re.I)
"""Words before an answer that may take it back."""


_CALLED = re.compile(
    r"(?:(?:therefore|thus|so|hence|then|finally),?\s+)?(?P<answer>.*?)\s+is\s+(?:the|our|my)\s+(?:final\s+|correct\s+)?"
    r"(?:answer|solution|result)", re.IGNORECASE | re.DOTALL,
)  # fmt: skip
_LEADS_TO_MATHS = re.compile(r"(?:\bthat|:)\s*(?=\$|\\[\[(])")


def sentence_ends(text: str) -> Iterator[str]:
    """What stands behind each verb that says a value, the last one first; what is called the answer; what mathematics a
    colon or `that` leads to. Nothing where the sentence may take it back."""
    if _HEDGE.search(text):
        return
    called = _CALLED.fullmatch(text.rstrip(". "))
    if called:
        yield called["answer"]
    for lead in list(_LEADS_TO_MATHS.finditer(text))[-1:]:
        yield text[lead.end() :]
    for verb in reversed(list(_VERB.finditer(text))[-8:]):
        yield text[verb.end() :]


# --- texts and options ------------------------------------------------------------------------------------------------

_SPACING = re.compile(r"\\(?:left|right)(?![A-Za-z])|\\[,:;! ]|\s+")
_EMPHASIS = r"(?<![0-9A-Za-z)}])\*\*|\*\*(?![0-9A-Za-z({-])"  # 2**3 is a power
_DRESS = re.compile(rf"\\[()\[\]]|(?<!\\)\$|{_EMPHASIS}|`|\\displaystyle")


def same_text(answer: str, reference: str) -> bool:
    """Whether two texts are the same, but for spacing, `\\text`, `\\dfrac`, delimiters, emphasis, a full stop, and case
    where there is no LaTeX."""
    return bool(_bare(answer)) and _bare(answer) == _bare(reference)


def _bare(text: str) -> str:
    text = _DRESS.sub("", _without_text_commands(text)).strip().rstrip(".").strip()
    text = _SPACING.sub(" ", re.sub(r"\\[dt]frac", r"\\frac", text))
    text = re.sub(r"(?<![0-9]) +| +(?![0-9])", "", text).strip()  # space between digits parts numbers
    return text if "\\" in text else text.casefold()


def is_prose(text: str) -> bool:
    """Whether a text is words, names or times rather than mathematics."""
    return not re.search(r"[\\^_{}=<>|+*]", _DRESS.sub("", _without_text_commands(text)))


_LABEL = r"(?:\(([A-Ja-j])\)|([A-J])[).:]|([a-j])\)|([A-J]))"
_LEAD = r"(?:the\s+)?(?:correct\s+)?(?:option|choice|answer|letter)\s*(?:is\s*)?:?\s*"
_CHOICE = re.compile(rf"(?:{_LEAD})?{_LABEL}(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_TAKEN_BACK = re.compile(
    r"\b(?:not|or|nor|either|neither|but|unless|if|except|wrong|incorrect|maybe|perhaps)\b|n't", re.IGNORECASE
)


def choice(text: str) -> str | None:
    """The one option, A to J, that a text picks: `C`, `(C) 40`, `C. 40`, `option C`. None: none, or several, or what it
    says of the option is more than the option's own text (`C or not`, `anything but C`)."""
    text = _DRESS.sub("", _without_text_commands(text)).strip().strip("*_").strip().rstrip(".").strip()
    if re.fullmatch(r"[a-j]", text):
        return text.upper()
    match = _CHOICE.fullmatch(text)
    if not match:
        return None
    letter = next(group for group in match.groups()[:4] if group)
    rest = match["rest"].lstrip(" \t\n,.:;*-\u2013)").rstrip()
    if match[4] and (rest or not match[4].isupper()):  # `C 40`, `a number`: not a label
        return None
    if _TAKEN_BACK.search(rest) or re.search(r"\([A-Ja-j]\)|(?<!\w)[A-J][).:]|^(?:and|&|,)\s*[A-J]\b", rest):
        return None
    return letter.upper()


def is_choice(reference: str) -> bool:
    r"""Whether a reference is an option: `C`, `(C)`, `\text{(C)}`."""
    return re.fullmatch(r"\(?[A-Ja-j]\)?", _DRESS.sub("", _without_text_commands(reference)).strip()) is not None


def _without_text_commands(text: str) -> str:
    return re.sub(r"\\(?:text|textbf|mathrm|mathbf|mbox|textnormal)\s*\{([^{}]*)\}", r"\1", text)
