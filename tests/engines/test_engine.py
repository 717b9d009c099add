"""The engines' conformance suite, run on an engine of each kind, and what the local engine does inside."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from support.rows import row_of
from whet.engines import memory as memory_module
from whet.engines.local import LocalEngine
from whet.engines.memory import GROWTH, SlotMemory
from whet.engines.runners import FusedRunner, LeanRunner, WholeRunner
from whet.engines.sampling import sample, uniforms
from whet.models.fused import FusedDecoder
from whet.models.lean import LeanDecoder
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.types import Request, Sampling


def requests_for(policy, texts, *, per_text=1, **sampling):
    settings = Sampling(**{"max_new_tokens": 20, **sampling})
    contexts = [tuple(policy.tokenizer.encode(text)) for text in texts]
    return [
        Request(context=context, sampling=settings, seed=1000 * i + j)
        for i, context in enumerate(contexts)
        for j in range(per_text)
    ]


TEXTS = ["Solve: 7 + 5", "Solve: 1 + 2 * 3 - 4 + 5 * 7", "Critique: 3", "Solve: 9 - 9 - 9 - 9 - 9 - 9 - 9 - 9"]


def as_row(policy, request, completion):
    temperature = request.sampling.temperature or 1.0
    return row_of(request.context, completion.tokens, policy=policy.name, temperature=temperature)


@pytest.fixture(params=["fused", "lean", "whole"])
def every_runner(request, random_policy, monkeypatch):
    """The policy as each of the engine's runners takes it."""
    if request.param != "fused":
        monkeypatch.setattr(FusedDecoder, "fits", lambda lean: False)
    if request.param == "whole":
        monkeypatch.setattr(LeanDecoder, "of", lambda causal_lm: None)
    expected = {"fused": FusedRunner, "lean": LeanRunner, "whole": WholeRunner}[request.param]
    assert type(LocalEngine(random_policy).runner) is expected
    return random_policy


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_logprobs_are_the_trainers(every_runner, temperature, make_engine):
    random_policy = every_runner
    requests = requests_for(random_policy, TEXTS, per_text=5, temperature=temperature)
    completions = make_engine(random_policy, max_rows=6).generate(requests)
    rows = [as_row(random_policy, r, c) for r, c in zip(requests, completions, strict=True)]
    for completion, own in zip(completions, score(random_policy, rows, token_budget=200), strict=True):
        torch.testing.assert_close(torch.tensor(completion.logprobs), own, atol=1e-4, rtol=0)


def test_memory_grows_with_the_rows_that_are_left(every_runner, make_engine):
    requests = [
        replace(request, sampling=replace(request.sampling, max_new_tokens=length))
        for request, length in zip(requests_for(every_runner, TEXTS, per_text=3), [3, 40, 150, 260] * 3, strict=True)
    ]
    engine = make_engine(replace(every_runner, stop_ids=frozenset()), max_rows=7)
    completions = engine.generate(requests)
    assert [len(c.tokens) for c in completions] == [3, 40, 150, 260] * 3
    rows = [as_row(every_runner, r, c) for r, c in zip(requests, completions, strict=True)]
    for completion, own in zip(completions, score(every_runner, rows, token_budget=2000), strict=True):
        torch.testing.assert_close(torch.tensor(completion.logprobs), own, atol=1e-4, rtol=0)


def test_growing_changes_no_bit(random_policy, monkeypatch, make_engine):
    requests = requests_for(random_policy, TEXTS, per_text=4, max_new_tokens=150)
    engine = make_engine(replace(random_policy, stop_ids=frozenset()), max_rows=9)
    grown = engine.generate(requests)
    monkeypatch.setattr(memory_module, "GROWTH", 1000)  # all of it at once
    assert engine.generate(requests) == grown


