"""Twenty faults of a server, planted one by one in one that computes with a real model: all found before training."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
import torch

from support.random_policy import random_policy as make_policy
from support.vllm_server import AT_SYNC, FAULTS, IN_REPLIES, FakeVllm, serving
from whet.config.parts import EngineConfig
from whet.engines import vllm_probe
from whet.engines.building import engine_of
from whet.engines.protocol import Engine
from whet.engines.vllm_server import Server, ServerError
from whet.models.policy import Policy
from whet.trainer.local import LocalTrainer
from whet.trainer.selfchecks import check_weights
from whet.types import Completion, Request, Sampling

FOUND = {
    "stale": "does not hold the weights of the policy: logprobs of random prompts differ by ",
    "half_loaded": "does not hold the weights of the policy: logprobs of random prompts differ by ",
    "stale_head": "does not hold the weights of the policy: logprobs of random prompts differ by ",
    "other_adapter": "does not hold the weights of the policy: logprobs of random prompts differ by ",
    "label_only": "does not hold the weights of the policy: logprobs of random prompts differ by ",
    "no_effect": "did not take the weights: it was given those labelled 'policy:",
    "temperature_ignored": "ignores temperature: a greedy reply has a token that is ",
    "seed_ignored": "ignores seeds: of 4 requests that were sent twice, 0 gave the same reply",
    "other_logprobs": "gives other logprobs than those that it samples by at temperature 0.3",
    "other_vocabulary": "(the policy has 53 tokens: it has another vocabulary|logprobs of random prompts differ)",
    "hang_update": r"hangs: it was asked to update weights \(/update_weights\) and has not answered in 4 s",
    "hang_resume": r"hangs: it was asked to resume \(/resume\) and has not answered in 4 s",
    "cached_probe": "does not hold the weights of the policy: logprobs of random prompts differ by ",
    "no_spans": "it does not say which weights wrote it",
    "future_spans": "it was written by weights labelled 'whet:999999', which this run has not sent",
    "reply_twice": r"gave the reply generate-tokens-whet-\w+-\d+ twice",
    "other_reply": "has other logprobs than its tokens have in the policy at temperature 0.8",
    "truncated_ids": "(its last token is no end|was cut at)",
    "abort_as_stop": "its last token is no end",
    "restart": "was started again: it has weights labelled 'default', and was given 'policy:1:",
}
"""What each ends the run with."""
REQUESTS = [
    Request(context=(5, 6, 7 + i), sampling=Sampling(temperature=0.8, max_new_tokens=12), seed=i) for i in range(4)
]


def settings_for(server: FakeVllm, **more: object) -> EngineConfig:
    return EngineConfig.model_validate({"kind": "vllm", "urls": (server.url,), "limit_s": 1.0, **more})


def changed(factor: float = 1.1) -> Policy:
    """The policy after an update."""
    policy = make_policy()
    with torch.no_grad():
        for _, parameter in policy.trainable_parameters():
            parameter.mul_(factor)
    policy.version = 1
    return policy


def test_there_are_twenty_and_each_has_its_sentence():
    assert len(FAULTS) == len(set(FAULTS)) == 20
    assert set(FOUND) == set(FAULTS)


@pytest.mark.parametrize("has_phases", [True, False])
@pytest.mark.parametrize("fault", sorted({*AT_SYNC} - {"cached_probe"}))
def test_a_fault_of_an_update_ends_the_run_before_it_samples(fault, has_phases, random_policy):
    if not has_phases and fault not in ("stale_head", "label_only", "no_effect", "half_loaded"):
        pytest.skip("the same with both ways of loading")
    with serving(random_policy, fault=fault, has_phases=has_phases) as server:
        with pytest.raises(ServerError, match=FOUND[fault]) as error:
            engine_of(changed(), settings_for(server, limit_s=4.0 if "hang" in fault else 30.0))
        assert server.url in str(error.value)
        assert "\n" not in str(error.value)


def test_a_cache_that_answers_the_probe_is_found_as_prompts_are_new_each_time(random_policy):
    """Its weights stay behind, and it has answered the fixed probe before: that one alone would be satisfied."""
    policy = random_policy
    first, second = policy.state(), changed().state()
    with serving(policy) as server:
        engine = engine_of(policy, settings_for(server, limit_s=30))
        server.fault = "cached_probe"
        check_weights(LocalTrainer(policy), engine)  # answered by its weights, and cached
        server.fault = ""
        policy.load_state(second, version=1)
        engine.update_weights(1, policy)
        policy.load_state(first, version=2)
        server.fault = "cached_probe"
        with pytest.raises(ServerError, match=FOUND["cached_probe"]):
            engine.update_weights(2, policy)
        engine.servers.held = engine._held  # as if there were no new prompts
        check_weights(LocalTrainer(policy), engine)


@pytest.fixture(scope="module")
def well() -> Iterator[tuple[FakeVllm, Engine]]:
    """A server that holds the policy's weights, as the probe has said."""
    policy = make_policy()
    with serving(policy) as server:
        yield server, engine_of(policy, settings_for(server, limit_s=30))


