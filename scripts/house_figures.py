"""The figures of the house: sizes, imports, and the files that one training step and one look-up run through.

.venv/bin/python scripts/house_figures.py                  # prints the table, in a minute or two
.venv/bin/python scripts/house_figures.py --name NAME      # also writes benchmarks/results/NAME.json and NAME.md

They are for reading, and no build fails on them. Lines and statements are counted in a copy of `src/whet` that ruff
has formatted at 100 columns without any `fmt: skip`, so that packing lines changes nothing. A name that a package
only passes on counts where it is defined.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "whet"
WIDTH = 100
SKIP = re.compile(r"[ \t]*# fmt: (?:skip|off|on)\b")
LOSS = re.compile(r"(?<!_)[a-z][a-z0-9_]*_(?:loss|nll)")
TRACED: Mapping[str, Sequence[str]] = {
    "critique_rl": (
        *("warm_start.actor_steps=1", "warm_start.critic_steps=1", "warm_start.rows_per_step=4"),
        *("stage1.num_steps=3", "stage1.prompts_per_step=2", "stage1.group_size=2", "stage1.validate_every=100"),
        *("stage2.num_steps=3", "stage2.prompts_per_step=2", "stage2.group_size=2", "stage2.validate_every=100"),
        *("data.num_train=32", "data.num_validation=2", "data.num_test=2"),
    ),
    "grpo": (
        *("num_steps=3", "prompts_per_step=2", "group_size=2", "validate_every=100", "evaluation.num_samples=0"),
        *("data.num_train=16", "data.num_validation=2", "data.num_test=2"),
    ),
    "agent_grpo": (
        *("num_steps=3", "prompts_per_step=2", "group_size=2", "validate_every=100", "data.env=textcraft"),
        *("data.groups=[depth 1]", "data.num_train=8", "data.num_validation=1", "data.num_test=1", "max_turns=2"),
        *("evaluation.max_turns=2", "policy.path=tiny_agent", "schedule={}"),
    ),
}
"""Settings of the runs whose second step is traced: the last phase's, without validation or checkpoint in it."""


def tenth_largest(values: Sequence[int]) -> int:
    """The 90th percentile: the value with a tenth of the others above it."""
    return sorted(values)[int(0.9 * len(values))]


# --- sizes ------------------------------------------------------------------------------------------------------------


