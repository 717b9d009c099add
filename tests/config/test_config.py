"""The config room: what a user may write, what is refused and how it is said, and that no setting is set in vain."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pytest
import yaml
from pydantic import Field, ValidationError, model_validator

from whet.config import Config, ConfigError, check_all_read, describe, difference, load, read_all, to_yaml, unread
from whet.config.inputs import inputs_of
from whet.config.parts import ModelConfig
from whet.methods.agent.agent_gradient_config import AgentGradientConfig
from whet.methods.critic.critique_rl_config import CritiqueRLConfig


class Adam(Config):
    """Adam."""

    learning_rate: float = Field(1e-3, gt=0, le=1)
    """The peak."""
    betas: tuple[float, float] = (0.9, 0.95)


class Stage(Config):
    """One stage of training."""

    num_steps: int = Field(10, ge=0)
    """Steps. 0: the stage is left out."""
    optimizer: Adam = Adam(learning_rate=0.5)
    mode: Literal["hard", "soft"] = "hard"
    """How a verdict counts."""
    bonus: float = Field(0.2, allow_inf_nan=True)
    """With mode = soft: the verdict's weight."""

    @model_validator(mode="after")
    def check_bonus(self) -> Self:
        if self.bonus > 1 and self.mode == "soft":
            raise ValueError(f"a bonus of {self.bonus} drowns the reward: choose one up to 1")
        return self


class Files(Config):
    kind: Literal["files"] = "files"
    path: str
    """Where the rows are."""
    limit: int | None = None


class World(Config):
    kind: Literal["world"] = "world"
    size: int = 3


class Lora(Config):
    rank: int = Field(16, ge=1)
    inner: Adam = Adam(betas=(0.5, 0.5))


class Policy(Config):
    path: str = "tiny"
    lora: Lora | None = None
    """None: all weights train."""


class RunConfig(Config):
    """A run."""

    seed: int = 0
    """Of everything random."""
    data: Annotated[World | Files, Field(discriminator="kind")] = World(size=7)
    stage1: Stage = Stage(num_steps=40)
    """The first stage."""
    policies: dict[str, Policy] = Field({"actor": Policy(path="big")})
    weights: dict[str, float] = Field(default_factory=lambda: {"format": 0.1})
    stop: tuple[str, ...] = ()
    note: str | None = None
    loud: bool = False
    stages: tuple[Stage, ...] = ()
    out: Path = Path("runs")


def loaded(*overrides: str, file: Path | None = None) -> RunConfig:
    return load(RunConfig, file, overrides)


def refusal(*overrides: str, file: Path | None = None) -> str:
    """The sentence that refuses them."""
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


# --- what can be said


def test_nothing_given_is_the_defaults() -> None:
    assert loaded() == RunConfig()


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("seed=7", "seed", 7),
        ("seed=007", "seed", 7),  # not octal
        ("seed=1e3", "seed", 1000),
        ("stage1.optimizer.learning_rate=1e-3", "stage1.optimizer.learning_rate", 0.001),
        ("stage1.optimizer.learning_rate = .5", "stage1.optimizer.learning_rate", 0.5),
        ("stage1.bonus=-.inf", "stage1.bonus", float("-inf")),
        ("stage1.optimizer.betas=[0.5, 1e-1]", "stage1.optimizer.betas", (0.5, 0.1)),
        ("stop=[no, '1', \"a: b\"]", "stop", ("no", "1", "a: b")),
        ("loud=no", "loud", False),
        ("loud=on", "loud", True),
        ("loud=true", "loud", True),
        ("note=no", "note", "no"),
        ("note=null", "note", None),
        ("note=None", "note", None),
        ("note='null'", "note", "null"),
        ("note=''", "note", ""),
        ("note=12:30", "note", "12:30"),
        ("note=2024-01-01", "note", "2024-01-01"),
        ("note=a=b: #1 *x", "note", "a=b: #1 *x"),
        ("data.size=9", "data.size", 9),
        ("weights.length=2", "weights", {"format": 0.1, "length": 2.0}),
        ("policies.actor.lora={}", "policies.actor.lora", Lora()),
        ("out=a/b", "out", Path("a/b")),
    ],
)
def test_values_become_what_the_field_wants(override: str, key: str, value: Any) -> None:
    node: Any = loaded(override)
    for part in key.split("."):
        node = node[part] if isinstance(node, dict) else getattr(node, part)
    assert node == value


