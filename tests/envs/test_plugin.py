"""Environments of a user's own: what `@env` refuses, what it adds to a plain class, what the checks find."""

from __future__ import annotations

import asyncio
import random
import re
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner

import whet
from support.commands import whet as command
from whet.cli import app
from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.checks import check_env
from whet.envs.plugin import check_splits
from whet.plugins import load_plugins

ROOT = Path(__file__).parents[2]
SPLITS = {"train": range(6), "test": range(6, 9)}
NUMBERS = count()


class Coin:
    """A coin, thrown until it is guessed; three guesses at most."""

    def reset(self, item, *, seed=0):
        self.chance = random.Random(f"{item} {seed}")
        self.num_left = 3
        return f"Coin {item}.", {"actions": ("heads", "tails")}

    def step(self, action):
        self.num_left -= 1
        side = self.chance.choice(["heads", "tails"])
        is_right = action == side
        invalid = {} if action in ("heads", "tails") else {"invalid": True}
        return (
            f"It was {side}.",
            int(is_right),
            is_right,
            not is_right and not self.num_left,
            {
                "actions": ("heads", "tails"),
                **invalid,
            },
        )


def registered(thing, **more):
    name = f"of_a_test_{next(NUMBERS)}"
    whet.env(name, **{"splits": SPLITS, **more})(thing)
    return ENVIRONMENTS.get(name)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"rules": "Do \ud800"}, r"half a character \(a lone surrogate\) is in the rules of"),
        ({"says": "\ud800"}, "half a character"),
        ({"rewards": (0.0, 1e308)}, "a reward is at most 1e\\+09 in size"),
    ],
)
def test_half_characters_and_rewards_past_measure_are_refused_as_it_is_registered(more, says):
    with pytest.raises(ValueError, match=says):
        registered(Coin, **more)


# --- what is added ----------------------------------------------------------------------------------------------------


def test_a_class_with_two_methods_is_a_whole_environment():
    info = registered(Coin)
    assert check_env(info) == []
    assert ENVIRONMENTS.entry(info.name).says == "A coin, thrown until it is guessed; three guesses at most."
    assert (info.max_turns, info.kept_above, info.parser, dict(info.splits())) == (20, 0.99, "react", SPLITS)
    env = info.make()
    with pytest.raises(EnvError, match=r"of of_a_test_\d+ has not begun or has ended: call reset"):
        env.step("heads")
    with pytest.raises(EnvError, match="has no item 9; it has train: 6 from 0 to 5, test: 3 from 6 to 8"):
        env.reset(9)
    env.reset(8, seed=1)
    step = env.step("edge")
    assert step[1:] == (0.0, False, False, {"actions": ("heads", "tails"), "invalid": True})
    assert isinstance(step[1], float)


def test_the_class_stays_what_it_was_and_a_function_that_makes_worlds_does_too():
    def make(sides=2):
        return Coin()

    assert whet.env("of_a_test_class", splits=SPLITS)(Coin) is Coin
    assert whet.env("of_a_test_function", splits=lambda: SPLITS)(make) is make
    info = ENVIRONMENTS.get("of_a_test_function")
    assert isinstance(info.make(sides=3).env, Coin)
    assert check_env(info) == []


def test_a_fork_plays_the_same_actions_again():
    env = registered(Coin).make()
    env.reset(2, seed=5)
    env.step("edge")
    other = env.fork()
    assert other.env is not env.env
    assert other.state_key() == env.state_key() == (False, ((2, 5), ("edge",)))
    assert other.step("edge") == env.step("edge")
    other.step("edge")
    assert other.state_key() != env.state_key()
    with pytest.raises(EnvError):  # its third guess
        other.step("edge")
    env.step("edge")
    with pytest.raises(EnvError):
        env.fork().step("edge")  # a fork of what has ended has ended


def test_a_fork_of_a_world_that_does_not_repeat_is_refused():
    class Clock(Coin):
        times = count()

        def step(self, action):
            return (f"time {next(self.times)}", *super().step(action)[1:])

    info = registered(Clock)
    env = info.make()
    env.reset(0)
    env.step("edge")
    with pytest.raises(EnvError, match="turn 1 says something else when the same actions are done again"):
        env.fork()
    assert any("is another episode from turn 1 on" in sentence for sentence in check_env(info))


