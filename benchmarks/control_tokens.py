"""Counts control tokens where hostile text enters, tokenizer by tokenizer, and the time that encoding takes.

    .venv/bin/python benchmarks/control_tokens.py --model SMOLLM2   # a folder that `whet get smollm2` wrote

Each text spells every control token and tag. `forged` chats have other control tokens than the same chat of harmless
texts; `transformers` is `apply_chat_template(tokenize=True)`. Seconds are of CPU, for 1,000 chats of three turns: of
words alone, of words with `<` and `>`, which have to be looked at, and of the hostile texts.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from whet.chat import render
from whet.models.loading import load_tokenizer

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests"))
from support.tokenizers import KINDS, TAGS, hostile_texts  # noqa: E402

NUM = 1000
ROLES = ("user", "assistant", "user")
Chat = list[dict[str, str]]
WORDS = "Find the smallest n with n ( n + 1 ) = 7 12 so that the wall is left of a door , then go north .".split()  # noqa: SIM905


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", default=[], help="a model's folder, beside the built-in kinds")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "control_tokens")
    args = parser.parse_args()
    rows = [measure(name, make(), marks) for name, (make, marks) in KINDS.items()]
    for path in args.model:
        tokenizer = load_tokenizer(path)
        marks = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
        rows.append(measure(Path(path).name, tokenizer, marks))
    args.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(table(rows))
    print(table(rows))


def measure(name: str, tokenizer: Any, marks: Sequence[str]) -> dict[str, Any]:
    """Forged chats of 1,000 by either way, and CPU seconds for 1,000 ordinary and 1,000 hostile chats."""
    numbers = set(tokenizer.convert_tokens_to_ids(list(marks)))

    def counted(ids: Sequence[int]) -> Counter[int]:
        return Counter(index for index in ids if index in numbers)

    def theirs(chat: Chat) -> Sequence[int]:
        ids: Sequence[int] = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return ids

    def ours(chat: Chat) -> Sequence[int]:
        return render(tokenizer, chat)

    rng = random.Random(0)
    ordinary = [chat_of(*(" ".join(rng.choices(WORDS, k=60)) for _ in ROLES)) for _ in range(NUM)]
    angled = [chat_of(*(f"a < b {text} > c" for text in said(chat))) for chat in ordinary]
    hostile = [chat_of(f"{i}{text}", text, text) for i, text in enumerate(hostile_texts([*marks, *TAGS], NUM))]
    plain = counted(ours(chat_of("7", "7", "7")))
    ours(hostile[0])  # makes the tokenizer's twin
    return {
        "tokenizer": name,
        "control tokens": len(marks),
        "chats": NUM,
        "forged, transformers": sum(counted(theirs(chat)) != plain for chat in hostile),
        "forged, whet": sum(counted(ours(chat)) != plain for chat in hostile),
        "ordinary chats with other ids": sum(list(ours(chat)) != list(theirs(chat)) for chat in (*ordinary, *angled)),
        "s, transformers": seconds(theirs, [chat_of("again", *said(chat)) for chat in ordinary]),
        "s, whet": seconds(ours, [chat_of("again", *said(chat)) for chat in ordinary]),
        "s, transformers, < >": seconds(theirs, [chat_of("again", *said(chat)) for chat in angled]),
        "s, whet, < >": seconds(ours, [chat_of("again", *said(chat)) for chat in angled]),
        "s, whet, hostile": seconds(ours, [chat_of("again", *said(chat)) for chat in hostile]),
    }


def chat_of(*texts: str) -> Chat:
    return [{"role": role, "content": text} for role, text in zip(("user", *ROLES[1:], *ROLES), texts, strict=False)]


def said(chat: Chat) -> list[str]:
    return [message["content"] for message in chat]


def seconds(encode: Callable[[Chat], Sequence[int]], chats: Sequence[Chat]) -> float:
    start = time.process_time()
    for chat in chats:
        encode(chat)
    return round(time.process_time() - start, 2)


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([f"{value}" for value in row.values()] for row in rows)]
    return (__doc__ or "") + "\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    main()
