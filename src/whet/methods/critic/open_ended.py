"""RL of a critic that gives scores, with a learned oracle: Critique-RL for open tasks (2510.24320, appendix E).

    reward model   -log sigmoid(s(x, better) - s(x, worse)),  then scaled linearly: r_oracle(x, y) in 1..10.

    stage I        r_dis = max(0, 1 - |f - r_oracle(x, y)| / tolerance),  f the score that the critique gives
    stage II       r_oracle(x, y') + weight r_dis

The reward model is a head on the critic's model. It learns first, from pairs of the tiny world, and reads the reference
with each answer. The tolerance is not published. In the paper's other tasks the weight is 0.2 of a reward of at most 1;
here it is 2, of a reward up to 10. Columns about verdicts take a score above the middle as the verdict "right".
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

from whet.config import ClipLoss, ConfigError, KLConfig
from whet.credit import ADVANTAGES, Reference, RewardTerm, ScoredSegment, assign_credit, groups_of, only, rewarded
from whet.credit.rewards import refine_score, score_match, weighted
from whet.evaluation.critique import Metrics
from whet.evaluation.protocol import Chained, last_paths, measure, paths
from whet.grading.verdicts import parse_score
from whet.methods.base import RunContext
from whet.methods.critic.open_ended_config import OpenEndedConfig
from whet.methods.critic.reward_model import Pair, RewardModel
from whet.methods.critics import (
    NO_CRITIC,
    SFT,
    CriticAlgorithm,
    CriticEvaluator,
    critic_spec,
    sample_critiques,
    training_batch,
)
from whet.methods.evaluator import Traces
from whet.methods.report_specs import load_report
from whet.methods.warm_start import demonstration_rows, imitation_phase
from whet.seeds import seed_of
from whet.tasks.chains import (
    Chain,
    answer_text,
    corrupt_chain,
    criticise,
    critique_text,
    parse_chain,
    steps_text,
    work_out,
)
from whet.tasks.demonstrations import COLLEAGUE, COLLEAGUE_MANNER, TEXTBOOK, Demonstration
from whet.tasks.oracles import RESULT
from whet.tasks.prompts import CHAINS, Message, Prompts
from whet.trainer import Update, policy_term
from whet.trainer.loop import Batch, Phase, Selection
from whet.types import Episode, Row, Task

LOW, HIGH = 1, 10
"""The lowest score and the highest."""
MIDDLE = (LOW + HIGH) / 2
STAGES = {"stage1": "near", "stage2": "score_refine"}
"""By stage, the validation metric that chooses its best checkpoint."""


def prompts_for_scores(prompts: Prompts) -> Prompts:
    """The prompts with a score in place of the verdict, after the same label.

    Raises: ConfigError if the critique prompt does not ask for a verdict in exactly these words.
    """
    if prompts == CHAINS:  # its critic knows the form from demonstrations alone
        return prompts
    verdict_request = f"{prompts.verdict_line}: [{prompts.right}/{prompts.wrong}]"
    if verdict_request not in prompts.critique:
        raise ConfigError(f"prompts: its critique has to ask for {verdict_request!r}, which a score replaces")
    score = f"{prompts.verdict_line}: [a score from {LOW} to {HIGH}]"
    return replace(prompts, critique=prompts.critique.replace(verdict_request, score))


def read_score(critique: str, prompts: Prompts) -> Mapping[str, Any]:
    """The score of a critique, and the verdict that it implies. None: unreadable."""
    score = parse_score(critique, LOW, HIGH, line=prompts.verdict_line)
    return {"score": score, "verdict": None if score is None else "correct" if score > MIDDLE else "wrong"}


class OpenEndedEvaluator(CriticEvaluator[OpenEndedConfig]):
    """Measures critiques by the reward model, beside the grader."""

    def read(self, episodes: Sequence[Episode]) -> list[Episode]:
        return with_scores(self.algorithm, episodes)

    def metrics_of(self, episodes: Sequence[Episode]) -> Metrics:
        return scores_and_critiques(episodes)

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        metrics, traces = super().tested(name, tasks, labels)
        if name != NO_CRITIC:
            return dict(metrics), traces
        answered = self.greedy(tasks)
        answers = [Episode(task=t, segments=(answered[t.id],)) for t in tasks if t.id in answered]
        return {**metrics, **score_metrics(self.read(answers))}, traces


class OpenEnded(CriticAlgorithm[OpenEndedConfig]):
    """A critic that gives scores, rewarded by a learned reward model in two stages"""

    spec = critic_spec(
        OpenEndedConfig,
        {f"critic_{stage}": stage for stage in STAGES},
        prompts=prompts_for_scores,
        reading=read_score,
        evaluator=OpenEndedEvaluator,
        report=load_report("open_ended"),
    )
    imitators = ("actor",)

    def __init__(self, config: OpenEndedConfig, run: RunContext) -> None:
        super().__init__(config, run)
        if config.data.kind != "chains":
            raise ConfigError("open_ended makes the pairs of its reward model in the tiny world: data.kind=chains")
        self.run = replace(run, prompts=prompts_for_scores(run.prompts))
        self.oracle = RewardModel(
            run.loop.policies,
            "critic",
            row_format=partial(beside_reference, self.run.prompts),
            settings=config.reward_model,
            scale=(LOW, HIGH),
            measured=partial(self._pairs, 0),
        )

    def phases(self) -> Iterator[Phase]:
        config, warm = self.config, self.config.warm_start
        yield from self.warm_starts
        yield imitation_phase(
            "sft_critic", "critic", warm.critic_steps, self._demonstrations, warm.learning, warm.rows_per_step
        )
        yield self.oracle.phase("preferences", self._pairs)
        for (stage, metric), reference in zip(STAGES.items(), (SFT, "critic_stage1"), strict=True):
            yield Phase(
                stage,
                config.num_steps // 2,
                partial(self._collect, stage, reference),
                self._updates,
                begin=partial(self._begin, reference),
                validate=partial(self.evaluator.validate, phase=stage),
                validate_every=config.validate_every,
                headline=("reward/mean", "critique/near"),
                select=Selection("critic", f"critic_{stage}", f"validation/{metric}"),
            )
        yield self.evaluator.test_of([SFT, *(f"critic_{stage}" for stage in STAGES)])

    def _begin(self, reference: str) -> None:
        self.keep_sft()
        self.run.loop.restart("critic", reference)

    def _demonstrations(self, step: int) -> list[Row]:
        """Rows of the critic's warm start."""
        rng, count = random.Random(seed_of(self.config.seed, "sft_critic", step)), self.config.warm_start.rows_per_step
        demonstrations = scored_demonstrations(self.run.tasks["train"], count, self.run.prompts, rng)
        return demonstration_rows(demonstrations, self.run.loop.policies["critic"])

    def _pairs(self, step: int) -> list[Pair]:
        """Pairs for the reward model; those of step 0 set its scale."""
        rng = random.Random(seed_of(self.config.seed, "preferences", step))
        return preferred_pairs(self.run.tasks["train"], self.config.reward_model.rows_per_step // 2, rng)

    def _updates(self, step: int) -> Mapping[str, Update]:
        config = self.at(step)
        rows = config.prompts_per_step * config.group_size
        num_updates = config.num_steps // 2 * config.learning.updates_a_step(rows)
        return {"critic": Update((policy_term(ClipLoss(), "sequence_mean"),), config.learning, num_updates)}

    def _collect(self, stage: str, reference: str, step: int) -> Batch:
        config, refines = self.at(step), stage == "stage2"
        num_before = config.num_steps // 2 * config.prompts_per_step if refines else 0
        tasks = self.run.next_tasks(step, config.prompts_per_step, first=num_before)
        episodes = sample_critiques(self, (stage, step), tasks, num_critiques=config.group_size, refine=refines)
        episodes = with_scores(self, episodes)
        terms: dict[str, RewardTerm] = {"direct": score_match(config.tolerance)}
        total = only("direct")
        if refines:
            terms["indirect"] = refine_score
            total = weighted({"direct": config.weight, "indirect": 1.0})
        episodes = rewarded(episodes, "critic", terms, total, added=config.rewards)
        groups = groups_of(episodes, "critic", "answer")
        kl = KLConfig(coef=config.kl_coef, estimator="k1", where="reward")
        against = Reference(self.run.loop.policies[reference], kl, config.learning.token_budget)
        assigned = assign_credit(groups, ADVANTAGES.get("rloo_whitened"), against)
        return training_batch(
            self.config, stage, step, episodes, groups, assigned, reaches, metrics_of=scores_and_critiques
        )


def reaches(scored: ScoredSegment) -> bool:
    """Whether the score is less than `tolerance` off."""
    return scored.segment.rewards["direct"] > 0


def with_scores(algorithm: OpenEnded, episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes with the scores of the reward model and of the critiques."""
    prompts = algorithm.run.prompts
    return algorithm.oracle.with_scores(episodes, lambda critique: read_score(critique.text, prompts))


# --- metrics ----------------------------------------------------------------------------------------------------------


def scores_and_critiques(episodes: Sequence[Episode]) -> Metrics:
    """The metrics of critique rounds, and those of their scores."""
    return {**measure(episodes), **score_metrics(episodes)}


def score_metrics(episodes: Sequence[Episode]) -> Metrics:
    """Metrics from `parsed["score"]`: a critique's score (None: unreadable), the oracle's of answers and refinements.

    Returns: `score` and `score_refine`, the oracle's means, and `score_gain`, their difference. `mse_dis` and `mae_dis`
        are errors of the readable critiques. `near` is 1 less the absolute error as a share of the scale, and 0 where
        unreadable. None: nothing to divide by.
    """
    chains = [path for episode in episodes for path in last_paths(episode)]
    finals = [path.refinement if path.critique else path.answer for path in chains]
    before = [path.answer.parsed["score"] for path in chains]
    after = [final.parsed["score"] for final in finals if final is not None]
    critiqued = [path for episode in episodes for path in paths(episode) if path.critique is not None]
    errors = [score_error(path) for path in critiqued]
    readable = [error for error in errors if error is not None]
    return {
        "score": _mean(before),
        "score_refine": _mean(after),
        "score_gain": fmean(after) - fmean(before) if before and after else None,
        "mse_dis": _mean([error**2 for error in readable]),
        "mae_dis": _mean(readable),
        "near": _mean([0.0 if error is None else 1 - error / (HIGH - LOW) for error in errors]),
    }


def score_error(path: Chained) -> float | None:
    """The difference of a critique's score from the oracle's, in size. None: the critique has no readable score."""
    score = path.critique.parsed.get("score") if path.critique is not None else None
    return None if score is None else abs(score - path.answer.parsed["score"])


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


# --- demonstrations and pairs of the tiny world -----------------------------------------------------------------------


def scored_demonstrations(
    tasks: Sequence[Task], count: int, prompts: Prompts, rng: random.Random
) -> list[Demonstration]:
    """Critiques by the colleague, of tasks drawn at random. They close with the share of right steps, from 1 to 10."""
    return [_demonstration(parse_chain(rng.choice(tasks).prompt), prompts, rng) for _ in range(count)]


def _demonstration(chain: Chain, prompts: Prompts, rng: random.Random) -> Demonstration:
    claimed = some_answer(chain, rng)
    critique = criticise(chain, claimed, COLLEAGUE, COLLEAGUE_MANNER, rng)
    share_right = sum(result == claim for result, claim in zip(critique.own, claimed, strict=False)) / len(claimed)
    closing = f"{prompts.verdict_line} = {LOW + round((HIGH - LOW) * share_right)}"
    messages = prompts.critique_messages(chain.text, answer_text(chain, claimed))
    return Demonstration("critique", tuple(messages), "", critique_text(chain, critique, closing))


def preferred_pairs(tasks: Sequence[Task], count: int, rng: random.Random) -> list[tuple[str, str, str]]:
    """Questions drawn at random, each with two answers: first the one with more right results."""
    return [_pair(parse_chain(rng.choice(tasks).prompt), rng) for _ in range(count)]


def _pair(chain: Chain, rng: random.Random) -> tuple[str, str, str]:
    while True:
        pair = sorted((some_answer(chain, rng) for _ in range(2)), key=lambda values: num_right(chain, values))
        if num_right(chain, pair[0]) < num_right(chain, pair[1]):
            return chain.text, answer_text(chain, pair[1]), answer_text(chain, pair[0])


def some_answer(chain: Chain, rng: random.Random) -> list[int]:
    """The results of an answer: the textbook's, or with few or many wrong values planted."""
    rate = rng.random()
    return work_out(chain, TEXTBOOK, rng) if rate < 0.3 else corrupt_chain(chain, rng, rate)


def num_right(chain: Chain, values: Sequence[int]) -> int:
    """Steps whose result is that of the reference solution."""
    return sum(expected == value for expected, value in zip(chain.values, values, strict=True))


def beside_reference(prompts: Prompts, question: str, answer: str) -> tuple[list[Message], str]:
    """What a reward model reads: the critic's prompt, then each step of the reference beside what the answer claims.

    A model so small cannot compare a result with one that is not written down. An answer in another form claims
    nothing right.
    """
    chain = parse_chain(question)
    results = [int(value) for value in RESULT.findall(answer)]
    claimed = results if len(results) == len(chain.operations) else [(value + 5) % 10 for value in chain.values]
    steps = zip(steps_text(chain, chain.values), claimed, strict=True)
    lines = [f"{step}, claimed {result}" for step, result in steps]
    return prompts.critique_messages(question, answer), "\n".join(lines)