def test_a_default_with_settings_of_its_own_keeps_them_when_one_key_is_given(write: Any) -> None:
    for config in (loaded("stage1.bonus=0.1"), loaded(file=write("stage1: {bonus: 0.1}"))):
        assert (config.stage1.bonus, config.stage1.num_steps, config.stage1.optimizer.learning_rate) == (0.1, 40, 0.5)
    betas = loaded("stage1.optimizer.betas=[0, 0]").stage1.optimizer
    assert betas == Adam(learning_rate=0.5, betas=(0, 0))
    assert loaded("policies.actor.lora.rank=2").policies == {"actor": Policy(path="big", lora=Lora(rank=2))}
    assert loaded("policies.actor.lora.inner.learning_rate=1").policies["actor"].lora == Lora(
        inner=Adam(learning_rate=1, betas=(0.5, 0.5))
    )
    assert loaded("policies.judge.path=j").policies == {"actor": Policy(path="big"), "judge": Policy(path="j")}


def test_another_kind_starts_from_its_own_defaults() -> None:
    assert loaded("data.kind=files", "data.path=x.jsonl").data == Files(path="x.jsonl")
    assert loaded("data={kind: world}").data == World(size=7)


def test_overrides_win_over_the_file_and_later_over_earlier(write: Any) -> None:
    file = write("seed: 1\nstage1:\n  num_steps: 2\n  mode: soft\n")
    config = loaded("seed=3", "stage1.num_steps=5", "seed=4", file=file)
    assert (config.seed, config.stage1.num_steps, config.stage1.mode) == (4, 5, "soft")
    lora = loaded("policies.actor.lora=null", "policies.actor.lora.rank=3").policies["actor"].lora
    assert lora == Lora(rank=3)
    assert loaded("policies.actor.lora.rank=3", "policies.actor.lora=null").policies["actor"].lora is None


def test_anchors_and_lists_of_configs(write: Any) -> None:
    file = write("stages:\n- &one {num_steps: 1, optimizer: {betas: [0, 0]}}\n- <<: *one\n  mode: soft\n")
    adam = Adam(learning_rate=0.5, betas=(0, 0))
    one = Stage(num_steps=1, optimizer=adam)
    assert loaded(file=file).stages == (one, one.model_copy(update={"mode": "soft"}))
    shared = write("policies:\n  a: &p {path: x}\n  b: *p\n")
    assert [p.path for p in loaded("policies.a.path=y", file=shared).policies.values()] == ["big", "y", "x"]


def test_an_empty_file_says_nothing(write: Any) -> None:
    assert loaded(file=write("# all commented out\n")) == RunConfig()


def test_configs_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        loaded().seed = 3  # type: ignore[misc]


