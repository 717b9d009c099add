"""The flow of an agent: spec 9.15, malformed replies, limits, and rows whose observations never train."""

from dataclasses import replace

import numpy as np
import pytest

from support.counter import Counter, info_of
from whet.config.parts import ModelConfig
from whet.credit.views import joined
from whet.engines.local import LocalEngine
from whet.envs.formats import PARSERS, Parsed
from whet.methods.agent.review import Reviewer
from whet.models.policy import load_policies
from whet.models.tiny import tiny_tokenizer
from whet.rollout.agent import ENDED, FULL, HORIZON, Agent
from whet.rollout.driver import roll_out
from whet.rollout.environments import Environments
from whet.rollout.free import roll_out_free
from whet.rollout.roles import PolicyRole, written
from whet.tasks.prompts import ACTING
from whet.types import CUT, Completion, Sampling, Task


class Says:
    """A seat that says what it is told to, and remembers what it was shown."""

    name, policy, sampling = "agent", "rule", Sampling()

    def __init__(self, *texts):
        self.texts, self.shown = list(texts), []

    async def reply(self, messages, *, prefill="", seed, parent=None, group=None, follows=None):
        self.shown.append(list(messages))
        return written(
            "agent", self.texts[(len(self.shown) - 1) % len(self.texts)], policy="rule", seed=seed, parent=parent
        )


def an_agent(role, max_turns=3, **more):
    return Agent(
        agent=role, environment=info_of(), opening=({"role": "user", "content": "rules"}, {"role": "assistant",
        "content": "OK."}), parse=PARSERS.get("react"), key=(0,), max_turns=max_turns, **more,
    )  # fmt: skip


def a_task(item):
    return Task(id=f"counter_{item}", prompt="", info={"item": item, "environment": "counter"})


@pytest.fixture
def envs():
    made = Environments(timeout_s=5.0)
    yield made
    made.close()


def test_three_rounds_of_an_episode_that_never_ends_are_three_steps_and_nine_messages(envs):
    """Spec 9.15: 2 + 1 + 2 * 3 messages, the last from the world; the reward is the third step's."""
    role = Says("Thought: on\nAction: go")
    [episode] = roll_out([an_agent(role)(a_task(9))], {"environment": envs})
    assert [len(each) for each in role.shown] == [3, 5, 7]
    assert 2 + len(episode.segments) == 9
    assert episode.segments[-1].role == "observation"
    assert (episode.outcome, episode.reason, episode.segments[-1].text) == ("truncated", HORIZON, "6 to go")


def test_an_episode_that_ends_at_its_second_turn_has_seven_messages(envs):
    [episode] = roll_out([an_agent(Says("Action: go"))(a_task(2))], {"environment": envs})
    assert 2 + len(episode.segments) == 7
    assert (episode.outcome, episode.reason) == ("ok", "")
    assert [turn.parsed["reward"] for turn in episode.segments[1::2]] == [0.0, 1.0]
    assert episode.segments[1].parsed["action"] == "go"


def test_a_reply_that_cannot_be_read_is_the_agents_own_turn_and_is_not_sent(envs):
    agent = an_agent(Says("Action: a\nAction: b", "Action: go"), max_turns=4)
    agent = replace(agent, parse=PARSERS.get("cleaned"))
    [episode] = roll_out([agent(a_task(2))], {"environment": envs})
    notes = [turn.parsed.get("note") for turn in episode.segments[1::2]]
    assert notes == ["invalid action", None, "invalid action", None]
    assert "Only one" in episode.segments[2].text
    assert episode.outcome == "ok"


def test_the_middle_of_a_long_observation_is_left_out_of_what_is_shown_and_not_of_the_trace(envs):
    class Loud(Counter):
        def reset(self, item, *, seed=0):
            super().reset(item, seed=seed)
            return "a" * 300 + "b" * 300, {}

    role = Says("Action: go")
    agent = Agent(agent=role, environment=info_of(Loud), opening=(), parse=PARSERS.get("react"), key=(0,), max_turns=1,
                  max_observation=100)  # fmt: skip
    [episode] = roll_out([agent(a_task(3))], {"environment": envs})
    [shown] = role.shown[0]
    assert len(shown["content"]) <= 100
    assert CUT in shown["content"]
    assert len(episode.segments[0].text) == 600


