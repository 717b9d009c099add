"""A reward model (Bradley-Terry): a head on a policy's model that learns from pairs and gives answers a score.

loss = -log sigmoid(s(x, better) - s(x, worse))
score = low + (high - low) (s - bottom) / (top - bottom), cut to it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import quantiles
from typing import Any

import numpy as np

from whet.chat import render, text_ids
from whet.methods.critic.reward_model_config import RewardModelConfig
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.models.value import value_model_of
from whet.tasks.prompts import Message
from whet.trainer.losses import preference_term
from whet.trainer.phase import Batch, Phase
from whet.trainer.terms import Update
from whet.types import Episode, Row, Segment, tail_row

REWARD_MODEL = "reward_model"
Answer = tuple[str, str]
"""A question and an answer to it."""
Pair = tuple[str, str, str]
"""A question, the better answer and the worse."""


@dataclass
class RewardModel:
    """A run's reward model, one of its policies.

    Args:
        of: the policy whose model it begins with.
        row_format: what it reads of a question and an answer. Messages, and the text after them that it scores.
        scale: the lowest score and the highest.
        measured: pairs that set the scale. The 5 % and 95 % quantiles of their rewards get its ends. They are the same
            each time, so that a resumed run has the same scale.
    """

    policies: dict[str, Policy]
    of: str
    row_format: Callable[[str, str], tuple[Sequence[Message], str]]
    settings: RewardModelConfig
    scale: tuple[float, float]
    measured: Callable[[], Sequence[Pair]]
    _ends: tuple[float, float] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if REWARD_MODEL not in self.policies:
            self.policies[REWARD_MODEL] = value_model_of(self.policies[self.of], REWARD_MODEL)

    def phase(self, name: str, draw: Callable[[int], Sequence[Pair]]) -> Phase:
        """The phase in which it learns.

        Args:
            draw: the pairs of a step, half as many as `rows_per_step`.
        """
        settings = self.settings
        num_updates = settings.num_steps * settings.learning.updates_a_step(settings.rows_per_step)
        update = {REWARD_MODEL: Update((preference_term(),), settings.learning, num_updates)}

        def collect(step: int) -> Batch:
            pairs = enumerate(draw(step))
            return Batch(
                [
                    self._row((x, answer), credit, bundle=f"{i}")
                    for i, (x, *pair) in pairs
                    for answer, credit in zip(pair, (1.0, -1.0), strict=True)
                ]
            )

        return Phase(name, settings.num_steps, collect, lambda step: update, headline=("pair/right", "loss/mean"))

    def scores(self, answers: Sequence[Answer]) -> list[float]:
        """Scores on the scale. Call it after training: the first call fixes the scale."""
        if self._ends is None:
            scale_answers = [(question, answer) for question, *pair in self.measured() for answer in pair]
            cuts = quantiles(self._rewards(scale_answers), n=20, method="inclusive")
            self._ends = cuts[0], cuts[-1]
        (bottom, top), (low, high) = self._ends, self.scale
        rewards = self._rewards(answers)
        return [
            low + (high - low) * min(1.0, max(0.0, (reward - bottom) / ((top - bottom) or 1.0))) for reward in rewards
        ]

    def with_scores(self, episodes: Sequence[Episode], read: Callable[[Segment], Mapping[str, Any]]) -> list[Episode]:
        """Critique rounds with the score of every answer and refinement in `parsed["score"]`.

        Args:
            read: what to parse of a critique.
        """
        places = [(i, j) for i, episode in enumerate(episodes) for j in episode.indices("actor")]
        answers = [(episodes[i].task.prompt, episodes[i].segments[j].text) for i, j in places]
        scores = dict(zip(places, self.scores(answers) if answers else (), strict=True))

        def segments(i: int) -> Iterator[Segment]:
            for j, segment in enumerate(episodes[i].segments):
                yield replace(segment, parsed=read(segment) if segment.role == "critic" else {"score": scores[i, j]})

        return [replace(episode, segments=tuple(segments(i))) for i, episode in enumerate(episodes)]

    def _rewards(self, answers: Sequence[Answer]) -> list[float]:
        rows = [self._row(answer) for answer in answers]
        token_values = score(self.policies[REWARD_MODEL], rows, token_budget=self.settings.learning.token_budget)
        return [float(values.sum()) for values in token_values]

    def _row(self, answer: Answer, credit: float = 1.0, bundle: str = "") -> Row:
        """An answer to a question, as the model reads it. Its reward is the sum of the values at the text's tokens.

        The reference logprobs are 0, which makes the preference loss that of Bradley and Terry.
        """
        tokenizer = self.policies[REWARD_MODEL].tokenizer
        messages, text = self.row_format(*answer)
        tokens = (*text_ids(tokenizer, text), tokenizer.eos_token_id)
        nothing = np.zeros(len(tokens), np.float32)
        context = render(tokenizer, messages)
        return tail_row(REWARD_MODEL, context, tokens, credit, ref_logprobs=nothing, bundle=bundle)
