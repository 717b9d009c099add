"""`whet new`: what it writes works as it is, is tested by what it writes, and overwrites nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from transformers import AutoTokenizer

from support.commands import ENVIRONMENT, whet
from whet.models.tiny_agent import pieces


def test_it_writes_an_environment_that_passes_its_own_tests(tmp_path):
    folder = tmp_path / "my files"
    said = whet("new", "env", "corridor", "--dir", folder).stdout
    assert f"pytest '{folder / 'test_corridor.py'}'" in said
    assert f"whet tiny agent corridor --plugins '{folder / 'corridor.py'}' --out models/corridor" in said
    assert f"whet env play corridor --plugins '{folder / 'corridor.py'}'" in said
    assert sorted(file.name for file in folder.iterdir()) == ["corridor.py", "test_corridor.py"]

    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_corridor.py"]
    done = subprocess.run(tests, cwd=folder, capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "9 passed" in done.stdout

    episodes = whet("env", "play", "corridor", "--plugins", folder / "corridor.py", "--expert").stdout
    assert "corridor, item 80: reward 1, success" in episodes


def test_its_tests_find_what_is_broken(tmp_path):
    whet("new", "env", "leaky", "--dir", tmp_path)
    file = tmp_path / "leaky.py"
    text = file.read_text()
    broken = text.replace('chance = random.Random(f"{item} {seed}")', "chance = random.Random()")
    assert broken != text
    file.write_text(broken)
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "test_leaky.py"]
    done = subprocess.run(
        tests, cwd=tmp_path, capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "draw whatever is left to chance from item and seed in reset" in done.stdout
    assert "a_fork_goes_its_own_way" in done.stdout


def test_it_overwrites_nothing_and_says_why(tmp_path):
    (tmp_path / "test_mine.py").write_text("kept")
    for name, why in (
        ("mine", "is there already, and nothing was written: choose another name or --dir"),
        ("my-world", "'my-world' can be no module's name"),
        ("class", "'class' can be no module's name"),
        ("../up", "can be no module's name"),
        ("maze", "there is an environment 'maze' already: choose another name"),
    ):
        done = whet("new", "env", name, "--dir", tmp_path, check=False)
        assert done.returncode == 2
        assert why in " ".join(done.stderr.split())
    assert [file.name for file in tmp_path.iterdir()] == ["test_mine.py"]
    assert (tmp_path / "test_mine.py").read_text() == "kept"


PARTS = ("reward", "prompts", "loss", "callback", "method")


def test_it_writes_parts_of_each_kind_that_are_listed(tmp_path):
    for part in PARTS:
        said = whet("new", part, f"my_{part}", "--dir", tmp_path).stdout
        assert f"pytest {tmp_path / f'test_my_{part}.py'}" in said
        text = (tmp_path / f"my_{part}.py").read_text() + (tmp_path / f"test_my_{part}.py").read_text()
        assert "MY_PART" not in text
    listed = " ".join(whet("list", *(f"--plugins={tmp_path / f'my_{part}.py'}" for part in PARTS)).stdout.split())
    for line in (
        "my_reward 1 for a reply of a few tokens, less the longer it is. my_reward.py",
        "my_prompts Short, with a verdict in one word. my_prompts.py",
        "my_loss The surrogate, with a cap on the ratio. my_loss.py",
        "my_callback Writes a line for each better validation. my_callback.py",
        "my_method Imitation of one's own right replies my_method.py",
    ):
        assert line in listed


@pytest.mark.integration
def test_the_parts_pass_their_own_tests(tmp_path):
    """A method trains two steps; a reward, a loss and a callback take part in a run."""
    for part in PARTS:
        whet("new", part, f"my_{part}", "--dir", tmp_path)
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(
        tests, cwd=tmp_path, capture_output=True, text=True, env=ENVIRONMENT, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "18 passed" in done.stdout


@pytest.mark.integration
def test_an_agent_of_its_words_goes_through_the_documented_commands(tmp_path):
    """Made, cloned and trained by RL, in a step or two: every word of its games is one token, every reply is read."""
    whet("new", "env", "hidden", "--dir", tmp_path)
    own, agent = tmp_path / "hidden.py", tmp_path / "agent"
    assert "random weights, saved in" in whet("tiny", "agent", "hidden", "--plugins", own, "--out", agent).stdout
    tokenizer = AutoTokenizer.from_pretrained(agent)
    for text in ("It is higher than", "A number from", "Yes, it is"):
        assert all(len(tokenizer.encode(word, add_special_tokens=False)) == 1 for word in pieces(text))

    small = [f"plugins=[{own}]", "data.env=hidden", "format=plain", "num_threads=1", "sampling.max_new_tokens=8",
             "data.num_test=2", "data.num_validation=2", "evaluation.max_turns=2"]  # fmt: skip
    cloned, trained = tmp_path / "cloned", tmp_path / "trained"
    whet("train", "agent_clone", *small, f"policy.path={agent}", "num_steps=2", "--out", cloned)
    whet("train", "agent_grpo", *small, f"policy.path={cloned / 'best'}", "num_steps=1", "prompts_per_step=2",
         "group_size=2", "max_turns=2", "--out", trained)  # fmt: skip
    assert (trained / "summary.json").exists()


def test_an_agent_of_its_words_overwrites_nothing_and_needs_an_expert(tmp_path):
    whet("new", "env", "hidden", "--dir", tmp_path)
    own, agent = tmp_path / "hidden.py", tmp_path / "agent"
    agent.mkdir()
    (agent / "mine.txt").write_text("kept")
    done = whet("tiny", "agent", "hidden", "--plugins", own, "--out", agent, check=False)
    assert "is not empty; choose another --out" in " ".join(done.stderr.split())
    assert [file.name for file in agent.iterdir()] == ["mine.txt"]

    own.write_text(own.read_text().replace("    expert=expert,\n", ""))
    done = whet("tiny", "agent", "hidden", "--plugins", own, "--out", tmp_path / "other", check=False)
    assert done.returncode != 0
    assert "hidden has no scripted expert" in " ".join(done.stderr.split())
    assert not (tmp_path / "other").exists()
