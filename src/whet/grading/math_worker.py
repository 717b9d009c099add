"""The child process behind `maths.MathGrader`: compares answers with Math-Verify, one JSON line after the other.

Run as a script, so that it imports `mathgrade` and nothing else of ours: `python -P math_worker.py MEMORY_GIB`, where 0
sets no limit. Each request is `mathgrade.Comparison.request` and a limit: `{"answer": [member, ...], "reference":
[member, ...], "timeout_s": ...}`. Each reply is `{"score": 1.0 | 0.0 | null, "reason": ..., "exhausted": bool}`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from typing import TextIO

from mathgrade import grade
from mathgrade.symbolic.comparing import compare


def limit_memory(gib: float) -> None:
    """Caps the address space, where the system can; an allocation beyond it fails in this process alone."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(gib * 2**30),) * 2)
    except (ImportError, OSError, ValueError):
        pass  # Windows has no such limit, macOS refuses it


def serve(requests: TextIO, replies: TextIO) -> None:
    # The first comparison builds the grammar, which takes longer than any other.
    if grade(r"\boxed{x + 1}", "1 + x").score != 1.0:
        sys.exit("Math-Verify cannot see that x + 1 equals 1 + x; is there enough memory for it?")
    print("ready", file=replies, flush=True)
    for line in requests:
        request = json.loads(line)
        # The parent keeps the clock. Should it be gone, this alarm, whose default action is death, ends the orphan,
        # even in the middle of one endless C call.
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 2 * request["timeout_s"] + 5)
        answer = compare(request["answer"], request["reference"])
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(answer), file=replies, flush=True)


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
