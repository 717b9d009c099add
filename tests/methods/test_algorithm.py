"""What a method is made of: an algorithm of few members, and beside it a spec as data."""

import json
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from support.sessions import session_of
from whet.methods import METHODS
from whet.methods.base import Algorithm, MethodSpec
from whet.methods.evaluator import Evaluator
from whet.methods.registry import preset_of
from whet.report.spec import ReportSpec, to_json

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import house_figures

OURS = [entry.name for entry in METHODS if entry.origin == "whet"]  # other tests load plug-ins
ALGORITHMS = sorted({preset_of(name).algorithm for name in OURS}, key=lambda algorithm: algorithm.__name__)
MEMBERS = {"spec", "config", "run", "evaluator", "phases", "at"}


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_an_algorithm_has_at_most_eight_members():
    method = session_of("nft", "data.num_train=16", "prompts_per_step=4").algorithm
    assert public(dir(Algorithm)) <= MEMBERS
    assert public(dir(method)) == MEMBERS  # NFT adds none
    assert len(MEMBERS) <= 8


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.__name__)
def test_little_is_inherited(algorithm):
    """A reader of a method needs its file and functions by name, and no chain of classes."""
    assert house_figures.inherited_lines(algorithm) <= 60
    assert house_figures.inherited_lines(algorithm.spec.evaluator) <= 300
    family = [each for each in algorithm.__mro__[1:] if issubclass(each, Algorithm) and each is not Algorithm]
    assert len(family) <= 1
    assert len(public(dir(Algorithm)) | set().union(*(public(vars(each)) for each in family))) <= 8


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.__name__)
def test_a_spec_is_whole(algorithm):
    spec = algorithm.spec
    assert isinstance(spec, MethodSpec)
    assert issubclass(spec.evaluator, Evaluator)
    assert spec.roles
    assert spec.final_policies
    assert set(spec.snapshots) <= set(spec.final_policies)
    assert set(spec.skills) <= set(spec.roles)
    assert set(spec.swappable) <= set(spec.roles)
    assert spec.best_of(spec.final_policies) == spec.final_policies[-1]
    assert [spec.target_of(row) for row in spec.snapshots.values()] == list(spec.snapshots)
    assert isinstance(spec.report, ReportSpec)
    assert isinstance(spec.report_of(spec.config()), ReportSpec)


def test_a_method_names_what_differs_from_its_family():
    nft, coder = (preset_of(name).algorithm.spec for name in ("nft", "critique_coder"))
    differing = {field.name for field in fields(MethodSpec) if getattr(nft, field.name) != getattr(coder, field.name)}
    assert differing == {"config", "evaluator", "skills", "conversations", "report"}


def test_the_report_of_a_run_follows_its_settings():
    spec, config = preset_of("grpo").algorithm.spec, preset_of("grpo").config
    assert spec.report_of(config).is_compared
    assert not spec.report_of(config.model_copy(update={"advantage": "reward"})).is_compared
    assert json.loads(to_json(spec.report_of(config)))["best"] == spec.report.best
