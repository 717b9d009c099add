"""The settings of plain RL with a verifiable reward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from whet.config import PerStep, PolicyRunConfig
from whet.methods.gradient_config import GradientConfig


class PolicyGradientConfig(PolicyRunConfig, GradientConfig):
    """Plain RL with a verifiable reward: a policy samples replies, a grader scores them, groups compare."""

    method: Literal["policy_gradient"] = "policy_gradient"
    signed: PerStep[bool] = False
    """False: a reply's reward is its score, 0 to 1. True: the score, scaled to -1 to 1. Matters where no group mean is
    subtracted, and beside a penalty on length."""
    overlong: PerStep[int] = Field(0, ge=0)
    """Soft penalty on length (DAPO): over the last so many of max_new_tokens, the reward falls linearly by up to 1.
    0: none."""
    resample: PerStep[int] = Field(0, ge=0)
    """Dynamic sampling (DAPO): at most so many more batches, until prompts_per_step groups have scores that differ
    within the group, before any penalty on length. 0: groups without signal stay, and teach nothing."""

    @model_validator(mode="after")
    def check_parts(self) -> Self:
        for problem in (*_problems(self), *self.problems()):
            raise ValueError(problem)
        return self


def _problems(config: PolicyGradientConfig) -> Iterator[str]:
    """Settings that do not go together, a sentence each."""
    regime = config.off_policy.kind
    if config.sampling.temperature == 0:
        yield "sampling.temperature = 0 makes all replies to a problem equal; use 0.6 to 1.0"
    if config.overlong >= config.sampling.max_new_tokens:
        yield "overlong has to be less than sampling.max_new_tokens: else every reply is penalised"
    if config.resample and regime == "partial":
        yield "resample does not go with off_policy.kind = partial: unfinished groups cannot be replaced"
    if config.resample and regime == "async":
        yield "resample does not go with off_policy.kind = async: more batches of a step would wait for one another"
    if config.resample and config.group_size < 2:
        yield "resample looks for groups whose scores differ, so group_size has to be 2 at least"
    if regime == "partial" and any(key.partition(".")[0] == "sampling" for key in config.__dict__["schedule"]):
        yield "schedule.sampling does not go with off_policy.kind = partial: a reply would be of two samplings"
    if config.sampling.stop and regime == "partial":
        yield "sampling.stop does not go with off_policy.kind = partial: a string might fall on a seam"
