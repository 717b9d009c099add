"""`whet tiny build agents`: clones the scripted experts of four environments into a tiny agent. Same seed, same bits.

The agent reads no rules: it learns the environments from episodes. It is saved twice, fully cloned and stopped early.
So the effect of reinforcement learning can be told from that of more cloning.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

from whet.chat import text_ids
from whet.config.parts import LearningConfig, ModelConfig
from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.babyai.levels import LEVELS, PUBLISHED
from whet.errors import RunError
from whet.methods.agent.cloning import clone_row
from whet.models.policy import Policy, load_policies
from whet.models.tiny_agent import SPECIAL, VOCABULARY, agent_config, pieces, word_tokenizer
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
"""Rows of each environment in a batch."""
WEIGHTS = {"babyai": 4.0}
"""Weight of a token, where it is not 1: BabyAI's expert writes little between long observations."""
EPISODES_PER_ITEM = {"textcraft": 8, "maze": 12, "wordle": 1}
"""Episodes of a training item. They differ in wording and, where the seed decides it, in the first observation."""
BABYAI_SEEDS = range(1000, 1080)
"""Seeds of the items of each level. Published items have seeds up to 49."""
MAX_TOKENS = 1024
"""Length of a row; longer episodes are left out."""
WORDS_FROM = 1000
"""Training items, at most, whose words an agent of random weights gets as tokens."""
EMBEDDINGS, HEAD = "model.embed_tokens.weight", "lm_head.weight"
"""Names of the weights that there is one row of for each token; they are one and the same."""
NUM_THREADS = 2
"""Sums depend on the number of threads, so it is part of the recipe."""
LEARNING = LearningConfig(
    learning_rate=2e-3, final_share=0.05, warmup_steps=100, weight_decay=0.01, minibatch_rows=sum(ROWS.values())
)


def build_agents(out: Path, progress: Progress, *, num_steps: int = NUM_STEPS, seed: int = 0) -> None:
    """Clones an agent and saves it in `out/cloned` and `out/early`, as `from_pretrained` loads it.

    Args:
        num_steps: fewer steps give a weaker agent; fewer than `EARLY` give no early one.
    Raises: EnvError where minigrid is missing.
    """
    out.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    set_determinism(NUM_THREADS)
    episodes = {name: list(_expert_episodes(name, seed, progress)) for name in ROWS}
    tokenizer = word_tokenizer(_words(episodes))
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(agent_config(len(tokenizer))).eval()
    policy = Policy("tiny_agent", model, tokenizer, stop_ids=frozenset({SPECIAL.index("<|end|>")}))
    trainer = trainer_of(policy)
    trainer.begin(imitation(LEARNING, num_steps))
    rows = {name: _rows(trajectories, tokenizer, WEIGHTS.get(name, 1.0)) for name, trajectories in episodes.items()}
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


