"""The endpoint as a client sees it: OpenAI's own client over loopback, against a run's policies."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import whet
from support.commands import ENVIRONMENT
from support.served import served
from whet.config.parts import SamplingConfig
from whet.engines.local import LocalEngine
from whet.rollout.roles import render
from whet.run.load import load_run
from whet.serve.app import app_of
from whet.serve.models import ServedPolicies, served_policies
from whet.serve.scheduler import Scheduler
from whet.types import Completion, Request, Sampling

CRITIC, ACTOR, BOTH = "critic_preferred", "actor", "actor+critic_preferred"
ENDLESS, LIMITS = "endless", SamplingConfig(max_new_tokens=900)
QUESTION = "7 + 5 * 3"
CRITIQUE = f"Critique: {QUESTION}\nStep 1: 7 + 5 = 2\nStep 2: 2 * 3 = 7\nThe answer is 7"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Actor and critic of the shipped model, as they are but for a step each."""
    return whet.train(
        "critique_dpo", out=tmp_path_factory.mktemp("runs") / "critics", progress=False, num_threads=1, num_steps=1,
        prompts_per_step=4, group_size=2, warm_start={"actor_steps": 1, "critic_steps": 1},
        data={"num_train": 32, "num_validation": 4, "num_test": 4},
    ).folder  # fmt: skip


@pytest.fixture(scope="module")
def cast(run) -> ServedPolicies:
    """With a policy beside those of the run that never ends a reply by itself."""
    found = served_policies(load_run(run))
    endless = replace(found.policies[CRITIC], stop_ids=frozenset())
    return replace(found, policies={**found.policies, ENDLESS: endless}, limits={**found.limits, ENDLESS: LIMITS})


@pytest.fixture(scope="module")
def address(cast) -> Iterator[str]:
    with served(cast) as found:
        yield found


@pytest.fixture(scope="module")
def client(address) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=30)


def asked(text: str = CRITIQUE) -> list[Any]:
    return [{"role": "user", "content": text}]


def alone(cast: ServedPolicies, text: str, policy: str = CRITIC, *, max_new_tokens: int = 80) -> str:
    """What the engine writes by itself, greedily."""
    found = cast.policies[policy]
    context = render(found.tokenizer, asked(text))
    sampling = Sampling(temperature=0.0, max_new_tokens=max_new_tokens)
    [done] = LocalEngine(found).generate([Request(context=context, sampling=sampling, seed=0)])
    return found.tokenizer.decode(done.tokens, skip_special_tokens=True)


# --- answers ----------------------------------------------------------------------------------------------------------


def test_the_models_are_the_policies_best_one_first_and_the_pipeline(client):
    assert [model.id for model in client.models.list()] == [CRITIC, ACTOR, ENDLESS, BOTH]
    assert client.models.retrieve(ACTOR).owned_by == "whet"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt")


def test_a_greedy_reply_is_the_engines_own(client, cast):
    done = client.chat.completions.create(model=CRITIC, messages=asked(), temperature=0, logprobs=True)
    [choice] = done.choices
    assert choice.message.content == alone(cast, CRITIQUE)
    assert choice.finish_reason == "stop"
    assert "".join(each.token for each in choice.logprobs.content) == choice.message.content
    assert all(each.logprob <= 0 for each in choice.logprobs.content)
    assert done.usage.completion_tokens == len(choice.logprobs.content) + 1  # the end token
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens


def test_a_reply_that_the_client_began_is_gone_on_from(client):
    question = f"Solve: {QUESTION}"
    whole = client.chat.completions.create(model=ACTOR, messages=asked(question), temperature=0).choices[0].message
    begun, rest = whole.content[:17], whole.content[17:]
    assert begun == "Step 1: 7 + 5 = 2"
    turns = [*asked(question), {"role": "assistant", "content": begun}]
    told = {"continue_final_message": True, "add_generation_prompt": False}
    found = client.chat.completions.create(model=ACTOR, messages=turns, temperature=0, extra_body=told)
    assert found.choices[0].message.content == rest
    stream = client.chat.completions.create(
        model=ACTOR, messages=turns, temperature=0, extra_body=told, stream=True
    )  # fmt: skip
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == rest
    with pytest.raises(openai.BadRequestError, match="the last one is the assistant's where"):
        client.chat.completions.create(model=ACTOR, messages=asked(question), extra_body=told)
    with pytest.raises(openai.BadRequestError, match="add_generation_prompt: false goes with"):
        client.chat.completions.create(
            model=ACTOR, messages=asked(question), extra_body={"add_generation_prompt": False}
        )


