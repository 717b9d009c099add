"""Imports go one way: a room may import the rooms above it, at module level. A hidden import means a wrong room."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
FILES = {
    file.relative_to(source): file
    for source in (SOURCE, Path(__file__).parents[1] / "packages" / "mathgrade" / "src")
    for file in sorted(source.rglob("*.py"))
}
"""By their places below `src`: whet, and the package in this repository that it is installed with."""
ALLOWED: dict[str, set[str]] = {
    "chat": {"errors"},
    "digests": set(),
    "distribution": set(),
    "environment": set(),
    "errors": set(),
    "exits": {"errors"},
    "files": set(),
    "near": set(),
    "seeds": set(),
    "types": set(),
    "objectives": set(),  # tensors in, tensors out
    "sandbox": set(),  # what runs inside must see nothing else
    "registry": {"errors", "near"},
    "plugin_modules": {"digests"},
    "plugins": {"errors", "plugin_modules", "registry"},
    "rewards": {"errors", "plugins", "registry", "types"},
    "config": {"errors", "near", "registry"},
    "tasks": {"config", "distribution", "errors", "near", "registry", "sandbox", "seeds", "types"},
    "grading": {"errors", "plugin_modules", "plugins", "registry", "sandbox", "tasks", "types"},
    "envs": {
        *("chat", "config", "distribution", "errors", "files", "grading", "registry", "sandbox", "seeds", "tasks"),
        "types",
    },
    "models": {"chat", "config", "digests", "distribution", "errors", "files", "tasks", "types"},
    "engines": {"config", "distribution", "errors", "files", "models", "seeds", "types"},
    "trainer": {  # no play, and no method
        *("config", "errors", "models", "objectives", "plugins", "registry", "seeds", "types"),
    },
    "rollout": {  # never trains
        *("chat", "config", "engines", "envs", "errors", "grading", "models", "seeds", "tasks", "types"),
    },
    "evaluation": {"errors", "grading", "plugins", "registry", "rollout", "tasks", "types"},
    "credit": {
        *(
            "config",
            "errors",
            "evaluation",
            "models",
            "objectives",
            "plugins",
            "registry",
            "rewards",
            "trainer",
            "types",
        ),
    },
    "runs": {
        *("chat", "config", "credit", "digests", "distribution", "engines", "envs", "errors", "evaluation", "files"),
        *(
            "grading",
            "models",
            "rollout",
            "plugin_modules",
            "plugins",
            "registry",
            "rewards",
            "seeds",
            "tasks",
            "trainer",
            "types",
        ),
    },
    "methods": {
        *("config", "credit", "envs", "errors", "evaluation", "grading", "models", "objectives", "rollout", "registry"),
        *("rewards", "runs", "seeds", "tasks", "trainer", "types"),
    },
    "report": {"config", "errors", "evaluation", "runs", "types"},  # what a run's folder says, and no method
    "api": {
        *("chat", "config", "digests", "distribution", "engines", "environment", "errors", "evaluation", "exits"),
        *("files", "grading", "methods", "models", "plugins", "rollout", "report", "runs", "seeds", "tasks", "types"),
    },
    "serve": {
        "chat",
        *("config", "distribution", "engines", "errors", "grading", "models", "rollout", "runs", "seeds", "tasks"),
        "types",
    },
    "cli": {
        *("api", "config", "distribution", "environment", "envs", "errors", "exits", "methods", "models", "plugins"),
        *("registry", "report", "runs", "serve", "types"),
    },
    "__main__": {"cli"},
}
"""Which rooms a room may import, beside itself."""
ROOMS = tuple(ALLOWED)
TORCH_FREE = (
    "chat",
    "digests",
    "distribution",
    "environment",
    "errors",
    "exits",
    "files",
    "near",
    "types",
    "seeds",
    "registry",
    "plugin_modules",
    "plugins",
    "rewards",
    "config",
    "sandbox",
    "tasks",
    "grading",
    "envs",
)
HEAVY = ("torch", "transformers")
READERS = ("grading", "tasks")
"""Rooms that may import mathgrade, which imports nothing of whet. `tasks` finds the answers of worked solutions."""
INSTANT = ("cli", "api")
"""Rooms at the door: their functions import what is heavy when they need it."""
LATE = (
    *("peft", "math_verify", "plotly", "reasoning_gym", "pyarrow", "datasets", "huggingface_hub", "openai"),
    "httpx",  # comes with openai
    *("scienceworld", "py4j", "minigrid", "gymnasium"),
)
"""Optional or slow: a function may import them."""


@dataclass(frozen=True)
class Import:
    module: str
    """Dotted; `from a import b` is `a.b`, which may be a name in `a`."""
    line: int
    in_function: bool
    for_types: bool
    """Under `if TYPE_CHECKING`: nothing is imported when the program runs."""


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
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
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
        yield from (Import(module, node.lineno, node in late, node in for_types) for module in modules)


def problems(file: Path, text: str) -> list[str]:
    """What is wrong with a file's imports, a sentence each.

    Args:
        file: below `src`.
    """
    parts = file.with_suffix("").parts
    if parts in (("whet", "__init__"), ("whet", "kit")):
        room = "__init__"
    elif parts[0] == "mathgrade":
        room = "mathgrade"
    elif len(parts) > 1 and parts[1] in ALLOWED:
        room = parts[1]
    else:
        return [f"{file}: {parts[1]} is no room; add it to ALLOWED, with the rooms that it may import"]
    found = []
    for each in imports(ast.parse(text), ".".join(file.parent.parts)):
        sentence = problem(room, each)
        if sentence:
            found.append(f"{file}:{each.line}: {sentence}")
    return found


def problem(room: str, each: Import) -> str | None:
    top, _, below = each.module.partition(".")
    if room == "mathgrade":
        return f"mathgrade may not import {top}" if top in ("whet", *HEAVY) else None
    if top == "mathgrade" and room not in READERS:
        return f"{room} may not import mathgrade; {' and '.join(READERS)} may"
    if top == "whet":
        return _our_problem(room, each, below.partition(".")[0])
    if top in HEAVY and room in TORCH_FREE:
        return f"{room} must stay free of {top}"
    if room == "objectives" and top != "torch" and top not in sys.stdlib_module_names:
        return f"objectives may import torch only, not {top}"
    if top in HEAVY and room in ("cli", "__main__", "__init__") and not each.in_function:
        return f"{room} must be instant: import {top} in the function that needs it"
    may_be_late = room in INSTANT or top in LATE or top in sys.stdlib_module_names
    return f"import {top} at module level" if each.in_function and not may_be_late else None


def _our_problem(room: str, each: Import, target: str) -> str | None:
    if room == "__init__":
        return (
            None
            if each.in_function or each.for_types
            else f"whet and whet.kit may import whet.{target} in functions only"
        )
    if target not in ALLOWED:  # a name of whet/__init__, which is there before any room
        return None
    if target != room and target not in ALLOWED[room]:
        return f"{room} may not import {target}"
    if each.in_function and room not in INSTANT:
        return f"import whet.{target} at module level; needing it in a function means code in the wrong room"
    return None


def test_imports_go_one_way() -> None:
    assert {place.parts[0] for place in FILES} == {"whet", "mathgrade"}, "no source found"
    found = [line for place, file in FILES.items() for line in problems(place, file.read_text(encoding="utf-8"))]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("models/policy.py", "from whet.trainer.loop import run", ":1: models may not import trainer"),
        ("models/policy.py", "import whet.trainer", "models may not import trainer"),
        ("models/policy.py", "from whet import trainer", "models may not import trainer"),
        ("models/policy.py", "from ..trainer import loop", "models may not import trainer"),
        (
            "models/policy.py",
            "if TYPE_CHECKING:\n    from whet.rollout import driver",
            ":2: models may not import rollout",
        ),
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
        ("rollout/roles.py", "from mathgrade import grade", "rollout may not import mathgrade; grading and tasks may"),
        ("mathgrade/answers.py", "from whet.types import Grade", ":1: mathgrade may not import whet"),
        ("mathgrade/reading/units.py", "def f():\n    import torch", ":2: mathgrade may not import torch"),
    ],
)
def test_the_check_can_fail(file: str, text: str, sentence: str) -> None:
    (found,) = problems(Path(file) if file.startswith("mathgrade") else Path("whet") / file, text)
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
        ("cli.py", "from whet.config import load\ndef f():\n    import torch\n    from whet.runs import session"),
        ("__main__.py", "from whet.cli import main"),
        ("__init__.py", "def __getattr__(name):\n    from whet.config import load"),
        ("__init__.py", "if TYPE_CHECKING:\n    from whet.config import load"),
        ("report/page.py", "from whet import __version__"),
        ("grading/maths.py", "from mathgrade import examine"),
        ("mathgrade/grading.py", "import re\ndef f():\n    from mathgrade.symbolic.comparing import compare"),
    ],
)
def test_the_check_can_pass(file: str, text: str) -> None:
    assert problems(Path(file) if file.startswith("mathgrade") else Path("whet") / file, text) == []


def test_rooms_import_each_other_in_no_circle() -> None:
    """So that there is an order in which they can be read."""
    left = {room: set(allowed) for room, allowed in ALLOWED.items()}
    while left:
        free = {room for room, allowed in left.items() if not allowed & left.keys()}
        assert free, f"these import each other: {', '.join(sorted(left))}"
        left = {room: allowed for room, allowed in left.items() if room not in free}


def modules() -> dict[str, set[str]]:
    """Every module of ours, and those that it imports when it is imported itself."""
    known = {".".join(place.with_suffix("").parts).removesuffix(".__init__"): place for place in FILES}
    found: dict[str, set[str]] = {}
    for name, place in known.items():
        file, package = FILES[place], ".".join(place.parent.parts)
        each = [i for i in imports(ast.parse(file.read_text()), package) if not i.in_function and not i.for_types]
        # `from a import b` may mean a module b in a, or a name in a.
        targets = {i.module if i.module in known else i.module.rpartition(".")[0] for i in each}
        found[name] = (targets & known.keys()) - {name}
    return found


def test_no_module_imports_itself_through_others() -> None:
    left = modules()
    packages = {name for name in left if any(other.startswith(f"{name}.") for other in left)}
    # A package that exports its modules' names is loaded before them; they import each other by their own names.
    left = {
        name: {t for t in targets if t not in packages or not name.startswith(f"{t}.")}
        for name, targets in left.items()
    }
    while left:
        free = {name for name, targets in left.items() if not targets & left.keys()}
        assert free, f"a circle among: {', '.join(sorted(left))}"
        left = {name: targets for name, targets in left.items() if name not in free}


def test_no_method_imports_a_method() -> None:
    """But presets, which are settings of one."""
    methods = {name: targets for name, targets in modules().items() if name.startswith("whet.methods.")}
    assert len(methods) > 8
    for name, targets in methods.items():
        others = {target for target in targets if target in methods}
        assert len(others) <= (1 if ".presets." in name else 0), f"{name}: {others}"


@pytest.mark.parametrize(
    "module",
    [
        "api.commands",
        "api.run",
        "cli",
        "config",
        "credit.added",
        "grading",
        "plugins",
        "registry",
        "report",
        "sandbox",
        "tasks",
        "types",
    ],
)
def test_light_rooms_load_without_torch(module: str) -> None:
    """Directly or through others: this is what the `ast` cannot see."""
    place = SOURCE / "whet" / module.replace(".", "/")
    if not place.with_suffix(".py").exists() and not place.exists():
        pytest.skip(f"whet.{module} is not there yet")
    names = [module, *(f"{module}.{file.stem}" for file in place.glob("*.py"))]
    code = f"import sys, {', '.join(f'whet.{n}' for n in names if not n.endswith('__init__'))}\n"
    code += f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
