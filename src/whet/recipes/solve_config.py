"""Settings of plain RL with a verifiable reward, and the methods that are presets of them. Free of torch."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from whet.config.base import Config
from whet.config.parts import (
    ChainData,
    EngineConfig,
    FileData,
    GymData,
    LearningConfig,
    ModelConfig,
    SamplingConfig,
    WatchConfig,
)
from whet.recipes.loss_config import (
    BalancedBounds,
    BoundRange,
    CispoLoss,
    ClipLoss,
    FixedBounds,
    GspoLoss,
    Loss,
    M2poLoss,
    ReinforceLoss,
    SapoLoss,
    ToprLoss,
)

# --- what is off-policy -----------------------------------------------------------------------------------------------


class FreshData(Config):
    """Every batch is trained on in the step that sampled it."""

    kind: Literal["none"] = "none"


class ReplayData(Config):
    """Every batch is trained on exactly so many steps after it was sampled."""

    kind: Literal["replay"] = "replay"
    staleness: int = Field(4, ge=1)
    """Steps that a batch waits, first in, first out. The first steps only fill the queue."""


class PartialData(Config):
    """Long replies are written in several steps, the later parts by newer weights (partial rollout)."""

    kind: Literal["partial"] = "partial"
    budget: int = Field(24, ge=1)
    """Tokens that a reply may grow in one step."""


OffPolicy = Annotated[FreshData | ReplayData | PartialData, Field(discriminator="kind")]


class CorrectionConfig(Config):
    """Weighs tokens by how the weights that a step starts from differ from those that sampled (needs proximal)."""

    low: float = Field(0.0, ge=0)
    """Lower bound on the weight."""
    high: float = Field(2.0, gt=0)
    """Upper bound on it. TIS: 0 to 2, clamped. Decoupled PPO: 0 to a high one, say 1000."""
    outside: Literal["clamp", "drop"] = "clamp"
    """What happens past a bound: the weight is clamped to it, or the token is dropped (IcePop)."""
    scope: Literal["token", "sequence", "geometric"] = "token"
    """Whose ratio: each token's, the reply's product, or its geometric mean."""


class KLConfig(Config):
    """A leash to the model that the run starts from."""

    coef: float = Field(0.0, ge=0, le=1e6)
    """Weight of the KL. 0: none, and no reference is kept."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """k1 is the one for the reward; in the loss, k2 has the gradient of KL(policy || reference)."""
    where: Literal["reward", "loss"] = "loss"
    """reward: a penalty on each token's reward, summed to the end; loss: a term of its own."""


class ValueConfig(Config):
    """The value model of PPO (advantage = gae)."""

    path: str | None = None
    """A folder with a value model that a run of ours saved. None: the policy's model with a new head, which gives 0."""
    gamma: float = Field(1.0, gt=0, le=1)
    """Discount a token."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """1: returns minus values. 0: one-step differences."""
    clip: float | None = Field(0.5, gt=0)
    """A value may move this far from the old one in a step, in units of the reward. None: freely."""
    warmup_updates: int = Field(5, ge=0, le=10**9)
    """Updates that the value model makes alone, before the policy learns."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-3, minibatch_rows=128)


Advantage = Literal["grpo", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "reward", "gae"]


class SolveEvaluation(Config):
    """What is measured before and after training."""

    num_samples: int = Field(4, ge=0, le=10_000)
    """Sampled replies a problem, for their mean, pass@k and majority. 0: the greedy reply only."""
    num_validation: int | None = Field(None, ge=1)
    """Validation problems in use. None: all."""
    num_test: int | None = Field(None, ge=1)
    """Test problems in use. None: all."""


