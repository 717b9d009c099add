"""A config whose values go with the step: how schedules are given, what the config is at a step, what is refused."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pytest
import yaml
from pydantic import Field, model_validator

from whet.config import (
    Config,
    ConfigError,
    Constant,
    Gate,
    Gated,
    Linear,
    PerStep,
    Schedule,
    Scheduled,
    Steps,
    advanced,
    check_all_read,
    config_at,
    describe,
    difference,
    load,
    of_tree,
    possible,
    read_all,
    schedulable,
    to_yaml,
    unread,
)
from whet.config.losses import ClipLoss, FixedBounds
from whet.methods.critic.critique_rl_config import CritiqueRLConfig
from whet.methods.policy.policy_gradient_config import PolicyGradientConfig


class Stage(Config):
    """A stage."""

    num_steps: int = 40
    weight: PerStep[float] = Field(0.2, ge=0)
    """Of the bonus."""
    prompts: PerStep[int] = Field(8, ge=1)
    combine: PerStep[Literal["gated", "additive"]] = "gated"
    """How terms meet."""
    cap: PerStep[float | None] = Field(None, gt=0)
    low: PerStep[float] = 0.0
    high: PerStep[float] = 1.0

    @model_validator(mode="after")
    def check_bounds(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low = {self.low} is above high = {self.high}")
        return self


class Fixed(Config):
    kind: Literal["fixed"] = "fixed"
    top: PerStep[float] = Field(1.2, ge=1)


class Searched(Config):
    kind: Literal["searched"] = "searched"
    target: PerStep[float] = Field(0.4, gt=0)


Bounds = Annotated[Fixed | Searched, Field(discriminator="kind")]


class Correction(Config):
    limit: PerStep[float] = 2.0


class RunConfig(Scheduled):
    """A run."""

    seed: int = 0
    kl_coef: PerStep[float] = Field(0.01, ge=0, le=1)
    """Weight of the KL."""
    stage2: Stage = Stage(weight=0.3)
    bounds: Bounds = Fixed()
    correction: Correction | None = None
    mix: dict[str, PerStep[float]] = Field({"maths": 1.0, "code": 0.0})
    whole: PerStep[Bounds] = Fixed()
    betas: tuple[float, float] = (0.9, 0.95)


WEIGHT = "schedule.stage2.weight={kind: linear, start: 0, end: 0.2, over: 20}"


def loaded(*overrides: str, file: Path | None = None, base: RunConfig | None = None) -> RunConfig:
    return load(RunConfig, file, overrides, base=base)


def refusal(*overrides: str, file: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(RunConfig, file, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write_file(text: str) -> Path:
        (tmp_path / "run.yaml").write_text(text)
        return tmp_path / "run.yaml"

    return write_file


# --- how a schedule is given


LINEAR = Linear(start=0, end=0.2, over=20)


def test_a_schedule_is_given_on_the_command_line_whole_or_key_by_key() -> None:
    assert loaded(WEIGHT).schedule == {"stage2.weight": LINEAR}
    parts = ("kind=linear", "start=0", "end=0.2", "over=20")
    assert loaded(*(f"schedule.stage2.weight.{part}" for part in parts)).schedule == {"stage2.weight": LINEAR}
    assert loaded("schedule={stage2.weight: {kind: constant, value: 1}}").schedule == {
        "stage2.weight": Constant(value=1)
    }


IN_A_FILE = "{kind: linear, start: 0, end: 0.2, over: 20}"


@pytest.mark.parametrize("line", [f"stage2.weight: {IN_A_FILE}", f"stage2: {{weight: {IN_A_FILE}}}"])
def test_files_may_use_dotted_keys_or_mirror_the_tree(write: Any, line: str) -> None:
    text = f"schedule:\n  {line}\n  kl_coef: {{kind: constant, value: 0}}\n"
    expected = {"stage2.weight": LINEAR, "kl_coef": Constant(value=0)}
    assert loaded(file=write(text)).schedule == expected
    over = loaded("schedule.stage2.weight.end=0.5", file=write(text)).schedule
    assert over == expected | {"stage2.weight": Linear(start=0, end=0.5, over=20)}


def test_in_code_either_form_will_do() -> None:
    assert RunConfig(schedule={"stage2.weight": LINEAR}) == loaded(WEIGHT)
    assert RunConfig.model_validate({"schedule": {"stage2": {"weight": LINEAR}}}) == loaded(WEIGHT)
    assert of_tree(RunConfig, {"schedule": {"stage2": {"weight": {"kind": "constant", "value": 1}}}}).schedule == {
        "stage2.weight": Constant(value=1)
    }


def test_a_preset_is_merged_key_by_key_and_null_takes_out() -> None:
    preset = loaded(WEIGHT, "schedule.kl_coef={kind: gated, values: [0, 0.5], metric: m, above: 1, patience: 3}")
    longer = loaded("schedule.stage2.weight.over=40", base=preset).schedule
    assert longer["stage2.weight"] == Linear(start=0, end=0.2, over=40)
    assert longer["kl_coef"] == preset.schedule["kl_coef"]
    other = loaded("schedule.stage2.weight={kind: constant, value: 1}", base=preset).schedule
    assert other["stage2.weight"] == Constant(value=1)
    assert list(loaded("schedule.stage2.weight=null", base=preset).schedule) == ["kl_coef"]
    assert loaded("schedule=null", base=preset).schedule == {}
    down = loaded("schedule.kl_coef.above=null", "schedule.kl_coef.below=2", base=preset).schedule["kl_coef"]
    assert down == Gated(values=(0, 0.5), metric="m", below=2, patience=3)


def test_null_clears_what_the_file_says_so_that_another_kind_may_follow(write: Any) -> None:
    file = write("schedule:\n  stage2.weight: {kind: linear, start: 0, end: 0.2, over: 20}")
    constant = "schedule.stage2.weight={kind: constant, value: 1}"
    assert loaded("schedule.stage2.weight=null", constant, file=file).schedule == {"stage2.weight": Constant(value=1)}
    assert loaded(constant, "schedule.stage2.weight=null", file=file).schedule == {}
    text = refusal(constant, file=file)
    assert "schedule.stage2.weight.start is a key of schedule.stage2.weight.kind=linear" in text


@pytest.mark.parametrize(
    ("key", "schedule"),
    [
        ("bounds.top", "{kind: steps, values: [1, 2], at: [2]}"),
        ("mix.maths", "{kind: linear, start: 1, end: 0, over: 5}"),
        ("stage2.cap", "{kind: steps, values: [null, 1.5], at: [10]}"),
        ("stage2.combine", "{kind: gated, values: [gated, additive], metric: reward/mean, above: 0.5}"),
        ("whole", "{kind: steps, values: [{kind: fixed}, {kind: searched, target: 0.1}], at: [3]}"),
        ("whole.top", "{kind: constant, value: 2}"),
    ],
)
@pytest.mark.parametrize("text_of", [to_yaml, describe])
def test_text_loads_to_an_equal_config(write: Any, key: str, schedule: str, text_of: Any) -> None:
    config = loaded(f"schedule.{key}={schedule}", WEIGHT)
    assert set(config.schedule) == {key, "stage2.weight"}
    assert loaded(file=write(text_of(config))) == config
    assert RunConfig.model_validate(yaml.safe_load(text_of(config))) == config
    assert pickle.loads(pickle.dumps(config)) == config


# --- the config at a step


def test_without_a_schedule_it_is_the_config_itself() -> None:
    config = loaded("seed=3")
    assert config_at(config, 7) is config


def test_the_config_at_a_step_is_as_if_its_values_had_been_given() -> None:
    config = loaded(WEIGHT, "seed=3", "schedule.stage2.prompts={kind: linear, start: 1, end: 4, over: 20}")
    view = config_at(config, 11)
    assert view == loaded("stage2.weight=0.1", "stage2.prompts=3", "seed=3")  # half way: 0.1; 2.5 rounded up
    assert type(view) is RunConfig
    assert type(view.stage2.weight) is float
    assert type(view.stage2.prompts) is int
    assert config_at(view, 9) is view
    assert difference(config_at(config, 1), config_at(config, 21)) == [
        "stage2.weight: 0.0 -> 0.2",
        "stage2.prompts: 1 -> 4",
    ]


def test_choices_dicts_unions_and_whole_parts_go_with_the_step() -> None:
    config = loaded(
        "bounds.kind=searched",
        "schedule.bounds.target={kind: linear, start: 0.2, end: 0.4, over: 2}",
        "schedule.mix.code={kind: steps, values: [0, 1], at: [3]}",
        "schedule.stage2.cap={kind: steps, values: [null, 1.5], at: [2]}",
        "schedule.whole={kind: steps, values: [{kind: fixed, top: 3}, {kind: searched, target: 0.1}], at: [3]}",
    )
    first, third = config_at(config, 1), config_at(config, 3)
    assert (first.bounds, third.bounds) == (Searched(target=0.2), Searched(target=0.4))
    assert (first.mix, third.mix) == ({"maths": 1.0, "code": 0.0}, {"maths": 1.0, "code": 1.0})
    assert (first.stage2.cap, third.stage2.cap) == (None, 1.5)
    assert (first.whole, third.whole) == (Fixed(top=3), Searched(target=0.1))


def test_gates_choose_and_are_restored() -> None:
    config = loaded("schedule.stage2.combine={kind: gated, values: [gated, additive], metric: acc, above: 0.5}")
    assert config_at(config, 5).stage2.combine == "gated"
    gates = advanced(config.schedule, {}, {"acc": 0.6})
    saved = json.dumps({key: asdict(gate) for key, gate in gates.items()})
    assert saved == '{"stage2.combine": {"position": 1, "streak": 0}}'
    restored = {key: Gate(**gate) for key, gate in json.loads(saved).items()}
    assert config_at(config, 6, gates).stage2.combine == "additive"
    assert config_at(config, 6, restored) == config_at(config, 6, gates)


def test_a_value_that_validators_refuse_on_the_way_stops_the_step() -> None:
    class Holed(Scheduled):
        x: PerStep[float] = 0.0

        @model_validator(mode="after")
        def check_hole(self) -> Self:
            if 0.4 < self.x < 0.6:
                raise ValueError(f"x = {self.x} lies in the hole")
            return self

    config = load(Holed, None, ["schedule.x={kind: linear, start: 0, end: 1, over: 2}"])
    with pytest.raises(ConfigError, match=r"^x = 0\.5 lies in the hole"):
        config_at(config, 2)


# --- no setting in vain


def test_reads_of_the_config_at_a_step_are_reads_of_the_config() -> None:
    config = loaded(WEIGHT, "seed=1", "stage2.prompts=9", "mix.code=1", "stage2.weight=0.1")
    everything = ["schedule.stage2.weight", "seed", "stage2.prompts", "stage2.weight", "mix.code"]
    assert unread(config) == everything
    view = config_at(config, 2)
    assert unread(config) == everything  # validators have read, which counts for nothing
    assert unread(view) == []
    assert (view.seed, view.stage2.prompts) == (1, 9)
    assert unread(config) == ["schedule.stage2.weight", "stage2.weight", "mix.code"]
    assert (config_at(config, 3).stage2.weight, view.mix["code"]) == (0.02, 1.0)
    assert unread(config) == []


def test_a_value_that_a_schedule_replaces_is_refused() -> None:
    """Also where the schedule is a preset's, which whoever sets the value may not know of."""
    config = loaded("stage2.weight=0.1", base=loaded(WEIGHT))
    read_all(config)
    with pytest.raises(ConfigError, match=r"^stage2\.weight has no effect: schedule\.stage2\.weight says what"):
        check_all_read(config)
    fixed = loaded("stage2.weight=0.1", "schedule.stage2.weight=null", base=loaded(WEIGHT))
    named = loaded("mix.code=0.5", f"schedule.mix.code={CONSTANT}")  # what is no field has to be given
    for config in (fixed, named):
        read_all(config)
        check_all_read(config)


