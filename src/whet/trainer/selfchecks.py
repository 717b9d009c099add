"""Self-checks of a run: its level at the start, what an update did, and whether engine and trainer agree.

The first checks are pure functions from a step's counts to findings. They ask whether the run is the one that was
meant; `watch` asks whether anything is learnt over many steps. Their bounds are in `config.parts.WatchConfig`. The last
check compares an engine's weights with the trainer's, by their version and by the logprobs of a probe.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from whet.config.parts import WatchConfig
from whet.engines.agreement import REPEATED, Which, apart
from whet.engines.protocol import Engine
from whet.errors import RunError
from whet.models.policy import Policy
from whet.seeds import seed_of
from whet.trainer.passes import has_credit
from whet.trainer.protocol import Trainer
from whet.trainer.watch import NEARLY_ALL, Finding, Level, Signs, Watch, lost_cause
from whet.types import Row, tail_row

FEW_RIGHT = 0.02
"""Share of the first replies. Below it, hardly any group has a right one."""
FEW_SIGNALS = 0.2
"""Share of the first groups. Where fewer have a signal, most samples are wasted."""
BY_CHANCE = 0.05
"""The chance that a first step is called poor although it is not."""
STALE_TIMES = 5.0
"""The factor by which KL may be larger where older weights sampled the rows, as in replay and partial rollouts."""


# --- a step's replies, and its updates --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What one policy learnt in a step."""

    policy: str
    rate: float
    """The learning rate of the last update."""
    grad_norm: float | None
    """The mean over the updates, before clipping."""
    moved: float | None
    """Share of the watched weights that changed, in [0, 1]. None: no update was made."""
    has_credit: bool
    """Whether any row had credit."""
    sampler_kl: float | None
    """KL(sampler || trainer) in nats a token, before the first update. None: not measured."""
    is_stale: bool
    """Whether older weights sampled any of its rows."""


def learnt_of(policy: str, metrics: Mapping[str, float], rows: Sequence[Row], version: int) -> Learnt | None:
    """What a policy learnt, by its update's metrics without prefix. None: no row was left to learn from.

    Args:
        rows: of the update.
        version: of the weights before the update.
    """
    if not metrics:
        return None
    return Learnt(
        policy=policy,
        rate=metrics["optim/learning_rate"],
        grad_norm=metrics.get("optim/grad_norm"),
        moved=metrics.get("optim/moved"),
        has_credit=any(map(has_credit, rows)),
        sampler_kl=metrics.get("kl/sampler"),
        is_stale=any(sampled != version for row in rows for sampled, _ in row.versions),
    )


def at_start(signs: Sequence[Signs], no_signal: float | None) -> list[Finding]:
    """A phase's success and signal at its start, by the replies of its first step, before it has learnt from them.

    Args:
        signs: of the step, those of scored replies first.
        no_signal: share of the groups whose rewards are equal. None: there are no groups. It matters only where replies
            are compared within their groups: others teach even with equal rewards.
    """
    if not signs or not signs[0].replies:
        return []
    scored = signs[0]
    graded = scored.replies - scored.ungraded
    if not graded:
        return []  # `watch` reports what failed
    share = scored.right / graded
    if not scored.compared:
        no_signal = None
    is_flat = no_signal is not None and _is_surely_fewer(round((1 - no_signal) * scored.compared), scored.compared)
    text = f"starts at {share:.1%} success ({scored.right:,} of {graded:,} {scored.what})"
    if scored.partial and not scored.right:
        text += (
            f"; {scored.partial:,} have a score between 0 and 1, and only 1 counts as right, in Acc and for the best "
            "weights"
        )
    if no_signal is not None:
        text += f"; {1 - no_signal:.0%} of the groups have a signal"
    if not lost_cause(scored) and (advice := _advice(share, is_flat=is_flat)):  # `watch` says more about a dead batch
        return [Finding("poor_start", "warning", f"{text}: {advice}")]
    return [Finding("start", "info", text)]


