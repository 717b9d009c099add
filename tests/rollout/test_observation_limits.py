"""Sizes from an environment: observations, what a failure says, and a `close` that hangs."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading

import pytest

from support.counter import Counter, info_of
from whet.config import ConfigError
from whet.config.environments import AgentRunConfig
from whet.config.loading import of_tree
from whet.envs.formats import PARSERS
from whet.evaluation.agents import turns_trace
from whet.methods.agent.critique_rollout import critic_messages
from whet.methods.agent.scripted import tried_episode
from whet.rollout.agent import NUM_CUT, Agent
from whet.rollout.driver import roll_out
from whet.rollout.environments import Environments
from whet.rollout.roles import written
from whet.rollout.services import Fault
from whet.run_folder.folder import trace_within
from whet.tasks.prompts import find_prompts
from whet.types import CUT, MAX_REASON, MAX_TRACEBACK, Failure, Grade, Sampling, Task

SIZE = 10_000_000
"""Characters of one observation."""


class Loud(Counter):
    """Says ten million characters, with a different beginning and end."""

    def reset(self, item, *, seed=0):
        super().reset(item, seed=seed)
        return f"begin{'é' * SIZE}end", {}

    def step(self, action):
        _, *rest = super().step(action)
        return f"begin{'é' * SIZE}end", *rest


class Walker:
    name, policy, sampling = "agent", "rule", Sampling()

    async def reply(self, messages, *, seed, parent=None, **more):
        return written("agent", "Action: go", policy="rule", seed=seed, parent=parent)


def loud_episode(**limits):
    envs = Environments(timeout_s=60, **limits)
    agent = Agent(agent=Walker(), environment=info_of(Loud), opening=(), parse=PARSERS.get("react"), key=(0,),
                  max_turns=4)  # fmt: skip
    [episode] = roll_out([agent(Task(id="0", prompt="", info={"item": 2}))], {"environment": envs})
    envs.close()
    return episode, envs


def test_every_observation_of_an_episode_is_cut_marked_and_counted():
    episode, envs = loud_episode(max_observation_chars=1000)
    seen = [each for each in episode.segments if each.role == "observation"]
    assert (episode.outcome, len(seen)) == ("ok", 3)
    for each in seen:
        assert len(each.text) <= 1000
        assert (each.text[:5], CUT in each.text, each.text[-3:]) == ("begin", True, "end")
        assert each.parsed[NUM_CUT] == SIZE + 8 - (len(each.text) - len(CUT))
    assert envs.counts["cut_observations"] == 3


def test_an_observation_that_fits_is_whole_and_has_no_mark():
    envs = Environments(max_observation_chars=16)
    agent = Agent(agent=Walker(), environment=info_of(), opening=(), parse=PARSERS.get("react"), key=(0,), max_turns=4)
    [episode] = roll_out([agent(Task(id="0", prompt="", info={"item": 2}))], {"environment": envs})
    envs.close()
    assert [each.text for each in episode.segments[::2]] == ["2 to go", "1 to go", "0 to go"]
    assert not any(NUM_CUT in each.parsed for each in episode.segments)
    assert envs.counts["cut_observations"] == 0


def test_players_by_rule_are_shown_no_more():
    from whet.envs.retries import Attempts

    attempts = Attempts(Loud)
    episode = tried_episode("constant", info_of(Loud), attempts, Task(id="0", prompt="", info={"item": 2}), seed=0,
                            max_turns=3, max_observation_chars=500)  # fmt: skip
    attempts.close()
    seen = episode.segments[::2]
    assert [len(each.text) <= 500 for each in seen] == [True] * 3
    assert [each.parsed[NUM_CUT] for each in seen] == [SIZE + 8 - (len(each.text) - len(CUT)) for each in seen]


def test_a_critic_reads_no_more_of_the_first_observation_than_of_the_rest():
    episode, _ = loud_episode(max_observation_chars=30_000)
    messages = critic_messages(find_prompts("acting_english"), episode.segments, 2000)
    assert sum(len(each["content"]) for each in messages) < 6000


def test_a_trace_stays_below_its_limit_and_a_small_one_is_as_it_was():
    episode, _ = loud_episode(max_observation_chars=2_000_000)
    labels = {"score": 1.0, "phase": "train", "step": 1, "split": "train", "label": "training"}
    trace = turns_trace(episode, **labels)
    assert len(json.dumps(trace, ensure_ascii=False).encode()) > 10_000_000
    cut = trace_within(trace, 1_000_000)
    assert 200_000 < len(json.dumps(cut, ensure_ascii=False).encode()) <= 1_000_000
    assert cut["question"].startswith("begin")
    assert cut["question"].endswith("end")
    assert (cut["outcome"], len(cut["turns"])) == (trace["outcome"], len(trace["turns"]))
    small = {"question": "7 + 5", "turns": [{"text": "é" * 1000}]}
    assert trace_within(small, 10_000) is small


def test_what_is_shown_of_an_observation_is_no_more_than_what_is_held():
    with pytest.raises(ConfigError, match=r"raise pool\.max_observation_chars = 500 to it"):
        of_tree(AgentRunConfig, {"method": "agent", "max_observation": 501, "pool": {"max_observation_chars": 500}})


def test_what_a_failure_says_has_a_limit():
    class Wordy(Counter):
        def step(self, action):
            raise RuntimeError("x" * SIZE)

    async def failing(agent):
        try:
            return await agent(Task(id="0", prompt="", info={"item": 2}))
        except Fault as fault:
            return fault.failure

    envs = Environments()
    agent = Agent(agent=Walker(), environment=info_of(Wordy), opening=(), parse=PARSERS.get("react"), key=(0,),
                  max_turns=4)  # fmt: skip
    [failure] = roll_out([failing(agent)], {"environment": envs})
    envs.close()
    assert failure.kind == "env_error"
    assert failure.reason.startswith("RuntimeError: xxx")
    assert len(failure.reason) <= MAX_REASON
    assert len(failure.trace) <= MAX_TRACEBACK
    assert Failure(kind="timeout", reason="as it is").reason == "as it is"
    assert len(Grade(score=0.0, reason="y" * SIZE).reason) <= MAX_REASON


class Stubborn(Counter):
    """Does not close."""

    over = threading.Event()
    closed = 0

    def close(self):
        if self.fault == "stubborn":
            self.over.wait(60)
        else:
            type(self).closed += 1


def test_environments_that_do_not_close_are_left_and_counted(caplog):
    envs = Environments(close_timeout_s=0.05)
    rollouts = []
    for fault in ("stubborn", "", "stubborn"):
        agent = Agent(agent=Walker(), environment=info_of(Stubborn), opening=(), parse=PARSERS.get("react"), key=(0,),
                      max_turns=4, settings={"fault": fault})  # fmt: skip
        rollouts.append(agent(Task(id=fault, prompt="", info={"item": 1})))
    assert [each.outcome for each in roll_out(rollouts, {"environment": envs})] == ["ok"] * 3
    envs.close()
    Stubborn.over.set()
    assert Stubborn.closed == 1
    assert envs.counts["hung_closes"] == 2
    assert "2 of 3 environments did not close within 0.05 s (pool.close_timeout_s)" in caplog.text


def test_a_close_that_hangs_does_not_keep_the_process():
    """It would sleep for an hour; the test's own limit is a minute."""
    program = """
        import time
        from whet.rollout.environments import Environments

        class Endless:
            def close(self):
                time.sleep(3600)

        envs = Environments(close_timeout_s=0.1)
        envs._idle["endless", ""] = [Endless(), Endless()]
        envs.close()
        print("the end", dict(envs.counts))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "the end {'hung_closes': 2}\n"
