"""Credit of agent episodes, over joined rows: an environment's rewards become a number on every token of the agent, and
on none of the environment.

All arithmetic is over an episode's agent tokens, one after another, as if nothing stood between them. So the reward
lies on the last *agent* token, and the next agent token follows each. This holds for discounts, for a KL summed to the
end, and for the value that GAE goes on from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from whet.config.losses import ValueConfig
from whet.credit.advantages import Advantage
from whet.credit.assignment import AssignedCredit, Reference, kl_to, padded, with_reference
from whet.credit.views import joined
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.objectives import gae, whiten
from whet.types import STATE, Episode, Floats, Row, Segment

Per = Literal["episode", "turn", "gigpo"]
"""What is compared. episode: the rewards of episodes. turn: returns from each turn on, among turns of equal number.
gigpo: the episodes, and returns from each turn on among turns that began in the same state."""


@dataclass(frozen=True, slots=True)
class ScoredEpisode:
    """An episode with rewards."""

    episode: Episode
    turns: tuple[Segment, ...]
    """What the policy wrote."""
    gains: tuple[float, ...]
    """The reward of each turn."""
    reward: float
    """Reward of the whole."""

    def returns(self, gamma: float) -> list[float]:
        """Returns from each turn on, discounted by turns: `G_t = r_t + gamma G_{t+1}`."""
        returns, after = [0.0] * len(self.gains), 0.0
        for turn in reversed(range(len(self.gains))):
            returns[turn] = after = self.gains[turn] + gamma * after
        return returns


@dataclass(frozen=True, slots=True)
class TurnCredit:
    """How rewards become credit."""

    per: Per = "episode"
    gamma: float = 1.0
    """Discount a turn, in (0, 1]; of returns from a turn on."""
    weight: float = 1.0
    """Weight of `gigpo`'s turns beside its episodes."""


def assign_turn_credit(
    groups: Sequence[Sequence[ScoredEpisode]], advantage: Advantage, how: TurnCredit, reference: Reference | None = None
) -> AssignedCredit:
    """Rewards to rows, by a rule that takes no value model.

    With `turn`, a turn's return is compared with those of the group's other episodes at their turn of the same number.
    They were in other states, so this baseline takes away less variance than one for the state would. A mean that
    includes the turn's return shrinks credit by (n - 1) / n. A turn that no other episode reached has no credit. With
    `gigpo` (GiGPO, arXiv:2505.10978) the second baseline is of the turns that began in an equal state. The return
    depends on how many turns are left, which an equal state does not say: that is its bias.

    Beside the usual metrics: `turns/compared`, the share of turns that were alike another one of their group,
    where that is what they are compared with.

    Args:
        groups: episodes that share a baseline. A lone one is dropped where a baseline is taken in the group.
        reference: for a KL; see `assign_credit`.
    """
    used = [group for group in groups if len(group) >= (2 if advantage.baseline == "group" else 1)]
    units = [scored for group in used for scored in group]
    if not units:
        return AssignedCredit([])
    assert advantage.credit is not None, "with a value model: assign_turn_credit_with_values"
    made = _Rows.of(used, reference)
    coef = reference.kl.coef if reference is not None else 0.0
    credits = [np.zeros(len(turns), np.float32) for turns in made.turn_of]
    if how.per != "turn":
        rewards_B = torch.tensor([scored.reward for scored in units])
        sizes = [len(group) for group in used]
        whole_BT = advantage.credit(rewards_B, sizes, made.kl_BT, made.mask_BT, coef)
        credits = [whole_BT[i, : len(credit)].numpy().astype(np.float32) for i, credit in enumerate(credits)]
    if how.per != "episode":
        alike = _by_number if how.per == "turn" else _by_state
        weight = 1.0 if how.per == "turn" else how.weight
        compared = list(_of_turns(used, advantage, how.gamma, made.turn_of, alike))
        for (unit, turn), value in compared:
            credits[unit][made.turn_of[unit] == turn] += weight * value
        if advantage.baseline == "group":
            made.metrics["turns/compared"] = len(compared) / sum(len(scored.turns) for scored in units)
    return AssignedCredit(made.with_credit(credits), made.metrics, made.by_turn(units, credits))


def assign_turn_credit_with_values(
    groups: Sequence[Sequence[ScoredEpisode]],
    settings: ValueConfig,
    value_model: Policy,
    how: TurnCredit,
    reference: Reference | None = None,
) -> AssignedCredit:
    """PPO: whitened GAE advantages (arXiv:1506.02438), and rows of the value model as in `assign_credit_with_values`.
    The reward of each turn (`turn`), or of the episode, lies on its last token."""
    used = [group for group in groups if group]
    units = [scored for group in used for scored in group]
    if not units:
        return AssignedCredit([])
    made = _Rows.of(used, reference)
    budget = settings.learning.token_budget
    values_BT = padded(made.joined([v.tolist() for v in score(value_model, made.rows, token_budget=budget)]))
    coef = reference.kl.coef if reference is not None else 0.0
    rewards_BT = -coef * made.kl_BT
    for i, (scored, turn_of) in enumerate(zip(units, made.turn_of, strict=True)):
        for turn, gain in enumerate(scored.gains) if how.per == "turn" else ():
            rewards_BT[i, int(np.flatnonzero(turn_of == turn)[-1])] += gain
        if how.per == "episode":
            rewards_BT[i, len(turn_of) - 1] += scored.reward
    advantages_BT, returns_BT = gae(
        rewards_BT, values_BT, made.mask_BT, gamma=settings.gamma, gae_lambda=settings.gae_lambda
    )
    metrics, returns = made.metrics, returns_BT[made.mask_BT]
    if (spread := float(returns.var(correction=0))) > 0:
        errors = (returns_BT - values_BT)[made.mask_BT]
        metrics["value/explained"] = 1 - float(errors.var(correction=0)) / spread
    credits = made.cut(whiten(advantages_BT, made.mask_BT))
    to_fit = [
        replace(row, policy=value_model.name, logprobs=old, ref_logprobs=None, versions=())
        for row, old in zip(made.with_credit(made.cut(returns_BT)), made.by_row(made.cut(values_BT)), strict=True)
    ]
    return AssignedCredit([*made.with_credit(credits), *to_fit], metrics, made.by_turn(units, credits))


