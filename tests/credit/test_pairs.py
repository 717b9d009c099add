"""Pairers and filters: which of a group are compared, and what is left out."""

import random
from collections import Counter

import pytest

from support.episodes import reply, segment_of
from whet.credit.assignment import best_and_worst, differ, is_mixed, pair_rows
from whet.credit.rewards import groups_of, outcome, overlong, rewarded
from whet.types import Grade


def scored(scores, terms=None, **more):
    episodes = [reply(score, seed=i, tokens=range(5, 8 + i), **more) for i, score in enumerate(scores)]
    return groups_of(rewarded(episodes, "solver", terms or {"outcome": outcome()}), "solver", "task")[0]


def test_a_pair_is_one_of_the_best_and_one_of_the_worst():
    group, rng = scored([0.5, 1.0, 0.0, 1.0, 0.0]), random.Random(0)
    drawn = [best_and_worst(group, rng) for _ in range(400)]
    assert {(best.reward, worst.reward) for best, worst in drawn} == {(1.0, 0.0)}
    which = Counter((best.segment.seed, worst.segment.seed) for best, worst in drawn)
    assert set(which) == {(1, 2), (1, 4), (3, 2), (3, 4)}
    assert all(60 < count < 140 for count in which.values())  # drawn evenly
    assert drawn == [best_and_worst(group, rng) for rng in [random.Random(0)] for _ in range(400)]


@pytest.mark.parametrize(
    ("scores", "margin", "found"),
    [([], 0.0, False), ([1.0], 0.0, False), ([1.0, 1.0], 0.0, False), ([1.0, 0.5], 0.0, True), ([1.0, 0.5], 0.5, True),
     ([1.0, 0.5], 0.6, False), ([None, 1.0], 0.0, False), ([1.4, 1.0], 0.4, True)],
)  # fmt: skip
def test_where_there_is_no_pair(scores, margin, found):
    assert (best_and_worst(scored(scores) if scores else [], random.Random(0), margin=margin) is not None) == found


def test_a_pairs_rows_stand_in_one_bundle_the_preferred_first():
    best, worst = best_and_worst(scored([0.0, 1.0]), random.Random(0))
    first, second = pair_rows(best, worst, "t/7", kind="pair", weight=0.5)
    assert (first.bundle, second.bundle) == ("t/7", "t/7")
    assert (set(first.credit.tolist()), set(second.credit.tolist())) == ({1.0}, {-1.0})
    assert tuple(first.tokens[first.trains]) == best.segment.tokens
    assert tuple(second.tokens[second.trains]) == worst.segment.tokens
    assert {(row.kind, row.weight) for row in (first, second)} == {("pair", 0.5)}


def test_a_group_teaches_where_scores_differ_and_is_mixed_where_rewards_do():
    cut = scored([0.0, 0.0], {"outcome": outcome(), "overlong": overlong(5, 3)})
    assert is_mixed(cut)  # one is longer
    assert not differ([each.segment for each in cut])
    assert differ([each.segment for each in scored([0.0, 1.0])])
    assert not is_mixed(scored([1.0, 1.0]))
    assert not differ([])
    assert not differ([segment_of(), segment_of(grade=Grade(score=1.0))])  # one has no grade
