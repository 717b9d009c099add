"""A trained critic at work: it reads a question and an answer, and gives its critique, its verdict, and how sure it is.

critic = whet.load_critic("runs/first")
found = critic.critique("7 + 5 * 3", "Step 1: 7 + 5 = 2\n...")
print(found.text, found.verdict, found.probability)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from whet.api.asking import Asked, written_by
from whet.config import ConfigError
from whet.config.parts import EngineConfig, ModelConfig, SamplingConfig
from whet.grading.verdicts import Verdict
from whet.methods.base import read_verdict
from whet.models.places import resolve
from whet.models.policy import Policy, load_policies
from whet.models.scoring import score
from whet.rollout.chances import chance, fork
from whet.run.load import LoadedRun, load_run
from whet.seeds import seed_of
from whet.tasks.prompts import Prompts, find_prompts
from whet.types import Segment

MAX_NEW_TOKENS = 512
"""Of a critique by a model that no run says it of."""
TOKEN_BUDGET = 4096
"""Of one pass that scores verdicts."""


@dataclass(frozen=True, slots=True)
class Critique:
    """What a critic says of an answer."""

    text: str
    verdict: Verdict | None
    """`correct` or `wrong`; None where the text has no readable one, or contradicts itself. Of a critic that gives
    scores: whether its score is above the middle."""
    probability: float | None
    """How likely the critic finds it, in [0, 1], that the verdict is `correct`: its own probability of that label
    against the other one, after the text that it wrote up to there. Of labels of several tokens, that of the first ones
    that differ. None: the text never comes to a verdict."""
    score: float | None = None
    """Of a critic that gives scores, from 1 to 10. None: it gives none, or wrote none that can be read."""


@dataclass(frozen=True, eq=False)
class Critic:
    """A language model that writes critiques. See `load_critic`."""

    policy: Policy
    prompts: Prompts
    """How question and answer are put to it, and how its verdict is worded."""
    sampling: SamplingConfig
    """What limits its critiques."""
    engine: EngineConfig
    reading: Callable[[str, Prompts], Mapping[str, Any]] = read_verdict
    """How its critiques are read, as its method reads them."""

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
        asked = [Asked(self.prompts.critique_messages(*pair), seed_of(seed, "critique", *pair)) for pair in pairs]
        written = written_by(
            self.policy, asked, self.sampling, self.engine, temperature=temperature, max_new_tokens=max_new_tokens
        )
        found = [self.reading(segment.text, self.prompts) for segment in written]
        chances = [None] * len(found) if any("score" in each for each in found) else self._chances(written)
        return [
            Critique(segment.text, each["verdict"], chance, each.get("score"))
            for segment, each, chance in zip(written, found, chances, strict=True)
        ]

    def _chances(self, written: Sequence[Segment]) -> list[float | None]:
        """`Critique.probability` of each, all in one pass."""
        forks = [fork(self.policy.tokenizer, self.prompts, segment) for segment in written]
        rows = [row for each in forks if each is not None for row in each]
        scores = iter(score(self.policy, rows, token_budget=TOKEN_BUDGET))
        return [None if each is None else chance(float(next(scores)[0]), float(next(scores)[0])) for each in forks]


def load_critic(
    place: str | Path, name: str | None = None, *, prompts: str | None = None, device: str = "auto",
    dtype: Literal["float32", "bfloat16"] | None = None,
) -> Critic:  # fmt: skip
    """A critic to use: of a run, or any model.

        whet.load_critic("runs/first")
        whet.load_critic("models/mine", dialect="english")

    Args:
        place: a run folder, whose last checkpoint is taken; a folder written by `save_pretrained`; a hub id; `tiny`.
            Of runs those whose policies critique answers: also critique_coder, whose policy judges, and spc, whose
            critic judges the last of the steps that it is given as the answer.
        name: of a run, which critic: a policy of its checkpoint, or a row of its table. None: the best one, which of
            `critique_rl` is that of stage II.
        dialect: a name of `whet.PROMPTS`, or a YAML file. None: the run's; a model alone needs one.
        device: `auto` (the first GPU, else the CPU), `cpu`, `cuda`, ...
        dtype: None: the run's; float32 of a model alone.
    Raises: ConfigError, RunError: there is no such critic.
    """
    run = Path(place)
    if (run / "config.yaml").is_file():
        return _of_run(run, name, prompts, device, dtype)
    if name is not None:
        raise ConfigError(f"{place} is no run folder, so it has no critic {name!r} to choose: leave the name out")
    if run.is_absolute() or "/" not in str(place):
        resolve(str(place))  # says so where there is no such folder
    if prompts is None:
        raise ConfigError(f"{place} is a model, which does not say how it is asked: give prompts='english', or yours")
    [policy] = load_policies({"critic": ModelConfig(path=str(place), device=device, dtype=dtype or "float32")}).values()
    return Critic(policy, find_prompts(prompts), SamplingConfig(max_new_tokens=MAX_NEW_TOKENS), EngineConfig())


def _of_run(
    run: Path, name: str | None, prompts: str | None, device: str, dtype: Literal["float32", "bfloat16"] | None
) -> Critic:
    trained = load_run(run)
    chosen = critic_named(trained, name)
    [policy] = trained.load([chosen], device=device, dtype=dtype).values()
    return critic_of(trained, policy, prompts)


def critic_named(trained: LoadedRun, name: str | None) -> str:
    """A policy of a run that critiques.

    Args:
        name: of the policy, or of its row in the run's table. None: the best one.
    Raises: ConfigError where there is none, or it is none.
    """
    critics = [policy for policy in trained.versions if "critique" in trained.skills(policy)]
    if not critics:
        raise ConfigError(
            f"{trained.folder} is a run of {trained.config.method}, none of whose policies critiques answers: load the "
            f"folder of one ({trained.place(trained.best)}) with a prompts, or with transformers"
        )
    rows = {row: policy for policy, row in trained.spec.snapshots.items()}
    chosen = trained.who("critique") if name is None else rows.get(name, name)
    if chosen not in critics:
        kept = sorted(critics, key=trained.spec.roles.__contains__)  # snapshots come first
        raise ConfigError(f"{trained.folder} has no critic {chosen!r}; choose of: {', '.join(kept)}")
    return chosen


def critic_of(trained: LoadedRun, policy: Policy, prompts: str | None = None) -> Critic:
    """A policy of a run, which critiques, as the run asked it."""
    limits = trained.skills(policy.name)["critique"]
    return Critic(policy, trained.words(prompts), limits, trained.config.engine, trained.spec.reading)