# --- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of B episodes, and their agent tokens side by side, T at most."""

    rows: list[Row]
    counts: list[int]
    """Rows of each episode."""
    turn_of: list[np.ndarray]
    """The turn that each of an episode's tokens belongs to."""
    kl_BT: Tensor
    mask_BT: Tensor
    metrics: dict[str, float]

    @classmethod
    def of(cls, groups: Sequence[Sequence[ScoredEpisode]], reference: Reference | None) -> _Rows:
        rows, counts = list[Row](), list[int]()
        for number, group in enumerate(groups):
            for scored in group:
                numbers = {turn.seed: float(i) for i, turn in enumerate(scored.turns)}
                place = f"{scored.episode.task.id}/{number}"
                episode_rows = joined(scored.turns, _numbered(numbers), group=place).rows
                rows += episode_rows
                counts.append(len(episode_rows))
        bare = cls(rows, counts, [], torch.empty(0), torch.empty(0), {})
        turn_of = [np.asarray(turns, np.int64) for turns in bare.joined([row.credit.tolist() for row in rows])]
        lengths_B1 = torch.tensor([[len(turns)] for turns in turn_of])
        mask_BT = torch.arange(int(lengths_B1.max())) < lengths_B1
        kl_BT, metrics = torch.zeros(mask_BT.shape), dict[str, float]()
        if reference is not None and reference.kl.coef and reference.kl.where == "loss":
            rows = with_reference(rows, reference.policy, token_budget=reference.token_budget)
        elif reference is not None and reference.kl.coef:
            kls = kl_to(reference.policy, rows, token_budget=reference.token_budget, estimator=reference.kl.estimator)
            parts = [values[: row.num_trained].tolist() for row, values in zip(rows, kls, strict=True)]
            kl_BT = padded(bare.joined(parts))
            metrics["kl/ref"] = float(kl_BT.sum() / mask_BT.sum())
        return cls(rows, counts, turn_of, kl_BT, mask_BT, metrics)

    def joined(self, of_rows: Sequence[Sequence[float]]) -> list[list[float]]:
        """From a list a row to one an episode."""
        parts = iter(of_rows)
        return [[value for _ in range(count) for value in next(parts)] for count in self.counts]

    def cut(self, values_BT: Tensor) -> list[Floats]:
        """Without what stands right of an episode's end."""
        return [v[: len(turns)].numpy().astype(np.float32) for v, turns in zip(values_BT, self.turn_of, strict=True)]

    def by_row(self, of_units: Sequence[Floats]) -> list[Floats]:
        """From an array an episode to one a row."""
        every = np.concatenate(of_units)
        ends = np.cumsum([row.num_trained for row in self.rows])[:-1]
        return [part.copy() for part in np.split(every, ends)]

    def with_credit(self, of_units: Sequence[Floats]) -> list[Row]:
        return [replace(row, credit=credit) for row, credit in zip(self.rows, self.by_row(of_units), strict=True)]

    def by_turn(self, units: Sequence[ScoredEpisode], credits: Sequence[Floats]) -> dict[int, float]:
        """Mean credit a token of each turn, by its seed."""
        return {
            turn.seed: float(credit[places == number].mean())
            for scored, credit, places in zip(units, credits, self.turn_of, strict=True)
            for number, turn in enumerate(scored.turns)
            if (places == number).any()
        }


def _numbered(numbers: Mapping[int, float]) -> Callable[[Segment], float]:
    return lambda turn: numbers[turn.seed]


# --- turns ------------------------------------------------------------------------------------------------------------

Turn = tuple[int, int]
"""Of all episodes, and of its turns, from 0."""


def _by_number(scored: ScoredEpisode, turn: int) -> Hashable:
    return turn


def _by_state(scored: ScoredEpisode, turn: int) -> Hashable:
    return scored.turns[turn].parsed[STATE]


def _of_turns(
    groups: Sequence[Sequence[ScoredEpisode]],
    advantage: Advantage,
    gamma: float,
    turn_of: Sequence[np.ndarray],
    alike: Callable[[ScoredEpisode, int], Hashable],
) -> Iterator[tuple[Turn, float]]:
    """The credit of turns, each compared with those of its group that are alike."""
    together: dict[Hashable, list[tuple[Turn, float]]] = defaultdict(list)
    numbers = iter(range(len(turn_of)))
    for place, group in enumerate(groups):
        for scored, unit in zip(group, numbers, strict=False):
            for turn, value in enumerate(scored.returns(gamma)):
                together[place, alike(scored, turn)].append(((unit, turn), value))
    compared = [peers for peers in together.values() if len(peers) > 1 or advantage.baseline != "group"]
    if not compared:
        return
    places = [place for peers in compared for place, _ in peers]
    rewards_E = torch.tensor([value for peers in compared for _, value in peers])
    counts = [int((turn_of[unit] == turn).sum()) for unit, turn in places]
    mask_EL = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    assert advantage.credit is not None
    credit_EL = advantage.credit(
        rewards_E, [len(peers) for peers in compared], torch.zeros(mask_EL.shape), mask_EL, 0.0
    )
    yield from zip(places, credit_EL[:, 0].tolist(), strict=True)
