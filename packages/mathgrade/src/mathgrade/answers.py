r"""Finds the final answer in a reply: the text that `reading` then has to account for, token by token.

An answer is judged only if every token of it is accounted for: `reading` lists the rules, and refuses the rest. The
place of the answer is decided here: after the last of `The answer is`, `Answer:` and `####`, or in the last `\boxed{}`,
whichever comes last. So a reply has one answer, and a list of guesses has none. Without any of these, the last line
counts if it is an answer, or a sentence that states one.

Everything here takes time linear in the text and never evaluates it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mathgrade.boxes import Box, boxes
from mathgrade.options import choice
from mathgrade.reading import Reading, Unreadable, read
from mathgrade.reading.phrases import is_in_words
from mathgrade.reading.spelled import HAS_NUMBER_WORD, in_ascii_digits

MAX_LINE = 2000
"""Characters of a last line that may be an answer."""
_CHECKED = r"(?!\s*(?:in)?(?:correct|right|wrong|valid|reasonable|consistent|verified)\b)"
_TRIGGER = re.compile(
    rf"\banswer[\s*_]*is\b{_CHECKED}[\s*_]*:?|(?:^[ \t*_#]*|\bfinal\s+)(?:answer|ans)[\s*_]*(?::|(?=\$|\\[\[(]))",
    re.IGNORECASE | re.MULTILINE,
)
"""`The answer is 5`, or `Answer: 5` at the start of a line; not `our answer is correct`, `We check our answer: ...`."""
_NOT_THE_ANSWER = re.compile(
    r"\b(?:no|not|wrong|incorrect|false|twice|thrice|double|triple|half|minus|plus|negative|opposite|reciprocal|inverse|than"
    r"|square|root|times)\b(?:[ \t]+(?:of|the|an?|my|our|your|common|final|correct)){0,3}[ \t]*\Z",
    re.IGNORECASE,
)
"""Words before `answer is` that deny it: the text after it is not the answer."""
_BOX = re.compile(r"\\(?:boxed|fbox)\b")
_HASHES = re.compile(r"(?<!#)####(?!#)[ \t]*(\S[^\n]*)")
_TAGGED = re.compile(r"<answer>([^<]*)</answer>", re.IGNORECASE)
_DISPLAY = re.compile(r"(?:\\\[(.*?)\\\]|\$\$(.*?)\$\$)[ \t]*[.,;]?[ \t]*(?=\n|$)", re.DOTALL)
_END_TOKEN = re.compile(r"(?:<\|[a-z_]{1,30}\|>|</s>|<eos>)$")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
"""A word; names of LaTeX commands are none."""
_CONNECTED = re.compile(r"(?:\s|\$|\\[()\[\],;: ]|\\q?quad|\\text\s*\{\s*(?:and|or)\s*\}|and|or|,|;)*")
_CONNECTOR = re.compile(r"and|or|,|;")
_ABBREVIATIONS = ("sq", "cu", "ft", "in", "hr", "approx", "Rs", "no", r"p\.m", r"a\.m", "Mrs", "Mr", "Ms", "Dr", "St")
_FULL_STOP = re.compile(
    "".join(rf"(?<!\b{word})" for word in _ABBREVIATIONS) + r"\.(?=\s)(?!\s*(?:[0-9]|or\b|and\b|but\b))"
)
_OPENING = re.compile(r"^(?:therefore|thus|hence|so|then|finally)\b,?\s+(?=\S)", re.IGNORECASE)
_STRUCK = re.compile(r"(?<![\w\\~])(~~?)(?=[^\s~])[^~\n]*(?<=[^\s~])\1(?![\w~])")
"""`~~5~~`, which Markdown strikes out: text that a reply takes back."""
_LIST_MARK = re.compile(r"(?:[-*•]|[0-9]{1,2}[.)])\s+")


@dataclass(frozen=True, slots=True)
class Answer:
    """The final answer of a reply, or a reference."""

    text: str
    """As in the reply."""
    is_math: bool = False
    r"""It is mathematics as a whole, such as the content of `\boxed{}`."""
    is_reference: bool = False
    """It is the reference: even letters that touch a number are variables, as in `5m`."""

    def read(self, nouns: frozenset[str] = frozenset()) -> Reading:
        """Its value: of the whole text, or of a sentence's end (`... so she has 18 dollars`).

        Raises: Unreadable.
        """
        try:
            return self._read(self.text, nouns)
        except Unreadable as refusal:
            for candidate in () if self.is_math else sentence_ends(self.text):
                try:
                    return self._read(candidate, nouns)
                except Unreadable:
                    continue
            raise refusal from None

    def _read(self, text: str, nouns: frozenset[str]) -> Reading:
        return read(text, math=self.is_math, nouns=nouns, is_reference=self.is_reference)

    def option(self) -> str | None:
        """The option that it picks, alone or at the end of a sentence. None: it picks none."""
        options = (choice(text) for text in (self.text, *sentence_ends(self.text)))
        return next((letter for letter in options if letter), None)


def find_answer(reply: str) -> Answer | None:
    """The final answer of a reply. None: it gives none, or breaks off before it."""
    reply = in_ascii_digits(_STRUCK.sub(" ", reply)).rstrip()
    while end := _END_TOKEN.search(reply[-40:]):
        reply = reply[: len(reply) - len(end[0])].rstrip()
    marked = _marked(reply)
    if marked is not None:
        return marked if marked.text.strip(" \t\n.*_$") else None
    lines = [line for line in reply.splitlines() if line.strip(" \t*_`$")]
    if not lines or len(lines[-1]) > MAX_LINE or _BOX.search(lines[-1]):  # a box that never closes: broken off
        return None
    last = Answer(_OPENING.sub("", " ".join(lines[-1].split())))
    if len(_WORD.findall(last.text)) <= 3 or last.option():
        return last
    try:
        last.read()
    except Unreadable:
        return None
    return last


def find_reference(reference: str) -> Answer:
    """The answer in a reference: the text at its last marker (in a worked solution), or all of it without a marker."""
    reference = in_ascii_digits(reference)
    return replace(_marked(reference) or Answer(reference.strip()), is_reference=True)


def final_answer(reply: str) -> str | None:
    """The final answer in the form that majority votes count. It is equal for answers that differ only in dress, such
    as `$1,080.00` and `1080 dollars`. None: there is none."""
    answer = find_answer(reply)
    return None if answer is None else key_of(answer)


def key_of(answer: Answer, nouns: frozenset[str] = frozenset()) -> str:
    try:
        return answer.read(nouns).key
    except Unreadable:
        return " ".join(answer.text.split())


def _marked(text: str) -> Answer | None:
    """The answer at the marker that starts last. A mere comment (`The answer is in simplest form`) is skipped if there
    is another marker. None: there is no marker."""
    candidates: list[tuple[int, Answer]] = []
    boxed = boxes(text)
    if boxed:
        candidates.append((boxed[-1].start, _boxed(text, boxed)))
    inside = [(box.start, box.end) for box in boxed[-1:]]
    triggers = [
        m for m in _TRIGGER.finditer(text) if not _NOT_THE_ANSWER.search(text[max(m.start() - 60, 0) : m.start()])
    ]
    for trigger in triggers[-2:]:
        if not any(start < trigger.start() < end for start, end in inside):
            candidates.append((trigger.start(), _statement(text[trigger.end() :])))
    hashes = [match for match in _HASHES.finditer(text) if not _is_heading(match[1])]
    candidates += [
        (match.start(), Answer(match[1].strip())) for match in (*hashes[-1:], *list(_TAGGED.finditer(text))[-1:])
    ]
    candidates.sort(key=lambda candidate: candidate[0], reverse=True)
    last = next((answer for _, answer in candidates if not _is_remark(answer.text)), None)
    return last or (candidates[0][1] if candidates else None)


def _is_remark(text: str) -> bool:
    """Whether a statement holds no possible answer: words that begin in lower case, or more than three."""
    is_long = len(_WORD.findall(text)) > 3 or re.match(r"[a-z]{2}", text) is not None
    if not is_long or re.search(r"[0-9$\\]", text) or choice(text) is not None:
        return False
    return len(text) > MAX_LINE or not HAS_NUMBER_WORD.search(text) or not _is_readable(text)


def _is_heading(text: str) -> bool:
    """Whether the words after `####` are a heading and no answer: `#### Step 1`."""
    if not _WORD.search(text) or (len(text) <= MAX_LINE and choice(text)):
        return False
    return not _is_readable(text)


def _is_readable(text: str) -> bool:
    try:
        read(text)
    except Unreadable:
        return False
    return True


def _boxed(text: str, all_boxes: list[Box]) -> Answer:
    r"""The content of the last outermost box, or a list of the last ones' where only `and`, `or` and commas are between
    them. Other text that touches a box belongs to it: `-\boxed{5}`, `\boxed{6} or \boxed{5}`, `\sqrt{\boxed{5}}`."""
    outer: list[Box] = []
    for box in all_boxes:  # by their starts
        if not outer or box.end > outer[-1].end:
            outer.append(box)
    joined = [outer[-1]]
    for box in reversed(outer[:-1]):
        between = text[box.end : joined[0].start]
        if not (_CONNECTED.fullmatch(between) and _CONNECTOR.search(between)):
            break
        joined.insert(0, box)
    whole = ", ".join(_unboxed(box.content(text)) for box in joined)
    before, after = text[: joined[0].start], text[joined[-1].end :]
    before = "" if _begins_a_line(before, after) else before.rstrip().removesuffix(r"\$")
    opening = max(before.rfind(mark) for mark in ("$", r"\[", r"\(", "\n"))
    is_line = opening < 0 or before[opening] == "\n"
    start = opening + (1 if is_line or before[opening] == "$" else 2)
    lead = before[max(start, len(before) - 300) :]
    if not lead.strip() and not is_line:  # `-$\boxed{5}$`
        lead = before[:opening].rpartition("\n")[2][-300:].rstrip("$")
    if _leads_in(lead) and _LEADS_OUT.match(after) and (is_line or not after.startswith("!")):
        return Answer(whole, is_math=True)
    stop = _STRETCH_END.search(after)
    return Answer(f"{lead} ({whole}) {after[: stop.start() if stop else 60]}", is_math=True)


def _begins_a_line(before: str, after: str) -> bool:
    """Whether a box begins a line of its own, so that the lines before it are no part of the answer. Mathematics may go
    on over a line, and so may a sentence, unless a blank line ends it."""
    paragraph = _BLANK_LINE.split(before)[-1]
    line, is_next, indent = paragraph.rpartition("\n")
    if indent.strip():
        return False
    is_open = any(paragraph.count(opening) > paragraph.count(closing) for opening, closing in _DELIMITERS)
    num_dollars = paragraph.replace(r"\$", "").replace("$$", "$").count("$")
    if is_open or (num_dollars % 2 and "$" in _BLANK_LINE.split(after, maxsplit=1)[0]):
        return False
    return not is_next or _LINE_END.search(line) is not None


_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_DELIMITERS = ((r"\[", r"\]"), (r"\(", r"\)"), (r"\begin{", r"\end{"))
_LINE_END = re.compile(r"[0-9)}\]$>;]\s*$")
"""The end of a line that goes on in no other: not that of a word or an operator."""


def _leads_in(text: str) -> bool:
    """Whether the text before a box, in its line or its mathematics, keeps the box's value. It may end with a word, a
    sign of equality, an arrow or a dash."""
    last = re.search(r"(?<![\\A-Za-z])[A-Za-z]+(?=\s*$)", text)
    if last and (is_in_words(last[0]) or last[0] in ("or", "and", "not")):
        return False
    return _LEADS_IN.search(text) is not None


_LEADS_IN = re.compile(
    r"(?:^|^\s*#+|<[a-z]+>|(?<![\\A-Za-z])[A-Za-z]{2,}|(?<![0-9])[.,]|[:!?)*\"]|[=&]|[A-Za-z]\s[-\u2013\u2014]|"
    r"\\(?:equiv|approx|Rightarrow|implies|iff|Longrightarrow|to|in|therefore|q?quad|rightarrow|longrightarrow|displaystyle|text\{[^{}]*\}|[,;:\s\\]))\s*$"
)
"""Text that may precede a box."""
_LEADS_OUT = re.compile(
    r"\s*(?:$|\$|\n|</[a-z]+>|\\?%|[.,;:!?*'\")](?![0-9])|\\[)\]\\]|\\(?:text|textbf|mathrm|mbox|q?quad|pmod|end|[,;\s])"
    r"|\s(?!(?:or|and|million|billion|thousand|hundred|dozen|percent\s+of|times|squared|cubed|if|but|is\s+wrong)\b)"
    r"[A-Za-z]{2}|\s[A-Za-z]\s|[\u2013\u2014(]|\s-\s[A-Za-z])"
)
"""Text that may follow a box."""
_STRETCH_END = re.compile(r"\$|\\\]|\\\)|\n|\.\s|\.$")


def _unboxed(content: str) -> str:
    """The content without the commands of inner boxes. Their braces stay and are brackets."""
    return _BOX.sub("", content)


def _statement(text: str) -> Answer:
    """The first sentence or displayed formula."""
    stripped = text.lstrip(" \t\n\r:*_")
    display = _DISPLAY.match(stripped)
    if display:
        return Answer((display[1] or display[2] or "").strip(), is_math=True)
    if "\n" in text[: len(text) - len(stripped)]:  # a list below `The answer is:`
        mark = _LIST_MARK.match(text.lstrip(" \t\n\r:"))
        stripped = text.lstrip(" \t\n\r:")[mark.end() :] if mark else stripped
    return Answer(_OPENING.sub("", _FULL_STOP.split(stripped.partition("\n")[0], maxsplit=1)[0].strip()))


# --- a sentence that states an answer ---------------------------------------------------------------------------------

_VERB = re.compile(
    r"\b(?:is|are|was|were|equals?|be|becomes?|(?:[sw]?he|it|they|[A-Z][a-z]+) "
    r"(?:has|have|had|earns?|gets?|needs?|costs?|makes?|sells?|sold|pays?|paid|spends?|spent|buys?|bought|eats?|ate|"
    r"takes?|took|saves?|saved|uses?|used|gives?|gave|drives?|drove|walks?|runs?|ran|reads?|"
    r"will have|will need|will pay|would have|can make|can buy))\b[ :]*"
)
_HEDGE = re.compile(
    r"\b(?:not|never|no|neither|nor|without|unless|if|except|but|instead|wrong|incorrect|cannot|doubt|impossible|false"
    r"|mistake|hardly|maybe|perhaps|or|which|where|when)\b|n't",
    re.IGNORECASE,
)
"""Words before an answer that may take it back."""


_CALLED = re.compile(
    r"(?:(?:therefore|thus|so|hence|then|finally),?\s+)?(?P<answer>.*?)\s+is\s+(?:correct|(?:the|our|my)\s+(?:final\s+|correct\s+)?"
    r"(?:answer|solution|result))", re.IGNORECASE | re.DOTALL,
)  # fmt: skip
_LEADS_TO_MATHS = re.compile(r"(?:\bthat|:)\s*(?=\$|\\[\[(])")


def sentence_ends(text: str) -> Iterator[str]:
    """Possible answers in a sentence. First the text that it calls the answer, then mathematics after a colon or
    `that`, then the text after each verb of value, the last one first. None where the sentence may take it back, or
    states a value before."""
    text = " ".join(text.split())
    if len(text) > MAX_LINE:
        return
    called = _CALLED.fullmatch(text.rstrip(". "))
    if called and not _HEDGE.search(text):
        yield called["answer"]
    for lead in [*list(_LEADS_TO_MATHS.finditer(text))[-1:], *reversed(list(_VERB.finditer(text))[-8:])]:
        before = text[: lead.start()]
        prose = re.sub(r"\$[^$]*\$", "", before)  # `The last digit of $3^1 + 3^3$ is 0`
        words = re.findall(r"[A-Za-z]+", prose)
        says_a_value = re.search("[0-9]", prose if len(words) > 2 else before)
        if not (_HEDGE.search(before) or says_a_value or any(map(is_in_words, words))):
            yield text[lead.end() :]
