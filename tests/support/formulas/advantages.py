"""From rewards to credit. A case is a step's batch: a few groups of sequences, each with tokens of its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.random import Generator

from support.formulas.compared import Array, Both, Formula, torches
from whet.credit import ADVANTAGES
from whet.methods.agent.turn_credit import ScoredEpisode, TurnCredit, assign_turn_credit
from whet.objectives import gae, group_advantages, whiten
from whet.types import STATE, Episode, Segment, Task

GROUPS, SIZE, LENGTH = 3, 4, 6
Published = Callable[[Array, Array, "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]", float], Array]
"""(rewards [P, G], KL [B, T], mask [B, T], weight of the KL) to credit [B, T]."""


def batch(rng: Generator) -> tuple[Array, Array, np.ndarray]:
    """Rewards of groups (binary ones, signed ones, or any number; some groups all alike), KL, mask from the left."""
    kind = rng.integers(3)
    shape = (GROUPS, SIZE)
    rewards = [rng.integers(0, 2, shape) * 1.0, rng.choice([-1.0, 0.2, 1.2], shape), rng.normal(0, 3, shape)][kind]
    if rng.random() < 0.3:
        rewards[0] = rewards[0, 0]
    rewards[1, 0] += 1.0  # somebody is better than somebody
    mask = np.arange(LENGTH) < rng.integers(1, LENGTH + 1, (GROUPS * SIZE, 1))
    return rewards, np.where(mask, rng.normal(0, 0.3, mask.shape), 0.0), mask


def registered(name: str, published: Published, *, kl: float = 0.0) -> Callable[[Generator, int], Both]:
    """The advantage of that name, as `credit.assign_credit` calls it."""

    def run(rng: Generator, cases: int) -> Both:
        rule = ADVANTAGES.get(name).credit
        assert rule is not None
        both = []
        for _ in range(cases):
            rewards, kl_BT, mask = batch(rng)
            given = torches(rewards.reshape(-1), kl_BT, mask)
            ours = rule(given[0], [SIZE] * GROUPS, given[1], given[2], kl).numpy()
            both.append((ours, published(rewards, kl_BT, mask, kl)))
        return np.stack([each for each, _ in both]), np.stack([each for _, each in both])

    return run


# --- published --------------------------------------------------------------------------------------------------------


def over_tokens(credit_PG: Array, mask: np.ndarray) -> Array:
    return np.where(mask, credit_PG.reshape(-1, 1), 0.0)


def penalised(rewards: Array, kl: Array, coef: float) -> Array:
    return rewards - coef * kl.sum(1).reshape(rewards.shape)


def grpo(rewards: Array, kl: Array, mask: np.ndarray, coef: float) -> Array:
    """(R - mean) / (std + 1e-6), std with n - 1."""
    r = penalised(rewards, kl, coef)
    centred = r - r.mean(1, keepdims=True)
    return over_tokens(centred / (r.std(1, ddof=1, keepdims=True) + 1e-6), mask)


def dr_grpo(rewards: Array, kl: Array, mask: np.ndarray, coef: float) -> Array:
    r = penalised(rewards, kl, coef)
    return over_tokens(r - r.mean(1, keepdims=True), mask)


def rloo(rewards: Array, kl: Array, mask: np.ndarray, coef: float) -> Array:
    """R_i minus the mean of the others."""
    r = penalised(rewards, kl, coef)
    return over_tokens(r - (r.sum(1, keepdims=True) - r) / (SIZE - 1), mask)


def to_go(scalar_B: Array, kl: Array, mask: np.ndarray, coef: float) -> Array:
    """G_t = A - coef sum_{s >= t} kl_s, the scalar on the last token."""
    returns = np.zeros(mask.shape)
    for row in range(len(mask)):
        after = scalar_B[row]
        for t in range(int(mask[row].sum()) - 1, -1, -1):
            after -= coef * kl[row, t]
            returns[row, t] = after
    return returns


def whitened(values: Array, mask: np.ndarray, *, unbiased: bool) -> Array:
    """verl: (x - mean) / sqrt(var_(n - 1) + 1e-8). OpenRLHF: / sqrt(max(var_n, 1e-8))."""
    known = values[mask]
    variance = known.var(ddof=1) + 1e-8 if unbiased else max(known.var(), 1e-8)
    return np.where(mask, (values - known.mean()) / np.sqrt(variance), 0.0)


def reinforce_pp(rewards: Array, kl: Array, mask: np.ndarray, coef: float) -> Array:
    return whitened(to_go(rewards.reshape(-1), kl, mask, coef), mask, unbiased=True)


def reinforce_pp_baseline(rewards: Array, kl: Array, mask: np.ndarray, coef: float) -> Array:
    centred = rewards - rewards.mean(1, keepdims=True)
    return whitened(to_go(centred.reshape(-1), kl, mask, coef), mask, unbiased=True)


def critique_rl(rewards: Array, kl: Array, mask: np.ndarray, coef: float) -> Array:
    """Steps 2 to 5 of the spec: leave-one-out on the bare reward, clamped to 10, the KL a token, whitened."""
    scalar = rewards - (rewards.sum(1, keepdims=True) - rewards) / (SIZE - 1)
    return whitened(to_go(np.clip(scalar, -10, 10).reshape(-1), kl, mask, coef), mask, unbiased=False)


def plain(rewards: Array, kl: Array, mask: np.ndarray, coef: float) -> Array:
    return to_go(rewards.reshape(-1), kl, mask, coef)


# --- GAE --------------------------------------------------------------------------------------------------------------


def gae_published(rewards: Array, values: Array, mask: np.ndarray, gamma: float, lam: float) -> Array:
    """delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lambda A_{t+1}, over a row's trained tokens."""
    found = np.zeros(mask.shape)
    for row in range(len(mask)):
        places = np.flatnonzero(mask[row])
        for i in range(len(places) - 1, -1, -1):
            t, after = places[i], places[i + 1] if i + 1 < len(places) else None
            next_value = 0.0 if after is None else values[row, after]
            next_advantage = 0.0 if after is None else found[row, after]
            found[row, t] = (
                rewards[row, t] + gamma * next_value - values[row, t] + gamma * lam * next_advantage
            )  # fmt: skip
    return found


