"""An environment for other libraries' loops: the same episodes as in a run, and no score for what has broken."""

from __future__ import annotations

import asyncio
import json

import pytest

import whet
from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.formats import write
from whet.tool_calls import Call
from whet.trajectories.function_calls import FUNCTIONS, match, templates_of
from whet.trajectories.live import LiveEpisode
from whet.trajectories.tools import called_action, rules_for_tools, tools_of

QUICK = ("textcraft", "maze", "wordle")


def expert_actions(name: str, item: int) -> list[tuple[str, str]]:
    """Thoughts and actions of the scripted expert, from an episode of its own."""
    info = ENVIRONMENTS.get(name)
    environment = info.make()
    environment.reset(item, seed=0)
    moves, steps = info.expert(environment, seed=0), []
    while True:
        thought, action = next(moves)
        steps.append((thought, action))
        if any(environment.step(action)[2:4]):
            return steps


def as_call(name: str, action: str) -> Call:
    """The call of a tool that stands for an action."""
    for function, templates in FUNCTIONS[name].items():
        for template in templates_of(templates):
            if (arguments := match(template, action)) is not None:
                return Call(function, arguments)
    raise AssertionError(action)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("way", ["reply", "call", "act"])
def test_the_experts_episode_scores_in_full_by_every_way_of_acting(name, way):
    episode = LiveEpisode(name)
    for item in list(episode.items("test"))[:3]:
        steps = expert_actions(name, item)
        episode.reset(item)
        for thought, action in steps:
            if way == "reply":
                turn = episode.reply(write(thought, action, "react"))
            elif way == "call":
                call = as_call(name, action)
                turn = episode.call(call.name, call.arguments)
            else:
                turn = episode.act(action)
        assert turn.terminated
        assert episode.is_success
        assert episode.score == episode.info.score(turn.reward if name != "maze" else episode._total)
        assert episode.act("anything").observation == "The episode has ended."
        assert episode.is_success  # what comes after the end changes nothing
    episode.close()


def test_a_limit_of_turns_truncates_and_what_cannot_be_read_counts():
    episode = LiveEpisode("textcraft", max_turns=3)
    episode.reset(3)
    assert episode.reply("Thought: none\n\nAction: inventory\nAction: inventory").is_invalid
    assert episode.call("fly", {}).is_invalid
    last = episode.reply("Action: inventory")
    assert (last.is_invalid, last.truncated, last.terminated) == (False, True, False)
    assert episode.score == 0


def test_a_broken_environment_has_no_score():
    @whet.env("breaks_live", splits={"train": [0], "test": [1, 2, 3]})
    class Breaks:
        def reset(self, item, *, seed=0):
            self.item = item
            return "go", {}

        def step(self, action):
            if self.item == 1:
                raise OSError("the disk is gone")
            return "on", 0.75, False, False, {}

    episode = LiveEpisode("breaks_live")
    with pytest.raises(EnvError, match="no episode has begun"):
        _ = episode.score
    episode.reset(1)
    with pytest.raises(EnvError, match="breaks_live has broken: the disk is gone"):
        episode.act("go")
    with pytest.raises(EnvError, match="has no score: the disk is gone"):
        _ = episode.score
    assert not episode.is_success
    episode.reset(2)  # the next episode is another
    assert episode.act("go").reward == 0.75
    with pytest.raises(EnvError, match=r"rewards add up to 1\.5"):
        episode.act("go")
    with pytest.raises(EnvError, match="no split 'dev'; choose of: train, test"):
        episode.items("dev")


def test_coroutines_are_waited_for():
    @whet.env("late_live", splits={"train": [0], "test": [1]})
    class Late:
        async def reset(self, item, *, seed=0):
            await asyncio.sleep(0)
            return "go", {}

        async def step(self, action):
            return "on", 1.0, True, False, {}

    episode = LiveEpisode("late_live")
    assert episode.reset(1) == "go"
    assert episode.act("go").terminated
    assert episode.score == 1
    episode.close()


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_is_a_tool_and_its_call_the_action(name):
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools_of(name)}
    assert tools.keys() == FUNCTIONS[name].keys()
    for function, parameters in tools.items():
        arguments = dict.fromkeys(parameters["required"], "1")
        assert set(parameters["required"]) <= set(parameters["properties"])
        if set(arguments) == set(parameters["properties"]):
            action = called_action(name, function, arguments)
            assert "{" not in action.removesuffix(json.dumps(arguments))  # a tool's action ends in the arguments


def test_an_environment_without_functions_has_one_tool():
    [tool] = tools_of("of_mine")
    assert called_action("of_mine", tool["function"]["name"], {"action": "go north"}) == "go north"
    for name, arguments in (("go", {}), ("act", {"action": ["go"]}), ("act", {"text": "go"})):
        with pytest.raises(ValueError, match=r"no such function|not the function.s arguments|a text"):
            called_action("of_mine", name, arguments)


def test_rules_for_tools_end_before_the_form_of_a_reply():
    rules = LiveEpisode("maze").rules
    told = rules_for_tools(rules)
    assert "move up" in told
    assert "Thought" not in told
    assert "Reply in this form" not in told
    assert told.endswith("call one, and wait for what it gives.")
    assert rules_for_tools("Say heads or tails.") == "Say heads or tails."
