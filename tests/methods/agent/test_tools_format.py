"""Agents that act by calls of tools: what a chat template shows them, what they learn, and who is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

import whet
from support.tool_model import tool_tokenizer
from whet.chat import render
from whet.config import ConfigError
from whet.envs import ENVIRONMENTS
from whet.envs.formats import PARSERS, WRITERS, Parsed
from whet.methods.environment_tasks import format_of, rules_of
from whet.tool_calls import has_call
from whet.trajectories.experts import expert_trajectories
from whet.trajectories.masks import sft_row
from whet.trajectories.tools import NO_SUCH_CALL, NO_TOOL_CALL, SEVERAL_CALLS, tools_of, tools_text

PLUGIN = """
import whet
@whet.env("colours", splits={"train": range(8), "test": range(8, 12)}, max_turns=3, parser="plain")
class Colours:
    def reset(self, item, *, seed=0):
        self.num_said = 0
        return "Say red.", {}
    def step(self, action):
        self.num_said += 1
        is_right = action == ("red", "blue")[self.num_said - 1]
        return "Say blue.", float(is_right) / 2, self.num_said == 2, False, {}
"""


def test_a_call_is_read_as_the_action_that_it_stands_for():
    read = PARSERS.get("tools:textcraft")
    call = '<tool_call>\n{"name": "get", "arguments": {"item": "oak log"}}\n</tool_call>'
    assert read(f"I need wood.\n{call}") == Parsed("I need wood.", "get oak log")
    assert WRITERS.get("tools:textcraft")("I need wood.", "get oak log") == f"I need wood.\n{call}"
    assert read("I need wood.") == Parsed("I need wood.", "", NO_TOOL_CALL)
    assert read(call + call) == Parsed("", "", SEVERAL_CALLS)
    assert read(call.replace("get", "fetch")) == Parsed("", "", NO_SUCH_CALL)
    assert read(call.replace("item", "thing")) == Parsed("", "", NO_SUCH_CALL)
    act = PARSERS.get(format_of(replace(ENVIRONMENTS.get("maze"), name="mine"), "tools"))
    assert act('<tool_call>{"name": "act", "arguments": {"action": "wink"}}</tool_call>') == Parsed("", "wink")


def test_numbers_are_numbers_unless_they_would_change():
    write, read = WRITERS.get("tools:sciworld"), PARSERS.get("tools:sciworld")
    assert '{"duration": 3}' in write("", "wait3")
    for action in ("wait3", "wait03", "wait", "use axe on tree"):
        assert read(write("", action)).action == action


@pytest.mark.parametrize("name", ["maze", "textcraft", "babyai"])
def test_what_is_learnt_are_the_tokens_that_an_agent_reads_and_writes(name):
    """For each turn, the tokens before it are those of the prompt that a rollout renders, roles and tools included."""
    info = ENVIRONMENTS.get(name)
    [episode] = expert_trajectories(
        info, [info.splits()["train"][0]], rules=rules_of(info, "tools").text, seed=0, format=f"tools:{name}"
    )
    assert all(has_call(reply) for reply in episode.replies())
    tokenizer = tool_tokenizer(tools_of(name), replies=[message.text for message in episode.messages])
    row = sft_row(replace(episode, tools=tools_text(name)), tokenizer)
    chat = list[dict[str, str]]()
    for message in episode.messages:
        if message.trains:
            prompt = render(tokenizer, chat, tools=tools_text(name))
            assert row.ids[: len(prompt)] == prompt
            assert row.mask[len(prompt)]
            assert not row.mask[len(prompt) - 1]
        role = "assistant" if message.who == "gpt" else "tool" if chat and has_call(chat[-1]["content"]) else "user"
        chat.append({"role": role, "content": message.text})
    assert [message["role"] for message in chat[:5]] == ["user", "assistant", "user", "assistant", "tool"]
    learnt = tokenizer.decode(np.asarray(row.ids)[np.asarray(row.mask)])
    assert learnt == "".join(reply + tokenizer.eos_token for reply in episode.replies())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A plug-in with an environment, one episode of it in words, and a model of random weights that has tools."""
    folder = tmp_path_factory.mktemp("tools")
    (folder / "colours.py").write_text(PLUGIN)
    said = ["", "OK.", "Say red.", "red", "Say blue.", "blue", "Say blue."]
    chat = [
        {"from": ("human", "gpt")[number % 2], "value": text, "loss": (None, number > 1)[number % 2]}
        for number, text in enumerate(said)
    ]
    rows = [{"item_id": f"colours_{number}", "conversations": chat, "format": "plain"} for number in range(4)]
    (folder / "colours_train.json").write_text(json.dumps(rows))
    tokenizer = tool_tokenizer(tools_of("colours"), asked="Say red.", replies=['{"name": "act"}'])
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder


