"""The token-in route: ids in, the sampled ids and their logprobs out, in the shape that verifiers' client reads."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import openai
import pytest
import torch

from support.random_policy import random_policy
from support.served import only_policies, served
from whet.chat import render
from whet.engines.local import LocalEngine
from whet.models.policy import Policy
from whet.types import Request, Sampling

PROMPT = [{"role": "user", "content": "Solve: 7 + 5 * 3"}]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return random_policy()


@pytest.fixture(scope="module")
def address(policy) -> Iterator[str]:
    with served(only_policies({"policy": policy}, 40)) as place:
        yield place


@pytest.fixture(scope="module")
def ids(policy) -> list[int]:
    return list(render(policy.tokenizer, PROMPT))


def post(address, body) -> httpx.Response:
    headers = {"content-type": "application/json"}
    return httpx.post(f"{address}/inference/v1/generate", content=json.dumps(body), headers=headers, timeout=60)


def test_greedy_ids_and_logprobs_are_the_engines_own(address, policy, ids):
    params = {"temperature": 0, "max_tokens": 30, "logprobs": 1, "skip_special_tokens": False, "stop_token_ids": []}
    answer = post(address, {"model": "policy", "token_ids": ids, "sampling_params": params, "cache_salt": "a"}).json()
    sampling = Sampling(temperature=0.0, max_new_tokens=30)
    [alone] = LocalEngine(policy).generate([Request(context=tuple(ids), sampling=sampling, seed=0)])
    [choice] = answer["choices"]
    assert choice["token_ids"] == list(alone.tokens)
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == [f"token_id:{t}" for t in alone.tokens]
    assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == pytest.approx(alone.logprobs, abs=1e-4)
    assert answer["prompt_token_ids"] == ids
    assert answer["request_id"]
    num_written = len(alone.tokens)
    assert answer["usage"] == {
        "prompt_tokens": len(ids), "completion_tokens": num_written, "total_tokens": len(ids) + num_written
    }  # fmt: skip


def test_logprobs_are_those_of_the_model_for_the_ids_given_back(address, policy, ids):
    params = {"temperature": 0.7, "max_tokens": 20, "logprobs": 1, "seed": 3, "n": 2}
    answer = post(address, {"model": "policy", "token_ids": ids, "sampling_params": params}).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    for choice in answer["choices"]:
        whole = torch.tensor([answer["prompt_token_ids"] + choice["token_ids"]])
        logits = policy.causal_lm(whole).logits[0, len(ids) - 1 : -1].float() / 0.7
        expected = logits.log_softmax(-1).gather(1, torch.tensor(choice["token_ids"])[:, None]).squeeze(1)
        given = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        assert given == pytest.approx(expected.tolist(), abs=1e-4)


def test_a_seed_repeats_and_choices_differ(address, ids):
    params = {"temperature": 2.0, "max_tokens": 20, "n": 3}
    first, again, other = (
        [choice["token_ids"] for choice in post(address, {
            "model": "policy", "token_ids": ids, "sampling_params": params | {"seed": seed}
        }).json()["choices"]]
        for seed in (1, 1, 2)
    )  # fmt: skip
    assert first == again != other
    assert len({tuple(choice) for choice in first}) == 3


def test_a_stop_id_ends_the_reply_and_is_its_last_id(address, ids):
    params = {"temperature": 0, "max_tokens": 30}
    [whole] = post(address, {"model": "policy", "token_ids": ids, "sampling_params": params}).json()["choices"]
    stop = whole["token_ids"][4]
    at = whole["token_ids"].index(stop)
    params |= {"stop_token_ids": [stop]}
    [cut] = post(address, {"model": "policy", "token_ids": ids, "sampling_params": params}).json()["choices"]
    assert (cut["token_ids"], cut["finish_reason"]) == (whole["token_ids"][: at + 1], "stop")
    assert cut["logprobs"] is None  # they were not asked for


def test_without_parameters_the_runs_limit_holds(address, ids):
    answer = post(address, {"model": "policy", "token_ids": ids, "sampling_params": {"stop_token_ids": []}}).json()
    [choice] = answer["choices"]
    assert len(choice["token_ids"]) == 40 or choice["finish_reason"] == "stop"


def test_models_tell_their_length(address, policy):
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")
    [model] = client.models.list()
    assert model.model_extra == {"max_model_len": policy.causal_lm.config.max_position_embeddings}


@pytest.mark.parametrize(
    ("changed", "status", "param", "code"),
    [
        ({"model": "gpt"}, 404, "model", "model_not_found"),
        ({"token_ids": []}, 400, "token_ids", "invalid_value"),
        ({"token_ids": [1, True]}, 400, "token_ids.1", "invalid_value"),
        ({"token_ids": ["1"]}, 400, "token_ids.0", "invalid_value"),
        ({"token_ids": [1, 1_000_000]}, 400, "token_ids", "unknown_token"),
        ({"token_ids": [1, -1]}, 400, "token_ids", "unknown_token"),
        ({"token_ids": [1] * 4000}, 400, "token_ids", "context_length_exceeded"),
        ({"content_parts": []}, 400, "content_parts", "unknown_parameter"),
        ({"stream": True}, 400, "stream", "invalid_value"),
        ({"sampling_params": {"max_tokens": 0}}, 400, "sampling_params.max_tokens", "invalid_value"),
        ({"sampling_params": {"top_k": 5}}, 400, "sampling_params.top_k", "invalid_value"),
        ({"sampling_params": {"logprobs": 21}}, 400, "sampling_params.logprobs", "invalid_value"),
        ({"sampling_params": {"best_of": 5}}, 400, "sampling_params.best_of", "unknown_parameter"),
        ({"sampling_params": {"stop": [""]}}, 400, "sampling_params.stop", "invalid_value"),
        (
            {"sampling_params": {"stop_token_ids": [1_000_000]}},
            400, "sampling_params.stop_token_ids", "unknown_token",
        ),
    ],
)  # fmt: skip
def test_a_bad_request_is_refused_in_the_shape_of_the_other_routes(address, ids, changed, status, param, code):
    answer = post(address, {"model": "policy", "token_ids": ids} | changed)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code), error
    assert 10 < len(error["message"]) < 300
