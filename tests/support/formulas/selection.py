"""What is kept, paired, merged, shared out or scheduled: rules that a whole round goes by."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np
from numpy.random import Generator

from support.episodes import exchange
from support.formulas.compared import Both, Formula, settings_of
from whet.config import LearningConfig, Steps
from whet.config.schedule import Linear, value_at
from whet.credit import best_and_worst, differ, groups_of, refine_outcome, rewarded
from whet.envs import ENVIRONMENTS
from whet.evaluation.critique import Exchange, critique_metrics, pass_at_k
from whet.grading.critique_filters import is_shortcut, passes_soft
from whet.methods.critic.star_critic import imitated
from whet.methods.rounds import episode_weights, merged
from whet.methods.self_improve.improving import allot_refinements, kept_refinements
from whet.trainer import Update
from whet.trajectories.preferences import differ as apart


def each(rng: Generator, cases: int, one: Callable[[], tuple[Any, Any]]) -> Both:
    both = [one() for _ in range(cases)]
    return np.array([ours for ours, _ in both], float), np.array([theirs for _, theirs in both], float)


def evol_filter(rng: Generator, cases: int) -> Both:
    """AgentEvol's: reward > 0.99, SciWorld's > 99, BabyAI's > 0; of an item the first that is kept."""

    def one() -> tuple[Any, Any]:
        name = ("textcraft", "sciworld", "babyai")[rng.integers(3)]
        scale = 100.0 if name == "sciworld" else 1.0
        rewards = [float(r) * scale for r in rng.choice([0.0, 0.2, 0.99, 1.0], 4)]
        info = ENVIRONMENTS.get(name)
        ours = episode_weights(rewards, weighting="binary", keep="first", above=info.kept_above, score=info.score)
        threshold = {"textcraft": 0.99, "sciworld": 99.0, "babyai": 0.0}[name]
        expected, taken = [0.0] * 4, False
        for place, reward in enumerate(rewards):
            if reward > threshold and not taken:
                expected[place], taken = 1.0, True
        return ours, expected

    return each(rng, cases, one)


def evol_weights(rng: Generator, cases: int) -> Both:
    """w = r (paper), and r over the item's sum, which makes a round the exact step pi_{m+1} ~ r pi_m."""

    def one() -> tuple[Any, Any]:
        rewards = rng.choice([0.0, 0.3, 0.8, 1.0], 5).tolist()
        ours = [
            episode_weights(rewards, weighting=kind, keep="all", above=0.0, score=float)
            for kind in ("reward", "self_normalised")
        ]
        total = sum(rewards)
        return ours, [rewards, [r / total if total else 0.0 for r in rewards]]

    return each(rng, cases, one)


def evol_merge(rng: Generator, cases: int) -> Both:
    """D_s with the round's own; the code: everything so far; the round before; nothing."""

    def one() -> tuple[Any, Any]:
        base = list(range(rng.integers(1, 5)))
        rounds = [[100 * m + i for i in range(rng.integers(0, 5))] for m in range(1, 4)]
        ours, expected = [], []
        for kind in ("base", "cumulative", "previous", "none"):
            found = merged(base, rounds, kind)  # type: ignore[arg-type]
            theirs = {
                "base": base + rounds[2], "cumulative": base + rounds[0] + rounds[1] + rounds[2],
                "previous": rounds[1] + rounds[2], "none": rounds[2],
            }[kind]  # fmt: skip
            ours.append([len(found), sum(found)])
            expected.append([len(theirs), sum(theirs)])
        return ours, expected

    return each(rng, cases, one)


def pairs_gap(rng: Generator, cases: int) -> Both:
    """AgentGym's DPO pairs: |r1 - r2| >= gap, the better one >= threshold."""

    def one() -> tuple[Any, Any]:
        a, b = rng.integers(0, 101, 2) / 100
        gap, threshold = rng.choice([0.01, 0.1]), rng.choice([0.7, 0.9])
        ours = apart(a, b, reward_gap=gap, threshold=threshold)
        return ours, a != b and round(abs(a - b), 9) >= gap and max(a, b) >= threshold

    return each(rng, cases, one)


def best_worst(rng: Generator, cases: int) -> Both:
    """Of several critiques the best paid against the worst paid; none where they are closer than the margin."""

    def one() -> tuple[Any, Any]:
        scores = rng.integers(0, 2, 4)
        episode = exchange(0.0, [("wrong", [float(s)]) for s in scores])
        [group] = groups_of(rewarded([episode], "critic", {"refine": refine_outcome()}), "critic", "answer")
        margin = float(rng.choice([0.0, 1.0, 2.0]))
        found = best_and_worst(group, random.Random(0), margin=margin)
        ours = [-1.0, -1.0] if found is None else [found[0].reward, found[1].reward]
        high, low = scores.max(), scores.min()
        return ours, [-1, -1] if high == low or high - low < margin else [high, low]

    return each(rng, cases, one)