def test_a_stream_says_the_same_in_pieces(client, cast):
    stream = client.chat.completions.create(
        model=CRITIC, messages=asked(), temperature=0, stream=True, logprobs=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = list(stream)
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == alone(cast, CRITIQUE)
    assert len([piece for piece in pieces if piece]) > 5
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens > 5
    tokens = [t for chunk in chunks if chunk.choices and (found := chunk.choices[0].logprobs) for t in found.content]
    assert "".join(each.token for each in tokens) == "".join(pieces)


def test_samples_go_by_their_seed_and_choices_differ(client):
    settings = {"model": CRITIC, "messages": asked(), "temperature": 2.0, "n": 3, "max_completion_tokens": 60}
    first, again, other = (client.chat.completions.create(**settings, seed=seed) for seed in (1, 1, 2))
    texts = [[choice.message.content for choice in done.choices] for done in (first, again, other)]
    assert texts[0] == texts[1] != texts[2]
    assert len(set(texts[0])) > 1
    assert {choice.finish_reason for choice in first.choices} <= {"length", "stop"}
    streamed = ["", "", ""]
    for chunk in client.chat.completions.create(**settings, seed=1, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts[0]


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_is_not_in_the_reply(client, cast, stream):
    whole = alone(cast, CRITIQUE)
    stop = [whole[14:18], "never said"]
    done = client.chat.completions.create(model=CRITIC, messages=asked(), temperature=0, stop=stop, stream=stream)
    if stream:
        chunks = [chunk.choices[0] for chunk in done]
        text, finish = "".join(choice.delta.content or "" for choice in chunks), chunks[-1].finish_reason
    else:
        text, finish = done.choices[0].message.content, done.choices[0].finish_reason
    assert text == whole[: whole.index(stop[0])]
    assert finish == "stop"


def test_max_tokens_by_either_name(client):
    for name in ("max_tokens", "max_completion_tokens"):
        done = client.chat.completions.create(model=ACTOR, messages=asked(f"Solve: {QUESTION}"), **{name: 3})
        assert (done.usage.completion_tokens, done.choices[0].finish_reason) == (3, "length")


def test_the_pipeline_answers_critiques_and_refines(client, cast, run):
    done = client.chat.completions.create(model=BOTH, messages=asked(QUESTION), temperature=0)
    actor, critic = whet.load_actor(run), whet.load_critic(run)
    answer = actor.answer(QUESTION)
    critique = critic.critique(QUESTION, answer)
    stages = done.choices[0].model_extra["stages"]
    assert [stage["stage"] for stage in stages] == ["answer", "critique", "refinement"]
    assert [stage["model"] for stage in stages] == [ACTOR, CRITIC, ACTOR]
    assert [stage["content"] for stage in stages[:2]] == [answer, critique.text]
    assert stages[1]["verdict"] == critique.verdict
    assert done.choices[0].message.content == stages[2]["content"] == actor.refine(QUESTION, answer, critique.text)


def test_the_pipelines_stages_are_marked_in_a_stream_on_request(client):
    whole = client.chat.completions.create(model=BOTH, messages=asked(QUESTION), temperature=0).choices[0]
    texts: dict[str, str] = {}
    ended = []
    for chunk in client.chat.completions.create(
        model=BOTH, messages=asked(QUESTION), temperature=0, stream=True, extra_body={"stages": True}
    ):
        [choice] = chunk.choices
        stage = (choice.model_extra or {}).get("stage")
        if stage:
            texts[stage] = texts.get(stage, "") + (choice.delta.content or "")
        ended += [found["stage"]] if (found := (choice.model_extra or {}).get("stage_ended")) else []
    assert texts == {stage["stage"]: stage["content"] for stage in whole.model_extra["stages"]}
    assert ended == ["answer", "critique"]
    plain = client.chat.completions.create(model=BOTH, messages=asked(QUESTION), temperature=0, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in plain) == whole.message.content


# --- many at once -----------------------------------------------------------------------------------------------------


def test_everybody_gets_their_own(address, cast):
    questions = [f"{i % 10} + {i // 3 % 10} * {i % 7 + 1}" for i in range(24)]
    expected = {q: alone(cast, f"Solve: {q}", ACTOR, max_new_tokens=32) for q in set(questions)}

    async def one(client: openai.AsyncOpenAI, question: str) -> str:
        done = await client.chat.completions.create(
            model=ACTOR, messages=asked(f"Solve: {question}"), temperature=0, max_tokens=32
        )
        return done.choices[0].message.content

    async def everybody() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(one(client, question) for question in questions))

    assert asyncio.run(everybody()) == [expected[question] for question in questions]


def test_a_request_that_breaks_its_batch_breaks_no_other(cast):
    """What no check foresaw, as here a token that the model does not have, is its sender's alone."""

    async def everybody() -> list[object]:
        scheduler = Scheduler(cast.policies, cast.engine)
        await scheduler.start()
        contexts = [(5, 6), (10**6, 6), (7, 8)]
        brief = Sampling(temperature=0.0, max_new_tokens=4)
        requests = [Request(context=context, sampling=brief, seed=0) for context in contexts]
        going = [scheduler.events(ACTOR, request, tokens=False) for request in requests]

        async def last(events):
            return [event async for event in events][-1]

        try:
            return await asyncio.gather(*map(last, going), return_exceptions=True)
        finally:
            await asyncio.to_thread(scheduler.close)

    first, broken, third = asyncio.run(everybody())
    assert isinstance(broken, Exception)
    assert all(isinstance(each, Completion) and len(each.tokens) for each in (first, third))


def test_a_temperature_next_to_nothing_is_greedy(client, cast):
    options = {"model": ACTOR, "messages": asked("Solve: 7 + 5 * 3"), "max_tokens": 16}
    cold = client.chat.completions.create(temperature=1e-38, **options)
    assert cold.choices[0].message.content == alone(cast, "Solve: 7 + 5 * 3", ACTOR, max_new_tokens=16)


@pytest.mark.parametrize("stream", [False, True])
def test_who_goes_away_frees_the_place(address, stream):
    """Replies that would go on for ten seconds or more."""
    body = {"model": ENDLESS, "messages": asked(), "n": 128, "stream": stream}

    async def leave() -> None:
        async with httpx.AsyncClient() as client:
            going = asyncio.create_task(client.post(f"{address}/v1/chat/completions", json=body, timeout=30))
            for _ in range(3000):
                await asyncio.sleep(0.01)
                if httpx.get(f"{address}/health").json()["running"]:
                    break
            else:
                raise AssertionError("it never ran")
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)

    asyncio.run(leave())
    deadline = time.monotonic() + 5
    while any(httpx.get(f"{address}/health").json()[name] for name in ("running", "waiting")):
        assert time.monotonic() < deadline, "the place is still taken"
        time.sleep(0.02)