def test_what_a_world_has_of_its_own_is_used():
    class Own(Coin):
        closed = 0

        def fork(self):
            other = Own()
            other.chance, other.num_left = random.Random(), self.num_left
            other.chance.setstate(self.chance.getstate())
            return other

        def state_key(self):
            return self.num_left, self.chance.getstate()

        def close(self):
            Own.closed += 1

    info = registered(Own)
    assert check_env(info) == []
    assert Own.closed > 5
    env = info.make()
    env.reset(0)
    assert env.state_key()[1][0] == 3
    assert env.fork().state_key() == env.state_key()


def test_coroutine_functions_are_awaited():
    class Slow(Coin):
        async def reset(self, item, *, seed=0):
            await asyncio.sleep(0)
            return Coin.reset(self, item, seed=seed)

        async def step(self, action):
            await asyncio.sleep(0)
            return Coin.step(self, action)

    plain, env = registered(Coin).make(), registered(Slow).make()

    async def roll_out():
        return [await env.reset(3, seed=1), await env.step("heads")]

    assert asyncio.run(roll_out()) == [plain.reset(3, seed=1), plain.step("heads")]
    with pytest.raises(EnvError, match="coroutines, which cannot be repeated at once: give it a fork"):
        env.fork()


def test_an_expert_sees_the_users_own_world():
    def expert(env, *, seed=0):
        while True:
            peek = random.Random()
            peek.setstate(env.chance.getstate())
            yield "I know how it will fall.", peek.choice(["heads", "tails"])

    info = registered(Coin, expert=expert)
    assert check_env(info) == []


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("splits", "says"),
    [
        ({"train": range(3)}, "has no split 'test': give splits="),
        (5, "has no split 'train'"),
        ({"train": range(3), "test": range(2, 5)}, "'train' and 'test' of the environment 'x' share item 2"),
        ({"train": range(10**12), "test": [7]}, "share item 7"),
        ({"train": [1], "test": [2], "validation": [1]}, "'train' and 'validation' .* share item 1"),
        ({"train": [1, 1], "test": [2]}, "the split 'train' .* holds an item twice"),
        ({"train": [], "test": [2]}, r"the split 'train' .* is '\[\]': give a range or a list"),
        ({"train": {1, 2}, "test": [3]}, "give a range or a list"),
        ({"train": [-1], "test": [2]}, "holds -1: items are whole numbers from 0"),
        ({"train": range(-1, 3), "test": [5]}, "holds -1"),
        ({"train": ["a"], "test": [2]}, "holds 'a'"),
        ({"train": [True], "test": [2]}, "holds True"),
    ],
)
def test_splits_that_are_none(splits, says):
    with pytest.raises(ValueError, match=says):
        whet.env("x", splits=splits)


def test_published_lists_may_share_items():
    check_splits("x", {"train": [1], "test": [2], "published_train": [1, 2], "published_test": [2]})


def test_splits_of_a_function_are_checked_when_they_are_read():
    info = registered(Coin, splits=lambda: {"train": range(3), "test": range(3)})
    with pytest.raises(EnvError, match="share item 0"):
        info.splits()


class NoStep:
    def reset(self, item, *, seed=0): ...


class NoSeed:
    def reset(self, item): ...
    def step(self, action): ...


class Asks(Coin):
    def __init__(self, length): ...


@pytest.mark.parametrize(
    ("thing", "more", "says"),
    [
        (NoStep, {}, r"needs step\(self, action\): write it in NoStep"),
        (NoSeed, {}, r"needs reset\(self, item, \*, seed\): write it in NoSeed"),
        (Asks, {}, "made without arguments: give each setting a default"),
        (5, {}, "is int: decorate a class, or a function that makes environments"),
        (Coin, {"max_turns": 0}, "one turn at least"),
        (Coin, {"rewards": (1.0, 0.0)}, "the least and the greatest"),
        (Coin, {"rewards": (0.0, 0.5)}, "success_above=0.99, and its rewards go from 0 to 0.5"),
        (Coin, {"scale": 2.0}, "scale=2: give what"),
        (Coin, {"parser": "reakt"}, "parser='reakt'; choose of: "),
        (Coin, {"expert": lambda env: None}, r"has to take \(env, \*, seed\)"),
    ],
)
def test_what_is_no_environment(thing, more, says):
    with pytest.raises(ValueError, match=says):
        whet.env("x", **{"splits": SPLITS, **more})(thing)
    assert "x" not in ENVIRONMENTS