def test_memory_holds_what_is_in_use():
    memory = SlotMemory(num_slots=6, limit=1000, num_layers=1)
    keys = torch.arange(6.0)[:, None, None, None].expand(6, 1, 10, 4)
    memory.admit([(keys, -keys)], torch.arange(6), 0)
    assert memory.layers[0].shape == (2, 6, 1, 10 + GROWTH, 4)
    memory.point_at(torch.tensor([10, 10 + GROWTH]))  # four rows have finished, and one needs room
    room = 11 + 2 * GROWTH
    assert memory.layers[0].shape == (2, 2, 1, room, 4)
    seen = memory.write(0, torch.full((2, 2, 1, 4), 7.0))
    assert [x.shape for x in seen] == [(2, 11 + GROWTH, 4)] * 2
    assert seen[0][1, :, 0].tolist() == [1.0] * 10 + [0.0] * GROWTH + [7.0]
    assert seen[1][1, :, 0].tolist() == [-1.0] * 10 + [0.0] * GROWTH + [7.0]
    assert seen[0][0, 10].tolist() == [7.0] * 4
    memory.point_at(torch.tensor([990, 3]))
    assert memory.layers[0].shape[3] == 1000  # never past the limit


def test_greedy_equals_transformers_generate(every_runner, make_engine):
    random_policy = every_runner
    requests = requests_for(random_policy, TEXTS, temperature=0.0, max_new_tokens=15)
    completions = make_engine(random_policy, max_rows=3).generate(requests)
    for request, completion in zip(requests, completions, strict=True):
        out = random_policy.model.generate(torch.tensor([request.context]), max_new_tokens=15, do_sample=False)
        assert completion.tokens == tuple(out[0, len(request.context) :].tolist())


def test_a_completion_depends_on_its_seed_and_not_on_its_neighbours(random_policy, make_engine):
    requests = requests_for(random_policy, TEXTS, per_text=6)
    together = make_engine(random_policy, max_rows=5).generate(requests)
    alone = [make_engine(random_policy).generate([request])[0] for request in requests]
    assert [c.tokens for c in together] == [c.tokens for c in alone]
    reseeded = make_engine(random_policy).generate([replace(r, seed=r.seed + 7) for r in requests])
    assert [c.tokens for c in together] != [c.tokens for c in reseeded]


def test_the_same_requests_give_the_same_bits(random_policy, make_engine):
    requests = requests_for(random_policy, TEXTS, per_text=4, temperature=0.9, top_p=0.8)
    engine = make_engine(random_policy, max_rows=7)
    assert engine.generate(requests) == engine.generate(requests)


def test_equal_greedy_requests_are_written_once(random_policy):
    requests = requests_for(random_policy, TEXTS[:2], per_text=3, temperature=0.0)
    engine = LocalEngine(random_policy)
    sizes, decode = [], engine.runner.decode
    engine.runner.decode = lambda tokens, memory: sizes.append(len(tokens)) or decode(tokens, memory)
    completions = engine.generate(requests)
    assert max(sizes) == 2
    assert completions == [completions[0]] * 3 + [completions[3]] * 3
    assert [completions[0], completions[3]] == engine.generate([requests[1], requests[5]])
    sizes.clear()
    engine.generate(requests_for(random_policy, TEXTS[:2], per_text=3, temperature=1.0))
    assert max(sizes) == 6


def test_lengths_stop_reasons_and_version_stamps(random_policy, make_engine):
    random_policy.version = 3
    completions = make_engine(random_policy).generate(requests_for(random_policy, TEXTS, per_text=20))
    assert {c.version for c in completions} == {3}
    for completion in completions:
        ended = completion.tokens[-1] in random_policy.stop_ids
        assert completion.stop_reason == ("eos" if ended else "length")
        assert ended or len(completion.tokens) == 20
        assert not set(completion.tokens[:-1]) & random_policy.stop_ids
        assert len(completion.tokens) == len(completion.logprobs)
    assert {c.stop_reason for c in completions} == {"eos", "length"}


def test_stop_strings_end_a_reply_and_are_kept(random_policy, make_engine):
    stop = (" * ", "Step 2: ")
    completions = make_engine(random_policy).generate(
        requests_for(random_policy, TEXTS, per_text=10, max_new_tokens=60, stop=stop)
    )
    stopped = [random_policy.tokenizer.decode(c.tokens) for c in completions if c.stop_reason == "stop"]
    assert stopped
    for text in stopped:
        assert text.endswith(stop)
        assert sum(text.count(s) for s in stop) == 1