def gae_of_agentgym(rewards: Array, values: Array, mask: np.ndarray, gamma: float, lam: float) -> Array:
    """AgentGym-RL's: what is kept at masked places is the value of the *place* that follows, a world's token too."""
    found = np.zeros(mask.shape)
    for row in range(len(mask)):
        after, running = 0.0, 0.0
        for t in range(mask.shape[1] - 1, -1, -1):
            delta = rewards[row, t] + gamma * after - values[row, t]
            after = values[row, t]
            if mask[row, t]:
                running = delta + gamma * lam * running
                found[row, t] = running
    return found


def gae_run(
    published: Callable[[Array, Array, np.ndarray, float, float], Array], *, white: bool | None = None,
    gaps: bool = True, lam: float = 0.95,
) -> Callable[[Generator, int], Both]:  # fmt: skip
    """Advantages and returns; or with `white` the whitened advantages, as PPO takes them.

    Args:
        white: whether the published variance is the unbiased one (verl). None: advantages as they are.
        gaps: whether tokens in the middle of a row are masked, as a world's are.
    """

    def run(rng: Generator, cases: int) -> Both:
        both = []
        for _ in range(cases):
            mask = rng.random((3, 8)) < (0.6 if gaps else 2.0)
            mask[:, 3] = True
            rewards, values = np.where(mask, rng.normal(0, 1, mask.shape), 0.0), rng.normal(0, 1, mask.shape)
            gamma = float(rng.choice([1.0, 0.9]))
            ours, returns = gae(*torches(rewards, values, mask), gamma=gamma, gae_lambda=lam)
            theirs = published(rewards, values, mask, gamma, lam)
            if white is None:
                expected = np.stack([theirs, np.where(mask, theirs + values, 0.0)])
                both.append((torch.stack([ours, returns]).numpy(), expected))
            else:
                white_ours = whiten(ours, torch.from_numpy(mask)).numpy()
                both.append((white_ours, whitened(theirs, mask, unbiased=white)))
        return np.stack([each for each, _ in both]), np.stack([each for _, each in both])

    return run