def test_reads_before_the_first_step_count_for_the_schedule_too() -> None:
    config = loaded(WEIGHT)
    with pytest.raises(ConfigError, match=r"^schedule\.stage2\.weight has no effect"):
        check_all_read(config)
    read_all(config.stage2)
    check_all_read(config)


def test_a_schedule_that_was_taken_out_promises_nothing() -> None:
    assert unread(loaded("schedule.stage2.weight=null", base=loaded(WEIGHT))) == []
    assert unread(loaded("schedule={}")) == []


class WithDefault(RunConfig):
    """A method with a schedule of its own."""

    schedule: dict[str, Schedule] = Field({"kl_coef": Steps(values=(0.0, 1.0), at=(5,))})


@pytest.mark.parametrize("others", [(), (WEIGHT,)])
@pytest.mark.parametrize("as_text", [to_yaml, describe])
def test_a_default_schedule_that_was_taken_out_stays_out_of_what_is_saved(tmp_path, others, as_text) -> None:
    """A run resumes from that file, and its workers get the same settings."""
    config = load(WithDefault, None, ["schedule.kl_coef=null", *others])
    (tmp_path / "config.yaml").write_text(as_text(config))
    again = load(WithDefault, tmp_path / "config.yaml")
    assert again == config
    assert "kl_coef" not in again.schedule


