"""The warm start of an agent and its critic: the agent learns to read critiques, the critic to write them.

Both imitate rules. The agent clones the scripted experts' episodes. Some begin with an oracle's critique of an earlier
attempt, some with one of another item, so that the agent does not follow blindly. The critic imitates the oracle's
critiques of attempts that the agent makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from whet.envs.formats import PARSERS, write
from whet.methods.agent.cloning import ShowsRules, clone_row
from whet.methods.agent.critique_rollout import critic_messages
from whet.methods.agent.oracles import Experts, critique_text
from whet.methods.agent.warm_start_config import AgentWarmStart
from whet.methods.environment_tasks import environment_task, format_of
from whet.methods.warm_start import demonstration_row
from whet.models.policy import Policy
from whet.rollout.agent import opened
from whet.tasks.demonstrations import Demonstration
from whet.tasks.prompts import Prompts
from whet.trajectories.records import FIRST_OBSERVATION, FIRST_REPLY, Message, Trajectory, item_number
from whet.types import Episode, Row

FOLLOWING = "Let me go on by the plan."
"""The thought of an agent that takes the actions which a critique lists: words of the scripted experts."""

BARE = 0.5
"""Of drills, those that show the critique alone: many of them cost little."""


@dataclass(frozen=True)
class SFTExamples:
    """Experts' episodes for an agent that is to read critiques."""

    trajectories: Sequence[Trajectory]
    experts: Experts
    format: str
    prompts: Prompts
    of: Literal["attempt", "action"] = "attempt"
    """What is critiqued."""

    def draw(
        self,
        count: int,
        settings: AgentWarmStart,
        policy: Policy,
        rng: Random,
        *,
        shows_rules: ShowsRules,
        max_context: int,
    ) -> list[Row]:
        """`count` episodes, but for those of more than `max_context` tokens."""
        shown = []
        for trajectory in rng.choices(self.trajectories, k=count):
            is_told, is_drill, is_misled = (
                rng.random() < share for share in (settings.critiqued, settings.drilled, settings.misled)
            )
            other = self._other(trajectory, rng)
            if is_told and self.of == "action":
                trajectory = self._sent_back(trajectory, other, rng, is_misled=is_misled)
            elif is_told and is_drill:
                trajectory = self._drill(trajectory, other, is_bare=rng.random() < BARE)
            elif is_told:
                trajectory = self._told(trajectory, other) if is_misled else self._told(*self._led(trajectory))
            shown.append(trajectory)
        made = [clone_row(trajectory, policy.name, policy.tokenizer, shows_rules=shows_rules) for trajectory in shown]
        return [row for row in made if len(row.tokens) <= max_context]

    def _other(self, trajectory: Trajectory, rng: Random) -> Trajectory:
        """Of another item of the environment, where there is one."""
        name, item = trajectory.environment, trajectory.item_id
        others = [other for other in self.trajectories if other.environment == name and other.item_id != item]
        return rng.choice(others or [trajectory])

    def _led(self, trajectory: Trajectory) -> tuple[Trajectory, Trajectory]:
        """An episode that follows its plan, twice. Where that lists actions, the agent thinks only that it takes them.
        This is short, and easy to learn where the expert's thoughts are not."""
        info = self.experts.infos[trajectory.environment]
        if info.plan is not None:
            return trajectory, trajectory
        format, messages = format_of(info, self.format), list(trajectory.messages)
        messages[FIRST_REPLY::2] = [
            Message("gpt", write(FOLLOWING, action, format)) for action in self._actions(trajectory)
        ]
        led = replace(trajectory, messages=tuple(messages))
        return led, led

    def _drill(self, trajectory: Trajectory, other: Trajectory, *, is_bare: bool) -> Trajectory:
        """The beginning of an episode with another item's plan, and a reply that follows that plan.

        Args:
            is_bare: there is nothing else to read.
        """
        led, _ = self._led(other)
        info = self.experts.infos[trajectory.environment]
        replies = led.replies()
        if info.plan is not None:  # the expert may look around before it says its plan
            [plan] = self._plan(other)
            replies = tuple(reply for reply in replies if plan in reply) or replies
        *before, first = trajectory.messages[:FIRST_REPLY]
        shown = replace(first, text="") if is_bare else first
        return self._told(replace(trajectory, messages=(*before, shown, Message("gpt", replies[0]))), other)

    def _told(self, trajectory: Trajectory, source: Trajectory) -> Trajectory:
        """The episode with a critique below its first observation, that says the plan of `source`."""
        critique = self.prompts.refine_text(critique_text(self.prompts, right=False, plan=self._plan(source)))
        messages = list(trajectory.messages)
        first = messages[FIRST_OBSERVATION]
        messages[FIRST_OBSERVATION] = replace(first, text=opened(first.text, critique))
        return replace(trajectory, messages=tuple(messages))

    def _sent_back(self, trajectory: Trajectory, other: Trajectory, rng: Random, *, is_misled: bool) -> Trajectory:
        """The episode with an action of another item proposed in some turn, the review that sends it back, and the
        right action. The proposal does not train. Misled: what the review says instead is no better."""
        format = format_of(self.experts.infos[trajectory.environment], self.format)
        place = FIRST_REPLY + 2 * rng.randrange(len(trajectory.replies()))
        messages, strange = list(trajectory.messages), self._actions(other)
        read = PARSERS.get(format)(messages[place].text)
        better = rng.choice(strange) if is_misled else read.action
        review = self.prompts.refine_text(critique_text(self.prompts, right=False, plan=[better]))
        if not is_misled:
            messages[place] = Message("gpt", write(FOLLOWING, read.action, format))
        wrong = write(read.thought, rng.choice(strange), format)
        messages[place:place] = [Message("gpt", wrong, False), Message("human", review)]
        return replace(trajectory, messages=tuple(messages))

    def _plan(self, trajectory: Trajectory) -> Sequence[str]:
        """As the oracle says it."""
        info = self.experts.infos[trajectory.environment]
        if info.plan is None:
            return self._actions(trajectory)[: self.experts.limit]
        return self.experts.plan(environment_task(info, item_number(trajectory.item_id)), 0)

    def _actions(self, trajectory: Trajectory) -> list[str]:
        parse = PARSERS.get(format_of(self.experts.infos[trajectory.environment], self.format))
        return [parse(reply).action for reply in trajectory.replies()]


def critic_rows(episodes: Iterable[Episode], policy: Policy, prompts: Prompts, max_shown: int) -> list[Row]:
    """Rows of the critiques that a rule has written in `AgentCritique` rounds."""
    return [
        demonstration_row(
            Demonstration(
                "critique",
                tuple(critic_messages(prompts, episode.segments[:index], max_shown)),
                "",
                episode.segments[index].text,
            ),
            policy.name,
            policy.tokenizer,
        )
        for episode in episodes
        for index in episode.indices("critic")[:1]
    ]
