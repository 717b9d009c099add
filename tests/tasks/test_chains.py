"""The tiny world: arithmetic, splits, careless authors, critiques and what is made of them."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.tasks.chains import (
    FULL_HELP,
    OPERATIONS,
    Carelessness,
    Chain,
    ChainCritique,
    answer_text,
    apply,
    corrupt_chain,
    criticise,
    critique_text,
    parse_chain,
    refine,
    sample_chains,
    work_out,
)
from whet.tasks.demonstrations import CARE, TEXTBOOK

chains = st.builds(Chain, st.integers(0, 9), st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=12).map(tuple))


def test_a_chain_by_hand():
    chain = parse_chain("7 + 5 * 3 - 8")
    assert chain.values == (2, 6, 8)  # 12, 6, -2: last digits, and 8 for -2
    assert answer_text(chain, chain.values) == (
        "Step 1: 7 + 5 = 2\nStep 2: 2 * 3 = 6\nStep 3: 6 - 8 = 8\nThe answer is 8"
    )
    assert answer_text(chain, (2, 4, 6), ramble=2) == (  # only what is wrong by itself is repeated: 4 - 8 is 6
        "Step 1: 7 + 5 = 2\nStep 2: 2 * 3 = 4\nStep 2: 2 * 3 = 4\nStep 2: 2 * 3 = 4\nStep 3: 4 - 8 = 6\nThe answer is 6"
    )
    assert answer_text(chain, chain.values, ramble=2) == answer_text(chain, chain.values)
    critique = ChainCritique(claimed=(2, 4, 6), own=(2, 6, 8), corrected=frozenset({1}), verdict=False)
    assert critique_text(chain, critique) == (
        "Step 1: 7 + 5 = 2, claimed 2: Correct\n"
        "Step 2: 2 * 3 = 6, claimed 4: Wrong, so write 6\n"
        "Step 3: 6 - 8 = 8, claimed 6: Wrong\n"
        "Correctness of the final answer: Wrong"
    )


def test_what_an_author_makes_of_a_critique_by_hand():
    """An author who is right at every step but the first, and never careful, so that each rule shows."""
    chain = parse_chain("7 + 5 * 3 - 8")
    author = Carelessness(share=0.0, low=0.0, high=0.0, slip=0.0)
    rng = random.Random(0)

    def revise(claimed, own, corrected=(), verdict=False):
        return refine(chain, ChainCritique(claimed, own, frozenset(corrected), verdict), author, 0.0, rng)

    assert revise((3, 9, 1), (3, 9, 1), verdict=True) == [3, 9, 1]  # all right: kept, wrong as it is
    assert revise((3, 9, 1), (3, 9, 1)) == [2, 6, 8]  # wrong, no step named: looked at again
    assert revise((2, 4, 6), (2, 6), {1}) == [2, 6, 8]  # the correction is adopted, the rest worked out from it
    assert revise((2, 4, 6), (2, 9), {1}) == [2, 9, 1]  # a false one too
    assert revise((2, 4, 6), (2, 9)) == [2, 6, 8]  # named without a correction: a second look
    assert revise((2, 6, 5), (2, 6, 5), verdict=True) == [2, 6, 5]
    assert revise((2, 6, 8), (2, 6, 1), {2}) == [2, 6, 1]


def test_an_author_who_looks_again_with_care_is_right_more_often():
    rng = random.Random(0)
    problems = list(islice(sample_chains("validation", 0, min_steps=3, max_steps=6), 2000))
    found = []
    for care in (0.0, CARE, 1.0):
        right = 0
        for chain in problems:
            alarm = ChainCritique(claimed := tuple(work_out(chain, TEXTBOOK, rng)), claimed, frozenset(), verdict=False)
            right += tuple(refine(chain, alarm, TEXTBOOK, care, rng)) == chain.values
        found.append(right / len(problems))
    assert found[0] + 0.05 < found[1] < found[2] - 0.1


@pytest.mark.parametrize("text", ["", "7 +", "7 + 5 * 2", "7 / 5", "seven + 5", "7 + 0"])
def test_what_is_no_chain_is_refused(text):
    with pytest.raises(ValueError, match="is not a chain"):
        parse_chain(text)


def test_every_operation_is_a_bijection_so_one_wrong_step_is_never_forgiven():
    for operation in OPERATIONS:
        assert sorted(apply(a, operation) for a in range(10)) == list(range(10))


@given(chains, st.integers(0, 2**32))
def test_one_wrong_step_makes_the_answer_wrong(chain, seed):
    rng = random.Random(seed)
    step = rng.randrange(len(chain.operations))
    wrong = (chain.values[step] + rng.randrange(1, 10)) % 10
    values = work_out(chain, None, rng, given=[*chain.values[:step], wrong])
    assert values[-1] != chain.values[-1]


@given(chains, st.integers(0, 2**32))
def test_the_oracle_judges_by_the_final_answer_and_corrects_it(chain, seed):
    rng = random.Random(seed)
    claimed = corrupt_chain(chain, rng, 0.35)
    critique = criticise(chain, claimed, None, FULL_HELP, rng)
    assert critique.own == chain.values
    assert critique.verdict == (claimed[-1] == chain.values[-1])
    first = min(critique.wrong, default=len(claimed))
    # Where two errors cancel on the way, a step is right from a wrong value, and no correction says so.
    if not critique.verdict and critique.wrong == list(range(first, len(claimed))):
        assert refine(chain, critique, TEXTBOOK, 0.0, rng) == list(chain.values)


def test_splits_are_disjoint_by_construction():
    found = {split: set(islice(sample_chains(split, 7, min_steps=1, max_steps=4), 300)) for split in SPLITS}
    assert all(chain.split == split for split, members in found.items() for chain in members)
    assert len(set.union(*found.values())) == 900  # also: no problem twice within a split
    # and for all short problems at once: each is in the one split that its text says
    every = [Chain(a, (first, second)) for a in range(10) for first in OPERATIONS for second in OPERATIONS]
    counts = {split: sum(chain.split == split for chain in every) for split in SPLITS}
    assert sum(counts.values()) == len(every) == 4410
    assert 0.75 < counts["train"] / len(every) < 0.85


SPLITS = ("train", "validation", "test")


def test_seeded_streams_repeat_and_neighbouring_seeds_do_not_overlap():
    def draw(seed: int) -> list[Chain]:
        return list(islice(sample_chains("train", seed, min_steps=5, max_steps=8), 500))

    assert draw(0) == draw(0)
    assert len(set(draw(0)) & set(draw(1))) == 0


def test_a_careless_author_errs_where_and_as_often_as_it_should():
    author = Carelessness(share=0.5, low=0.6, high=0.6, slip=0.0)
    rng = random.Random(0)
    wrongs = {}
    for a in range(10):
        for operation in OPERATIONS:
            written = [author.write(a, operation, rng) for _ in range(200)]
            wrong = [value for value in written if value != apply(a, operation)]
            wrongs[a, operation] = len(wrong) / 200
            assert len(set(wrong)) <= 1  # a misconception is one wrong value
    misconceived = [rate for rate in wrongs.values() if rate]
    assert 0.4 < len(misconceived) / len(wrongs) < 0.6
    assert 0.57 < sum(misconceived) / len(misconceived) < 0.63


def test_the_textbook_is_wrong_often_enough_to_need_a_critic():
    rng = random.Random(0)
    problems = list(islice(sample_chains("validation", 0, min_steps=3, max_steps=6), 2000))
    right = sum(work_out(chain, TEXTBOOK, rng)[-1] == chain.values[-1] for chain in problems)
    assert 0.4 < right / 2000 < 0.65