def test_who_goes_away_while_waiting_leaves_the_others_a_worker(cast):
    """One row: it is taken, who waits for it hangs up, and the next one is answered."""

    async def three() -> tuple[int, Completion]:
        scheduler = Scheduler(cast.policies, cast.engine.model_copy(update={"max_rows": 1}))
        await scheduler.start()

        async def last(num_tokens: int) -> Completion:
            request = Request(context=(5, 6), sampling=Sampling(max_new_tokens=num_tokens), seed=0)
            return [event async for event in scheduler.events(ENDLESS, request, tokens=False)][-1]

        try:
            first = asyncio.create_task(last(200))
            while not scheduler.num_running:
                await asyncio.sleep(0.001)
            leavers = [asyncio.create_task(last(5)) for _ in range(100)]
            while scheduler.num_waiting < len(leavers):
                await asyncio.sleep(0)
            for leaver in leavers:
                leaver.cancel()
            await asyncio.gather(*leavers, return_exceptions=True)
            assert not first.done()
            left = len(scheduler._waiting)
            await first
            await asyncio.sleep(0.05)
            return left, await asyncio.wait_for(last(5), 10)
        finally:
            await asyncio.to_thread(scheduler.close)

    left, third = asyncio.run(three())
    assert left == 0
    assert len(third.tokens) == 5


