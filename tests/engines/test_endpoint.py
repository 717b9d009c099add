"""An endpoint in a seat: every way in which a server may fail it has a type, and none is a reply."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

pytest.importorskip("openai", reason="openai is not installed; it comes with the extra 'endpoint'")

from support.faulty_server import faulty
from support.json_server import JsonServer
from whet.config.base import ConfigError
from whet.config.loading import of_tree
from whet.config.parts import EndpointConfig
from whet.engines.endpoint import BudgetSpent, EndpointEngine, Prompt, Reply
from whet.types import Failure, Sampling


def prompt(text="7 + 5", **more):
    return Prompt(messages=(("user", text),), sampling=Sampling(temperature=0.0, max_new_tokens=9), seed=1, **more)


def engine(server, folder=None, **settings):
    config = EndpointConfig(url=server.url, model="tiny", **({"retries": 0, "timeout_s": 1.0} | settings))
    return EndpointEngine("actor", config, folder)


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
    assert (found.num_read, found.num_written) == ((2, 1) if way == "no_usage" else (7, 3))  # 5 and 4 characters
    [asked] = server.asked
    assert asked["messages"] == [{"role": "user", "content": "7 + 5"}]
    assert (asked["max_tokens"], asked["temperature"], asked["seed"]) == (9, 0.0, 1)


def test_a_stop_string_that_the_server_cut_off_and_names_is_part_of_the_reply(tmp_path):
    asked = replace(prompt(), sampling=Sampling(stop=("</answer>",)))
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "<answer>12"}}
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "tiny"}
    for named, text, reason in ((None, "<answer>12", "eos"), ("</answer>", "<answer>12</answer>", "stop")):
        with JsonServer(lambda *_, n=named: (200, {**body, "choices": [{**choice, "stop_reason": n}]})) as server:
            [found] = answered(engine(server, tmp_path / str(named)), asked)
            assert (found.text, found.stop_reason) == (text, reason)


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


def test_half_a_character_in_a_reply_is_a_failure_and_never_kept(tmp_path):
    with faulty("ok", text="7 \ud83d") as server:
        asked = engine(server, tmp_path, cache="kept")
        [found] = answered(asked, prompt())
        assert (found.kind, "holds half a character" in found.reason) == ("endpoint_error", True)
        server.text = "fine"
        [found] = answered(asked, prompt())
    assert found.text == "fine"


@pytest.mark.parametrize("way", ["429", "500", "drop", "stall", "half", "not_json", "empty_choices"])
def test_what_may_pass_is_tried_again(way):
    with faulty(way, way, "ok") as server:
        tried = engine(server, retries=2, timeout_s=1.5)
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


@pytest.mark.parametrize(
    "torn", ["", '{"asked": {', "{}", "[]", '{"reply": null}', '{"reply": {"text": "x"}}', "whole"]
)
def test_a_kept_reply_that_cannot_be_read_is_asked_for_again(tmp_path, torn):
    with faulty("ok") as server:
        first = answered(engine(server, tmp_path), prompt())
        [file] = tmp_path.rglob("*.json")
        whole = file.read_text()
        file.write_text(torn if torn != "whole" else whole.replace('"num_read": 7', '"num_read": "many"'))
        assert answered(engine(server, tmp_path), prompt()) == first
        assert len(server.asked) == 2
        assert file.read_text() == whole


def test_where_replies_cannot_be_kept_the_run_goes_on(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with faulty("ok") as server:
        unkept = engine(server, tmp_path / "file" / "cache")
        assert [found.text for found in answered(unkept, prompt("a"), prompt("b"))] == ["fine", "fine"]
    [said] = [each.getMessage() for each in caplog.records if each.name == "whet.engines.endpoint"]
    assert said.startswith(f"actor: replies cannot be kept in {tmp_path / 'file' / 'cache'} (")


def test_another_models_reply_that_was_kept_is_not_taken_where_models_are_checked(tmp_path):
    with faulty("other_model") as server:
        [found] = answered(engine(server, tmp_path, check_model=False), prompt())
        assert (found.text, found.model) == ("fine", "somebody-else")
        [refused] = answered(engine(server, tmp_path), prompt())
        assert isinstance(refused, Failure)
        again = engine(server, tmp_path, check_model=False)
        assert answered(again, prompt()) == [found]
    assert again.counts["cached"] == 1


def test_replies_are_kept_apart_by_name_or_not_at_all(tmp_path):
    with faulty("ok") as server:
        for cache, num_asked in [("", 1), ("monday", 2), ("monday", 2), ("", 2), (None, 3), (None, 4)]:
            answered(engine(server, tmp_path, cache=cache), prompt())
            assert len(server.asked) == num_asked, cache
    assert len(list(tmp_path.rglob("*.json"))) == 2


def test_an_answer_of_a_play_that_is_over_never_comes():
    with faulty("slow", "ok") as server:
        asked = engine(server, timeout_s=20)
        asked.submit(0, prompt("old"))
        while not server.asked:
            time.sleep(0.005)
        asked.restart()
        assert asked.advance(wait=True) == []
        [found] = answered(asked, prompt("new"))
        time.sleep(0.2)
        assert (found.text, asked.advance(wait=False)) == ("fine", [])


def test_a_budget_of_tokens_ends_the_run():
    with faulty("ok") as server:
        spent = engine(server, max_tokens=15)
        answered(spent, prompt("a"))
        answered(spent, prompt("b"))  # 10 of 15 are spent when it is asked
        with pytest.raises(BudgetSpent, match=r"20 tokens .* in this session, and actor.max_tokens = 15: .*resume"):
            answered(spent, prompt("c"))


@pytest.mark.parametrize("way", ["no_usage", "filtered", "other_model", "text_usage"])
def test_what_is_refused_or_not_counted_by_the_server_is_spent(way):
    """By hand: 10 tokens by the server's numbers; without them (9 + 4 characters) 3 + 1."""
    with faulty(way, text="fine") as server:
        spent = engine(server, max_tokens=4)
        answered(spent, prompt("7 + 5 = ?"))
        assert (spent.counts["read"], spent.counts["written"]) == ((3, 1) if way == "no_usage" else (7, 3))
        with pytest.raises(BudgetSpent):
            answered(spent, prompt("c"))


