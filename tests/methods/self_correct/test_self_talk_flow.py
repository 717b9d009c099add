"""The flow that makes self-talk: when the actor goes on anew, when a chain is dropped, and what the record says."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.rounds import RIGHT, TASK, WRONG
from whet.config.parts import FileData
from whet.grading import ChainGrader, make_grader
from whet.methods.self_correct.records import of_record
from whet.methods.self_correct.rollout import SelfTalk
from whet.methods.self_correct.step_comments import solution_of, words_of
from whet.rollout.driver import GRADER, roll_out
from whet.rollout.retries import EpisodeCounts, with_retries
from whet.rollout.roles import written
from whet.rollout.services import Fault
from whet.run.data import load_tasks
from whet.tasks.demonstrations import solution_steps
from whet.tasks.oracles import oracle
from whet.tasks.planting import with_other_number
from whet.tasks.prompts import CHAINS, ENGLISH
from whet.types import Failure, Grade, Sampling

EXACT, ONCE = ChainGrader().grade, Sampling()


@dataclass
class Says:
    """A seat whose replies are given."""

    replies: list[Any]
    asked: list[Any] = field(default_factory=list)
    name: str = "actor"
    policy: str = "policy"
    sampling: Sampling = ONCE

    async def reply(self, messages, *, prefill="", seed, parent=None, group=None, follows=None):
        self.asked.append((messages, prefill, seed))
        text = self.replies.pop(0)
        cut = text.endswith("...")
        return written(self.name, text.removesuffix("..."), policy=self.policy, parent=parent,
                       stop_reason="length" if cut else "eos")  # fmt: skip


def flow_of(*replies, **changed) -> tuple[SelfTalk, Says]:
    """The first reply is the answer, the others are revisions."""
    first, *later = replies
    reviser = Says(list(later))
    given = {"critic": oracle, "forms": ("step", "response"), "source": {"actor": "tiny", "critic": "oracle"}}
    return SelfTalk(CHAINS, words_of(CHAINS), Says([first]), reviser, key=(1,), **{**given, **changed}), reviser


def episodes(rollout, grade=EXACT, task=TASK):
    [episode] = roll_out([rollout(task)], {GRADER: grade})
    told = episode.segments[-1].parsed
    return told["fate"], [of_record(each) for each in told["talks"]], episode


def test_a_wrong_step_is_written_anew_from_the_steps_before_it():
    second = "Step 1: 7 + 5 = 2\nStep 2: 2 * 3 = 7\nThe answer is 7"
    rollout, reviser = flow_of(WRONG, second, RIGHT)
    fate, [chain, response], episode = episodes(rollout)
    assert fate == "repaired"
    assert [prefill for _, prefill, _ in reviser.asked] == ["", "Step 1: 7 + 5 = 2"]
    critique = oracle(TASK, written("actor", second))
    assert reviser.asked[1][0] == CHAINS.refine_messages(TASK.prompt, second, critique)
    assert [(piece.kind, piece.label) for piece in chain.segments] == [
        ("step", None), ("check", "Wrong"), ("fix", None), ("check", "Correct"),
        ("step", None), ("check", "Wrong"), ("fix", None), ("check", "Correct"), ("step", None),
    ]  # fmt: skip
    assert (chain.rounds, chain.final_answer, chain.gold_answer, chain.question) == (2, "6", "6", TASK.prompt)
    assert chain.source == {"actor": "tiny", "critic": "oracle", "smoother": "rule"}
    assert chain.text == episode.segments[-1].text
    assert response.text.startswith(WRONG)
    assert response.text.endswith(RIGHT)
    assert (response.form, response.rounds) == ("response", 1)
    assert [segment.role for segment in episode.segments] == [*["actor", "critic"] * 3, "self_talk"]
    assert [segment.parent for segment in episode.segments] == [None, 0, 1, 2, 3, 4, 5]


def test_an_answer_that_is_right_at_once_is_only_checked():
    fate, [chain, response], _ = episodes(flow_of(RIGHT)[0])
    assert (fate, chain.rounds, response.rounds) == ("clean", 0, 0)
    assert [piece.label for piece in chain.segments if piece.kind == "check"] == ["Correct", "Correct"]
    assert response.text.endswith("so write 6: Correct\nThe answer is 6")


def test_a_revision_that_mends_nothing_takes_a_round_and_is_not_taken():
    other = "Step 1: 7 + 5 = 2\nStep 2: 2 * 3 = 7\nThe answer is 7"
    moved = "Step 1: 7 + 5 = 1\nStep 2: 1 * 3 = 3\nThe answer is 3"  # not the steps that it was to go on from
    rollout, reviser = flow_of(other, other, moved, RIGHT + "...", RIGHT, max_rounds=4)
    fate, [chain, _], _ = episodes(rollout)
    assert (fate, chain.rounds, len(reviser.asked)) == ("repaired", 1, 4)
    assert len({seed for _, _, seed in reviser.asked}) == 4
    assert episodes(flow_of(other, other, moved, max_rounds=2)[0])[0] == "limit"


def silent(task, answer):
    return "Correctness of the final answer: Wrong"


def believes(task, answer):
    steps = [line for line in answer.text.split("\n") if line.startswith("Step")]
    said = [f"{step}, claimed {step[-1]}: Correct" for step in steps]
    return "\n".join([*said, "Correctness of the final answer: Correct"])


@pytest.mark.parametrize(
    ("replies", "changed", "fate"),
    [
        ((WRONG + "...",), {}, "cut"),
        ((WRONG,), {"critic": silent}, "unread"),
        (("The answer is 6",), {}, "unread"),
        (("Step 1: 7 + 6 = 3\nStep 2: 3 * 3 = 9\nThe answer is 9",), {}, "unread"),  # no step of the question's
        ((WRONG,), {"critic": believes}, "missed"),
        ((WRONG, WRONG), {"max_rounds": 1}, "limit"),
        ((WRONG, "Step 1: 7 + 5 = 4\nStep 2: 4 * 3 = 2\nThe answer is 2"), {"max_rounds": 1}, "limit"),
        (("Step sentence: 7\n" + RIGHT,), {"critic": believes}, "unread"),
    ],
)
def test_chains_that_never_get_right_are_dropped_and_say_why(replies, changed, fate):
    found, self_corrections, episode = episodes(flow_of(*replies, **changed)[0])
    assert (found, self_corrections) == (fate, [])
    assert episode.segments[-1].text == ""


def test_a_right_answer_of_which_a_step_is_called_wrong_is_no_end():
    """The actor insists, so nothing is mended."""

    def alarmed(task, answer):
        return oracle(task, answer).replace("claimed 2: Correct", "claimed 2: Wrong")

    assert episodes(flow_of(RIGHT, RIGHT, max_rounds=1, critic=alarmed)[0])[0] == "limit"


def test_a_grading_that_fails_is_a_fault_and_no_fate():
    with pytest.raises(Fault):
        episodes(flow_of(RIGHT)[0], grade=lambda items: [Grade(score=None, reason="broke") for _ in items])


def test_a_smoother_is_believed_where_nothing_but_words_changed():
    by_rule = episodes(flow_of(RIGHT, forms=("step",))[0])[1][0].text
    other = by_rule.replace("so write 2: Correct", "and 2 it is")
    for said, text, who in ((other, other, "poet"), (other.replace("2 it", "3 it"), by_rule, "rule"),
                            (other + "...", by_rule, "rule")):  # fmt: skip
        smoother = Says([said], policy="smoother")
        rollout, _ = flow_of(RIGHT, forms=("step",), smoother=smoother, source={"smoother": "poet"})
        _, [chain], _ = episodes(rollout)
        assert (chain.text, chain.source["smoother"]) == (text, who)
        assert by_rule in smoother.asked[0][0][0]["content"]


def by_solution(task, answer):
    """A critic of GSM8K that has the worked solution before its eyes, and writes as the dialect asks."""
    right = solution_steps(task)
    body = solution_of(answer.text.removeprefix(ENGLISH.solve_prefill).removeprefix(ENGLISH.refine_prefill))
    blocks = []
    for step, own in zip(body.steps, right, strict=True):
        says = ("Correct", "This follows.") if step == own else ("Wrong", f"It should be:\n{own}")
        blocks.append(f"Step sentence: {step}\nCorrectness of the step: {says[0]}\nExplanation: {says[1]}\n")
    return "\n".join([*blocks, "Correctness of the final answer: Wrong"])


def test_gsm8k_with_its_own_grader(gsm8k):
    """Answers with a planted error, mended by the worked solution: the text closes with the right answer by the grader
    that reads real replies, though wrong ones stand in it."""
    tasks, rollouts = load_tasks(FileData(path=str(gsm8k), limit=24)).tasks["train"], []
    for number, task in enumerate(tasks):
        steps, rng = solution_steps(task), random.Random(number)
        wrong = [*steps[:-1], with_other_number(steps[-1], rng) or steps[-1]]
        bodies = ["\n".join([*wrong, "The answer is 12345."]), "\n".join([*steps, f"The answer is {task.answer}."])]
        actor, reviser = Says([ENGLISH.solve_prefill + bodies[0]]), Says([ENGLISH.refine_prefill + bodies[1]])
        rollouts.append(
            SelfTalk(ENGLISH, words_of(ENGLISH), actor, reviser, by_solution, (1,), forms=("step", "response"))
        )
    grader = make_grader("math_verify")
    try:
        episodes = roll_out(
            [rollout(task) for rollout, task in zip(rollouts, tasks, strict=True)], {GRADER: grader.grade}
        )
    finally:
        grader.close()
    for task, rollout, episode in zip(tasks, rollouts, episodes, strict=True):
        told = episode.segments[-1].parsed
        assert told["fate"] == "repaired"
        chain, response = (of_record(each) for each in told["talks"])
        kept = solution_steps(task)[:-1]
        assert rollout.reviser.asked[0][1] == ENGLISH.refine_prefill + "\n".join(kept)
        assert "Wait, let me check that. It should be: " in chain.text
        assert "12345" not in chain.text
        assert "The answer is 12345." in response.text
        assert chain.final_answer == response.final_answer


def test_a_critic_that_fails_says_nothing_of_a_chain():
    """An endpoint that is gone ends the play, which is played again; lost for good it has no fate."""

    @dataclass
    class Failing(Says):
        failures: int = 0

        async def reply(self, messages, **more):
            if self.failures:
                self.failures -= 1
                raise Fault(Failure(kind="endpoint_error", reason="gone"))
            return await super().reply(messages, **more)

    said = oracle(TASK, written("actor", RIGHT))
    for failures, outcome in ((1, "ok"), (2, "endpoint_error")):
        episode_counts, rollout = (
            EpisodeCounts(),
            flow_of(RIGHT, critic=Failing([said], name="critic", failures=failures))[0],
        )
        rollout.actor.replies.append(RIGHT)
        [episode] = roll_out([with_retries(rollout, TASK, 0, episode_counts, stride=1, retries=1)], {GRADER: EXACT})
        assert (episode.outcome, episode_counts.started, episode_counts.lost) == (outcome, 2, int(failures == 2))
        assert [each.role for each in episode.segments][-1:] == (["self_talk"] if outcome == "ok" else [])
