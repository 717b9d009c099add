"""A trained critic at work: it reads a question and an answer, and gives its critique, its verdict, and how sure it is.

critic = whet.load_critic("runs/first")
found = critic.critique("7 + 5 * 3", "Step 1: 7 + 5 = 2\n...")
print(found.text, found.verdict, found.probability)
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from whet.config import ConfigError
from whet.config.parts import EngineConfig, ModelConfig, SamplingConfig
from whet.config.runs import CriticRunConfig
from whet.engines.local import LocalEngine
from whet.errors import RunError
from whet.grading.verdicts import Verdict, parse_verdict, verdict_place
from whet.models.policy import Policy, load_policies
from whet.models.scoring import score
from whet.play.driver import play
from whet.play.roles import Role
from whet.runs.checkpoint import load_state, newest_whole
from whet.runs.critics import CriticMethod
from whet.runs.opening import saved_config
from whet.runs.registry import preset_of
from whet.seeds import seed_of
from whet.tasks.dialects import Dialect, find_dialect
from whet.types import Row, Sampling, Segment, tail_row

MAX_NEW_TOKENS = 512
"""Of a critique by a model that no run says it of."""
TOKEN_BUDGET = 4096
"""Of one pass that scores verdicts."""


@dataclass(frozen=True, slots=True)
class Critique:
    """What a critic says of an answer."""

    text: str
    verdict: Verdict | None
    """`correct` or `wrong`; None where the text has no readable one, or contradicts itself."""
    probability: float | None
    """How likely the critic finds it, in [0, 1], that the verdict is `correct`: its own probability of that label
    against the other one, after the text that it wrote up to there. Of labels of several tokens, that of the first ones
    that differ. None: the text never comes to a verdict."""


@dataclass(frozen=True, eq=False)
class Critic:
    """A language model that writes critiques. See `load_critic`."""

    policy: Policy
    dialect: Dialect
    """How question and answer are put to it, and how its verdict is worded."""
    sampling: SamplingConfig
    """What limits its critiques."""
    engine: EngineConfig

    def critique(
        self, question: str, answer: str, *, temperature: float = 0.0, seed: int = 0, max_new_tokens: int | None = None
    ) -> Critique:
        """A critique of one answer.

        Args:
            temperature: 0: greedy.
            seed: of the sample. Equal questions and answers get equal critiques with one seed, whatever is beside them.
            max_new_tokens: None: those that the critic's run gave it.
        """
        pair = (question, answer)
        return self.critique_all([pair], temperature=temperature, seed=seed, max_new_tokens=max_new_tokens)[0]

    def critique_all(
        self, pairs: Iterable[tuple[str, str]], *, temperature: float = 0.0, seed: int = 0,
        max_new_tokens: int | None = None,
    ) -> list[Critique]:  # fmt: skip
        """Critiques of `(question, answer)` pairs, written side by side; in order. Arguments as in `critique`."""
        settings = self.sampling
        sampling = Sampling(
            temperature=temperature,
            top_p=settings.top_p if temperature else 1.0,
            max_new_tokens=max_new_tokens or settings.max_new_tokens,
            stop=settings.stop,
        )
        role = Role("critic", self.policy.name, self.policy.tokenizer, sampling)
        flows = [
            role.reply(self.dialect.critique_messages(*pair), seed=seed_of(seed, "critique", *pair)) for pair in pairs
        ]
        engine = LocalEngine(self.policy, max_rows=self.engine.max_rows, prefill_tokens=self.engine.prefill_tokens)
        written = play(flows, {self.policy.name: engine.generate})
        chances = self._chances(written)
        return [
            Critique(segment.text, parse_verdict(segment.text, **self.dialect.labels), chance)
            for segment, chance in zip(written, chances, strict=True)
        ]

    def _chances(self, written: Sequence[Segment]) -> list[float | None]:
        """`Critique.probability` of each, all in one pass."""
        forks = [self._fork(segment) for segment in written]
        rows = [row for fork in forks if fork is not None for row in fork]
        scores = iter(score(self.policy, rows, token_budget=TOKEN_BUDGET))
        # p(right) / (p(right) + p(wrong)), from two logprobs
        return [None if fork is None else _sigmoid(float(next(scores)[0]) - float(next(scores)[0])) for fork in forks]

    def _fork(self, segment: Segment) -> tuple[Row, Row] | None:
        """The first tokens in which the two verdicts differ, at the place where the critique comes to its verdict: the
        right one's and the wrong one's, each after the tokens before it. None: it never does."""
        place = verdict_place(segment.text, line=self.dialect.verdict_line)
        if place is None:
            return None
        tokenizer = self.policy.tokenizer
        num_chars = [len(tokenizer.decode(segment.tokens[:k], skip_special_tokens=True)) for k in _upto(segment)]
        last = num_chars[bisect_right(num_chars, place) - 1]
        before = segment.tokens[: bisect_left(num_chars, last)]  # without an end token, which adds no text
        said = tokenizer.decode(before, skip_special_tokens=True)
        gap = segment.text[len(said) : place]
        if not segment.text[place:]:
            gap += " "  # cut right behind the colon
        right, wrong = (self._label(before, said, gap + word) for word in (self.dialect.right, self.dialect.wrong))
        if right is None or wrong is None:
            return None
        shared = next((i for i, (a, b) in enumerate(zip(right, wrong, strict=False)) if a != b), None)
        if shared is None:  # one is the beginning of the other
            return None
        context = (*segment.context, *before, *right[:shared])
        first, second = (tail_row(self.policy.name, context, [each[shared]], 0.0) for each in (right, wrong))
        return first, second

    def _label(self, before: Sequence[int], said: str, text: str) -> list[int] | None:
        """The tokens of a text that goes on from others; None where the tokenizer has none that leave those alone."""
        tokenizer = self.policy.tokenizer
        alone = tokenizer.encode(text, add_special_tokens=False)
        whole = tokenizer.encode(said + text, add_special_tokens=False)
        found = [alone] + ([whole[len(before) :]] if whole[: len(before)] == list(before) else [])
        for ids in found:
            if tokenizer.decode([*before, *ids], skip_special_tokens=True) == said + text:
                return list(ids)
        return None


def load_critic(
    place: str | Path, name: str | None = None, *, dialect: str | None = None, device: str = "auto",
    dtype: Literal["float32", "bfloat16"] | None = None,
) -> Critic:  # fmt: skip
    """A critic to use: of a run, or any model.

        whet.load_critic("runs/first")
        whet.load_critic("models/mine", dialect="english")

    Args:
        place: a run folder, whose last checkpoint is taken; a folder written by `save_pretrained`; a hub id; `tiny`.
        name: of a run, which critic: a policy of its checkpoint, or a row of its table. None: the last one that its
            method keeps, which of `critique_rl` is the best of stage II.
        dialect: a name of `whet.DIALECTS`, or a YAML file. None: the run's; a model alone needs one.
        device: `auto` (the first GPU, else the CPU), `cpu`, `cuda`, ...
        dtype: None: the run's; float32 of a model alone.
    Raises: ConfigError, RunError: there is no such critic.
    """
    run = Path(place)
    if (run / "config.yaml").is_file():
        return _of_run(run, name, dialect, device, dtype)
    if name is not None:
        raise ConfigError(f"{place} is no run folder, so it has no critic {name!r} to choose: leave the name out")
    if Path(place).is_absolute() and not Path(place).exists():
        raise ConfigError(f"there is no {place}: check the path")
    if dialect is None:
        raise ConfigError(f"{place} is a model, which does not say how it is asked: give dialect='english', or yours")
    [policy] = load_policies({"critic": ModelConfig(path=str(place), device=device, dtype=dtype or "float32")}).values()
    return Critic(policy, find_dialect(dialect), SamplingConfig(max_new_tokens=MAX_NEW_TOKENS), EngineConfig())


def _of_run(
    run: Path, name: str | None, dialect: str | None, device: str, dtype: Literal["float32", "bfloat16"] | None
) -> Critic:
    config = saved_config(run)
    if not isinstance(config, CriticRunConfig):
        raise ConfigError(
            f"{run} is a run of {config.method}, whose policies play other rounds: load the folder "
            "of one, under checkpoints, with a dialect, or with transformers"
        )
    saved, _ = newest_whole(run)
    if saved is None:
        raise RunError(f"{run} has no checkpoint yet; `whet resume {run}` goes on with it")
    rows = {row: policy for policy, row in _kept(config).items()}
    there = [each.name for each in (saved / "policies").iterdir()]
    kept = [policy for policy in rows.values() if policy in there] or ["critic"]
    chosen = kept[-1] if name is None else rows.get(name, name)
    if chosen not in there or chosen == "actor":
        raise ConfigError(f"{run} has no critic {chosen!r}; choose of: {', '.join(dict.fromkeys([*kept, 'critic']))}")
    folder, settings = saved / "policies" / chosen, config.critic
    model = ModelConfig(
        path=str(folder) if settings.lora is None else settings.path,
        device=device,
        dtype=dtype or settings.dtype,
        lora=settings.lora,
    )
    [policy] = load_policies({chosen: model}).values()
    if settings.lora is not None:
        policy.restore(folder, version=load_state(saved)["versions"][chosen])
    limits = config.roles.critique
    return Critic(policy, find_dialect(dialect or config.dialect), limits, config.engine)


def _kept(config: CriticRunConfig) -> Mapping[str, str]:
    """The critics that a run comes to keep, and their rows."""
    kind = preset_of(config.method).method
    return kind.kept if issubclass(kind, CriticMethod) else {}


def _upto(segment: Segment) -> range:
    return range(len(segment.tokens) + 1)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
