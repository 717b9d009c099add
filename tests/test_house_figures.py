"""`scripts/house_figures.py`: packing lines, or passing a name on, changes none of its figures."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "house_figures.py"
PACKED = "def f(\n    a, b,\n):  # fmt: skip\n    x = {'a': a, 'b': b}; return x\n"
SPREAD = "def f(\n    a,\n    b,\n):\n    x = {'a': a, 'b': b}\n    return x\n"


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The script, over a small house of its own."""
    spec = importlib.util.spec_from_file_location("house_figures", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "house_figures", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "SOURCE", tmp_path / "src" / "whet")
    return module


def house(script, **files: str) -> None:
    for name, text in files.items():
        file = script.SOURCE / f"{name.replace('__in_', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_packed_lines_count_as_spread_ones(script):
    house(script, one=PACKED)
    packed = script.sizes()
    house(script, one=SPREAD)
    spread = script.sizes()
    assert packed["lines"] == spread["lines"] == 6
    assert packed["statements"] == spread["statements"] == 3
    assert (packed["fmt_skip"]["src"], spread["fmt_skip"]["src"]) == (1, 0)


def test_a_family_of_methods_is_a_room(script):
    house(script, methods__in_base="a = 1\n", methods__in_agent__in_evol="b = 1\nc = 2\n", runs__in_loop=SPREAD)
    assert script.sizes()["lines_per_room"] == {"methods/agent": 2, "methods": 1, "runs": 6}


def test_a_name_counts_where_it_is_defined(script):
    """Of a package that passes two names on, the user imports two modules; one of them before it runs."""
    house(
        script,
        parts__in___init__="from whet.parts.a import A\nfrom .b import B as C\n",
        parts__in_a="A = 1\n",
        parts__in_b="from whet.parts.a import A\ndef B(): ...\n",
        user="import json\nfrom whet.parts import A\ndef g():\n    from whet.parts import C\n",
    )
    modules = script.Modules()
    assert modules.targets("whet.user") == {"whet.parts.a", "whet.parts.b"}
    assert modules.targets("whet.user", first=True) == {"whet.parts.a"}
    assert modules.depths()["whet.user"] == 4  # user, parts, parts.b, parts.a


def test_a_chain_begins_at_the_method_and_leaves_out_what_drives_a_run(script):
    loop, method, base, losses = (Path(name) for name in ("loop.py", "nft.py", "base.py", "losses.py"))
    assert script.chain_of([loop, method, loop, base, losses], {loop}, [method, base]) == [base, losses]
    assert script.chain_of([loop, losses], {loop}, [method]) == [losses]
