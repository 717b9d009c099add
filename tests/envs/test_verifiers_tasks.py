"""Tasksets of verifiers as environments: the real library where `WHET_VERIFIERS` names its Python, and failures of the
program that scores, without it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import whet
from support.json_server import JsonServer
from whet.envs import EnvError
from whet.envs.verifiers_tasks import from_verifiers

TASKSET = """
import verifiers.v1 as vf

class Data(vf.TaskData):
    answer: str = ""

class Task(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.reward(weight=0.75)
    async def right(self, trace):
        print("a line that is none of the answers")
        if trace.last_reply == "break":
            raise RuntimeError("the judge is away")
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.25)
    async def short(self, trace):
        return float(len(trace.last_reply) < 12)

class Config(vf.TasksetConfig):
    num_tasks: int = 10

class Goals(vf.Taskset[Task, Config]):
    INFINITE = False

    def load(self):
        for n in range(self.config.num_tasks):
            yield Task(Data(prompt="Goal: craft apple.", answer="inventory"), self.config.task)

__all__ = ["Goals"]
"""

TURNS = """
import verifiers.v1 as vf

class Data(vf.TaskData):
    secret: int = 0

class Task(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.reward(weight=0.5)
    async def polite(self, trace):
        return float("please" in trace.last_reply)

class Config(vf.TasksetConfig):
    num_tasks: int = 10

class Numbers(vf.Taskset[Task, Config]):
    def load(self):
        for n in range(self.config.num_tasks):
            prompt = None if n % 2 else f"Guess a number below {self.config.num_tasks}."
            yield Task(Data(prompt=prompt, system_prompt="You guess.", secret=n), self.config.task)

class EnvConfig(vf.EnvConfig):
    guesser: vf.AgentConfig = vf.AgentConfig(max_turns=6)

class Guessing(vf.Env[EnvConfig]):
    async def run(self, task, agents):
        async with agents.guesser.interaction(task) as guesser:
            said = await (guesser.turn() if task.data.prompt else guesser.turn("Guess!"))
            while not said.terminated:
                words = said.last_reply.split()
                if words == ["break"]:
                    raise RuntimeError("the game broke")
                guess = int(words[-1]) if words and words[-1].isdigit() else -1
                if guess == task.data.secret:
                    guesser.trace.record_reward("found", 1.0, 0.5)
                    return
                said = await guesser.turn("higher" if guess < task.data.secret else "lower")

__all__ = ["Numbers", "Guessing"]
"""


@pytest.fixture
def python(tmp_path, monkeypatch) -> str:
    """The Python that has verifiers, and a taskset in its path."""
    python = os.environ.get("WHET_VERIFIERS")
    if python is None:
        pytest.skip("WHET_VERIFIERS names no Python of an environment with verifiers 0.4")
    (tmp_path / "goals_vf.py").write_text(TASKSET)
    (tmp_path / "turns_vf.py").write_text(TURNS)
    (tmp_path / "endless_vf.py").write_text(TASKSET.replace("INFINITE = False", "INFINITE = True"))
    (tmp_path / "boxed_vf.py").write_text(
        TASKSET.replace("async def short(self, trace)", "async def short(self, trace, runtime)")
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return python


@pytest.mark.integration
def test_tasks_are_items_and_their_rewards_the_reward(python):
    tasks = from_verifiers("goals_vf", python=python, settings={"num_tasks": 6})
    assert tasks.splits() == {"train": range(5), "test": range(5, 6)}
    env = tasks()
    assert env.reset(5) == ("Goal: craft apple.", {})
    assert env.step("inventory")[1:4] == (1.0, True, False)
    assert env.step("get apple")[1] == 0.25
    assert env.step("")[4] == {"invalid": True}
    with pytest.raises(EnvError, match="the judge is away"):
        env.step("break")
    assert env.step("inventory")[1] == 1.0  # the program goes on
    env.close()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("goals_vf", {"size": 20, "test_size": 5}, "has 10 tasks, too few for size=20"),
        ("goals_vf", {"settings": {"tasks": 3}}, "tasks"),
        ("endless_vf", {}, "it has no end: give size and test_size"),
        ("boxed_vf", {}, "its reward short reads the runtime"),
        ("goals_vf", {"env": {"id": "user-sim"}}, "its agents are assistant, user: say which one is played"),
        ("goals_vf", {"env": {"id": "user-sim"}, "agent": "assistant"}, "its agent user needs a model of its own"),
        ("nowhere_vf", {}, "nowhere_vf"),
    ],
)
def test_what_is_no_task_of_one_reply_is_refused(python, name, settings, says):
    with pytest.raises(EnvError, match=says):
        from_verifiers(name, python=python, **settings).splits()


@pytest.mark.integration
def test_an_env_of_theirs_is_played_over_turns(python):
    tasks = from_verifiers("turns_vf", python=python, test_size=2)
    assert tasks.splits() == {"train": range(8), "test": range(8, 10)}
    env, other = tasks(), tasks()
    assert env.reset(6) == ("You guess.\n\nGuess a number below 10.", {})
    assert env.step("is it 3") == ("higher", 0.0, False, False, {})
    assert other.reset(3) == ("You guess.\n\nGuess!", {})  # two episodes at one time
    assert env.step("is it 8") == ("lower", 0.0, False, False, {})
    assert env.step("please 6") == ("The episode scores 1.", 1.0, True, False, {})
    assert other.step("") == ("higher", 0.0, False, False, {"invalid": True})
    assert other.step("3")[1:4] == (0.5, True, False)
    other.reset(5)
    env.reset(4)  # and left
    assert env.reset(2)[0].startswith("You guess.")
    with pytest.raises(EnvError, match="the game broke"):
        env.step("break")
    with pytest.raises(EnvError, match="no episode"):
        env.step("1")
    env.reset(0)
    replies = [env.step("7") for _ in range(6)]
    assert [reply[0] for reply in replies[:5]] == ["lower"] * 5
    assert replies[5][1:4] == (0.0, False, True)  # their max_turns
    assert other.step("5")[2]
    env.close()
    other.close()


@pytest.mark.integration
def test_the_other_agent_of_an_env_has_a_model_of_its_own(python):
    """verifiers' user-sim: the task's prompt is what the user wants, and the user is a model behind an endpoint."""
    lines = iter(["I would like an apple.", "With an inventory, please.", "###DONE###"])

    def answer(path, body):
        assert (path, body["model"]) == ("/v1/chat/completions", "someone")
        assert "Goal: craft apple." in body["messages"][0]["content"]
        message = {"role": "assistant", "content": next(lines)}
        return {
            "id": "1", "object": "chat.completion", "created": 0, "model": "someone",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }  # fmt: skip

    with JsonServer(answer) as server:
        user = {"model": "someone", "client": {"type": "eval", "base_url": f"{server.url}/v1"}}
        user["client"]["api_key_var"] = "WHET_NO_KEY"
        played = {"env": {"id": "user-sim", "user": user}, "agent": "assistant"}
        env = from_verifiers("goals_vf", python=python, **played)()
        assert env.reset(0) == ("I would like an apple.", {})
        assert env.step("Which?") == ("With an inventory, please.", 0.0, False, False, {})
        assert env.step("inventory")[1:4] == (1.0, True, False)
        env.close()


@pytest.mark.integration
def test_a_run_of_ours_learns_in_a_taskset_of_theirs(python, tmp_path):
    tasks = from_verifiers("goals_vf", python=python, size=6, test_size=2)
    whet.env("goals_of_verifiers", splits=tasks.splits, max_turns=1, parser="plain")(tasks)
    run = whet.train(
        "agent_grpo", out=tmp_path / "run", progress=False, num_threads=1, num_steps=1, prompts_per_step=2,
        group_size=2, format="plain", rules="none", sampling={"max_new_tokens": 8},
        data={"env": "goals_of_verifiers", "num_validation": 1, "num_test": 2},
    )  # fmt: skip
    assert 0 <= run.table["after"]["reward"] <= 1


@pytest.mark.integration
def test_a_run_of_ours_learns_over_turns_of_theirs(python, tmp_path):
    tasks = from_verifiers("turns_vf", python=python, size=6, test_size=2)
    whet.env("turns_of_verifiers", splits=tasks.splits, max_turns=3, parser="plain")(tasks)
    run = whet.train(
        "agent_grpo", out=tmp_path / "run", progress=False, num_threads=1, num_steps=1, prompts_per_step=2,
        group_size=2, format="plain", rules="none", sampling={"max_new_tokens": 8},
        data={"env": "turns_of_verifiers", "num_validation": 1, "num_test": 2},
    )  # fmt: skip
    assert 0 <= run.table["after"]["reward"] <= 1


# --- the program, without verifiers -----------------------------------------------------------------------------------


def program(tmp_path: Path, text: str) -> Path:
    """An executable in the place of a Python."""
    file = tmp_path / "python"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("exit 1", "has ended: see whether its Python has verifiers"),
        ("echo nothing", "has ended"),
        ("read line; echo '[]'", "has ended"),
        ("read line; echo '{\"prompts\": [3]}'", "its prompts are no whole texts"),
        ('read line; echo \'{"error": "ModuleNotFoundError: verifiers"}\'', "ModuleNotFoundError: verifiers"),
        ("exec sleep 60", "has not answered within 0.3 s"),
    ],
)
def test_a_program_that_fails_is_an_error_and_no_reward(tmp_path, text, says):
    with pytest.raises(EnvError, match=says):
        from_verifiers("theirs", python=program(tmp_path, text), timeout_s=0.3 if "sleep" in text else 20).splits()


@pytest.mark.parametrize("reward", ["NaN", "true", '"1"', "null", "1e12"])
def test_a_reward_that_is_no_number_is_an_error(tmp_path, reward):
    answers = f"""read line; echo '{{"prompts": ["a", "b"]}}'; read line; echo '{{"reward": {reward}}}'; read line"""
    env = from_verifiers("theirs", python=program(tmp_path, answers))()
    env.reset(0)
    with pytest.raises(EnvError, match="for a reward"):
        env.step("go")
    env.close()


def test_a_python_that_is_not_there_is_named():
    with pytest.raises(EnvError, match="/nowhere/python does not start"):
        from_verifiers("theirs", python="/nowhere/python").splits()
    with pytest.raises(ValueError, match="each split needs an item"):
        from_verifiers("theirs", python="python", size=0)
