"""Who names what: rooms outside know engines and trainers by their protocols alone."""

from __future__ import annotations

import ast
from pathlib import Path

from support.remote_engine import RemoteEngine
from whet.engines.local import LocalEngine
from whet.engines.protocol import Engine
from whet.trainer.local import LocalTrainer
from whet.trainer.protocol import Trainer

SOURCE = Path(__file__).parents[2] / "src" / "whet"
CLASSES = {"LocalEngine": "engines", "Stream": "engines", "LocalTrainer": "trainer", "Learner": "trainer"}
"""Classes behind the protocols, and the room that may name each."""


def members(kind: type) -> set[str]:
    return {name for name in (*vars(kind), *getattr(kind, "__annotations__", {})) if not name.startswith("_")}


def names_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported = {each.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for each in node.names}
    return imported | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_other_rooms_name_the_protocols_and_no_class_behind_them():
    names_by_file = {file.relative_to(SOURCE): names_in(file) for file in SOURCE.rglob("*.py")}
    assert any("Engine" in names for file, names in names_by_file.items() if file.parts[0] == "rollout")
    found = {
        (str(file), name)
        for file, names in names_by_file.items()
        for name, own in CLASSES.items()
        if file.parts[0] != own and name in names
    }
    assert found == set()


def test_each_kind_has_every_member(random_policy):
    assert members(Engine) == members(RemoteEngine), "and the remote one no others, so that no caller asks for more"
    assert members(Engine) <= set(dir(LocalEngine(random_policy)))
    assert members(Trainer) <= members(LocalTrainer)
