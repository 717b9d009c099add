"""What methods pay: an episode a case, with random verdicts, grades and lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from support.episodes import exchange, reply, segment_of
from support.formulas.compared import Array, Both, Formula
from whet.config import KLConfig
from whet.credit import (
    ADVANTAGES,
    IndirectName,
    RewardTerm,
    Total,
    assign_credit,
    groups_of,
    least,
    mixture,
    outcome,
    overlong,
    refine_outcome,
    rewarded,
    verdict_match,
)
from whet.credit.rewards import closeness, weighted
from whet.envs import ENVIRONMENTS
from whet.methods.agent.agent_gradient import AgentGradient
from whet.methods.critic import critic_gradient, critique_coder, critique_dpo, score_rl
from whet.methods.policy import nft
from whet.methods.self_correct import rltf_sd
from whet.methods.stages import terms_of
from whet.methods.stages_config import Stage, Stage1, Stage2
from whet.types import Episode, Task

VERDICTS = ("correct", "wrong", None)
Verdict = Literal["correct", "wrong"]
Case = tuple[int, Verdict | None, list[int]]
"""o, what the critique says of it, and n of each refinement."""


def cases_of(rng: Generator, cases: int, *, refinements: int = 1) -> list[Case]:
    return [
        (int(rng.integers(2)), VERDICTS[rng.integers(3)], [int(n) for n in rng.integers(0, 2, refinements)])
        for _ in range(cases)
    ]


def judged(o: int, verdict: str | None) -> bool:
    """f(x, y, c) = r_oracle(x, y); unparsed never is."""
    return verdict == ("correct" if o else "wrong")


def scored(terms: Mapping[str, RewardTerm], total: Total, cases: Sequence[Case]) -> Array:
    """Our reward of each critique."""
    episodes = [exchange(float(o), [(verdict, list(map(float, ns)))]) for o, verdict, ns in cases]
    done = rewarded(episodes, "critic", terms, total)
    return np.array([episode.segments[1].rewards["total"] for episode in done])


INDIRECT: Mapping[IndirectName, Callable[[int, int], float]] = {
    "refine": lambda o, n: n,
    "delta": lambda o, n: n - o,
    "correction": lambda o, n: 1.0 if n > o else 0.2 if n and o else 0.0,
}


def critiques(
    terms: Mapping[str, RewardTerm], total: Total, published: Callable[[int, Verdict | None, list[int]], float],
    *, refinements: int = 1,
) -> Callable[[Generator, int], Both]:  # fmt: skip
    def run(rng: Generator, cases: int) -> Both:
        given = cases_of(rng, cases, refinements=refinements)
        return scored(terms, total, given), np.array([published(*case) for case in given])

    return run


def stage_i(scale: Literal["signed", "unit"]) -> Callable[[Generator, int], Both]:
    wrong = -1.0 if scale == "signed" else 0.0
    return critiques(*terms_of(Stage1(scale=scale)), lambda o, verdict, ns: 1.0 if judged(o, verdict) else wrong)


def stage_ii(name: IndirectName, combine: Literal["gated", "additive"]) -> Callable[[Generator, int], Both]:
    def published(o: int, verdict: Verdict | None, ns: list[int]) -> float:
        indirect, right = INDIRECT[name](o, ns[0]), judged(o, verdict)
        if combine == "additive":
            return indirect + 0.2 * right
        return indirect + 0.2 if right else -1.0

    return critiques(*terms_of(Stage2(indirect=name, combine=combine)), published)


def help_only(name: IndirectName) -> Callable[[Generator, int], Both]:
    """Stage II without discrimination, and Retroformer (delta)."""
    stage = Stage2(indirect=name, discrimination=False)
    return critiques(*terms_of(stage), lambda o, verdict, ns: INDIRECT[name](o, ns[0]))


def two_stages(stage: Stage) -> Callable[[Generator, int], Both]:
    """From verdicts and refinements to the credit of four critiques of each answer, over one update."""

    def run(rng: Generator, cases: int) -> Both:
        reference = KLConfig()
        assert not reference.coef  # no KL, so no reference is scored
        both = []
        terms, total = terms_of(stage)
        for _ in range(cases):
            groups, rewards, lengths = [], [], []
            for task in range(3):
                o = int(rng.integers(2))
                four = [(VERDICTS[rng.integers(3)], [float(rng.integers(2))]) for _ in range(4)]
                episode = exchange(float(o), four, task=str(task))
                [done] = rewarded([episode], "critic", terms, total)
                groups += groups_of([done], "critic", "answer")
                for index, (verdict, ns) in enumerate(four):
                    right = judged(o, verdict)
                    if isinstance(stage, Stage1):
                        rewards.append(1.0 if right else -1.0)
                    else:
                        rewards.append(ns[0] + 0.2 if right else -1.0)
                    lengths.append(len(done.segments[done.indices("critic")[index]].tokens))
            ours = assign_credit(groups, ADVANTAGES.get("rloo_whitened")).rows
            r, n = np.array(rewards).reshape(3, 4), np.array(lengths)
            scalar = (r - (r.sum(1, keepdims=True) - r) / 3).clip(-10, 10).reshape(-1)
            mean = (scalar * n).sum() / n.sum()
            variance = ((scalar - mean) ** 2 * n).sum() / n.sum()
            expected = (scalar - mean) / np.sqrt(max(variance, 1e-8))
            both.append((np.array([float(row.credit[-1]) for row in ours]), expected))
        return np.array([each for each, _ in both]), np.array([each for _, each in both])

    return run


def ref_critic(rng: Generator, cases: int) -> Both:
    """(R_c + lambda R_r) / (1 + lambda), R_r the share of m refinements that are right."""
    given = cases_of(rng, cases, refinements=4)
    weights = rng.choice([0.5, 1.0, 2.0], cases)
    terms = {"verdict": verdict_match(), "refine": refine_outcome()}
    ours = [
        scored(terms, mixture({"verdict": 1.0, "refine": float(w)}), [case])[0]
        for case, w in zip(given, weights, strict=True)
    ]  # fmt: skip
    expected = [
        (judged(o, v) + w * sum(ns) / 4) / (1 + w) for (o, v, ns), w in zip(given, weights, strict=True)
    ]  # fmt: skip
    return np.array(ours), np.array(expected)


CTRL_TERMS: Mapping[str, RewardTerm] = {"indirect": refine_outcome("refine"), "readable": critic_gradient.readable}


def open_ended(rng: Generator, cases: int) -> Both:
    """max(0, 1 - |f - r| / delta), and r_refine + beta r_dis."""
    f, oracle, after = rng.uniform(1, 10, (3, cases))
    delta, beta = rng.uniform(0.5, 5, cases), rng.uniform(0, 3, cases)
    direct = np.array([closeness(float(a), float(b), float(d)) for a, b, d in zip(f, oracle, delta, strict=True)])
    total = [
        weighted({"direct": float(b), "indirect": 1.0})({"direct": float(d), "indirect": float(r)})
        for b, d, r in zip(beta, direct, after, strict=True)
    ]
    r_dis = np.maximum(0.0, 1 - np.abs(f - oracle) / delta)
    return np.stack([direct, np.array(total)], 1), np.stack([r_dis, after + beta * r_dis], 1)


# --- replies ----------------------------------------------------------------------------------------------------------


def overlong_run(rng: Generator, cases: int) -> Both:
    """DAPO eq. 13: 0 up to L - c, falling linearly to -1 at L, beside a signed outcome."""
    lengths, scores = rng.integers(1, 97, cases), rng.integers(0, 2, cases)
    terms = {"outcome": outcome(signed=True), "overlong": overlong(96, 16)}
    episodes = [reply(float(s), tokens=(7,) * int(n)) for n, s in zip(lengths, scores, strict=True)]
    ours = [episode.segments[0].rewards["total"] for episode in rewarded(episodes, "solver", terms)]
    soft = np.where(lengths <= 80, 0.0, (80 - lengths) / 16)
    return np.array(ours), 2.0 * scores - 1 + soft


def nft_run(rng: Generator, cases: int) -> Both:
    """r, the share of a group that is right, and the sign of each."""
    both = []
    for _ in range(cases):
        scores = rng.integers(0, 2, 6)
        episodes = [reply(float(s), seed=i) for i, s in enumerate(scores)]
        [group] = groups_of(rewarded(episodes, "solver", {"outcome": outcome()}), "solver", "task")
        rows = nft.signed_rows(group)
        both.append((
            [value for row in rows for value in (float(row.credit[0]), row.extra["rate"])],
            [value for s in scores for value in (2.0 * s - 1, scores.mean())],
        ))  # fmt: skip
    return np.array([each for each, _ in both]), np.array([each for _, each in both])


def rltf_group(rng: Generator) -> tuple[list[Episode], list[tuple[int, int | None]]]:
    """Four pairs of turns; the second one only after a wrong first one."""
    scores: list[tuple[int, int | None]] = []
    episodes = []
    for number in range(4):
        r0 = int(rng.integers(2))
        r1 = None if r0 else int(rng.integers(2))
        first = segment_of("actor", score=float(r0), group={"task": "t"}, seed=10 * number + 1)
        segments = [first]
        if r1 is not None:
            segments.append(segment_of("critic", policy="critic", parent=0, seed=10 * number + 2))
            segments.append(
                segment_of("actor", score=float(r1), parent=1, group={"task": "t"}, seed=10 * number + 3)
            )  # fmt: skip
        episodes.append(Episode(task=Task(id="t", prompt=""), segments=tuple(segments)))
        scores.append((r0, r1))
    return episodes, scores


def rltf_turns(rng: Generator, cases: int) -> Both:
    """Of y0 (r0 + gamma r1) - mean, of y1 r1 - mean of its turn: no deviation, missing turns left out."""
    both = []
    for _ in range(cases):
        episodes, scores = rltf_group(rng)
        paid_episodes = rewarded(episodes, "actor", {"outcome": outcome()})
        ours = np.zeros((4, 2))
        for turn, groups in enumerate(rltf_sd.turns(paid_episodes, 0.1)):
            for paid_segment, credit in assign_credit(groups, ADVANTAGES.get("dr_grpo")).of_segments.items():
                ours[paid_segment // 10, turn] = credit
        first = np.array([r0 + 0.1 * (r1 or 0) for r0, r1 in scores])
        again = np.array([r1 for _, r1 in scores if r1 is not None], float)
        expected = np.zeros((4, 2))
        expected[:, 0] = first - first.mean()
        for number, (_, r1) in enumerate(scores):
            expected[number, 1] = 0.0 if r1 is None else r1 - again.mean()
        both.append((ours, expected))
    return np.array([each for each, _ in both]), np.array([each for _, each in both])


def rltf_floor(rng: Generator, cases: int) -> Both:
    """A token below -5 nats under the plain question has advantage 0, and stays among those that are summed."""
    logprobs = np.float32(-rng.exponential(3, (cases, 6)))
    advantage = np.float32(rng.normal(0, 0.1, cases))
    ours = []
    for row, gain in zip(logprobs, advantage, strict=True):
        made = rltf_sd.floored(_row(float(gain)), row, -5.0)
        ours.append([*made.credit, *(made.logprobs if made.logprobs is not None else ()), made.num_trained])
    expected = np.concatenate(
        [np.where(logprobs >= -5, advantage[:, None], 0.0), logprobs, np.full((cases, 1), 6.0)], 1
    )
    return np.array(ours), expected


def _row(credit: float) -> Any:
    from whet.types import tail_row

    return tail_row("policy", (1, 2), (3,) * 6, credit)


def score_rewards(rng: Generator, cases: int) -> Both:
    """Stage II pays r(y1), and r(y2) + alpha (r(y2) - r(y1)); stage I r(y2) alone (2409.12917, with alpha 10)."""
    ones, twos = rng.integers(0, 2, (2, cases))
    ours, expected = [], []
    for r1, r2 in zip(ones, twos, strict=True):
        segments = (
            segment_of("actor", score=float(r1), group={"task": "t"}),
            segment_of("critic", policy="rule", parent=0),
            segment_of("actor", score=float(r2), parent=1, group={"task": "t"}, seed=3),
        )
        episode = Episode(task=Task(id="t", prompt=""), segments=segments)
        terms = {"outcome": outcome(), "gain": score_rl.gain}
        for bonus in (0.0, 10.0):
            [done] = rewarded([episode], "actor", terms, lambda v, bonus=bonus: v["outcome"] + bonus * v["gain"])
            ours += [done.segments[i].rewards["total"] for i in (0, 2)]
            expected += [r1, r2 + bonus * (r2 - r1)]
    return np.array(ours).reshape(cases, -1), np.array(expected, float).reshape(cases, -1)


def coder_labels(rng: Generator, cases: int) -> Both:
    """A solution is right above a pass rate of 0.8; the judge is paid 1 for saying so."""
    rates = rng.integers(0, 11, cases) / 10
    ours, expected = [], []
    for rate in rates:
        verdict = VERDICTS[rng.integers(3)]
        episode = critique_coder.labelled(exchange(float(rate), [(verdict, [])]), 0.8)
        [done] = rewarded([episode], "critic", {"verdict": verdict_match()}, lambda v: 0.8 * v["verdict"])
        ours.append(done.segments[1].rewards["total"])
        expected.append(0.8 if verdict == ("correct" if rate > 0.8 else "wrong") else 0.0)
    return np.array(ours), np.array(expected)


def coder_groups(rng: Generator, cases: int) -> Both:
    """Groups with identical rewards are removed, and over-long replies are masked after the group's mean is taken."""
    both = []
    for _ in range(cases):
        scores, cut = rng.integers(0, 3, 5) / 2, rng.random(5) < 0.3
        if rng.random() < 0.2:
            scores[:] = scores[0]
        episodes = [
            reply(float(s), seed=i + 1, stop_reason="length" if c else "eos")
            for i, (s, c) in enumerate(zip(scores, cut, strict=True))
        ]
        groups = groups_of(rewarded(episodes, "solver", {"outcome": outcome()}), "solver", "task")
        rows = critique_coder.assign_mixed_group_credit(groups).rows
        left = [place for place in range(5) if not cut[place]]
        ours, expected = np.zeros(5), np.zeros(5)
        for place, row in zip(left if rows else [], rows, strict=True):
            ours[place] = row.credit[0]
        if len(set(scores)) > 1:
            whole = (scores - scores.mean()) / (scores.std(ddof=1) + 1e-6)
            expected[left] = whole[left]
        both.append((ours, expected))
    return np.array([each for each, _ in both]), np.array([each for _, each in both])


