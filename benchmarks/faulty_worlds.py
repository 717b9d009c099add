"""Worlds that fail, and what becomes of the episodes in them: the part *faults* of `envs.py`.

A world crashes in a step, hangs in it, answers garbage, or cannot be made; each in a share of its steps or beginnings.
400 episodes in groups of 8 are played by the flow of an agent, and a failed one once more (`retries=1`). A world pays
for every step, so that a failed episode which was scored would show.

*Failed* is the share of all plays that failed: of 4 steps that fail with 5 % each, 18.5 %. *Lost* are the episodes that
failed twice, of 400; *whole groups* is what would be lost in the same plays if one failure cost its whole group, and
*good thrown away* the share of the plays that went well which that would drop. Of these ours drops none, which is
checked: every episode that was played is in the result, with its full reward.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from whet.envs.formats import PARSERS
from whet.envs.protocol import EnvironmentInfo
from whet.rollout.agent import ENVIRONMENT_SERVICE, Agent
from whet.rollout.environments import Environments
from whet.rollout.free import roll_out_free
from whet.rollout.retries import EpisodeCounts, TooManyFaults, with_retries
from whet.rollout.roles import written
from whet.rollout.services import Fault
from whet.types import FAULTS, Episode, Sampling, Task

EPISODES, GROUP, STEPS = 400, 8, 4
HANGS_S, TIMEOUT_S = 0.5, 0.15
"""How long a world hangs, and when the service stops waiting for it."""
SHARES = (0.05, 0.5)
KINDS = {"crash": "env_error", "hang": "timeout", "garbage": "env_error", "no room": "env_error"}
"""What is to be counted, by what the world does."""
GARBAGE = (None, ("?", float("nan"), False, False, {}), (7, 0.25, False, False, {}), ("?", 0.25, False))


class FaultyWorld:
    """Walks so many steps and pays a part of 1 for each. What goes wrong is drawn from the seed of `reset`; whether it
    can be made at all, from the episode's number and how often it was tried."""

    tries: ClassVar[dict[int, int]] = {}

    def __init__(self, fault: str, share: float, episode: int = 0) -> None:
        self.fault, self.share = fault, share
        if fault == "no room":
            number = self.tries[episode] = self.tries.get(episode, -1) + 1
            if random.Random(f"{episode} {number}").random() < share:
                raise OSError("no room for another world")

    def reset(self, item: int, *, seed: int = 0) -> tuple[str, dict[str, Any]]:
        self.left, self.random = STEPS, random.Random(seed)
        return f"{self.left} to go", {}

    def step(self, action: str) -> Any:
        if self.fault in ("crash", "hang", "garbage") and self.random.random() < self.share:
            if self.fault == "crash":
                raise RuntimeError("the world has ended")
            if self.fault == "garbage":
                return self.random.choice(GARBAGE)
            time.sleep(HANGS_S)
        self.left -= 1
        return f"{self.left} to go", 1 / STEPS, self.left == 0, False, {}

    def close(self) -> None: ...


FAULTY = EnvironmentInfo(
    name="faulty", make=FaultyWorld, splits=lambda: {"train": range(EPISODES)}, rules="", max_turns=2 * STEPS
)


@dataclass(frozen=True)
class Walker:
    """Sits where a policy would, and goes on."""

    name: str = "agent"
    policy: str = "rule"
    sampling: Sampling = field(default_factory=Sampling)

    async def reply(self, messages: Sequence[Any], *, seed: int, parent: int | None = None, **more: Any) -> Any:
        return written("agent", "Thought: on.\nAction: go", parent=parent, seed=seed)


@dataclass
class Plays:
    """An agent's flow that keeps what came of each play: `None` where it failed."""

    fault: str
    share: float
    outcomes: dict[tuple[str, int], float | None] = field(default_factory=dict)

    async def __call__(self, task: Task, *, sample: int) -> Episode:
        settings: dict[str, Any] = {"fault": self.fault, "share": self.share}
        if self.fault == "no room":  # a kind of its own, so that no world is there that could be used again
            settings["episode"] = 1000 * int(task.id) + sample
        agent = Agent(Walker(), FAULTY, (), PARSERS.get("react"), (0, "faults"), max_turns=2 * STEPS,
                      settings=settings, same_env=False)  # fmt: skip
        try:
            episode: Episode = await agent(task, sample=sample)
        except Fault:
            self.outcomes[task.id, sample] = None
            raise
        self.outcomes[task.id, sample] = reward_of(episode)
        return episode


def reward_of(episode: Episode) -> float | None:
    """The sum over its steps; None where there is none."""
    rewards = [segment.parsed["reward"] for segment in episode.segments if "reward" in segment.parsed]
    return sum(rewards) if rewards else None


