"""Actors by rule: chances that hold, answers that err as the textbook does, and texts that are chains' answers."""

from __future__ import annotations

from itertools import islice

import pytest

from whet.config.base import ConfigError
from whet.config.loading import load
from whet.methods.critic.critique_rl_config import CritiqueRLConfig
from whet.rollout.rule_roles import verdict_actor
from whet.tasks.chains import answer_text, sample_chains
from whet.tasks.demonstrations import TEXTBOOK

CHAINS = list(islice(sample_chains("train", 0, min_steps=3, max_steps=6), 2000))


def is_right(chain, answer):
    return answer.splitlines()[-1] == f"The answer is {chain.values[-1]}"


def share(rule, *, start, called_wrong):
    """Of answers that are right (or wrong) before the critique, those that are right after it."""
    before = [rule.answer(chain.text, seed=i) for i, chain in enumerate(CHAINS)]
    chosen = [i for i, chain in enumerate(CHAINS) if is_right(chain, before[i]) == start]
    after = [rule.refine(CHAINS[i].text, before[i], called_wrong=called_wrong, seed=i) for i in chosen]
    assert len(chosen) > 500  # so that 0.07 is three standard deviations of a share of 0.5
    return sum(is_right(CHAINS[i], text) for i, text in zip(chosen, after, strict=True)) / len(chosen)


@pytest.mark.parametrize(("mend", "spoil"), [(0.5, 0.08), (0.1, 0.5), (1.0, 0.0)])
def test_a_verdict_does_what_its_chances_say(mend, spoil):
    rule = verdict_actor(mend, spoil)
    assert share(rule, start=False, called_wrong=True) == pytest.approx(mend, abs=0.07)
    assert share(rule, start=True, called_wrong=True) == pytest.approx(1 - spoil, abs=0.07)
    assert share(rule, start=False, called_wrong=False) == 0
    assert share(rule, start=True, called_wrong=False) == 1


def test_answers_repeat_by_seed_and_have_the_form_of_the_tiny_world():
    rule = verdict_actor(0.5, 0.5)
    for chain in CHAINS[:50]:
        texts = {rule.answer(chain.text, seed=seed) for seed in range(20)}
        assert texts == {rule.answer(chain.text, seed=seed) for seed in range(20)}
        assert all(len(text.splitlines()) == len(chain.operations) + 1 for text in texts)
        spoilt = verdict_actor(1, 1).refine(chain.text, answer_text(chain, chain.values), called_wrong=True, seed=1)
        assert not is_right(chain, spoilt)
        assert len(spoilt.splitlines()) == len(chain.operations) + 1


def test_misconceptions_that_are_stronger_make_fewer_answers_right():
    rates = []
    for strength in (None, (0.6, 0.9), (0.98, 1.0)):
        rule = verdict_actor(0.5, 0.5, strength)
        rates.append(sum(is_right(c, rule.answer(c.text, seed=i)) for i, c in enumerate(CHAINS)) / len(CHAINS))
    assert rates == sorted(rates, reverse=True)
    assert rates[0] - rates[-1] > 0.1
    assert verdict_actor(0.5, 0.5).author == TEXTBOOK


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["actor.kind=rule", "actor.mend=1.5"], "actor.mend must be a number >= 0 and <= 1"),
        (["actor.kind=rule", "actor.misconceptions=[0.9,0.5]"], "give the lower share first"),
        (["actor.kind=rule", "data.kind=basics", "prompts=english"], "knows the tiny world only"),
    ],
)
def test_settings_that_make_no_rule_are_sentences(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load(CritiqueRLConfig, None, settings)
