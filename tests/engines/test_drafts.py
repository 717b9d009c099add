"""Drafts by prompt lookup: replies are the same tokens, in fewer passes."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from whet.config.parts import EngineConfig
from whet.engines.building import engine_of
from whet.engines.drafts import LARGE, SMALL, Costs, Drafts, _Row, best_width, costs_of
from whet.engines.local import LocalEngine
from whet.engines.runners import FusedRunner, LeanRunner, WholeRunner
from whet.errors import ConstraintError
from whet.models.fused import FusedDecoder
from whet.models.lean import LeanDecoder
from whet.types import Request, Sampling

TEXTS = ["Solve: 7 + 5", "Solve: 1 + 2 * 3 - 4 + 5 * 7", "Critique: 3", "Solve: 9 - 9 - 9 - 9 - 9 - 9 - 9 - 9"]


def requests_for(policy, texts=TEXTS, *, per_text=3, **sampling):
    settings = Sampling(**{"max_new_tokens": 30, **sampling})
    return [
        Request(context=tuple(policy.tokenizer.encode(text)), sampling=settings, seed=1000 * i + j)
        for i, text in enumerate(texts)
        for j in range(per_text)
    ]


def told(completions):
    return [(done.tokens, done.stop_reason) for done in completions]


def assert_near(completions, others):
    for one, other in zip(completions, others, strict=True):
        torch.testing.assert_close(torch.tensor(one.logprobs), torch.tensor(other.logprobs), atol=1e-4, rtol=0)


def streamed(engine, requests, heard=None):
    for ticket, request in enumerate(requests):
        engine.submit(ticket, request, None if heard is None else heard.setdefault(ticket, []).append)
    ended = {}
    while engine.num_open:
        ended |= dict(engine.advance())
    return [ended[ticket] for ticket in range(len(requests))]


class Told(Drafts):
    """Drafts what a test says, in place of what is looked up.

    Args:
        replies: by context and seed.
        wrong: every so manieth token of a draft is another one. 0: none.
    """

    def __init__(self, replies, *, most=6, wrong=0):
        super().__init__(most)
        self.replies, self.wrong, self.written = replies, wrong, []

    def emptied(self):
        return self

    def propose(self, running):
        drafts = []
        for row, written in enumerate(running.written_R[: running.count].tolist()):
            request = running.requests[running.indices[row]]
            reply = self.replies[request.context, request.seed]
            ahead = list(reply[written : written + self.most])[: request.sampling.max_new_tokens - written - 1]
            if self.wrong:
                ahead = [abs(1 - t) if i % self.wrong == self.wrong - 1 else t for i, t in enumerate(ahead)]
            drafts.append(ahead if running.is_free(row) else [])
        return drafts if any(drafts) else None

    def count(self, drafts, written):
        super().count(drafts, written)
        self.written += written


def told_engine(policy, requests, completions, *, most=6, wrong=0, **settings):
    engine = LocalEngine(policy, **settings)
    replies = {(r.context, r.seed): done.tokens for r, done in zip(requests, completions, strict=True)}
    engine.drafts = Told(replies, most=most, wrong=wrong)
    return engine


# --- the same tokens --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (0.8, 0.6), (0.0, 1.0)])
@pytest.mark.parametrize("rows", [1, 4])
def test_replies_are_the_same_tokens(random_policy, temperature, top_p, rows):
    requests = requests_for(random_policy, temperature=temperature, top_p=top_p)
    plain = LocalEngine(random_policy, max_rows=rows).generate(requests)
    engine = LocalEngine(random_policy, max_rows=rows, draft=7)
    drafted = engine.generate(requests)
    assert told(drafted) == told(plain)
    assert_near(drafted, plain)
    assert told(streamed(LocalEngine(random_policy, max_rows=rows, draft=7), requests)) == told(plain)


@pytest.mark.parametrize("wrong", [0, 1, 3], ids=["all right", "all wrong", "every third wrong"])
@pytest.mark.parametrize("runner", ["fused", "lean", "whole"])
def test_right_and_wrong_drafts_give_the_same_tokens(random_policy, monkeypatch, runner, wrong):
    if runner != "fused":
        monkeypatch.setattr(FusedDecoder, "fits", lambda lean: False)
    if runner == "whole":
        monkeypatch.setattr(LeanDecoder, "of", lambda causal_lm: None)
    policy = replace(random_policy, stop_ids=frozenset())
    requests = requests_for(policy)
    plain = LocalEngine(policy, max_rows=5).generate(requests)
    engine = told_engine(policy, requests, plain, wrong=wrong, max_rows=5)
    assert type(engine.runner) is {"fused": FusedRunner, "lean": LeanRunner, "whole": WholeRunner}[runner]
    drafted = engine.generate(requests)
    assert told(drafted) == told(plain)
    assert_near(drafted, plain)
    drafts = engine.drafts
    assert drafts.num_passes > 0
    if wrong == 0:
        assert drafts.num_right == drafts.num_drafted
        # 29 tokens after the first one: four passes of 7, and one of 1.
        assert drafts.num_passes < 30 * len(requests) / 5 / 4
    elif wrong == 1:
        assert drafts.num_right == 0
        assert set(drafts.written) == {1}
    else:
        assert set(drafts.written) <= {1, 2, 3}
        assert 3 in drafts.written


@pytest.mark.parametrize("wrong", [0, 2])
def test_a_stop_inside_a_draft_ends_the_reply_there(random_policy, wrong):
    endless = replace(random_policy, stop_ids=frozenset())
    requests = requests_for(endless, texts=TEXTS[:2], per_text=4)
    whole = LocalEngine(endless).generate(requests)
    texts = [endless.tokenizer.decode([token]) for done in whole for token in done.tokens[8:10]]
    stop = next(text for text in texts if text.strip())
    ends = frozenset({whole[0].tokens[7], whole[5].tokens[11]})
    for changed, policy in (
        ([replace(r, sampling=replace(r.sampling, stop=(stop,))) for r in requests], endless),
        ([replace(r, sampling=replace(r.sampling, stop_ids=tuple(ends))) for r in requests], endless),
        (requests, replace(random_policy, stop_ids=ends)),
        ([replace(r, sampling=replace(r.sampling, max_new_tokens=9)) for r in requests], endless),
        ([replace(r, sampling=replace(r.sampling, max_new_tokens=1)) for r in requests], endless),
    ):
        plain = LocalEngine(policy).generate(changed)
        # The drafts go on past the end: they are of replies that did not stop.
        engine = told_engine(policy, requests, whole, wrong=wrong)
        assert told(engine.generate(changed)) == told(plain)
        assert {done.stop_reason for done in plain} != {"cancelled"}
        assert told(streamed(engine, changed)) == told(plain)


def test_rows_move_between_slots_while_drafts_are_verified(random_policy):
    policy = replace(random_policy, stop_ids=frozenset())
    requests = [
        replace(request, sampling=replace(request.sampling, max_new_tokens=length))
        for request, length in zip(requests_for(policy), [3, 40, 90, 150] * 3, strict=True)
    ]
    plain = LocalEngine(policy, max_rows=4).generate(requests)
    for wrong in (0, 2):
        engine = told_engine(policy, requests, plain, wrong=wrong, max_rows=4)
        drafted = engine.generate(requests)
        assert told(drafted) == told(plain)
        assert_near(drafted, plain)


def test_a_receiver_hears_each_token_once_and_likeliest_tokens_are_those_without_drafts(random_policy):
    requests = [replace(request, num_top=3) for request in requests_for(random_policy, per_text=1)]
    plain = LocalEngine(random_policy).generate(requests)
    engine = told_engine(random_policy, requests, plain)
    heard = {}
    drafted = streamed(engine, requests, heard)
    assert engine.drafts.num_right > 0
    for ticket, (done, other) in enumerate(zip(drafted, plain, strict=True)):
        assert tuple(token.id for token in heard[ticket]) == done.tokens == other.tokens
        assert tuple(token.top for token in heard[ticket]) == done.tops
        assert [[i for i, _ in top] for top in done.tops] == [[i for i, _ in top] for top in other.tops]


def test_a_reply_that_later_requests_follow_is_kept_whole(random_policy):
    policy = replace(random_policy, stop_ids=frozenset())
    [request] = requests_for(policy, texts=TEXTS[:1], per_text=1)
    [done] = LocalEngine(policy).generate([request])
    engine = told_engine(policy, [request], [done])
    [first] = streamed(engine, [replace(request, keep=True)])
    more = replace(request, context=(*request.context, *first.tokens, 5, 6), follows=request.seed, seed=77)
    [plain] = LocalEngine(policy).generate([replace(more, follows=None)])
    engine.drafts.replies[more.context, more.seed] = plain.tokens
    engine.submit(0, more)
    before = engine.stream.counts.prefilled
    ended = []
    while engine.num_open:
        ended += engine.advance()
    assert engine.stream.counts.prefilled - before == 3, "the last token of the reply, and two new ones"
    assert told([ended[0][1]]) == told([plain])


class Distinct:
    """Allows tokens below a bound, and none twice."""

    def __init__(self, bound):
        self.bound = bound

    def matcher(self):
        return _Distinct(self.bound)


class _Distinct:
    def __init__(self, bound):
        self.left = set(range(4, bound))

    def allowed(self):
        return bytes(token in self.left for token in range(200))

    def accept(self, token):
        self.left.discard(token)
        return not self.left


def test_rows_with_a_constraint_are_never_drafted_and_stand_beside_drafted_ones(random_policy):
    policy = replace(random_policy, stop_ids=frozenset())
    plain_requests = requests_for(policy, per_text=1)
    requests = [
        *plain_requests,
        *(replace(request, constraint=Distinct(12 + 5 * i)) for i, request in enumerate(plain_requests)),
    ]
    plain = LocalEngine(policy).generate(requests)
    engine = told_engine(policy, plain_requests, plain[:4])
    engine.drafts.replies |= {(r.context, r.seed): done.tokens for r, done in zip(plain_requests, plain, strict=False)}
    assert told(engine.generate(requests)) == told(plain)
    assert engine.drafts.num_right > 0
    assert [len(done.tokens) for done in plain[4:]] == [8, 13, 18, 23]


def test_other_products_are_drafted_too(random_policy):
    requests = requests_for(random_policy)
    plain = LocalEngine(random_policy, products="int8", max_rows=4).generate(requests)
    engine = told_engine(random_policy, requests, plain, products="int8", max_rows=4)
    same = sum(one == other for one, other in zip(told(engine.generate(requests)), told(plain), strict=True))
    assert same >= len(requests) - 1, "a draw may lie within the rounding of 8 bits"


class Unable:
    """A constraint by which nothing can be written after a few tokens."""

    def matcher(self):
        return _Unable()


class _Unable:
    def __init__(self):
        self.left = 6

    def allowed(self):
        return bytes(self.left > 0 for _ in range(200))

    def accept(self, token):
        self.left -= 1
        return False


def test_a_batch_that_raised_leaves_nothing_to_the_next(random_policy):
    policy = replace(random_policy, stop_ids=frozenset())
    short = Request(context=(5, 6), sampling=Sampling(max_new_tokens=10, temperature=0.0), seed=1)
    long = Request(context=(5, 6) * 9, sampling=Sampling(max_new_tokens=60, temperature=0.0), seed=1)
    engine = LocalEngine(policy, draft=4)
    with pytest.raises(ConstraintError):
        engine.generate([replace(short, constraint=Unable())])
    assert told(engine.generate([long])) == told(LocalEngine(policy).generate([long]))
    assert engine.drafts.num_drafted > 0


# --- what is drafted --------------------------------------------------------------------------------------------------


def test_a_row_guesses_what_followed_its_last_tokens_and_goes_round():
    row = _Row.of(Request(context=(1, 2, 3, 9, 8), sampling=Sampling(max_new_tokens=9), seed=0))
    assert row.repeated() is None
    row.add([1, 2])
    assert row.repeated() == (2, 2)
    row.source = (row.tokens, 2)
    assert row.guessed(3) == [3, 9, 8]
    assert row.guessed(7) == [3, 9, 8, 1, 2, 3, 9]
    row.source = ([5, 6, 7], 1)  # of a reply that ended there is no more than it has
    assert row.guessed(5) == [6, 7]
    row.source = None
    assert row.guessed(5) == []
    row.add([3, 7, 1, 2, 3])
    assert row.repeated() == (8, 3), "of two texts that agree as long, the newer one"
    row.add([9])
    assert row.repeated() == (4, 4), "the longer one, which is older"


def test_the_width_is_that_which_writes_most_for_its_cost():
    free = Costs(few=0.0, many=0.0, drafted=0.0)
    assert best_width([5], [(0.5, 0.5)], free) == 5
    assert best_width([0, 0], [(0.9, 0.9)] * 2, free) == 0
    dear = Costs(few=1.0, many=1.0, drafted=0.0)  # as many positions, as much time
    assert best_width([5], [(0.99, 0.99)], dear) == 0
    # One row: widths 1, 2, 3 write 1.5, 1.75, 1.875 tokens, and cost 1.2, 1.4, 1.6: 1.25, 1.25, 1.17 a unit.
    assert best_width([9], [(0.5, 0.5)], Costs(few=0.2, many=0.2, drafted=0.0)) == 1
    assert best_width([9], [(0.1, 0.1)], Costs(few=0.2, many=0.2, drafted=0.0)) == 0
    # Beside a row without a guess: (2 + 0.9) / 2 tokens a row for the cost 1.6 / 1.2.
    assert best_width([9, 0], [(0.9, 0.0), (0.9, 0.9)], Costs(few=0.2, many=0.2, drafted=0.0)) == 1
    assert costs_of(512, "float32") is costs_of(96, "int8") is SMALL
    assert costs_of(576, "int8") is LARGE["int8"]


def looping_policy(random_policy):
    """One that writes the same tokens again and again: each token says which comes next."""
    size = len(random_policy.tokenizer)
    config = AutoConfig.for_model(
        "llama", hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, vocab_size=size,
        tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.normal_(0.0, 1.0)
        order = torch.tensor([4 + (i + 1) % 6 if i < 10 else 4 for i in range(size)])
        model.lm_head.weight.zero_()
        for token, after in enumerate(order.tolist()):
            if token < 10:
                model.lm_head.weight[after] += model.model.embed_tokens.weight[token]
    return replace(random_policy, model=model, stop_ids=frozenset())


def test_what_repeats_is_written_in_few_passes_and_what_does_not_is_left_alone(random_policy):
    policy = looping_policy(random_policy)
    request = Request(context=(4, 5, 6), sampling=Sampling(max_new_tokens=64, temperature=0.0), seed=1)
    plain, engine = LocalEngine(policy), LocalEngine(policy, draft=15)
    passes, decode = [], plain.runner.decode
    plain.runner.decode = lambda tokens, memory: passes.append(1) or decode(tokens, memory)
    assert told(plain.generate([request])) == told(engine.generate([request]))
    assert len(passes) == 63
    assert engine.drafts.num_passes < 20
    assert engine.drafts.num_right > 40


def test_ended_replies_are_drafts_of_later_ones_until_weights_are_new(random_policy):
    policy = replace(random_policy, stop_ids=frozenset())
    requests = requests_for(policy, texts=TEXTS[:1], per_text=1)
    engine = LocalEngine(policy, draft=15)
    first = engine.generate(requests)
    before = engine.drafts.num_right
    assert told(engine.generate(requests)) == told(first)
    assert engine.drafts.num_right - before > 15, "the same reply again"
    engine.update_weights(policy.version + 1, policy)
    assert engine.drafts.num_right == 0
    assert engine.generate(requests)[0].logprobs == LocalEngine(policy, draft=15).generate(requests)[0].logprobs
    engine.restart()
    assert not engine.drafts._book


def test_full_batches_have_no_drafts(random_policy):
    requests = requests_for(random_policy, per_text=20)
    engine = LocalEngine(random_policy, draft=8)
    asked = []
    propose = engine.drafts.propose
    engine.drafts.propose = lambda running: asked.append((running.count, given := propose(running))) or given
    engine.generate(requests)
    assert all(given is None for count, given in asked if count > 32)


def test_settings_choose_drafts(random_policy):
    assert engine_of(random_policy, EngineConfig(draft=8)).drafts.most == 8
    assert engine_of(random_policy, EngineConfig()).drafts.most == 0