def mixed_groups(rng: Generator, cases: int) -> Both:
    """DAPO's dynamic sampling: a group stays where its outcomes are neither all right nor all wrong."""

    def one() -> tuple[Any, Any]:
        scores = rng.integers(0, 2, 4) if rng.random() < 0.7 else np.full(4, rng.integers(2))
        episode = exchange(float(scores[0]), [("wrong", list(map(float, scores[1:])))])
        answers = [segment for segment in episode.segments if segment.role == "actor"]
        return differ(answers), 0 < scores.sum() < 4

    return each(rng, cases, one)


def star(rng: Generator, cases: int) -> Both:
    """STaR of critics: a critique is imitated (weight 1) where the refinement after it is right."""

    def one() -> tuple[Any, Any]:
        n = float(rng.integers(2))
        episode = exchange(float(rng.integers(2)), [("wrong", [n])])
        [group] = groups_of(rewarded([episode], "critic", {"refine": refine_outcome()}), "critic", "answer")
        kept = [imitated(scored) for scored in group if scored.reward == 1.0]
        return sum(float(row.credit.sum()) for row in kept), n * len(episode.segments[1].tokens)

    return each(rng, cases, one)


def keep_first(rng: Generator, cases: int) -> Both:
    """The loop's: the first `keep` right refinements of a critique that pass the barrier; equal texts count too."""

    def one() -> tuple[Any, Any]:
        rights, cuts = rng.random(5) < 0.6, rng.random(5) < 0.3
        keep = int(rng.integers(1, 4))
        found = kept_refinements(rights.tolist(), cuts.tolist(), keep)
        expected: list[int] = []
        for place in range(5):
            if rights[place] and len(expected) < keep and not cuts[place]:
                expected.append(place)
        return np.isin(np.arange(5), found), np.isin(np.arange(5), expected)

    return each(rng, cases, one)


def barrier(rng: Generator, cases: int) -> Both:
    """d(y') < min(d(solution), d(y)) - 2, d the maximal runs of digits."""

    def text() -> str:
        return " ".join(str(rng.integers(0, 2000)) for _ in range(rng.integers(0, 9))) + f" = {rng.integers(9)}"

    def runs(words: str) -> int:
        return sum(1 for part in re.split(r"\D", words) if part)

    def one() -> tuple[Any, Any]:
        refinement, answer, solution = text(), text(), text()
        return is_shortcut(refinement, answer, solution), runs(refinement) < min(runs(solution), runs(answer)) - 2

    return each(rng, cases, one)


def soft_filter(rng: Generator, cases: int) -> Both:
    """N_correct >= ceil(tau N), in whole numbers."""

    def one() -> tuple[Any, Any]:
        n, tenths = int(rng.integers(1, 21)), int(rng.integers(0, 11))
        right = int(rng.integers(0, n + 1))
        return passes_soft(right, tenths / 10, n), 10 * right >= tenths * n

    return each(rng, cases, one)


def allocation(rng: Generator, cases: int) -> Both:
    """b(x) = budget w(x) / sum w, one at least for whoever has w > 0: without floor and cap it is spent to the unit."""

    def one() -> tuple[Any, Any]:
        wrong = {str(i): int(w) for i, w in enumerate(rng.integers(0, 6, 4))}
        budget, total = int(rng.integers(4, 60)), sum(wrong.values())
        found = allot_refinements(wrong, budget, None)
        exact = {name: budget * w / total if total else 0.0 for name, w in wrong.items()}
        near = all(
            abs(found.get(name, 0) - max(share, 1.0 if wrong[name] else 0.0)) < 1 for name, share in exact.items()
        )
        return [near, found.keys() == {name for name, w in wrong.items() if w}], [True, True]

    return each(rng, cases, one)