def _is_surely_fewer(count: int, total: int) -> bool:
    """Whether surely fewer than `FEW_SIGNALS` of all groups have a signal.

    If that share of all groups had one, so few of the drawn ones would have a chance below `BY_CHANCE` (binomial).

    Args:
        count: drawn groups with a signal.
        total: drawn groups.
    """
    at_most = sum(math.comb(total, i) * FEW_SIGNALS**i * (1 - FEW_SIGNALS) ** (total - i) for i in range(count + 1))
    return at_most < BY_CHANCE


def _advice(share: float, *, is_flat: bool) -> str | None:
    """What to try at a poor start. None: it is good enough."""
    if share >= NEARLY_ALL:
        advice = (
            "next to all are right already, so there is little to learn; look at what the grader says of some in "
            "traces/, then take harder problems"
        )
        return advice if is_flat else None
    if share < FEW_RIGHT and is_flat:
        return (
            "next to nothing is right, and hardly a group tells its replies apart; look at what the grader says of "
            "some in traces/, then take easier problems, a stronger model or a warm start"
        )
    if is_flat:
        return (
            "most groups have equal rewards and teach nothing; look whether the grader tells replies apart, then try "
            "more of them a problem, a higher temperature, or problems nearer to an even chance"
        )
    return None


def flat_groups(
    watch: Watch, signs: Sequence[Signs], no_signal: float | None, settings: WatchConfig
) -> tuple[Watch, list[Finding]]:
    """One step further: a finding where nearly all groups teach nothing for steps in a row, and when these double.

    A step in which any reply taught resets the count of `after_replies`, and one group of a hundred is enough there. It
    does not reset this count.

    Args:
        no_signal: share of the groups whose rewards are equal. None: there are no groups.
    """
    if no_signal is None or not signs or not signs[0].compared:
        return watch, []
    if no_signal <= settings.flat_share:
        return replace(watch, flat_steps=0, flat_right=0, flat_replies=0), []
    scored = signs[0]
    watch = replace(
        watch,
        flat_steps=watch.flat_steps + 1,
        flat_right=watch.flat_right + scored.right,
        flat_replies=watch.flat_replies + scored.replies - scored.ungraded,
    )
    times, rest = divmod(watch.flat_steps, settings.steps)
    # Once, twice, four times the steps. Where all groups are flat, `after_replies` reports it.
    if rest or times & (times - 1) or watch.steps == watch.flat_steps:
        return watch, []
    text = f"in {watch.flat_steps} steps in a row over {settings.flat_share:.0%} of the groups taught nothing"
    right = watch.flat_right / max(1, watch.flat_replies)
    if right >= NEARLY_ALL:
        text += f", as {right:.0%} of the {scored.what} are right: harder problems would teach more"
        return watch, [Finding("flat_groups", "info", text)]
    advice = "try more of them a problem, a higher temperature, or problems nearer to an even chance"
    return watch, [Finding("flat_groups", "warning", f"{text} ({right:.0%} of the {scored.what} are right): {advice}")]


def after_update(watch: Watch, learnt: Learnt, settings: WatchConfig) -> tuple[Watch, list[Finding]]:
    """Findings of an update. Each kind comes once a phase and policy, except for one that ends the run."""
    findings = [*_sampler_kl(learnt, settings), *_still(learnt)]
    names = {f"{finding.event}/{learnt.policy}" for finding in findings}
    fresh = [f for f in findings if f.level == "error" or f"{f.event}/{learnt.policy}" not in watch.said]
    return replace(watch, said=tuple(sorted({*watch.said, *names}))), fresh


def _sampler_kl(learnt: Learnt, settings: WatchConfig) -> list[Finding]:
    """A finding where sampler and trainer are further apart than the settings allow."""
    if learnt.sampler_kl is None:
        return []
    nats, times = abs(learnt.sampler_kl), STALE_TIMES if learnt.is_stale else 1.0
    # Old rows drift by design (staleness, several updates a batch), so no bound on them ends a run.
    stop = None if learnt.is_stale else settings.kl_stop
    if learnt.is_stale:
        where, advice = "on rows of older weights", "lower the learning rate or the staleness"
    else:
        where = "on rows that its own weights have just sampled"
        advice = "look for stale weights in the engine, another type or kernel there, or a prompt that was changed"
    text = f"sampler and trainer of policy {learnt.policy} are {nats:.2g} nats a token apart {where}"
    bounds: tuple[tuple[str, float | None, Level], ...]
    bounds = (("kl_stop", stop, "error"), ("kl_warn", settings.kl_warn, "warning"))
    for key, bound, level in bounds:
        if bound is not None and nats > bound * times:
            return [Finding("sampler_kl", level, f"{text} (watch.{key} allows {bound * times:g} here): {advice}")]
    return []


