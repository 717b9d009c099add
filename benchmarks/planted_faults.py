"""Faults that users of this field suffer, planted in short real runs: is each found, when, and in which words?

    .venv/bin/python benchmarks/planted_faults.py             # all of them (two minutes on one core)
    .venv/bin/python benchmarks/planted_faults.py --only kl   # those whose name contains this

A fault is found where the run stops or the console is told, before the first step or in it. `tests/runs` holds each of
them to its sentence.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import whet.models
from study import write
from whet.engines.building import engine_of
from whet.errors import WhetError
from whet.methods import METHODS
from whet.methods.names import POLICY
from whet.methods.registry import config_of
from whet.run.launch import start
from whet.run.session import Session

SHORT = ("num_threads=1", "num_steps=1", "checkpoint_every=0")
FEW = ("data.num_train=16", "data.num_validation=2", "data.num_test=2")
REPLIES = (*SHORT, "evaluation.num_samples=0", "prompts_per_step=4", "group_size=4", "sampling.max_new_tokens=48")
SOLVE = (*REPLIES, *FEW)
ACT = (*SHORT, *FEW, "prompts_per_step=4", "group_size=4", "max_turns=2", "sampling.max_new_tokens=24",
       "pool.timeout_s=0.5", "pool.retries=0", "faults.retries=0")  # fmt: skip
MODELS = Path(whet.models.__file__).parent

ENVIRONMENT = """
import itertools, random, threading
import whet

MADE = itertools.count()
RULES = "Find the key. Reply in this form:\\n\\nThought:\\nI look.\\n\\nAction:\\nlook"


@whet.env("{name}", splits={{"train": range(40), "test": range(40, 60)}}, max_turns=2, rules=RULES, says="planted")
class World:
    def __init__(self):
        self.number = next(MADE)

    def reset(self, item, *, seed=0):
        return f"Room {{item}}, door {start}.", {{}}

    def step(self, action):
        {step}
"""
GRADER = """
import whet


@whet.grader("{name}", says="planted")
def score(completion):
    return {score}
