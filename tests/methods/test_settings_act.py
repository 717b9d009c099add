"""A setting acts, or a run that sets it is refused: of every method, by the conditions beside its fields."""

from __future__ import annotations

import contextlib
import json
import re
from random import Random
from typing import Any

import pytest
from test_conformance import LATER, WHOLE, below, tiny, unread_of

from support.commands import Quiet, config_of
from support.idle import idle_keys
from support.switches import directed, drawn, inner_keys, leaves, other_value, switches, whole
from whet.config import Config, ConfigError, check_all_read
from whet.config.acts import ActsIf, NoEffect
from whet.config.base import dotted
from whet.config.effects import acts, conditions_of, why_idle
from whet.config.reads import forget_reads, read_all
from whet.config.runs import RunConfig
from whet.methods import METHODS
from whet.methods.registry import preset_of
from whet.methods.stages_config import Stage
from whet.run import launch, session, start

NAMES = list({preset_of(name).algorithm: name for name in reversed(METHODS.names())}.values())
"""A name of every method."""
NEEDED = {"auto_critique": {"given": "somewhere"}}
"""What a method needs to do without what its switches switch off."""
NUM_DRAWN = 30
"""Random settings of each method."""


def made(name: str, values: dict[str, Any]) -> RunConfig | None:
    """None: these values are no settings of the method."""
    try:
        return config_of(name, *(f"{key}={json.dumps(value)}" for key, value in values.items()))
    except ConfigError:
        return None


@pytest.fixture(scope="module", params=NAMES)
def variants(request) -> tuple[str, list[tuple[RunConfig, dict[str, Any]]]]:
    """A method with its defaults, with each switch at each of its values, alone and with others."""
    default, rng = preset_of(request.param).config, Random(request.param)
    kind = type(default)
    values = [{}, *({key: value} for key, some in switches(kind).items() for value in some)]
    values += directed(kind)
    values += [drawn(kind, rng, rng.choice((0.3, 0.7))) for _ in range(NUM_DRAWN)]
    values = [{**whole(default, each), **NEEDED.get(request.param, {})} for each in values]
    found = [(config, each) for each in values if (config := made(request.param, each)) is not None]
    assert len(found) > len(switches(kind)) / 2
    return request.param, found


def test_each_condition_is_on_settings_that_exist_and_both_holds_and_fails(variants):
    name, configs = variants
    outcomes: dict[str, set[bool]] = {}
    for config, _ in configs:
        for key in leaves(config):
            if len(outcomes.get(dotted(key), ())) < 2 and any(conditions_of(config, key)):
                outcomes.setdefault(dotted(key), set()).add(why_idle(config, key) is None)
    lacking = {key for key in inner_keys(type(configs[0][0])) if not any(_below(each, key) for each in outcomes)}
    assert lacking == set(), "no such settings of a part"
    chosen = {dotted(key) for key in leaves(configs[0][0])}  # of other kinds of a part, those that were drawn
    ways = {key: found for key, found in outcomes.items() if len(found) < 2 and not _is_fixed(configs, key)}
    ways = {key: found for key, found in ways.items() if key in chosen}
    assert ways == {}, f"{name}: they always act, or never do"


def _below(key: str, place: str) -> bool:
    return key == place or key.startswith(f"{place}.")


def _is_fixed(configs: list[tuple[RunConfig, dict[str, Any]]], key: str) -> bool:
    """Whether no other setting alone decides: it never acts in this method, or acts by a function."""
    place = tuple(key.split("."))
    return any(isinstance(mark, NoEffect | ActsIf) for config, _ in configs for _, mark in conditions_of(config, place))


def test_who_sets_what_has_no_effect_is_refused_and_nobody_else(variants):
    """Whatever was set: what is named is what its field says, and what the run reads is no part of it."""
    for config, values in variants[1]:
        read_all(config)  # as a run does before it is let begin
        default = type(config)()
        idle = [key for key in values if not acts(config, key) and values[key] != _value(default, key)]
        if not idle:
            check_all_read(config)
            continue
        with pytest.raises(ConfigError, match="no effect: ") as error:
            check_all_read(config)
        sentences = str(error.value)
        assert all(key in sentences for key in idle)
        assert "{" not in sentences.replace("{}", "")