# --- what is refused, and how


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("lerning_rate=1", "unknown key lerning_rate: did you mean stage1.optimizer.learning_rate"),
        ("learning_rate=1", "unknown key learning_rate: did you mean stage1.optimizer.learning_rate"),
        ("stage1.learning_rate=1", "stage1.learning_rate: did you mean stage1.optimizer.learning_rate?"),
        ("stagee1.optimizer.learning_rate=1", "did you mean stage1.optimizer.learning_rate?"),
        ("stage1={optimizr: {betas: [0, 0]}}", "stage1.optimizr.betas: did you mean stage1.optimizer.betas?"),
        ("num_step=1", "did you mean stage1.num_steps"),
        ("policies.actor.pth=x", "unknown key policies.actor.pth: did you mean policies.actor.path?"),
        ("zzz=1", "unknown key zzz: the keys here are seed, data, stage1,"),
        ("model=x", "unknown key model: did you mean data.path or policies.NAME.path?"),
        ("preset=fast", "unknown key preset: published settings are methods of their own, which `whet methods` lists"),
        ("data.zzz=1", "unknown key data.zzz: the keys of data are kind, size"),
        ("data.path=x", "data.path is a key of data.kind=files, but data.kind is world: change one of the two"),
    ],
)
def test_unknown_keys_name_the_nearest(override: str, sentence: str) -> None:
    assert sentence in refusal(override)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("seed=x", "seed must be a whole number, got 'x'"),
        ("seed=1.5", "seed must be a whole number, got 1.5"),
        ("seed=true", "seed must be a whole number, got true"),
        ("seed=null", "seed must be a whole number, got null"),
        ("seed.x=3", "seed must be a whole number, got {x: 3}"),
        ("stage1.num_steps=-1", "stage1.num_steps must be a whole number >= 0, got -1"),
        ("stage1.optimizer.learning_rate=2", "stage1.optimizer.learning_rate must be a number > 0 and <= 1, got 2"),
        ("stage1.mode=sft", "stage1.mode must be 'hard' or 'soft', got 'sft'"),
        ("stage1=null", "stage1 must be a mapping, got null"),
        ("stage1.optimizer.betas=[1]", "stage1.optimizer.betas must be a list of 2: [a number, a number], got [1]"),
        ("stage1.optimizer.betas=[1, 2, 3]", "stage1.optimizer.betas must be a list of 2"),
        ("stage1.optimizer.betas=[1, x]", "stage1.optimizer.betas.1 must be a number, got 'x'"),
        ("stop=x", "stop must be a list, each text, got 'x'"),
        ("loud=maybe", "loud must be true or false, got 'maybe'"),
        ("note=3", "note must be text or null, got 3; as text it is note='\"3\"'"),
        ("data.kind=moon", "data.kind must be 'world' or 'files', got 'moon'"),
        ("data.kind=files", "data.path has no default and must be given: data.path=VALUE"),
        ("data={kind: files, path: x, limit: y}", "data.limit must be a whole number or null, got 'y'"),
        ("policies.actor.lora.rank=0", "policies.actor.lora.rank must be a whole number >= 1, got 0"),
        ("stages=[{num_steps: -2}]", "stages.0.num_steps must be a whole number >= 0, got -2"),
        ("stage1={mode: soft, bonus: 3}", "stage1: a bonus of 3.0 drowns the reward: choose one up to 1"),
    ],
)
def test_wrong_values_say_where_what_and_what_is_allowed(override: str, sentence: str) -> None:
    assert sentence in refusal(override)


def test_several_wrong_values_are_all_named() -> None:
    assert refusal("seed=x", "loud=maybe").endswith("got 'x' (also wrong: loud)")
    text = refusal("sed=1", "loudd=1")
    assert "did you mean seed?" in text
    assert "did you mean loud?" in text


@pytest.mark.parametrize("override", ["seed", "=3", "a..b=3", ".seed=1", "stage1. num_steps=1", ""])
def test_malformed_overrides(override: str) -> None:
    assert "write key=value" in refusal(override)


