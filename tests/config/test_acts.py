"""Conditions beside fields: when they hold, what is said where they do not, and how a list of settings shows them."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest

from support.idle import idle_keys
from whet.config import Config, ConfigError, PerStep, Scheduled, check_all_read, describe, load
from whet.config.acts import ActsAbove, ActsIf, ActsUnless, ActsWhen, AllOf, AnyOf, Inside, NoEffect
from whet.config.effects import acts
from whet.config.reads import read_all


class Part(Config):
    """A part that several methods share."""

    steps: int = 0
    """0: none."""
    rate: Annotated[float, ActsWhen("steps")] = 1.0
    """How fast."""
    shape: Annotated[PerStep[float], ActsWhen("rate")] = 1.0
    """How it bends."""
    mood: int = 0
    """How it feels."""


class Own(Scheduled):
    """A method's settings."""

    on: PerStep[bool] = False
    """Whether."""
    kind: Literal["plain", "rich"] = "plain"
    """How."""
    rounds: int = 1
    """How often."""
    file: str | None = None
    """What from."""
    weight: Annotated[PerStep[float], ActsWhen("on"), ActsWhen("kind", "rich")] = 0.5
    """How much."""
    history: Annotated[str, ActsAbove("rounds", 1)] = "full"
    """What is seen."""
    share: Annotated[float, ActsUnless("file"), ActsUnless("kind", "rich")] = 0.5
    """Which part."""
    either: Annotated[int, AnyOf(ActsWhen("on"), AllOf(ActsWhen("kind", "rich"), ActsWhen("file")))] = 1
    """One of two."""
    few: Annotated[int, ActsIf(lambda own: own["rounds"] < 5, when="rounds is below 5", fact="rounds are many")] = 1
    """By a function."""
    gone: Annotated[int, NoEffect("nothing is sampled", hint="part.steps limits it")] = 1
    """Of other methods."""
    part: Annotated[Part, Inside("mood", ActsUnless("kind", "rich")), ActsUnless("file")] = Part()


def test_a_condition_on_what_is_no_setting_is_a_sentence():
    class Wrong(Config):
        text: str = "a"
        """A text."""
        missing: Annotated[int, ActsWhen("txet")] = 1
        """Of a key that is none."""
        above: Annotated[int, ActsAbove("text", 1)] = 1
        """A text against a number."""
        breaks: Annotated[int, ActsIf(lambda own: own["none"], when="w", fact="f")] = 1
        """By a function that breaks."""
        chained: Annotated[int, ActsWhen("missing")] = 1
        """Of one that breaks."""

    for key, says in {
        "missing": "when missing has an effect .*: its ActsWhen in Wrong raised LookupError: no setting txet",
        "above": "its ActsAbove in Wrong raised TypeError: '>' not supported",
        "breaks": "its ActsIf in Wrong raised KeyError: 'none'; mend that condition",
        "chained": "when missing has an effect cannot be told",
    }.items():
        with pytest.raises(ConfigError, match=says):
            acts(Wrong(), key)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ActsWhen(3), "ActsWhen takes the key of a setting, such as 'loss.kind', not 3"),
        (lambda: ActsUnless(""), "ActsUnless takes the key of a setting"),
        (lambda: ActsWhen("on", object()), r"ActsWhen\('on'\) takes values that settings have, not <object"),
        (lambda: ActsAbove("rounds", "a"), r"ActsAbove\('rounds'\) takes a number, not 'a'"),
        (lambda: AnyOf(), "AnyOf takes one condition or more"),
        (lambda: AllOf("on"), "AllOf takes conditions, .*, not 'on'"),
        (lambda: Inside("mood", ActsWhen), "Inside takes conditions"),
    ],
)
def test_what_is_no_condition_is_refused_where_it_is_written(make, says):
    with pytest.raises(TypeError, match=says):
        make()