@pytest.mark.parametrize(
    ("began", "stepped", "says"),
    [
        ("text", None, r"reset has to return \(observation, info\), and returned str 'text'"),
        (("text", None), None, "info has to be a dict, {} where there is nothing to say; reset gave NoneType"),
        ((5, {}), None, "an observation has to be a text, and reset gave int '5'"),
        (("", {}), ("", 0.0, True, {}), "step has to return"),
        (("", {}), ("", "1.0", True, False, {}), "of at most 1e\\+09 in size, and step gave str '1.0'"),
        (("", {}), ("", 1e308, True, False, {}), "a reward has to be a finite number of at most 1e\\+09 in size"),
        (("", {}), ("", 10**400, True, False, {}), "a reward has to be a finite number of at most 1e\\+09 in size"),
        (("a\ud800", {}), None, "an observation holds half a character \\(a lone surrogate\\), and reset gave"),
        (("", {}), ("a\udfff", 1.0, True, False, {}), "an observation holds half a character"),
        (("", {}), ("", float("nan"), True, False, {}), "finite number"),
        (("", {}), ("", None, True, False, {}), "finite number"),
    ],
)
def test_a_world_that_answers_something_else(began, stepped, says):
    class World:
        def reset(self, item, *, seed=0):
            return began

        def step(self, action):
            return stepped

    env = registered(World).make()

    def roll_out():
        env.reset(0)
        env.step("")

    with pytest.raises(EnvError, match=says):
        roll_out()


def test_a_function_that_makes_no_world():
    info = registered(lambda: 5)
    with pytest.raises(EnvError, match=r"is int, which has no reset\(item, \*, seed\): add it"):
        info.make()


# --- the checks -------------------------------------------------------------------------------------------------------


class Die(Coin):
    """A die with so many sides that no two throws are alike by luck."""

    def step(self, action):
        observation, *rest = super().step(action)
        return f"{observation} {self.chance.random()}", *rest


class Leaky(Die):
    """Chance goes on from one episode to the next."""

    chance = None

    def reset(self, item, *, seed=0):
        kept = self.chance
        found = super().reset(item, seed=seed)
        self.chance = kept or self.chance
        return found


class Fragile(Die):
    """Raises at what it does not know."""

    def step(self, action):
        {"heads": 0, "tails": 1}[action]
        return super().step(action)


class Generous(Die):
    """Pays two at the end, whatever was guessed."""

    def step(self, action):
        observation, _, terminated, truncated, about = super().step(action)
        return observation, 2.0 * (terminated or truncated), terminated, truncated, about


class Shared(Die):
    """Its fork is itself."""

    def fork(self):
        return self


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (Leaky, "is another episode from turn 1 on, though item, seed and actions are the same"),
        (Leaky, "after a reset in mid-episode"),
        (Fragile, "the action '' is not answered: KeyError"),
        (Generous, r"add up to 2, outside of rewards=\(0.0, 1.0\)"),
        (Shared, "a fork answers the same actions otherwise"),
    ],
)
def test_the_checks_find(env, says):
    found = check_env(registered(env))
    assert any(re.search(says, sentence) for sentence in found), found


def test_an_expert_that_never_succeeds_is_found():
    def expert(env, *, seed=0):
        while True:
            yield "", "edge"

    (found,) = check_env(registered(Coin, expert=expert))
    assert "its expert has success in none of the items" in found


# --- as the documentation has it --------------------------------------------------------------------------------------


def blocks(name: str) -> dict[str, str]:
    """The code blocks of a page that name their file."""
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    return {file: code for code, file in re.findall(r"```python\n(# (\w+\.py)\n.*?)```", text, re.DOTALL)}


