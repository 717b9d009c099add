"""Samples of a question: what a vote counts as equal, what an endpoint's cost, and failures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest

from whet.config import ConfigError
from whet.evaluation.critique import vote
from whet.grading import make_grader
from whet.grading.verdicts import parse_verdict
from whet.models.tiny import tiny_tokenizer
from whet.rollout.critique import CritiqueRound
from whet.rollout.driver import GRADER, roll_out
from whet.rollout.retries import EpisodeCounts, Retries
from whet.rollout.roles import NUM_WRITTEN, EndpointRole, PolicyRole, written
from whet.rollout.samples import Samples, _which, cached_role, chance
from whet.rollout.services import Fault
from whet.tasks.prompts import ENGLISH
from whet.types import Completion, Failure, Sampling, Task


@dataclass
class Scripted:
    """Sits in a seat and says what it is told to, one after the other, at a token a word."""

    texts: list[str]
    name: str = "actor"
    policy: str = "p"
    sampling: Sampling = field(default_factory=Sampling)

    async def reply(self, messages, *, prefill="", seed, parent=None, group=None, follows=None):
        text = self.texts.pop(0)
        if text == "broken":
            raise Fault(Failure(kind="endpoint_error", reason="gone"))
        tokens = tuple(range(len(text.split())))
        return written("actor", text, policy=self.policy, parent=parent, seed=seed, tokens=tokens)


def samples_saying(
    *texts: str, compares: bool = True, episode_counts: EpisodeCounts | None = None, critic=None
) -> Samples:
    role = Scripted(list(texts))
    rounds = CritiqueRound(ENGLISH, role, critic or Scripted([]), role, key=(0,))
    retries = Retries(episode_counts or EpisodeCounts(budget=1.0), 1)
    task = Task(id="t", prompt="How many?", answer="12")
    return Samples(task, rounds, rounds, retries, lambda c, d: {"verdict": parse_verdict(c, **d.labels)}, compares)


def run(rollout, grader: str = "math_verify"):
    made = make_grader(grader)
    try:
        return roll_out([rollout], {GRADER: made.grade})[0]
    finally:
        made.close()


async def answers_and_keys(samples: Samples, count: int):
    answers = [await samples.answer(i) for i in range(count)]
    return answers, [await samples.key(answer) for answer in answers]


SIX = [f"The answer is {each}" for each in (r"\frac{1}{2}", r"\frac{1}{2}", r"\frac{2}{4}", "7", "7", "7")]


def test_7_the_graders_equivalence_decides_a_vote_that_texts_would_lose():
    answers, keys = run(answers_and_keys(samples_saying(*SIX), 6))
    assert len(set(keys)) == 2
    assert keys[0] == keys[1] == keys[2]
    assert vote(keys) == 0  # 3 against 3: the first seen
    answers, keys = run(answers_and_keys(samples_saying(*SIX, compares=False), 6))
    texts = [answer.extracted for answer in answers]
    assert keys == texts
    assert answers[vote(keys)].extracted == "7"


def test_the_reference_is_not_what_answers_are_held_against():
    """Two wrong answers that are equal are equal, and a right one is not equal to a wrong one."""
    texts = [f"The answer is {each}" for each in ("0.5", r"\frac{1}{2}", "12", "12.0")]
    answers, keys = run(answers_and_keys(samples_saying(*texts), 4))
    assert keys[0] == keys[1] != keys[2] == keys[3]
    assert [answer.segment.grade.score for answer in answers] == [0, 0, 1, 1]


def test_what_has_no_answer_has_no_key():
    _, keys = run(answers_and_keys(samples_saying("", "The answer is 3"), 2))
    assert keys == [None, "3"]


def test_a_sample_is_made_once():
    samples = samples_saying("The answer is 1", "The answer is 2")

    async def twice():
        return [await samples.answer(0), await samples.answer(0), await samples.answer(1)]

    first, again, other = run(twice())
    assert first is again
    assert (first.num_tokens, other.extracted) == (4, "2")


def test_what_fails_is_played_again_and_then_lost():
    episode_counts = EpisodeCounts(budget=1.0)
    assert run(samples_saying("broken", "The answer is 1", episode_counts=episode_counts).answer(0)).extracted == "1"
    assert (episode_counts.retried, episode_counts.lost) == (1, 0)
    with pytest.raises(Fault, match="gone"):
        run(samples_saying("broken", "broken").answer(0))


def test_an_endpoints_tokens_are_those_it_counted():
    samples = samples_saying("The answer is 12")
    sample = run(samples.answer(0))
    counted = replace(sample, segment=replace(sample.segment, tokens=(), parsed={NUM_WRITTEN: 9}))
    empty = replace(sample, segment=replace(sample.segment, tokens=(), parsed={NUM_WRITTEN: 0}))
    by_rule = replace(sample, segment=written("critic", "ok"))
    assert (counted.num_tokens, empty.num_tokens, by_rule.num_tokens) == (9, 1, 0)


def test_an_endpoint_has_no_probability_to_tell():
    critic = EndpointRole("critic", "judge", Sampling())
    samples = samples_saying("The answer is 12", critic=critic)

    async def asked():
        answer = await samples.answer(0)
        verdict = f"{ENGLISH.verdict_line}: {ENGLISH.right}"
        critique = replace(answer, path=(0, 0), segment=written("critic", verdict, policy="judge"), before=answer)
        return await samples.chance(critique)

    with pytest.raises(ConfigError, match="by=share"):
        run(asked())


def test_seeds_of_critiques_are_those_of_a_critique_round_and_all_differ():
    assert _which((2, 0), 0) == (2, 0, 0)
    assert _which((2, 1), 0) == (2, 1, 0)
    assert _which((2, 0, 0, 0), 0) == (2, 0, 1)
    paths = [(0, 0), (0, 1), (0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0), (0, 1, 1, 0), (1, 0)]
    assert len({_which(path, attempt) for path in paths for attempt in (0, 1)}) == 2 * len(paths)


class Cache(dict):
    put = dict.__setitem__


def test_a_cached_seat_samples_a_request_once():
    role, cache, asked = PolicyRole("actor", "p", tiny_tokenizer(), Sampling()), Cache(), []

    def engine(requests):
        asked.extend(requests)
        return [Completion(tokens=(5, 6), logprobs=(-1.0, -2.0), stop_reason="length", version=3) for _ in requests]

    first, again = (
        roll_out([cached_role(role, cache).reply(ENGLISH.solve_messages("1 + 1"), seed=1)], {"p": engine})[0]
        for _ in range(2)
    )
    assert len(asked) == len(cache) == 1
    assert first == again
    assert (first.tokens, first.logprobs) == ((5, 6), ())


def test_a_cached_seat_samples_nothing_past_the_positions_of_its_model():
    role = PolicyRole("actor", "p", tiny_tokenizer(), Sampling(max_new_tokens=8), max_positions=1024)
    with pytest.raises(Fault, match="p has 1024 positions"):
        roll_out([cached_role(role, Cache()).reply(ENGLISH.solve_messages("1 + 2 * 3\n" * 300), seed=1)], {})


@pytest.mark.parametrize("gap", [0.0, 0.3, 2.0, 40.0, 1000.0])
def test_the_chances_of_the_two_verdicts_add_up_to_1(gap):
    assert chance(-1.0 - gap, -1.0) + chance(-1.0, -1.0 - gap) == pytest.approx(1)
    assert chance(-1.0 - gap, -1.0) == pytest.approx(1 / (1 + math.exp(min(gap, 700))), abs=1e-300)
