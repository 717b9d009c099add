"""The passes of several processes: each row once, equally many passes, and as even as rows allow."""

from __future__ import annotations

import pytest

from support.rows import row_of
from whet.models.group import Group
from whet.models.scoring import micro_batches, share_of


class Process(Group):
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def rows_of(lengths, bundles=()):
    bundles = bundles or [""] * len(lengths)
    return [
        row_of((5 + i, 6), [7 + i] * length, 1.0, bundle=bundle)
        for i, (length, bundle) in enumerate(zip(lengths, bundles, strict=True))
    ]


def shares(policy, rows, budget, size):
    return [share_of(policy, rows, budget, Process(rank, size)) for rank in range(size)]


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("budget", [10, 40, 10_000])
@pytest.mark.parametrize("lengths", [[3], [4] * 16, [1, 2, 3, 30, 5, 8, 13, 21, 2]])
def test_each_row_is_in_one_process_and_all_make_equally_many_passes(random_policy, size, budget, lengths):
    rows = rows_of(lengths)
    made = shares(random_policy, rows, budget, size)
    own = [i for share in made for batch in share.batches[: share.num_own] for i in batch.index]
    assert sorted(own) == list(range(len(rows)))
    assert len({len(share.batches) for share in made}) == 1
    for share in made:  # what only keeps a process in step is one row
        assert all(len(batch.index) == 1 for batch in share.batches[share.num_own :])


def test_a_small_minibatch_is_spread_evenly(random_policy):
    rows = rows_of([10] * 16)  # 12 tokens each, of which none are shared
    made = shares(random_policy, rows, 10_000, 4)
    assert [[len(batch.index) for batch in share.batches] for share in made] == [[4]] * 4


def test_several_processes_make_no_more_passes_than_the_budget_asks(random_policy):
    rows = rows_of([10] * 16)
    alone = list(micro_batches(random_policy, rows, 48))
    assert len(alone) == 4
    assert [len(share.batches) for share in shares(random_policy, rows, 48, 2)] == [2, 2]


def test_a_bundle_stays_in_one_pass(random_policy):
    rows = rows_of([3] * 8, [f"pair {i // 2}" for i in range(8)])
    for share in shares(random_policy, rows, 10_000, 3):
        for batch in share.batches[: share.num_own]:
            assert sorted(batch.index) == sorted({2 * (i // 2) + j for i in batch.index for j in (0, 1)})


def test_no_rows_are_no_passes(random_policy):
    assert [share.batches for share in shares(random_policy, [], 100, 2)] == [[], []]