def test_numbers_that_are_none_are_estimated():
    with faulty("odd_usage") as server:
        [found] = answered(engine(server), prompt("7 + 5 = ?"))
    assert (found.num_read, found.num_written) == (3, 1)


def test_keys_come_from_the_environment_and_are_written_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret-key")
    with faulty("401") as server:
        [found] = answered(engine(server, tmp_path, key_env="MY_KEY"), prompt())
    assert server.headers[0]["authorization"] == "Bearer secret-key"
    assert "secret-key" not in repr(found)
    assert not any("secret-key" in file.read_text() for file in tmp_path.rglob("*.json"))


@pytest.mark.parametrize("key", ["secret-key", "secret-key\n"])
def test_a_key_that_a_server_echoes_is_blotted_out(monkeypatch, key):
    monkeypatch.setenv("MY_KEY", key)
    with faulty("echo_key") as server:
        [found] = answered(engine(server, key_env="MY_KEY"), prompt())
    assert "[key]" in found.reason
    assert "[key]" in found.trace
    assert "secret" not in repr(found)  # nor the half of it that was left by cutting the sentence


@pytest.mark.parametrize("given", [
    {"url": "http://me:hidden@127.0.0.1/v1"}, {"url": "http://127.0.0.1/v1?api_key=hidden"},
    {"more": {"extra_headers": {"x-key": "hidden"}}}, {"more": {"extra_query": {"k": "hidden"}}},
    {"more": {"extra_body": {"deep": [{"Api-Key": "hidden"}]}}}, {"more": {"Authorization": "hidden"}},
])  # fmt: skip
def test_settings_hold_no_keys(given):
    with pytest.raises(ConfigError, match=r"put the key into the environment variable that key_env names") as caught:
        of_tree(EndpointConfig, {"url": "http://127.0.0.1/v1", "model": "m"} | given)
    assert "hidden" not in str(caught.value)


def test_other_settings_may_be_given():
    more = {"extra_body": {"stop_token_ids": [2], "top_k": 5, "skip_special_tokens": False}, "user": "me"}
    assert EndpointConfig(url="http://127.0.0.1/v1", model="m", more=more).more == more


def test_plain_completions():
    with faulty("ok") as server:
        [found] = answered(engine(server, api="completion"), prompt())
    assert found.text == "fine"
    assert server.asked[0]["prompt"] == "7 + 5"


def test_a_reply_that_is_begun_is_gone_on_from_where_the_server_can():
    with faulty("ok") as server:
        answered(engine(server), prompt(prefill="2 +"))
        answered(engine(server, api="completion"), prompt(prefill="2 +"))
    chat, completion = server.asked
    assert chat["messages"][-1] == {"role": "assistant", "content": "2 +"}
    assert (chat["continue_final_message"], chat["add_generation_prompt"]) == (True, False)
    assert completion["prompt"] == "7 + 5\n\n2 +"


def test_at_most_so_many_requests_at_a_time():
    with faulty("slow") as server:
        few = engine(server, max_concurrency=2, timeout_s=20)
        assert len(answered(few, *(prompt(str(number)) for number in range(8)))) == 8
    assert {json.dumps(each["messages"]) for each in server.asked} == {
        json.dumps([{"role": "user", "content": str(number)}]) for number in range(8)
    }


def test_a_look_says_that_nobody_is_there():
    config = EndpointConfig(url="http://127.0.0.1:9/v1", model="mine")
    with pytest.raises(ConfigError, match=r"actor: mine at http://127\.0\.0\.1:9/v1 cannot be reached"):
        EndpointEngine("actor", config).look()
