"""`whet env export`: the packages import, and play. TRL's is played and trained here; verifiers' and OpenEnv's in
environments of their own, which `WHET_VERIFIERS` and `WHET_OPENENV` name by their Python."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.served import only_policies, served
from whet.cli.app import app
from whet.config.parts import ModelConfig
from whet.models.policy import load_policies
from whet.trajectories.tools import tools_of

SOURCES = [str(Path(__file__).parents[2] / place) for place in ("src", "packages/mathgrade/src")]


def export(folder: Path, *args: str) -> Path:
    done = CliRunner().invoke(app, ["env", "export", args[0], str(folder), *args[1:]])
    assert done.exit_code == 0, done.output
    return folder


def imported(folder: Path, module: str, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    return importlib.import_module(module)


def test_trls_environment_plays_an_episode_by_its_tools(tmp_path, monkeypatch):
    from transformers.utils import get_json_schema

    module = imported(export(tmp_path / "trl", "maze", "--as", "trl"), "whet_maze_trl", monkeypatch)
    environment = module.Maze()
    schema = get_json_schema(environment.move)["function"]
    assert schema["description"] == 'Does "move DIRECTION".'
    assert schema["parameters"]["required"] == ["direction"]
    row = module.rows("test", 1)[0]
    assert "move up" in row["prompt"][0]["content"]
    assert environment.reset(**row).strip().startswith("The goal is at")
    assert "walls to your right" in environment.move("down")
    assert environment.get_reward() == 0


@pytest.mark.parametrize("library", ["trl", "verifiers", "openenv"])
@pytest.mark.parametrize("name", ["textcraft", "babyai", "wordle", "sciworld"])
def test_every_file_of_every_package_is_python_and_names_its_requirements(tmp_path, library, name, monkeypatch):
    if name == "sciworld":
        pytest.importorskip("scienceworld")
    folder = export(tmp_path / "package", name, "--as", library)
    files = list(folder.rglob("*.py"))
    assert len(files) >= 2
    for file in files:
        compile(file.read_text(encoding="utf-8"), str(file), "exec")
        assert "$" not in file.read_text(encoding="utf-8")
    assert f'"{library}==' in (folder / "pyproject.toml").read_text(encoding="utf-8")
    assert "whet-rl" in (folder / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.integration
def test_trl_trains_in_the_exported_environment(tmp_path, monkeypatch):
    """One step of GRPO on a model that has learnt to call the tool: its calls reach the environment."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from support.tool_model import calling_model, tool_tokenizer

    module = imported(export(tmp_path / "trl", "maze", "--as", "trl"), "whet_maze_trl", monkeypatch)
    rows = module.rows("train", 4)
    reset = module.Maze().reset
    asked = [row["prompt"][0]["content"] + reset(**row) for row in rows]
    reply = '<tool_call>\n{"name": "move", "arguments": {"direction": "down"}}\n</tool_call>'
    tools = tools_of("maze")
    tokenizer = tool_tokenizer(tools, asked[0], [reply])
    model, end = calling_model(tokenizer, [([{"role": "user", "content": text}], reply) for text in asked], tools)
    tokenizer.eos_token_id = model.generation_config.eos_token_id = end
    trainer = GRPOTrainer(
        model=model, processing_class=tokenizer, train_dataset=Dataset.from_list(rows),
        environment_factory=module.Maze,
        args=GRPOConfig(
            output_dir=str(tmp_path / "out"), max_steps=1, num_generations=2, per_device_train_batch_size=2,
            max_completion_length=200, max_tool_calling_iterations=2, temperature=0.1, logging_steps=1, report_to=[],
            use_cpu=True, save_strategy="no",
        ),
    )  # fmt: skip
    trainer.train()
    [metrics] = [line for line in trainer.state.log_history if "reward" in line]
    assert metrics["tools/call_frequency"] > 0
    assert metrics["tools/failure_frequency"] == 0
    assert all(environment._episode._num_turns > 0 for environment in trainer.environments)


COIN = """
import whet
from sides import SIDES

@whet.env("coin_export", splits={"train": [0], "test": [1]}, rules="Say heads or tails.")
class Coin:
    def __init__(self, side=0):
        self.side = SIDES[side]

    def reset(self, item, *, seed=0):
        return "A coin was thrown.", {}

    def step(self, action):
        return f"It was {self.side}.", float(action == self.side), True, False, {}
"""


def test_a_plug_ins_environment_takes_its_files_and_settings_along(tmp_path):
    source = tmp_path / "mine"
    source.mkdir()
    (source / "coin.py").write_text(COIN)
    (source / "sides.py").write_text("SIDES = ['heads', 'tails']\n")
    folder = tmp_path / "package"
    export(folder, "coin_export", "side=1", "--as", "trl", "--plugins", str(source / "coin.py"))
    assert sorted(file.name for file in (folder / "whet_coin_export_trl" / "plugins").iterdir()) == [
        "coin.py",
        "sides.py",
    ]
    source.rename(tmp_path / "gone")
    code = "from whet_coin_export_trl import CoinExport; e = CoinExport(); e.reset(item=1); print(e.act('tails'), "
    code += "e.get_reward())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *SOURCES])},
    )  # fmt: skip
    assert done.stdout == "It was tails. 1.0\n", done.stderr


GRADER = "import whet\n@whet.grader('same_{name}')\ndef same(completion, answer):\n    return 1.0\n"


