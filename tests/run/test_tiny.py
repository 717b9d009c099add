"""The tiny world's tokenizer, and the models that ship."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from support.rounds import play_rounds
from whet.config.parts import ModelConfig
from whet.engines.local import LocalEngine
from whet.errors import RunError
from whet.evaluation.protocol import measure
from whet.grading import make_grader
from whet.methods.critic.critique_rl_config import CritiqueRLConfig
from whet.models.loading import load_model, load_tokenizer
from whet.models.policy import load_policies
from whet.models.shipped import TINY
from whet.models.tiny import PIECES, tiny_tokenizer
from whet.rollout.critique import CritiqueRound
from whet.rollout.driver import GRADER
from whet.rollout.roles import PolicyRole
from whet.run.data import load_tasks
from whet.run.tiny_build import build, build_stand_in
from whet.tasks.chains import OPERATIONS, Chain, ChainCritique, critique_text
from whet.tasks.demonstrations import chain_demonstration
from whet.tasks.files import DataError
from whet.tasks.oracles import RULE_CRITICS
from whet.tasks.prompts import CHAINS
from whet.types import Sampling

chains = st.builds(Chain, st.integers(0, 9), st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=12).map(tuple))


@settings(max_examples=100)
@given(chains, st.integers(0, 2**32), st.sampled_from(["solve", "critique", "refine"]))
def test_the_tokenizer_is_lossless(chain, seed, kind):
    tokenizer = tiny_tokenizer()
    demonstration = chain_demonstration(kind, chain, CHAINS, random.Random(seed))
    for text in [demonstration.text, *(message["content"] for message in demonstration.messages)]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == text
        assert tokenizer.unk_token_id not in ids


def test_auto_tokenizer_reads_the_shipped_files_as_they_are_meant():
    loaded, made = AutoTokenizer.from_pretrained(TINY), tiny_tokenizer()
    text = critique_text(Chain(1, OPERATIONS[:12]), ChainCritique((1,) * 12, (2,) * 12, frozenset({3}), verdict=False))
    assert loaded.encode(text, add_special_tokens=False) == made.encode(text, add_special_tokens=False)
    assert loaded.decode(loaded.encode(text)) == text
    assert len(loaded) == len(made) == len(PIECES) + 5


def test_the_shipped_model_is_small():
    assert sum(path.stat().st_size for path in TINY.iterdir()) < 8e6
    assert {path.suffix for path in TINY.iterdir()} <= {".json", ".safetensors", ".jinja"}


@pytest.mark.integration
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


def test_the_shipped_actor_is_weak_and_follows_its_critique():
    """What makes critique worth learning; measured on validation problems, greedily."""
    config = CritiqueRLConfig()
    policies = load_policies({"actor": config.actor})
    tasks = load_tasks(config.data).tasks
    role = PolicyRole("actor", "actor", policies["actor"].tokenizer, Sampling(temperature=0.0, max_new_tokens=48))
    services = {"actor": LocalEngine(policies["actor"]).generate, GRADER: make_grader("chains").grade}
    found = {}
    for name, critic in RULE_CRITICS.items():
        rounds = CritiqueRound(CHAINS, role, critic, role, key=(0,))
        groups = play_rounds(rounds, tasks["validation"][:80], services)
        found[name] = measure([episode for group in groups for episode in group])
    acc = found["oracle"]["acc"]
    assert 0.35 < acc < 0.65
    assert found["oracle"]["acc_refine"] > acc + 0.2
    assert found["oracle"]["acc_refine"] > found["judge"]["acc_refine"] + 0.1
    assert found["judge"]["acc_refine"] > found["empty"]["acc_refine"] + 0.05
    assert found["empty"]["acc_refine"] > found["false"]["acc_refine"] + 0.1


def test_a_stand_in_is_trained_on_the_text_and_spells_everything_else(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("Natalia sold clips to her friends in April.\n" * 50)
    count = build_stand_in(text, tmp_path / "model", seed=3)
    tokenizer = load_tokenizer(str(tmp_path / "model"))
    model = load_model(ModelConfig(path=str(tmp_path / "model")))
    assert sum(p.numel() for p in model.parameters()) == count
    assert len(tokenizer.encode(" friends")) == 1
    assert tokenizer.decode(tokenizer.encode("½ 한국어 {x}")) == "½ 한국어 {x}"
    build_stand_in(text, tmp_path / "again", seed=3)
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        tmp_path / "model" / "model.safetensors"
    ).read_bytes()
    with pytest.raises(RunError, match="is not empty"):
        build_stand_in(text, tmp_path / "model")
    with pytest.raises(DataError, match="no such file"):
        build_stand_in(tmp_path / "nowhere", tmp_path / "new")
