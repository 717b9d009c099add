"""Settings of a user's own under a name: over a method or another preset, checked when the name is asked for."""

from __future__ import annotations

import pytest

import whet
from support.commands import config_of, logged
from support.commands import whet as command
from whet.methods import METHODS
from whet.methods.registry import preset_of
from whet.methods.user_presets import PresetError
from whet.plugins import PluginError, load_plugins
from whet.registry import UnknownName

PATIENT = '''
import whet
from whet.config.losses import ClipLoss

@whet.preset("patient", of="grpo")
def patient():
    """GRPO with small steps and a dual clip"""
    return {"num_steps": 2, "learning.learning_rate": 1e-5, "loss": ClipLoss(dual=3.0), "learning": {"num_epochs": 2}}

@whet.preset("patient_long", of="patient")
def patient_long():
    return {"num_steps": 3}
'''


ROUND = [("of_a_test", "grpo"), ("of_a_test_too", "of_a_test"), ("of_a_test", "of_a_test_too")]
ENDLESS: dict[str, object] = {}
ENDLESS["learning"] = ENDLESS


@pytest.fixture(autouse=True)
def registered_as_before():
    before = dict(METHODS._entries)
    yield
    METHODS._entries.clear()
    METHODS._entries.update(before)


def test_its_settings_are_over_those_of_its_method_and_under_the_users(tmp_path):
    file = tmp_path / "patient.py"
    file.write_text(PATIENT)
    load_plugins([file])
    config, base = config_of("patient", "group_size=3"), config_of("grpo")
    assert (config.num_steps, config.learning.learning_rate, config.learning.num_epochs) == (2, 1e-5, 2)
    assert (config.loss.kind, config.loss.dual, config.group_size) == ("clip", 3.0, 3)
    assert config.learning.minibatch_rows == base.learning.minibatch_rows
    long = preset_of("patient_long")
    assert (long.config.num_steps, long.config.loss.dual) == (3, 3.0)
    assert long.algorithm is preset_of("grpo").algorithm
    assert METHODS.entry("patient").says == "GRPO with small steps and a dual clip"
    assert METHODS.entry("patient_long").says == "patient with other settings"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"num_stepz": 3}, "unknown key num_stepz: did you mean num_steps?"),
        ({"loss.kind": "clp"}, "there is no policy loss 'clp'"),
        ({"kl.coef": -1.0}, "kl.coef must be a number >= 0"),
        ({"kl.estimator": "k1"}, "kl.estimator has no effect: kl.coef is 0.*Set kl.coef above 0"),
        ({"method": "critique_rl"}, "method must be 'policy_gradient'"),
        ({"plugins": ["x.py"]}, "plugins are named by who trains it"),
        ({"num_steps": object()}, "num_steps must be a whole number .*, got one of type object"),
        ({"learning": ENDLESS}, "its settings hold themselves, or are nested too deeply"),
    ],
)
def test_settings_that_are_none_are_a_sentence_that_names_the_preset(settings, says):
    whet.preset("of_a_test", of="grpo")(lambda: settings)
    with pytest.raises(PresetError, match=f"the preset 'of_a_test' of .*: {says}") as error:
        preset_of("of_a_test")
    assert "\n" not in str(error.value)


def test_a_default_that_is_given_again_promises_nothing():
    whet.preset("of_a_test", of="grpo")(lambda: {"kl.estimator": "k3", "kl.coef": 0.0})
    assert preset_of("of_a_test").config == preset_of("grpo").config


def test_what_can_be_no_preset_is_refused_as_it_is_registered(tmp_path):
    with pytest.raises(UnknownName, match="there is no method 'grppo'; did you mean 'grpo'"):
        whet.preset("of_a_test", of="grppo")(dict)
    for of in (None, 3, [1]):
        with pytest.raises(UnknownName, match=r"there is no method .*: give its name, as a text"):
            whet.preset("of_a_test", of=of)(dict)
    with pytest.raises(ValueError, match="has to return its settings by key"):
        whet.preset("of_a_test", of="grpo")(lambda: [1])
    file = tmp_path / "round.py"
    makers = [f"@whet.preset('{name}', of='{of}')\ndef make():\n    return {{}}\n" for name, of in ROUND]
    file.write_text("import whet\n" + "".join(makers))
    with pytest.raises(PluginError, match=r"'of_a_test' is registered twice, first by .*round.py, line 2: give"):
        load_plugins([file])
    file = tmp_path / "grpo.py"
    file.write_text("import whet\n\n\n@whet.preset('grpo', of='dapo')\ndef mine():\n    return {}\n")
    with pytest.raises(PluginError, match=r"line 4, .*there is a method 'grpo' already, of whet: choose another name"):
        load_plugins([file])
    METHODS._entries.pop("of_a_test")


def test_what_the_caller_changes_later_changes_no_preset():
    settings = {"num_steps": 3}
    whet.preset("of_a_test", of="grpo")(lambda: settings)
    settings["num_steps"] = 4
    assert preset_of("of_a_test").config.num_steps == 3


def test_it_trains_by_its_name_and_goes_on_as_it_began(tmp_path, random_model):
    file, run = tmp_path / "patient.py", tmp_path / "run"
    file.write_text(PATIENT)
    listed = " ".join(command("list", "methods", f"--plugins={file}").stdout.split())
    assert "patient GRPO with small steps and a dual clip patient.py" in listed
    small = [f"plugins=[{file}]", f"policy.path={random_model}", "prompts_per_step=2", "group_size=2", "num_threads=1",
             "evaluation.num_samples=0", "data.num_validation=2", "data.num_test=2", "data.num_train=8"]  # fmt: skip
    command("train", "patient", *small, "--out", run)
    assert [row["step"] for row in logged(run) if row["phase"] == "train" and row["step"]] == [1, 2]
    (run / "summary.json").unlink()
    file.write_text(PATIENT.replace("1e-5", "1e-4"))
    done = command("resume", run, check=False)
    assert done.returncode == 1
    assert f"plugins = {file} was replaced since the run began" in " ".join((done.stdout + done.stderr).split())
    done = command("train", "patient", *small, "num_stepz=3", "--out", tmp_path / "other", check=False)
    assert "unknown key num_stepz" in done.stdout + done.stderr
