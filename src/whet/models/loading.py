"""Loads models and tokenizers from files that others wrote, whole or not at all.

`transformers` fills what a file lacks with random weights, and makes an empty tokenizer where its files are missing.
Both are refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import find_adapter_config_file
from transformers.utils import logging as transformers_logging

from whet.config.base import ConfigError
from whet.config.parts import ModelConfig
from whet.errors import WhetError, is_out_of_memory
from whet.models.places import resolve
from whet.models.templates import check_template

transformers_logging.disable_progress_bar()  # "Loading weights", "Writing shards": one bar a checkpoint and policy

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
NUM_NAMED = 3
"""Names that an error message lists before it counts the others."""


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """A tokenizer with a checked chat template, an end token and a padding token.

    Raises: ConfigError.
    """
    path = resolve(path)
    with reading(f"{path!r} holds no tokenizer that transformers can load", "give a folder with tokenizer.json"):
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    if len(_ordinary(tokenizer)) < 2:  # some classes bring one of their own
        raise ConfigError(f"{path!r} holds no tokenizer files (tokenizer.json, or its family's own): copy them there")
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"the tokenizer of {path!r} has no end token (eos_token), so no reply could end; set one")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.chat_template is None:
        raise ConfigError(f"the tokenizer of {path!r} has no chat template; use an instruct model, or set one on it")
    check_template(tokenizer, path)
    return tokenizer


def load_model(config: ModelConfig) -> Any:
    """A decoder-only model in evaluation mode (no dropout, in training too: on-policy ratios must be 1).

    Raises: ConfigError.
    """
    path, device = resolve(config.path), device_of(config.device)
    if device.type == "cuda":
        # cuDNN's attention compiles for every new shape, and each token that is written makes one.
        torch.backends.cuda.enable_cudnn_sdp(False)
    if find_adapter_config_file(path) is not None:
        raise ConfigError(
            f"{path!r} holds a PEFT adapter, not a whole model: load it with peft, merge it into its base "
            "(merge_and_unload), and save that with save_pretrained"
        )
    with reading(
        f"{path!r} is no model that transformers can load",
        "give a folder written by save_pretrained, a hub id, or 'tiny' for the model that ships with whet",
    ):
        if getattr(AutoConfig.from_pretrained(path, trust_remote_code=False), "is_encoder_decoder", False):
            raise ConfigError(f"{path!r} is an encoder-decoder model; give a decoder-only one")
        if config.random_weights is None:
            model = from_pretrained(AutoModelForCausalLM, path, DTYPES[config.dtype])
        else:
            model = from_seed(path, DTYPES[config.dtype], config.random_weights)
        model = model.to(device).eval()
        if _reads_ahead(model):
            raise ConfigError(
                f"{path!r} is an encoder: what it computes for a token depends on later ones; give a decoder-only model"
            )
    return model


def from_seed(path: str, dtype: torch.dtype, seed: int) -> Any:
    """A model of the shape in the folder's config.json, with weights drawn from the seed, on the CPU."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path, trust_remote_code=False), dtype=dtype)


