"""A seat: what it asks for, what it keeps of an answer, and what it need not keep because it follows another."""

from dataclasses import replace

import pytest
from transformers import AutoTokenizer

from whet.models.shipped import AGENTS
from whet.models.tiny import tiny_tokenizer
from whet.rollout.driver import roll_out
from whet.rollout.roles import PolicyRole, render, written
from whet.tasks.prompts import CHAINS
from whet.types import Completion, Sampling

TOKENIZER = tiny_tokenizer()
ANSWER = "Step 1: 7 + 5 = 2\nThe answer is 2"
ROLE = PolicyRole("solver", "p", TOKENIZER, Sampling(max_new_tokens=20, temperature=0.7))
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
    async def rollout():
        return await ROLE.reply(QUESTION, prefill="Step 1: ", seed=1, parent=0)

    asked = []
    [segment] = roll_out(
        [rollout()], {"p": lambda requests: asked.extend(requests) or [completion(ANSWER.removeprefix("Step 1: "))]}
    )
    assert segment.text == ANSWER
    assert segment.context == asked[0].context == render(TOKENIZER, QUESTION, "Step 1: ")
    assert (segment.parent, segment.temperature, segment.stop_reason) == (0, 0.7, "eos")
    assert segment.prefix is None


def test_what_a_rule_wrote_has_no_tokens():
    segment = written("critic", "Wrong", parent=0, parsed={"verdict": "wrong"})
    assert (segment.policy, segment.context, segment.tokens, segment.versions) == ("rule", (), (), ())
    assert (segment.text, segment.parent, segment.parsed) == ("Wrong", 0, {"verdict": "wrong"})


# --- ids that the tokenizer would not have chosen ---------------------------------------------------------------------


def a_dialogue(written, stop_reason="eos"):
    """A second turn after one whose ids are these; the tokenizer, both, and what the first said."""
    tokenizer = AutoTokenizer.from_pretrained(AGENTS["tiny_agent"])
    role = PolicyRole("agent", "policy", tokenizer, Sampling(max_new_tokens=20))
    asked = [{"role": "user", "content": "Goal: craft zinc lamp."}]
    completion = Completion(tokens=written, logprobs=(0.0,) * len(written), stop_reason=stop_reason, version=0)
    first = role.extended(role.begin(asked, seed=0), completion)
    more = [*asked, {"role": "assistant", "content": first.text}, {"role": "user", "content": "Got 2 zinc ore"}]
    return tokenizer, first, role.begin(more, seed=1, follows=first), render(tokenizer, more)


def spelt(tokenizer, text):
    """A text in its smallest pieces."""
    return tuple(piece for letter in text for piece in tokenizer.encode(letter, add_special_tokens=False))


def test_a_word_that_was_spelt_in_other_pieces_stays_as_it_was_written():
    tokenizer = AutoTokenizer.from_pretrained(AGENTS["tiny_agent"])
    ids = (*spelt(tokenizer, "get 2 zinc ore"), tokenizer.eos_token_id)
    tokenizer, first, second, again = a_dialogue(ids)
    assert first.text == "get 2 zinc ore"
    assert len(ids) > 10
    assert second.prefix is first
    assert second.context[: len(first.context) + len(ids)] == first.context + ids
    assert second.context != again
    assert tokenizer.decode(second.context) == tokenizer.decode(again)


def test_a_reply_that_was_cut_gets_its_end_mark_from_the_template_and_does_not_train_on_it():
    tokenizer = AutoTokenizer.from_pretrained(AGENTS["tiny_agent"])
    ids = spelt(tokenizer, "get 2 zi")
    _, first, second, again = a_dialogue(ids, "length")
    assert second.prefix is first
    assert second.added[0] == tokenizer.eos_token_id
    assert tokenizer.decode(second.context) == tokenizer.decode(again)


def test_control_tokens_that_a_model_wrote_do_not_become_turns():
    tokenizer = AutoTokenizer.from_pretrained(AGENTS["tiny_agent"])
    user = tokenizer.convert_tokens_to_ids("<|user|>")
    _, first, second, again = a_dialogue((*spelt(tokenizer, "get"), user, tokenizer.eos_token_id))
    assert first.text == "get"
    assert second.prefix is None
    assert second.context == again
