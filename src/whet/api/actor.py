"""Loads an actor: it answers a question, and refines its answer after a critique.

actor = whet.load_actor("runs/first")
answer = actor.answer("7 + 5 * 3")
print(actor.refine("7 + 5 * 3", answer, critique))
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whet.api.asking import Asked, written_by
from whet.config import ConfigError
from whet.config.parts import EngineConfig, SamplingConfig
from whet.models.policy import Policy
from whet.run.load import LoadedRun, load_run
from whet.seeds import seed_of
from whet.tasks.prompts import Prompts
from whet.types import Segment


@dataclass(frozen=True, eq=False)
class Actor:
    """A language model that answers questions. See `load_actor`."""

    policy: Policy
    prompts: Prompts
    """The templates for questions and critiques."""
    answering: SamplingConfig
    """Limits of its answers."""
    refining: SamplingConfig | None
    """Limits of its refinements. None: its run has none."""
    engine: EngineConfig

    def answer(self, question: str, *, temperature: float = 0.0, seed: int = 0) -> str:
        """An answer, including the prefill of its prompts.

        Args:
            temperature: 0: greedy.
            seed: of the sample.
        """
        return self.answer_segment(question, temperature=temperature, seed=seed).text

    def answer_segment(self, question: str, *, temperature: float = 0.0, seed: int = 0) -> Segment:
        """An answer with its tokens, their logprobs and its stop reason. Arguments as in `answer`."""
        request = Asked(
            self.prompts.solve_messages(question), seed_of(seed, "answer", question), self.prompts.solve_prefill
        )
        [segment] = written_by(self.policy, [request], self.answering, self.engine, temperature=temperature)
        return segment

    def refine(self, question: str, answer: str, critique: str, *, temperature: float = 0.0, seed: int = 0) -> str:
        """A refinement of the answer after a critique of it. Arguments as in `answer`.

        Raises: ConfigError where the actor's run asks it for none.
        """
        return self.refine_segment(question, answer, critique, temperature=temperature, seed=seed).text

    def refine_segment(
        self, question: str, answer: str, critique: str, *, temperature: float = 0.0, seed: int = 0
    ) -> Segment:
        """A refinement with its tokens, their logprobs and its stop reason. As `refine`."""
        if self.refining is None:
            raise ConfigError(f"policy {self.policy.name!r} answers questions, but its run asks it for no refinements")
        messages = self.prompts.refine_messages(question, answer, self.prompts.steps_onward(critique))
        request = Asked(messages, seed_of(seed, "refinement", question, answer, critique), self.prompts.refine_prefill)
        [segment] = written_by(self.policy, [request], self.refining, self.engine, temperature=temperature)
        return segment


def load_actor(run: str | Path, name: str | None = None, *, device: str = "auto") -> Actor:
    """Load a run's policy that answers questions.

    Args:
        name: None: the best one that answers.
        device: `auto` (the first GPU, else the CPU), `cpu`, `cuda`, ...
    Raises: ConfigError where there is none; RunError where the run has no checkpoint.
    """
    trained = load_run(run)
    chosen = name or trained.who("answer")
    answering = [candidate for candidate in trained.versions if "answer" in trained.skills(candidate)]
    if not answering:
        raise ConfigError(f"{run} is a run of {trained.config.method}, none of whose policies answers questions")
    if chosen not in answering:
        raise ConfigError(f"{run} has no actor {chosen!r}; choose of: {', '.join(answering)}")
    [policy] = trained.load([chosen], device=device).values()
    return actor_of(trained, policy)


def actor_of(trained: LoadedRun, policy: Policy) -> Actor:
    """A run's policy as an actor, with the run's prompts and limits."""
    skills = trained.skills(policy.name)
    return Actor(policy, trained.words(), skills["answer"], skills.get("refine"), trained.engine_settings)
