"""The child process behind `maths.MathGrader`: compares answers with Math-Verify, one JSON line after the other.

Run as a script, so that it imports Math-Verify and nothing of ours: `python -P math_worker.py MEMORY_GIB`, where 0 sets
no limit. Each request is `{"answer": ..., "reference": ..., "timeout_s": ...}`, both texts LaTeX without delimiters;
each reply is `{"score": 1.0 | 0.0 | null, "reason": ...}`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from functools import lru_cache
from typing import Any, TextIO

from math_verify import LatexExtractionConfig, parse, verify
from sympy import Float


def limit_memory(gib: float) -> None:
    """Caps the address space, where the system can; an allocation beyond it fails in this process alone."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(gib * 2**30),) * 2)
    except (ImportError, OSError, ValueError):
        pass  # Windows has no such limit, macOS refuses it


def read(text: str) -> list[Any]:
    """The text as a whole, as SymPy expressions: what follows a number is not skipped. Empty: not mathematics.

    Math-Verify's own extraction from prose takes the last number of a list of guesses; inside one box nothing is
    skipped, and `1, 2, 3` is a set.
    """
    config = [LatexExtractionConfig(boxed_match_priority=0)]
    parsed = parse(f"\\boxed{{{text}}}", config, parsing_timeout=None, raise_on_error=True)
    return [expression for expression in parsed if not isinstance(expression, str)]


read_reference = lru_cache(maxsize=4096)(read)  # the attempts of a group share theirs


def close(gold: Any, answer: Any) -> bool:
    """False for two decimal numbers that differ by more than 0.01 %. Math-Verify rounds them to six decimals, which
    makes every tiny number equal to 0."""
    if not all(getattr(side, "is_number", False) for side in (gold, answer)) or not (gold - answer).has(Float):
        return True
    return bool(abs((gold - answer).evalf()) <= 1e-4 * abs(gold.evalf()))


def compare(answer: str, reference: str) -> dict[str, Any]:
    """The reply to one request. A fault of the reference or of the comparison is no score."""
    try:
        gold = read_reference(reference)
    except Exception as error:
        gold, note = [], f" ({type(error).__name__})"
    else:
        note = ""
    if not gold:
        return {"score": None, "reason": f"Math-Verify cannot read the reference {reference[:80]!r}{note}"}
    try:
        candidates = read(answer)
    except MemoryError:
        return {"score": None, "reason": "out of memory"}
    except Exception:
        candidates = []
    if not candidates:
        return {"score": 0.0, "reason": "the answer is no mathematics that Math-Verify can read"}
    try:
        same = verify(gold, candidates, timeout_seconds=None, raise_on_error=True)
        if same and all(not close(g, c) for g in gold for c in candidates):
            same = False
    except Exception as error:
        return {"score": None, "reason": f"Math-Verify failed to compare: {type(error).__name__}"}
    return {"score": float(same), "reason": ""}


def serve(requests: TextIO, replies: TextIO) -> None:
    # The first comparison builds the grammar, which takes longer than any other.
    if compare("x + 1", "1 + x")["score"] != 1.0:
        sys.exit("Math-Verify cannot see that x + 1 equals 1 + x; is there enough memory for it?")
    print("ready", file=replies, flush=True)
    for line in requests:
        request = json.loads(line)
        # The parent keeps the clock. Should it be gone, this alarm, whose default action is death, ends the orphan,
        # even in the middle of one endless C call.
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 2 * request["timeout_s"] + 5)
        reply = compare(request["answer"], request["reference"])
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(reply), file=replies, flush=True)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)
    if float(sys.argv[1]) > 0:
        limit_memory(float(sys.argv[1]))
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # so that nothing a library prints is taken for a reply
    serve(sys.stdin, replies)


if __name__ == "__main__":
    main()
