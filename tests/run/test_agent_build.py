"""The tiny agents: their tokenizer, that a build is repeated to the bit, and what the shipped ones can do."""

from __future__ import annotations

import random
from pathlib import Path
from unicodedata import normalize

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoTokenizer

import whet
import whet.models
from support.commands import Quiet
from whet.config.parts import ModelConfig
from whet.envs import ENVIRONMENTS
from whet.errors import RunError
from whet.models.places import resolve
from whet.models.policy import load_policies
from whet.models.shipped import AGENTS
from whet.models.tiny_agent import READS_RULES, pieces
from whet.run import agent_build
from whet.trajectories.experts import expert_trajectories

MOST = 15.5e6
"""Bytes of all shipped models together."""


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(AGENTS["tiny_agent"])


@settings(max_examples=100)
@given(st.text())
def test_any_text_comes_back_to_the_letter(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == normalize("NFC", text)


@pytest.mark.parametrize("name", ["textcraft", "babyai", "maze"])
def test_each_word_of_a_world_is_one_token(tokenizer, name):
    info = ENVIRONMENTS.get(name)
    items = random.Random(0).sample(list(info.splits()["test"]), 5)
    words = {word for each in expert_trajectories(info, items, rules="", seed=3) for message in each.messages[2:]
             for word in pieces(message.text)}  # fmt: skip
    spelt = {word for word in words if len(tokenizer.encode(word, add_special_tokens=False)) > 1}
    assert len(words) > 40
    assert not {word for word in spelt if any(letter.isalpha() for letter in word)}


@pytest.mark.parametrize("name", ["textcraft", "maze", "academia"])
def test_each_word_of_four_environments_is_one_token(name):
    """Cookingworld's too; it needs Java. A few words of TextCraft's test items are in none of its training items."""
    tokenizer = AutoTokenizer.from_pretrained(AGENTS["tiny_agent_worlds"])
    info = ENVIRONMENTS.get(name)
    items = random.Random(0).sample(list(info.splits()["train"]), 5)
    words = {word for each in expert_trajectories(info, items, rules="", seed=3, format="plain")
             for message in each.messages[2:] for word in pieces(message.text)}  # fmt: skip
    assert len(words) > 30
    assert not {word for word in words if len(tokenizer.encode(word, add_special_tokens=False)) > 1}


def test_the_agents_and_the_tiny_model_fit_into_the_wheel():
    folder = Path(whet.models.__file__).parent
    shipped = [path for part in ("tiny_model", "tiny_agents") for path in (folder / part).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in shipped) <= MOST
    assert {path.suffix for path in shipped} <= {".json", ".safetensors", ".jinja"}


def test_settings_know_them_by_name_and_they_say_that_they_read_no_rules():
    for name, folder in AGENTS.items():
        assert resolve(name) == str(folder)
        assert getattr(AutoConfig.from_pretrained(folder), READS_RULES) is False


@pytest.mark.integration
def test_a_build_is_repeated_to_the_bit(tmp_path, monkeypatch):
    """With few episodes and three steps; the whole recipe takes half an hour."""
    monkeypatch.setattr(agent_build, "EPISODES_PER_ITEM", {"textcraft": 1, "maze": 1, "wordle": 1})
    monkeypatch.setattr(agent_build, "BABYAI_SEEDS", range(1000, 1002))
    monkeypatch.setattr(agent_build, "EARLY", 2)
    monkeypatch.setattr(agent_build, "NUM_THREADS", torch.get_num_threads())  # it is the process's
    monkeypatch.setattr(agent_build, "ROWS", {"textcraft": 2, "babyai": 1, "maze": 1, "wordle": 1})
    monkeypatch.setattr(agent_build, "training_items", lambda name, seed: TRAINING_ITEMS(name, seed)[:6])
    for folder in ("a", "b"):
        agent_build.build_agents(tmp_path / folder, Quiet(), num_steps=3)
    for kind in ("early", "cloned"):
        one, other = (
            {path.name: path.read_bytes() for path in (tmp_path / folder / kind).iterdir()} for folder in ("a", "b")
        )
        assert one == other
    weights = [(tmp_path / "a" / kind / "model.safetensors").read_bytes() for kind in ("early", "cloned")]
    assert weights[0] != weights[1]


TRAINING_ITEMS = agent_build.training_items


@pytest.mark.integration
def test_more_cloning_is_a_better_agent():
    """Test items of TextCraft's two easier depths: the early agent succeeds in some, the cloned one in most
    (docs/agents.md has the figures of all items)."""
    shares = {}
    for name in ("tiny_agent", "tiny_agent_early"):
        data = {"env": "textcraft", "num_test": 20}
        short = {"max_turns": 8}  # those that succeed at all do it in fewer
        found = whet.evaluate("agent", names="policy", policy={"path": name}, data=data, evaluation=short)
        shares[name] = [found["policy"][f"success[textcraft, depth {depth}]"] for depth in (1, 2)]
    assert sum(shares["tiny_agent"]) > sum(shares["tiny_agent_early"]) + 0.4
    assert 0.2 < sum(shares["tiny_agent_early"]) / 2 < 0.7


def test_an_agent_with_other_tokens_takes_over_weights(tmp_path):
    """A token that the old agent has keeps its embedding; a new one has the mean of those that spelt it."""
    agent_build.build_agent(["maze", "academia"], tmp_path / "new", vocabulary=1800, start="tiny_agent")
    loaded = load_policies({"old": ModelConfig(path="tiny_agent"), "new": ModelConfig(path=str(tmp_path / "new"))})
    old, new = loaded["old"], loaded["new"]
    before, after = (policy.causal_lm.state_dict() for policy in (old, new))
    body = [key for key in before if "embed_tokens" not in key and "lm_head" not in key]
    assert len(body) > 50
    assert all(torch.equal(before[key], after[key]) for key in body)
    rows, new_rows = (state["model.embed_tokens.weight"] for state in (before, after))
    assert torch.equal(new_rows, after["lm_head.weight"])

    def token(policy, text):
        [number] = policy.tokenizer.encode(text, add_special_tokens=False)
        return number

    assert torch.equal(rows[token(old, "move")], new_rows[token(new, "move")])
    spelt = old.tokenizer.encode(" Clustering", add_special_tokens=False)
    assert len(spelt) > 1
    assert torch.equal(rows[spelt].mean(0), new_rows[token(new, " Clustering")])


def test_weights_of_another_shape_are_refused(tmp_path):
    with pytest.raises(RunError, match="tiny has not the shape of a tiny agent"):
        agent_build.build_agent(["maze"], tmp_path / "new", start="tiny")


def test_words_come_from_items_of_all_parts_of_a_long_list():
    """Cookingworld's level is the item's remainder by four, so that every fourth item is of one level."""
    some = agent_build._some(range(4000))
    assert len(set(some)) == agent_build.WORDS_FROM
    assert {item % 4 for item in some} == {0, 1, 2, 3}
    assert max(some) > 3900
    assert agent_build._some(range(5)) == range(5)