def from_pretrained(kind: Any, path: str, dtype: torch.dtype) -> Any:
    """A model whose weights are all in the files, in their shapes and finite. The files hold nothing else.

    Raises: ConfigError with the names; also what `transformers` raises.
    """
    model, loading_info = kind.from_pretrained(
        path,
        dtype=dtype,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    if wrong := _differences(loading_info):
        raise ConfigError(
            f"{path!r} does not hold the weights of the {type(model).__name__} that its config.json describes "
            f"({'; '.join(wrong)}): save the whole model with save_pretrained, or mend config.json"
        )
    check_finite(model, path)
    return model


def _differences(loading_info: Mapping[str, Any]) -> list[str]:
    """Differences between files and model, as `transformers` lists them: without tied weights, and without buffers
    that models make anew."""
    shapes = [
        f"{name} is {_shape(a)} and should be {_shape(b)}" for name, a, b in sorted(loading_info["mismatched_keys"])
    ]
    lists = (
        ("missing", loading_info["missing_keys"]),
        ("unexpected", loading_info["unexpected_keys"]),
        ("of another shape", shapes),
        ("unreadable", loading_info["error_msgs"]),
    )
    return [f"{title}: {named(names)}" for title, names in lists if names]


def check_finite(model: nn.Module, path: str) -> None:
    """Raises: ConfigError naming weights that are NaN or infinite."""
    broken = [name for name, value in model.named_parameters() if not value.isfinite().all()]
    if broken:
        raise ConfigError(f"weights in {path!r} are NaN or infinite ({named(broken)}): take a checkpoint from before")


def check_vocabulary(causal_lm: Any, tokenizer: PreTrainedTokenizerBase, path: str) -> None:
    """Raises: ConfigError where a token of texts or of the chat template has no row in the embedding."""
    rows = causal_lm.get_input_embeddings().weight.shape[0]
    # Some families list special tokens for other uses (images) past the end; the template shows which ones occur.
    usable = {**_ordinary(tokenizer), **_episodes(tokenizer)}
    beyond = [token for token, index in usable.items() if index >= rows]
    if beyond:
        raise ConfigError(
            f"the tokenizer of {path!r} has tokens past the model's vocabulary of {rows} ({named(map(repr, beyond))}): "
            "give the model its own tokenizer, or grow it with resize_token_embeddings"
        )


def _ordinary(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The tokens that stand for text, with their ids."""
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    special |= set(tokenizer.all_special_tokens)
    return {token: index for token, index in tokenizer.get_vocab().items() if token not in special}


def _episodes(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The special tokens that a conversation has, with their ids."""
    template = str(tokenizer.chat_template)
    ends = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token)
    return {token: index for token, index in tokenizer.get_added_vocab().items() if token in ends or token in template}


def _reads_ahead(causal_lm: Any) -> bool:
    """Whether the first token's result depends on later tokens, as in an encoder. A decoder's gradient there is
    exactly 0."""
    ids = torch.tensor([[0, 1, 0]], device=causal_lm.device)
    inputs = causal_lm.get_input_embeddings()(ids).detach().requires_grad_()
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")  # a GPU's attention would warn, and no bits are kept
    try:
        first = causal_lm(inputs_embeds=inputs).logits[0, 0].float().square().sum()
        (gradient,) = torch.autograd.grad(first, inputs)
    finally:
        torch.set_deterministic_debug_mode(before)
    return bool(gradient[0, 1:].any())


def device_of(name: str) -> torch.device:
    """`auto` is the first CUDA device, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"there is no device {name!r}; use 'auto', 'cpu', 'cuda' or 'cuda:1'") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device = {name!r} is of a kind that whet does not run on; use 'auto', 'cpu' or 'cuda'")
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        seen = f"{count} CUDA devices" if count else "no CUDA device"
        raise ConfigError(f"device = {name!r}, but torch sees {seen}; use device = 'cpu' or 'auto'")
    return device


@contextmanager
def reading(problem: str, advice: str) -> Iterator[None]:
    """Within this block any error becomes a ConfigError of one sentence. Transformers' tables of the weights that it
    made up are not shown."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(transformers_logging.CRITICAL)
    try:
        yield
    except WhetError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ConfigError(f"{problem} ({_said(error)}); {advice}") from error
    finally:
        transformers_logging.set_verbosity(before)


def _said(error: Exception) -> str:
    """The first line of a library's message, and the next where the first only announces it."""
    lines = [line.strip() for line in str(error).strip().split("\n") if line.strip()] or [type(error).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1]).rstrip(".")[:300]


def named(names: Iterable[str]) -> str:
    """The first few names, and the number of the others."""
    listed = sorted(names)
    num_unlisted = len(listed) - NUM_NAMED
    return ", ".join(listed[:NUM_NAMED]) + (f" and {num_unlisted} more" if num_unlisted > 0 else "")


def _shape(size: Iterable[int]) -> str:
    return " x ".join(map(str, size))
