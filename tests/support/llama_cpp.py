"""llama.cpp itself, in this process: what it makes of a GGUF file, to hold ours against."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from whet.engines.local import LocalEngine
from whet.models.policy import Policy
from whet.types import Request, Sampling


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

    def logprobs(self, ids: list[int], num_tokens: int, num_asked: int | None = None) -> Tensor:
        """[V], of the token after `ids`; those that it leaves out are -inf."""
        asked = {"prompt": ids, "n_predict": 1, "n_probs": num_asked or num_tokens, "temperature": 0.0}
        found = torch.full((num_tokens,), float("-inf"))
        for each in self._post("/completion", asked)["completion_probabilities"][0]["top_logprobs"]:
            found[each["id"]] = each["logprob"]
        return found

    def ends(self, ids: list[int]) -> bool:
        """Whether it greedily ends the text after `ids`."""
        return bool(
            self._post("/completion", {"prompt": ids, "n_predict": 1, "temperature": 0.0})["stop_type"] == "eos"
        )

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(self._server.listening_address + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer)


def compare_with_llama_cpp(path: Path, policy: Policy, texts: list[str], num_tokens: int, atol: float = 0.02) -> None:
    """Ids, greedy tokens and the 200 likeliest in each place, where the first two tokens are not equally likely."""
    judge = LlamaCpp(path)
    ends = policy.tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])  # both are, to llama.cpp
    assert len(texts) == 10
    num_compared = 0
    for text in texts:
        ids = policy.tokenizer.encode(text)
        assert judge.tokens(text) == ids, text
        sampling = Sampling(temperature=0.0, max_new_tokens=num_tokens)
        [done] = LocalEngine(policy).generate([Request(context=tuple(ids), sampling=sampling, seed=0)])
        for place, token in enumerate(done.tokens):
            context = [*ids, *done.tokens[:place]]
            if token in ends:
                assert judge.ends(context)
                break
            text_of_token = policy.tokenizer.decode([token])
            if not text_of_token or "\ufffd" in text_of_token:
                continue  # llama.cpp's server says nothing of a part of a character
            num_compared += 1
            with torch.no_grad():
                ours = policy.causal_lm(input_ids=torch.tensor([context])).logits[0, -1].log_softmax(-1)
            theirs = judge.logprobs(context, len(ours), min(200, len(ours)))
            seen = theirs.isfinite()
            torch.testing.assert_close(ours[seen], theirs[seen], atol=atol, rtol=0)
            best = ours.topk(2).values
            assert int(theirs.argmax()) == token or best[0] - best[1] < atol
    assert num_compared > 25