def _still(learnt: Learnt) -> list[Finding]:
    """A finding where an update with credit moved none of the watched weights."""
    if learnt.moved != 0 or not learnt.has_credit or not learnt.rate:
        return []
    text = f"an update moved none of the weights of policy {learnt.policy} that were looked at"
    if not learnt.grad_norm:
        cause = "its gradient is 0: look whether the weights are frozen, and whether the loss clips every token"
    else:
        wider = f"{learnt.policy}.dtype=float32"
        cause = f"a learning rate of {learnt.rate:g} is too small for their type: raise it, or set {wider}"
    return [Finding("weights_still", "warning", f"{text}, and {cause}")]


# --- engine and trainer agree -----------------------------------------------------------------------------------------


PROBE_ROWS, PROBE_LENGTH = 2, 16
"""Rows of a probe, and tokens of each row."""
PROBE_BUDGET = 4096
"""Tokens of one pass over a probe."""


def probe_rows(policy: Policy) -> list[Row]:
    """Rows of random tokens, the same ones each time. All tokens but a row's first are scored."""
    rng = random.Random(seed_of(0, "probe", policy.name))
    texts = [[rng.randrange(len(policy.tokenizer)) for _ in range(PROBE_LENGTH)] for _ in range(PROBE_ROWS)]
    return [tail_row(policy.name, text[:1], text[1:], 0.0) for text in texts]


def difference_of(
    policy: Policy, engine_scores: Sequence[Tensor], trainer_scores: Sequence[Tensor], which: Which
) -> float:
    """The difference of two sides' logprobs on the same rows, in nats (`whet.engines.agreement.apart`).

    Args:
        engine_scores, trainer_scores: [N_row] for each row.
    Raises: RunError where they do not score the same number of tokens.
    """
    for number, (sampled, scored) in enumerate(zip(engine_scores, trainer_scores, strict=True), 1):
        if len(sampled) != len(scored):
            raise RunError(
                f"engine and trainer of policy {policy.name!r} do not score the same tokens: of row {number} of a "
                f"probe the engine has {len(sampled)} logprobs, and the trainer {len(scored)}, so the run would train "
                "on credit for other tokens; try another transformers version"
            )
    return apart(engine_scores, trainer_scores, which)


def check_weights(trainer: Trainer, engine: Engine) -> None:
    """Check that an engine has the trainer's weights: by their version, and by the logprobs of a probe.

    Where both share memory, and no ranks train, only the version is compared.

    Raises: RunError where they differ: replies would come from other weights than those that train.
    """
    policy = trainer.policy
    if engine.version != trainer.version:
        raise _apart(policy, f"its version is {engine.version}, and the trainer's is {trainer.version}")
    if engine.shares_memory(policy) and policy.scored_by is None:
        return
    rows = probe_rows(policy)
    engine_scores = engine.score(rows, token_budget=PROBE_BUDGET)
    check_scores(policy, engine_scores, trainer.score(rows, token_budget=PROBE_BUDGET))


def check_scores(policy: Policy, engine_scores: Sequence[Tensor], trainer_scores: Sequence[Tensor]) -> None:
    """Check that an engine scores a probe as the trainer does. Raises: RunError where it does not."""
    which, allowed = REPEATED[policy.dtype]
    difference = difference_of(policy, engine_scores, trainer_scores, which)
    if not difference <= allowed:  # NaN is refused too
        how = f"the logprobs of a probe differ by {difference:.2g} (the {which} difference, allowed {allowed:.0e})"
        raise _apart(policy, how)


def _apart(policy: Policy, how: str) -> RunError:
    return RunError(
        f"the engine of policy {policy.name!r} does not hold the trainer's weights: {how}. Restart the engine and "
        "resume the run: its last checkpoint is whole"
    )