def refused(*settings: str) -> str:
    config = load(Own, overrides=list(settings))
    read_all(config)  # as a run does: conditions hold whatever is read
    with pytest.raises(ConfigError) as error:
        check_all_read(config)
    return str(error.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["weight=1"], "weight has no effect: on is false. Set on to true, or leave weight out."),
        (["on=true", "weight=1"], "weight has no effect: kind is plain. Set kind to rich, or leave weight out."),
        (["history=last"], "history has no effect: rounds is 1. Set rounds above 1, or leave history out."),
        (["file=a", "share=1"], "share has no effect: file is a. Leave file out, or leave share out."),
        (
            ["either=2"],
            "either has no effect: on is false and kind is plain. "
            "Set on to true or set kind to rich, or leave either out.",
        ),
        (["rounds=5", "few=2"], "few has no effect: rounds are many. Leave few out."),
        (["gone=2"], "gone has no effect: nothing is sampled. Leave gone out (part.steps limits it)."),
        (
            ["part.rate=2", "part.shape=2"],
            "part.rate, part.shape have no effect: part.steps is 0. Set part.steps above 0, or leave them out.",
        ),
        (
            ["part.steps=1", "part.rate=0", "part.shape=2"],
            "part.shape has no effect: part.rate is 0.0. Set part.rate above 0, or leave part.shape out.",
        ),
        (["kind=rich", "part.mood=2"], "part.mood has no effect: kind is rich. "),
        (["file=a", "part.steps=2"], "part.steps has no effect: file is a. "),
        (["schedule.weight={kind: constant, value: 1}"], "schedule.weight has no effect: on is false. "),
        (["gone=2", "few=2", "rounds=7"], "gone has no effect: nothing is sampled. "),
        (["gone=2", "few=2", "rounds=7"], " few has no effect: rounds are many. Leave few out."),
    ],
)
def test_a_setting_without_effect_is_refused_with_its_condition(settings, says):
    assert says in refused(*settings)


@pytest.mark.parametrize(
    "settings",
    [
        ["on=true", "kind=rich", "weight=1"],
        ["rounds=2", "history=last"],
        ["either=2", "on=true"],
        ["either=2", "kind=rich", "file=a"],
        ["rounds=4", "few=2"],
        ["part.steps=1", "part.rate=2", "part.shape=2", "part.mood=2"],
        ["weight=0.5", "gone=1", "part.rate=1"],  # their defaults: they promise nothing
        ["schedule.on={kind: steps, values: [false, true], at: [5]}", "kind=rich", "weight=1"],  # it comes to be true
    ],
)
def test_a_setting_with_an_effect_is_let_through(settings):
    config = load(Own, overrides=settings)
    read_all(config)
    check_all_read(config)


def test_what_a_schedule_replaces_whole_may_come_to_act():
    class Outer(Scheduled):
        part: PerStep[Part] = Part()

    values = "{kind: steps, values: [{steps: 0}, {steps: 2}], at: [3]}"
    assert acts(load(Outer, overrides=[f"schedule.part={values}"]), "part.rate")
    assert not acts(Outer(), "part.rate")


def test_asking_counts_as_no_read_and_a_part_is_named_whole():
    config = load(Own, overrides=["file=a", "kind=rich"])
    assert list(idle_keys(config)) == ["weight", "history", "share", "gone", "part"]
    assert config._read == set()


def test_a_part_may_act_where_something_inside_it_acts():
    class Round(Config):
        part: Annotated[Part, ActsWhen("part.steps")] = Part()

    assert not acts(Round(), "part.mood")
    assert acts(Round(part=Part(steps=2)), "part.mood")


def test_a_list_of_settings_shows_the_conditions():
    text = " ".join(describe(Own()).replace("#", "").split())
    assert "How much. May go with the step (schedule). Acts where on is true, and kind is rich. weight: 0.5" in text
    assert "Acts where rounds is above 1. history: full" in text
    assert "Acts where file is not given, and kind is not rich. share: 0.5" in text
    assert "Acts where on is true or (kind is rich and file is given). either: 1" in text
    assert "Acts where rounds is below 5. few: 1" in text
    assert "Acts where part.steps is above 0. rate: 1.0" in text
    assert "How it feels. Acts where kind is not rich. mood: 0" in text
    assert load(Own) == Own()
