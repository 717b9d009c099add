"""JSON as a chat request's response format: OpenAI's client against a model that would write anything."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from support.byte_model import byte_policy
from support.served import only_policies, served
from whet.config.parts import ModelConfig
from whet.errors import ConstraintError
from whet.models.policy import Policy, load_policies
from whet.serve.json_schemas import JsonMatcher, SchemaCompiler
from whet.types import Completion, Failure, Request, Sampling

pytest.importorskip("llguidance", reason="JSON schemas need llguidance: make setup EXTRAS=json")

ASKED: list[Any] = [{"role": "user", "content": "Is 7 + 5 = 12 right?"}]
VERDICT = {
    "type": "object",
    "properties": {"verdict": {"enum": ["correct", "wrong"]}, "step": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["verdict", "step"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return byte_policy()


@pytest.fixture(scope="module")
def address(policy) -> Iterator[str]:
    tiny = load_policies({"tiny": ModelConfig()})
    with served(only_policies({"policy": policy, **tiny}, 300)) as place:
        yield place


@pytest.fixture(scope="module")
def client(address) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=60)


def of_schema(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema, **more}}


@pytest.mark.parametrize("temperature", [0, 1])
def test_replies_follow_the_schema(client, temperature):
    done = client.chat.completions.create(
        model="policy", messages=ASKED, temperature=temperature, n=16, seed=3,
        response_format=of_schema(VERDICT, strict=True, description="a verdict"),
    )  # fmt: skip
    verdicts = [json.loads(choice.message.content) for choice in done.choices]
    assert {choice.finish_reason for choice in done.choices} == {"stop"}
    for verdict in verdicts:
        assert list(verdict) == ["verdict", "step"]
        assert verdict["verdict"] in ("correct", "wrong")
        assert 0 <= verdict["step"] <= 9
    assert len({verdict["step"] for verdict in verdicts}) > 1 or temperature == 0


def test_the_clients_own_parser_takes_a_class(client):
    import pydantic

    class Verdict(pydantic.BaseModel):
        right: bool
        steps: list[int] = pydantic.Field(max_length=2)

    done = client.chat.completions.parse(model="policy", messages=ASKED, seed=1, response_format=Verdict)
    assert isinstance(done.choices[0].message.parsed, Verdict)


@pytest.mark.parametrize(
    "schema", [None, {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}, {"enum": [7]}]
)
def test_any_kind_of_json_ends_by_itself_or_at_its_limit(client, schema):
    form = {"type": "json_object"} if schema is None else of_schema(schema)
    done = client.chat.completions.create(
        model="policy", messages=ASKED, n=12, seed=5, response_format=form, max_tokens=200
    )
    for choice in done.choices:
        if choice.finish_reason == "length":
            assert schema is None
            assert choice.message.content.lstrip().startswith("{")
        else:
            assert isinstance(json.loads(choice.message.content), dict if schema is None else list | int)
    assert any(choice.finish_reason == "stop" for choice in done.choices)


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_stream_says_the_same(client, temperature):
    ask = {"model": "policy", "messages": ASKED, "temperature": temperature, "seed": 9, "logprobs": True,
           "top_logprobs": 3, "response_format": of_schema(VERDICT)}  # fmt: skip
    whole = client.chat.completions.create(**ask).choices[0]
    chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**ask, stream=True)]
    assert "".join(chunk.delta.content or "" for chunk in chunks) == whole.message.content
    tokens = [token for chunk in chunks if chunk.logprobs for token in chunk.logprobs.content]
    assert tokens == whole.logprobs.content
    for token in tokens:  # where the schema leaves one choice there is one, and it is certain
        assert 1 <= len(token.top_logprobs) <= 3
        if len(token.top_logprobs) == 1:
            assert token.logprob == 0


def test_requests_beside_it_write_what_they_write_alone(client):
    plain = {"model": "policy", "messages": ASKED, "temperature": 0, "max_tokens": 20}
    alone = client.chat.completions.create(**plain).choices[0].message.content
    stream = client.chat.completions.create(
        model="policy", messages=ASKED, n=8, stream=True, response_format={"type": "json_object"}, max_tokens=100
    )
    next(iter(stream))
    assert client.chat.completions.create(**plain).choices[0].message.content == alone
    stream.close()


def test_text_as_a_format_changes_nothing(client):
    ask = {"model": "policy", "messages": ASKED, "temperature": 0, "max_tokens": 20}
    plain, text = (
        client.chat.completions.create(**ask, **more).choices[0].message.content
        for more in ({}, {"response_format": {"type": "text"}})
    )
    assert plain == text


# --- what is refused --------------------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


REF = {"$ref": "#"}
HOSTILE = {
    "deep": (nested(80), "at most 64 objects and lists in one another"),
    "deeper": (nested(3000), "error parsing the body"),
    "long": ({"enum": ["x" * 70_000]}, "at most 65536 characters"),
    "many properties": ({"properties": {f"p{number}": {} for number in range(5000)}}, "too big"),
    "recursive": (REF, "cannot be followed"),
    "recursive by two": ({"anyOf": [REF, REF]}, "cannot be followed"),
    "remote": ({"$ref": "http://127.0.0.1:9/schema"}, "cannot be followed"),
    "a file": ({"$ref": "file:///etc/passwd"}, "cannot be followed"),
    "look-behind": ({"type": "string", "pattern": "(?<=a)b"}, "look-around"),
    "no pattern": ({"type": "string", "pattern": "("}, "unclosed group"),
    "no type": ({"type": "verdict"}, "Invalid type"),
    "contradiction": ({"type": "integer", "minimum": 5, "maximum": 3}, "greater than maximum"),
    "nothing": ({"enum": []}, "cannot be followed"),
    "ignored keyword": ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    "ignored on request": ({"x-guidance": {"lenient": True}, "not": {}}, '["not"]'),
    "product": (
        {"allOf": [{"anyOf": [{"properties": {f"a{i}{j}": {}}} for j in range(4)]} for i in range(10)]},
        "too large",
    ),
    "half a character": ({"enum": ["\ud83d"]}, None),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("stream", [False, True])
def test_a_hostile_schema_is_refused_in_a_sentence_and_in_time(address, name, stream):
    schema, says = HOSTILE[name]
    body = {"model": "policy", "messages": ASKED, "stream": stream, "response_format": of_schema(schema)}
    start = time.process_time()  # the server is in this process
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # for this client's own JSON
    try:
        content = json.dumps(body).encode()
    finally:
        sys.setrecursionlimit(limit)
    answer = httpx.post(
        f"{address}/v1/chat/completions", content=content, headers={"content-type": "application/json"}, timeout=30
    )
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert says is None or says in error["message"]
    assert 10 < len(error["message"]) < 500
    assert "\n" not in error["message"]
    assert time.process_time() - start < 5


PATTERNS = ["(a+)+b", "(a|a)*b{1000}", "(.*a){50}.{500}", ".*a.{20}", "(x+x+)+y", "(.?){200}a{200}", ".*.*.*.*=.*"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_of_exponential_time_costs_a_step_no_more_than_its_fuel(policy, pattern):
    """Each token of 60: the reply goes on, or is refused, and no other request waits long for it."""
    compiler = SchemaCompiler(policy, policy.causal_lm.get_input_embeddings().weight.shape[0])
    matcher = compiler.constraint(json.dumps({"type": "string", "pattern": pattern})).matcher()
    letters = policy.tokenizer.encode('"' + "axa=" * 15, add_special_tokens=False)
    longest = 0.0
    for token in letters:
        start = time.thread_time()
        try:
            allowed = matcher.allowed()
            if not allowed[token]:
                break
            matcher.accept(token)
        except ConstraintError:
            break
        longest = max(longest, time.thread_time() - start)
    assert longest < 1


def test_a_reply_that_its_schema_breaks_off_is_an_error(client, monkeypatch):
    accept, seen = JsonMatcher.accept, list[int]()

    def breaks(self: JsonMatcher, token: int) -> bool:
        seen.append(token)
        if len(seen) > 3:
            raise ConstraintError("the lexer has too many states")
        return accept(self, token)

    monkeypatch.setattr(JsonMatcher, "accept", breaks)
    ask = {"model": "policy", "messages": ASKED, "response_format": of_schema(VERDICT)}
    with pytest.raises(openai.BadRequestError, match="cannot go on by this schema"):
        client.chat.completions.create(**ask)
    seen.clear()
    with pytest.raises(openai.APIError, match="cannot go on by this schema"):
        list(client.chat.completions.create(**ask, stream=True))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"tools": [{"type": "function", "function": {"name": "add"}}]}, "does not go with tools"),
        ({"messages": [*ASKED, {"role": "assistant", "content": "{"}], "continue_final_message": True},
         "does not go with continue_final_message"),
        ({"response_format": {"type": "json_schema"}}, "it goes with the type json_schema"),
        ({"response_format": {"type": "json_object", "json_schema": {"name": "a", "schema": {}}}}, "it goes with"),
        ({"response_format": {"type": "grammar"}}, "response_format.type"),
        ({"response_format": of_schema("object")}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}}, "name"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "name"),
        ({"model": "tiny"}, "which JSON needs"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(address, more, says):
    body = {"model": "policy", "messages": ASKED, "response_format": {"type": "json_object"}} | more
    if body["model"] == "tiny":
        body["messages"] = [{"role": "user", "content": "1 + 1"}]
    answer = httpx.post(f"{address}/v1/chat/completions", json=body)
    assert answer.status_code == 400, answer.text
    assert says in answer.json()["error"]["message"]


def test_without_the_library_it_is_refused_with_how_to_install_it(policy, monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with served(only_policies({"policy": policy}, 20)) as address:
        body = {"model": "policy", "messages": ASKED, "response_format": {"type": "json_object"}}
        answer = httpx.post(f"{address}/v1/chat/completions", json=body)
        assert answer.status_code == 400
        assert (
            "JSON needs llguidance: in whet's checkout, `make setup EXTRAS=json`" in answer.json()["error"]["message"]
        )


def test_the_engine_writes_it_in_a_batch_as_alone(policy):
    from whet.engines.local import LocalEngine

    compiler = SchemaCompiler(policy, policy.causal_lm.get_input_embeddings().weight.shape[0])
    constraint = compiler.constraint(json.dumps(VERDICT))
    sampling = Sampling(max_new_tokens=200)
    requests = [Request(context=(5, 6, 7), sampling=sampling, seed=seed, constraint=constraint) for seed in range(8)]
    batch = LocalEngine(policy).generate(requests)
    engine, ended = LocalEngine(policy, max_rows=3), dict[int, Completion | Failure]()
    for ticket, request in enumerate(requests):
        engine.submit(ticket, request)
    while engine.num_open:
        ended |= engine.advance()
    for number, done in enumerate(batch):
        assert done.tokens == ended[number].tokens
        assert json.loads(policy.tokenizer.decode(done.tokens))["verdict"] in ("correct", "wrong")
