"""A seat: what it asks for, what it keeps of an answer, and what it need not keep because it follows another."""

from dataclasses import replace

import pytest

from whet.models.tiny import tiny_tokenizer
from whet.play.driver import play
from whet.play.roles import Role, render, written
from whet.tasks.dialects import CHAINS
from whet.types import Completion, Sampling

TOKENIZER = tiny_tokenizer()
ANSWER = "Step 1: 7 + 5 = 2\nThe answer is 2"
ROLE = Role("solver", "p", TOKENIZER, Sampling(max_new_tokens=20, temperature=0.7))
QUESTION = CHAINS.solve_messages("7 + 5")


def completion(text, version=0, stop_reason="eos", count=None):
    tokens = tuple(TOKENIZER.encode(text, add_special_tokens=False))[:count]
    tokens += (TOKENIZER.eos_token_id,) if stop_reason == "eos" else ()
    return Completion(tokens=tokens, logprobs=(-0.5,) * len(tokens), stop_reason=stop_reason, version=version)


def answered():
    return ROLE.extended(ROLE.begin(QUESTION, seed=1), completion(ANSWER))


def test_what_goes_on_from_another_segment_keeps_what_comes_after_it():
    answer = answered()
    messages = CHAINS.refine_messages("7 + 5", answer.text, "Correctness of the final answer: Wrong")
    whole, after = (ROLE.begin(messages, seed=2, follows=follows) for follows in (None, answer))
    assert whole.context == after.context == render(TOKENIZER, messages)
    assert (whole.prefix, after.prefix) == (None, answer)
    assert after.added == whole.added[len(answer.context) + len(answer.tokens) :]
    assert 0 < len(after.added) < len(whole.added)
    assert ROLE.request(after) == replace(ROLE.request(ROLE.begin(messages, seed=2)), follows=1)  # the answer's seed


@pytest.mark.parametrize("which", ["another question", "another answer", "a rule's"])
def test_what_does_not_begin_with_the_other_keeps_all(which):
    """Ids as they were sampled: an answer that the template renders otherwise is no prefix."""
    answer = answered()
    question, text = ("1 + 1" if which == "another question" else "7 + 5"), answer.text
    if which == "another answer":
        text = ANSWER.replace("5 = 2", "5 = 3")
    if which == "a rule's":
        answer = written("actor", ANSWER)
    messages = CHAINS.refine_messages(question, text, "Wrong")
    segment = ROLE.begin(messages, seed=2, follows=answer)
    assert segment.prefix is None
    assert segment.context == segment.added == render(TOKENIZER, messages)


def test_a_reply_in_parts_is_the_reply_with_runs_of_versions():
    empty = ROLE.begin(QUESTION, seed=1, group={"task": "t"})
    asked = ROLE.request(empty, budget=2)
    assert (asked.sampling.max_new_tokens, asked.num_drawn, asked.seed) == (2, 0, 1)
    first = ROLE.extended(empty, completion(ANSWER, version=3, stop_reason="length", count=2))
    assert not ROLE.has_ended(first)
    again = ROLE.request(first, budget=100)
    assert (again.sampling.max_new_tokens, again.num_drawn) == (18, 2)
    assert again.context == empty.context + first.tokens
    same = ROLE.extended(first, completion(" + 5", version=3, stop_reason="length"))
    last = ROLE.extended(same, completion(" = 2", version=5))
    assert ROLE.has_ended(last)
    assert last.versions == ((3, len(same.tokens)), (5, len(last.tokens) - len(same.tokens)))
    assert sum(count for _, count in last.versions) == len(last.tokens) == len(last.logprobs)
    assert last.group == {"task": "t"}
    assert (first.text, last.text) == ("Step 1: 7", "Step 1: 7 + 5 = 2")


def test_a_reply_ends_at_the_limit_too():
    segment = ROLE.extended(ROLE.begin(QUESTION, seed=1), completion(ANSWER * 3, stop_reason="length", count=20))
    assert ROLE.has_ended(segment)


def test_a_prefill_is_of_the_context_and_of_the_text():
    async def flow():
        return await ROLE.reply(QUESTION, prefill="Step 1: ", seed=1, parent=0)

    asked = []
    [segment] = play(
        [flow()], {"p": lambda requests: asked.extend(requests) or [completion(ANSWER.removeprefix("Step 1: "))]}
    )
    assert segment.text == ANSWER
    assert segment.context == asked[0].context == render(TOKENIZER, QUESTION, "Step 1: ")
    assert (segment.parent, segment.temperature, segment.stop_reason) == (0, 0.7, "eos")
    assert segment.prefix is None


def test_what_a_rule_wrote_has_no_tokens():
    segment = written("critic", "Wrong", parent=0, parsed={"verdict": "wrong"})
    assert (segment.policy, segment.context, segment.tokens, segment.versions) == ("rule", (), (), ())
    assert (segment.text, segment.parent, segment.parsed) == ("Wrong", 0, {"verdict": "wrong"})