def formatted(folder: Path) -> Path:
    """A formatted copy of the sources in a folder; the number of columns is `WIDTH`, whatever the project's is."""
    copy = folder / "whet"
    for file in SOURCE.rglob("*.py"):
        place = copy / file.relative_to(SOURCE)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(SKIP.sub("", file.read_text(encoding="utf-8")), encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--isolated", "--line-length", str(WIDTH), str(copy)]
    subprocess.run(ruff, check=True)
    return copy


def room_of(place: Path) -> str:
    """The room of a file, by its path below `src/whet`: a folder or module there, or a family below `methods`."""
    parts = place.with_suffix("").parts
    return "/".join(parts[:2]) if parts[0] == "methods" and len(parts) > 2 else parts[0]


def is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def sizes() -> dict[str, Any]:
    rooms: Counter[str] = Counter()
    files, functions, statements = [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        copy = formatted(Path(folder))
        for file in sorted(copy.rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            files.append(text.count("\n"))
            rooms[room_of(file.relative_to(copy))] += files[-1]
            for node in ast.walk(ast.parse(text)):
                statements += isinstance(node, ast.stmt) and not is_docstring(node)
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    functions.append((node.end_lineno or 0) - node.lineno + 1)
    packages = [file for file in (ROOT / "packages").rglob("*.py") if "tests" not in file.parts]
    return {
        "lines": sum(files),
        "lines_per_room": dict(rooms.most_common()),
        "num_files": len(files),
        "file_p90": tenth_largest(files),
        "function_p90": tenth_largest(functions),
        "statements": statements,
        "statements_in_packages": sum(
            isinstance(node, ast.stmt) and not is_docstring(node)
            for file in packages
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        ),
        "fmt_skip": {
            place: sum(len(SKIP.findall(file.read_text(encoding="utf-8"))) for file in (ROOT / place).rglob("*.py"))
            for place in ("src", "tests", "benchmarks", "examples")
        },
    }


# --- imports ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Imported:
    """`from module import name`, or `import module` where the name is empty."""

    module: str
    name: str
    alias: str
    runs_first: bool
    """At module level: when the program runs, the module is imported before the importing one is there."""


class Modules:
    """The modules of whet, what they import, and where the names that they pass on are defined."""

    def __init__(self) -> None:
        self.files: dict[str, Path] = {}
        for file in SOURCE.rglob("*.py"):
            parts = file.relative_to(SOURCE.parent).with_suffix("").parts
            self.files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
        self.names = {file: module for module, file in self.files.items()}
        trees = {module: ast.parse(file.read_text(encoding="utf-8")) for module, file in self.files.items()}
        self.imports = {module: list(self._imports(module, tree)) for module, tree in trees.items()}
        self.defined = {module: set(_defined(tree)) for module, tree in trees.items()}

    def _imports(self, module: str, tree: ast.Module) -> Iterator[Imported]:
        package = module if self.files[module].name == "__init__.py" else module.rpartition(".")[0]
        late = set(_late(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (Imported(each.name, "", "", node not in late) for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                source = ".".join([*above, *([node.module] if node.module else [])])
                for each in node.names:
                    yield Imported(source, each.name, each.asname or each.name, node not in late)

    def defining(self, module: str, name: str) -> str | None:
        """The module that a name comes from. None: one of another library."""
        if f"{module}.{name}" in self.files and name:
            return f"{module}.{name}"
        if module not in self.files:
            return None
        if name not in self.defined[module]:
            for passed in self.imports[module]:
                if passed.alias == name and passed.name:
                    return self.defining(passed.module, passed.name)
        return module

    def targets(self, module: str, *, first: bool = False) -> set[str]:
        """The modules that one imports, each where its name is defined.

        Args:
            first: only those that are imported before it runs: not in functions, and not for types alone.
        """
        asked = [each for each in self.imports[module] if each.runs_first or not first]
        return {place for each in asked if (place := self.defining(each.module, each.name))} - {module}

    def depths(self) -> dict[str, int]:
        """Modules in the longest chain of imports that begins at each, with itself. A name that a package passes on
        takes its chain through the package, as the interpreter does."""
        depths: dict[str, int] = {}

        def depth(module: str, above: tuple[str, ...]) -> int:
            if module in above:
                return 0
            if module not in depths:
                loaded = {f"{each.module}.{each.name}" if f"{each.module}.{each.name}" in self.files else each.module
                          for each in self.imports[module] if each.runs_first}  # fmt: skip
                below = [depth(each, (*above, module)) for each in loaded & self.files.keys() - {module}]
                depths[module] = 1 + max(below, default=0)
            return depths[module]

        for module in self.files:
            depth(module, ())
        return depths

    def importers(self, names: set[tuple[str, str]]) -> set[Path]:
        """The files that import one of these names, given with their defining modules; packages that pass on do not
        count."""
        return {
            self.files[module]
            for module, imported in self.imports.items()
            if self.files[module].name != "__init__.py"
            for each in imported
            if (self.defining(each.module, each.name), each.name) in names
        }


def _late(tree: ast.Module) -> Iterator[ast.AST]:
    """What runs after the import: bodies of functions, and what is there for types."""
    for node in ast.walk(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if is_function or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from ast.walk(node)


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name))


def imports() -> dict[str, Any]:
    modules = Modules()
    fan_out = [len(modules.targets(module)) for module in modules.files]
    depths = list(modules.depths().values())
    return {
        "fan_out_mean": round(fmean(fan_out), 2),
        "fan_out_p90": tenth_largest(fan_out),
        "depth_p90": tenth_largest(depths),
        "depth_max": max(depths),
    }


# --- classes of methods -----------------------------------------------------------------------------------------------


def inherited_lines(cls: type) -> int:
    """Lines of the classes of whet that a class is built on, without its own."""
    return sum(
        len(inspect.getsourcelines(each)[0]) for each in cls.__mro__[1:] if each.__module__.partition(".")[0] == "whet"
    )


def classes() -> dict[str, Any]:
    """The longest chains of inherited code, of algorithms and of their evaluators."""
    from whet.methods import METHODS
    from whet.methods.registry import preset_of

    algorithms = {preset_of(name).algorithm for name in METHODS.names()}
    evaluators = {algorithm.spec.evaluator for algorithm in algorithms}
    return {
        "inherited_lines_algorithm": max(map(inherited_lines, algorithms)),
        "inherited_lines_evaluator": max(map(inherited_lines, evaluators)),
    }


# --- a run that is traced ---------------------------------------------------------------------------------------------


@dataclass
class Trace:
    """Sees every call of a function of whet, from any thread."""

    importers: set[Path]
    """The files that name a loss."""
    is_in_step: bool = False
    in_step: set[Path] = field(default_factory=set)
    losses: set[tuple[Path, str]] = field(default_factory=set)
    """Functions of `objectives` that gave a loss, and their files."""
    stacks: set[tuple[Path, ...]] = field(default_factory=set)
    """The files on the stack where one that names a loss is called, from the outside in."""
    _paths: dict[str, Path | None] = field(default_factory=dict)

    def path(self, frame: FrameType) -> Path | None:
        name = frame.f_code.co_filename
        if name not in self._paths:
            place = Path(name)
            self._paths[name] = place if place.is_relative_to(SOURCE) else None
        return self._paths[name]

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or (file := self.path(frame)) is None or frame.f_code.co_name == "<module>":
            return
        if self.is_in_step:
            self.in_step.add(file)
        if file.is_relative_to(SOURCE / "objectives") and LOSS.fullmatch(frame.f_code.co_name):
            self.losses.add((file, frame.f_code.co_name))
        if file in self.importers:
            self.stacks.add(self.stack(frame))

    def stack(self, frame: FrameType | None) -> tuple[Path, ...]:
        files: list[Path] = []
        while frame is not None:
            if (file := self.path(frame)) is not None:
                files.append(file)
            frame = frame.f_back
        return tuple(reversed(files))


def chain_of(stack: Sequence[Path], drivers: set[Path], inherited: Sequence[Path]) -> list[Path]:
    """What of a stack a reader goes through from a method on: without what drives any run, from the method's class."""
    first = max((number + 1 for number, file in enumerate(stack) if file in drivers), default=0)
    own = [number for number, file in enumerate(stack) if file in inherited and number >= first]
    return list(stack[own[0] if own else first :])


def traced(name: str, modules: Modules) -> dict[str, Any]:
    """The files of the second step of a run's last phase, and those from the method's name to its loss."""
    import whet
    from whet.methods import METHODS
    from whet.methods.registry import preset_of

    preset = preset_of(name)
    losses = {
        (module, function)
        for module in modules.files
        if module.startswith("whet.objectives")
        for function in modules.defined[module]
        if LOSS.fullmatch(function)
    }
    inherited = [
        modules.files[each.__module__] for each in preset.algorithm.__mro__ if each.__module__ in modules.files
    ]
    trace = Trace(modules.importers(losses))
    drivers: set[Path] = set()
    phases: list[tuple[str, int]] = []

    def after_step(phase: str, step: int, num_steps: int, metrics: Mapping[str, float | None]) -> None:
        drivers.update(trace.stack(sys._getframe()))
        trace.is_in_step = step == 1 and num_steps == 3
        if trace.is_in_step:
            trace.in_step.clear()
        phases.append((phase, step))

    settings = {"num_threads": 1, "checkpoint_every": 0}
    for setting in TRACED[name]:
        key, _, value = setting.partition("=")
        settings[key] = _value(value)
    with tempfile.TemporaryDirectory() as folder:
        threading.setprofile(trace)
        sys.setprofile(trace)
        try:
            whet.train(name, out=Path(folder) / "run", progress=after_step, **settings)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    assert [step for _, step in phases].count(2) >= 1, f"{name} made no second step"

    begin = [modules.files["whet.methods"], registered(METHODS.get(name), modules), inherited[0]]
    paths = [
        list(dict.fromkeys([*begin, *chain_of(stack, drivers, inherited), file]))
        for stack in trace.stacks
        for file, function in trace.losses
        if stack[-1] in modules.importers({(modules.names[file], function)})
    ]
    shortest = min(paths, key=lambda path: (len(path), path), default=[])
    return {
        "step": sorted(str(file.relative_to(SOURCE)) for file in trace.in_step),
        "name_to_loss": [str(file.relative_to(SOURCE)) for file in shortest],
    }


def registered(thing: object, modules: Modules) -> Path:
    """The file that holds what a name is registered for: a method's class, or a preset."""
    if isinstance(thing, type):
        return modules.files[thing.__module__]
    return next(
        modules.files[module]
        for module in sorted(modules.files)
        if module.startswith("whet.methods.") and module in sys.modules
        if any(value is thing for value in vars(sys.modules[module]).values())
    )


def _value(text: str) -> Any:
    import yaml

    return yaml.safe_load(text)


# --- the table --------------------------------------------------------------------------------------------------------


def table(figures: Mapping[str, Any]) -> str:
    size, wiring, traces = figures["sizes"], figures["imports"], figures["traces"]
    rows = [
        (f"lines of `src/whet`, formatted at {WIDTH} columns", f"{size['lines']:,} in {size['num_files']} files"),
        ("statements, without docstrings", f"{size['statements']:,}"),
        ("statements in `packages/`", f"{size['statements_in_packages']:,}"),
        ("lines of a file, of a function, p90", f"{size['file_p90']}, {size['function_p90']}"),
        *((f"`fmt: skip` in `{place}`", str(count)) for place, count in size["fmt_skip"].items()),
        ("modules that a file imports: p90 (mean)", f"{wiring['fan_out_p90']} ({wiring['fan_out_mean']})"),
        ("import depth: p90 (most)", f"{wiring['depth_p90']} ({wiring['depth_max']})"),
        ("lines that an algorithm inherits, an evaluator: most", ", ".join(map(str, figures["classes"].values()))),
        *((f"files in a training step: {name}", str(len(found["step"]))) for name, found in traces.items()),
        *((f"files from name to loss: {name}", str(len(found["name_to_loss"]))) for name, found in traces.items()),
    ]
    rooms = [f"| `{room}` | {lines:,} |" for room, lines in size["lines_per_room"].items()]
    ways = [f"- {name}: " + ", ".join(f"`{file}`" for file in found["name_to_loss"]) for name, found in traces.items()]
    return "\n".join(
        [
            "| figure | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), "",
            f"| room (a family of methods counts as one) | lines at {WIDTH} columns |", "|---|---|", *rooms, "",
            "From a method's name to its loss, as traced: the registry, the preset, the method, what the method calls "
            "on the way to the file that names the loss, and the loss.", "", *ways, "",
        ]
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", help="also write the table to benchmarks/results, under this name")
    asked = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    modules = Modules()
    figures = {
        "sizes": sizes(),
        "imports": imports(),
        "classes": classes(),
        "traces": {name: traced(name, modules) for name in TRACED},
    }
    text = table(figures)
    if not asked.name:
        print(text)
        return
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import study

    command = f"python scripts/house_figures.py --name {asked.name}"
    commit = study.machine_now()["commit"]
    head = f"# Figures of the house\n\n`{command}`, at commit {commit}. For reading: no build fails on them.\n\n"
    study.write(asked.name, {"command": command, "commit": commit, **figures}, head + text)


if __name__ == "__main__":
    main()
