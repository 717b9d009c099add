"""Requests that join and leave a running batch: the same completions as alone, and each token computed once."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
import torch

from whet.engines.local import LocalEngine
from whet.engines.runners import FusedRunner, LeanRunner, WholeRunner
from whet.engines.stream import Prefix, Prefixes
from whet.models.fused import FusedDecoder
from whet.models.lean import LeanDecoder
from whet.types import Completion, Request, Sampling, Token, tail_row

NUM_TURNS = 30


@pytest.fixture(params=["fused", "lean", "whole"])
def policy(request, random_policy, monkeypatch):
    """As each of the engine's runners takes it."""
    if request.param != "fused":
        monkeypatch.setattr(FusedDecoder, "fits", lambda lean: False)
    if request.param == "whole":
        monkeypatch.setattr(LeanDecoder, "of", lambda causal_lm: None)
    expected = {"fused": FusedRunner, "lean": LeanRunner, "whole": WholeRunner}[request.param]
    assert type(LocalEngine(random_policy).runner) is expected
    return replace(random_policy, stop_ids=frozenset())


@dataclass
class Conversation:
    """Turns of a policy, each answered with tokens that nobody wrote."""

    context: tuple[int, ...]
    rng: random.Random
    number: int
    turn: int = 0
    follows: int | None = None

    def asks(self, **more) -> Request:
        sampling = Sampling(max_new_tokens=self.rng.randrange(1, 9))
        seed = 1000 * self.number + self.turn
        return Request(context=self.context, sampling=sampling, seed=seed, follows=self.follows, keep=True, **more)

    def hears(self, request: Request, done: Completion) -> None:
        said = tuple(self.rng.randrange(4, 40) for _ in range(self.rng.randrange(1, 7)))
        self.context = (*request.context, *done.tokens, *said)
        self.turn, self.follows = self.turn + 1, request.seed


def conversations(count: int) -> list[Conversation]:
    rngs = [random.Random(number) for number in range(count)]
    return [
        Conversation(tuple(r.randrange(4, 40) for _ in range(r.randrange(2, 20))), r, n) for n, r in enumerate(rngs)
    ]


def episodes(engine: LocalEngine, turns: int, *each: Conversation) -> list[tuple[Request, Completion]]:
    """All of them to their ends, every one as fast as it goes."""
    going, found = {}, []
    for conversation in each:
        request = conversation.asks()
        engine.submit(conversation.number, request)
        going[conversation.number] = (conversation, request)
    while going:
        for ticket, done in engine.advance():
            conversation, request = going.pop(ticket)
            found.append((request, done))
            conversation.hears(request, done)
            if conversation.turn < turns:
                request = conversation.asks()
                engine.submit(ticket, request)
                going[ticket] = (conversation, request)
    return found