def test_plug_ins_of_one_file_name_do_not_overwrite_each_other(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.py").write_text(GRADER.format(name=name))
    folder, files = tmp_path / "package", [str(tmp_path / name / "same.py") for name in ("one", "two")]
    plugins = [part for file in files for part in ("--plugins", file)]
    done = CliRunner().invoke(app, ["env", "export", "maze", str(folder), "--as", "trl", *plugins])
    assert done.exit_code == 2
    assert f"{files[0]} and {files[1]} would be one file" in " ".join(done.output.split())
    assert not folder.exists()


def test_the_next_commands_install_the_folder_and_no_package_of_that_name(tmp_path, monkeypatch):
    """`pip install NAME` asks the index for NAME, even where a folder of that name is beside it."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["env", "export", "maze", "maze trl", "--as", "trl"])
    assert [line.strip() for line in done.output.splitlines()[1:]] == [
        "cd 'maze trl'", "pip install .", "python train.py MODEL",
    ]  # fmt: skip
    assert (tmp_path / "maze trl" / "pyproject.toml").is_file()
    assert (tmp_path / "maze trl" / "train.py").is_file()


@pytest.mark.parametrize(("args", "says"), [
    (["nowhere", "--as", "trl"], "nowhere"),
    (["maze", "speed=3", "--as", "trl"], "does not take these settings"),
    (["maze", "--as", "gym"], "'gym' is not one of"),
])  # fmt: skip
def test_what_cannot_be_exported_is_refused_and_nothing_written(tmp_path, args, says):
    folder = tmp_path / "package"
    done = CliRunner().invoke(app, ["env", "export", args[0], str(folder), *args[1:]])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())
    assert not folder.exists()
    folder.mkdir()
    (folder / "mine.txt").write_text("kept")
    done = CliRunner().invoke(app, ["env", "export", "maze", str(folder), "--as", "trl"])
    assert (done.exit_code, [file.name for file in folder.iterdir()]) == (2, ["mine.txt"])


# --- with the libraries themselves ------------------------------------------------------------------------------------


def python_of(variable: str) -> str:
    python = os.environ.get(variable)
    if python is None:
        pytest.skip(f"{variable} names no Python of an environment with the library")
    return python


@pytest.mark.integration
def test_verifiers_evaluates_the_taskset_against_whets_server(tmp_path):
    """By chat, and by its training client, which renders by itself and gets ids."""
    python = python_of("WHET_VERIFIERS")
    package = export(tmp_path / "package", "textcraft", "--as", "verifiers")
    policies = load_policies({"policy": ModelConfig(path="tiny_agent")})
    policies["policy"].tokenizer.save_pretrained(tmp_path / "tokenizer")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(package), *SOURCES]), "OPENAI_API_KEY": "none"}
    with served(only_policies(policies, 96)) as address:
        for kind in ("eval", "train"):
            out = tmp_path / kind
            more = ["--client.renderer-model-name", str(tmp_path / "tokenizer")] if kind == "train" else []
            done = subprocess.run(
                [
                    str(Path(python).with_name("vf-eval")), "whet_textcraft", "-n", "2", "-r", "1", "-m", "policy",
                    "--no-push", "--no-rich", "--client.type", kind, "--client.base-url", f"{address}/v1", *more,
                    "--env.agent.harness.id", "null", "--env.agent.runtime.type", "subprocess",
                    "--env.taskset.rules", "false", "-o", str(out),
                ],
                capture_output=True, text=True, env=environment, timeout=500, cwd=tmp_path,
            )  # fmt: skip
            [file] = out.rglob("traces.jsonl")
            episodes = [json.loads(line) for line in file.read_text().splitlines()]
            traces = [trace for episode in episodes for trace in episode["traces"]]
            assert len(traces) == 2, done.stdout[-2000:]
            assert [trace["errors"] for trace in traces] == [[], []]
            assert all(trace["rewards"]["score"]["score"] in (0.0, 1.0) for trace in traces)
            sampled = [node for trace in traces for node in trace["nodes"] if node["sampled"]]
            assert sampled
            if kind == "train":
                assert all(len(node["logprobs"]) == sum(node["mask"]) > 0 for node in sampled)


PLAY = """
import sys
from openenv import GenericEnvClient
with GenericEnvClient(base_url=sys.argv[1]).sync() as client:
    seen = client.reset(split="test", index=0, seed=0)
    print(seen.observation["metadata"]["item"] if "metadata" in seen.observation else seen.metadata["item"])
    for action in sys.argv[2:]:
        seen = client.step({"text": action})
    print(seen.done, seen.reward)
"""


@pytest.mark.integration
def test_openenvs_client_plays_the_experts_episode_on_the_server(tmp_path):
    import httpx

    from whet.envs import ENVIRONMENTS

    python = python_of("WHET_OPENENV")
    package = export(tmp_path / "package", "textcraft", "--as", "openenv")
    info = ENVIRONMENTS.get("textcraft")
    item = info.splits()["test"][0]
    world = info.make()
    world.reset(item, seed=0)
    moves, actions, over = info.expert(world, seed=0), [], False
    while not over:
        actions.append(next(moves)[1])
        over = world.step(actions[-1])[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(package), *SOURCES])}
    command = [python, "-m", "uvicorn", "whet_textcraft_openenv.server.app:app", "--port", "8971"]
    server = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        address = "http://127.0.0.1:8971"
        for _ in range(600):
            try:
                httpx.get(f"{address}/health")
                break
            except httpx.TransportError:
                assert server.poll() is None
                time.sleep(0.2)
        assert httpx.post(f"{address}/textcraft/num_tasks", json={"split": "test"}).json() == {
            "num_tasks": len(info.splits()["test"])
        }
        assert httpx.post(f"{address}/textcraft/task", json={"split": "test", "index": -1}).status_code == 400
        done = subprocess.run(
            [python, "-c", PLAY, address, *actions], capture_output=True, text=True, env=environment, timeout=120
        )
        assert done.stdout.split() == [str(item), "True", "1.0"], done.stderr[-2000:]
    finally:
        server.terminate()
        server.wait(20)
