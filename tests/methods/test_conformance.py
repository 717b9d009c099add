"""What every method keeps, whichever registered it: a new one is tested by being registered.

The cheap half looks at every name; the other makes a tiny run of every method with the shipped model. Sizes go by the
names of the keys; a method whose keys are others, or that needs more to be itself, gets a line in `OWN`.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

import whet
from support.agent_model import agent_model
from support.commands import Quiet, config_of, logged, same_bits
from support.idle import idle_keys
from whet.cli import app
from whet.config import ConfigError, describe, load, to_yaml
from whet.config.base import Config
from whet.config.effects import acts
from whet.config.environment_data import EnvironmentData
from whet.config.environments import SCRIPTED_AGENTS
from whet.config.reads import forget_reads
from whet.config.runs import RunConfig
from whet.config.tree import config_classes, is_tag
from whet.methods import METHODS
from whet.methods.evaluator import EvalSettings
from whet.methods.registry import Preset, preset_of
from whet.report.curves import stages_of
from whet.report.page import write_report
from whet.report.read import read_run
from whet.run import launch, session, start
from whet.run.evaluate import evaluate
from whet.run.load import load_run
from whet.serve.models import served_policies
from whet.trainer.loop import Stopped

SIZES: dict[str, object] = {
    "num_train": 48, "num_validation": 4, "num_test": 4, "num_steps": 2, "actor_steps": 2, "critic_steps": 2,
    "rows_per_step": 6, "prompts_per_step": 3, "group_size": 3, "validate_every": 2, "num_samples": 2,
    "minibatch_rows": 6, "probe_every": 1, "warmup_updates": 1, "checkpoint_every": 0, "num_threads": 1,
    "num_rounds": 2,
}  # fmt: skip
"""What a tiny run sets where its config has such a key."""
LONGEST = 48
"""Tokens of a reply, at most."""
MAZE = (
    f"policy.path={agent_model()}", "data.env=maze", "data.num_validation=2", "data.num_train=4", "data.num_test=2",
    "evaluation.max_turns=2", "rules=none", "max_context=4000",
)  # fmt: skip
"""The shipped model has no words for worlds."""
EVOLVING = (*MAZE, "max_turns=2", "items_per_step=2", "num_epochs=1", "weighting=binary", "kept_above.maze=-1000")
"""An episode of a model with random weights is never a success."""
OWN: dict[str, tuple[str, ...]] = {
    "score_rl": ("first_stage=1",),
    "spc": ("sft_steps=2", "games=16", "learning.minibatch_rows=16"),
    "self_talk": ("prompts_per_step=24", "sampling.max_new_tokens=160", "roles.critique.max_new_tokens=80"),
    "critique_loop": (
        "num_explored=6",
        "num_originals=6",
        "prompts_per_step=6",
        "num_rounds=1",
        "difficulty.num_samples=1",
    ),
    "agent": MAZE,
    "auto_critique": ("num_questions=4", "questions_per_step=3", "records_per_step=6", "locate.num_completions=2"),
    "agent_clone": MAZE,
    "agent_dpo": (*MAZE, "max_turns=2", "threshold=0", "items_per_step=2", "num_epochs=1", "pairs_per_step=2"),
    "agent_evol": EVOLVING,
    "agent_gradient": (*MAZE, "max_turns=2", "credit.per=turn"),
    "agent_critic": (
        *MAZE,
        f"critic.path={agent_model()}",
        "max_turns=1",
        "evaluation.max_turns=1",
        "data.num_validation=1",
        "warm_start.policy_steps=1",
        "warm_start.attempts=2",
        "warm_start.misled=0.5",
        "warm_start.critic_steps=1",
        "warm_start.rows_per_step=2",
        "critique.max_new_tokens=16",
        *(f"stage{n}.{size}" for n in (1, 2) for size in ("num_steps=1", "prompts_per_step=2", "group_size=2")),
    ),
}
"""More settings, by method."""
LATER = {
    "watch.then": "asked once nothing is learnt",
    "watch.flat_share": "asked once groups are compared",
    "watch.kl_warn": "asked once a learner has measured it",
    "watch.kl_stop": "asked once a learner has measured it",
    "watch.same_start": "asked once something begins in two ways",
    "plugins": "loaded before there is a config",
}
"""Settings that a whole run need not come to read."""


def needs_java(name: str) -> bool:
    data = preset_of(name).config.data
    return isinstance(data, EnvironmentData) and bool({"sciworld", "cookingworld"} & data.shares.keys())


NAMES = METHODS.names()
STARTS_JAVA = [pytest.param(name, marks=[pytest.mark.integration] * needs_java(name)) for name in NAMES]
WHOLE = list({preset_of(name).algorithm: name for name in reversed(NAMES) if name != "agent"}.values())
"""A name of every method that trains. Presets differ in settings only."""


def tiny(name: str) -> list[str]:
    """Settings of a run of seconds."""
    found: dict[str, object] = {}
    config = preset_of(name).config
    for key, value in leaves(config):
        last = key.rpartition(".")[2]
        if not acts(config, key):
            continue
        if last in SIZES:
            found[key] = SIZES[last]
        elif last == "max_new_tokens":
            found[key] = min(value, LONGEST)
    return [f"{key}={json.dumps(value)}" for key, value in found.items()] + list(OWN.get(name, ()))


def leaves(config: Config, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting that is no config itself, by its dotted key. Nothing counts as read."""
    for name, value in config.__dict__.items():
        if isinstance(value, Config):
            yield from leaves(value, f"{prefix}{name}.")
        elif not is_tag(type(config), name):
            yield prefix + name, value


