"""An endpoint in a seat: every way in which a server may fail it has a type, and none is a reply."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("openai", reason="openai is not installed; it comes with the extra 'endpoint'")

from support.faulty_server import faulty
from whet.config.parts import EndpointConfig
from whet.engines.endpoint import BudgetSpent, EndpointEngine, Prompt, Reply
from whet.types import Failure, Sampling


def prompt(text="7 + 5", **more):
    return Prompt(messages=(("user", text),), sampling=Sampling(temperature=0.0, max_new_tokens=9), seed=1, **more)


def engine(server, cache=None, **settings):
    config = EndpointConfig(url=server.url, model="tiny", **({"retries": 0, "timeout_s": 1.0} | settings))
    return EndpointEngine("actor", config, cache)


def answered(found, *prompts):
    for ticket, each in enumerate(prompts):
        found.submit(ticket, each)
    answers = {}
    while len(answers) < len(prompts):
        answers |= found.advance(wait=True)
    return [answers[ticket] for ticket in range(len(prompts))]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr("whet.engines.endpoint.BACKOFF_S", 0.001)


@pytest.mark.parametrize("way", ["ok", "slow", "no_usage"])
def test_a_reply(way):
    with faulty(way) as server:
        [found] = answered(engine(server), prompt())
    assert (found.text, found.stop_reason) == ("fine", "eos")
    assert found.num_written == (0 if way == "no_usage" else 3)
    [asked] = server.asked
    assert asked["messages"] == [{"role": "user", "content": "7 + 5"}]
    assert (asked["max_tokens"], asked["temperature"], asked["seed"]) == (9, 0.0, 1)


CASES = {
    "429": ("endpoint_error", "HTTP 429: way 429"), "500": ("endpoint_error", "HTTP 500"),
    "503": ("endpoint_error", "HTTP 503"), "401": ("endpoint_error", "HTTP 401"), "404": ("endpoint_error", "HTTP 404"),
    "400": ("endpoint_error", "HTTP 400"), "drop": ("endpoint_error", "cannot be reached"),
    "reset": ("endpoint_error", "cannot be reached"), "half": ("endpoint_error", "cannot be reached"),
    "stall": ("timeout", "no answer within 1 s"), "not_json": ("endpoint_error", "cannot be read"),
    "other_json": ("endpoint_error", "without a choice"), "empty_choices": ("endpoint_error", "without a choice"),
    "null_content": ("endpoint_error", "without text"), "other_model": ("endpoint_error", "'somebody-else' answered"),
    "filtered": ("endpoint_error", "ended with 'content_filter'"), "wrong_types": ("endpoint_error", "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("way", CASES)
def test_every_fault_has_its_type_and_none_is_a_reply(way):
    kind, reason = CASES[way]
    with faulty(way) as server:
        [found] = answered(engine(server), prompt())
    assert isinstance(found, Failure)
    assert found.kind == kind
    assert reason in found.reason
    assert found.reason.startswith(f"actor at {server.url}: ")


def test_nobody_there():
    with faulty("ok") as server:
        gone = engine(server)
    [found] = answered(gone, prompt())
    assert found.kind == "endpoint_error"
    assert "cannot be reached" in found.reason


@pytest.mark.parametrize("way", ["429", "500", "drop", "stall", "half", "not_json", "empty_choices"])
def test_what_may_pass_is_tried_again(way):
    with faulty(way, way, "ok") as server:
        tried = engine(server, retries=2, timeout_s=0.3)
        [found] = answered(tried, prompt())
    assert isinstance(found, Reply)
    assert (tried.counts["sent"], tried.counts["retried"]) == (1, 2)


@pytest.mark.parametrize("way", ["401", "404", "400", "other_model", "filtered"])
def test_what_will_not_pass_is_not(way):
    with faulty(way, "ok") as server:
        [found] = answered(engine(server, retries=5), prompt())
    assert isinstance(found, Failure)
    assert len(server.asked) == 1


def test_a_run_that_is_repeated_sends_nothing(tmp_path):
    with faulty("ok") as server:
        first = answered(engine(server, tmp_path), prompt("a"), prompt("b"))
        again = engine(server, tmp_path)
        assert answered(again, prompt("b"), prompt("a")) == first[::-1]
        assert len(server.asked) == 2
        assert again.counts["cached"] == 2
        answered(again, prompt("c"))
        assert len(server.asked) == 3
    with faulty("500") as server:
        broken = engine(server, tmp_path)
        answered(broken, prompt("d"))
        answered(broken, prompt("d"))
        assert len(server.asked) == 2  # failures are not kept


def test_a_budget_of_tokens_ends_the_run():
    with faulty("ok") as server:
        spent = engine(server, max_tokens=15)
        answered(spent, prompt("a"))
        answered(spent, prompt("b"))  # 10 of 15 are spent when it is asked
        with pytest.raises(BudgetSpent, match=r"20 tokens were read and written .* actor.max_tokens = 15"):
            answered(spent, prompt("c"))


def test_keys_come_from_the_environment_and_are_written_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret-key")
    with faulty("401") as server:
        [found] = answered(engine(server, tmp_path, key_env="MY_KEY"), prompt())
    assert server.headers[0]["authorization"] == "Bearer secret-key"
    assert "secret-key" not in repr(found)
    assert not any("secret-key" in file.read_text() for file in tmp_path.rglob("*.json"))


def test_plain_completions():
    with faulty("ok") as server:
        [found] = answered(engine(server, api="completion"), prompt())
    assert found.text == "fine"
    assert server.asked[0]["prompt"] == "7 + 5"


def test_at_most_so_many_requests_at_a_time():
    with faulty("slow") as server:
        few = engine(server, max_concurrency=2, timeout_s=20)
        assert len(answered(few, *(prompt(str(number)) for number in range(8)))) == 8
    assert {json.dumps(each["messages"]) for each in server.asked} == {
        json.dumps([{"role": "user", "content": str(number)}]) for number in range(8)
    }
