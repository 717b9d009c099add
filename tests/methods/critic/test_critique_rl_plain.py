"""Critique-RL on one page (`examples/critique_rl_plain.py`) computes what the method computes."""

from __future__ import annotations

import re
import sys
from collections import defaultdict, deque
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from whet.chat import render
from whet.config.parts import ModelConfig
from whet.credit import groups_of, rewarded
from whet.engines.local import LocalEngine
from whet.grading import ChainGrader
from whet.methods.critic.critique_rl_config import CritiqueRLConfig
from whet.methods.stages import assign_stage_credit, terms_of, updates_of
from whet.methods.stages_config import Stage1, Stage2
from whet.models.policy import load_policies
from whet.rollout.critique import CritiqueRound
from whet.rollout.driver import GRADER, roll_out
from whet.tasks.prompts import CHAINS
from whet.trainer.learner import Learner
from whet.types import Sampling

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
import critique_rl_plain as page

STAGES = {"I": Stage1(), "II": Stage2()}
NUM_PROMPTS = 12
ROUNDING = 1e-4


class Replays:
    """A role that repeats what the page's model wrote to the same prompt. Another prompt is a KeyError."""

    def __init__(self, name, segments, tokenizer):
        self.name, self.policy, self.tokenizer, self.sampling = name, name, tokenizer, Sampling()
        self.written = defaultdict(deque)
        for segment in segments:
            self.written[segment.context].append(segment)

    async def reply(self, messages, *, prefill="", seed, parent=None, group=None, follows=None):
        written = self.written.get(render(self.tokenizer, messages, prefill), ())
        if not written:
            raise KeyError(f"the page's {self.name} was not asked {messages}")
        return replace(written.popleft(), role=self.name, parent=parent, group=group or {})


@pytest.fixture(scope="module")
def policies():
    """The shipped model three times; the critic was moved, so that its KL to the reference is not 0."""
    policies = load_policies({name: ModelConfig(device="cpu") for name in ("actor", "critic", "reference")})
    torch.manual_seed(0)
    with torch.no_grad():
        for weights in policies["critic"].model.parameters():
            weights += 0.02 * torch.randn_like(weights)
    return policies


@pytest.fixture(scope="module")
def rounds(policies):
    engines = {name: LocalEngine(policies[name]) for name in ("actor", "critic")}
    return page.rollout(engines, list(islice(page.questions("train", 0), NUM_PROMPTS)), 0)


@pytest.fixture(scope="module")
def episodes(policies, rounds):
    """The page's texts as the library's own rollout puts them together, grades them and reads their verdicts."""
    tokenizer = policies["actor"].tokenizer
    answers, critiques, refinements = (
        Replays(name, [getattr(each, what) for each in rounds], tokenizer)
        for name, what in (("actor", "answer"), ("critic", "critique"), ("actor", "refinement"))
    )
    rollout = CritiqueRound(CHAINS, answers, critiques, refinements, key=(), num_critiques=page.GROUP_SIZE)
    tasks = [each.task for each in rounds[:: page.GROUP_SIZE]]
    return roll_out([rollout(task) for task in tasks], {GRADER: ChainGrader().grade})


def of_page(stage, rounds, reference):
    """Rewards [B], and the tensors of an update with the credit of each token."""
    rewards_B = torch.tensor([page.reward(stage, played.exchange) for played in rounds])
    ids, old_BT, mask_BT = page.padded([each.critique for each in rounds])
    with torch.no_grad():
        reference_BT = page.logprobs(reference, ids)
    return rewards_B, (ids, old_BT, mask_BT, page.advantages(rewards_B, old_BT, reference_BT, mask_BT))


def of_method(stage, episodes, reference):
    terms, total = terms_of(STAGES[stage])
    groups = groups_of(rewarded(episodes, "critic", terms, total), "critic", "answer")
    rewards = [scored.reward for group in groups for scored in group]
    return rewards, assign_stage_credit(STAGES[stage], groups, reference)


@pytest.mark.parametrize(("stage", "worth"), [("I", {1.0, -1.0}), ("II", {-1.0, 0.2, 1.2})])
def test_rewards_and_advantages_are_the_method_s(stage, worth, policies, rounds, episodes):
    rewards_B, (_, old_BT, mask_BT, credit_BT) = of_page(stage, rounds, policies["reference"])
    rewards, assigned = of_method(stage, episodes, policies["reference"])
    assert rewards_B.tolist() == pytest.approx(rewards)
    assert {round(each, 6) for each in rewards} == worth  # every case of the table occurs
    without_kl = page.advantages(rewards_B, old_BT, old_BT, mask_BT)
    assert (credit_BT - without_kl).abs().max() > 100 * ROUNDING
    for mask_T, credit_T, row in zip(mask_BT, credit_BT, assigned.rows, strict=True):
        torch.testing.assert_close(credit_T[mask_T], torch.tensor(row.credit), atol=ROUNDING, rtol=0)


def test_an_update_moves_the_critic_as_the_method_does(policies, rounds, episodes):
    """Both see all critiques at once, twice: the order in minibatches is each one's own."""
    few = page.MINIBATCH
    assert len(rounds) <= few
    _, tensors = of_page("II", rounds, policies["reference"])
    _, assigned = of_method("II", episodes, policies["reference"])
    start, own, theirs = (policies["critic"].fork(name) for name in ("start", "own", "theirs"))
    for policy in (own, theirs):
        policy.frozen = False
        policy.model.requires_grad_(True)
    rule = updates_of(CritiqueRLConfig(), "stage2", lambda step: STAGES["II"], 10**6)(1)["critic"]
    constant = rule.learning.model_copy(update={"final_share": 1.0})
    Learner(theirs, replace(rule, learning=constant)).update(assigned.rows, seed=0)
    optimizer = torch.optim.Adam(own.model.parameters(), lr=page.LEARNING_RATE, betas=(0.9, 0.95))
    page.update(own, optimizer, *tensors)
    vectors = [torch.cat([w.flatten() for w in p.state().values()]) for p in (start, own, theirs)]
    moved, apart = (vectors[1] - vectors[0]).norm(), (vectors[1] - vectors[2]).norm()
    assert moved > 0.01
    assert apart < 0.02 * moved


def test_the_page_trains_the_critic_alone(capsys):
    actor, critic, reference = page.main(["--steps", "1", "--prompts", "4", "--held-out", "4"])
    shipped = load_policies({"shipped": ModelConfig(device="cpu")})["shipped"]

    def differ(one, other):
        pairs = zip(one.state().values(), other.state().values(), strict=True)
        return any(not torch.equal(a, b) for a, b in pairs)

    assert not differ(actor, shipped)
    assert differ(reference, shipped)  # stage II is held to what stage I left
    assert differ(critic, reference)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["stage", "before", "I", "II"]
    assert all(len(re.findall(r"\( *\d+ to +\d+\)", line)) == 3 for line in lines[1:])