def agent_scores(rng: Generator, cases: int) -> Both:
    """SciWorld: score / 100, below 0 is 0; the others as they come."""
    names = ("sciworld", "babyai", "textcraft")
    kinds, raw = rng.integers(0, 3, cases), rng.uniform(-100, 100, cases)
    raw = np.where(kinds == 0, raw, np.abs(raw) / 100)
    ours = [ENVIRONMENTS.get(names[k]).score(float(r)) for k, r in zip(kinds, raw, strict=True)]
    return np.array(ours), np.where(kinds == 0, np.maximum(raw / 100, 0.0), raw)


def turn_gains(rng: Generator, cases: int) -> Both:
    """An episode is paid what its steps come to, on the scale; of BabyAI and SciWorld the last step's score."""
    from types import SimpleNamespace

    method = SimpleNamespace(rollouts=SimpleNamespace(infos={"sciworld": ENVIRONMENTS.get("sciworld")}))
    both = []
    for _ in range(cases):
        steps = rng.integers(-10, 30, 4) * 1.0
        turns = tuple(segment_of("agent", seed=i, parsed={"reward": float(step)}) for i, step in enumerate(steps))
        task = Task(id="t", prompt="", info={"environment": "sciworld", "item": 0})
        made = AgentGradient.scored(method, Episode(task=task, segments=turns))  # type: ignore[arg-type]
        assert made is not None
        last = min(max(steps.sum() / 100, 0.0), 1.0)
        both.append(([made.reward, sum(made.gains)], [last, last]))
    return np.array([each for each, _ in both]), np.array([each for _, each in both])