def build_agent(
    names: Sequence[str], out: Path, *, seed: int = 0, vocabulary: int = VOCABULARY, start: str | None = None
) -> int:
    """Saves a tiny agent that was not trained on these environments, and whose tokens are their words.

    The words come from the experts' episodes on training items (`WORDS_FROM`). Other words are spelt in pieces. Like
    the shipped agents, it reads no rules.

    Args:
        names: environments.
        seed: of the weights that are drawn.
        vocabulary: tokens, at most. Several environments have more words than the default holds.
        start: a tiny agent whose weights it takes over, with each new token's embedding the mean of those of the
            agent's tokens that spell it. None: all weights are random.
    Returns: the number of weights.
    Raises: UnknownName; EnvError where an environment has no expert, or its expert never succeeds; RunError where `out`
        is not empty, or `start` has another shape.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} is not empty; choose another --out")
    episodes = {}
    for name in names:
        info = ENVIRONMENTS.get(name)
        episodes[name] = list(expert_trajectories(info, _some(info.splits()["train"]), rules="", seed=0))
        if not episodes[name]:
            raise EnvError(f"{name}'s expert succeeds on no training item, so there are no words to learn: mend it")
    tokenizer = word_tokenizer(_words(episodes), size=vocabulary)
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(agent_config(len(tokenizer))).eval()
    if start is not None:
        _take_over(model, tokenizer, start)
    Policy("tiny_agent", model, tokenizer, stop_ids=frozenset({SPECIAL.index("<|end|>")})).save(out)
    return sum(weights.numel() for weights in model.parameters())


def _take_over(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerBase, start: str) -> None:
    """Gives a model the weights of a tiny agent with other tokens.

    Raises: ConfigError where there is no such model; RunError where it has another shape.
    """
    old = load_policies({"start": ModelConfig(path=start)})["start"]
    weights, new = dict(old.causal_lm.state_dict()), model.state_dict()
    embeddings = weights.pop(EMBEDDINGS, None)
    weights.pop(HEAD, None)  # it is the embeddings
    if embeddings is None or any(key not in new or new[key].shape != value.shape for key, value in weights.items()):
        raise RunError(
            f"{start} has not the shape of a tiny agent: --start takes one that ships with whet or its clone"
        )
    rows = [embeddings[ids].mean(0) for ids in _spelt(tokenizer, old.tokenizer)]
    model.load_state_dict({**weights, EMBEDDINGS: torch.stack(rows), HEAD: torch.stack(rows)})
    model.tie_weights()


def _spelt(tokenizer: PreTrainedTokenizerBase, old: PreTrainedTokenizerBase) -> Iterator[list[int]]:
    """For each token the old tokenizer's tokens of its text: itself, where it was there."""
    known = old.get_vocab()
    for number, token in enumerate(tokenizer.convert_ids_to_tokens(range(len(tokenizer)))):
        if token in known:
            yield [known[token]]
        else:
            yield text_ids(old, tokenizer.decode([number]))


def _some(items: Sequence[int]) -> Sequence[int]:
    """`WORDS_FROM` of the items, drawn from all parts of the list."""
    return items if len(items) <= WORDS_FROM else random.Random("words").sample(items, WORDS_FROM)


def training_items(name: str, seed: int) -> list[tuple[int, int]]:
    """Items of an environment, each with the seed of the expert's wording. None is of its test split."""
    if name == "babyai":
        return [(level - 1 + len(LEVELS) * number, seed) for number in BABYAI_SEEDS for level in PUBLISHED]
    train = ENVIRONMENTS.get(name).splits()["train"]
    return [(item, seed_of(seed, time) % 2**31) for time in range(EPISODES_PER_ITEM[name]) for item in train]


def _expert_episodes(name: str, seed: int, progress: Progress) -> Iterator[Trajectory]:
    info, items = ENVIRONMENTS.get(name), training_items(name, seed)
    progress.begin(f"episodes of {name}", 0, len(items))
    for count, (item, wording) in enumerate(items, 1):
        yield from expert_trajectories(info, [item], rules="", seed=wording)
        progress.step(count, {})
    progress.end()


def _words(episodes: dict[str, list[Trajectory]]) -> Iterator[str]:
    """The words of the environments. Those of Wordle's long list come once, others ten times, so that they lead."""
    for name, trajectories in episodes.items():
        messages = (message for episode in trajectories for message in episode.messages[FIRST_OBSERVATION:])
        texts = dict.fromkeys(message.text for message in messages)
        for word in dict.fromkeys(word for text in texts for word in pieces(text)):
            yield from [word] * (1 if name == "wordle" else 10)


def _rows(trajectories: Sequence[Trajectory], tokenizer: PreTrainedTokenizerBase, weight: float) -> list[Row]:
    rows = [clone_row(episode, "tiny_agent", tokenizer, shows_rules=lambda _: False) for episode in trajectories]
    return [replace(row, credit=weight * row.credit) for row in rows if len(row.tokens) <= MAX_TOKENS]