# --- every name -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_what_it_is_stands_in_one_line(name):
    says = METHODS.entry(name).says
    assert says.strip() == says
    assert 10 < len(says) <= 90
    assert "\n" not in says
    assert not says.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_its_settings_are_frozen_and_come_back_from_yaml(name, tmp_path):
    preset = preset_of(name)
    config = preset.config
    assert isinstance(preset, Preset)
    assert isinstance(config, RunConfig)
    assert type(config) is preset.algorithm.spec.config
    assert preset_of(config.method).algorithm is preset.algorithm  # how a run folder finds its method again
    for each in every_config(config):
        for field in type(each).model_fields:
            with pytest.raises(ValidationError, match="frozen"):
                setattr(each, field, None)
    for number, text in enumerate((to_yaml(config), describe(config))):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        assert load(type(config), file) == config
        assert load(type(config), file, base=config) == config


def every_config(value: Any) -> Iterator[Config]:
    if isinstance(value, Config):
        yield value
        for inner in value.__dict__.values():
            yield from every_config(inner)


@pytest.mark.parametrize("name", WHOLE)
def test_every_setting_says_what_it_is(name):
    missing, seen = [], set()
    todo: list[type[Config]] = [preset_of(name).algorithm.spec.config]
    while todo:
        kind = todo.pop()
        if kind in seen:
            continue
        seen.add(kind)
        for field, info in kind.model_fields.items():
            inner = config_classes(info.annotation)
            todo += inner
            said = info.description or is_tag(kind, field) or (inner and all(each.__doc__ for each in inner))
            missing += [] if said else [f"{kind.__name__}.{field}"]
    assert missing == []