def test_a_part_that_a_schedule_swaps_is_read_with_the_field_that_holds_it() -> None:
    config = loaded("schedule.whole={kind: steps, values: [{kind: fixed}, {kind: searched}], at: [2]}")
    assert isinstance(config_at(config, 2).whole, Searched)
    assert unread(config) == []


def test_possible_values_are_those_of_the_schedule_and_count_as_read() -> None:
    config = loaded(WEIGHT, "kl_coef=0.5", "schedule.stage2.cap={kind: steps, values: [null, 1], at: [5]}")
    assert possible(config, "stage2.weight") == (0, 0.2)
    assert possible(config, "stage2.cap") == (None, 1)
    assert possible(config, "kl_coef") == (0.5,)
    assert possible(config, "mix.maths") == (1.0,)
    check_all_read(config)


def test_a_key_inside_a_scheduled_part_has_the_values_that_the_part_gives_it() -> None:
    config = loaded("schedule.whole={kind: steps, values: [{}, {top: 3}], at: [5]}")
    assert possible(config, "whole.top") == (1.2, 3)
    check_all_read(config)


# --- what is refused


CONSTANT = "{kind: constant, value: 1}"
STEPS = "{kind: steps, values: [0, -1], at: [5]}"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        # no such key
        (f"schedule.stage2.wieght={CONSTANT}", "schedule: unknown key stage2.wieght: did you mean stage2.weight?"),
        (f"schedule.stge2.weight={CONSTANT}", "schedule: unknown key stge2.weight: did you mean stage2.weight?"),
        (f"schedule.kl={CONSTANT}", "schedule: unknown key kl: did you mean kl_coef?"),
        (f"schedule.bounds.target={CONSTANT}", "bounds.target is a key of bounds.kind=searched, but bounds.kind is fi"),
        (f"schedule.mix.poems={CONSTANT}", "schedule.mix.poems: mix holds no poems, it is {maths: 1.0, code: 0.0}"),
        (f"schedule={{seed.x: {CONSTANT}}}", "schedule.seed.x: seed holds no x, it is 0"),
        (f"schedule.correction.limit={CONSTANT}", "schedule.correction.limit: correction is null, so nothing in it"),
        # not to be scheduled
        (f"schedule.seed={CONSTANT}", "schedule.seed: seed is fixed for the run; what may be scheduled there: kl_coef"),
        (f"schedule.stage2.num_steps={CONSTANT}", "there: stage2.weight, stage2.prompts, stage2.combine, stage2.cap,"),
        (f"schedule.stage2={CONSTANT}", "stage2 is fixed for the run; what may be scheduled there: stage2.weight,"),
        (f"schedule.schedule.stage2={CONSTANT}", "schedule.schedule.stage2: a schedule is fixed for the run"),
        (f"schedule={{whole: {CONSTANT}, whole.top: {CONSTANT}}}", "schedule.whole.top lies in what schedule.whole re"),
        # values that the setting cannot have
        (f"schedule.kl_coef={STEPS}", "schedule.kl_coef = -1: kl_coef must be a number >= 0 and <= 1, got -1"),
        ("schedule.stage2.prompts={kind: linear, start: 2.5, end: 4, over: 3}", "schedule.stage2.prompts = 2.5: stage"),
        ("schedule.stage2.prompts={kind: linear, start: 2, end: 0, over: 3}", "must be a whole number >= 1, got 0"),
        ("schedule.stage2.prompts={kind: linear, start: 0, end: 2, over: 3, after: 0}", ">= 1, got 0"),
        ("schedule.stage2.combine={kind: constant, value: sum}", "stage2.combine must be 'gated' or 'additive', got '"),
        ("schedule.stage2.combine={kind: linear, start: 0, end: 1, over: 3}", "a linear schedule needs a number, and"),
        ("schedule.stage2.weight={kind: constant, value: true}", "stage2.weight must be a number >= 0, got true"),
        ("schedule.stage2.weight={kind: constant, value: .nan}", "schedule.stage2.weight = .nan: "),
        ("schedule.stage2.cap={kind: gated, values: [null, 0], metric: m, above: 0}", "schedule.stage2.cap = 0: stage"),
        ("schedule.whole={kind: constant, value: {kind: fixed, tpo: 3}}", "unknown key whole.tpo: did you mean whole."),
        ("schedule.stage2.low={kind: linear, start: 0, end: 2, over: 5}", "schedule.stage2.low = 2: stage2: low = 2.0"),
        # no schedule
        ("schedule.stage2.weight=3", "schedule.stage2.weight must be a mapping, got 3"),
        ("schedule=3", "schedule must be a mapping, got 3"),
        ("schedule.stage2.weight={start: 0}", "schedule.stage2.weight.kind must be 'constant' or 'steps' or 'linear'"),
        ("schedule.stage2.weight={kind: cosine}", "'gated', got 'cosine'"),
        ("schedule.stage2.weight={kind: linear, start: x, end: 0, over: 1}", "schedule.stage2.weight.start must be a"),
        ("schedule.stage2.weight={kind: linear, start: 1, over: 1}", "schedule.stage2.weight.end has no default and m"),
        ("schedule.stage2.weight={kind: linear, strat: 1}", "schedule.stage2.weight.strat: did you mean schedule.stag"),
        ("schedule.stage2.weight={kind: steps, values: [1], at: [2]}", "schedule.stage2.weight: 1 steps in `at` part"),
        ("schedule.stage2.weight={kind: gated, values: [1], metric: m}", "schedule.stage2.weight: a gated schedule ne"),
        ("schedule.stage2=null", "schedule.stage2=null takes nothing out: name the one value"),
        ("schedule.stage2.wieght=null", "schedule.stage2.wieght=null takes nothing out"),
        (f"schedule={{kl_coef: {CONSTANT}, stage2.weight: {CONSTANT}, stage2: {{weight: {CONSTANT}}}}}", "is given tw"),
    ],
)  # fmt: skip
def test_every_refusal_names_the_key_and_what_to_do(override: str, sentence: str) -> None:
    assert sentence in refusal(override)


