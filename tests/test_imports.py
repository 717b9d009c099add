"""Imports go one way: a room may import the rooms above it, at module level. A hidden import means a wrong room."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
ROOMS = (
    *("errors", "types", "objectives", "config", "sandbox", "tasks", "grading", "envs", "models", "engines", "play"),
    *("evals", "training", "recipes", "report", "cli"),
)
ALLOWED = {room: set(ROOMS[: i + 1]) for i, room in enumerate(ROOMS)}
ALLOWED["errors"] = {"errors"}
ALLOWED["types"] = {"types"}
ALLOWED["objectives"] = {"objectives"}  # tensors in, tensors out
ALLOWED["config"] = {"config", "types", "errors"}
ALLOWED["sandbox"] = {"sandbox"}  # what runs inside must see nothing else
ALLOWED["tasks"] -= {"objectives"}  # which import torch
ALLOWED["__main__"] = {"cli"}
TORCH_FREE = ("errors", "types", "config", "sandbox", "tasks")
HEAVY = ("torch", "transformers")
LATE = ("peft", "math_verify", "plotly", "reasoning_gym")
"""Optional or slow: a function may import them."""


@dataclass(frozen=True)
class Import:
    module: str
    """Dotted; `from a import b` is `a.b`, which may be a name in `a`."""
    line: int
    in_function: bool


def imports(tree: ast.Module, package: str) -> Iterator[Import]:
    """Every import in a module, also those under `if`, `try` and `TYPE_CHECKING`, and `import_module("...")`.

    Args:
        package: the dotted package that relative imports start from.
    """
    late = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            modules = [".".join([*parents, *filter(None, [node.module]), alias.name]) for alias in node.names]
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func) and node.args:
            modules = [str(node.args[0].value)] if isinstance(node.args[0], ast.Constant) else []
        yield from (Import(module, node.lineno, node in late) for module in modules)


def problems(file: Path, text: str) -> list[str]:
    """What is wrong with a file's imports, a sentence each.

    Args:
        file: below `src`.
    """
    parts = file.with_suffix("").parts
    if parts == ("whet", "__init__"):
        room = "__init__"
    elif len(parts) > 1 and parts[1] in ALLOWED:
        room = parts[1]
    else:
        return [f"{file}: {parts[1]} is no room; add it to ROOMS, where its imports belong"]
    found = []
    for each in imports(ast.parse(text), ".".join(file.parent.parts)):
        sentence = problem(room, each)
        if sentence:
            found.append(f"{file}:{each.line}: {sentence}")
    return found


def problem(room: str, each: Import) -> str | None:
    top, _, below = each.module.partition(".")
    if top == "whet":
        return _our_problem(room, each, below.partition(".")[0])
    if top in HEAVY and room in TORCH_FREE:
        return f"{room} must stay free of {top}"
    if room == "objectives" and top != "torch" and top not in sys.stdlib_module_names:
        return f"objectives may import torch only, not {top}"
    if top in HEAVY and room in ("cli", "__main__", "__init__") and not each.in_function:
        return f"{room} must be instant: import {top} in the function that needs it"
    may_be_late = room == "cli" or top in LATE or top in sys.stdlib_module_names
    return f"import {top} at module level" if each.in_function and not may_be_late else None


def _our_problem(room: str, each: Import, target: str) -> str | None:
    if room == "__init__":
        return None if each.in_function else f"whet/__init__ may import whet.{target} in functions only"
    if target not in ALLOWED:  # a name of whet/__init__, which is there before any room
        return None
    if target not in ALLOWED[room]:
        return f"{room} may not import {target}"
    if each.in_function and room != "cli":
        return f"import whet.{target} at module level; needing it in a function means code in the wrong room"
    return None


def test_imports_go_one_way() -> None:
    files = sorted(SOURCE.glob("whet/**/*.py"))
    assert files, "no source found"
    found = [line for file in files for line in problems(file.relative_to(SOURCE), file.read_text(encoding="utf-8"))]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("models/policy.py", "from whet.training.loop import run", ":1: models may not import training"),
        ("models/policy.py", "import whet.training", "models may not import training"),
        ("models/policy.py", "from whet import training", "models may not import training"),
        ("models/policy.py", "from ..training import loop", "models may not import training"),
        ("models/policy.py", "if TYPE_CHECKING:\n    from whet.play import driver", ":2: models may not import play"),
        ("models/policy.py", "def f():\n    from whet.types import Row", ":2: import whet.types at module level"),
        ("models/policy.py", "f = lambda: importlib.import_module('whet.config')", "whet.config at module level"),
        ("models/policy.py", "async def f():\n    import transformers", "import transformers at module level"),
        ("types.py", "from whet.config import Config", "types may not import config"),
        ("config/base.py", "import torch.nn", "config must stay free of torch"),
        (
            "tasks/chains.py",
            "def f():\n    from transformers import AutoTokenizer",
            "tasks must stay free of transformers",
        ),
        ("tasks/chains.py", "from whet.objectives import k1", "tasks may not import objectives"),
        ("objectives/kl.py", "from whet.types import Row", "objectives may not import types"),
        ("objectives/kl.py", "import numpy as np", "objectives may import torch only, not numpy"),
        ("cli.py", "import torch", "cli must be instant"),
        ("__init__.py", "from whet.config import load", "may import whet.config in functions only"),
        ("misc/helpers.py", "", "misc is no room"),
    ],
)
def test_the_check_can_fail(file: str, text: str, sentence: str) -> None:
    (found,) = problems(Path("whet") / file, text)
    assert sentence in found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "models/policy.py",
            "import torch\nfrom whet.types import Row\nfrom whet.models.tiny import load\nfrom . import tiny",
        ),
        ("models/policy.py", "def f():\n    import peft, resource"),
        ("objectives/kl.py", "import math\nfrom torch import Tensor\nfrom whet.objectives.clip import clip"),
        ("cli.py", "from whet.config import load\ndef f():\n    import torch\n    from whet.recipes import session"),
        ("__main__.py", "from whet.cli import main"),
        ("__init__.py", "def __getattr__(name):\n    from whet.config import load"),
        ("report/page.py", "from whet import __version__"),
    ],
)
def test_the_check_can_pass(file: str, text: str) -> None:
    assert problems(Path("whet") / file, text) == []


def test_every_room_sees_the_ones_above_it() -> None:
    for above, below in pairwise(ROOMS):
        assert below not in ALLOWED[above]


@pytest.mark.parametrize("module", ["cli", "config", "sandbox", "tasks", "types"])
def test_light_rooms_load_without_torch(module: str) -> None:
    """Directly or through others: this is what the `ast` cannot see."""
    if not (SOURCE / "whet" / f"{module}.py").exists() and not (SOURCE / "whet" / module).exists():
        pytest.skip(f"whet.{module} is not there yet")
    names = [module, *(f"{module}.{file.stem}" for file in (SOURCE / "whet" / module).glob("*.py"))]
    code = f"import sys, {', '.join(f'whet.{n}' for n in names if not n.endswith('__init__'))}\n"
    code += f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
