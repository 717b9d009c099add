"""The critique round: who replies to what, which contexts they see, and what is measured of it (spec sections 3, 4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.rounds import RIGHT, TASK, WRONG, graded, play_rounds, round_of
from whet.evaluation.protocol import Chained, last_paths, measure
from whet.evaluation.scaling import measure_samples
from whet.rollout.critique import CritiqueRound
from whet.rollout.driver import GRADER
from whet.rollout.retries import PATIENCE, EpisodeCounts, Retries, TooManyFaults
from whet.rollout.roles import render, written
from whet.rollout.services import Fault
from whet.tasks.oracles import oracle
from whet.tasks.prompts import CHAINS
from whet.types import Failure, Grade, Sampling


@pytest.fixture
def stage(random_policy):
    return round_of(random_policy)


def test_one_answer_a_group_of_critiques_and_a_refinement_of_each(stage):
    rounds, services = stage
    [[episode]] = play_rounds(replace(rounds, num_critiques=3), [TASK], services)
    assert [s.role for s in episode.segments] == ["actor", *["critic", "actor"] * 3]
    assert [s.parent for s in episode.segments] == [None, 0, 1, 0, 3, 0, 5]
    critiques = [episode.segments[i] for i in episode.indices("critic")]
    assert len({c.group["answer"] for c in critiques}) == 1
    assert len({c.context for c in critiques}) == 1
    assert len({c.seed for c in critiques}) == 3
    assert all(s.grade is not None for s in episode.segments if s.role == "actor")


def test_contexts_are_what_the_dialect_renders_and_tokens_are_kept(stage):
    rounds, services = stage
    [[episode]] = play_rounds(rounds, [TASK], services)
    answer, critique, refinement = episode.segments
    tokenizer = rounds.actor.tokenizer
    assert answer.context == render(tokenizer, CHAINS.solve_messages(TASK.prompt))
    assert critique.context == render(tokenizer, CHAINS.critique_messages(TASK.prompt, answer.text))
    assert refinement.context == render(tokenizer, CHAINS.refine_messages(TASK.prompt, answer.text, critique.text))
    for segment in episode.segments:
        assert len(segment.tokens) == len(segment.logprobs) == sum(count for _, count in segment.versions)


def test_later_rounds_judge_the_refinement_and_share_no_baseline_with_other_answers(stage):
    rounds, services = stage
    [[episode]] = play_rounds(replace(rounds, num_critiques=2, num_rounds=2), [TASK], services)
    assert [s.parent for s in episode.segments] == [None, 0, 1, 2, 3, 0, 5, 6, 7]
    chained = list(last_paths(episode))
    assert len(chained) == 2
    assert all(path.answer is episode.segments[0] for path in chained)
    assert [path.refinement for path in chained] == [episode.segments[4], episode.segments[8]]
    later = [episode.segments[3], episode.segments[7]]
    assert len({s.group["answer"] for s in [episode.segments[1], *later]}) == 3
    [[last]] = play_rounds(replace(rounds, num_rounds=2, history="last"), [TASK], services)
    [[full]] = play_rounds(replace(rounds, num_rounds=2, history="full"), [TASK], services)
    assert len(full.segments[3].context) > len(last.segments[3].context)


def test_the_oracle_verifier_keeps_right_answers(stage):
    rounds, services = stage
    rounds = replace(rounds, keep_right=True, critic=oracle)
    [[kept]] = play_rounds(rounds, [TASK], services, answers={"t": written("actor", RIGHT)})
    [[sent]] = play_rounds(rounds, [TASK], services, answers={"t": written("actor", WRONG)})
    assert len(kept.segments) == 1
    assert len(sent.segments) == 3
    found = measure([kept, sent])
    assert (found["acc"], found["c2i"], found["acc_dis"], found["unparsed"]) == (0.5, 0.0, 1.0, 0.0)


def test_a_broken_grade_is_left_out_and_counted(stage):
    rounds, services = stage
    broken = {**services, GRADER: lambda items: [Grade(score=None, reason="timed out") for _ in items]}
    [[episode]] = play_rounds(rounds, [TASK], broken)
    assert (episode.outcome, episode.reason) == ("grader_error", "timed out")
    assert measure([episode])["grader_errors"] == 1.0
    assert measure([episode])["acc"] is None


@pytest.mark.parametrize("num_rounds", [1, 2, 3])
def test_every_verdict_is_held_against_the_answer_that_it_judges(stage, num_rounds):
    rounds, services = stage
    rounds = replace(rounds, critic=oracle, num_rounds=num_rounds)
    [[episode]] = play_rounds(rounds, [TASK], services, answers={"t": written("actor", WRONG)})
    # the same exchange, but as if the critique had worked: the later answers are right
    segments = tuple(replace(s, text=RIGHT, grade=Grade(score=1.0)) if i and s.role == "actor" else s
                     for i, s in enumerate(episode.segments))  # fmt: skip
    verdicts = [{"verdict": "wrong" if i == 1 else "correct"} for i in range(len(segments))]
    segments = tuple(replace(s, parsed=verdicts[i]) if s.role == "critic" else s for i, s in enumerate(segments))
    found = measure([replace(episode, segments=segments)])
    assert (found["acc"], found["acc_refine"], found["acc_dis"], found["n"]) == (0.0, 1.0, 1.0, 1)


def test_the_oracle_verifier_watches_every_round(stage):
    rounds, services = stage
    rounds = replace(rounds, critic=oracle, num_rounds=3, keep_right=True)
    services = {**services, GRADER: lambda items: [Grade(score=float(text != WRONG)) for text, _ in items]}
    [[episode]] = play_rounds(rounds, [TASK], services, answers={"t": written("actor", WRONG)})
    assert len(episode.segments) == 3  # the first refinement is right, so nothing goes on


def test_samples_with_a_failed_grading_lose_the_question_and_not_the_evaluation(stage):
    rounds, services = stage
    groups = play_rounds(rounds, [TASK, replace(TASK, id="u")], services, num_samples=2)
    segments = groups[1][0].segments
    broken = replace(groups[1][0], segments=(replace(segments[0], grade=Grade(score=None)), *segments[1:]))
    found = measure_samples([groups[0], [broken, groups[1][1]]])
    assert found == measure_samples(groups[:1])


class Rule:
    """A seat that always gives the right answer."""

    name, policy, sampling = "actor", "rule", Sampling()

    async def reply(self, messages, *, prefill="", seed, parent=None, group=None, follows=None):
        return written("actor", RIGHT, seed=seed, parent=parent, group=group or {})


def rule_rounds(critic, retries, **settings):
    return CritiqueRound(CHAINS, Rule(), critic, Rule(), (0,), retries=retries, **settings)


@pytest.mark.parametrize(("keep_right", "finished"), [(False, 300), (True, 0)])
def test_answers_whose_grading_failed_are_held_against_all_answers(keep_right, finished):
    """Of the first gradings one in ten fails, and no round has ended by then. An answer that is kept ends none."""
    numbers = iter(range(10**6))

    def grade(items):
        return [Grade(score=1.0) if next(numbers) % 10 else Grade(score=None, reason="down") for _ in items]

    episode_counts = EpisodeCounts(budget=0.5)
    rounds = rule_rounds(oracle, Retries(episode_counts, 9), keep_right=keep_right)
    tasks = [replace(TASK, id=str(number)) for number in range(300)]
    play_rounds(rounds, tasks, {GRADER: grade})
    assert (episode_counts.episodes, episode_counts.lost) == (finished, 0)
    assert episode_counts.retried >= 30


def test_a_critic_that_is_gone_ends_a_play_though_all_answers_are_graded():
    def gone(task, answer):
        raise Fault(Failure(kind="endpoint_error", reason="gone"))

    episode_counts = EpisodeCounts(budget=0.5)
    rounds, tasks = rule_rounds(gone, Retries(episode_counts, 0)), [replace(TASK, id=str(i)) for i in range(300)]
    with pytest.raises(TooManyFaults, match=f"{PATIENCE} of {PATIENCE} rollouts"):
        play_rounds(rounds, tasks, {GRADER: lambda items: [Grade(score=1.0) for _ in items]})


def test_paths_of_a_bare_answer():
    bare = Chained(graded(written("actor", RIGHT), True), None, None, None)
    assert bare.exchange.refinement_correct is True
