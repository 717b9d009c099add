"""The records that travel between rooms: tasks, grades, requests and completions, segments, episodes, rows.

All of them are frozen. Token ids are kept exactly as they were fed and sampled, from the engine to the loss; text is
only ever derived from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from operator import attrgetter
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

StopReason = Literal["eos", "stop", "length", "cancelled"]
"""Why a completion ended: the end token, a stop string, the token limit, or the run that asked for it ended."""

Outcome = Literal["ok", "truncated", "env_error", "timeout", "endpoint_error", "grader_error", "unfinished"]
"""How an episode ended. `env_error`, `timeout`, `endpoint_error` and `grader_error` are our failures: counted, shown,
never a reward. `truncated` is the model's doing (it ran out of tokens or turns) and is scored. `unfinished`: it has not
ended yet (partial rollout)."""


FaultKind = Literal["env_error", "timeout", "endpoint_error", "grader_error"]
"""Kinds of failures that are ours, and not the policy's."""


FAULTS: frozenset[str] = frozenset(("env_error", "timeout", "endpoint_error", "grader_error"))
"""Outcomes that are our failures: never a reward, and no part of a baseline."""


CUT = "\n[...]\n"
"""Stands where the middle of a long text was left out."""
MAX_REASON, MAX_TRACEBACK = 2_000, 20_000
"""Characters of a failure's or a grade's reason, and of a traceback: outside code writes them, and they are logged."""


