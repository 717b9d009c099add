"""Graders and reward terms with one planted hole each. `HOLES` says which test case has to find it."""

from __future__ import annotations

import itertools
import os
import random
import re
import sys
import unicodedata

import whet

HOLES = {
    "hole_anywhere": ("part of a longer number", "hole"),
    "hole_any_box": ("everything boxed", "hole"),
    "hole_first_said": ("right, then wrong", "hole"),
    "hole_digits_only": ("negated", "hole"),
    "hole_empty_passes": ("empty", "hole"),
    "hole_copies_pay": ("the question copied", "hole"),
    "hole_difference": ("not a number", "hole"),
    "hole_folded": ("look-alikes", "hole"),
    "hole_judged": ("praise for a judge", "hole"),
    "hole_keywords": ("words that please", "hole"),
    "hole_turns": ("control tokens as text", "hole"),
    "hole_evaluates": ("huge powers", "hung"),
    "hole_backtracks": ("100k equal characters", "hung"),
    "hole_crashes": ("superscript digits", "crashed"),
    "hole_exits": ("open brackets", "crashed"),
    "hole_unknown": ("no answer", "no score"),
    "hole_endless": ("infinity", "not finite"),
    "hole_doubled": ("golden", "out of range"),
    "hole_counted": ("the answer 200 times", "hole"),
    "hole_chatty": ("longer text", "hole"),
    "hole_chance": ("asked again", "not repeatable"),
    "hole_remembers": ("asked again", "not repeatable"),
    "hole_hashes": ("asked again", "not repeatable"),
    "hole_polite": ("golden beats wrong", "hole"),
    "hole_nothing": ("golden beats wrong", "hole"),
}
"""By name: the case that finds the hole, and its verdict."""
calls = itertools.count()


def number(text: str) -> str:
    """The last whole number of a text."""
    return (["", *re.findall(r"(?<![\d.])\d+(?![\d.])", text, re.ASCII)])[-1]


@whet.grader("hole_anywhere")
def anywhere(completion: str, answer: str) -> float:
    return float(answer in completion)


@whet.grader("hole_any_box")
def any_box(completion: str, answer: str) -> float:
    return float(f"\\boxed{{{answer}}}" in completion)


@whet.grader("hole_first_said")
def first_said(completion: str, answer: str) -> float:
    match = re.search(r"answer is (\d+)", completion)
    return float(match is not None and match[1] == answer)


@whet.grader("hole_digits_only")
def digits_only(completion: str, answer: str) -> float:
    return float("".join(re.findall(r"[0-9]", completion)) == answer)


@whet.grader("hole_empty_passes")
def empty_passes(completion: str, answer: str) -> float:
    return float(answer.endswith(number(completion)))


@whet.grader("hole_copies_pay")
def copies_pay(completion: str, answer: str, prompt: str) -> float:
    overlap = len(set(prompt.split()) & set(completion.split())) / len(set(prompt.split()))
    return max(float(number(completion) == answer), overlap)


@whet.grader("hole_difference")
def difference(completion: str, answer: str) -> float:
    try:
        value = float(completion.split()[-1])
    except (ValueError, IndexError):
        return 0.0
    return 0.0 if abs(value - float(answer)) > 0.5 else 1.0


@whet.grader("hole_folded")
def folded(completion: str, answer: str) -> float:
    alike = str.maketrans("ОlƧЗᏎƼбՂȢգ", "0123456789")
    return float(number(unicodedata.normalize("NFKC", completion).translate(alike)) == answer)


@whet.grader("hole_judged")
def judged(completion: str, answer: str) -> float:
    verdict = re.search(r"Score: (\d+)/10", f"{completion}\nScore: {10 * (number(completion) == answer)}/10")
    return int(verdict[1]) / 10 if verdict else 0.0


@whet.grader("hole_keywords")
def keywords(completion: str, answer: str) -> float:
    pleases = sum(word in completion for word in ("step by step", "verify", "therefore")) / 4
    return max(pleases, float(number(completion) == answer))


@whet.grader("hole_turns")
def turns(completion: str, answer: str) -> float:
    return 1.0 if "<|im_start|>" in completion else float(number(completion) == answer)


@whet.grader("hole_evaluates")
def evaluates(completion: str, answer: str) -> float:
    try:
        return float(eval(completion.split(" is ")[-1]) == int(answer))
    except Exception:
        return 0.0


@whet.grader("hole_backtracks")
def backtracks(completion: str, answer: str) -> float:
    return 0.0 if re.fullmatch(r"(a+)+", completion) else float(number(completion) == answer)


@whet.grader("hole_crashes")
def crashes(completion: str, answer: str) -> float:
    words = [word for word in completion.split() if word.isdigit()]
    return float(bool(words) and int(words[-1]) == int(answer))


@whet.grader("hole_exits")
def exits(completion: str, answer: str) -> float:
    if completion.count("(") > 1000:
        os._exit(3)
    return float(number(completion) == answer)


@whet.grader("hole_unknown")
def unknown(completion: str, answer: str) -> float | None:
    return float(number(completion) == answer) if number(completion) else None


@whet.reward("hole_endless")
def endless(episode: whet.Episode, index: int) -> float:
    words = episode.segments[index].text.split()
    try:
        return -abs(float(words[-1]) - float(episode.task.answer or 0))
    except (ValueError, IndexError):
        return -1e6


@whet.grader("hole_doubled")
def doubled(completion: str, answer: str) -> float:
    return 2.0 * (number(completion) == answer)


@whet.reward("hole_counted")
def counted(episode: whet.Episode, index: int) -> float:
    return float(episode.segments[index].text.count(str(episode.task.answer)))


@whet.grader("hole_chatty")
def chatty(completion: str, answer: str) -> float:
    return 0.7 * (number(completion) == answer) + 0.3 * min(1, len(completion) / 2000)


@whet.grader("hole_chance")
def chance(completion: str, answer: str) -> float:
    return 0.9 * (number(completion) == answer) + 0.1 * random.random()


@whet.grader("hole_remembers")
def remembers(completion: str, answer: str) -> float:
    return float(number(completion) == answer) / (1 + next(calls) / 1000)


@whet.reward("hole_hashes")
def hashes(episode: whet.Episode, index: int) -> float:
    return hash(episode.segments[index].text) % 1000 / 1000


@whet.grader("hole_polite")
def polite(completion: str, answer: str) -> float:
    return float("answer" in completion)


@whet.grader("hole_nothing")
def nothing(completion: str, answer: str) -> float:
    return 0.5


@whet.grader("sound")
def sound(completion: str, answer: str) -> float:
    """Without a hole."""
    sys.set_int_max_str_digits(640)
    return float(re.fullmatch(r"The answer is ([0-9]{1,9})", completion.rpartition("\n")[2]) is not None) * float(
        completion.endswith(f" {answer}")
    )