def test_a_worker_that_died_is_told_of_and_nobody_waits_for_it(cast, monkeypatch):
    def broken(engine, ticket, payload, wrote=None):
        raise OSError("the device is gone")

    monkeypatch.setattr(LocalEngine, "submit", broken)
    body = {"model": ACTOR, "messages": asked("Solve: 1 + 1")}

    async def ask() -> tuple[list[httpx.Response], httpx.Response]:
        app = app_of(cast)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as to:
            answers = [await asyncio.wait_for(to.post("/v1/chat/completions", json=body), 10) for _ in range(2)]
            return answers, await to.get("/health")

    answers, health = asyncio.run(ask())
    assert [answer.status_code for answer in answers] == [500, 503]
    assert all("the device is gone" in answer.json()["error"]["message"] for answer in answers)
    assert health.status_code == 503
    assert health.json()["error"]["code"] == "engine_died"


# --- bad requests -----------------------------------------------------------------------------------------------------


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("changed", "status", "param", "code"),
    [
        ({"model": "gpt"}, 404, "model", "model_not_found"),
        ({"model": 3}, 400, "model", "invalid_value"),
        ({"messages": []}, 400, "messages", "invalid_value"),
        ({"messages": "hello"}, 400, "messages", "invalid_value"),
        ({"messages": [{"role": "user"}]}, 400, "messages.0.content", "invalid_value"),
        ({"messages": [{"role": "user", "content": 3}]}, 400, "messages.0.content", "invalid_value"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400, "messages.0.tool_call_id", "invalid_value"),
        ({"messages": [{"role": "judge", "content": "x"}]}, 400, "messages.0.role", "invalid_value"),
        ({"messages": [{"role": "assistant", "content": "1"}]}, 400, "messages", None),
        ({"messages": [{"role": "user", "content": "1 + 1 = 2\n" * 400}]}, 400, "messages", "context_length_exceeded"),
        ({"max_tokens": 5000}, 400, "messages", "context_length_exceeded"),
        ({"messages": [{"role": "user", "content": "héllo"}]}, 400, "messages", "unknown_characters"),
        ({"temperature": "1"}, 400, "temperature", "invalid_value"),
        ({"temperature": -1}, 400, "temperature", "invalid_value"),
        ({"top_p": 0}, 400, "top_p", "invalid_value"),
        ({"n": 0}, 400, "n", "invalid_value"),
        ({"max_tokens": 0}, 400, "max_tokens", "invalid_value"),
        ({"max_tokens": True}, 400, "max_tokens", "invalid_value"),
        ({"stop": ["a", ""]}, 400, "stop", "invalid_value"),
        ({"stop": 7}, 400, "stop", "invalid_value"),
        ({"stop": "\ud83d"}, 400, "stop", "invalid_value"),
        ({"model": "a\ud83d"}, 404, "model", "model_not_found"),
        ({"a\ud83d": 1}, 400, None, "invalid_json"),
        ({"messages": [{"role": "user", "content": "\ud83d"}]}, 400, "messages.0.content", "invalid_value"),
        ({"frequency_penalty": 0.5}, 400, "frequency_penalty", "invalid_value"),
        ({"top_logprobs": 3}, 400, "top_logprobs", "invalid_value"),
        ({"tools": [{"type": "function"}]}, 400, "tools.0.function", "invalid_value"),
        ({"best_of": 3}, 400, "best_of", "unknown_parameter"),
        ({"stages": True}, 400, "stages", None),
        ({"model": BOTH, "messages": [{"role": "system", "content": "1"}] * 2}, 400, "messages", None),
    ],
)
def test_a_bad_request_gets_an_error_of_openais_shape(address, changed, status, param, code):
    for stream in (False, True):  # a stream is refused before it begins
        body = {"model": CRITIC, "messages": asked(), "stream": stream} | changed
        answer = httpx.post(f"{address}/v1/chat/completions", content=json.dumps(body).encode(), headers=JSON)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
        assert 10 < len(error["message"]) < 300


