"""Drafts by prompt lookup (`engine.draft`): the same tokens, and what they save.

    .venv/bin/whet get smollm2 models/smollm2
    .venv/bin/python benchmarks/drafts.py --model models/smollm2

*same*: replies of the shipped models with and without drafts, few rows at a time. Where two replies differ, the first
token that does is looked up in the model's distribution: its draw has to lie within rounding of the border between both
tokens, or the benchmark fails. *refinements*: SmolLM2-135M rewrites its own answers after a fixed critique, one row at
a time. *agents*: the turns of a step of multi-turn RL, in lockstep as they were asked; the last quarter is the CPU time
of passes with at most a quarter of the batch's rows. Sides take turns; each begins with an empty book of ended replies.
CPU seconds are of the process, on one thread: a shared machine stretches the clock beside them. What is measured of one
part replaces that part of the results alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from agent_world import TURNS, data_of
from side_by_side import machine, spread
from study import RESULTS, write
from whet.chat import render
from whet.config.parts import ModelConfig
from whet.engines import local
from whet.engines.drafts import POSITIONS
from whet.engines.local import LocalEngine
from whet.engines.products import instructions
from whet.engines.sampling import log_distribution, uniforms
from whet.models.policy import Policy, load_policies
from whet.tasks.prompts import find_prompts
from whet.types import Completion, Request, Sampling

TIE = 2e-6
"""Share of the probability mass: a draw so near to the border between two tokens is within float32 rounding of it."""
GREEDY_TIE = 1e-4
"""Nats between the two likeliest tokens, likewise."""
ROWS, LENGTH = (1, 4, 8), 48
"""Rows at a time, and tokens of a reply at most, where replies are compared."""
ITEMS, GROUP, AGENT = 16, 8, "tiny_agent_early"
QUESTIONS = (
    "A shop sells pencils at 3 dollars each and pens at 5 dollars each. Mia buys 4 pencils and 2 pens. How much does "
    "she pay?",
    "A train travels 60 miles an hour for 3 hours, and then 40 miles an hour for 2 hours. How far does it travel?",
    "Tom has 48 marbles. He gives a quarter of them to Ann and 10 to Ben. How many does he have left?",
    "A garden is 12 metres long and 7 metres wide. How long is the fence around it, and how large is its area?",
)
CRITIQUE = "Check the sums again, and write the whole answer once more with the same sentences where they are right."
Numbers = dict[str, Any]


def load(path: str | Path) -> Policy:
    return load_policies({"policy": ModelConfig(path=str(path), device="cpu")})["policy"]


def clocked(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Its result, CPU seconds of this process, and seconds by the clock."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    return result, time.process_time() - cpu, time.perf_counter() - wall


# --- the same tokens --------------------------------------------------------------------------------------------------


def distance(policy: Policy, request: Request, tokens: Sequence[int], others: Sequence[int]) -> tuple[float, float]:
    """How far the draw of the first token that differs lies from the border between both tokens, and what is allowed.

    Of greedy requests it is the difference of both tokens' logprobs, in nats.
    """
    place = next(i for i, (one, other) in enumerate(zip(tokens, others, strict=False)) if one != other)
    context = torch.tensor([[*request.context, *tokens[:place]]])
    with torch.no_grad(), policy.active():
        logits_V = policy.causal_lm(context).logits[0, -1]
    temperature = request.sampling.temperature
    logprobs_V = log_distribution(logits_V[None], torch.tensor([temperature]))[0]
    if temperature == 0:
        return float((logprobs_V[tokens[place]] - logprobs_V[others[place]]).abs()), GREEDY_TIE
    ends_V = logprobs_V.exp().cumsum(0, dtype=torch.float64)
    drawn = float(uniforms(torch.tensor(request.seed), torch.tensor(request.num_drawn + place)) * ends_V[-1])
    between = sorted((tokens[place], others[place]))
    borders_N = ends_V[between[0] : between[1]]
    return float((borders_N - drawn).abs().max()), TIE


def same(count: int, draft: int) -> Numbers:
    """Replies of both shipped models, at several numbers of rows and temperatures, beside those without drafts."""
    replies = tokens = 0
    counts = {"passes": 0, "drafted": 0, "right": 0}
    ties: list[Numbers] = []
    settings = [(rows, temperature) for rows in ROWS for temperature in (1.0, 0.7, 0.0)]
    for name in ("tiny", AGENT):
        policy = load(name)
        for number, (rows, temperature) in enumerate(settings):
            each = -(-count // (2 * len(settings)))
            sampling = Sampling(max_new_tokens=LENGTH, temperature=temperature)
            requests = [
                Request(context=tuple(policy.tokenizer.encode(f"Solve: {i} + {i % 7} * {number + 2} - {i % 5}")),
                        sampling=sampling, seed=1000 * number + i)
                for i in range(each)
            ]  # fmt: skip
            engine = LocalEngine(policy, max_rows=rows, draft=draft)
            plain = LocalEngine(policy, max_rows=rows).generate(requests)
            for request, one, other in zip(requests, engine.generate(requests), plain, strict=True):
                replies, tokens = replies + 1, tokens + len(other.tokens)
                if one.tokens == other.tokens and one.stop_reason == other.stop_reason:
                    continue
                apart, allowed = distance(policy, request, one.tokens, other.tokens)
                assert apart < allowed, f"no tie: {name}, seed {request.seed}, a draw {apart:.1e} from the border"
                ties.append({"model": name, "seed": request.seed, "apart": apart})
            drafts = engine.drafts
            for key, value in zip(counts, (drafts.num_passes, drafts.num_drafted, drafts.num_right), strict=True):
                counts[key] += value
    return {"replies": replies, "tokens": tokens, **counts, "differ": len(ties), "ties": ties}


# --- what they save ---------------------------------------------------------------------------------------------------


def refinement_requests(policy: Policy, temperature: float, length: int, questions: Sequence[str]) -> list[Request]:
    """Requests for refinements of the policy's own greedy answers."""
    words = find_prompts("english")
    engine, tokenizer = LocalEngine(policy), policy.tokenizer
    first = Sampling(max_new_tokens=length, temperature=0.0)
    contexts = [render(tokenizer, words.solve_messages(question), "") for question in questions]
    answers = engine.generate([Request(context=tuple(context), sampling=first, seed=0) for context in contexts])
    texts = [tokenizer.decode(done.tokens, skip_special_tokens=True) for done in answers]
    asked = [words.refine_messages(*parts, CRITIQUE) for parts in zip(questions, texts, strict=True)]
    sampling = Sampling(max_new_tokens=length, temperature=temperature)
    return [
        Request(context=tuple(render(tokenizer, messages, "")), sampling=sampling, seed=i)
        for i, messages in enumerate(asked)
    ]