@pytest.mark.parametrize("fault", sorted({*IN_REPLIES} - {"restart"}))
def test_a_fault_of_a_reply_ends_the_run_before_it_is_trained_on(fault, well):
    server, engine = well
    engine.generate(REQUESTS)
    server.fault = fault
    engine._replies.clear()  # as after an update
    try:
        with pytest.raises(ServerError, match=FOUND[fault]):
            engine.generate(REQUESTS)
    finally:
        server.fault = ""
    assert len(engine.generate(REQUESTS)) == len(REQUESTS)


def test_a_server_that_was_started_again_is_found_by_its_first_reply(random_policy, caplog):
    """It gets the newest weights and a probe. What its first weights wrote is dropped."""
    policy = changed()
    with serving(random_policy) as server:
        engine = engine_of(policy, settings_for(server, limit_s=30))
        before = engine.generate(REQUESTS)
        server.restart()
        assert engine.generate(REQUESTS) == before
        assert server.label.startswith("policy:1:")
        assert FOUND["restart"] in caplog.text


def test_replies_of_first_weights_that_come_late_are_asked_again(random_policy, monkeypatch):
    """Four are under way when a server is started again. The first tells of it, and by the time that the others are
    looked at the server has the newest weights."""
    look, looks = Server.weight_label, []

    async def look_late(asked: Server) -> str:
        looks.append(asked)
        while len(looks) > 1 and not server.label.startswith("policy:"):
            await asyncio.sleep(0.01)
        return await look(asked)

    policy = changed()
    with serving(random_policy) as server:
        engine = engine_of(policy, settings_for(server, limit_s=30))
        before = engine.generate(REQUESTS)
        monkeypatch.setattr(Server, "weight_label", look_late)
        server.restart()
        for ticket, request in enumerate(REQUESTS):
            engine.submit(ticket, request)
        done: dict[int, Completion] = {}
        while len(done) < len(REQUESTS):  # whichever tells of it is the first that ends, and has the server revived
            done |= dict(engine.advance(wait=True))
    assert [done[ticket] for ticket in sorted(done)] == before
    assert len(looks) > 1, "no other reply was under way"


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_samples_of_another_temperature_are_told_by_their_likelihood(temperature, random_policy):
    """Of a server that writes greedy replies as it should, and samples all others at one temperature."""
    engine = engine_of(random_policy, EngineConfig())
    probe = vllm_probe.new_probe(random_policy, random.Random(0))
    check = vllm_probe._Check(random_policy, "the server")

    def sampled(at: float | None) -> list[object]:
        return engine.generate([
            request if at is None or request.sampling.temperature != temperature else Request(
                context=request.context, sampling=Sampling(temperature=at, max_new_tokens=16), seed=request.seed)
            for request in probe.requests
        ])  # fmt: skip

    check.temperature(probe.requests, sampled(None))
    with pytest.raises(ServerError, match=f"does not sample at temperature {temperature:g}: another temperature"):
        check.temperature(probe.requests, sampled(0.3 if temperature == 1 else 1.0))
