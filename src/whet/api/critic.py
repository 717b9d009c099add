"""Loads a trained critic: it reads a question and an answer, and gives a critique, a verdict and its probability.

critic = whet.load_critic("runs/first")
critique = critic.critique("7 + 5 * 3", "Step 1: 7 + 5 = 2\n...")
print(critique.text, critique.verdict, critique.probability)
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
from whet.rollout.samples import chance, fork
from whet.run.load import LoadedRun, load_run
from whet.seeds import seed_of
from whet.tasks.prompts import Prompts, find_prompts
from whet.types import Segment

MAX_NEW_TOKENS = 512
"""Of a critique by a model without a run."""
TOKEN_BUDGET = 4096
"""Of one forward pass that scores verdicts."""


@dataclass(frozen=True, slots=True)
class Critique:
    """A critic's critique of an answer."""

    text: str
    verdict: Verdict | None
    """`correct` or `wrong`; None where the text has no readable one, or contradicts itself. Of a critic that gives
    scores: whether its score is above the middle."""
    probability: float | None
    """The critic's probability of the label `correct`, in [0, 1], against the other label, after the text before it. Of
    labels of several tokens, that of the first ones that differ. None: the text reaches no verdict."""
    score: float | None = None
    """Of a critic that gives scores, from 1 to 10. None: it gives none, or wrote no readable one."""


@dataclass(frozen=True, eq=False)
class Critic:
    """A language model that writes critiques. See `load_critic`."""

    policy: Policy
    prompts: Prompts
    """The templates for question and answer, and the wording of its verdict."""
    sampling: SamplingConfig
    """Limits of its critiques."""
    engine: EngineConfig
    reading: Callable[[str, Prompts], Mapping[str, Any]] = read_verdict
    """Reads its critiques as its method does."""

    def critique(
        self, question: str, answer: str, *, temperature: float = 0.0, seed: int = 0, max_new_tokens: int | None = None
    ) -> Critique:
        """A critique of one answer.

        Args:
            temperature: 0: greedy.
            seed: of the sample. With one seed, equal questions and answers get equal critiques in any batch.
            max_new_tokens: None: the limit of the critic's run.
        """
        pair = (question, answer)
        return self.critique_all([pair], temperature=temperature, seed=seed, max_new_tokens=max_new_tokens)[0]

    def critique_all(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        temperature: float = 0.0,
        seed: int = 0,
        max_new_tokens: int | None = None,
    ) -> list[Critique]:
        """Critiques of `(question, answer)` pairs, written side by side; in order. Arguments as in `critique`."""
        requests = [Asked(self.prompts.critique_messages(*pair), seed_of(seed, "critique", *pair)) for pair in pairs]
        written = written_by(
            self.policy, requests, self.sampling, self.engine, temperature=temperature, max_new_tokens=max_new_tokens
        )
        readings = [self.reading(segment.text, self.prompts) for segment in written]
        chances = [None] * len(readings) if any("score" in reading for reading in readings) else self._chances(written)
        return [
            Critique(segment.text, reading["verdict"], chance, reading.get("score"))
            for segment, reading, chance in zip(written, readings, chances, strict=True)
        ]

    def _chances(self, written: Sequence[Segment]) -> list[float | None]:
        """`Critique.probability` of each, all in one scoring call."""
        forks = [fork(self.policy.tokenizer, self.prompts, segment) for segment in written]
        rows = [row for pair in forks if pair is not None for row in pair]
        scores = iter(score(self.policy, rows, token_budget=TOKEN_BUDGET))
        return [None if pair is None else chance(float(next(scores)[0]), float(next(scores)[0])) for pair in forks]


def load_critic(
    place: str | Path,
    name: str | None = None,
    *,
    prompts: str | None = None,
    device: str = "auto",
    dtype: Literal["float32", "bfloat16"] | None = None,
) -> Critic:
    """Load a critic from a run, or any model as a critic.

        whet.load_critic("runs/first")
        whet.load_critic("models/mine", prompts="english")

    Args:
        place: a run folder, of which the last checkpoint is loaded; a folder written by `save_pretrained`; a hub id;
            `tiny`. The run's policies must critique answers. In runs of critique_coder the policy judges. In runs of
            spc the critic judges the last step of the answer.
        name: the run's critic: a policy of its checkpoint, or a row of its table. None: the best one, in `critique_rl`
            that of stage II.
        prompts: a name of `whet.PROMPTS`, or a YAML file. None: the run's. A model alone needs one.
        device: `auto` (the first GPU, else the CPU), `cpu`, `cuda`, ...
        dtype: None: the run's, or float32 for a model alone.
    Raises: ConfigError, RunError: there is no such critic.
    """
    run = Path(place)
    if (run / "config.yaml").is_file():
        return _of_run(run, name, prompts, device, dtype)
    if name is not None:
        raise ConfigError(f"{place} is no run folder, so it has no critic {name!r} to choose: leave the name out")
    if run.is_absolute() or "/" not in str(place):
        resolve(str(place))  # raises if there is no such folder
    if prompts is None:
        raise ConfigError(f"{place} is a model, which does not name its prompts: give prompts='english', or yours")
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
    """The name of a run's policy that critiques.

    Args:
        name: of the policy, or of its row in the run's table. None: the best one.
    Raises: ConfigError where the run has no critic, or none of that name.
    """
    critics = [policy for policy in trained.versions if "critique" in trained.skills(policy)]
    if not critics:
        raise ConfigError(
            f"{trained.folder} is a run of {trained.config.method}, none of whose policies critiques answers: load the "
            f"folder of one ({trained.place(trained.best)}) with prompts=NAME, or with transformers"
        )
    rows = {row: policy for policy, row in trained.spec.snapshots.items()}
    chosen = trained.who("critique") if name is None else rows.get(name, name)
    if chosen not in critics:
        names = sorted(critics, key=trained.spec.roles.__contains__)  # snapshots come first
        raise ConfigError(f"{trained.folder} has no critic {chosen!r}; choose of: {', '.join(names)}")
    return chosen


def critic_of(trained: LoadedRun, policy: Policy, prompts: str | None = None) -> Critic:
    """A run's policy as a critic, with the run's prompts and limits."""
    limits = trained.skills(policy.name)["critique"]
    return Critic(policy, trained.words(prompts), limits, trained.engine_settings, trained.spec.reading)
