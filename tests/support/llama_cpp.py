"""llama.cpp itself, in this process: what it makes of a GGUF file, to hold ours against."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor


class LlamaCpp:
    """A server on loopback, by `xllamacpp`."""

    def __init__(self, path: Path) -> None:
        xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp comes with pip install xllamacpp")
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 512, 1, False, -1
        params.cpuparams.n_threads = 1
        self._server = xllamacpp.Server(params)

    def tokens(self, text: str) -> list[int]:
        asked = {"content": text, "add_special": True, "parse_special": True}
        return list(self._post("/tokenize", asked)["tokens"])

    def logprobs(self, ids: list[int], num_tokens: int) -> Tensor:
        """[V], of the token after `ids`; those that it leaves out are -inf."""
        asked = {"prompt": ids, "n_predict": 1, "n_probs": num_tokens, "temperature": 0.0}
        found = torch.full((num_tokens,), float("-inf"))
        for each in self._post("/completion", asked)["completion_probabilities"][0]["top_logprobs"]:
            found[each["id"]] = each["logprob"]
        return found

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(self._server.listening_address + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer)