def refining(
    policy: Policy, temperature: float, length: int, repeats: int, draft: int, products: str, number: int
) -> Numbers:
    """Both sides in turn, one row at a time."""
    requests = refinement_requests(policy, temperature, length, QUESTIONS[:number])
    sides = {"plain": 0, "drafted": draft}
    cpu, wall = ({side: list[float]() for side in sides} for _ in range(2))
    done: dict[str, list[Completion]] = {}
    drafts = None
    for _ in range(repeats):
        for side, most in sides.items():
            engine = LocalEngine(policy, max_rows=1, draft=most, products=products)
            done[side], of_cpu, of_wall = clocked(lambda engine=engine: [engine.generate([r])[0] for r in requests])
            cpu[side].append(of_cpu)
            wall[side].append(of_wall)
            drafts = engine.drafts
    tokens = sum(len(reply.tokens) for reply in done["plain"])
    passes = tokens - len(requests) - drafts.num_right
    equal = sum(one.tokens == other.tokens for one, other in zip(done["plain"], done["drafted"], strict=True))
    numbers = {
        "temperature": temperature, "products": products, "draft": draft, "replies": len(requests),
        "tokens": tokens, "equal": equal,
        "tokens_a_pass": (tokens - len(requests)) / passes, "cpu": {s: spread(v) for s, v in cpu.items()},
        "wall": {s: spread(v) for s, v in wall.items()},
        "ratio": spread([a / b for a, b in zip(cpu["plain"], cpu["drafted"], strict=True)]),
    }  # fmt: skip
    print("refinements", numbers, flush=True)
    return numbers


