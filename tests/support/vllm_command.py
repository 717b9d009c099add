"""The server of `vllm_server.py` as a program with the options of `vllm serve`, for runs that start their servers."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# In place of this folder, whose modules have names that others have too.
sys.path[:1] = [str(ROOT / place) for place in ("tests", "src", "packages/mathgrade/src")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--enable-scale-out", required=True, action="store_true")
    parser.add_argument("--logprobs-mode", required=True, choices=["processed_logprobs"])
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--max-model-len", type=int)
    arguments = parser.parse_args()
    if os.environ.get("VLLM_SERVER_DEV_MODE") != "1":
        sys.exit("the routes of weights need VLLM_SERVER_DEV_MODE=1")

    import torch

    from support.vllm_server import FakeVllm
    from whet.config.parts import ModelConfig
    from whet.models.policy import load_policies

    torch.set_num_threads(1)
    policy = load_policies({"policy": ModelConfig(path=arguments.model, dtype=arguments.dtype)})["policy"]
    print(f"serving {arguments.model} at port {arguments.port}", flush=True)
    FakeVllm(policy, name=arguments.model, host=arguments.host, port=arguments.port).serve_forever()


if __name__ == "__main__":
    main()