class SolveConfig(Config):
    """Plain RL with a verifiable reward: a policy samples replies to a problem, a grader pays them, groups compare."""

    recipe: Literal["solve"] = "solve"
    """Which recipe these are the settings of."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Of everything that is random in the run."""
    num_threads: int | None = Field(None, ge=1, le=1024)
    """CPU threads. Same bits need the same number. None: torch's choice."""
    data: Annotated[ChainData | FileData | GymData, Field(discriminator="kind")] = ChainData()
    """The problems."""
    dialect: Literal["chains", "english"] = "chains"
    """Wording of the prompts: the tiny world's, or plain English for real models."""
    policy: ModelConfig = ModelConfig()
    """The model that is trained."""
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig(max_new_tokens=96)
    """Of training replies, and of the samples measured."""
    num_steps: int = Field(60, ge=1, le=10**9)
    """Steps: sample, grade, update."""
    prompts_per_step: int = Field(16, ge=1)
    """Problems begun in a step."""
    group_size: int = Field(8, ge=1)
    """Replies to each."""
    signed: bool = False
    """False: a reply is paid its score, 0 to 1. True: from -1 to 1. Matters where no group's mean is taken off, and
    beside a penalty on length."""
    overlong: int = Field(0, ge=0)
    """Soft penalty on length (DAPO): the reward falls linearly by up to 1 over the last so many of max_new_tokens.
    0: none."""
    resample: int = Field(0, ge=0)
    """Dynamic sampling (DAPO): so many more batches of problems at most, until prompts_per_step groups have scores
    that differ within the group (whatever their lengths cost). 0: groups without signal stay, and teach nothing."""
    advantage: Advantage = "grpo"
    """grpo: centred in the group, divided by its std; dr_grpo: centred; rloo: leave-one-out; reinforce_pp: whitened
    over the batch's tokens; reinforce_pp_baseline: centred in the group, then whitened; reward: as paid; gae: PPO's,
    with a value model."""
    value: ValueConfig = ValueConfig()
    loss: Loss = ClipLoss()
    """Of the policy."""
    aggregation: Literal["token_mean", "sequence_mean", "constant"] = "token_mean"
    """How token losses are averaged: over all tokens (DAPO), within replies first (GRPO's paper), or over a constant
    length, max_new_tokens (Dr. GRPO)."""
    proximal: bool = False
    """What ratios are taken to. False: the weights that sampled the token. True: those that the step starts from."""
    correction: CorrectionConfig | None = None
    """With proximal. None: no correction."""
    kl: KLConfig = KLConfig()
    off_policy: OffPolicy = FreshData()
    """How data come to be older than the weights, beside several updates a batch (learning.num_epochs and
    learning.minibatch_rows)."""
    learning: LearningConfig = LearningConfig(learning_rate=3e-4, minibatch_rows=128)
    validate_every: int = Field(10, ge=1)
    """Steps between validations; the best validated weights are kept."""
    evaluation: SolveEvaluation = SolveEvaluation()
    watch: WatchConfig = WatchConfig()
    checkpoint_every: int = Field(20, ge=0)
    """Steps between checkpoints. 0: at the end only."""
    traces_per_step: int = Field(2, ge=0)
    """Training problems a step whose replies are kept for the report."""
    probe_every: int = Field(10, ge=0)
    """Updates between two measurements of what an update does to the entropy, beside what the Entropy-Clip Rule
    predicts: one more pass without gradient. 0: none."""

    @model_validator(mode="after")
    def check_parts(self) -> Self:
        if (self.data.kind == "chains") != (self.dialect == "chains"):
            raise ValueError(
                f"dialect = {self.dialect!r} does not fit data.kind = {self.data.kind!r}: the tiny world speaks "
                "'chains', other data are put to the model in 'english'"
            )
        if self.sampling.temperature == 0:
            raise ValueError("sampling.temperature = 0 makes all replies to a problem equal; use 0.6 to 1.0")
        if self.group_size < 2 and self.advantage in ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline"):
            raise ValueError(
                f"advantage = {self.advantage!r} compares the replies of a group, so group_size has to be 2 at least, "
                f"not {self.group_size}; single replies go with reinforce_pp, reward or gae"
            )
        if self.overlong >= self.sampling.max_new_tokens:
            raise ValueError("overlong has to be less than sampling.max_new_tokens: else every reply is penalised")
        if self.correction is not None and not self.proximal:
            raise ValueError("correction needs proximal = true: with ratios to the sampler it would count twice")
        if self.correction is not None and self.correction.low >= self.correction.high:
            raise ValueError("correction.low has to be less than correction.high")
        if self.resample and self.off_policy.kind == "partial":
            raise ValueError(
                "resample does not go with off_policy.kind = partial: unfinished groups cannot be replaced"
            )
        if self.advantage == "gae" and self.value.warmup_updates >= self.num_steps * self.value.learning.updates_a_step(
            self.prompts_per_step * self.group_size
        ):
            raise ValueError(
                "value.warmup_updates has to be less than the updates that num_steps make, or the policy never learns"
            )
        if self.resample and self.group_size < 2:
            raise ValueError("resample looks for groups whose scores differ, so group_size has to be 2 at least")
        if self.sampling.stop and self.off_policy.kind == "partial":
            raise ValueError("sampling.stop does not go with off_policy.kind = partial: a string might fall on a seam")
        if self.off_policy.kind == "replay" and self.off_policy.staleness >= self.num_steps:
            raise ValueError("off_policy.staleness has to be less than num_steps, or nothing would ever be trained on")
        return self