def test_what_neither_changes_the_text_nor_asks_for_anything_is_taken(client):
    done = client.chat.completions.create(
        model=CRITIC, messages=[{"role": "user", "content": [{"type": "text", "text": CRITIQUE}]}], temperature=0,
        frequency_penalty=0, presence_penalty=0.0, top_logprobs=0, tools=[], user="me", n=None,
    )  # fmt: skip
    assert done.choices[0].message.content


def test_other_errors_have_the_shape_too(address):
    for answer, status, says in (
        (httpx.get(f"{address}/v2/nothing"), 404, "Not Found: GET /v2/nothing"),
        (httpx.get(f"{address}/v1/chat/completions"), 405, "Method Not Allowed"),
        (httpx.post(f"{address}/v1/chat/completions", content="{", headers={"Content-Type": "application/json"}), 400,
         "the body is no JSON"),
        (httpx.post(f"{address}/v1/chat/completions", content="{}"), 400, "sent as application/json"),
        (httpx.post(f"{address}/v1/chat/completions", json={}), 400, "model: field required"),
    ):  # fmt: skip
        assert answer.status_code == status, answer.text
        assert says in answer.json()["error"]["message"], answer.text


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_the_command_serves_until_it_is_asked_to_stop_and_ends_what_is_on_its_way(run):
    command = [sys.executable, "-m", "whet.cli", "serve", str(run), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**ENVIRONMENT, "PYTHONUNBUFFERED": "1"})  # fmt: skip
    try:
        first, *models = [process.stdout.readline() for _ in range(4)]
        base = first.split()[2].removesuffix("/v1")
        body = {"model": CRITIC, "messages": asked(), "n": 128, "max_tokens": 200}
        with ThreadPoolExecutor() as pool:
            transport = httpx.HTTPTransport(retries=8)  # until it listens
            going = pool.submit(httpx.Client(transport=transport).post, f"{base}/v1/chat/completions", json=body)
            while not going.done() and not is_running(base):
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            answer = going.result()
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert len(answer.json()["choices"]) == 128
    assert first.startswith("serving at http://127.0.0.1:")
    assert [line.strip() for line in models] == [CRITIC, ACTOR, BOTH]
    assert (out, err) == ("stopped\n", "")


def is_running(base: str) -> bool:
    try:
        return httpx.get(f"{base}/health").json()["running"] > 0
    except httpx.ConnectError:
        return False


@pytest.mark.integration
def test_an_agent_behind_an_endpoint_plays_as_it_does_in_its_run(tmp_path):
    """The same items, worlds and words, greedily, so the same episodes."""
    data, limits = {"env": "textcraft", "num_validation": 2, "num_test": 6}, {"max_turns": 6}
    run = whet.train(
        "agent_grpo", out=tmp_path / "run", progress=False, num_threads=1, num_steps=1, prompts_per_step=2,
        group_size=2, max_turns=3, data=data, evaluation=limits, policy={"path": "tiny_agent"},
    )  # fmt: skip
    with served(served_policies(load_run(run.folder))) as address:
        role = {"kind": "endpoint", "url": f"{address}/v1", "model": "policy_best"}
        found = whet.evaluate("agent", names="policy", policy=role, data=data, evaluation=limits, rules="none")
    wanted = run.table["after"]
    assert {key: found["policy"][key] for key in ("success", "turns", "n")} == {
        key: wanted[key] for key in ("success", "turns", "n")
    }
    assert wanted["success"] > 0