class RecordedAll(Exception):
    """All turns of a step have been asked."""


def recorded_batches(items: int, group: int) -> tuple[Policy, list[list[Request]]]:
    """The requests of one step of `agent_grpo`, as its engine was asked them."""
    import whet

    batches: list[list[Request]] = []
    generate = LocalEngine.generate

    def recording(engine: LocalEngine, requests: Sequence[Request]) -> list[Completion]:
        if len(batches) == TURNS:
            raise RecordedAll
        is_sampled = all(request.sampling.temperature > 0 for request in requests)
        if batches or (is_sampled and len(requests) == items * group):
            batches.append(list(requests))
        return generate(engine, requests)

    LocalEngine.generate = recording
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(RecordedAll):
            whet.train(
                "agent_grpo", out=Path(folder) / "run", policy={"path": AGENT}, data=data_of(items), num_steps=1,
                prompts_per_step=items, group_size=group, max_turns=TURNS, max_context=4096,
                sampling={"max_new_tokens": 64}, evaluation={"max_turns": 1}, num_threads=1, checkpoint_every=0,
                engine={"rollout": "lockstep"},
            )  # fmt: skip
    finally:
        LocalEngine.generate = generate
    assert len(batches) == TURNS, f"the run asked for {len(batches)} turns"
    return load(AGENT), batches


def passes_timed(engine: LocalEngine, batches: Sequence[Sequence[Request]], most: int) -> tuple[list[Any], float]:
    """Replies to all batches, and CPU seconds of the passes with at most so many rows."""
    seconds, step = 0.0, local.next_tokens

    def timed(runner: Any, running: Any, memory: Any, drafts: Any) -> None:
        nonlocal seconds
        is_few, begun = running.count <= most, time.process_time()
        step(runner, running, memory, drafts)
        seconds += (time.process_time() - begun) if is_few else 0.0

    local.next_tokens = timed
    try:
        return [engine.generate(batch) for batch in batches], seconds
    finally:
        local.next_tokens = step


def acting(repeats: int, draft: int, items: int = ITEMS, group: int = GROUP) -> Numbers:
    """Both sides in turn, over all turns of a step."""
    policy, batches = recorded_batches(items, group)
    most = items * group // 4
    sides = {"plain": 0, "drafted": draft}
    whole, last = ({side: list[float]() for side in sides} for _ in range(2))
    done: dict[str, Any] = {}
    for _ in range(repeats):
        for side, drafted in sides.items():
            engine = LocalEngine(policy, draft=drafted)
            (done[side], seconds), cpu, _ = clocked(lambda engine=engine: passes_timed(engine, batches, most))
            whole[side].append(cpu)
            last[side].append(seconds)
    for batch, one, other in zip(batches, done["plain"], done["drafted"], strict=True):
        for request, plain, drafted in zip(batch, one, other, strict=True):
            if plain.tokens != drafted.tokens:
                apart, allowed = distance(policy, request, drafted.tokens, plain.tokens)
                assert apart < allowed, f"no tie: seed {request.seed}, a draw {apart:.1e} from the border"
                print(f"a tie: seed {request.seed}, {apart:.1e} from the border", flush=True)
    pairs = [pair for one, other in zip(done["plain"], done["drafted"], strict=True)
             for pair in zip(one, other, strict=True)]  # fmt: skip
    numbers = {
        "rows": items * group, "replies": len(pairs), "equal": sum(one.tokens == other.tokens for one, other in pairs),
        "most_rows": most, "cpu": {s: spread(v) for s, v in whole.items()},
        "last_cpu": {s: spread(v) for s, v in last.items()},
        "ratio": spread([a / b for a, b in zip(whole["plain"], whole["drafted"], strict=True)]),
        "last_ratio": spread([a / b for a, b in zip(last["plain"], last["drafted"], strict=True)]),
    }  # fmt: skip
    print("agents", numbers, flush=True)
    return numbers


# --- the page ---------------------------------------------------------------------------------------------------------


