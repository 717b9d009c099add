"""Runs whose engines multiply in another type: the choice is part of the run, and its updates are corrected."""

import json
from dataclasses import replace

import pytest

from support.commands import Quiet, config_of, metrics
from support.commands import whet as command
from whet.checks.doctor import examine
from whet.config.effects import acts
from whet.config.parts import EngineConfig
from whet.engines import products as products_module
from whet.engines.agreement import PRODUCTS_AGREEMENT, agreement_of
from whet.errors import WhetError
from whet.methods import METHODS
from whet.methods.registry import preset_of
from whet.models.policy import Policy
from whet.run import data as data_module
from whet.run.launch import start
from whet.run.load import load_run

SMALL = [
    "num_threads=1", "num_steps=2", "prompts_per_step=2", "group_size=2", "data.num_train=8", "data.num_validation=2",
    "data.num_test=2", "sampling.max_new_tokens=4", "evaluation.num_samples=0",
]  # fmt: skip
CREDIT = ["advantage=reward", "signed=true"]
"""Wrong replies teach too."""


def test_a_run_in_int8_repeats_resumes_and_measures_the_gap(tmp_path, random_model):
    settings = [*SMALL, f"policy.path={random_model}", "engine.products=int8", "checkpoint_every=1", *CREDIT]
    runs = [tmp_path / "one", tmp_path / "two"]
    command("train", "grpo", *settings, "--out", runs[0])
    command("train", "grpo", *settings, "num_steps=1", "--out", runs[1])
    command("resume", runs[1], "num_steps=2")
    of_runs = [[row["kl/sampler"] for row in metrics(run) if "kl/sampler" in row] for run in runs]
    assert len(of_runs[0]) == 2
    assert of_runs[0][0] == of_runs[1][0]  # the second step's learning rate goes by the run's length
    assert all(0 < drift < 0.01 for drift in of_runs[0])
    [agreement] = [
        event for line in (runs[0] / "events.jsonl").read_text().splitlines()
        if (event := json.loads(line))["event"] == "agreement"
    ]  # fmt: skip
    assert 0 < agreement["difference"] < PRODUCTS_AGREEMENT["int8"][1]
    done = command("train", "grpo", *[s.replace("int8", "float32") for s in settings], "--out", runs[0], check=False)
    assert "engine.products" in done.stderr


def test_auto_writes_its_choice_and_a_resume_keeps_it(monkeypatch):
    config = _grpo(EngineConfig(products="auto"))
    told = []

    class Console:
        def tell(self, level, text):
            told.append((level, text))

    monkeypatch.setattr(data_module, "instructions", lambda: ("avx2",))
    monkeypatch.setattr(products_module, "instructions", lambda: ("avx2",))
    chosen = data_module.with_products(config, Console())
    assert chosen.engine.products == "float32"  # the tiny model is narrow
    assert told == [("info", "engine.products = auto took float32 (avx2)")]
    saved = _grpo(EngineConfig(products="bfloat16"))
    assert data_module.with_products(config, Console(), saved).engine.products == "bfloat16"
    assert len(told) == 1
    assert data_module.with_products(saved, Console()) is saved


def test_a_dry_run_says_what_auto_takes(random_model):
    done = command("train", "grpo", *SMALL, f"policy.path={random_model}", "engine.products=auto", "--dry-run")
    assert "engine.products = auto took float32" in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("narrow", "corrects"),
    [
        (["engine.products=int8"], True),
        (["learning.products=bfloat16"], True),
        (["engine.products=int8", "engine.correct=false"], False),
        (["learning.products=bfloat16", "engine.correct=false"], False),
        (["engine.products=int8", "learning.products=bfloat16", "engine.correct=false"], False),
    ],
)
def test_engine_correct_decides_for_the_engine_and_the_update(tmp_path, random_model, monkeypatch, narrow, corrects):
    monkeypatch.setattr(products_module, "instructions", lambda: ("amx_bf16",))
    session = start(config_of("grpo", *SMALL, f"policy.path={random_model}", *narrow), tmp_path / "run", Quiet())
    [update] = [update for phase in session.algorithm.phases() for update in phase.updates(1).values()]
    assert session.loop.adapted(update).proximal is corrects
    session.close()


@pytest.mark.parametrize(
    ("method", "settings", "fact"),
    [
        ("grpo", [], "engine.correct has no effect: engine.products and all learning.products are float32"),
        ("grpo", ["engine.products=int8", "proximal=true"], "engine.correct has no effect: no update"),
        ("rft", ["engine.products=int8"], "engine.correct has no effect: no update"),
        ("rft", ["learning.products=bfloat16"], "engine.correct has no effect: no update"),
    ],
)
def test_engine_correct_is_refused_where_nothing_would_be_corrected(
    tmp_path, random_model, monkeypatch, method, settings, fact
):
    monkeypatch.setattr(products_module, "instructions", lambda: ("amx_bf16",))
    config = config_of(method, "num_threads=1", f"policy.path={random_model}", "engine.correct=false", *settings)
    with pytest.raises(WhetError, match=fact):
        start(config, tmp_path / "run", Quiet())
    assert not (tmp_path / "run" / "config.yaml").exists()
    assert any(fact in finding.text for finding in examine(config))


