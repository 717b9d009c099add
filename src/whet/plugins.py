"""Plug-ins: a user's own graders, rewards, losses, prompts and methods, from a Python file or an installed package.

A plug-in is ordinary Python that registers things while it is imported (`@whet.grading.grader("mine")`). It runs with
the user's rights.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from whet.digests import read_bytes, record_read
from whet.errors import WhetError, text_of
from whet.plugin_modules import PREFIX, builtins_for, digests, forget_changed, module_files
from whet.registry import Registry

GROUP = "whet.plugins"
"""The group of entry points. Each names a module that registers things when it is imported."""


class PluginError(WhetError):
    """A plug-in cannot be used. The sentence names its file, the line and what to do."""

    exit_code = 2


def plugin_files(paths: Sequence[str | Path]) -> list[Path]:
    """Resolved paths of the files, without duplicates.

    Raises: PluginError where one is missing, or is no Python file.
    """
    files: dict[Path, None] = {}
    for path in paths:
        try:
            file = Path(path).expanduser().resolve()
            is_file = file.is_file()
        except (OSError, ValueError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or str(error)[:100]
            raise PluginError(f"plugins: {str(path)[:200]!r} can be no path ({reason}); give a Python file") from error
        if not is_file:
            problem = "is no file" if file.exists() else "is not there"
            raise PluginError(f"plugins: {str(path)[:200]} {problem}; give the path of a Python file")
        if file.suffix != ".py":
            raise PluginError(f"plugins: {str(path)[:200]} is no Python file; its name has to end in .py")
        files[file] = None
    return list(files)


def load_plugins(paths: Sequence[str | Path]) -> list[ModuleType]:
    """Imports Python files, and imports a file again only if it has changed.

    A change of a module in its folder that it imports counts too. The file may then register its names again.

    Returns: the modules, in the order of the files.
    Raises: PluginError where a file is missing, breaks while it is imported, or registers nothing.
    """
    return [_load(file) for file in plugin_files(paths)]


@cache
def load_entry_points() -> tuple[str, ...]:
    """Imports the plug-ins of installed packages, once a process.

    Returns: the packages' names.
    Raises: PluginError where one breaks while it is imported.
    """
    packages = []
    for point in entry_points(group=GROUP):
        package = point.dist.name if point.dist is not None else point.value
        try:
            with _registering(package):
                point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit and CancelledError too
            raise PluginError(
                f"the plug-in {point.name!r} of the package {package} cannot be imported: {said(error)}; mend the "
                "package, or uninstall it"
            ) from error
        packages.append(package)
    return tuple(packages)


def package_files() -> dict[str, list[Path]]:
    """The files of installed plug-ins, by package: each entry point's module, and what it imports from its package."""
    files: dict[str, set[Path]] = {}
    for point in entry_points(group=GROUP):
        package = point.dist.name if point.dist is not None else point.value
        spec = find_spec(point.module)
        if spec is None or spec.origin is None or not Path(spec.origin).is_file():
            continue
        file = Path(spec.origin).resolve()
        # Of `a.b.c`, which lies in b, the whole of a may be imported; a module alone has no package beside it.
        num_parents = point.module.count(".") - (file.name != "__init__.py") + 1
        folder = file.parents[num_parents - 1] if num_parents else file.parent
        files.setdefault(package, set()).update([file, *module_files(file, folder)])
    return {package: sorted(files[package]) for package in sorted(files)}


_modules: dict[Path, ModuleType] = {}
"""The modules of loaded files."""
_neighbours: dict[Path, dict[str, str]] = {}
"""By loaded file, digests of the modules of its folder that it imports, as they were then."""


def as_loaded(file: Path) -> tuple[ModuleType, Mapping[str, str]]:
    """A loaded plug-in: its module, and digests by path of the modules of its folder that it imports.

    Raises: KeyError where the file is not loaded.
    """
    return _modules[file], _neighbours[file]


def _load(file: Path) -> ModuleType:
    try:
        content = read_bytes(file)
    except OSError as error:
        raise PluginError(f"plugins: {file} cannot be read: {error.strerror}; give another file") from error
    name = f"{PREFIX}{file.stem}_{sha256(content).hexdigest()[:8]}"
    neighbours = digests(module_files(file))
    if file not in _modules or _modules[file].__name__ != name or _neighbours[file] != neighbours:
        forget_changed(file.parent)
        _modules[file] = _import(file, name, content)
        _neighbours[file] = neighbours
    for path, sha256_of_module in neighbours.items():
        record_read(path, sha256_of_module)
    return _modules[file]


def _import(file: Path, name: str, content: bytes) -> ModuleType:
    spec = spec_from_file_location(name, file)
    assert spec is not None, "every .py file has a loader"
    module = module_from_spec(spec)
    module.__dict__["__builtins__"] = builtins_for(file.parent)
    num_before = Registry.num_registered
    sys.modules[name] = module  # before it runs: dataclasses and pickle look a class's module up there
    try:
        with _registering(str(file)):
            # Not by the loader, which may take an older version from __pycache__: what runs is what was digested.
            exec(compile(content, str(file), "exec"), module.__dict__)
        if Registry.num_registered == num_before:
            raise PluginError(f'the plug-in {file} registers nothing: decorate what is yours, as in @grader("mine")')
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, PluginError | KeyboardInterrupt):
            raise
        line = line_of(error, str(file))
        raise PluginError(f"the plug-in {file}{line} cannot be imported: {said(error)}; mend it there") from error
    return module


@contextmanager
def _registering(origin: str) -> Iterator[None]:
    before = Registry.current_origin, Registry.places_of_load
    Registry.current_origin, Registry.places_of_load = origin, {}
    try:
        yield
    finally:
        Registry.current_origin, Registry.places_of_load = before


def culprit(error: BaseException) -> str | None:
    """The innermost plug-in file in an error's traceback, and its line. None: there is no plug-in file."""
    files = {str(file) for file in _modules}
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename in files]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else None


def line_of(error: BaseException, file: str) -> str:
    """The last line of a file in an error's traceback, as `, line 3,`. Empty: there is none."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f", line {error.lineno},"
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == file]
    return f", line {lines[-1]}," if lines else ""


def said(error: BaseException) -> str:
    """An error's class and the first line of its message."""
    message = error.msg if isinstance(error, SyntaxError) else text_of(error)
    first = message.strip().partition("\n")[0][:300]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
