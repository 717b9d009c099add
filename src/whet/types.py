"""The records that travel between rooms: tasks, grades, requests and completions, segments, episodes, rows.

All of them are frozen. Token ids are kept exactly as they were fed and sampled, from the engine to the loss; text is
only ever derived from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

StopReason = Literal["eos", "stop", "length", "cancelled"]
"""Why a completion ended: the end token, a stop string, the token limit, or the run that asked for it ended."""

Outcome = Literal["ok", "truncated", "env_error", "timeout", "grader_error"]
"""How an episode ended. `env_error`, `timeout` and `grader_error` are our failures: counted, shown, never a reward.
`truncated` is the model's own doing (it ran out of tokens or turns) and is scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem to play."""

    id: str
    """Unique in its set; seeds derive from it."""
    prompt: str
    answer: str | None = None
    """The reference, as the set's grader takes it. None: the task cannot be graded."""
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What a grader made of one reply."""

    score: float | None
    """In [0, 1]. None: grading failed (see `reason`); the attempt is counted and left out of training."""
    reason: str = ""
    extracted: str | None = None
    """The final answer as the grader read it, for majority votes. None: it found none."""
    exhausted: bool = False
    """The reply ran its grading out of time or memory. That is the reply's doing, so it scores 0 and is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to sample. The logprobs an engine reports, and the ones the trainer differentiates, are those of
    `softmax(logits / temperature)`, before any top-p cut; with temperature 0 (greedy) those of `softmax(logits)`."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 64
    stop: tuple[str, ...] = ()
    """The completion ends right after one of these strings appears in it (the string is kept)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an engine is asked for. Requests with equal contexts are prefilled once."""

    context: tuple[int, ...]
    sampling: Sampling
    seed: int
    """64 bits. The completion depends on it, the weights and the context, and on nothing else in the batch beyond
    rounding."""
    num_drawn: int = 0
    """Tokens already drawn with this seed: a reply that goes on after a pause, its tokens so far in the context, draws
    what it would have drawn without one."""

    def __post_init__(self) -> None:
        if not self.context:
            raise ValueError("a request without context: give the engine one token at least to go on from")


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What an engine gives back; `tokens` includes the end token where one was sampled."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: StopReason
    version: int
    """Of the weights that wrote it: the number of updates they had seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What one role wrote once."""

    role: str
    policy: str
    """The policy (or `rule`) behind the role: whose weights train on this segment, if any do."""
    context: tuple[int, ...]
    tokens: tuple[int, ...]
    """As sampled; includes the end token. Empty for a rule."""
    logprobs: tuple[float, ...]
    """The sampler's, one a token; see `Sampling` for the distribution they belong to."""
    versions: tuple[tuple[int, int], ...]
    """Runs of `(weights version, number of tokens)`. One run, unless newer weights went on with a partial rollout."""
    text: str
    """The reply without its end token, with the prefill that its prompt forced on it."""
    stop_reason: StopReason
    temperature: float
    seed: int
    parent: int | None
    """Index in the episode of the segment that this one replies to."""
    group: Mapping[str, str] = field(default_factory=dict)
    """Keys under which segments may share a baseline, such as `{"task": ..., "answer": ..., "round": ...}`."""
    parsed: Mapping[str, Any] = field(default_factory=dict)
    """What the role's parser read: `verdict`, `extracted`, ..."""
    grade: Grade | None = None
    """The verifier's, where the role's text is an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One played task: a tree of segments (by `parent`), in the order they were written."""

    task: Task
    segments: tuple[Segment, ...]
    outcome: Outcome = "ok"
    reason: str = ""
    """What went wrong, where `outcome` says that something did."""

    def children(self, index: int, role: str | None = None) -> list[int]:
        """Indices of the segments that reply to segment `index`, of one role if given."""
        return [
            i for i, segment in enumerate(self.segments) if segment.parent == index and role in (None, segment.role)
        ]

    def indices(self, role: str) -> list[int]:
        return [i for i, segment in enumerate(self.segments) if segment.role == role]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the trainer eats: one sequence, which of its tokens train, and the credit of each. It says nothing of
    flows, roles or recipes; a *view* has made it from one segment, several, or one under another's context."""

    policy: str
    tokens: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    """Per token: True where it trains. The first token never can (nothing predicts it)."""
    credit: tuple[float, ...]
    """Per token; the advantage, or the weight of a likelihood row. Read where `loss_mask` is True."""
    logprobs: tuple[float, ...] | None
    """Per token, the sampler's. None: the view changed the context, so the trainer scores the row itself before the
    first update."""
    ref_logprobs: tuple[float, ...] | None = None
    """Per token, those of a frozen reference, for losses with a KL to it."""
    temperature: float = 1.0
    weight: float = 1.0
    """Multiplies the row's loss (staleness, duration, mix)."""
    group: str = ""
    """For counting groups without signal."""
    versions: tuple[tuple[int, int], ...] = ()
    """Runs of `(weights version, number of trained tokens)`, as in the segment. Empty: no policy sampled the row, so it
    has no age."""

    def __post_init__(self) -> None:
        if self.loss_mask[:1] == (True,):
            raise ValueError("a row's first token cannot train, because nothing predicts it: set loss_mask[0] to False")

    @property
    def num_trained(self) -> int:
        return sum(self.loss_mask)


def as_row(segment: Segment, credit: Sequence[float], *, group: str = "", weight: float = 1.0) -> Row:
    """The plain view: the segment as it was sampled.

    Args:
        credit: one number a sampled token.
    """
    before = len(segment.context)
    assert len(credit) == len(segment.tokens), "one credit a sampled token"
    return Row(
        policy=segment.policy,
        tokens=segment.context + segment.tokens,
        loss_mask=(False,) * before + (True,) * len(segment.tokens),
        credit=(0.0,) * before + tuple(credit),
        logprobs=(0.0,) * before + segment.logprobs,
        temperature=segment.temperature or 1.0,
        weight=weight,
        group=group,
        versions=segment.versions,
    )


def retargeted(segment: Segment, context: Sequence[int], credit: Sequence[float], *, weight: float = 1.0) -> Row:
    """The same sampled tokens under another context, as when a refinement trains the first answer (RLTF-SD)."""
    moved = replace(segment, context=tuple(context))
    return replace(as_row(moved, credit, weight=weight), logprobs=None)