def rollouts(plays: Plays, episode_counts: EpisodeCounts) -> list[Any]:
    tasks = [Task(id=str(place), prompt="", info={"item": place}) for place in range(EPISODES // GROUP)]
    return [
        with_retries(plays, task, sample, episode_counts, stride=GROUP, retries=1)
        for task in tasks
        for sample in range(GROUP)
    ]


def service(fault: str, retries: int) -> Environments:
    FaultyWorld.tries.clear()
    return Environments(capacity=64, timeout_s=TIMEOUT_S if fault == "hang" else 60.0, retries=retries)


def case(fault: str, share: float, retries: int = 0) -> dict[str, Any]:
    """All episodes under one kind of failure.

    Args:
        retries: of a beginning, by the service itself.
    """
    plays, episode_counts, envs = Plays(fault, share), EpisodeCounts(budget=1.0), service(fault, retries)
    begun = time.perf_counter()
    episodes = roll_out_free(rollouts(plays, episode_counts), {ENVIRONMENT_SERVICE: envs})
    seconds = time.perf_counter() - begun
    envs.close()
    failed = [episode for episode in episodes if episode.outcome in FAULTS]
    first = {place: reward for place, reward in plays.outcomes.items() if place[1] < GROUP}
    spoilt = {task for (task, _), reward in first.items() if reward is None}
    good = [task for (task, _), reward in first.items() if reward is not None]
    checks = {
        "started is the sum": episode_counts.started
        == episode_counts.episodes + episode_counts.retried + episode_counts.lost
        == len(plays.outcomes),
        "kinds are right": set(episode_counts.by_kind) <= {KINDS[fault]}
        and sum(episode_counts.by_kind.values()) == episode_counts.retried + episode_counts.lost,
        "no failed episode has a reward": all(reward_of(each) is None and each.reason for each in failed),
        "every other has all of it": all(reward_of(each) == 1.0 for each in episodes if each.outcome not in FAULTS),
        "all that were played are there": episode_counts.episodes == len(episodes) - len(failed)
        and episode_counts.lost == len(failed),
    }
    return {
        "fault": fault, "share": share, "begun_again_at_most": retries, "started": episode_counts.started,
        "finished": episode_counts.episodes, "retried": episode_counts.retried, "lost": episode_counts.lost,
        "kinds": dict(episode_counts.by_kind),
        "failed_share": (episode_counts.retried + episode_counts.lost) / episode_counts.started,
        "lost_share": episode_counts.lost / EPISODES,
        "group_share": len(spoilt) * GROUP / EPISODES,
        "good_thrown_away": sum(task in spoilt for task in good) / max(1, len(good)),
        "worlds": dict(envs.counts), "checks": checks, "wall_s": seconds,
    }  # fmt: skip


def stopped() -> dict[str, Any]:
    """At 90 % of the steps, under the default budget: what it says, and after how many plays."""
    plays, episode_counts, envs = Plays("crash", 0.9), EpisodeCounts(), service("crash", 0)
    try:
        roll_out_free(rollouts(plays, episode_counts), {ENVIRONMENT_SERVICE: envs})
    except TooManyFaults as error:
        return {"started": episode_counts.started, "budget": episode_counts.budget, "says": str(error)}
    finally:
        envs.close()
    return {"started": episode_counts.started, "budget": episode_counts.budget, "says": ""}


def measured() -> dict[str, Any]:
    cases = []
    for fault, retries in (("crash", 0), ("hang", 0), ("garbage", 0), ("no room", 0), ("no room", 1)):
        for share in SHARES:
            cases.append(case(fault, share, retries))
            print(f"faults: {cases[-1]}", flush=True)
    return {"cases": cases, "stopped": stopped()}


def lines(found: Mapping[str, Any]) -> list[str]:
    """For the result file."""
    text = ["## Faults", "", f"{EPISODES} episodes of {STEPS} steps in groups of {GROUP}; a failed one is played once "
            "more. Shares are of steps, for `no room` of worlds that are made.", "",
            "| world | share | started | finished | retried | lost | kinds | failed | lost, of 400 | whole groups "
            "| good thrown away | checks |", "|---|---|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for each in found["cases"]:
        name = each["fault"] + (", begun again by the service" if each["begun_again_at_most"] else "")
        kinds = ", ".join(f"{kind} {count}" for kind, count in each["kinds"].items()) or "none"
        percents = ("failed_share", "lost_share", "group_share", "good_thrown_away")
        shown = " | ".join(f"{100 * each[key]:.1f} %" for key in percents)
        wrong = [check for check, holds in each["checks"].items() if not holds]
        counts = " | ".join(str(each[key]) for key in ("started", "finished", "retried", "lost"))
        text.append(
            f"| {name} | {100 * each['share']:.0f} % | {counts} | {kinds} | {shown} "
            f"| {'NO: ' + ', '.join(wrong) if wrong else 'all hold'} |"
        )
    stop = found["stopped"]
    says = stop["says"].splitlines()
    after = f"({100 * stop['budget']:.0f} %), the play ends after {stop['started']} of {EPISODES} episodes and says:"
    text += ["", f"Where 90 % of the steps crash, with the default budget {after}", "", "```", *says, "```", ""]
    return text