def test_a_stop_string_is_found_between_tokens_without_text(random_policy, make_engine):
    tokenizer = random_policy.tokenizer
    four, two = (tokenizer.encode(digit)[0] for digit in "42")
    silent = len(tokenizer)  # an id past the tokenizer's, as padded vocabularies have: decodes to nothing
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model("llama", vocab_size=silent + 1, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                             intermediate_size=32, tie_word_embeddings=False)
    ).eval()  # fmt: skip
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.lm_head.weight[[four, two, silent]] = 1.0
        model.model.embed_tokens.weight.fill_(1.0)
        model.model.norm.weight.fill_(10.0)
        for part in (model.model.layers[0].self_attn.o_proj, model.model.layers[0].mlp.down_proj):
            part.weight.zero_()  # so that every state is the same, and these three tokens are as good as certain
    requests = [
        Request(context=(5,), sampling=Sampling(max_new_tokens=12, stop=("42",)), seed=seed) for seed in range(60)
    ]
    completions = make_engine(Policy("p", model, tokenizer)).generate(requests)
    stopped = [c for c in completions if "42" in tokenizer.decode(c.tokens)]
    assert any(c.tokens.count(silent) >= 4 for c in stopped)
    assert {c.stop_reason for c in stopped} == {"stop"}


def test_bfloat16_runs_on_a_cpu(random_policy, make_engine):
    policy = Policy("p", random_policy.model.bfloat16(), random_policy.tokenizer, stop_ids=random_policy.stop_ids)
    requests = requests_for(policy, TEXTS, per_text=3)
    completions = make_engine(policy, max_rows=5).generate(requests)
    rows = [as_row(policy, r, c) for r, c in zip(requests, completions, strict=True)]
    for completion, own in zip(completions, score(policy, rows, token_budget=200), strict=True):
        torch.testing.assert_close(torch.tensor(completion.logprobs), own, atol=0.3, rtol=0)  # wide random weights


def test_an_empty_context_is_refused():
    with pytest.raises(ValueError, match="one token at least"):
        Request(context=(), sampling=Sampling(), seed=0)


def test_requests_may_differ_in_all_their_settings(random_policy, make_engine):
    [greedy] = requests_for(random_policy, TEXTS[:1], temperature=0.0, max_new_tokens=3)
    [warm] = requests_for(random_policy, TEXTS[1:2], temperature=1.0, max_new_tokens=17)
    mixed = make_engine(random_policy).generate([greedy, warm])
    assert mixed[0].tokens == make_engine(random_policy).generate([greedy])[0].tokens
    assert mixed[1].tokens == make_engine(random_policy).generate([warm])[0].tokens


def test_new_weights_are_seen_at_once(random_policy, make_engine):
    requests = requests_for(random_policy, TEXTS, temperature=0.0)
    engine = make_engine(random_policy)
    before = engine.generate(requests)
    with torch.no_grad():
        random_policy.model.model.norm.weight.mul_(-1)
    engine.update_weights(7, random_policy)
    after = engine.generate(requests)
    assert [each.tokens for each in after] != [each.tokens for each in before]
    assert (engine.version, {each.version for each in after}) == (7, {7})
    rows = [as_row(random_policy, r, c) for r, c in zip(requests, after, strict=True)]
    for own, trainers in zip(engine.score(rows), score(random_policy, rows, token_budget=16384), strict=True):
        assert torch.equal(own, trainers)


def test_an_engine_says_how_much_it_takes_and_how_much_it_did(random_policy, make_engine):
    engine = make_engine(random_policy, max_rows=3)
    assert (engine.capacity, engine.num_tokens, engine.num_open) == (3, 0, 0)
    requests = requests_for(random_policy, TEXTS)
    done = engine.generate(requests)
    assert engine.num_tokens == sum(len(r.context) + len(c.tokens) for r, c in zip(requests, done, strict=True))
    again, before = [*requests, *requests], engine.num_tokens
    for ticket, request in enumerate(again):
        engine.submit(ticket, request)
    ended = {}
    while engine.num_open:
        ended |= engine.advance(wait=True)
    assert engine.num_tokens - before == sum(len(r.context) + len(ended[t].tokens) for t, r in enumerate(again))
    for ticket, request in enumerate(requests):
        engine.submit(ticket, request)
        assert ticket not in engine.queued
    assert engine.num_open == len(requests)
    engine.restart()
    assert (engine.num_open, engine.advance(wait=True)) == (0, [])