@pytest.mark.parametrize("name", [name for name in METHODS.names() if hasattr(preset_of(name).config, "learning")])
def test_of_every_method_engine_correct_acts_by_the_products(name):
    config = preset_of(name).config
    assert not acts(config, "engine.correct")
    learning = config.learning.model_copy(update={"products": "bfloat16"})
    assert acts(config.model_copy(update={"learning": learning}), "engine.correct")


def test_auto_is_no_setting_of_an_engine_of_servers(random_model):
    config = _grpo(EngineConfig(kind="vllm", urls=("http://127.0.0.1:9",), products="auto"))
    assert data_module.with_products(config, Quiet()) is config
    done = command(
        "train", "grpo", "engine.kind=vllm", "engine.urls=[http://127.0.0.1:9]", "engine.products=auto", *SMALL,
        f"policy.path={random_model}", "--dry-run", check=False,
    )  # fmt: skip
    assert "engine.products has no effect: engine.kind is vllm" in " ".join(done.stderr.split())


def test_auto_leaves_it_to_the_loader_to_say_what_is_wrong_with_a_model(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    asked = ["train", "grpo", f"policy.path={tmp_path}", "--dry-run"]
    plain, auto = (command(*asked, *more, check=False) for more in ([], ["engine.products=auto"]))
    assert plain.stderr.splitlines()[-1] == auto.stderr.splitlines()[-1]
    assert "tokenizer" in plain.stderr


def test_the_start_allows_each_kind_its_measured_difference(random_policy: Policy):
    assert agreement_of(random_policy.dtype) == ("largest", 1e-4)
    assert agreement_of(random_policy.dtype, "bfloat16") == PRODUCTS_AGREEMENT["bfloat16"]


def test_a_run_is_refused_where_its_machine_cannot(tmp_path, random_model, monkeypatch):

    monkeypatch.setattr(products_module, "instructions", lambda: ())
    config = _grpo(EngineConfig(products="bfloat16"))
    with pytest.raises(WhetError, match="needs a processor with amx_bf16 or avx512_bf16"):
        start(config, tmp_path / "run", Quiet())
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_an_update_in_bfloat16_repeats_and_reports_its_error(tmp_path, random_model, monkeypatch):
    monkeypatch.setattr(products_module, "instructions", lambda: ("amx_bf16",))  # torch emulates what is not there
    config = config_of("grpo", *SMALL, f"policy.path={random_model}", "learning.products=bfloat16", *CREDIT)
    events = []
    for name in ("one", "two"):
        start(config, tmp_path / name, Quiet()).go()
        lines = (tmp_path / name / "events.jsonl").read_text().splitlines()
        events += [event for line in lines if (event := json.loads(line))["event"] == "products_error"]
    assert len(events) == 2, "once a run"
    assert "learning.products = bfloat16: the gradient of policy policy on one batch is" in events[0]["message"]
    rows = [[row for row in metrics(tmp_path / name) if "kl/sampler" in row] for name in ("one", "two")]
    assert [row["kl/sampler"] for row in rows[0]] == [row["kl/sampler"] for row in rows[1]]
    assert all(0 < row["kl/sampler"] < 0.01 for row in rows[0])
    assert 0 < rows[0][0]["optim/products_error"] < 0.05
    monkeypatch.setattr(products_module, "instructions", lambda: ("avx2",))
    with pytest.raises(WhetError, match=r"learning.products = bfloat16 needs a processor with amx_bf16 or avx512_bf16"):
        start(config, tmp_path / "three", Quiet())
    assert not (tmp_path / "three" / "config.yaml").exists()


@pytest.mark.parametrize("rollout", ["lockstep", "free"])
def test_a_run_with_drafts_has_the_same_replies_and_resumes_to_the_same_bits(tmp_path, random_model, rollout):
    settings = [*SMALL, f"policy.path={random_model}", f"engine.rollout={rollout}", *CREDIT]
    settings += ["sampling.max_new_tokens=40", "learning.final_share=1.0", "checkpoint_every=1"]
    start(config_of("grpo", *settings), tmp_path / "plain", Quiet()).go()
    start(config_of("grpo", *settings, "engine.draft=8"), tmp_path / "one", Quiet()).go()
    command("train", "grpo", *settings, "engine.draft=8", "num_steps=1", "--out", tmp_path / "two")
    command("resume", tmp_path / "two", "num_steps=2")

    def replies(name):
        return [row["length/mean"] for row in metrics(tmp_path / name) if "length/mean" in row]

    def losses(name):
        return [row["loss/mean"] for row in metrics(tmp_path / name) if "loss/mean" in row]

    assert replies("one") == replies("plain")
    assert len(losses("one")) == 2
    assert losses("two") == losses("one")
    loaded = load_run(tmp_path / "one")
    assert loaded.engine_settings.draft == 0, "beside the run an engine drafts where it is told to"
    assert replace(loaded, draft=4).engine_settings.draft == 4


def _grpo(engine):
    config = preset_of("grpo").config
    return config.model_copy(update={"engine": engine})
