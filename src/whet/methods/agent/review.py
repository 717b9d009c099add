"""A critic that reads an agent's actions before they are taken: it says whether the next one is right, and what else to
do. An action that it calls wrong is sent back, and the agent proposes another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from whet.grading.verdicts import parse_verdict
from whet.methods.agent.critique_rollout import attempt_text
from whet.rollout.roles import Role, written
from whet.tasks.prompts import Prompts
from whet.types import Segment, Task, shortened

REVIEWER = "reviewer"
"""The role of such a critic's segments: a critique of a whole attempt has the role `critic`."""
ActionCritic = Callable[[Task, Sequence[Segment], str, int], str]
"""Writes a review by rule, from the task, the episode so far, the action, and the seed of the environment.

Raises: Fault.
"""


@dataclass(frozen=True)
class Reviewer:
    """A `Review` by a role or a rule."""

    critic: Role | ActionCritic
    prompts: Prompts
    """Its `critique` takes the first observation as question, and as answer what was done, down to the action."""
    most: int = 1
    max_shown: int = 8000
    """Characters that the critic reads of what was done; the middle of more is left out."""

    async def __call__(
        self, task: Task, segments: Sequence[Segment], action: str, *, env_seed: int, seed: int
    ) -> Segment:
        """As `Review`."""
        if callable(self.critic):
            review = written(REVIEWER, self.critic(task, segments, action, env_seed))
        else:
            done = "\n".join(filter(None, [attempt_text(segments), f"Action: {action}"]))
            messages = self.prompts.critique_messages(segments[0].text, shortened(done, self.max_shown))
            review = await self.critic.reply(messages, seed=seed, group={"task": task.id})
        verdict = parse_verdict(review.text, **self.prompts.labels)
        return replace(review, role=REVIEWER, parsed={**review.parsed, "verdict": verdict})

    def told(self, review: Segment) -> str:
        """As `Review`."""
        return self.prompts.refine_text(self.prompts.steps_onward(review.text))