# --- turns of agents --------------------------------------------------------------------------------------------------


def episodes(gains: Array, states: Array, *, seed: int) -> ScoredEpisode:
    """An episode of turns of two tokens each, every turn after the one before it."""
    turns: list[Segment] = []
    for number, (gain, state) in enumerate(zip(gains, states, strict=True)):
        turns.append(Segment(
            role="agent", policy="p", added=(1, 2), tokens=(3, 4), logprobs=(-0.1, -0.2), versions=((0, 2),), text="",
            stop_reason="eos", temperature=1.0, seed=seed * 100 + number, parent=None,
            prefix=turns[-1] if turns else None, parsed={"reward": float(gain), STATE: int(state)},
        ))  # fmt: skip
    episode = Episode(task=Task(id="t", prompt=""), segments=tuple(turns))
    return ScoredEpisode(episode, tuple(turns), tuple(map(float, gains)), float(gains.sum()))


def by_turn(group: list[tuple[Array, Array]], how: TurnCredit) -> Array:
    """Our credit of each turn, [G, turns]; both tokens of a turn have one."""
    made = [episodes(gains, states, seed=number + 1) for number, (gains, states) in enumerate(group)]
    rows = assign_turn_credit([made], ADVANTAGES.get("grpo"), how).rows
    return np.stack([row.credit.reshape(-1, 2) for row in rows])[..., 0]


def episodes_run(rng: Generator, cases: int) -> Both:
    """AgentGym-RL with GRPO: the group's advantage of an episode on every token that the agent wrote."""
    both = []
    for _ in range(cases):
        group = [(rng.integers(0, 2, 3) * 1.0, np.arange(3)) for _ in range(SIZE)]
        total = np.array([gains.sum() for gains, _ in group])
        expected = (total - total.mean()) / (total.std(ddof=1) + 1e-6)
        both.append((by_turn(group, TurnCredit()), np.repeat(expected[:, None], 3, 1)))
    return np.stack([each for each, _ in both]), np.stack([each for _, each in both])


def reward_on_the_world(rng: Generator, cases: int) -> Both:
    """AgentGym-RL's REINFORCE++: the reward lies on the world's last token, which is masked, so nothing is left."""
    both = []
    for _ in range(cases):
        gains = rng.integers(0, 2, (SIZE, 3)) * 1.0
        gains[0, 0], gains[1] = 1.0, 0.0
        made = [episodes(own, np.arange(3), seed=number + 1) for number, own in enumerate(gains)]
        rows = assign_turn_credit([made], ADVANTAGES.get("reinforce_pp"), TurnCredit()).rows
        both.append(np.stack([row.credit for row in rows]))
    return np.stack(both), np.zeros((cases, SIZE, 6))


def gigpo_run(rng: Generator, cases: int) -> Both:
    """A = A_episode + omega A_step: returns from a turn on, against those of the group's turns in an equal state. Where
    two returns are nearly equal their small deviation blows up what float32 rounds off."""
    both = []
    for _ in range(cases):
        group = [(rng.normal(0, 1, 3), rng.integers(0, 3, 3)) for _ in range(SIZE)]
        omega = float(rng.choice([1.0, 0.5]))
        total = np.array([gains.sum() for gains, _ in group])
        expected = np.repeat(((total - total.mean()) / (total.std(ddof=1) + 1e-6))[:, None], 3, 1)
        returns = np.array([
            [sum(0.95 ** (k - t) * gains[k] for k in range(t, 3)) for t in range(3)] for gains, _ in group
        ])  # fmt: skip
        states = np.array([states for _, states in group])
        for state in range(3):
            those = states == state
            if those.sum() > 1:
                near = returns[those]
                expected[those] += omega * (near - near.mean()) / (near.std(ddof=1) + 1e-6)
        both.append((by_turn(group, TurnCredit(per="gigpo", gamma=0.95, weight=omega)), expected))
    return np.stack([each for each, _ in both]), np.stack([each for _, each in both])