REWARD_FORMULAS = (
    Formula(method="critique_rl, stage I", formula="+1 right, -1 wrong or unread", source="WooooDyy/Critique-RL",
            run=stage_i("signed")),
    Formula(method="critique_rl, stage I, unit", formula="1[f = r_oracle]", source="2510.24320, eq. 7",
            run=stage_i("unit")),
    *(
        Formula(method=f"critique_rl, stage II, {name}", formula="r + 0.2 behind a right verdict, else -1",
                source="WooooDyy/Critique-RL", run=stage_ii(name, "gated"))
        for name in INDIRECT
    ),
    *(
        Formula(method=f"critique_rl, stage II, {name}, additive", formula="r + 0.2 1[right verdict]",
                source="2510.24320, eq. 9", run=stage_ii(name, "additive"))
        for name in INDIRECT
    ),
    *(
        Formula(method=f"critique_rl without discrimination, {name}", formula="r alone",
                source="2510.24320, eq. 4 to 6", run=help_only(name))
        for name in INDIRECT
    ),
    Formula(method="critique_rl, credit of stage I", formula="verdicts to leave-one-out to whitened tokens",
            source="WooooDyy/Critique-RL", run=two_stages(Stage1())),
    Formula(method="critique_rl, credit of stage II", formula="gated rewards to leave-one-out to whitened tokens",
            source="WooooDyy/Critique-RL", run=two_stages(Stage2())),
    Formula(method="ctrl", formula="r(y') with a readable verdict, else 0", source="HKUNLP/critic-rl reward_revision",
            run=critiques(CTRL_TERMS, critic_gradient.after_verdict,
                          lambda o, verdict, ns: 0.0 if verdict is None else ns[0])),
    Formula(method="retroformer", formula="r(y') - r(y)", source="2308.02151, its README", run=help_only("delta")),
    Formula(method="ref_critic", formula="(R_c + lambda R_r) / (1 + lambda)", source="RefCritic", run=ref_critic),
    Formula(method="open_ended", formula="max(0, 1 - |f - r| / delta); r' + beta r_dis", source="2510.24320, E",
            run=open_ended),
    Formula(method="CriticLean's min", formula="min(accuracy, format)", source="CriticLean",
            run=critiques({"verdict": verdict_match(), "format": critic_gradient.readable}, least,
                          lambda o, verdict, ns: float(judged(o, verdict) and verdict is not None))),
    Formula(method="critique_dpo", formula="refinement + 0.5 verdict", source="ours (RealCritic's two parts)",
            run=critiques({"refine": refine_outcome(), "verdict": verdict_match()},
                          partial(critique_dpo.worth, 0.5), lambda o, v, ns: ns[0] + 0.5 * judged(o, v))),
    Formula(method="spc", formula="critic +1 where it judges right, else -1; generator the other", source="SPC",
            run=critiques({"verdict": verdict_match("signed")}, lambda v: -v["verdict"],
                          lambda o, verdict, ns: -1.0 if judged(o, verdict) else 1.0)),
    Formula(method="dapo", formula="+1, -1 and the soft penalty on length", source="2503.14476, eq. 13",
            run=overlong_run),
    Formula(method="nft", formula="sign, and r = share right", source="2505.18116", run=nft_run),
    Formula(method="rltf_sd, turns", formula="(r0 + 0.1 r1) - mean; r1 - mean",
            source="lili-chen/rltf", run=rltf_turns),
    Formula(method="rltf_sd, floor", formula="advantage 0 below -5 nats", source="lili-chen/rltf", run=rltf_floor),
    Formula(method="score_rl", formula="r1; r2 + alpha (r2 - r1)", source="2409.12917", run=score_rewards),
    Formula(method="critique_coder, judge", formula="0.8 1[verdict on pass rate > 0.8]",
            source="TIGER-AI-Lab/Critique-Coder", run=coder_labels),
    Formula(method="critique_coder, groups", formula="equal groups out, cut replies masked",
            source="TIGER-AI-Lab/Critique-Coder", run=coder_groups),
    Formula(method="agents, scores", formula="SciWorld / 100, below 0 is 0", source="AgentGym spec 4.4",
            run=agent_scores),
    Formula(method="agents, episodes", formula="the last step's score, by turns", source="AgentGym spec 1.4",
            run=turn_gains),
)  # fmt: skip