def test_thirty_joined_turns_agree_with_the_trainer_and_compute_each_token_once(policy):
    engine = LocalEngine(policy, max_rows=5)
    found = episodes(engine, NUM_TURNS, *conversations(7))
    assert len(found) == 7 * NUM_TURNS
    rows = [tail_row(policy.name, request.context, done.tokens, 0.0) for request, done in found]
    for (_, done), own in zip(found, engine.score(rows, token_budget=4000), strict=True):
        torch.testing.assert_close(torch.tensor(done.logprobs), own, atol=1e-4, rtol=0)
    last = {request.seed // 1000: (request, done) for request, done in found}
    # All that a conversation has come to is read once; of every reply but the last its final token too.
    read = sum(len(request.context) for request, _ in last.values())
    written = sum(len(done.tokens) for _, done in found) - sum(len(done.tokens) for _, done in last.values())
    counts = engine.stream.counts
    assert counts.prefilled == read - written + 7 * (NUM_TURNS - 1)
    assert counts.context == sum(len(request.context) for request, _ in found)
    assert counts.row_steps == counts.written == sum(len(done.tokens) for _, done in found)


def test_what_is_beside_a_request_changes_nothing(policy, make_engine):
    found = episodes(make_engine(policy, max_rows=3), 4, *conversations(6))
    alone = make_engine(policy)
    for request, done in found:
        [own] = alone.generate([request])
        assert done.tokens == own.tokens
        torch.testing.assert_close(torch.tensor(done.logprobs), torch.tensor(own.logprobs), atol=1e-4, rtol=0)


def test_the_same_requests_give_the_same_bits(policy, make_engine):
    runs = [episodes(make_engine(policy, max_rows=4), 5, *conversations(9)) for _ in range(2)]
    assert runs[0] == runs[1]


def test_where_nothing_is_kept_the_whole_context_is_computed(policy):
    """Without room for prefixes, and where a context does not begin as the reply that it is said to follow."""
    engine = LocalEngine(policy, max_rows=4, prefix_bytes=0)
    found = episodes(engine, 3, *conversations(3))
    assert engine.stream.counts.prefilled == engine.stream.counts.context
    assert len(engine.stream.prefixes) == 0
    alone = LocalEngine(policy)
    assert [done.tokens for _, done in found] == [alone.generate([r])[0].tokens for r, _ in found]
    engine = LocalEngine(policy)
    request = Request(context=(5, 6, 7), sampling=Sampling(max_new_tokens=3), seed=1, keep=True)
    engine.submit(0, request)
    while engine.num_open:
        engine.advance()
    other = replace(request, context=(5, 6, 8, 9, 10, 11, 12), seed=2, follows=1)
    engine.submit(0, other)
    done = dict(pair for _ in range(3) for pair in engine.advance())
    assert done[0].tokens == alone.generate([other])[0].tokens


def test_a_group_with_one_context_is_computed_once(policy):
    engine = LocalEngine(policy, max_rows=8)
    requests = [Request(context=(5, 6, 7, 8), sampling=Sampling(max_new_tokens=4), seed=seed) for seed in range(6)]
    for ticket, request in enumerate(requests):
        engine.submit(ticket, request)
    done = dict(pair for _ in range(4) for pair in engine.advance())
    assert engine.stream.counts.prefilled == 4
    alone = LocalEngine(policy)
    assert [done[i].tokens for i in range(6)] == [alone.generate([request])[0].tokens for request in requests]


def test_who_is_gone_ends_where_it_stands_and_the_others_do_not_notice(policy, make_engine):
    requests = [Request(context=(5, 6, 7 + i), sampling=Sampling(max_new_tokens=6), seed=i) for i in range(6)]
    alone = [make_engine(policy).generate([request])[0] for request in requests]
    engine, heard = make_engine(policy, max_rows=3), list[Token]()
    for ticket, request in enumerate(requests):
        engine.submit(ticket, request, heard.append if ticket == 1 else None)
    ended = dict(pair for _ in range(2) for pair in engine.advance())
    engine.cancel([0, 5, 77])  # one that runs, one that waits, one that nobody knows
    while engine.num_open:
        ended |= engine.advance()
    assert [ended[ticket].stop_reason for ticket in range(6)] == ["cancelled", *["length"] * 4, "cancelled"]
    assert ended[5].tokens == ()
    assert ended[0].tokens == alone[0].tokens[: len(ended[0].tokens)]
    assert 2 <= len(ended[0].tokens) <= 3
    for ticket in range(1, 5):
        assert ended[ticket].tokens == alone[ticket].tokens
    assert heard == ended[1].sampled


def test_a_listener_that_raises_ends_its_own_request_alone(policy, make_engine):
    def raises(token):
        heard.append(token.id)
        if len(heard) == 2:
            raise ValueError("the client is gone")

    requests = [Request(context=(5, 6, 7 + i), sampling=Sampling(max_new_tokens=4), seed=i) for i in range(3)]
    alone = [make_engine(policy).generate([request])[0] for request in requests]
    engine, heard, ended = make_engine(policy), list[int](), dict[int, Completion]()
    for ticket, request in enumerate(requests):
        engine.submit(ticket, request, raises if ticket == 1 else None)
    for _ in range(4):
        ended |= engine.advance()
    assert engine.num_open == 0
    assert [ended[ticket].stop_reason for ticket in range(3)] == ["length", "cancelled", "length"]
    assert heard == list(ended[1].tokens) == list(alone[1].tokens[:2])
    assert [ended[ticket].tokens for ticket in (0, 2)] == [alone[ticket].tokens for ticket in (0, 2)]


def test_new_weights_end_what_was_kept(random_policy, make_engine):
    policy = replace(random_policy, stop_ids=frozenset())
    engine = make_engine(policy)
    local = getattr(engine, "_local", engine)  # behind the remote one's wire

    def read_of_next_turn(*, updates: bool) -> int:
        [(request, done)] = episodes(engine, 1, *conversations(1))
        if updates:
            engine.update_weights(policy.version + 1, policy)
        after = replace(request, context=(*request.context, *done.tokens, 5), seed=9, follows=request.seed)
        engine.submit(0, after)
        with pytest.raises(RuntimeError, match="were to change while 1 requests ran"):
            engine.update_weights(7, policy)
        before = local.stream.counts.prefilled
        while engine.num_open:
            ended = engine.advance()
        assert ended[0][1].version == engine.version
        assert len(after.context) > 3
        return local.stream.counts.prefilled - before - len(after.context)

    assert read_of_next_turn(updates=False) < 0, "it goes on from what was kept"
    assert read_of_next_turn(updates=True) == 0, "it computes the whole context"


def test_prefixes_go_in_the_order_in_which_they_came():
    layer = torch.zeros(2, 1, 4, 2)  # 64 bytes
    kept = Prefixes(budget=130)
    for seed in range(3):
        kept.put(seed, Prefix((seed, 1), [layer]))
    assert list(kept) == [1, 2]
    assert (kept.used, kept.num_dropped) == (128, 1)
    assert kept.of(1, (1, 1, 5)) is not None
    assert kept.of(1, (1, 1)) is None  # nothing would be left to compute
    assert kept.of(1, (1, 2, 5)) is None
    assert kept.of(0, (0, 1, 5)) is None
    kept.forget([1, 7])
    assert (list(kept), kept.used) == ([2], 64)