def test_overrides_that_are_nearly_right() -> None:
    assert refusal("--seed=3").endswith("without its dashes it is seed=3")
    assert "write seed=null for none" in refusal("seed=")
    assert refusal("stop=[a").startswith("stop: '[a' is not valid YAML")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- 1\n- 2\n", "holds a list, not a mapping"),
        ("hello\n", "holds the single value hello, not a mapping"),
        ("seed: [1\n", "is not valid YAML at line 2"),
        ("seed: 1\nloud: no\nseed: 2\n", 'is not valid YAML at line 3, column 1 (found duplicate key "seed"'),
        ("stage1: {num_steps: 1, num_steps: 2}\n", 'found duplicate key "num_steps"'),
        ("? [a]\n: 1\n", "is not valid YAML"),
        ("seed: !!python/object/apply:os.getcwd []\n", "is not valid YAML"),
    ],
)
def test_files_that_are_no_config(write: Any, text: str, sentence: str) -> None:
    assert sentence in refusal(file=write(text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert refusal(file=tmp_path / "absent.yaml").startswith("there is no config file")
    assert "is a folder, a pipe or a device" in refusal(file=tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8" in refusal(file=tmp_path / "binary.yaml")


def test_a_large_file_is_refused_before_it_is_parsed(write: Any) -> None:
    begun = time.process_time()
    said = refusal(file=write("seeds: [" + "1, " * 5_000_000 + "1]\n"))
    assert "has 15,000,011 bytes, more than 500,000: give a file of settings or prompts" in said
    assert time.process_time() - begun < 1.0  # parsing it would take minutes


# --- no setting in vain


def test_what_the_user_set_must_be_read() -> None:
    config = loaded("seed=1", "stage1.bonus=0.3", "stage1.optimizer.learning_rate=0.1")
    assert unread(config) == ["seed", "stage1.bonus", "stage1.optimizer.learning_rate"]
    assert config.seed == 1
    assert config.stage1.optimizer.learning_rate == 0.1
    assert config.stage1.num_steps == 40  # not set by the user: read or not, it is no matter
    with pytest.raises(
        ConfigError,
        match=r"^stage1\.bonus has no effect: .* reads it\. .*, or leave stage1\.bonus out\.$",
    ):
        check_all_read(config)
    assert config.stage1.bonus == 0.3
    check_all_read(config)


def test_reads_reach_through_dicts_lists_and_optional_configs() -> None:
    config = loaded("policies.actor.lora.rank=2", "policies.actor.path=x", "weights.format=1", "stages=[{bonus: 1}]")
    assert unread(config) == ["policies.actor.lora.rank", "policies.actor.path", "weights.format", "stages.0.bonus"]
    actor, stage = config.policies["actor"], config.stages[0]
    assert unread(config) == ["policies.actor.lora.rank", "policies.actor.path", "weights.format", "stages.0.bonus"]
    assert actor.lora is not None
    assert (actor.lora.rank, config.weights["format"], stage.bonus) == (2, 1.0, 1.0)
    assert unread(config) == ["policies.actor.path"]


def test_a_kind_is_read_with_the_config_it_chose() -> None:
    config = loaded("data.kind=files", "data.path=x")
    assert unread(config) == ["data.kind", "data.path"]
    assert isinstance(config.data, Files)
    assert unread(config) == ["data.path"]


def test_a_key_set_to_its_default_promises_nothing(write: Any) -> None:
    config = loaded("seed=1", file=write(to_yaml(RunConfig())))
    assert unread(config) == ["seed"]


def test_a_part_handed_on_whole_counts_as_read() -> None:
    config = loaded("stage1.bonus=0.3", "policies.actor.lora.rank=2", "stages=[{bonus: 1}]", "seed=1")
    for part in (config.stage1, config.policies, config.stages):
        read_all(part)
    assert unread(config) == ["seed"]


def test_looking_at_a_config_reads_nothing() -> None:
    config = loaded("seed=1", "stage1.mode=soft", "stage1.bonus=0.5", "data.size=2")  # check_bonus reads bonus and mode
    to_yaml(config), describe(config), difference(config, RunConfig()), repr(config), config.model_dump_json()
    assert config != RunConfig()
    assert unread(config) == ["seed", "stage1.mode", "stage1.bonus", "data.size"]


def test_reads_do_not_leak_between_configs_or_between_equal_parts() -> None:
    read, other = loaded("stage1.bonus=0.3"), loaded("stage1.bonus=0.3")
    assert read.stage1.bonus == 0.3
    assert unread(other) == ["stage1.bonus"]
    both = loaded("policies.a.lora.rank=2", "policies.b.lora.rank=2")
    assert both.policies["a"].lora is not None
    assert both.policies["a"].lora.rank == 2
    assert unread(both) == ["policies.b.lora.rank"]


def test_a_copy_shares_its_reads_and_survives_pickling() -> None:
    config = loaded("seed=1", "loud=true")
    assert config.model_copy(update={"note": "x"}).seed == 1
    assert unread(config) == ["loud"]
    assert pickle.loads(pickle.dumps(config)) == config == copy.deepcopy(config)


def test_a_config_made_in_code_has_nothing_unread() -> None:
    check_all_read(RunConfig(seed=3))


# --- a config as text


AWKWARD = [
    *("note='1e-3'", "note='no'", "note='null'", "note='None'", "note='007'", "note='true'", "note=' a: b # c'"),
    *('note="two\\nlines"', "note=ünïcode", "note=''", "stage1.bonus=1e-30", "stage1.bonus=1e22", "stage1.bonus=.inf"),
    *("data={kind: files, path: x}", "policies.actor.lora.rank=2", "stages=[{num_steps: 1}]", "weights={'1': 2}"),
    *("stop=['1', 'a, b', ']']", "out=/a b/c"),
]


@pytest.mark.parametrize("override", AWKWARD)
@pytest.mark.parametrize("text_of", [to_yaml, describe])
def test_text_loads_to_an_equal_config(write: Any, override: str, text_of: Any) -> None:
    config = loaded(override)
    text = text_of(config)
    assert loaded(file=write(text)) == config
    assert RunConfig.model_validate(yaml.safe_load(text)) == config  # any YAML reader will do


def test_to_yaml_is_whole_and_in_order() -> None:
    text = to_yaml(loaded("stage1.optimizer.betas=[0.5, 0.25]"))
    assert "    betas: [0.5, 0.25]\n" in text
    keys = [line.split(":")[0] for line in text.splitlines() if line[0] != " "]
    assert keys == list(RunConfig.model_fields)


def test_describe_says_what_each_key_is() -> None:
    text = describe(loaded())
    assert text.startswith("# A run.\n\n# Of everything random.\nseed: 0\n")
    assert "  # Steps. 0: the stage is left out.\n  num_steps: 40\n" in text
    assert "  # How a verdict counts. One of: hard, soft.\n  mode: hard\n" in text
    assert "  # One of: world, files.\n  kind: world\n" in text
    assert "  # Adam.\n  optimizer:\n    # The peak.\n    learning_rate: 0.5\n" in text
    assert "    # None: all weights train. Keys, where it is set: rank, inner.\n    lora: null\n" in text
    assert max(map(len, text.splitlines())) <= 100


def test_difference_names_what_changed() -> None:
    old = loaded("policies.actor.lora.rank=2", "data.size=3")
    new = loaded("seed=2", "stage1.optimizer.betas=[0, 1]", "data={kind: files, path: x}")
    assert difference(old, old) == []
    assert difference(old, new) == [
        "seed: 0 -> 2",
        "data.kind: world -> files",
        "data.size: 3 -> (absent)",
        "data.path: (absent) -> x",
        "data.limit: (absent) -> null",
        "stage1.optimizer.betas: [0.9, 0.95] -> [0.0, 1.0]",
        "policies.actor.lora: {rank: 2, inner: {learning_rate: 0.001, betas: [0.5, 0.5]}} -> null",
    ]


def test_models_by_name_are_inputs_too() -> None:
    """A run records their digests, so that it does not resume with other weights."""
    config = AgentGradientConfig(beside={"more": ModelConfig(path="runs/more")})
    assert ("beside.more.path", "model", "runs/more") in list(inputs_of(config))


def test_the_config_room_is_quick_to_import() -> None:
    code = "import sys, whet.config; print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_readmes_settings_for_a_real_model_are_accepted(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    block = readme.split("```yaml\n")[1].split("```")[0]
    file = tmp_path / "qwen.yaml"
    file.write_text(block)
    config = load(CritiqueRLConfig, file)
    assert config.prompts == "english"
    assert config.actor.lora is not None


def test_a_file_of_another_methods_settings_says_so_and_not_all_its_keys(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("method: grpo_of_old\nlerning_rate: 1\nbeta_of_old: 2\n")
    with pytest.raises(ConfigError) as caught:
        load(CritiqueRLConfig, file)
    said = str(caught.value)
    assert said.startswith(f"{file} is for the method 'grpo_of_old', and was read as settings of critique_rl: ")
    assert "unknown key lerning_rate" in said
    assert "beta_of_old" not in said
    file.write_text("method: critique_rl\nlerning_rate: 1\n")
    with pytest.raises(ConfigError, match=r"^unknown key lerning_rate"):
        load(CritiqueRLConfig, file)
