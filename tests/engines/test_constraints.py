"""Constraints and the likeliest tokens, in batches: what is forbidden is never drawn, and nobody else notices."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch

from whet.errors import ConstraintError
from whet.types import Completion, Failure, Request, Sampling

CONTEXT = (5, 6, 7)


@dataclass(eq=False)
class Distinct:
    """Ids of one parity, each once, up to a number of them. It may break after some."""

    parity: int
    number: int
    breaks_at: int = -1

    def matcher(self) -> DistinctMatcher:
        return DistinctMatcher(self)


@dataclass
class DistinctMatcher:
    form: Distinct
    written: list[int] = field(default_factory=list)

    def allowed(self) -> bytes:
        if len(self.written) == self.form.breaks_at:
            raise ConstraintError("the form is too complex")
        return bytes(token % 2 == self.form.parity and token not in self.written for token in range(40))

    def accept(self, token: int) -> bool:
        self.written.append(token)
        return len(self.written) == self.form.number


@pytest.fixture
def policy(random_policy):
    return replace(random_policy, stop_ids=frozenset())


def asked(form: Distinct | None = None, *, seed: int = 0, context=CONTEXT, num_top: int = 0, **sampling) -> Request:
    sampling = Sampling(**{"max_new_tokens": 6, **sampling})
    return Request(context=context, sampling=sampling, seed=seed, constraint=form, num_top=num_top)


def streamed(engine, requests) -> list[Completion | Failure]:
    ended = {}
    for ticket, request in enumerate(requests):
        engine.submit(ticket, request)
    while engine.num_open:
        ended |= engine.advance()
    return [ended[ticket] for ticket in range(len(requests))]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("top_p", [1.0, 0.5])
def test_only_allowed_tokens_are_drawn_and_the_neighbours_keep_their_bits(policy, make_engine, temperature, top_p):
    how = {"temperature": temperature, "top_p": top_p}
    plain = [asked(seed=seed, context=(*CONTEXT, seed), **how) for seed in range(4)]
    formed = [asked(Distinct(seed % 2, 3), seed=seed, context=(*CONTEXT, seed), **how) for seed in range(4)]
    mixed = [request for pair in zip(plain, formed, strict=True) for request in pair]
    without = make_engine(policy).generate([request for request in plain for _ in range(2)])
    for done in (make_engine(policy).generate(mixed), streamed(make_engine(policy), mixed)):
        for number, completion in enumerate(done[1::2]):
            assert len(completion.tokens) == 3
            assert completion.stop_reason == "stop"
            assert len(set(completion.tokens)) == 3
            assert {token % 2 for token in completion.tokens} == {number % 2}
        assert [completion.tokens for completion in done[::2]] == [completion.tokens for completion in without[::2]]


def test_a_form_in_the_batch_changes_no_bit_of_the_rows_beside_it(policy, make_engine):
    plain = [asked(seed=seed, context=(*CONTEXT, seed)) for seed in range(5)]
    never = Distinct(0, 99)  # it runs as long as the others, so that the same rows share each pass
    everything = replace(plain[4], constraint=Anything())
    assert make_engine(policy).generate([*plain[:4], everything]) == make_engine(policy).generate(plain)
    beside = make_engine(policy).generate([*plain[:4], replace(plain[4], constraint=never)])
    assert beside[:4] == make_engine(policy).generate(plain)[:4]


class Anything:
    def matcher(self) -> Anything:
        return self

    def allowed(self) -> bytes:
        return b"\1" * 10_000

    def accept(self, token: int) -> bool:
        return False


def test_logprobs_and_the_likeliest_are_those_of_the_allowed_tokens(policy, make_engine):
    request = asked(Distinct(1, 1), num_top=8, temperature=0.5)
    [done] = make_engine(policy).generate([request])
    ids = torch.tensor([CONTEXT])
    with torch.no_grad():
        logits = policy.causal_lm(input_ids=ids).logits[0, -1].float() / 0.5
    odd = [token for token in range(40) if token % 2]
    expected = torch.full_like(logits, -torch.inf)
    expected[odd] = torch.log_softmax(logits[odd], dim=-1)
    [top] = done.tops
    assert [token for token, _ in top] == expected.topk(8).indices.tolist()
    assert [value for _, value in top] == pytest.approx(expected.topk(8).values.tolist(), abs=1e-4)
    assert done.logprobs[0] == pytest.approx(float(expected[done.tokens[0]]), abs=1e-4)
    assert dict(top).get(done.tokens[0], done.logprobs[0]) == done.logprobs[0]


def test_there_are_no_more_likeliest_than_allowed_tokens(policy, make_engine):
    [done] = make_engine(policy).generate([asked(Distinct(1, 6), num_top=20)])
    assert [len(top) for top in done.tops] == [20, 19, 18, 17, 16, 15]


def test_the_likeliest_change_no_token(policy, make_engine):
    requests = [asked(seed=seed, temperature=temperature) for seed in range(3) for temperature in (0.0, 1.0)]
    wanted = [replace(request, num_top=3) for request in requests]
    for plain, done in zip(make_engine(policy).generate(requests), make_engine(policy).generate(wanted), strict=True):
        assert (done.tokens, done.logprobs) == (plain.tokens, plain.logprobs)
        assert [len(top) for top in done.tops] == [3] * len(done.tokens)
        assert plain.tops == ()


def test_tokens_are_sent_with_the_likeliest(policy, make_engine):
    engine, heard = make_engine(policy), []
    engine.submit(0, asked(num_top=2), heard.append)
    ended = []
    while engine.num_open:
        ended += engine.advance()
    [(_, done)] = ended
    assert heard == done.sampled
    assert all(len(token.top) == 2 for token in heard)


@pytest.mark.parametrize("breaks_at", [0, 2])
def test_a_form_that_breaks_ends_its_own_request_alone(policy, make_engine, breaks_at):
    plain = [asked(seed=seed, context=(*CONTEXT, seed)) for seed in range(3)]
    broken = asked(Distinct(0, 6, breaks_at), seed=9)
    alone = make_engine(policy).generate(plain)
    engine, heard = make_engine(policy), []
    for ticket, request in enumerate([*plain, broken]):
        engine.submit(ticket, request, heard.append if request is broken else None)
    ended = {}
    while engine.num_open:
        ended |= engine.advance()
    assert isinstance(ended[3], Failure)
    assert ended[3].reason == "the form is too complex"
    assert len(heard) == breaks_at
    assert [ended[ticket].tokens for ticket in range(3)] == [completion.tokens for completion in alone]
    with pytest.raises(ConstraintError, match="the form is too complex"):
        make_engine(policy).generate([*plain, broken])


def test_a_form_that_no_token_goes_on_with_is_an_error(policy, make_engine):
    with pytest.raises(ConstraintError, match="no token of the model's vocabulary"):
        make_engine(policy).generate([asked(Distinct(2, 6))])
