"""The settings of a policy gradient, of replies (`policy_gradient`) or of episodes (`agent_gradient`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from whet.config import (
    Aggregation,
    ClipLoss,
    CorrectionConfig,
    FreshData,
    KLConfig,
    LearningConfig,
    NameOf,
    OffPolicy,
    PerStep,
    PolicyLoss,
    Scheduled,
    ValueConfig,
)
from whet.config.acts import ActsWhen
from whet.config.schedule import Gated

ROLLED_OUT = ("sampling", "max_turns", "rewards")
"""Settings by which rollouts differ."""


class GradientConfig(Scheduled):
    """How a policy gradient learns."""

    num_steps: int = Field(60, ge=1, le=10**9)
    """Steps: sample, grade, update."""
    prompts_per_step: int = Field(16, ge=1)
    """Problems begun in a step."""
    group_size: PerStep[int] = Field(8, ge=1)
    """Replies to each."""
    advantage: Annotated[str, NameOf("advantage")] = "grpo"
    """grpo: centred in the group, divided by its std. dr_grpo: centred. rloo: leave-one-out. reinforce_pp: whitened
    over the batch's tokens. reinforce_pp_baseline: centred in the group, then whitened. reward: the reward itself. gae:
    PPO's, with a value model. A plug-in may register others."""
    value: Annotated[ValueConfig, ActsWhen("advantage", "gae")] = ValueConfig()
    loss: PerStep[PolicyLoss] = ClipLoss()
    """Of the policy."""
    aggregation: Aggregation = "token_mean"
    """How token losses are averaged: over all tokens (DAPO), within replies first (GRPO's paper), or over a constant
    length (Dr. GRPO): max_new_tokens, of episodes times the turns that they may take."""
    proximal: bool = False
    """What ratios compare with. False: the weights that sampled the token. True: those that the step starts from."""
    correction: CorrectionConfig | None = None
    """With proximal. None: no correction."""
    kl: PerStep[KLConfig] = KLConfig()
    entropy_coef: PerStep[float] = Field(0.0, ge=0, le=1e6)
    """Weight of a bonus for the policy's entropy, nats a token, averaged as the loss is. 0: none."""
    off_policy: OffPolicy = FreshData()
    """How data may be older than the weights, beside several updates a batch (learning.num_epochs and
    learning.minibatch_rows)."""
    learning: LearningConfig = LearningConfig(learning_rate=3e-4, minibatch_rows=128)
    validate_every: int = Field(10, ge=1)
    """Steps between validations; the best validated weights are kept."""
    probe_every: int = Field(10, ge=0)
    """Updates between two measurements of an update's change of entropy, beside the Entropy-Clip Rule's prediction.
    Each takes one more pass without gradient. 0: none."""

    unit: ClassVar[str] = "replies"
    """What a group is of."""

    def problems(self) -> Iterator[str]:
        """Settings that do not go together, a sentence each."""
        num_rows = self.prompts_per_step * self.group_size
        if self.correction is not None and not self.proximal:
            yield "correction needs proximal = true: with ratios to the sampler it would count twice"
        if self.correction is not None and self.correction.low >= self.correction.high:
            yield "correction.low has to be less than correction.high"
        if self.advantage == "gae" and (problem := self.value.warmup_problem(num_rows, self.num_steps)):
            yield problem
        if self.off_policy.kind == "replay" and self.off_policy.staleness >= self.num_steps:
            yield "off_policy.staleness has to be less than num_steps, or nothing would ever be trained on"
        if self.off_policy.kind == "async":
            yield from _async_problems(self)


def _async_problems(config: GradientConfig) -> Iterator[str]:
    """What hinders rollouts from going on while the policy trains, a sentence each. Look-ups count as no read."""
    settings = config.__dict__
    engine = settings["engine"].__dict__
    if engine["kind"] == "vllm" and engine["rollout"] == "free":
        yield "off_policy.kind = async on servers asks each for its answer as it comes: leave out engine.rollout=free"
    if engine["kind"] == "vllm" and settings["off_policy"].__dict__["log"] is not None:
        yield (
            "off_policy.log does not go with engine.kind = vllm: servers go on with a reply by newer weights, at a "
            "moment that no log holds"
        )
    if engine["rollout"] == "free" and engine["latency"] is None:
        yield "off_policy.kind = async does not go with engine.latency = null: rollouts would depend on a second log"
    for key, schedule in settings["schedule"].items():
        if key == "group_size" or (key.partition(".")[0] in ROLLED_OUT and isinstance(schedule, Gated)):
            which = "" if key == "group_size" else ", where it waits for a metric"
            yield (
                f"schedule.{key} does not go with off_policy.kind = async{which}: rollouts of several steps are under "
                "way at one time"
            )
