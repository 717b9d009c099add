"""The records themselves: what a row keeps and refuses, what it costs, and the views that make rows of segments."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
import torch

from support.rows import masked_row, row_of
from whet.types import (
    MAX_REWARD,
    Episode,
    Request,
    Row,
    Sampling,
    Segment,
    Task,
    as_reward,
    as_row,
    in_brief,
    is_whole,
)

ROW = row_of((5, 6, 7), (8, 9), (1.0, -0.5), logprobs=(-0.1, -0.2), extra={"rate": 0.5}, versions=((3, 2),))


def segment_of(context=(5, 6, 7), tokens=(8, 9), **more):
    given = {
        "role": "solver", "policy": "p", "logprobs": (-0.1, -0.2, -0.3)[: len(tokens)],
        "versions": ((3, len(tokens)),), "text": "", "stop_reason": "eos", "temperature": 0.7,
        "seed": 1, "parent": None,
    }  # fmt: skip
    return Segment(**(given | {"added": context, "tokens": tokens} | more))


# --- numbers and texts that anybody gives -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reward"),
    [
        (1, 1.0), (True, 1.0), (np.float32(0.5), 0.5), (np.int64(-3), -3.0), (np.bool_(True), 1.0),
        (np.array(0.25), 0.25), (torch.tensor([2.0]), 2.0), (MAX_REWARD, MAX_REWARD), (-MAX_REWARD, -MAX_REWARD),
        (1.1e9, None), (1e308, None), (-1e308, None), (10**400, None), (float("nan"), None), (float("inf"), None),
        ("1", None), (b"1", None), (None, None), ([], None), (1j, None), (np.array([1.0, 2.0]), None),
        (torch.tensor([1.0, 2.0]), None),
    ],
)  # fmt: skip
def test_what_is_a_reward(value, reward):
    assert as_reward(value) == reward


def test_rewards_of_the_largest_size_overflow_no_sum_and_no_spread():
    rewards = torch.tensor([MAX_REWARD, -MAX_REWARD] * 2048)
    assert rewards.square().sum().isfinite()
    assert rewards.std().isfinite()


def test_half_a_character_is_no_whole_text():
    assert is_whole("a\U0001f600")
    assert not is_whole("a\ud83d")


class Mute:
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("value", "words"),
    [("x" * 99, repr("x" * 60)), (10**5000, "one of type int"), (Mute(), "one of type Mute")],
    ids=["long", "digits", "mute"],
)
def test_anything_has_a_few_words(value, words):
    assert in_brief(value) == words


# --- rows -------------------------------------------------------------------------------------------------------------


def test_a_row_keeps_what_it_is_given_as_arrays_over_its_trained_tokens():
    row = masked_row(
        (5, 6, 7, 8, 9), (False, True, False, False, True), credit=(9, 1, 9, 9, 2), logprobs=(9, -1, 9, 9, -2)
    )
    assert row.tokens.tolist() == [5, 6, 7, 8, 9]
    assert (row.trains.tolist(), row.credit.tolist(), row.logprobs.tolist()) == ([1, 4], [1, 2], [-1, -2])
    assert row.ref_logprobs is None
    assert row.num_trained == 2
    kinds = {name: getattr(row, name).dtype for name in ("tokens", "trains", "credit", "logprobs")}
    assert kinds == {"tokens": np.int32, "trains": np.int32, "credit": np.float32, "logprobs": np.float32}


def test_rows_that_say_the_same_are_equal_whatever_they_were_made_of():
    same = row_of([5, 6, 7], np.array([8, 9]), np.array([1.0, -0.5]), logprobs=[-0.1, -0.2], extra={"rate": 0.5},
                  versions=((3, 2),))  # fmt: skip
    assert same == ROW
    assert copy.deepcopy(ROW) == pickle.loads(pickle.dumps(ROW)) == replace(ROW) == ROW
    assert ROW != "a row"


@pytest.mark.parametrize(
    "changed",
    [
        {"tokens": (5, 6, 7, 8, 8)}, {"tokens": (5, 6, 7, 8, 9, 9)}, {"trains": (2, 4)}, {"credit": (1.0, 0.5)},
        {"logprobs": None}, {"ref_logprobs": (0.0, 0.0)}, {"temperature": 0.5}, {"weight": 0.5}, {"kind": "nll"},
        {"share": 0.5}, {"bundle": "b"}, {"extra": {}}, {"group": "g"}, {"versions": ()}, {"policy": "other"},
    ],
)  # fmt: skip
def test_a_row_that_differs_in_anything_is_another(changed):
    other = replace(ROW, **changed)
    assert other != ROW
    assert ROW != other  # noqa: SIM300, the other way round
    assert other == replace(ROW, **changed)


def test_every_field_is_among_the_differences():
    [marks] = test_a_row_that_differs_in_anything_is_another.pytestmark
    assert {name for changed in marks.args[1] for name in changed} == {each.name for each in fields(Row)}


@pytest.mark.parametrize("name", ["tokens", "trains", "credit", "logprobs"])
def test_a_rows_arrays_cannot_be_written(name):
    with pytest.raises(ValueError, match="read-only"):
        getattr(ROW, name)[0] = 1
    with pytest.raises(FrozenInstanceError):
        ROW.weight = 2.0
    with pytest.raises(TypeError, match="unhashable"):
        hash(ROW)


def test_an_array_that_was_given_stays_its_givers_to_write():
    given = np.array([1.0, -0.5], np.float32)
    row_of((5, 6, 7), (8, 9), given)
    given[0] = 0.0


@pytest.mark.parametrize(
    ("places", "says"),
    [
        ((0, 1), "first token cannot train"),
        ((-1, 1), "have to ascend"),  # else it would mean the last token
        ((2, 1), "have to ascend"),  # credit would go to other tokens
        ((1, 1), "have to ascend"),
        ((1, 3), "within the row's 3 tokens"),
    ],
)
def test_places_that_cannot_train_are_refused(places, says):
    with pytest.raises(ValueError, match=says):
        Row(policy="p", tokens=(5, 6, 7), trains=places, credit=(1.0, 1.0), logprobs=None)


@pytest.mark.parametrize("name", ["credit", "logprobs", "ref_logprobs"])
def test_as_many_numbers_as_trained_tokens(name):
    with pytest.raises(ValueError, match=f"a row with 2 trained tokens has 3 of {name}"):
        replace(ROW, **{name: (1.0, 2.0, 3.0)})


def test_a_row_may_have_nothing_to_train():
    assert row_of((5, 6), ()).num_trained == 0


def test_a_row_is_small():
    """A thousand tokens of which two hundred train: four bytes a token, and 16 for each that trains, where lists of
    Python numbers over all tokens took 8 bytes a pointer and 24 or 32 a number, in four fields."""
    count = 200
    row = row_of(range(5, 805), range(5, 205), np.linspace(-1, 1, count), logprobs=[-1.0] * count,
                 ref_logprobs=[-1.0] * count)  # fmt: skip
    arrays = [row.tokens, row.trains, row.credit, row.logprobs, row.ref_logprobs]
    assert len(row.tokens) == 1000
    assert sum(array.nbytes for array in arrays) == 4 * 1000 + 4 * 4 * 200
    assert sum(array.nbytes for array in arrays) / 1000 < 20


# --- views ------------------------------------------------------------------------------------------------------------


def test_the_plain_view():
    row = as_row(segment_of(), (1.0, -0.5), group="t/0", kind="policy", bundle="b", weight=0.5)
    assert row.tokens.tolist() == [5, 6, 7, 8, 9]
    assert (row.trains.tolist(), row.credit.tolist()) == ([3, 4], [1.0, -0.5])
    assert row.logprobs.tolist() == pytest.approx([-0.1, -0.2])
    assert (row.policy, row.temperature, row.versions) == ("p", 0.7, ((3, 2),))
    assert (row.group, row.kind, row.bundle, row.weight) == ("t/0", "policy", "b", 0.5)
    assert as_row(segment_of(), 0.25).credit.tolist() == [0.25, 0.25]
    assert as_row(segment_of(), 1).credit.tolist() == [1.0, 1.0]
    assert as_row(segment_of(temperature=0.0)).temperature == 1.0  # greedy: what softmax(logits) gives
    with pytest.raises(ValueError, match="2 trained tokens has 1 of credit"):
        as_row(segment_of(), (1.0,))


def test_the_retargeted_view_keeps_the_tokens_and_leaves_the_scores_to_the_trainer():
    segment = segment_of()
    row = as_row(segment, (1.0, -0.5), context=(4, 4))
    assert row.tokens.tolist() == [4, 4, 8, 9]
    assert row.tokens[row.trains].tolist() == list(segment.tokens)
    assert row.logprobs is None
    assert row.credit.tolist() == [1.0, -0.5]


# --- segments and episodes --------------------------------------------------------------------------------------------


def test_a_segments_context_is_its_prefix_and_what_it_adds():
    answer = segment_of(context=(1, 2), tokens=(3, 4))
    refinement = segment_of(context=(5,), tokens=(6,), prefix=answer)
    again = segment_of(context=(7, 8), tokens=(9,), prefix=refinement)
    assert answer.context == (1, 2)
    assert refinement.context == (1, 2, 3, 4, 5)
    assert again.context == (1, 2, 3, 4, 5, 6, 7, 8)
    assert as_row(again).tokens.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_chain_of_many_turns_is_no_deeper_than_one():
    def chain(last=9, first=9):
        found = None
        for turn in range(5000):
            found = segment_of((turn,), (last if turn == 4999 else first if turn == 0 else 9,), prefix=found)
        return found

    one = chain()
    assert one.context == tuple(token for turn in range(5000) for token in (turn, 9))[:-1]
    assert one == chain()
    assert one not in (chain(last=8), chain(first=8), one.prefix, None)
    assert len(repr(one)) == len(repr(one.prefix))


def test_an_episode_is_a_tree():
    roles = [("actor", None), ("critic", 0), ("actor", 1), ("critic", 0), ("actor", 3)]
    episode = Episode(
        task=Task(id="t", prompt=""), segments=tuple(segment_of(role=role, parent=parent) for role, parent in roles)
    )
    assert episode.indices("critic") == [1, 3]
    assert episode.children(0) == [1, 3]
    assert episode.children(0, "actor") == []
    assert episode.children(3, "actor") == [4]


def test_a_request_goes_on_from_something():
    with pytest.raises(ValueError, match="one token at least"):
        Request(context=(), sampling=Sampling(), seed=0)