# --- methods ----------------------------------------------------------------------------------------------------------

_SEVERAL_UPDATES = LearningConfig(learning_rate=3e-4, num_epochs=2, minibatch_rows=32)
"""BAPO is for data that are older than the weights: as in its published script, two epochs of four minibatches. With
one update a batch every ratio is 1, and no bound acts."""
_CODE_BOUNDS = BalancedBounds(
    target=1.0,
    target_as="odds",
    order="low_first",
    low=BoundRange(start=0.6, ceiling=0.8, step=0.05, onto_ceiling=True),
    high=BoundRange(start=1.2, ceiling=2.0, step=0.05, onto_ceiling=True),
)

PRESETS: dict[str, SolveConfig] = {
    "grpo": SolveConfig(),
    "bapo": SolveConfig(loss=ClipLoss(bounds=BalancedBounds()), learning=_SEVERAL_UPDATES),
    "bapo_code": SolveConfig(loss=ClipLoss(bounds=_CODE_BOUNDS, dual=3.0), learning=_SEVERAL_UPDATES),
    "bapo_gradient": SolveConfig(
        loss=ClipLoss(bounds=BalancedBounds(contribution="gradient")), learning=_SEVERAL_UPDATES
    ),
    "dapo": SolveConfig(loss=ClipLoss(bounds=FixedBounds(high=1.28)), resample=3, overlong=16, signed=True),
    "cispo": SolveConfig(loss=CispoLoss()),
    "gspo": SolveConfig(loss=GspoLoss(), aggregation="sequence_mean"),
    "sapo": SolveConfig(loss=SapoLoss(), aggregation="sequence_mean"),
    "topr": SolveConfig(loss=ToprLoss(), advantage="dr_grpo"),
    "m2po": SolveConfig(loss=M2poLoss()),
    "dr_grpo": SolveConfig(advantage="dr_grpo", aggregation="constant"),
    "rloo": SolveConfig(advantage="rloo", loss=ReinforceLoss(), aggregation="sequence_mean"),
    "reinforce_pp": SolveConfig(advantage="reinforce_pp", signed=True),
    "reinforce_pp_baseline": SolveConfig(advantage="reinforce_pp_baseline"),
    "reinforce": SolveConfig(advantage="reward", signed=True, loss=ReinforceLoss()),
    "ppo": SolveConfig(advantage="gae"),
}
"""`whet train NAME`: the settings that each method of `names.METHODS` starts from."""
