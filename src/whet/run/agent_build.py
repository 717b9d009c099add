"""`whet tiny build agents`: clone the scripted experts of four worlds into a tiny agent. Same seed, same bits.

The agent reads no rules: it has learnt the worlds from play. It is saved twice, fully cloned and stopped early, so that
what reinforcement learning adds can be told from what more cloning would.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

from whet.config.parts import LearningConfig
from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.babyai.levels import LEVELS, PUBLISHED
from whet.errors import RunError
from whet.methods.agent.cloning import clone_row
from whet.models.policy import Policy
from whet.models.tiny_agent import SPECIAL, agent_config, pieces, word_tokenizer
from whet.seeds import seed_of
from whet.trainer.local import trainer_of
from whet.trainer.loop import Progress
from whet.trainer.losses import imitation
from whet.trainer.process import set_determinism
from whet.trajectories.experts import expert_trajectories
from whet.trajectories.records import FIRST_OBSERVATION, Trajectory
from whet.types import Row

NUM_STEPS = 1500
EARLY = 500
"""The step after which the early agent is saved."""
ROWS = {"textcraft": 12, "babyai": 8, "maze": 2, "wordle": 4}
"""Of each batch."""
WEIGHTS = {"babyai": 4.0}
"""Of a token, where it is not 1: BabyAI's expert says little between long observations."""
PLAYS = {"textcraft": 8, "maze": 12, "wordle": 1}
"""Episodes of each training item, with other wording, and where the seed has a say in it another opening."""
BABYAI_SEEDS = range(1000, 1080)
"""Of each level: published items have seeds up to 49."""
MAX_TOKENS = 1024
"""Longer episodes are left out."""
NUM_THREADS = 2
"""Sums depend on it, so it is part of the recipe."""
LEARNING = LearningConfig(
    learning_rate=2e-3, final_share=0.05, warmup_steps=100, weight_decay=0.01, minibatch_rows=sum(ROWS.values())
)


def build_agents(out: Path, progress: Progress, *, num_steps: int = NUM_STEPS, seed: int = 0) -> None:
    """Clone, and save as `from_pretrained` loads it, in `out/cloned` and `out/early`.

    Args:
        num_steps: fewer give a weaker agent, and no early one where they are fewer than `EARLY`.
    Raises: EnvError where minigrid is missing.
    """
    out.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    set_determinism(NUM_THREADS)
    shown = {name: list(_episodes(name, seed, progress)) for name in ROWS}
    tokenizer = word_tokenizer(_words(shown))
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(agent_config(len(tokenizer))).eval()
    policy = Policy("tiny_agent", model, tokenizer, stop_ids=frozenset({SPECIAL.index("<|end|>")}))
    trainer = trainer_of(policy)
    trainer.begin(imitation(LEARNING, num_steps))
    rows = {name: _rows(each, tokenizer, WEIGHTS.get(name, 1.0)) for name, each in shown.items()}
    progress.begin("cloning", 0, num_steps)
    for step in range(1, num_steps + 1):
        rng = random.Random(seed_of(seed, "agent build", step))
        batch = [row for name, count in ROWS.items() for row in rng.choices(rows[name], k=count)]
        metrics = trainer.update(batch, seed=seed_of(seed, step))
        progress.step(step, {"loss/nll": metrics["loss/nll"]})
        if step == EARLY:
            policy.save(out / "early")
    trainer.finish()
    progress.end()
    policy.save(out / "cloned")


def build_random_agent(names: Sequence[str], out: Path, *, seed: int = 0) -> int:
    """A tiny agent of random weights whose tokens are the words of these environments.

    The words are those of the experts' episodes on training items; anything else is spelt in pieces. The agent reads
    no rules, as the shipped ones.

    Args:
        seed: of the weights.
    Returns: how many weights it has.
    Raises: UnknownName; EnvError where an environment has no expert, or its expert never succeeds; RunError where `out`
        holds something.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} is not empty; choose another --out")
    shown = {}
    for name in names:
        info = ENVIRONMENTS.get(name)
        shown[name] = list(expert_trajectories(info, info.splits()["train"], rules="", seed=0))
        if not shown[name]:
            raise EnvError(f"{name}'s expert succeeds on no training item, so there are no words to learn: mend it")
    tokenizer = word_tokenizer(_words(shown))
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(agent_config(len(tokenizer))).eval()
    Policy("tiny_agent", model, tokenizer, stop_ids=frozenset({SPECIAL.index("<|end|>")})).save(out)
    return sum(weights.numel() for weights in model.parameters())


def plays_of(name: str, seed: int) -> list[tuple[int, int]]:
    """Items of an environment, each with the seed of what the expert says; none of its test."""
    if name == "babyai":
        return [(level - 1 + len(LEVELS) * number, seed) for number in BABYAI_SEEDS for level in PUBLISHED]
    train = ENVIRONMENTS.get(name).splits()["train"]
    return [(item, seed_of(seed, time) % 2**31) for time in range(PLAYS[name]) for item in train]


def _episodes(name: str, seed: int, progress: Progress) -> Iterator[Trajectory]:
    info, plays = ENVIRONMENTS.get(name), plays_of(name, seed)
    progress.begin(f"episodes of {name}", 0, len(plays))
    for count, (item, wording) in enumerate(plays, 1):
        yield from expert_trajectories(info, [item], rules="", seed=wording)
        progress.step(count, {})
    progress.end()


def _words(shown: dict[str, list[Trajectory]]) -> Iterator[str]:
    """Every word of a world once, and where it is not of Wordle's long list, ten times: those come first."""
    for name, trajectories in shown.items():
        texts = dict.fromkeys(message.text for each in trajectories for message in each.messages[FIRST_OBSERVATION:])
        for word in dict.fromkeys(word for text in texts for word in pieces(text)):
            yield from [word] * (1 if name == "wordle" else 10)


def _rows(trajectories: Sequence[Trajectory], tokenizer: PreTrainedTokenizerBase, weight: float) -> list[Row]:
    rows = [clone_row(each, "tiny_agent", tokenizer, shows_rules=False) for each in trajectories]
    return [replace(row, credit=weight * row.credit) for row in rows if len(row.tokens) <= MAX_TOKENS]
