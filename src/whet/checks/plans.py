"""Checks of settings against the rows that they meet: lengths, passes, threads, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from whet.checks.findings import Finding, listed
from whet.checks.machine import usable_cores
from whet.config.base import Config
from whet.config.parts import SamplingConfig
from whet.config.runs import RunConfig
from whet.models.policy import Policy
from whet.models.prompts import measured
from whet.run.plan import step_sizes
from whet.trainer.phase import Phase
from whet.types import Task

COLD = 0.3
"""A temperature below which replies to one problem are nearly equal."""
MANY_PASSES = 30
"""Times that a run sees each problem, past which it learns the answers by heart."""
LONG_RUN = 100
"""Steps without a checkpoint that are much to lose."""


def thread_findings(config: RunConfig) -> Iterator[Finding]:
    """More threads than cores make each step slower."""
    threads, cores = config.__dict__["num_threads"], usable_cores()  # a look-up that counts as no read
    if threads is not None and threads > cores:
        yield Finding(
            "warning",
            "settings",
            f"num_threads = {threads} is more than the {cores} cores here, which slows every step: num_threads={cores}",
        )


def sampling_findings(key: str, sampling: SamplingConfig, policy: Policy, tasks: Sequence[Task]) -> Iterator[Finding]:
    """Findings about the sampling of answers.

    Args:
        key: the setting's name.
    """
    if 0 < sampling.temperature < COLD:
        yield Finding(
            "warning",
            "settings",
            f"{key}.temperature = {sampling.temperature:g} makes the replies of a group nearly equal, so that there is "
            "nothing to compare: use 0.6 to 1",
        )
    most = sampling.max_new_tokens
    answers = [task.answer for task in tasks if task.answer]
    if answers and (shortest := median(count for count, _ in measured(answers[:200], policy.tokenizer))) >= most:
        yield Finding(
            "fail",
            "settings",
            f"{key}.max_new_tokens = {most}, and the bare answers have {shortest:.0f} tokens "
            f"({listed(answers, 1)}): no reply can be whole, so raise it",
        )
        return
    solutions = [str(task.info["solution"]) for task in tasks if task.info.get("solution")]
    if solutions:
        counts = [count for count, _ in measured(solutions[:200], policy.tokenizer)]
        share = sum(count > most for count in counts) / len(counts)
        if share > 0.1:
            enough = sorted(counts)[int(0.95 * (len(counts) - 1))]
            yield Finding(
                "fail" if share > 0.5 else "warning",
                "settings",
                f"{share:.0%} of the worked solutions have more tokens than {key}.max_new_tokens = {most}, so replies "
                f"like them are cut before their answer: {key}.max_new_tokens={enough}",
            )


def length_findings(config: RunConfig, phases: Sequence[Phase], num_train: int) -> Iterator[Finding]:
    """Findings about the number of steps."""
    num_steps = sum(phase.num_steps for phase in phases)
    seen = sum(phase.num_steps for phase in phases if phase.updates(1)) * prompts_per_step(config)
    if num_train and seen > MANY_PASSES * num_train:
        yield Finding(
            "warning",
            "settings",
            f"the run sees each of the {num_train} training problems about {seen / num_train:.0f} times, and learns "
            "them by heart: give more problems, or fewer steps",
        )
    every = config.__dict__["checkpoint_every"]
    longest = max((phase.num_steps for phase in phases), default=0)
    if longest >= LONG_RUN and not 0 < every < longest:
        yield Finding(
            "warning",
            "settings",
            f"checkpoint_every = {every} saves nothing within a phase of {longest} steps, so a kill loses them all: "
            f"checkpoint_every={max(1, num_steps // 20)}",
        )


def prompts_per_step(config: Config) -> int:
    """The most problems of a step, by settings of that name at any depth. Counts as no read. 0: unknown."""
    return max((problems for problems, _ in step_sizes(config)), default=0)