def test_weights_in_the_sources_memory_are_not_copied(random_policy, make_engine, monkeypatch):
    """And those that are not, once an update."""
    engine, copies, state = make_engine(random_policy), [], Policy.state
    monkeypatch.setattr(Policy, "state", lambda policy: copies.append(policy.name) or state(policy))
    engine.update_weights(1, random_policy)
    assert len(copies) == (0 if engine.shares_memory(random_policy) else 1)
    assert not engine.shares_memory(random_policy.fork("other"))


def test_no_requests(random_policy, make_engine):
    assert make_engine(random_policy).generate([]) == []


def test_sliding_windows_are_refused_in_a_sentence(random_policy):
    random_policy.model.config.layer_types = ["sliding_attention"] * 3
    with pytest.raises(ValueError, match="full attention"):
        LocalEngine(random_policy)


def test_a_window_that_the_config_does_not_spell_out_by_layer_is_refused_too(random_policy):
    config = AutoConfig.for_model("mistral", vocab_size=52, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                                  num_key_value_heads=4, intermediate_size=64, sliding_window=16)  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(ValueError, match="full attention"):
        LocalEngine(Policy("other", model, random_policy.tokenizer))


def test_eager_attention_gives_the_same(random_policy, make_engine):
    requests = requests_for(random_policy, TEXTS, per_text=3)
    want = make_engine(random_policy, max_rows=5).generate(requests)
    random_policy.model.set_attn_implementation("eager")
    got = make_engine(random_policy, max_rows=5).generate(requests)
    assert [c.tokens for c in got] == [c.tokens for c in want]


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox", "phi"])
def test_other_decoder_only_families(random_policy, family, make_engine):
    sizes = {
        "vocab_size": len(random_policy.tokenizer), "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 64, "max_position_embeddings": 128,
        "pad_token_id": 0, "eos_token_id": 3, "bos_token_id": None,
    }  # fmt: skip
    if family == "gpt2":
        sizes = {"vocab_size": len(random_policy.tokenizer), "n_embd": 32, "n_layer": 2, "n_head": 4,
                 "eos_token_id": 3, "bos_token_id": 3}  # fmt: skip
    if family == "gpt_neox":
        del sizes["num_key_value_heads"]
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes)).eval()
    policy = Policy("other", model, random_policy.tokenizer, stop_ids=frozenset({3}))
    requests = requests_for(policy, TEXTS, per_text=3)
    completions = make_engine(policy, max_rows=5).generate(requests)
    rows = [as_row(policy, r, c) for r, c in zip(requests, completions, strict=True)]
    for completion, own in zip(completions, score(policy, rows, token_budget=300), strict=True):
        torch.testing.assert_close(torch.tensor(completion.logprobs), own, atol=1e-4, rtol=0)


def test_uniforms_are_uniform_and_independent():
    seeds, positions = torch.arange(40_000) // 8, torch.arange(40_000) % 8
    draws = uniforms(seeds, positions)
    assert draws.min() > 0
    assert draws.max() < 1
    histogram = torch.histc(draws.float(), bins=20, min=0, max=1) / 2000
    assert (histogram - 1).abs().max() < 0.12
    pairs = draws.view(-1, 8)
    assert torch.corrcoef(pairs.T).fill_diagonal_(0).abs().max() < 0.06


GAMMA = -7046029254386353131


def test_no_seed_begins_with_the_lowest_id():
    """Seed 0, and those whose sum with a position is 0: the hash alone would leave 0 as it is."""
    positions = torch.arange(50)
    assert uniforms(-GAMMA * positions, positions).min() > 1e-3
    first = uniforms(torch.zeros(50, dtype=torch.long), positions)
    assert first.unique().numel() == 50
    assert 0.3 < first.mean() < 0.7


def test_seed_0_is_mended_without_a_bit_of_another_seed():
    assert uniforms(torch.tensor([1, 2, 12345]), torch.tensor([0, 3, 7])).tolist() == [
        0.3381666012719898,
        0.5956380814000053,
        0.12265221496336504,
    ]