def horizon(rng: Generator, cases: int) -> Both:
    """rounds(s) = list[min((s - 1) div K, len - 1)] of a fresh run."""

    def one() -> tuple[Any, Any]:
        values = tuple(int(v) for v in np.sort(rng.integers(1, 40, rng.integers(1, 5))))
        every, step = int(rng.integers(1, 150)), int(rng.integers(1, 700))
        return value_at(Steps(values=values, every=every), step), values[min((step - 1) // every, len(values) - 1)]

    return each(rng, cases, one)


def preset_horizon(rng: Generator, cases: int) -> Both:
    """The lists of the scripts, at random steps."""
    lists = {"textcraft": (10, 20, 30), "babyai": (6, 13, 20), "sciworld": (10, 20, 30)}

    def one() -> tuple[Any, Any]:
        name = tuple(lists)[rng.integers(3)]
        step = int(rng.integers(1, 400))
        schedule = settings_of(f"scaling_inter_{name}").schedule["max_turns"]
        return value_at(schedule, step), lists[name][min((step - 1) // 100, 2)]

    return each(rng, cases, one)


def ramp(rng: Generator, cases: int) -> Both:
    """From 0 to 0.1 in equal parts."""

    def one() -> tuple[Any, Any]:
        over, step = int(rng.integers(1, 40)), int(rng.integers(1, 60))
        return value_at(Linear(start=0.0, end=0.1, over=over), step), 0.1 * min(1.0, (step - 1) / over)

    return each(rng, cases, one)


def rate(rng: Generator, cases: int) -> Both:
    """Linear warm-up, then lr (f + (1 - f) (1 + cos(pi p)) / 2), f the floor's share; 1 is constant (verl)."""

    def one() -> tuple[Any, Any]:
        warm, total, update = int(rng.integers(0, 10)), int(rng.integers(10, 200)), int(rng.integers(0, 200))
        floor, peak = float(rng.choice([0.0, 0.1, 1.0])), 5e-2
        learning = LearningConfig(learning_rate=peak, final_share=floor, warmup_steps=warm)
        ours = Update((), learning, total).learning_rate(update)
        done = min(1.0, max(0, update - warm) / max(1, total - warm))
        share = (update + 1) / warm if update < warm else floor + (1 - floor) * (1 + np.cos(np.pi * done)) / 2
        return ours, peak * share

    return each(rng, cases, one)


def critic_metrics(rng: Generator, cases: int) -> Both:
    """Acc, Acc@Refine, Delta, c to i, i to c over all questions; Acc@Dis with unread verdicts wrong, or left out."""

    def one() -> tuple[Any, Any]:
        o, n = rng.integers(0, 2, (2, 8)).astype(bool)
        said = [("correct", "wrong", None)[k] for k in rng.integers(0, 3, 8)]
        rounds = zip(o.tolist(), n.tolist(), said, strict=True)
        found = critique_metrics([Exchange(answer_correct=a, refinement_correct=b, verdict=v) for a, b, v in rounds])
        names = ("acc", "acc_refine", "delta", "c2i", "i2c", "acc_dis", "acc_dis_parsed")
        right = np.array([v == ("correct" if a else "wrong") for a, v in zip(o, said, strict=True)])
        parsed = np.array([v is not None for v in said])
        expected = [o.mean(), n.mean(), n.mean() - o.mean(), (o & ~n).mean(), (~o & n).mean(), right.mean(),
                    right[parsed].mean() if parsed.any() else -1.0]  # fmt: skip
        return [-1.0 if found[name] is None else found[name] for name in names], expected

    return each(rng, cases, one)


def pass_k(rng: Generator, cases: int) -> Both:
    """1 - C(n - c, k) / C(n, k)."""

    def one() -> tuple[Any, Any]:
        n = int(rng.integers(2, 12))
        c, k = int(rng.integers(0, n + 1)), int(rng.integers(1, n + 1))
        return pass_at_k([[True] * c + [False] * (n - c)], k), 1 - comb(n - c, k) / comb(n, k)

    return each(rng, cases, one)


SELECTION_FORMULAS = (
    Formula(method="agent_evol, filter", formula="reward > threshold, first of an item",
            source="AgentGym agentevol_filter.py",
            run=evol_filter),
    Formula(method="agent_evol, weights", formula="r; r / sum r", source="2406.04151, section 4", run=evol_weights),
    Formula(method="agent_evol, merge", formula="base, cumulative, previous, none", source="2406.04151, AgentGym",
            run=evol_merge),
    Formula(method="agent_dpo, pairs", formula="gap and threshold", source="AgentGym DPO", run=pairs_gap),
    Formula(method="critique_dpo, pairs", formula="best against worst, a margin apart", source="2305.18290",
            run=best_worst),
    Formula(method="dapo, nft, dynamic sampling", formula="0 < right < G", source="2503.14476", run=mixed_groups),
    Formula(method="star_critic", formula="-log p(c) where y' is right", source="2203.14465", run=star),
    Formula(method="critique_loop, keep", formula="first R_keep that are right and no shortcut",
            source="WooooDyy/MathCritique inference.py", run=keep_first),
    Formula(method="critique_loop, barrier", formula="d(y') < min(d(a*), d(y)) - 2",
            source="WooooDyy/MathCritique inference.py", run=barrier),
    Formula(method="auto_critique, soft filter", formula="N_correct >= ceil(tau N)",
            source="2411.16579", run=soft_filter),
    Formula(method="critique_loop, allocation", formula="b(x) = budget w(x) / sum w", source="2411.16579",
            run=allocation),
    Formula(method="scaling_inter, horizon", formula="h[min((s - 1) div K, len - 1)]",
            source="2509.08755", run=horizon),
    Formula(method="scaling_inter_*, horizon", formula="the scripts' lists, K = 100", source="AgentGym-RL scripts",
            run=preset_horizon),
    Formula(method="rltf_sd, ramp", formula="0 to 0.1 linearly", source="lili-chen/rltf", run=ramp),
    Formula(
        method="critics, measured", formula="Acc, Acc@Refine, Delta, c to i, i to c, Acc@Dis",
        source="2510.24320, section 3.3", run=critic_metrics,
    ),
    Formula(method="learning rate", formula="warm-up, cosine to a floor; constant", source="OpenRLHF, verl", run=rate),
    Formula(method="pass@k", formula="1 - C(n - c, k) / C(n, k)", source="2107.03374", run=pass_k),
)  # fmt: skip
