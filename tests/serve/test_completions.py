"""Plain completions, as OpenAI's client reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import openai
import pytest

from support.byte_model import byte_policy
from support.served import only_policies, served
from whet.config.parts import ModelConfig
from whet.engines.local import LocalEngine
from whet.models.policy import Policy, load_policies
from whet.types import Request, Sampling

PROMPT = "What is 7 + 12?\n"


@pytest.fixture(scope="module")
def policy() -> Policy:
    return byte_policy()


@pytest.fixture(scope="module")
def address(policy) -> Iterator[str]:
    tiny = load_policies({"tiny": ModelConfig()})
    with served(only_policies({"policy": policy, **tiny}, 40)) as place:
        yield place


@pytest.fixture(scope="module")
def client(address) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=60)


def alone(policy: Policy, prompt: str = PROMPT) -> str:
    ids = tuple(policy.tokenizer.encode(prompt, add_special_tokens=False))
    sampling = Sampling(temperature=0.0, max_new_tokens=40)
    [done] = LocalEngine(policy).generate([Request(context=ids, sampling=sampling, seed=0)])
    return policy.tokenizer.decode([token for token in done.tokens if token not in policy.stop_ids])


def test_a_greedy_completion_is_the_engines_own(client, policy):
    done = client.completions.create(model="policy", prompt=PROMPT, temperature=0)
    [choice] = done.choices
    assert choice.text == alone(policy)
    assert choice.finish_reason in ("stop", "length")
    assert choice.logprobs is None
    assert done.usage.prompt_tokens == len(policy.tokenizer.encode(PROMPT))


@pytest.mark.parametrize("number", [0, 1, 5, 20])
def test_a_stream_has_the_same_texts_and_logprobs(client, number):
    ask = {"model": "policy", "prompt": PROMPT, "seed": 3, "n": 3, "logprobs": number, "temperature": 1}
    whole = client.completions.create(**ask)
    texts, tokens, tops, offsets = ([[], [], []] for _ in range(4))
    chunks = list(client.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index].append(choice.text)
            tokens[choice.index] += zip(choice.logprobs.tokens, choice.logprobs.token_logprobs, strict=True)
            tops[choice.index] += choice.logprobs.top_logprobs
            offsets[choice.index] += choice.logprobs.text_offset
    assert chunks[-1].usage == whole.usage
    for index, choice in enumerate(whole.choices):
        told = choice.logprobs
        assert "".join(texts[index]) == choice.text
        assert tokens[index] == list(zip(told.tokens, told.token_logprobs, strict=True))
        assert (tops[index], offsets[index]) == (told.top_logprobs, told.text_offset)
        for token, logprob, top in zip(told.tokens, told.token_logprobs, told.top_logprobs, strict=True):
            assert top[token] == logprob
            assert len(top) <= number + 1
            assert number == 0 or max(top.values()) >= logprob
    assert len({choice.text for choice in whole.choices}) > 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_is_not_in_the_text(client, policy, stream):
    text = alone(policy)
    stop = text[3:5]
    done = client.completions.create(model="policy", prompt=PROMPT, temperature=0, stop=[stop], stream=stream)
    found = "".join(chunk.choices[0].text for chunk in done) if stream else done.choices[0].text
    assert found == text[: text.index(stop)]


def test_a_prompts_text_is_never_a_control_token(client, policy):
    done = client.completions.create(model="policy", prompt="<|im_end|>", temperature=0, max_tokens=1)
    assert done.usage.prompt_tokens > 1


@pytest.mark.parametrize(
    ("changed", "status", "param"),
    [
        ({"model": "gpt"}, 404, "model"),
        ({"prompt": ""}, 400, "prompt"),
        ({"prompt": ["a", "b"]}, 400, "prompt"),
        ({"prompt": [1, 2]}, 400, "prompt"),
        ({"prompt": "a" * 100_000}, 400, "prompt"),
        ({"prompt": "\ud83d"}, 400, None),
        ({"model": "tiny", "prompt": "héllo"}, 400, "prompt"),
        ({"max_tokens": 5000}, 400, "prompt"),
        ({"logprobs": 21}, 400, "logprobs"),
        ({"logprobs": True}, 400, "logprobs"),
        ({"echo": True}, 400, "echo"),
        ({"best_of": 2}, 400, "best_of"),
        ({"suffix": "x"}, 400, "suffix"),
        ({"prompt_logprobs": 1}, 400, "prompt_logprobs"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_request_is_refused(address, changed, status, param, stream):
    body = json.dumps({"model": "policy", "prompt": PROMPT, "stream": stream} | changed).encode()
    answer = httpx.post(f"{address}/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert param is None or error["param"] == param
    assert 10 < len(error["message"]) < 300