"""
OPENED = "{% if add_generation_prompt %}<|assistant|>{% endif %}"


@dataclass(frozen=True)
class Fault:
    """A run that is wrong, and what is to be said of it."""

    says: str
    """What is wrong with it."""
    sentence: str
    """A regular expression that what is told has to match."""
    method: str
    settings: Callable[[Path], list[str]]
    """Makes what the run needs in a folder."""
    planted: Callable[[Session], object] = lambda session: None
    """What is done to a session that is ready to go."""
    stops: bool = True


@dataclass(frozen=True)
class Found:
    """What a run said."""

    texts: tuple[str, ...]
    """All that was told, of the first step at most."""
    stopped: bool
    when: str
    """Of the sentence: before the first step, or in it."""


def environment(name: str, *, start: str = "one", step: str = 'return "Nothing.", 0.0, False, False, {}') -> Any:
    def settings(folder: Path) -> list[str]:
        file = folder / f"{name}.py"
        file.write_text(ENVIRONMENT.format(name=name, start=start, step=step))
        return [*ACT, f"plugins=[{file}]", f"data.env={name}"]

    return settings


def grader(name: str, score: str) -> Any:
    def settings(folder: Path) -> list[str]:
        file = folder / f"{name}.py"
        file.write_text(GRADER.format(name=name, score=score))
        rows = [{"question": f"What is {i} plus {i + 1}?", "answer": str(2 * i + 1)} for i in range(40)]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        # Groups enough that chance does not explain why none has a signal.
        return [*REPLIES, "prompts_per_step=16", f"plugins=[{file}]",
                "policy.path=tiny_agent_early", "prompts=english", "data.kind=file",
                f"data.path={folder / 'rows.jsonl'}", f"data.grader={name}"]  # fmt: skip

    return settings


def model(*, source: str = "tiny_model", **edits: Callable[[str], str]) -> Any:
    """A copy of a model that ships, with some of its files edited: `chat_template_jinja` is `chat_template.jinja`."""

    def settings(folder: Path) -> list[str]:
        copy = folder / "model"
        shutil.copytree(MODELS / source, copy)
        for name, edit in edits.items():
            base, _, ending = name.rpartition("_")
            file = copy / f"{base}.{ending}"
            file.write_text(edit(file.read_text()))
        return [*SOLVE, f"policy.path={copy}"]

    return settings


def foreign_tokenizer(folder: Path) -> list[str]:
    copy = folder / "model"
    shutil.copytree(MODELS / "tiny_agents" / "early", copy)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(MODELS / "tiny_model" / name, copy / name)
    return [*SOLVE, f"policy.path={copy}"]


def larger_tokenizer(folder: Path) -> list[str]:
    copy = folder / "model"
    shutil.copytree(MODELS / "tiny_model", copy)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(MODELS / "tiny_agents" / "early" / name, copy / name)
    return [*SOLVE, f"policy.path={copy}"]


def adapter_as_model(folder: Path) -> list[str]:
    shutil.copytree(MODELS / "tiny_model", folder / "adapter", ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "adapter" / "adapter_config.json").write_text("{}")
    return [*SOLVE, f"policy.path={folder / 'adapter'}"]


def solve(*settings: str) -> Any:
    return lambda folder: [*SOLVE, *settings]


def zero_adapter(session: Session) -> None:
    with torch.no_grad():
        for _, parameter in session.loop.policies[POLICY].trainable_parameters():
            parameter.zero_()


def strange_engine(session: Session) -> None:
    """An engine with a copy of other weights, as one that was never sent the newest."""
    other = session.loop.policies[POLICY].fork("other")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _, parameter in other.trainable_parameters():
            parameter.add_(0.03 * torch.randn(parameter.shape, generator=generator))
    runtime = session.algorithm.run.runtime
    engine = engine_of(other, runtime.settings)
    runtime.engine = lambda name: engine  # type: ignore[method-assign]


def _set(text: str, **values: Any) -> str:
    return json.dumps(json.loads(text) | values)


FAULTS: dict[str, Fault] = {
    "env_draws_its_own_chance": Fault(
        "an environment draws from `random` in reset", r"begins item \d+ in two ways under one seed: .*Draw whatever",
        "agent_grpo", environment("planted_chance", start="{random.random():.6f}"),
    ),
    "env_keeps_something": Fault(
        "worlds differ by when they were made, so that a group gets different questions",
        r"members of the group of task \S+ began with other prompts .*rewards cannot be compared", "agent_grpo",
        environment("planted_salt", start="{self.number}"),
    ),
    "env_reward_out_of_range": Fault(
        "an environment declares rewards from 0 to 1 and pays 5", r"add up to 5, outside of its range",
        "agent_grpo", environment("planted_pay", step='return "Yes.", 5.0, True, False, {}'),
    ),
    "env_hangs": Fault(
        "an environment's step never returns", r"timeout.*ook whether the environment hangs, or raise pool.timeout_s",
        "agent_grpo", environment("planted_hang", step="threading.Event().wait(20)"),
    ),
    "grader_out_of_range": Fault(
        "a grader gives 7, where scores are from 0 to 1", r"outside of \[0, 1\]", "grpo",
        grader("planted_seven", "7.0"),
    ),
    "grader_always_the_same": Fault(
        "a grader gives every reply the same", r"0% of the groups have a signal.*look at what the grader says of some",
        "grpo", grader("planted_half", "0.5"), stops=False,
    ),
    "template_without_generation_prompt": Fault(
        "a chat template ignores add_generation_prompt", r"ignores add_generation_prompt: a reply begins with", "grpo",
        model(chat_template_jinja=lambda text: text.replace(OPENED, "")),
    ),
    "template_rewrites_digits": Fault(
        "a chat template rewrites digits", r"rewrites what the user says: .* is not in it to the letter", "grpo",
        model(chat_template_jinja=lambda text: text.replace("['content'] }}", "['content'] | replace('4', 'four') }}")),
    ),
    "template_drops_the_user": Fault(
        "a chat template leaves out what the user says", r"leaves out what the user says", "grpo",
        model(chat_template_jinja=lambda text: text.replace("message['content']", "''")),
    ),
    "template_ends_by_another_token": Fault(
        "the model's end token is not the one that its template writes",
        r"closes a reply by '<\|end\|>', and replies end", "grpo", model(
            generation_config_json=lambda text: _set(text, eos_token_id=1),
            config_json=lambda text: _set(text, eos_token_id=1),
            tokenizer_config_json=lambda text: _set(text, eos_token="<|user|>"),
        ), stops=False,
    ),
    "tokenizer_past_the_embedding": Fault(
        "a tokenizer has ids that the embedding lacks", r"tokens past the model's vocabulary of", "grpo",
        larger_tokenizer,
    ),
    "tokenizer_of_another_model": Fault(
        "a smaller tokenizer of another model, whose ids all fit", r"knows \d+ tokens of the model's 1,510", "grpo",
        foreign_tokenizer, stops=False,
    ),
    "tokenizer_rewrites_digits": Fault(
        "a tokenizer reads one digit as another", r"rewrites digits: .* comes back as", "grpo",
        model(tokenizer_json=lambda text: re.sub(r'"4": \d+', f'"4": {json.loads(text)["model"]["vocab"]["7"]}', text)),
    ),
    "adapter_as_a_model": Fault(
        "a PEFT adapter is given in place of a model", r"holds a PEFT adapter, not a whole model", "grpo",
        adapter_as_model,
    ),
    "adapter_all_zero": Fault(
        "both matrices of an adapter are 0, so that no gradient reaches either",
        r"moved none of the weights .*its gradient is 0: look whether the weights are frozen", "grpo",
        solve("policy.lora.rank=4"), zero_adapter, stops=False,
    ),
    "rate_too_small": Fault(
        "a learning rate below what the weights' type can hold",
        r"moved none of the weights .*a learning rate of 1e-30 is too small", "grpo",
        solve("learning.learning_rate=1e-30"), stops=False,
    ),
    "narrow_sampling": Fault(
        "top_p below 1 in RL", r"sampling.top_p = 0.9 samples from a part of the tokens", "grpo",
        solve("sampling.top_p=0.9"), stops=False,
    ),
    "engine_of_other_weights": Fault(
        "the engine samples from other weights than the trainer's",
        r"sampler and trainer of policy policy are \S+ nats a token apart .*watch.kl_stop allows 0.5 here", "grpo",
        solve("watch.kl_stop=0.5"), strange_engine,
    ),
    "replies_cut_off": Fault(
        "max_new_tokens is too small for any answer", r"all 16 replies ran into the token limit", "grpo",
        solve("sampling.max_new_tokens=3"), stops=False,
    ),
}  # fmt: skip


class Told:
    """A console that keeps what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def begin(self, phase: str, done: int, total: int) -> None: ...
    def step(self, step: int, shown: object) -> None: ...
    def end(self) -> None: ...
    def tell(self, level: str, text: str) -> None:
        self.texts.append(text)