def shortened(text: str, most: int) -> str:
    """At most `most` characters of a text: the middle of a longer one is left out."""
    if len(text) <= most:
        return text
    half = max(1, (most - len(CUT)) // 2)
    return f"{text[:half]}{CUT}{text[-half:]}"


FAULT_HINTS: Mapping[str, str] = {
    "env_error": "mend the environment: `whet env play NAME` steps through it by hand",
    "timeout": "look whether the environment hangs, or raise pool.timeout_s",
    "endpoint_error": "look whether the endpoint answers at its url, with that model, key and limit of tokens",
    "grader_error": "look at the grader, and whether the data have reference answers",
}
"""What to do about each kind of `FAULTS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A service's reply where it has no answer. Counted, shown, retried, and never a reward."""

    kind: FaultKind
    reason: str
    """One sentence. Past `MAX_REASON` characters its middle is left out."""
    trace: str = ""
    """The traceback, as Python printed it. Past `MAX_TRACEBACK` characters its middle is left out."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", shortened(self.reason, MAX_REASON))
        object.__setattr__(self, "trace", shortened(self.trace, MAX_TRACEBACK))


MAX_REWARD = 1e9
"""The largest size of a reward. Squares and sums of a batch of such rewards are far below the largest float32."""


def as_reward(value: object) -> float | None:
    """A reward as a float, of Python's, NumPy's or PyTorch's numbers. None: it is text or no number, NaN or infinite,
    or larger than `MAX_REWARD` in size."""
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)  # type: ignore[arg-type]
    except Exception:  # no number, one too large, a tensor of several, or a user's class that breaks
        return None
    return number if abs(number) <= MAX_REWARD else None  # NaN is no number of any size


def is_whole(text: str) -> bool:
    """Whether a text is of whole characters: half of a surrogate pair is no UTF-8, and no tokenizer takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def in_brief(value: object) -> str:
    """The first 60 characters of any value, for a sentence."""
    try:
        return repr(str(value)[:60])
    except Exception:  # a user's class, or an integer of thousands of digits
        return f"one of type {type(value).__name__}"


def is_deeper(value: object, most: int) -> bool:
    """Whether objects and lists of JSON lie in one another in more levels than `most`. It does not recurse: others
    choose the depth, and deep values raise where they are written or rendered."""
    level = [value]
    for _ in range(most):
        level = [child for parent in level for child in _children(parent)]
    return any(isinstance(value, dict | list) for value in level)


def _children(parent: object) -> Iterable[object]:
    return parent.values() if isinstance(parent, dict) else parent if isinstance(parent, list) else ()


MUST_END = "whet/must_end"
"""In a task's `info`: a reply that was cut off is wrong, whatever it says (`12` cut off is no answer `1`).
The slash keeps it apart from the columns of a user's rows, which are in `info` too."""

STATE = "state"
"""In the `parsed` of an agent's turn: the digest of the state in which it was written, where that is asked for."""
REWARD_ROUNDING = 1e-9
"""Tolerance where the distance of two rewards is compared: 1.0 and 0.9 are 0.1 apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem, or one item of an environment."""

    id: str
    """Unique in its set; seeds derive from it."""
    prompt: str
    answer: str | None = None
    """The reference, as the set's grader takes it. None: the task cannot be graded."""
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """A grader's result for one reply."""

    score: float | None
    """In [0, 1]. None: grading failed (see `reason`); the attempt is counted and left out of training."""
    reason: str = ""
    """Past `MAX_REASON` characters its middle is left out."""
    extracted: str | None = None
    """The final answer as the grader read it, for majority votes. None: it found none."""
    exhausted: bool = False
    """The reply ran its grading out of time or memory. That is the reply's fault, so it scores 0 and is counted."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", shortened(self.reason, MAX_REASON))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to sample. An engine's and the trainer's logprobs are those of `softmax(logits / temperature)`, before any
    top-p cut. With temperature 0 (greedy) they are those of `softmax(logits)`."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 64
    stop: tuple[str, ...] = ()
    """The completion ends right after one of these strings appears in it (the string is kept)."""
    stop_ids: tuple[int, ...] = ()
    """Tokens that end the completion as the policy's end tokens do."""


class Matcher(Protocol):
    """One reply's place in its constraint. It raises ConstraintError where it cannot go on."""

    def allowed(self) -> bytes:
        """A byte for each token id, 0: the reply may not go on with it. Ids beyond the end are forbidden too."""

    def accept(self, token: int) -> bool:
        """Takes the sampled token. Returns: whether the reply is complete, so that it ends here."""


class Constraint(Protocol):
    """The form that a reply has to have, such as a JSON schema. It may be of several requests, in one process."""

    def matcher(self) -> Matcher:
        """The beginning of a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to an engine. Requests with equal contexts are prefilled once."""

    context: tuple[int, ...]
    sampling: Sampling
    seed: int
    """64 bits. The completion depends on it, the weights and the context, and on nothing else in the batch beyond
    rounding."""
    num_drawn: int = 0
    """Tokens already drawn with this seed. A reply that continues after a pause, its tokens so far in the context, then
    draws the same tokens as without one."""
    follows: int | None = None
    """The seed of the reply that it continues. An engine may still hold that reply's keys and values. If its ids begin
    this context, the engine computes only the rest. It changes nothing else."""
    keep: bool = False
    """Whether a later request may follow it."""
    constraint: Constraint | None = None
    """The form of the reply. Tokens that it forbids get no probability: sampling, logprobs and the top-p cut are those
    of the allowed ones. None: any text."""
    num_top: int = 0
    """For each token of the reply, so many of the likeliest tokens in its place are given (`Token.top`)."""

    def __post_init__(self) -> None:
        if not self.context:
            raise ValueError("a request without context: give the engine one token at least to go on from")


class Token(NamedTuple):
    """A token as an engine sampled it."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest ids in its place with their logprobs, the likeliest first: `Request.num_top` of them, or as many as
    have any probability. Under the same distribution as `logprob`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """An engine's reply; `tokens` includes the end token where one was sampled."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: StopReason
    version: int
    """Of the weights that wrote it: the number of updates they had seen."""
    tops: tuple[tuple[tuple[int, float], ...], ...] = ()
    """`Token.top` of each token. Empty: they were not asked for."""
    versions: tuple[tuple[int, int], ...] = ()
    """Runs of `(weights version, number of tokens)`, where newer weights went on with it. Empty: all by `version`."""

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """`versions`, also where one wrote all."""
        return self.versions or ((self.version, len(self.tokens)),)

    @property
    def sampled(self) -> list[Token]:
        """Each token with what is known of it."""
        tops = self.tops or ((),) * len(self.tokens)
        return [Token(*token) for token in zip(self.tokens, self.logprobs, tops, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A text that one role wrote at once."""

    role: str
    policy: str
    """The policy (or `rule`) behind the role: whose weights train on this segment, if any do."""
    added: tuple[int, ...]
    """The ids of its prompt that come after its prefix."""
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
    prefix: Segment | None = field(default=None, repr=False)  # shown, a chain of n would be shown n deep
    """The segment whose context and tokens begin this one's context, to the id. None: `added` is the whole context."""
    group: Mapping[str, str] = field(default_factory=dict)
    """Keys under which segments may share a baseline, such as `{"task": ..., "answer": ..., "round": ...}`."""
    parsed: Mapping[str, Any] = field(default_factory=dict)
    """The results of the role's parser: `verdict`, `extracted`, ..."""
    grade: Grade | None = None
    """The verifier's, where the role's text is an answer."""
    rewards: Mapping[str, float] = field(default_factory=dict)
    """By term, and their `total`, once they are computed. Empty: it gets no reward."""

    @property
    def context(self) -> tuple[int, ...]:
        """All ids before its first token."""
        pieces, before = [self.added], self.prefix
        while before is not None:  # a loop, as a chain may have more turns than Python lets calls nest
            pieces += (before.tokens, before.added)
            before = before.prefix
        return tuple(chain.from_iterable(reversed(pieces)))

    def __eq__(self, other: object) -> bool:
        """Compares all fields, along both chains of prefixes."""
        if not isinstance(other, Segment):
            return NotImplemented
        one: Segment | None = self
        two: Segment | None = other
        while one is not None and two is not None and one is not two:
            if _own(one) != _own(two):
                return False
            one, two = one.prefix, two.prefix
        return one is two


_own = attrgetter(*(entry.name for entry in fields(Segment) if entry.name != "prefix"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One attempt at a task: a tree of segments (by `parent`), in the order they were written."""

    task: Task
    segments: tuple[Segment, ...]
    outcome: Outcome = "ok"
    reason: str = ""
    """The cause, where `outcome` is a failure; the limit, where the episode was cut."""

    def children(self, index: int, role: str | None = None) -> list[int]:
        """Indices of the segments that reply to segment `index`, of one role if given."""
        return [
            i for i, segment in enumerate(self.segments) if segment.parent == index and role in (None, segment.role)
        ]

    def indices(self, role: str) -> list[int]:
        return [i for i, segment in enumerate(self.segments) if segment.role == role]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """The trainer's input: one sequence, which of its tokens train, and the credit of each. It knows no rollouts,
    roles or methods. A *view* makes it from one segment, several, or one under another's context.

    T tokens, of which N train. Sequences of numbers become read-only arrays.
    """

    policy: str
    tokens: Ints
    """[T] ids."""
    trains: Ints
    """[N] places in `tokens`, ascending. Never 0: nothing predicts the first token."""
    credit: Floats
    """[N]; the advantage, or the weight of a likelihood row."""
    logprobs: Floats | None
    """[N], the sampler's. None: the view changed the context, so the trainer scores the row itself before the first
    update."""
    ref_logprobs: Floats | None = None
    """[N], those of a frozen reference, for terms that need one."""
    temperature: float = 1.0
    weight: float = 1.0
    """Multiplies the row's loss (staleness, duration, mix)."""
    share: float = 1.0
    """Its share of an episode that is several rows, which together weigh as much as any other episode."""
    kind: str = ""
    """The label by which terms of an update select it."""
    bundle: str = ""
    """Rows that name the same bundle, such as a pair, stay together through shuffling and packing. Empty: alone."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """Numbers that a term asks for by name: its group's success rate, its rank in a pair."""
    group: str = ""
    """For counting groups without signal."""
    versions: tuple[tuple[int, int], ...] = ()
    """Runs of `(weights version, number of trained tokens)`, as in the segment. Empty: no policy sampled the row, so it
    has no age."""

    def __post_init__(self) -> None:
        for name, dtype in (("tokens", np.int32), ("trains", np.int32), *((n, np.float32) for n in _FLOATS)):
            value = getattr(self, name)
            if value is not None:
                array = np.asarray(value, dtype).view()  # the caller's array stays writeable
                array.flags.writeable = False
                object.__setattr__(self, name, array)
        if len(self.trains) and self.trains[0] == 0:
            raise ValueError("a row's first token cannot train, because nothing predicts it: leave place 0 out")
        if len(self.trains) and not (np.diff(self.trains, prepend=0, append=len(self.tokens)) > 0).all():
            raise ValueError(f"the places that train have to ascend, within the row's {len(self.tokens)} tokens")
        for name in _FLOATS:
            value = getattr(self, name)
            if value is not None and len(value) != len(self.trains):
                raise ValueError(f"a row with {len(self.trains)} trained tokens has {len(value)} of {name}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return all(_equal(getattr(self, entry.name), getattr(other, entry.name)) for entry in fields(self))

    __hash__ = None  # type: ignore[assignment]

    @property
    def num_trained(self) -> int:
        return len(self.trains)


_FLOATS = ("credit", "logprobs", "ref_logprobs")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)  # also False where one of them is None
    return bool(one == other)


def tail_row(
    policy: str,
    context: Sequence[int],
    tokens: Sequence[int],
    credit: Sequence[float] | Floats | float,
    **row_fields: Any,
) -> Row:
    """A row whose last tokens train.

    Args:
        context: the tokens before them.
        credit: one number a trained token, or one for all.
        row_fields: other fields of the row.
    """
    before, count = len(context), len(tokens)
    return Row(
        policy=policy,
        tokens=np.fromiter((*context, *tokens), np.int32, before + count),
        trains=np.arange(before, before + count, dtype=np.int32),
        credit=np.full(count, credit, np.float32)
        if isinstance(credit, int | float)
        else np.asarray(credit, np.float32),
        **({"logprobs": None} | row_fields),
    )


def as_row(
    segment: Segment,
    credit: Sequence[float] | Floats | float = 0.0,
    *,
    context: Sequence[int] | None = None,
    **row_fields: Any,
) -> Row:
    """The plain view: the segment as it was sampled. With `context` it is the *retargeted* view: its tokens under
    another context, where the trainer scores them itself (RLTF-SD).

    Args:
        credit: one number a sampled token, or one for all.
        row_fields: other fields of the row.
    """
    defaults = {
        "logprobs": np.array(segment.logprobs, np.float32) if context is None else None,
        "temperature": segment.temperature or 1.0,
        "versions": segment.versions,
    }
    before = segment.context if context is None else context
    return tail_row(segment.policy, before, segment.tokens, credit, **(defaults | row_fields))