@pytest.mark.parametrize("name", STARTS_JAVA)
def test_a_dry_run_looks_at_everything_and_writes_nothing(name, tmp_path):
    done = CliRunner().invoke(app, ["train", name, *tiny(name), "--out", str(tmp_path / "run"), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "all settings are in use; nothing was written" in done.output
    spec = preset_of(name).algorithm.spec
    assert ("then what it finds decides" if spec.is_lazy else "steps of the phases:") in done.output
    assert not any(tmp_path.iterdir())


# --- a tiny run of every method ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """A run from start to end."""

    config: RunConfig
    folder: Path
    session: session.Session
    unread: frozenset[str]
    """Settings that neither its preparation nor the run has read."""


@pytest.fixture(scope="module", params=WHOLE)
def made(request, tmp_path_factory) -> Made:
    """Nothing counts as read but what is: not what the plan looks at, nor what is promised."""
    folder = tmp_path_factory.mktemp("runs") / "unbroken"
    config = config_of(request.param, *tiny(request.param))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "read_all", lambda config: None)
        patch.setattr(launch, "check_all_read", lambda config: None)
        patch.setattr(start, "plan", lambda session: [])
        forget_reads(config)
        begun = launch.start(config, folder, Quiet())
        assert isinstance(begun, session.Session)
        begun.go()
    return Made(config, folder, begun, frozenset(unread_of(config)))


def unread_of(config: Config, prefix: str = "", *, read: bool = True) -> Iterator[str]:
    for name, value in config.__dict__.items():
        is_read = read and (name in config._read)
        if isinstance(value, Config):
            yield from unread_of(value, f"{prefix}{name}.", read=is_read)
        elif not is_tag(type(config), name) and not is_read:
            yield prefix + name


def below(key: str, places: set[str]) -> bool:
    return any(key == place or key.startswith(f"{place}.") for place in places)


def test_its_table_has_the_columns_of_its_sheet(made):
    report_spec, summary = made.session.algorithm.spec.report, json.loads((made.folder / "summary.json").read_text())
    assert summary["rows"]
    for name, row in summary["rows"].items():
        sampled = row.get("k") is not None
        wanted = {column.key for column in report_spec.columns if sampled or not column.is_sampled}
        assert wanted <= row.keys(), name
        assert 0 < row["n"] <= 4, name  # a row may leave out what was no measurement
    assert any(row[report_spec.best] is not None for row in summary["rows"].values())
    assert all(value is None or math.isfinite(value) for row in summary["rows"].values() for value in row.values())


def test_its_report_is_written_from_its_folder_alone(made):
    page = write_report(made.folder).read_text()
    assert page.count("<table") >= 1
    found = read_run(made.folder)
    assert found.flaws == ()
    assert found.report_spec == made.session.algorithm.spec.report_of(made.session.algorithm.config)
    assert stages_of(found), "no phase has a metric of the sheet's training, so there is no curve of it"
    assert found.exchanges
    for column in made.session.algorithm.spec.report.columns:
        if not column.is_sampled:
            assert column.title.replace("&", "&amp;") in page, column.title


def test_every_metric_is_a_finite_number(made):
    rows = logged(made.folder)
    values = [(key, value) for row in rows for key, value in row.items() if key != "phase" and value is not None]
    assert [key for key, value in values if not isinstance(value, int | float) or not math.isfinite(value)] == []
    measured = {key for key, _ in values}
    if any(phase.updates(1) for phase in made.session.algorithm.phases()):
        assert any(key.endswith("optim/grad_norm") for key in measured), "nothing was trained"
    scored = [row for row in rows if "reward/mean" in row]
    assert all("grader/errors" in row for row in scored), "where something is paid, failed gradings are counted"
    shown = {key for chart in made.session.algorithm.spec.report.charts for line in chart.lines for key in line.keys}
    assert shown & measured, "the sheet's panels show nothing of it"


def test_what_a_run_never_reads_is_said_to_be_idle_and_nothing_else_is(made):
    idle = set(idle_keys(made.config))
    every = dict(leaves(made.config))
    never = {key for key in made.unread if not below(key, idle | LATER.keys())}
    assert never == set(), "nothing reads them: say beside their fields when they act"
    acting = {key for key in every if below(key, idle)} - made.unread
    assert acting == set(), "their fields say that they have no effect, and the run read them"


def test_its_phases_are_a_function_of_the_settings_and_of_what_was_found(made):
    names = [[phase.name for phase in made.session.algorithm.phases() if phase.num_steps] for _ in range(2)]
    assert names[0] == names[1] == [done.name for done in made.session.loop.done]
    assert len(set(names[0])) == len(names[0]), "a phase's name is its own: seeds and logs go by it"


class StopIn(Quiet):
    """Ctrl-C at the first step of a phase that was not stopped before."""

    def __init__(self, stopped: list[str]) -> None:
        self.stopped, self.phase = stopped, ""

    def begin(self, phase, done, total):
        self.phase = phase

    def step(self, step, shown):
        if self.phase not in self.stopped:
            self.stopped.append(self.phase)
            signal.raise_signal(signal.SIGINT)


@pytest.mark.integration
def test_a_run_that_is_stopped_in_every_phase_goes_on_to_the_same_bits(made, tmp_path):
    run, stopped = tmp_path / "run", []
    begun = launch.start(made.config, run, StopIn(stopped))
    for _ in made.session.loop.done:
        with pytest.raises(Stopped):
            begun.go()
        begun = launch.resume(run, StopIn(stopped))
    begun.go()
    assert stopped == [done.name for done in made.session.loop.done]
    same_bits(made.folder, run)
    [last, again] = [max((place / "checkpoints").glob("step_*")) for place in (made.folder, run)]
    for file in sorted(path.relative_to(last) for path in (last / "store").rglob("*") if path.is_file()):
        assert (last / file).read_bytes() == (again / file).read_bytes(), file


def test_its_run_can_be_measured(made):
    if not made.session.algorithm.evaluator.targets(of_run=True):
        with pytest.raises(ConfigError, match="makes data, and nothing of it is measured"):
            evaluate(made.config, made.folder, EvalSettings(split="validation"), Quiet())
        return
    config = launch.saved_config(made.folder)
    assert config == made.config
    found, measured = evaluate(config, made.folder, EvalSettings(split="validation"), Quiet())
    rows = json.loads((made.folder / "summary.json").read_text())["rows"].keys()
    assert found.keys() - set(SCRIPTED_AGENTS) <= rows  # scripted agents have rows beside a trained one's
    columns = {column.key for column in measured.algorithm.spec.report.columns if not column.is_sampled}
    assert all(columns <= row.keys() for row in found.values())
    assert len(list((made.folder / "eval").glob("*.traces.jsonl"))) == len(found) > 0


def test_its_best_policy_can_be_used_from_a_copy_of_its_folder(made, tmp_path):
    """By the link, by `whet export`, and by what it can be asked for."""
    copy = tmp_path / "copy"
    shutil.copytree(made.folder, copy, symlinks=True)
    trained = load_run(copy)
    best = trained.load([trained.best])[trained.best]
    asked = {skill for name in trained.names for skill in trained.skills(name)}
    links = [] if made.session.algorithm.spec.report.makes else [copy / "best"]  # of data that were made, there is none
    assert all(link.readlink() == trained.place(trained.best).relative_to(copy) for link in links)
    assert (copy / "best").exists() == bool(links)
    assert trained.best in made.session.loop.policies
    assert trained.skills(trained.best)
    ids = torch.tensor([[5, 21, 6, 22, 7]])
    for place in (*links, whet.export(copy, tmp_path / "exported")):
        model = AutoModelForCausalLM.from_pretrained(place)
        assert torch.equal(model(ids).logits, best.model(ids).logits)
    if "critique" in asked:
        found = whet.load_critic(copy).critique("7 + 5 * 3", "Step 1: 7 + 5 = 2")
        assert found.text
    if "answer" in asked:
        assert whet.load_actor(copy).answer("7 + 5 * 3")
    if "act" in asked:
        assert trained.best in served_policies(trained).names, "an endpoint plays it"
    if not asked & {"answer", "critique"}:
        return
    talk = CliRunner().invoke(
        app, ["chat", str(copy)], input="7 + 5 * 3" + "\tStep 1: 7 + 5 = 2" * ("critique" in asked)
    )
    assert talk.exit_code == 0, talk.output
    assert f"by {trained.best}" in talk.output