def test_small_seeds_are_uniform_and_neighbours_unrelated():
    draws = uniforms(torch.arange(1001)[:, None], torch.arange(32)[None])
    ordered = draws.flatten().sort().values
    distance = (ordered - torch.linspace(0, 1, len(ordered), dtype=torch.float64)).abs().max()
    assert distance * math.sqrt(len(ordered)) < 1.36  # Kolmogorov-Smirnov at 5 %
    for one, other in ((draws[:-1], draws[1:]), (draws[:, :-1], draws[:, 1:])):
        together = torch.stack([one.flatten(), other.flatten()])
        assert torch.corrcoef(together)[0, 1].abs() * math.sqrt(one.numel()) < 2  # standard errors


def test_samples_follow_their_distribution():
    logits = torch.tensor([0.0, 1.0, 2.0, -30.0]).expand(20_000, 4)
    temperature = torch.full((20_000,), 0.5)
    tokens, logprobs = sample(logits, temperature, None, uniforms(torch.arange(20_000), torch.zeros(20_000).long()))
    want = torch.softmax(logits[0] / 0.5, -1)
    got = torch.bincount(tokens, minlength=4) / 20_000
    assert (got - want).abs().max() < 0.01
    torch.testing.assert_close(logprobs.exp(), want[tokens])


@pytest.mark.parametrize(("top_p", "kept"), [(0.5, {2}), (0.9, {2, 1}), (1.0, {0, 1, 2})])
def test_top_p_keeps_the_smallest_sufficient_set(top_p, kept):
    logits = torch.tensor([[math.log(0.1), math.log(0.3), math.log(0.6)]]).expand(2000, 3)
    uniform = uniforms(torch.arange(2000), torch.zeros(2000).long())
    tokens, logprobs = sample(logits, torch.ones(2000), torch.full((2000,), top_p), uniform)
    assert set(tokens.tolist()) == kept
    # the logprob is that of the uncut distribution
    torch.testing.assert_close(logprobs.exp(), torch.tensor([0.1, 0.3, 0.6])[tokens])


def test_a_top_p_that_float32_rounds_to_zero_keeps_the_likeliest_token(random_policy):
    engine = LocalEngine(random_policy)
    replies = engine.generate(requests_for(random_policy, TEXTS, top_p=1e-300))
    expected = engine.generate(requests_for(random_policy, TEXTS, temperature=0.0))
    assert [reply.tokens for reply in replies] == [reply.tokens for reply in expected]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_a_reply_that_goes_on_after_a_pause_is_the_one_without_it(every_runner, temperature, make_engine):
    engine = make_engine(every_runner)
    requests = requests_for(every_runner, TEXTS, per_text=2, temperature=temperature)
    whole = engine.generate(requests)
    for cut in (1, 7):
        begun = engine.generate([replace(r, sampling=replace(r.sampling, max_new_tokens=cut)) for r in requests])
        rest = engine.generate([
            replace(
                r,
                context=r.context + done.tokens,
                sampling=replace(r.sampling, max_new_tokens=20 - len(done.tokens)),
                num_drawn=len(done.tokens),
            )
            for r, done in zip(requests, begun, strict=True)
        ])  # fmt: skip
        for one, first, second in zip(whole, begun, rest, strict=True):
            ended = first.stop_reason == "eos"
            assert one.tokens == (first.tokens if ended else first.tokens + second.tokens)


def test_a_requests_own_stop_ids_end_it_and_no_other(random_policy, make_engine):
    requests = requests_for(random_policy, TEXTS, per_text=4, max_new_tokens=30)
    plain = make_engine(random_policy).generate(requests)
    common = Counter(token for completion in plain for token in completion.tokens[:-1]).most_common(1)[0][0]
    stopping = [
        replace(request, sampling=replace(request.sampling, stop_ids=(common,))) if index % 2 else request
        for index, request in enumerate(requests)
    ]
    ended = make_engine(random_policy).generate(stopping)
    assert [each.tokens for each in ended[::2]] == [each.tokens for each in plain[::2]]
    assert any(common in completion.tokens[:-1] for completion in plain[1::2])
    for completion, whole in zip(ended[1::2], plain[1::2], strict=True):
        at = whole.tokens.index(common) + 1 if common in whole.tokens else len(whole.tokens)
        assert completion.tokens == whole.tokens[:at]
        assert completion.stop_reason == ("eos" if common in completion.tokens else whole.stop_reason)