def test_a_policys_episode_is_one_row_in_which_no_observation_trains(envs):
    [policy] = load_policies({"policy": ModelConfig()}).values()
    engine = LocalEngine(policy)
    role = PolicyRole("agent", "policy", policy.tokenizer, Sampling(max_new_tokens=6), keeps=True)
    agent = an_agent(role, max_turns=4)
    [episode] = roll_out_free([agent(a_task(9))], {"policy": engine, "environment": envs})
    turns = [segment for segment in episode.segments if segment.role == "agent"]
    assert len(turns) == 4
    found = joined(turns, lambda turn: 1.0)
    if not found.num_broken:
        [row] = found.rows
        assert row.num_trained == sum(len(turn.tokens) for turn in turns)
        trained = np.asarray(row.tokens)[row.trains]
        assert trained.tolist() == [token for turn in turns for token in turn.tokens]
    assert engine.stream.prefixes.used == 0  # the episode has ended, and with it what was held for it


def test_a_context_that_has_grown_too_long_ends_the_episode(envs):
    [policy] = load_policies({"policy": ModelConfig()}).values()
    role = PolicyRole("agent", "policy", policy.tokenizer, Sampling(max_new_tokens=4))
    [episode] = roll_out([an_agent(role, max_turns=50, max_context=60)(a_task(99))],
                     {"policy": LocalEngine(policy).generate, "environment": envs})  # fmt: skip
    assert (episode.outcome, episode.reason) == ("truncated", FULL)
    assert 1 <= sum(segment.role == "agent" for segment in episode.segments) < 20


def test_a_context_that_reviews_have_filled_ends_the_episode_within_its_turn(envs):
    role = PolicyRole("agent", "policy", tiny_tokenizer(), Sampling(max_new_tokens=4))
    lengths = []

    def engine(requests):
        lengths.extend(len(request.context) for request in requests)
        return [Completion(tokens=(5,), logprobs=(-1.0,), stop_reason="length", version=0) for _ in requests]

    reviewer = Reviewer(lambda *_: ACTING.closing(right=False), ACTING, most=100)
    agent = replace(an_agent(role, max_turns=1, max_context=400, review=reviewer), parse=lambda text: Parsed("", "go"))
    [episode] = roll_out([agent(a_task(9))], {"policy": engine, "environment": envs})
    assert (episode.outcome, episode.reason) == ("truncated", FULL)
    assert 2 <= len(lengths) < 100
    assert max(lengths) <= 400
    assert [segment.role for segment in episode.segments] == ["observation", *["agent", "reviewer"] * len(lengths)]
    assert not any("action" in segment.parsed for segment in episode.segments)  # none was taken


def test_a_world_that_ends_an_episode_by_a_limit_of_its_own_is_no_horizon(envs):
    class Short(Counter):
        def step(self, action):
            return (*super().step(action)[:2], False, True, {})

    agent = replace(an_agent(Says("Action: go")), environment=info_of(Short))
    [episode] = roll_out([agent(a_task(9))], {"environment": envs})
    assert (episode.outcome, episode.reason, len(episode.segments)) == ("truncated", ENDED, 3)


def test_replies_that_cannot_be_read_are_answered_with_the_worlds_own_words(envs):
    """And not with the answer to the reply before, over and over."""
    agent = replace(an_agent(Says("no call")), parse=PARSERS.get("function_calling:maze"))
    [episode] = roll_out([agent(a_task(9))], {"environment": envs})
    answers = [segment.text for segment in episode.segments[2::2]]
    assert len(set(answers)) == 1
    assert answers[0].count("Invalid Action.") == 1