def found(fault: Fault, folder: Path) -> Found:
    """Make the run and keep what it says."""
    progress, stopped, when = Told(), False, "before the first step"
    try:
        assert fault.method in METHODS
        config = config_of(fault.method, None, fault.settings(folder))
        session = start(config, folder / "run", progress)
        assert isinstance(session, Session)
        fault.planted(session)
        num_before = len(progress.texts)
        before = any(re.search(fault.sentence, text) for text in progress.texts[:num_before])
        when = when if before else "in the first step"
        session.go()
    except WhetError as error:
        stopped = True
        progress.texts.append(str(error))
    return Found(tuple(progress.texts), stopped, when)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose name contains this")
    only = parser.parse_args().only
    rows = []
    for name, fault in FAULTS.items():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as root:
            result = found(fault, Path(root))
            said = [" ".join(text.replace(root, "RUN").split()) for text in result.texts]
        hits = [text for text in said if re.search(fault.sentence, text)]
        sentence = hits[0] if hits else ""
        rows.append({"fault": name, "says": fault.says, "found": bool(hits), "when": result.when if hits else "",
                     "stopped": result.stopped, "sentence": sentence})  # fmt: skip
        print(f"{'found' if hits else 'MISSED'}  {name}  {sentence or said}", flush=True)
    if not only:
        write("planted_faults", {"faults": rows}, _text(rows))


def _text(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Planted faults",
        "",
        f"{sum(row['found'] for row in rows)} of {len(rows)} found, made by `benchmarks/planted_faults.py`. Each is a "
        "short run with one thing wrong.",
        "",
        "| what is wrong | found | the run | what is said |",
        "|---|---|---|---|",
    ]
    for row in rows:
        sentence = row["sentence"].replace("|", "\\|")
        ends = "stops" if row["stopped"] else "goes on"
        lines.append(f"| {row['says']} | {row['when'] or '**missed**'} | {ends} | {sentence} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
