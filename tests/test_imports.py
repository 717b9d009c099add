"""Imports go one way: a room may import the rooms above it, at module level. A hidden import means a wrong room."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
FILES = {
    file.relative_to(source): file
    for source in (SOURCE, Path(__file__).parents[1] / "packages" / "mathgrade" / "src")
    for file in sorted(source.rglob("*.py"))
}
"""By their places below `src`: whet, and the package in this repository that it is installed with."""
FAMILIES = sorted(init.parent.name for init in (SOURCE / "whet" / "methods").glob("*/__init__.py"))
"""Folders of `methods`, each a room of its own. A new one is a family by being there."""


def rooms(names: str) -> set[str]:
    return set(names.split())


_SHARED = rooms(
    "chat config credit envs errors evaluation grading methods models objectives report rewards rollout run_folder "
    "seeds tasks trainer trajectories types"
)
"""What a family may import. No family imports another, and none imports `run`."""
ALLOWED: dict[str, set[str]] = {
    "chat": rooms("errors"),
    "digests": set(),
    "distribution": set(),
    "environment": set(),
    "errors": set(),
    "exits": rooms("errors"),
    "files": set(),
    "near": set(),
    "seeds": set(),
    "tool_calls": rooms("types"),
    "types": set(),
    "objectives": set(),  # tensors in, tensors out
    "sandbox": set(),  # what runs inside must see nothing else
    "registry": rooms("errors near"),
    "plugin_modules": rooms("digests"),
    "plugins": rooms("digests errors plugin_modules registry"),
    "rewards": rooms("errors plugins registry types"),
    "callbacks": rooms("errors plugins registry"),
    "run_folder": rooms("distribution errors files types"),
    "config": rooms("digests errors near registry"),
    "tasks": rooms("config digests distribution errors near registry sandbox seeds types"),
    "grading": rooms("errors plugin_modules plugins registry sandbox tasks types"),
    "envs": rooms("config distribution errors grading registry sandbox seeds tasks types web"),
    "trajectories": rooms("chat distribution envs errors files seeds tasks tool_calls types"),
    "models": rooms("chat config digests distribution errors files tasks tool_calls types"),
    "engines": rooms("config distribution errors files models seeds types"),
    "trainer": rooms(  # no rollout, and no method
        "callbacks config digests engines errors files models objectives plugins registry run_folder seeds types"
    ),
    "rollout": rooms("chat config engines envs errors grading models seeds tasks tool_calls types"),  # never trains
    "evaluation": rooms("config errors grading plugins registry rollout tasks types"),
    "credit": rooms("config errors evaluation models objectives plugins registry rewards trainer types"),
    "report": rooms("config errors evaluation near run_folder types"),  # what a run's folder says, and no method
    "tracking": rooms("distribution errors files report run_folder types"),  # reads a folder, and no trainer
    "methods": _SHARED - rooms("methods objectives") | rooms("plugins registry"),  # what families share
    **{f"methods.{family}": _SHARED for family in FAMILIES},
    "cluster": rooms("config distribution engines errors models rollout trainer types"),
    "run": rooms(
        "callbacks chat cluster config digests distribution engines envs errors evaluation files grading methods "
        "methods.agent models plugin_modules plugins registry report rewards rollout run_folder seeds tasks tracking "
        "trainer trajectories types"
    ),
    "checks": rooms(
        "chat config distribution errors grading methods models plugin_modules plugins rewards run run_folder sandbox "
        "seeds tasks trainer types"
    ),
    "kit": set(),  # names, each loaded where it is first asked for
    "api": rooms(
        "chat config digests distribution engines environment errors evaluation exits files grading methods models "
        "near plugins report rollout run run_folder seeds tasks trainer types"
    ),
    "web": rooms("errors"),
    "serve": rooms(
        "chat config distribution engines errors grading methods models rollout run seeds tasks tool_calls types web"
    ),
    "cli": rooms(
        "api checks cluster config distribution environment envs errors evaluation exits grading methods models "
        "plugin_modules plugins registry report rewards run run_folder serve tracking trajectories types web"
    ),
    "__main__": rooms("cli"),
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
    "tool_calls",
    "types",
    "seeds",
    "registry",
    "plugin_modules",
    "plugins",
    "rewards",
    "callbacks",
    "config",
    "sandbox",
    "tasks",
    "grading",
    "envs",
    "trajectories",
    "web",
)
HEAVY = ("torch", "transformers")
READERS = ("grading", "tasks")
"""Rooms that may import mathgrade, which imports nothing of whet. `tasks` finds the answers of worked solutions."""
INSTANT = ("cli", "api", "cluster")
"""Rooms at the door: their functions import what is heavy when they need it. The cluster's run in other processes."""
LATE = (
    *("peft", "math_verify", "reasoning_gym", "pyarrow", "datasets", "huggingface_hub", "openai"),
    *("httpx", "httpcore"),  # come with openai
    "websockets",
    *("trackio", "wandb", "mlflow", "llguidance"),
    *("scienceworld", "py4j", "minigrid", "gymnasium", "bm25s"),
    *("verifiers", "verifiers_turns"),  # where verifiers is installed and whet is not
    *("textworld_express", "textworld", "alfworld"),
    "IPython",  # of a notebook's kernel
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


@cache
def imports(tree: ast.Module, package: str) -> list[Import]:
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
    found = []
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            modules = [".".join([*parents, *filter(None, [node.module]), alias.name]) for alias in node.names]
        elif isinstance(node, ast.Call) and node.args and "import_module" in ast.unparse(node.func):
            modules = [str(node.args[0].value)] if isinstance(node.args[0], ast.Constant) else []
        found += [Import(module, node.lineno, node in late, node in for_types) for module in modules]
    return found


@cache
def parsed(text: str) -> ast.Module:
    """Of a file's text; several checks read every file."""
    return ast.parse(text)


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
    elif room_of(parts) in ALLOWED:
        room = room_of(parts)
    else:
        return [f"{file}: {parts[1]} is no room; add it to ALLOWED, with the rooms that it may import"]
    found = []
    for each in imports(parsed(text), ".".join(file.parent.parts)):
        sentence = problem(room, each)
        if sentence:
            found.append(f"{file}:{each.line}: {sentence}")
    return found


def room_of(parts: Sequence[str]) -> str:
    """Of a dotted path that begins with `whet`: the second part, or for a family of methods `methods.NAME`.

    What torchrun starts is a command line in the cluster's folder."""
    if list(parts[1:3]) == ["cluster", "__main__"]:
        return "cli"
    is_family = len(parts) > 2 and parts[1] == "methods" and parts[2] in FAMILIES
    return ".".join(parts[1 : 3 if is_family else 2])


def problem(room: str, each: Import) -> str | None:
    top = each.module.partition(".")[0]
    if room == "mathgrade":
        return f"mathgrade may not import {top}" if top in ("whet", *HEAVY) else None
    if top == "mathgrade" and room not in READERS:
        return f"{room} may not import mathgrade; {' and '.join(READERS)} may"
    if top == "whet":
        return _our_problem(room, each, room_of(each.module.split(".")))
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
        ("objectives/ratio.py", "from whet.types import Row", "objectives may not import types"),
        ("objectives/ratio.py", "import numpy as np", "objectives may import torch only, not numpy"),
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
        ("objectives/ratio.py", "import math\nfrom torch import Tensor\nfrom whet.objectives.clip import clip"),
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


@cache
def modules() -> dict[str, set[str]]:
    """Every module of ours, and those that it imports when it is imported itself."""
    known = {".".join(place.with_suffix("").parts).removesuffix(".__init__"): place for place in FILES}
    found: dict[str, set[str]] = {}
    for name, place in known.items():
        file, package = FILES[place], ".".join(place.parent.parts)
        each = [i for i in imports(parsed(file.read_text()), package) if not i.in_function and not i.for_types]
        # `from a import b` may mean a module b in a, or a name in a.
        targets = {i.module if i.module in known else i.module.rpartition(".")[0] for i in each}
        found[name] = (targets & known.keys()) - {name}
    return found


def test_no_module_imports_itself_through_others() -> None:
    left = dict(modules())
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


def family_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[2] if parts[:2] == ["whet", "methods"] and len(parts) > 2 and parts[2] in FAMILIES else None


@cache
def defining_modules() -> dict[str, set[str]]:
    """Every module, and those that define what it imports: a package that passes a name on is no stop on the way."""
    trees = {
        ".".join(place.with_suffix("").parts).removesuffix(".__init__"): (place, parsed(file.read_text()))
        for place, file in FILES.items()
        if place.parts[0] == "whet"
    }
    passed_on: dict[str, dict[str, str]] = {}
    named: dict[str, list[str]] = {}
    for module, (place, tree) in trees.items():
        named[module] = [each.module for each in imports(tree, ".".join(place.parent.parts))]
        if place.name == "__init__.py":
            passed_on[module] = {name.rpartition(".")[2]: name for name in named[module]}

    def defining(name: str) -> str:
        package, _, last = name.rpartition(".")
        if name in trees:
            return name
        further = passed_on.get(package, {}).get(last)
        return defining(further) if further and further != name else package

    return {
        module: {target for name in names if (target := defining(name)) in trees} - {module}
        for module, names in named.items()
        if module not in passed_on
    }


@cache
def exported() -> set[str]:
    """Modules that a room's `__init__` passes names on from: parts that plug-ins are made of too."""
    return {
        name
        for module, targets in modules().items()
        if FILES_OF[module].name == "__init__.py" and module != "whet"
        for name in targets
    }


FILES_OF = {".".join(place.with_suffix("").parts).removesuffix(".__init__"): file for place, file in FILES.items()}


def owned_elsewhere(targets: Mapping[str, set[str]], public: set[str]) -> dict[str, str]:
    """Modules outside the families that one family alone reaches, with that family.

    Args:
        targets: by module, what it imports.
        public: modules that anyone may use: pure functions, what users select by name, what a room exports.
    """
    importers: dict[str, set[str]] = {}
    for module, names in targets.items():
        for name in names:
            importers.setdefault(name, set()).add(module)
    owned = {}
    for module in targets:
        if family_of(module) or module in public:
            continue
        reached_by, seen, left = set[str](), {module}, [module]
        while left:
            for importer in importers.get(left.pop(), ()):
                if importer not in seen:
                    seen.add(importer)
                    reached_by.add(family_of(importer) or ("core" if importer in CORE else ""))
                    left += [] if family_of(importer) else [importer]
        reached_by.discard("")
        if len(reached_by) == 1 and "core" not in reached_by:
            owned[module] = reached_by.pop()
    return owned


CORE = {name for name in FILES_OF if room_of(name.split(".")) in ("api", "cli", "report", "run", "serve")}


def test_what_one_family_alone_reaches_lies_in_its_folder() -> None:
    """Apart from pure functions of `objectives`, and what users select by name: graders, environments, readers."""
    targets = defining_modules()
    by_name = {name for name in targets if room_of(name.split(".")) in ("objectives", "envs", "trajectories")}
    owned = owned_elsewhere(targets, by_name | exported())
    assert not owned, "\n" + "\n".join(f"{module} belongs in methods/{family}" for module, family in owned.items())


def test_that_check_can_fail() -> None:
    targets: dict[str, set[str]] = {
        "whet.methods.agent.agent_dpo": {"whet.credit.turns", "whet.credit.views"},
        "whet.methods.critic.spc": {"whet.credit.views"},
        "whet.credit.turns": {"whet.credit.alone"},
        "whet.credit.views": set(),
        "whet.credit.alone": set(),
    }
    assert owned_elsewhere(targets, set()) == {"whet.credit.turns": "agent", "whet.credit.alone": "agent"}
    assert owned_elsewhere(targets, {"whet.credit.turns"}) == {"whet.credit.alone": "agent"}


def test_no_method_imports_another_familys() -> None:
    targets = {name: names for name, names in modules().items() if family_of(name)}
    assert {family_of(name) for name in targets} == set(FAMILIES)
    for name, names in targets.items():
        assert {family_of(other) for other in names} <= {None, family_of(name)}, name


def test_no_method_imports_a_method() -> None:
    """Algorithms: a family's base, rollouts and data are for all of them."""
    lines = FILES_OF["whet.methods"].read_text().partition("ALGORITHMS: ")[2]
    registered = {f"whet.methods.{place}" for place in re.findall(r'"([\w.]+):\w+"', lines)}
    assert len(registered) > 15
    for name in registered:
        assert not modules()[name] & registered, name


@pytest.mark.parametrize(
    "module",
    [
        "api.commands",
        "api.run",
        "callbacks",
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


def test_the_commands_load_without_the_settings() -> None:
    """`whet --help` needs names alone: half of its time was the classes of settings."""
    heavy = ("pydantic", "whet.config", "numpy")
    code = f"import sys, whet.cli\nprint(*(name for name in {heavy!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    "command",
    [["--help"], ["train", "--help"], ["methods"], ["list"], ["config", "agent_critic", "seed=1"]],
    ids=" ".join,
)
def test_commands_that_only_show_import_nothing_heavy(command: list[str]) -> None:
    code = (
        "import sys\nfrom whet.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr.split() == []


def test_the_settings_of_every_method_load_without_torch() -> None:
    code = (
        "import sys\nfrom whet.config import describe\nfrom whet.methods import METHODS\n"
        "from whet.methods.registry import preset_of\n"
        "for name in METHODS.names():\n    assert describe(preset_of(name).config)\n"
        f"    assert not [heavy for heavy in {HEAVY!r} if heavy in sys.modules], name"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