def _value(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = config.__dict__.get(part) if isinstance(config, Config) else None
    return config


@pytest.mark.parametrize("name", NAMES)
def test_each_setting_alone_is_refused_where_it_has_no_effect_and_let_through_elsewhere(name):
    default = type(preset_of(name).config)()
    outcomes: dict[bool, list[str]] = {True: [], False: []}
    for place in leaves(default):
        key, value = dotted(place), other_value(default, place)
        config = made(name, {key: value}) if value is not None else None
        if config is None or key in default.schedule:
            continue
        read_all(config)
        outcomes[acts(config, key)].append(key)
        if acts(config, key):
            check_all_read(config)
        else:
            with pytest.raises(ConfigError, match=f"^{re.escape(key)} has no effect: "):
                check_all_read(config)
    assert len(outcomes[True]) > 20


READ_ANYWAY = {
    "again", "max_plan", "warm_start.drilled",  # asked of attempts alone, and handed on to those that critique actions
    "answers", "iterations",  # the loop of stages goes by them, and finds none
    "evaluation.history", "watch.then",  # handed on to rounds that are one, and to warnings of other kinds
    "judge_reward", "kept_steps", "loss.epsilon", "num_refinements",  # handed on, to nothing that weighs anything
    "corrupter.name",  # of which seat is filled
    "conditional",  # handed on to examples of questions where nothing is refined
    "critique.max_new_tokens", "roles.critique.max_new_tokens",  # of the room that replies take
    "refinement.max_new_tokens",
    "filters.barrier", "filters.threshold",  # written down beside data that nothing refines
    "warm_start.misled",  # drawn beside the other shares, so that an episode's draws do not hang on them
    "warm_start.file", "warm_start.rows_per_step",  # of a warm start without steps, which makes an empty phase
    "warm_start.learning.minibatch_rows", "warm_start.learning.num_epochs",
}  # fmt: skip
"""Settings without effect that a run looks at all the same."""


@pytest.mark.integration
@pytest.mark.parametrize("name", WHOLE)
def test_what_a_run_reads_is_what_fields_say_to_act(name, tmp_path, monkeypatch):
    """With switches drawn anew: a tiny run, in which nothing counts as read but what is."""
    rng = Random(f"{name}, run")
    default = preset_of(name).config
    config = None
    while config is None:
        values = {key: value for key, value in drawn(type(default), rng, 0.4).items() if key.split(".")[0] in TOGGLED}
        values = {key: value for key, value in values.items() if value not in ("endpoint", "somewhere", ["somewhere"])}
        given = [f"{key}={json.dumps(value)}" for key, value in whole(default, values).items()]
        with contextlib.suppress(ConfigError):
            config = config_of(name, *tiny(name), *given)
    monkeypatch.setattr(session, "read_all", lambda config: None)
    monkeypatch.setattr(launch, "check_all_read", lambda config: None)
    monkeypatch.setattr(start, "plan", lambda session: [])
    forget_reads(config)
    begun = launch.start(config, tmp_path / "run", Quiet())
    assert isinstance(begun, session.Session)
    begun.go()
    unread, idle = set(unread_of(config)), set(idle_keys(config))
    assert {key for key in unread if not below(key, idle | LATER.keys()) and not _is_size(config, key)} == set()
    read_in_vain = {dotted(key) for key in leaves(config) if below(dotted(key), idle)} - unread
    assert read_in_vain <= READ_ANYWAY


TOGGLED = {
    "stage1", "stage2", "warm_start", "feedback", "merge", "num_originals", "allocation", "rg1", "rg2", "rg3", "locate",
    "filters", "of", "critic", "base_share", "weighting", "solve", "refine", "kl", "credit", "judge_share",
    "first_stage", "refine_weight", "distil", "loss", "watch", "answers", "evaluation", "actor",
}  # fmt: skip
"""The parts whose switches a run of seconds may turn."""


def _is_size(config: RunConfig, key: str) -> bool:
    """Of a stage that is left out, whose sizes may stand."""
    stage = getattr(config, key.partition(".")[0], None)
    return isinstance(stage, Stage) and stage.num_steps == 0


@pytest.mark.parametrize("name", METHODS.names())
def test_no_preset_is_refused_and_idle_settings_say_why(name):
    config = preset_of(name).config
    read_all(config)
    check_all_read(config)
    assert all(reason.fact for reason in idle_keys(config).values())


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("grpo", ("watch.steps=0", "watch.then=stop"), "watch.then has no effect: watch.steps is 0. Set watch.ste"),
        ("critique_rl", ("evaluation.history=last",), "evaluation.history has no effect: evaluation.num_rounds is 1. "),
        ("critique_rl", ("stage2.discrimination=false", "stage2.weight=0.5"),
         "stage2.weight has no effect: stage2.discrimination is false. Set stage2.discrimination to true, or leave st"),
        ("critique_rl", ("stage2.discrimination=false", "stage2.combine=additive"), "stage2.combine has no effect: "),
        ("critique_rl", ("warm_start.actor_steps=0", "warm_start.critic_steps=0", "warm_start.refine_share=0.1"),
         "warm_start.refine_share has no effect: warm_start.actor_steps is 0. "),
        ("critique_rl", ("stage1.num_steps=0", "stage2.num_steps=0", "iterations=2"),
         "iterations has no effect: stage1.num_steps is 0 and stage2.num_steps is 0. "),
        ("agent_critic", ("stage2.discrimination=false", "stage2.combine=additive"), "stage2.combine has no effect: "),
        ("agent_critic", ("warm_start.critiqued=0", "warm_start.misled=0.5"), "warm_start.misled has no effect: "),
        ("agent_evol", ("trajectories=[a]", "expert.num_episodes=2"), "expert.num_episodes has no effect: "),
    ],
)  # fmt: skip
def test_settings_that_were_let_through_are_refused(name, settings, says):
    config = config_of(name, *settings)
    read_all(config)
    with pytest.raises(ConfigError) as error:
        check_all_read(config)
    assert says in str(error.value)
