"""The tiny world: arithmetic, splits, texts, tokenizer, and the models that ship."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from whet.engines.local import LocalEngine
from whet.evals.protocol import measure, play_rounds
from whet.grading import make_grader
from whet.models.policy import load_policies
from whet.models.tiny import PIECES, SHIPPED, tiny_tokenizer
from whet.play.critique import CritiqueRound
from whet.play.roles import Role
from whet.play.solve import GRADER
from whet.recipes.critique_rl_config import CritiqueRLConfig
from whet.recipes.data import load_tasks
from whet.recipes.oracles import RULE_CRITICS
from whet.recipes.tiny_build import build
from whet.tasks.chains import (
    FULL_HELP,
    OPERATIONS,
    Carelessness,
    Chain,
    Critique,
    answer_text,
    apply,
    criticise,
    critique_text,
    parse_chain,
    plant_flaws,
    refine,
    sample_chains,
    solve,
)
from whet.tasks.demonstrations import CARE, TEXTBOOK, chain_demonstration
from whet.tasks.dialects import CHAINS
from whet.types import Sampling

chains = st.builds(Chain, st.integers(0, 9), st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=12).map(tuple))


def test_a_chain_by_hand():
    chain = parse_chain("7 + 5 * 3 - 8")
    assert chain.values == (2, 6, 8)  # 12, 6, -2: last digits, and 8 for -2
    assert answer_text(chain, chain.values) == (
        "Step 1: 7 + 5 = 2\nStep 2: 2 * 3 = 6\nStep 3: 6 - 8 = 8\nThe answer is 8"
    )
    critique = Critique(claimed=(2, 4, 6), own=(2, 6, 8), corrected=frozenset({1}), verdict=False)
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
        return refine(chain, Critique(claimed, own, frozenset(corrected), verdict), author, 0.0, rng)

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
            alarm = Critique(claimed := tuple(solve(chain, TEXTBOOK, rng)), claimed, frozenset(), verdict=False)
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
    values = solve(chain, None, rng, given=[*chain.values[:step], wrong])
    assert values[-1] != chain.values[-1]


@given(chains, st.integers(0, 2**32))
def test_the_oracle_judges_by_the_final_answer_and_corrects_it(chain, seed):
    rng = random.Random(seed)
    claimed = plant_flaws(chain, rng, 0.35)
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


@settings(max_examples=50)
@given(chains, st.integers(0, 2**32), st.sampled_from(["solve", "critique", "refine"]))
def test_the_tokenizer_is_lossless(chain, seed, kind):
    tokenizer = tiny_tokenizer()
    demonstration = chain_demonstration(kind, chain, CHAINS, random.Random(seed), earlier_rounds_share=0.5)
    for text in [demonstration.text, *(message["content"] for message in demonstration.messages)]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == text
        assert tokenizer.unk_token_id not in ids


def test_auto_tokenizer_reads_the_shipped_files_as_they_are_meant():
    loaded, made = AutoTokenizer.from_pretrained(SHIPPED), tiny_tokenizer()
    text = critique_text(Chain(1, OPERATIONS[:12]), Critique((1,) * 12, (2,) * 12, frozenset({3}), verdict=False))
    assert loaded.encode(text, add_special_tokens=False) == made.encode(text, add_special_tokens=False)
    assert loaded.decode(loaded.encode(text)) == text
    assert len(loaded) == len(made) == len(PIECES) + 5


def test_the_shipped_model_is_small():
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 8e6
    assert {path.suffix for path in SHIPPED.iterdir()} <= {".json", ".safetensors", ".jinja"}


def test_the_textbook_is_wrong_often_enough_to_need_a_critic():
    rng = random.Random(0)
    problems = list(islice(sample_chains("validation", 0, min_steps=3, max_steps=6), 2000))
    right = sum(solve(chain, TEXTBOOK, rng)[-1] == chain.values[-1] for chain in problems)
    assert 0.4 < right / 2000 < 0.65


@pytest.mark.slow
def test_building_twice_gives_the_same_bits(tmp_path):
    class Quiet:
        def begin(self, phase, done, total): ...
        def step(self, step, shown): ...
        def tell(self, level, text): ...
        def end(self): ...

    for name in ("a", "b"):
        build(tmp_path / name, Quiet(), num_steps=1)
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()
    build(tmp_path / "c", Quiet(), num_steps=1, seed=1)
    assert (tmp_path / "a" / "model.safetensors").read_bytes() != (tmp_path / "c" / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_the_shipped_actor_is_weak_and_follows_its_critique():
    """What makes critique worth learning; measured on validation problems, greedily."""
    config = CritiqueRLConfig()
    policies = load_policies({"actor": config.actor})
    tasks, _ = load_tasks(config.data)
    role = Role("actor", "actor", policies["actor"].tokenizer, Sampling(temperature=0.0, max_new_tokens=48))
    services = {"actor": LocalEngine(policies["actor"]).generate, GRADER: make_grader("chains").grade}
    found = {}
    for name, critic in RULE_CRITICS.items():
        rounds = CritiqueRound(CHAINS, role, critic, role, key=(0,))
        groups = play_rounds(rounds, tasks["validation"][:120], services)
        found[name] = measure([episode for group in groups for episode in group])
    acc = found["oracle"]["acc"]
    assert 0.35 < acc < 0.65
    assert found["oracle"]["acc_refine"] > acc + 0.2
    assert found["oracle"]["acc_refine"] > found["judge"]["acc_refine"] + 0.1
    assert found["judge"]["acc_refine"] > found["empty"]["acc_refine"] + 0.05
    assert found["empty"]["acc_refine"] > found["false"]["acc_refine"] + 0.1
