"""The likeliest tokens in each place, in chat and on the token-in route: those of the model, streamed or whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
import torch

from support.byte_model import byte_policy
from support.served import only_policies, served
from whet.chat import render
from whet.models.policy import Policy
from whet.serve.detokenizer import BYTES, token_bytes

ASKED: list[Any] = [{"role": "user", "content": "What is 7 + 12?"}]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return byte_policy()


@pytest.fixture(scope="module")
def address(policy) -> Iterator[str]:
    with served(only_policies({"policy": policy}, 40)) as place:
        yield place


@pytest.fixture(scope="module")
def client(address) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=60)


def test_they_are_shown_as_text_and_bytes(client, policy):
    [choice] = client.chat.completions.create(
        model="policy", messages=ASKED, temperature=0, logprobs=True, top_logprobs=5
    ).choices
    assert len(choice.logprobs.content) > 5
    with torch.no_grad():
        logits = policy.causal_lm(input_ids=torch.tensor([render(policy.tokenizer, ASKED)])).logits[0, -1]
    values, ids = logits.log_softmax(-1).topk(5)
    first = choice.logprobs.content[0].top_logprobs
    assert [top.logprob for top in first] == pytest.approx(values.tolist(), abs=1e-3)
    assert [top.token for top in first] == [policy.tokenizer.decode([token]) for token in ids.tolist()]
    for entry in choice.logprobs.content:
        assert entry.model_dump(exclude={"top_logprobs"}) == entry.top_logprobs[0].model_dump()
        for shown in (entry, *entry.top_logprobs):
            assert shown.bytes == list(shown.token.encode()) or "�" in shown.token


@pytest.mark.parametrize("number", [0, 1, 20])
def test_a_stream_has_the_same(client, number):
    ask = {"model": "policy", "messages": ASKED, "seed": 4, "logprobs": True, "top_logprobs": number, "n": 2}
    whole = client.chat.completions.create(**ask)
    tokens: dict[int, list[Any]] = {0: [], 1: []}
    for chunk in client.chat.completions.create(**ask, stream=True):
        for choice in chunk.choices:
            tokens[choice.index] += choice.logprobs.content if choice.logprobs else []
    for choice in whole.choices:
        assert tokens[choice.index] == choice.logprobs.content
        assert {len(entry.top_logprobs) for entry in choice.logprobs.content} == {number}


def test_parts_of_a_character_have_their_bytes(policy):
    tokenizer = policy.tokenizer
    ids = tokenizer.encode("é€🙂 a", add_special_tokens=False)
    spelt = [token_bytes(tokenizer, token, tokenizer.decode([token])) for token in ids]
    assert bytes(byte for piece in spelt for byte in piece).decode() == "é€🙂 a"
    assert len(BYTES) == len(set(BYTES.values())) == 256


@pytest.mark.parametrize(
    "more", [{"top_logprobs": 1}, {"logprobs": False, "top_logprobs": 1}, {"logprobs": True, "top_logprobs": 21},
             {"logprobs": True, "top_logprobs": -1}, {"logprobs": True, "top_logprobs": True}]
)  # fmt: skip
def test_what_openai_refuses_is_refused(address, more):
    answer = httpx.post(f"{address}/v1/chat/completions", json={"model": "policy", "messages": ASKED} | more)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "top_logprobs")


@pytest.mark.parametrize("temperature", [1, 0.7])
def test_the_token_in_route_has_them_from_two_on_and_they_are_the_models(address, policy, temperature):
    ids = list(render(policy.tokenizer, ASKED))
    choices = {}
    for number in (1, 2, 20):
        params = {"max_tokens": 8, "seed": 3, "logprobs": number, "temperature": temperature}
        body = {"model": "policy", "token_ids": ids, "sampling_params": params}
        [choices[number]] = httpx.post(f"{address}/inference/v1/generate", json=body).json()["choices"]
    assert [choice["token_ids"] for choice in choices.values()] == [choices[1]["token_ids"]] * 3
    for number, choice in choices.items():
        for token, entry in zip(choice["token_ids"], choice["logprobs"]["content"], strict=True):
            top = {likely["token"]: likely["logprob"] for likely in entry["top_logprobs"]}
            assert len(top) == (0 if number == 1 else number)
            assert top.get(f"token_id:{token}", entry["logprob"]) == entry["logprob"]
            assert list(top.values()) == sorted(top.values(), reverse=True)
    context = list(ids)
    for token, entry in zip(choices[20]["token_ids"], choices[20]["logprobs"]["content"], strict=True):
        with torch.no_grad():
            logits = policy.causal_lm(input_ids=torch.tensor([context])).logits[0, -1] / temperature
        values, likely = logits.log_softmax(-1).topk(20)
        assert [top["token"] for top in entry["top_logprobs"]] == [f"token_id:{each}" for each in likely.tolist()]
        assert [top["logprob"] for top in entry["top_logprobs"]] == pytest.approx(values.tolist(), abs=1e-3)
        context.append(token)