def text(result: Mapping[str, Any]) -> str:
    """The result as Markdown: of the parts that it has."""
    lines = ["# Drafts by prompt lookup", ""]
    for part, show in (("same", same_text), ("refinements", refinements_text), ("agents", agents_text)):
        if part in result:
            of = result[part]
            lines += [*show(of["numbers"]), "", f"`{of['command']}`. {machine_text(of['machine'])}", ""]
    return "\n".join(lines)


def machine_text(found: Mapping[str, Any]) -> str:
    rest = ", ".join(f"{key} {value}" for key, value in found.items() if value and key != "instructions")
    return f"Instructions: {found['instructions']}. Machine: {rest}."


def same_text(found: Numbers) -> list[str]:
    ties = [f"* {tie['model']}, seed {tie['seed']}: {tie['apart']:.1e} from the border." for tie in found["ties"]]
    return [
        "## The same tokens", "",
        f"{found['replies']:,} replies ({found['tokens']:,} tokens) of the shipped models, at "
        f"{', '.join(map(str, ROWS))} rows: {found['differ']} differ. One that does has to be traced to a draw within "
        f"{TIE:.0e} of the border between both tokens, or to two likeliest tokens within {GREEDY_TIE:.0e} nats. "
        f"{found['passes']:,} passes had drafts: {found['right']:,} of {found['drafted']:,} drafted tokens were right.",
        "", *ties,
    ]  # fmt: skip


def refinements_text(cases: Sequence[Numbers]) -> list[str]:
    lines = [
        "## Refinements of SmolLM2-135M, one row at a time", "",
        "| temperature | products | draft | tokens | a pass | without drafts, CPU s | with | ratio | same replies |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for case in cases:
        cells = [f"{case['temperature']:g}", case["products"], str(case["draft"]), f"{case['tokens']:,}"]
        cells += [f"{case['tokens_a_pass']:.2f}"]
        cells += [f"{case['cpu'][side]['median']:.1f}" for side in ("plain", "drafted")]
        cells += [f"{case['ratio']['median']:.2f}", f"{case['equal']} of {case['replies']}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def agents_text(agents: Numbers) -> list[str]:
    lines = [
        f"## Agents: a step of {agents['rows']} episodes in lockstep", "",
        "| passes | without drafts, CPU s | with | ratio |", "|---|---|---|---|",
    ]  # fmt: skip
    few = f"of at most {agents['most_rows']} rows"
    for name, of, ratio in (("all, with prefills", "cpu", "ratio"), (few, "last_cpu", "last_ratio")):
        plain, drafted = (agents[of][side]["median"] for side in ("plain", "drafted"))
        lines.append(f"| {name} | {plain:.2f} | {drafted:.2f} | {agents[ratio]['median']:.2f} |")
    told = f"{agents['equal']:,} of {agents['replies']:,} turns are the same."
    return [*lines, "", f"{told} Drafts need at most {POSITIONS // 2} rows."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", default=["same", "agents", "refinements"], help="the others stay as they are"
    )
    parser.add_argument("--model", type=Path, help="that `whet get smollm2` wrote, for refinements")
    parser.add_argument("--replies", type=int, default=1000)
    parser.add_argument("--questions", type=int, default=len(QUESTIONS))
    parser.add_argument("--length", type=int, default=96, help="tokens of an answer and of a refinement at most")
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--draft", type=int, default=16)
    parser.add_argument("--products", nargs="*", default=["float32"])
    parser.add_argument("--temperatures", nargs="*", type=float, default=[0.0, 0.7])
    options = parser.parse_args()
    torch.set_num_threads(1)
    works: dict[str, Callable[[], Any]] = {
        "same": lambda: same(options.replies, options.draft),
        "agents": lambda: acting(options.repeats, options.draft, options.items),
        "refinements": lambda: [
            refining(policy, temperature, options.length, options.repeats, options.draft, products, options.questions)
            for policy in [load(options.model)]
            for products in options.products
            for temperature in options.temperatures
        ],
    }
    for part in options.parts:
        numbers = works[part]()
        where = machine() | {"instructions": ", ".join(instructions())}
        place = RESULTS / "drafts.json"
        result = json.loads(place.read_text()) if place.exists() else {}
        result[part] = {"command": where.pop("command"), "machine": where, "numbers": numbers}
        write("drafts", result, text(result))


if __name__ == "__main__":
    main()