def test_the_environment_of_the_documentation(tmp_path):
    file = tmp_path / "corridor.py"
    file.write_text(blocks("plugins.md")["corridor.py"])
    load_plugins([file])
    info = ENVIRONMENTS.get("corridor")
    assert check_env(info) == []
    assert ENVIRONMENTS.entry("corridor").says == "Find the door at one end of a corridor."
    listed = " ".join(command("list", "environments", "--plugins", file).stdout.split())
    assert "corridor Find the door at one end of a corridor. corridor.py" in listed
    episodes = command("env", "play", "corridor", "--plugins", file, "--expert", "--item", 41).stdout
    assert "corridor, item 41: reward 1, success" in episodes
    ended = command("env", "play", "corridor", "--plugins", file, "--item", 41).stdout  # an input with nothing in it
    assert ended.splitlines()[-1] == "corridor, item 41: reward 0, no success"


LONG = """
import whet


def walk(env, *, seed=0):
    while True:
        yield "On.", "on"


@whet.env("long_walk", splits={"train": range(8), "test": range(8, 16)}, max_turns=3, rules="Walk.", expert=walk)
class LongWalk:
    def reset(self, item, *, seed=0):
        self.left = item - 4
        return "Go.", {}

    def step(self, action):
        self.left -= 1
        return "On.", float(self.left == 0), self.left == 0, False, {}
"""


def test_play_ends_at_the_limit_of_turns_for_the_expert_and_for_people(tmp_path):
    """Item 7 is done in the third and last turn, and item 8 would be in the fourth."""
    file = tmp_path / "long_walk.py"
    file.write_text(LONG)

    def ended(*options, typed=""):
        done = CliRunner().invoke(app, ["env", "play", "long_walk", "--plugins", str(file), *options], input=typed)
        return done.stdout.splitlines()[-1]

    cut = "long_walk, item 8: reward 0, no success, cut after 3 turns, the limit (max_turns)"
    assert ended("--item", "8", "--expert") == cut
    assert ended("--item", "8", typed="on\n" * 9) == cut
    assert ended("--item", "7", "--expert") == "long_walk, item 7: reward 1, success"


EXPERTS = """
import whet


def on(env, *, seed=0):
    yield "On.", "on"


def action_alone(env, *, seed=0):
    yield "on"


def no_generator(env, *, seed=0):
    return "on"


def register(name, expert):
    @whet.env(name, splits={"train": range(4), "test": range(4, 6)}, max_turns=3, rules="Walk.", expert=expert)
    class Walk:
        async def reset(self, item, *, seed=0):
            return "Go.", {}

        async def step(self, action):
            return "On.", 0.0, False, False, {}


for expert in (on, action_alone, no_generator):
    register(expert.__name__, expert)
"""


@pytest.fixture(scope="module")
def experts(tmp_path_factory):
    file = tmp_path_factory.mktemp("experts") / "experts_that_stop.py"
    file.write_text(EXPERTS)
    return file


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("on", 0, "reward 0, no success: the expert stopped after 1 turn, and the episode goes on; let it yield until"),
        ("action_alone", 2, "the expert of the environment 'action_alone' yielded 'on': it has to yield a thought and"),
        ("no_generator", 2, "the expert of the environment 'no_generator' returned 'on': let it yield a thought and"),
    ],
)
def test_an_expert_that_stops_early_or_yields_no_move_is_a_sentence(experts, name, code, says):
    done = CliRunner().invoke(app, ["env", "play", name, "--plugins", str(experts), "--expert"])
    assert done.exit_code == code
    assert "Traceback" not in done.output
    assert says in " ".join(done.output.split())


@pytest.mark.integration
def test_worlds_of_others_of_the_documentation(tmp_path):
    pytest.importorskip("gymnasium")
    pytest.importorskip("reasoning_gym")
    file = tmp_path / "others.py"
    file.write_text(blocks("plugins.md")["others.py"])
    load_plugins([file])
    assert check_env(ENVIRONMENTS.get("lake")) == []
    assert check_env(ENVIRONMENTS.get("sums")) == []
