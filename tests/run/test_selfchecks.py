"""What a run is told of its settings before it begins."""

from __future__ import annotations

import pytest

from support.commands import config_of
from whet.config.parts import EndpointConfig
from whet.run.selfchecks import narrow_sampling

SKILLS = {"policy": {"answer": "sampling"}}


def told(*settings, learners=("policy",), **more):
    endpoints = {"actor": EndpointConfig(url="http://127.0.0.1:1/v1", model="m", more=more)}
    return list(narrow_sampling(config_of("grpo", *settings), learners, SKILLS, endpoints))


def test_sampling_from_all_tokens_is_told_nothing():
    assert told() == []
    assert told(top_p=1, top_k=0, min_p=0.0) == []
    assert told(top_k=-1) == []


def test_a_part_of_the_tokens_is_told_where_a_policy_gradient_learns_from_it():
    [sentence] = told("sampling.top_p=0.9")
    assert sentence.startswith("sampling.top_p = 0.9 samples from a part of the tokens")
    assert told("sampling.top_p=0.9", learners=(), top_k=20) == []


def test_a_scheduled_part_of_the_tokens_is_told_by_its_least_value():
    [sentence] = told("schedule.sampling.top_p={kind: steps, values: [1.0, 0.7], at: [5]}")
    assert sentence.startswith("sampling.top_p = 0.7 samples from a part of the tokens")


@pytest.mark.parametrize("more", [{"top_p": 0.8}, {"top_k": 20}, {"min_p": 0.05}])
def test_what_an_endpoint_is_asked_for_counts(more):
    [sentence] = told(**more)
    [(name, value)] = more.items()
    assert f"actor.more has {name} = {value}" in sentence
