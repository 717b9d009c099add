"""Small real objects that tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from whet.models.policy import Policy
from whet.models.tiny import SPECIAL, tiny_config, tiny_tokenizer

CHROMIUM = "/usr/bin/chromium"
torch.set_num_threads(1)
# Started in the background by a script, we would inherit that Ctrl-C is ignored, and so would the runs that tests stop.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def random_policy() -> Policy:
    """The tiny architecture with random weights (drawn wide, so that its distributions are not flat)."""
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    model = Qwen2ForCausalLM(tiny_config(len(tokenizer))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(3)
    return Policy("policy", model, tokenizer, stop_ids=frozenset({SPECIAL.index("<|end|>")}))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    folder = Path(os.environ.get("WHET_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent: set WHET_DATA to the folder with the data sets")
    return folder


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny architecture, untrained: enough wherever learning is not the point."""
    folder = tmp_path_factory.mktemp("models") / "random"
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    Qwen2ForCausalLM(tiny_config(len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def small_run(random_model: Path) -> list[str]:
    """Settings of a run of seconds that goes through every phase."""
    return [
        f"actor.path={random_model}",
        f"critic.path={random_model}",
        "num_threads=1",
        "data.num_train=64",
        "data.num_validation=8",
        "data.num_test=12",
        "warm_start.actor_steps=3",
        "warm_start.critic_steps=3",
        "warm_start.rows_per_step=8",
        "stage1.num_steps=4",
        "stage1.prompts_per_step=4",
        "stage1.validate_every=2",
        "stage1.learning.minibatch_rows=8",
        "stage2.num_steps=4",
        "stage2.prompts_per_step=4",
        "stage2.validate_every=2",
        "stage2.learning.minibatch_rows=8",
        "checkpoint_every=1",
    ]


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def gsm8k(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first rows of GSM8K's training split, as they are."""
    path = tmp_path_factory.mktemp("data") / "train.jsonl"
    lines = (data_folder / "gsm8k" / "train.jsonl").read_text().splitlines()
    path.write_text("\n".join(lines[:200]) + "\n")
    return path


@pytest.fixture(scope="session")
def small_model(gsm8k: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE trained on that text, and a random Qwen3 of 0.2 M weights."""
    folder = tmp_path_factory.mktemp("models") / "gsm"
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=800, special_tokens=special, initial_alphabet=alphabet)
    bpe.train_from_iterator(gsm8k.read_text().splitlines(), trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, head_dim=16,
        num_attention_heads=4, num_key_value_heads=2, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no browser at {CHROMIUM}")
    playwright = pytest.importorskip("playwright.sync_api")
    args = ["--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    args += ["--no-first-run"] + (["--no-sandbox"] if os.geteuid() == 0 else [])
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=args)
        yield browser
        browser.close()
