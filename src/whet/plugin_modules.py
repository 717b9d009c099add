"""Finds and imports the modules that a plug-in imports from its own folder.

A plug-in imports its neighbours as a script does: `import helper` is the `helper.py` beside it, before an installed
package of that name. Two plug-ins with helpers of one name each get their own, because such a module stands in
`sys.modules` under a private name of its folder. Modules of Python itself, and those that the ordinary import finds in
the same file, are imported the ordinary way.

Import statements, wherever they stand, show which modules a plug-in imports. So a helper that a function imports late
is known at the start of a run. A module whose name is put together at run time is not.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from whet.digests import digest

PREFIX = "whet_plugin_"
"""Of the names of plug-ins' modules, and of their neighbours'."""
CALLS = ("import_module", "__import__")
"""Functions that import the module that their first argument names."""
INSTALLED = ("site-packages", "dist-packages")
"""Folders of packages that have nothing to do with each other."""


def module_files(file: Path, folder: Path | None = None) -> list[Path]:
    """The Python files in a folder or below it that a file imports, itself or through others of them.

    Args:
        file: resolved. One that cannot be read or parsed imports nothing.
        folder: None: the file's folder.
    Returns: sorted, without the file itself.
    """
    folder = file.parent if folder is None else folder
    if folder.name in INSTALLED:
        return []
    files, waiting = {file}, [file]
    while waiting:
        for path in _imported_files(waiting.pop(), folder):
            if path not in files:
                files.add(path)
                waiting.append(path)
    return sorted(files - {file})


def digests(files: Sequence[Path]) -> dict[str, str]:
    """Sha256 by path; empty text for a file that cannot be read."""
    return {str(file): _digest(file) for file in files}


def _digest(file: Path) -> str:
    try:
        return digest(file)
    except OSError:
        return ""


def _imported_files(file: Path, folder: Path) -> Iterator[Path]:
    for level, name in _imported_names(_parsed(file)):
        if level:
            parent = file.parents[level - 1] if level <= len(file.parents) else folder
            places = [parent]
        else:
            places = [folder, _above_package(file)] if _is_neighbourly(name) else []
        for place in places:
            yield from (path for path in _files(place, name) if path.is_relative_to(folder))


def _parsed(file: Path) -> ast.Module:
    """A file's syntax tree. Empty where it cannot be read or parsed: importing it says so."""
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _imported_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(dots before it, dotted name) of all that a module's statements may import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = [node.module] if node.module else []
            yield from ((node.level, ".".join([*parents, alias.name])) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in CALLS:
            for name in node.args[:1]:
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    bare = name.value.lstrip(".")
                    yield len(name.value) - len(bare), bare


def _is_neighbourly(name: str) -> bool:
    top = name.partition(".")[0]
    return top not in sys.stdlib_module_names and top != "whet"


def _above_package(file: Path) -> Path:
    """The folder that a file's outermost package lies in; its own, where it is in none."""
    return next(folder for folder in file.parents if not (folder / "__init__.py").is_file())


def _files(place: Path, name: str) -> Iterator[Path]:
    """The files that run when a dotted name is imported from a folder. Its last parts may be names in a module; the
    last may be `*`."""
    for part in name.split("."):
        if part == "*":
            for module in _starred(place):
                yield from _files(place, module)
            return
        if (place / part / "__init__.py").is_file():
            yield place / part / "__init__.py"
        elif (place / f"{part}.py").is_file():
            yield place / f"{part}.py"
            return
        place /= part


def _starred(package: Path) -> list[str]:
    """The names that `import *` may import of a package: those in its `__all__`; all of its modules, where that list is
    put together at run time."""
    tree = _parsed(package / "__init__.py")
    values, num_mentions = [], 0
    for node in ast.walk(tree):
        num_mentions += isinstance(node, ast.Name) and node.id == "__all__"
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            values += [node.value for target in targets if isinstance(target, ast.Name) and target.id == "__all__"]
    if num_mentions == len(values):
        with suppress(ValueError, TypeError):
            names = [str(name) for value in values for name in ast.literal_eval(value)]
            return [name for name in names if "*" not in name]
    return sorted({path.stem if path.is_file() else path.name for path in package.iterdir()} - {"__init__"})


# --- importing them ---------------------------------------------------------------------------------------------------

_digest_loaded: dict[str, str] = {}
"""Of the neighbours that were imported under private names, by file."""


def builtins_for(folder: Path) -> dict[str, Any]:
    """A module's `__builtins__`, with which its imports find the folder's modules."""
    return {**vars(builtins), "__import__": _importer(folder)}


def forget_changed(folder: Path) -> None:
    """Lets a folder's neighbours be imported anew where one of them has changed since."""
    root = _root(folder)
    loaded = [name for name in sys.modules if name == root or name.startswith(f"{root}.")]
    files = {str(getattr(sys.modules[name], "__file__", None)) for name in loaded} & _digest_loaded.keys()
    if any(_digest(Path(file)) != _digest_loaded[file] for file in files):
        for name in loaded:
            del sys.modules[name]


def _root(folder: Path) -> str:
    return f"{PREFIX}folder_{sha256(str(folder).encode()).hexdigest()[:12]}"


@cache
def _importer(folder: Path) -> Any:
    root = _root(folder)

    def importer(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition(".")[0]
        if level or not _is_neighbour(top, folder):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        if root not in sys.modules:
            sys.modules[root] = _package(root, folder)
        try:
            leaf = builtins.__import__(f"{root}.{name}", globals, locals, fromlist or ("",), 0)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(str(error).replace(f"{root}.", ""), name=name) from error
        return leaf if fromlist else sys.modules[f"{root}.{top}"]

    return importer


def _is_neighbour(top: str, folder: Path) -> bool:
    """Whether a name is a module of the folder, and none that the ordinary import finds in the same place."""
    if not _is_neighbourly(top) or folder.name in INSTALLED:
        return False
    there = next((file for file in (folder / top / "__init__.py", folder / f"{top}.py") if file.is_file()), None)
    if there is None and not (folder / top).is_dir():
        return False
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):  # a module without a spec: it is there
        return False
    if spec is None:
        return True
    return there is not None and (spec.origin is None or Path(spec.origin).resolve() != there.resolve())


def _package(root: str, folder: Path) -> ModuleType:
    """An empty package whose modules are the folder's."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    PathFinder.invalidate_caches()  # a file that was just written is there
    package = ModuleType(root)
    package.__path__ = [str(folder)]
    _folders[root] = folder
    return package


_folders: dict[str, Path] = {}
"""By the private name that stands for it."""


class _Finder(MetaPathFinder):
    """Finds modules of the private packages as files, with a loader of their own."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        folder = _folders.get(fullname.partition(".")[0])
        spec = None if folder is None else PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


_FINDER = _Finder()


class _Loader(SourceFileLoader):
    """Runs the file, and not an older version from `__pycache__`; its imports find its neighbours too."""

    def get_code(self, fullname: str) -> Any:
        content = self.get_data(self.path)
        _digest_loaded[str(self.path)] = sha256(content).hexdigest()
        return self.source_to_code(content, self.path)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = builtins_for(_folders[module.__name__.partition(".")[0]])
        super().exec_module(module)