def test_values_are_checked_together_as_they_will_meet() -> None:
    high = "schedule.stage2.high={kind: steps, values: [1, 3], at: [6]}"
    low = "schedule.stage2.low={{kind: linear, start: 0, end: 2, over: {}}}"
    config = loaded(high, low.format(10))  # low passes 1 at step 6, when high is 3
    assert config_at(config, 6).stage2.low == 1.0
    text = refusal("schedule.stage2.high={kind: steps, values: [1, 3], at: [7]}", low.format(5))
    assert text == "schedule.stage2.high = 1 and schedule.stage2.low = 2: stage2: low = 2.0 is above high = 1.0"


def test_gates_are_checked_at_every_position_and_too_many_are_refused() -> None:
    gated = "{kind: gated, values: [0, 2], metric: m, above: 0}"
    assert "low = 2.0 is above high = 1.0" in refusal(f"schedule.stage2.low={gated}")
    many = "{kind: gated, values: [" + ", ".join(["0.5"] * 20) + "], metric: m, above: 0}"
    keys = ("kl_coef", "stage2.weight", "stage2.low")
    text = refusal(*(f"schedule.{key}={many}" for key in keys))
    assert text.startswith("schedule: its values meet in 8000 ways, and 4096 is the most that is checked")


def test_a_config_that_is_wrong_without_its_schedule_is_not_blamed_on_it() -> None:
    class Strict(RunConfig):
        @model_validator(mode="after")
        def check_seed(self) -> Self:
            if self.seed == 13:
                raise ValueError("13 brings bad luck")
            return self

    with pytest.raises(ConfigError, match=r"^13 brings bad luck"):
        load(Strict, None, ["seed=13", WEIGHT])


