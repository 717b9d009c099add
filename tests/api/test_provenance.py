"""A model's licence and source go from its file to the card of what is trained from it; folders of ours do not."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from peft import PeftModel
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

import whet
from models.test_gguf import bpe as bpe  # a fixture
from support.gguf_files import random_model as made_model
from support.gguf_files import write_gguf
from whet.api.card_origin import method_in_words, method_name, papers
from whet.cli import app
from whet.methods import ALGORITHMS
from whet.methods.policy.policy_gradient_config import PolicyGradientConfig
from whet.models.packaged import get
from whet.models.provenance import NOT_STATED, licence_in_words, public, public_name, source_of
from whet.trainer.checkpoint import newest_first

SMALL: dict[str, Any] = {
    "num_threads": 1, "num_steps": 1, "prompts_per_step": 2, "group_size": 2, "progress": False,
    "data": {"num_train": 8, "num_validation": 2, "num_test": 2},
    "sampling": {"max_new_tokens": 4}, "evaluation": {"num_samples": 0},
}  # fmt: skip
STATED = {
    "general.name": "Tiny Two",
    "general.license": "other",
    "general.license.name": "tiny-research",
    "general.license.link": "https://example.org/LICENSE",
    "general.source.repo_url": "https://huggingface.co/example/tiny-two",
}


def got(folder: Path, bpe, more: dict[str, Any]) -> tuple[Path, list[str]]:
    """What `whet get` makes of a GGUF file with these keys, and the lines that it says."""
    file = write_gguf(folder / "tiny.gguf", made_model("qwen2", bpe.get_vocab_size(), tied=True), bpe, pre="qwen2",
                      more=more)  # fmt: skip
    lines: list[str] = []
    get(str(file), folder / "model", lines.append)
    return folder / "model", lines


def head_of(card: str) -> dict[str, Any]:
    return yaml.safe_load(card.split("---\n")[1])


def test_a_stated_licence_goes_from_the_file_to_the_card_and_on(tmp_path, bpe):
    model, lines = got(tmp_path, bpe, STATED)
    assert "licence other (tiny-research, https://example.org/LICENSE)" in lines
    (model / "LICENSE").write_text("You may.\n")
    own = json.loads((model / "provenance.json").read_text())
    licence = {"license": "other", "license_name": "tiny-research", "license_link": "https://example.org/LICENSE"}
    assert own.items() >= {**licence, "base_model": "example/tiny-two", "name": "Tiny Two"}.items()

    run = whet.train("grpo", out=tmp_path / "first", policy={"path": str(model)}, **SMALL)
    assert json.loads((run.folder / "env.json").read_text())["models"] == {"policy": own}
    for name in ("policy", "policy_best"):
        place = newest_first(run.folder)[0] / "policies" / name
        expected = {**licence, "base_model": "example/tiny-two", "trained_from": own}
        assert json.loads((place / "provenance.json").read_text()) == expected
        assert (place / "LICENSE").read_text() == "You may.\n"

    # Trained on, from the best policy of that run, whose first model is gone.
    shutil.rmtree(model)
    again = whet.train("grpo", out=tmp_path / "second", policy={"path": str(run.folder / "best")}, **SMALL)
    done = CliRunner().invoke(app, ["export", str(again.folder), str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "licence other (tiny-research, https://example.org/LICENSE)" in " ".join(done.output.split())
    card = (tmp_path / "out" / "README.md").read_text()
    assert head_of(card).items() >= {**licence, "base_model": "example/tiny-two"}.items()
    assert f"| which came from | a file on disk, file `tiny.gguf`, sha256 {own['sha256']} |" in card
    assert "Its text is in `LICENSE`." in card
    assert (tmp_path / "out" / "LICENSE").read_text() == "You may.\n"


def test_a_file_that_states_no_licence_is_said_to_state_none(tmp_path, bpe):
    model, lines = got(tmp_path, bpe, {"general.name": "Tiny"})
    assert NOT_STATED in lines
    assert json.loads((model / "provenance.json").read_text())["license"] is None
    run = whet.train("grpo", out=tmp_path / "run", policy={"path": str(model)}, **SMALL)
    assert json.loads((run.folder / "env.json").read_text())["models"]["policy"]["license"] is None
    done = CliRunner().invoke(app, ["export", str(run.folder), str(tmp_path / "out")])
    assert done.output.splitlines()[-1] == NOT_STATED
    card = (tmp_path / "out" / "README.md").read_text()
    assert "license" not in head_of(card)
    assert f"# license: {NOT_STATED}\n" in card
    assert f"{NOT_STATED[0].upper()}{NOT_STATED[1:]}, and then add a `license:`" in card


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory, random_model) -> whet.Run:
    """A run with LoRA whose settings name absolute paths wherever they can."""
    folder = tmp_path_factory.mktemp("secret-home")
    (folder / "helper.py").write_text("VALUE = 0.0\n")
    plugin = folder / "my_plugin.py"
    plugin.write_text(
        "import whet\nfrom helper import VALUE\n"
        "@whet.reward('of_paths')\ndef of_paths(episode, index):\n    return VALUE\n"
    )
    rows = [{"question": f"{n} + 1", "answer": str(n + 1)} for n in range(9)]
    (folder / "my data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = folder / "my_words.yaml"
    words.write_text('extends: chains\nsolve: "{question}"\n')
    model = shutil.copytree(random_model, folder / "my_model")
    settings = SMALL | {"data": {"kind": "file", "path": str(folder / "my data.jsonl")}, "rewards": {"of_paths": 0.1}}
    return whet.train(
        "grpo", out=folder / "run", plugins=[str(plugin)], prompts=str(words),
        policy={"path": str(model), "lora": {"rank": 2}}, **settings,
    )  # fmt: skip


def test_no_file_that_export_writes_names_a_folder_of_this_machine(run, tmp_path):
    adapter = whet.export(run.folder, tmp_path / "adapter")
    merged = whet.export(run.folder, tmp_path / "merged", merge=True)
    ours = [run.folder.parent, Path.home(), Path.cwd(), Path(whet.__file__).parents[1], tmp_path.parent]
    for folder in (adapter, merged):
        files = [file for file in folder.rglob("*") if file.is_file()]
        assert len(files) > 4
        for file in files:
            content = file.read_bytes()
            for place in ours:
                assert str(place).encode() + b"/" not in content, (file.name, place)
    card = (adapter / "README.md").read_text()
    assert not re.search(r"[`'\"=\s\[](?:/|~/)[\w.-]+/", card)
    for shown in ("`my_model`", "my_plugin.py", "my data.jsonl", "my_words.yaml"):  # the names are there
        assert shown in card
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == "my_model"


def test_the_cards_snippet_loads_an_adapter_over_a_folder(run, tmp_path):
    place = whet.export(run.folder, tmp_path / "adapter")
    snippet = (place / "README.md").read_text().split("```python\n")[1].split("```")[0]
    model = run.folder.parent / "my_model"
    here = snippet.replace('"DIR"', repr(str(place))).replace('"BASE"', repr(str(model))).replace('"..."', "'7 + 1'")
    names: dict[str, Any] = {}
    exec(here, names)
    ids = torch.tensor([[5, 21, 6]])
    over = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), place)
    assert torch.equal(names["model"](ids).logits, over(ids).logits)


def test_public_names():
    assert public_name("Qwen/Qwen2.5-3B") == "Qwen/Qwen2.5-3B"
    assert public_name("models/mine") == "models/mine"
    assert public_name("/home/me/models/mine/") == "mine"
    assert public_name("~/models/mine") == "mine"
    tree = {"plugins": ("/home/me/a.py", "b.py"), "data": {"path": "/home/me/x.jsonl", "num": 3, "url": "http://h/v1"}}
    assert public(tree) == {"plugins": ["a.py", "b.py"], "data": {"path": "x.jsonl", "num": 3, "url": "http://h/v1"}}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python /home/me/run.py --data=/srv/mine/x.jsonl", "python run.py --data=x.jsonl"),
        ("file:///home/me/x.jsonl", "x.jsonl"),
        ("see (~/models/mine), 'a:/home/me/b'", "see (mine), 'a:b'"),
        ("/home/me/my data.jsonl", "my data.jsonl"),
        ("/no_think\n{question} and/or 1/2/3", "/no_think\n{question} and/or 1/2/3"),
        ("https://host/v1/chat, km/h, ../up/x", "https://host/v1/chat, km/h, ../up/x"),
    ],
)
def test_paths_within_texts_and_names_are_public_names_and_prompts_stay(text, shown):
    assert public({text: [(text,)]}) == {shown: [[shown]]}


# --- what files state -------------------------------------------------------------------------------------------------


def test_where_a_licence_is_read(tmp_path):
    assert source_of("tiny").record["license"] == "apache-2.0"
    assert source_of("nobody/none").record == {"base_model": "nobody/none", "license": None}
    folder = tmp_path / "model"
    folder.mkdir()
    assert source_of(str(folder)).record == {"name": "model", "license": None}
    (folder / "README.md").write_text("---\nlicense: mit\ntags: [x]\nlicense_link: 5\n---\n# A model\n")
    (folder / "LICENSE.txt").write_text("Text.")
    assert source_of(str(folder)).record == {"name": "model", "license": "mit"}
    assert source_of(str(folder)).text == "Text."
    (folder / "provenance.json").write_text('{"license": null, "sha256": "ab"}')
    assert source_of(str(folder)).record == {"name": "model", "license": "mit", "sha256": "ab"}
    for broken in ("[]", "{", "\xff"):
        (folder / "provenance.json").write_text(broken)
        (folder / "README.md").write_text("---\nlicense: [\n---\n")
        assert source_of(str(folder)).record == {"name": "model", "license": None}
    assert licence_in_words({"license": None}) == NOT_STATED


def test_no_kind_of_line_end_leaves_a_cell_of_the_card():
    from whet.api.card import _cell

    for end in ("\n", "\r", "\r\n", "\v", "\f", "\x85", "\u2028", "\u2029"):
        assert _cell(f"mine{end}# Forged | x") == r"mine # Forged \| x"


def test_a_licence_of_several_lines_is_one_line_of_the_card():
    from whet.api.card import _licence

    said = _licence({"license": "mit\r\n\n# Forged\n", "license_name": "a\nb"}, has_text=False, is_own_data=False)
    assert len(said.splitlines()) == 1
    assert "mit # Forged" in said


@pytest.mark.parametrize(
    ("command", "name", "named"),
    [
        ("whet train bapo num_steps=3", "bapo", ["2510.18927"]),
        ("whet train grpo --out a", "grpo", ["2402.03300"]),
        ("python mine.py", "policy_gradient", []),
        ("whet train critique_rl", "policy_gradient", []),
        ("python train bapo", "policy_gradient", []),
        ("whet train", "policy_gradient", []),
    ],
)
def test_a_card_has_the_name_that_the_run_was_started_by_and_its_paper(command, name, named, tmp_path):
    (tmp_path / "env.json").write_text(json.dumps({"command": command}))
    algorithm = ALGORITHMS.get("policy_gradient")
    trained = SimpleNamespace(folder=tmp_path, config=PolicyGradientConfig(), algorithm=algorithm)
    assert method_name(trained) == name
    assert papers(trained)[: len(named)] == named
    assert method_in_words(trained).startswith(f"`{name}`")
