"""Worlds of others: gymnasium's by texts, and reasoning-gym's questions, scored where nothing can be harmed."""

from __future__ import annotations

import pytest

import whet
from whet.envs import ENVIRONMENTS, EnvError
from whet.envs import adapters as module
from whet.envs.checks import check_env
from whet.types import Grade

gymnasium = pytest.importorskip("gymnasium")
SPLITS = {"train": range(6), "test": range(6, 9)}
ACTIONS = {"left": 0, "right": 1}


class Walk(gymnasium.Env):
    """From a place drawn from its own generator to the right end; a step may slip."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Discrete(6)
    render_mode = "ansi"

    def __init__(self, slips=True, seeds=None):
        self.slips, self.seeds, self.place, self.num_closed = slips, seeds, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.seeds is not None:
            self.seeds.append(seed)
        self.place = int(self.np_random.integers(0, 4))
        return self.place, {"start": self.place}

    def step(self, action):
        assert action in (0, 1), "an action that was never checked came through"
        slips = self.slips and self.np_random.random() < 0.2
        self.place = max(0, self.place + (2 * action - 1) * (not slips))
        return self.place, self.np_random.random() * 0 + float(self.place >= 5), self.place >= 5, False, {}

    def render(self):
        return "." * self.place + "@"

    def close(self):
        self.num_closed += 1


def registered(name, maker, **more):
    whet.env(name, **{"splits": SPLITS, **more})(maker)
    return ENVIRONMENTS.get(name)


@pytest.mark.parametrize("copies", [False, True])
def test_a_gymnasium_environment_keeps_what_one_of_ours_keeps(copies):
    maker = whet.from_gymnasium(Walk, actions=ACTIONS, copies=copies)
    info = registered(f"walk_{copies}", maker)
    assert check_env(info) == []
    assert hasattr(info.make().env, "fork") == copies


def test_names_stand_for_actions_and_others_are_answered():
    env = whet.from_gymnasium(lambda: Walk(slips=False), actions=ACTIONS)()
    said, info = env.reset(1, seed=2)
    assert info == {"start": int(said), "actions": ("left", "right")}
    assert env.step("up") == (
        "There is no such action. Choose of: left, right.", 0.0, False, False,
        {"invalid": True, "actions": ("left", "right")},
    )  # fmt: skip
    assert env.step(" right\n")[0] == str(int(said) + 1)
    for _ in range(4 - int(said)):
        last = env.step("right")
    assert last == ("5", 1.0, True, False, {"actions": ("left", "right")})
    assert (type(last[1]), type(last[2])) == (float, bool)


def test_each_pair_of_item_and_seed_has_a_seed_of_its_own():
    seeds = []
    env = whet.from_gymnasium(lambda: Walk(seeds=seeds), actions=ACTIONS)()
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 0)]
    for item, seed in pairs:
        env.reset(item, seed=seed)
    assert len(set(seeds)) == 4
    assert seeds[0] == seeds[4]
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_an_item_may_be_settings():
    made = []

    def make(**settings):
        made.append(Walk(**settings))
        return made[-1]

    env = whet.from_gymnasium(make, items=[{"slips": False}, {"slips": True}], actions=ACTIONS)()
    assert not made
    env.reset(1)
    env.reset(0)
    assert [each.slips for each in made] == [True, False]
    assert [each.num_closed for each in made] == [1, 0]
    with pytest.raises(EnvError, match="there is no item 2: `items` has 2"):
        env.reset(2)
    env = whet.from_gymnasium(make, items=lambda item: {"slips": item % 2 == 0}, actions=ACTIONS)()
    env.reset(7)
    assert made[-1].slips is False


def test_a_function_may_read_actions_and_the_space_has_the_last_word():
    env = whet.from_gymnasium(lambda: Walk(slips=False), actions=int)()
    env.reset(0)
    for text in ("two", "", "7", "-1"):
        assert env.step(text)[0] == "There is no such action."
    assert not env.step("1")[4]


class Echo(gymnasium.Env):
    """Takes text as it is."""

    action_space = gymnasium.spaces.Text(5)

    def reset(self, *, seed=None, options=None):
        return {"mission": "say hello"}, {}

    def step(self, action):
        return {"mission": action}, float(action == "hello"), action == "hello", False, {}


def test_texts_go_as_they_are():
    env = whet.from_gymnasium(Echo, text=lambda seen: seen["mission"])()
    assert env.reset(0) == ("say hello", {})
    assert env.step("hello!")[4] == {"invalid": True}  # six characters
    assert env.step("hello")[:3] == ("hello", 1.0, True)


def test_pictures_of_text_may_be_shown():
    env = whet.from_gymnasium(lambda: Walk(slips=False), actions=ACTIONS, text="render")()
    said, about = env.reset(0)
    assert said == "." * about["start"] + "@"


@pytest.mark.parametrize(
    ("make", "more", "says"),
    [
        (Walk, {}, r"its actions are Discrete\(2\), no texts: name them"),
        (Walk, {"actions": {"up": 5}}, r"'up' stands for 5, which is not in Discrete\(2\)"),
        (Walk, {"actions": ACTIONS, "text": lambda place: place}, "text= gave int where a text is needed"),
        (Echo, {"text": "render"}, r"render\(\) gave NoneType where a text is needed: make it with render_mode"),
    ],
)
def test_what_does_not_fit(make, more, says, monkeypatch):
    monkeypatch.setattr(Echo, "render", lambda self: None)
    with pytest.raises(EnvError, match=says):
        whet.from_gymnasium(make, **more)().reset(0)


def test_without_gymnasium_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(EnvError, match=r"make setup EXTRAS=envs"):
        whet.from_gymnasium(Walk, actions=ACTIONS)()


# --- reasoning-gym ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sums():
    pytest.importorskip("reasoning_gym")
    found = whet.from_reasoning_gym("chain_sum", size=4, test_size=2)
    env = found()
    yield found
    env.close()


def test_a_question_is_a_world_of_one_step(sums):
    info = registered("sums_of_a_test", sums, splits=sums.splits, expert=sums.expert, max_turns=1)
    assert {split: tuple(items) for split, items in info.splits().items()} == {"train": (0, 1, 2, 3), "test": (4, 5)}
    env = info.make()
    question, _ = env.reset(5)
    assert len({env.reset(item)[0] for item in range(6)}) == 6
    right = next(info.expert(env))[1]
    assert env.reset(5, seed=9)[0] == question  # there is no chance in it
    assert env.step(right) == ("The answer scores 1.", 1.0, True, False, {})
    for said, score in ((f"The answer is {right}.", 1.0), (f"<answer>{right}</answer>", 1.0), ("no", 0.0), ("", 0.0)):
        env.reset(5)
        assert info.score(env.step(said)[1]) == pytest.approx(score, abs=0.02)
    env.reset(5)
    assert env.step(" ")[4] == {"invalid": True}
    env.close()


def test_what_could_not_be_scored_is_no_zero(sums, monkeypatch):
    env = sums()
    env.reset(0)
    monkeypatch.setattr(module.GymGrader, "grade", lambda self, items: [Grade(score=None, reason="it died")])
    with pytest.raises(EnvError, match="an answer to chain_sum could not be scored: it died"):
        env.step("1")
    env.close()


def test_the_questions_repeat_and_other_seeds_have_others(sums):
    again, other = (whet.from_reasoning_gym("chain_sum", size=4, test_size=2, seed=seed) for seed in (0, 1))
    asked = [[each.task(item).prompt for item in range(6)] for each in (sums, again, other)]
    assert asked[0] == asked[1]
    assert not set(asked[0]) & set(asked[2])


def test_the_last_world_ends_the_processes(sums, monkeypatch):
    closed = []
    monkeypatch.setattr(module.GymGrader, "close", lambda self: closed.append(self))
    questions = whet.from_reasoning_gym("chain_sum", size=1)
    one, two = questions(), questions()
    one.reset(0)
    monkeypatch.setattr(module.GymGrader, "grade", lambda self, items: [Grade(score=1.0)])
    one.step("1")
    one.close()
    one.close()
    assert not closed
    two.close()
    assert len(closed) == 1


def test_what_reasoning_gym_has_not():
    pytest.importorskip("reasoning_gym")
    with pytest.raises(EnvError, match=r"from_reasoning_gym\('chain_sums'\): .* has no dataset 'chain_sums'"):
        whet.from_reasoning_gym("chain_sums", size=1).task(0)
    with pytest.raises(ValueError, match="size=0 and test_size=1: each split needs an item"):
        whet.from_reasoning_gym("chain_sum", size=0)