def test_a_mapping_without_end_is_refused(write: Any) -> None:
    assert "without end" in refusal(file=write("schedule: &a\n  foo: *a\n"))


# --- as text, and with the library's own parts


def test_describe_marks_what_may_go_with_the_step() -> None:
    text = describe(loaded())
    assert "# Weight of the KL. May go with the step (schedule).\nkl_coef: 0.01\n" in text
    assert "  # How terms meet. One of: gated, additive. May go with the step (schedule).\n" in text
    assert "seed: 0" in text
    assert text.count("May go with the step") == len(schedulable(loaded())) - 3  # mix's two, and what lies in `whole`


def test_what_may_be_scheduled_is_listed() -> None:
    assert schedulable(loaded("correction={}")) == [
        "kl_coef",
        *(f"stage2.{name}" for name in ("weight", "prompts", "combine", "cap", "low", "high")),
        *("bounds.top", "correction.limit", "mix.maths", "mix.code", "whole", "whole.kind", "whole.top"),
    ]


def test_with_the_parts_of_critique_rl(write: Any) -> None:
    config = load(CritiqueRLConfig, None, [WEIGHT, "stage2.num_steps=30"])
    assert {"stage2.combine", "stage2.weight", "stage1.clip"} <= set(schedulable(config))
    assert "stage1.num_steps" not in schedulable(config)
    view = config_at(config, 11)
    assert (view.stage2.weight, view.stage2.num_steps) == (0.1, 30)
    assert load(CritiqueRLConfig, write(to_yaml(config))) == config
    with pytest.raises(ConfigError, match=r"stage1\.weight"):
        load(CritiqueRLConfig, None, ["schedule.stage1.weight={kind: constant, value: 0.9}"])
    with pytest.raises(ConfigError, match=r"stage1\.num_steps is fixed for the run"):
        load(CritiqueRLConfig, None, ["schedule.stage1.num_steps={kind: constant, value: 9}"])


def test_with_the_bounds_of_a_policy_loss(write: Any) -> None:
    config = load(
        PolicyGradientConfig, None, ["schedule.loss.bounds.high={kind: steps, values: [1.2, 1.28], at: [11]}"]
    )
    assert config_at(config, 11).loss == ClipLoss(bounds=FixedBounds(high=1.28))
    assert load(PolicyGradientConfig, write(to_yaml(config))) == config
    assert Steps(values=(1.2, 1.28), at=(11,)) == config.schedule["loss.bounds.high"]
    with pytest.raises(ConfigError, match=r"schedule\.loss\.bounds\.high = 0\.9: loss\.bounds\.high must be .* >= 1"):
        load(PolicyGradientConfig, None, ["schedule.loss.bounds.high={kind: constant, value: 0.9}"])
