"""The joined view: a chain of turns is one row, in which nothing trains that the policy did not write."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from support.commands import config_of  # noqa: F401 - registers the methods
from whet.credit.views import _say_broken, joined
from whet.models.tiny import tiny_tokenizer
from whet.objectives import aggregation_weights
from whet.rollout.roles import PolicyRole, render
from whet.types import Completion, Sampling

TOKENIZER = tiny_tokenizer()
ROLE = PolicyRole("agent", "policy", TOKENIZER, Sampling(max_new_tokens=40))
QUESTIONS = ("7 + 5", "1 + 2 * 3", "9 - 4")
ANSWERS = ("Step 1: 7 + 5 = 2", "Step 1: 7 + 5 = 2\nThe answer is 2", "Step 1: 9 * 9 = 1\nStep 2: 1 + 1 = 2")


def said(rng, turn):
    text = rng.choice(ANSWERS)
    ids = (*TOKENIZER.encode(text, add_special_tokens=False), TOKENIZER.eos_token_id)
    return Completion(tokens=ids, logprobs=tuple(-rng.random() for _ in ids), stop_reason="eos", version=turn)


def conversation(turns, seed=0):
    """Turns of an agent and its environment, as a flow plays them: the whole conversation is rendered every time."""
    rng, messages, segments = random.Random(seed), [], []
    for turn in range(turns):
        messages.append({"role": "user", "content": rng.choice(QUESTIONS)})
        before = segments[-1] if segments else None
        begun = ROLE.begin(messages, seed=turn, parent=turn - 1 if turn else None, follows=before)
        segments.append(ROLE.extended(begun, said(rng, turn)))
        messages.append({"role": "assistant", "content": segments[-1].text})
    return messages, segments


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_is_the_conversation_as_it_is_rendered_and_only_replies_train(seed):
    """A law, on random conversations: the row's ids are those of the template, and the others never train."""
    turns = random.Random(seed).randrange(1, 12)
    messages, segments = conversation(turns, seed)
    found = joined(segments, lambda segment: float(segment.seed + 1))
    [row] = found.rows
    assert found.num_broken == 0
    # The template ends a conversation as it goes on from it: with the last reply's own end token.
    assert tuple(row.tokens) == (*render(TOKENIZER, messages[:-1]), *segments[-1].tokens)
    written = [token for segment in segments for token in segment.tokens]
    assert row.tokens[row.trains].tolist() == written
    assert row.num_trained == len(written) < len(row.tokens)
    assert row.logprobs.tolist() == pytest.approx([value for segment in segments for value in segment.logprobs])
    assert row.credit.tolist() == [float(s.seed + 1) for s in segments for _ in s.tokens]
    assert row.versions == tuple(run for segment in segments for run in segment.versions)
    assert row.weight == 1.0


def test_a_history_that_is_written_anew_falls_back_to_a_row_a_turn_of_the_same_weight():
    """As templates do that drop what was thought in earlier turns."""
    _, segments = conversation(4)
    broken = [replace(segment, prefix=None, added=segment.context) for segment in segments]
    found = joined(broken, lambda segment: 1.0)
    assert len(found.rows) == 4
    assert found.num_broken == 3
    total = sum(row.num_trained for row in found.rows)
    assert [row.share for row in found.rows] == pytest.approx([row.num_trained / total for row in found.rows])
    assert {row.weight for row in found.rows} == {1.0}
    [whole] = joined(segments, lambda segment: 1.0).rows
    assert total == whole.num_trained
    half = joined(broken, lambda segment: 1.0, weight=0.5)
    assert {row.weight for row in half.rows} == {0.5}


@pytest.mark.parametrize("mode", ["token_mean", "sequence_mean", "constant"])
def test_an_episode_in_pieces_weighs_every_token_as_it_would_in_one_row(mode):
    """Of three episodes one is broken; each of its tokens has the weight that it has where none is."""
    episodes = [conversation(turns, seed=turns)[1] for turns in (2, 4, 3)]
    broken = [replace(segment, prefix=None, added=segment.context) for segment in episodes[1]]
    whole = [joined(each, lambda segment: 1.0).rows for each in episodes]
    parts = [whole[0], joined(broken, lambda segment: 1.0).rows, whole[2]]

    def weights(rows_of_each):
        rows = [row for rows in rows_of_each for row in rows]
        counts = torch.tensor([row.num_trained for row in rows])
        ones = torch.ones(len(rows), dtype=torch.float64)
        share = torch.tensor([row.share for row in rows], dtype=torch.float64)
        found = aggregation_weights(counts, ones, mode, constant_length=100, share_B=share)
        return [weight for weight, row in zip(found.tolist(), rows, strict=True) for _ in range(row.num_trained)]

    assert weights(parts) == pytest.approx(weights(whole))


def test_what_is_paid_for_a_turn_leaves_it_the_same_turn():
    _, segments = conversation(3)
    scored = [replace(segment, rewards={"total": float(i)}) for i, segment in enumerate(segments)]
    [row] = joined(scored, lambda segment: segment.rewards["total"]).rows
    [plain] = joined(segments, lambda segment: 0.0).rows
    assert np.array_equal(row.tokens, plain.tokens)
    assert row.credit.tolist() == [float(i) for i, segment in enumerate(segments) for _ in segment.tokens]


def test_a_broken_chain_is_said_once_a_policy(caplog):
    _say_broken.cache_clear()
    _, segments = conversation(3)
    broken = [replace(segment, prefix=None, added=segment.context) for segment in segments]
    for _ in range(3):
        joined(broken, lambda segment: 1.0)
    assert len([r for r in caplog.records if "which weigh as much as one" in r.getMessage()]) == 1


def test_a_turn_that_several_go_on_from_trains_once():
    _, segments = conversation(2)
    other = ROLE.extended(
        ROLE.begin([*conversation(1)[0], {"role": "user", "content": "9 - 4"}], seed=7, parent=0, follows=segments[0]),
        said(random.Random(5), 1),
    )
    assert other.prefix is segments[0]
    found = joined([*segments, other], lambda segment: 1.0)
    assert [row.num_trained for row in found.rows] == [
        len(segments[0].tokens) + len(segments[1].tokens),
        len(other.tokens),
    ]
    assert np.array_equal(found.rows[1].tokens[: len(segments[0].context)], segments[0].context)


def test_turns_of_two_policies_are_no_row():
    _, segments = conversation(2)
    with pytest.raises(ValueError, match="of one policy and one temperature"):
        joined([segments[0], replace(segments[1], policy="other")], lambda segment: 1.0)
    assert joined([], lambda segment: 1.0).rows == []
