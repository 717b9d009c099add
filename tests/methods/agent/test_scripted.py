"""Players by rule: what an environment may not answer them either."""

import pytest

from whet.envs import ENVIRONMENTS
from whet.envs.formats import PARSERS
from whet.envs.protocol import EnvironmentInfo
from whet.envs.retries import Attempts
from whet.methods.agent.scripted import tried_episode
from whet.types import Task


class Payer:
    """Pays the same for every action, and ends after two."""

    def __init__(self, reward):
        self.reward, self.num_steps = reward, 0

    def reset(self, item, *, seed=0):
        self.num_steps = 0
        return "begin", {}

    def step(self, action):
        self.num_steps += 1
        return "on", self.reward, self.num_steps == 2, False, {}


@pytest.mark.parametrize(
    ("reward", "outcome", "num_turns"), [(0.5, "ok", 2), (0.6, "env_error", 0), (-0.5, "env_error", 0)]
)
def test_rewards_that_leave_the_declared_range_are_a_failure_and_no_reward(reward, outcome, num_turns):
    """Of two steps: 1 is the most that an episode may come to, and 1.2 is beyond it."""
    info = EnvironmentInfo(name="payer", make=lambda: Payer(reward), splits=dict, max_turns=4, rules="",
                           rewards=(0, 1))  # fmt: skip
    attempts = Attempts(info.make)
    episode = tried_episode("constant", info, attempts, Task(id="0", prompt="", info={"item": 0}), seed=0, max_turns=4)
    attempts.close()
    assert episode.outcome == outcome
    assert sum(segment.role == "agent" for segment in episode.segments) == num_turns
    assert ("outside of its range, rewards=(0, 1)" in episode.reason) == (outcome == "env_error")


def test_replies_are_written_in_the_form_that_the_environment_reads():
    info = ENVIRONMENTS.get("sqlgym")
    attempts = Attempts(info.make)
    task = Task(id="0", prompt="", info={"item": info.splits()["train"][0]})
    episode = tried_episode("expert", info, attempts, task, seed=0, max_turns=1)
    attempts.close()
    [reply] = [segment for segment in episode.segments if segment.role == "agent"]
    assert PARSERS.get("sql")(reply.text).action == reply.parsed["action"]
    assert reply.parsed["reward"] == 1.0