def settings_of(place, **more):
    return {
        "policy": {"path": str(place / "model")}, "plugins": [str(place / "colours.py")], "format": "tools",
        "data": {"env": "colours", "num_test": 2, "num_validation": 1}, "num_threads": 1, "rules": "none",
        "progress": False, "sampling": {"max_new_tokens": 40}, **more,
    }  # fmt: skip


@pytest.mark.integration
def test_a_model_learns_to_call_tools_and_goes_on_by_reinforcement(place, tmp_path):
    """It clones an episode that stands in words in its file, calls the tool where it wrote nothing that is read, and
    `agent_grpo` trains the same rows that were shown at play."""
    cloned = whet.train(
        "agent_clone", out=tmp_path / "cloned",
        **settings_of(place, trajectories=[str(place / "colours_train.json")], num_steps=80, rows_per_step=2,
                      validate_every=80, learning={"learning_rate": 5e-3}),
    )  # fmt: skip
    assert cloned.table["before"]["success"] == 0
    assert cloned.table["after"]["success"] == 1
    assert cloned.table["after"]["invalid"] == 0

    run = whet.train(
        "agent_grpo", out=tmp_path / "run",
        **settings_of(place, policy={"path": str(cloned.best)}, prompts_per_step=2, group_size=2, num_steps=1),
    )  # fmt: skip
    [row] = [row for row in run.metrics_of("train") if row["step"] == 1]
    assert row["reward/success"] > 0
    assert row["turns/broken"] == 0  # each turn's prompt continues the turn before, so an episode is one row


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"policy": {"path": "tiny_agent"}}, "with policy: its chat template does not show tools"),
        ({"beside": {"other": {"path": "tiny_agent"}}}, "with other: its chat template does not show tools"),
    ],
)
def test_a_model_without_tools_is_refused_before_anything_runs(place, tmp_path, settings, says):
    with pytest.raises(ConfigError, match=f"^format = tools does not go {says}; set format=function_calling"):
        whet.train("agent_grpo", out=tmp_path / "run", **settings_of(place, prompts_per_step=2, **settings))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_template_that_writes_calls_otherwise_is_refused(place, tmp_path):
    shutil.copytree(place / "model", tmp_path / "model")
    template = tmp_path / "model" / "chat_template.jinja"
    template.write_text(template.read_text().replace("<tool_call>", "[CALL]"))
    with pytest.raises(
        ConfigError, match="with policy: its chat template writes calls otherwise than <tool_call>, a JSON"
    ):
        whet.evaluate("agent", **settings_of(place, policy={"path": str(tmp_path / "model")}))


def test_an_endpoint_is_refused(place, tmp_path):
    endpoint = {"kind": "endpoint", "url": "http://127.0.0.1:9/v1", "model": "any"}
    with pytest.raises(ConfigError, match=r"^format = tools shows tools by a model's own chat template, and policy is"):
        whet.evaluate("agent", **settings_of(place, policy=endpoint))