def std_of_trl(rng: Generator, cases: int) -> Both:
    """The epsilons of others: 1e-4 in TRL, 1e-9 in OpenRLHF, on request."""
    rewards = rng.normal(0, 1, (cases, SIZE))
    ours = [group_advantages(*torches(rewards), divide_by_std=True, eps=eps).numpy() for eps in (1e-4, 1e-9)]
    centred, std = rewards - rewards.mean(1, keepdims=True), rewards.std(1, ddof=1, keepdims=True)
    return np.stack(ours, 1), np.stack([centred / (std + eps) for eps in (1e-4, 1e-9)], 1)


KL = "R - beta sum KL"
ADVANTAGE_FORMULAS = (
    Formula(method="grpo", formula="(R - mean) / (std + 1e-6), std over n - 1", source="2402.03300, verl",
            run=registered("grpo", grpo)),
    Formula(method="grpo, KL in the reward", formula=f"the same of {KL}", source="2402.03300",
            run=registered("grpo", grpo, kl=0.1)),
    Formula(method="grpo, other epsilons", formula="std + 1e-4, std + 1e-9", source="TRL, OpenRLHF", run=std_of_trl),
    Formula(method="dr_grpo", formula="R - mean", source="2503.20783", run=registered("dr_grpo", dr_grpo)),
    Formula(method="rloo", formula="R_i - mean of the others", source="2402.14740", run=registered("rloo", rloo)),
    Formula(method="rloo, KL in the reward", formula=f"the same of {KL}", source="2402.14740",
            run=registered("rloo", rloo, kl=0.1)),
    Formula(method="reinforce_pp", formula="returns to go with k1, whitened over tokens (n - 1)",
            source="2501.03262, verl", run=registered("reinforce_pp", reinforce_pp, kl=0.05)),
    Formula(method="reinforce_pp_baseline", formula="R - mean, then the same", source="2501.03262, verl",
            run=registered("reinforce_pp_baseline", reinforce_pp_baseline, kl=0.05)),
    Formula(method="critique_rl", formula="leave-one-out, clamp 10, k1 to go, whitened over tokens (n)",
            source="WooooDyy/Critique-RL", run=registered("rloo_whitened", critique_rl, kl=0.01)),
    Formula(method="reinforce", formula="R - beta sum_{s >= t} KL", source="Williams 1992",
            run=registered("reward", plain, kl=0.05)),
    Formula(method="ppo", formula="GAE, gamma and lambda; returns A + V",
            source="1506.02438", run=gae_run(gae_published)),
    Formula(method="ppo, whitened", formula="GAE, then whitened over tokens (n)", source="OpenRLHF, Critique-RL",
            run=gae_run(gae_published, white=False)),
    Formula(method="ppo, whitened by n - 1", formula="GAE, then whitened over tokens (n - 1)", source="verl",
            run=gae_run(gae_published, white=True), differs="GAE: whitening"),
    Formula(method="agent_ppo", formula="GAE of one turn, lambda 1", source="AgentGym-RL",
            run=gae_run(gae_of_agentgym, gaps=False, lam=1.0)),
    Formula(method="agent_ppo, several turns", formula="GAE that goes on from a world's token",
            source="AgentGym-RL core_algos.py", run=gae_run(gae_of_agentgym, lam=1.0), differs="GAE: over turns"),
    Formula(method="agent_reinforce_pp", formula="the reward on a world's token", source="AgentGym-RL core_algos.py",
            run=reward_on_the_world, differs="REINFORCE++: over turns"),
    Formula(method="agent_grpo, agentgym_rl_*", formula="the group's advantage on the agent's tokens",
            source="2509.08755", run=episodes_run),
    Formula(method="agent_gigpo", formula="A_episode + omega A_step, gamma 0.95", source="2505.10978", run=gigpo_run,
            tolerance=1e-4),
)  # fmt: skip
