"""Small real objects that tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from transformers import Qwen2ForCausalLM

from whet.models.policy import Policy
from whet.models.tiny import SPECIAL, tiny_config, tiny_tokenizer

torch.set_num_threads(1)


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
