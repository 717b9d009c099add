"""`whet env export`: an environment as a package for another library, which runs as it is."""

from __future__ import annotations

import keyword
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from whet.cli.console import guarded, out, usage
from whet.cli.envs import NameArgument, _info, env_app, made, settings_of
from whet.cli.own_files import PluginsCommand, PluginsOption

if TYPE_CHECKING:
    from whet.envs import EnvironmentInfo

TEMPLATES = Path(__file__).with_name("templates") / "export"


class Library(StrEnum):
    """Whose form a package has."""

    trl = "trl"
    verifiers = "verifiers"
    openenv = "openenv"


@dataclass(frozen=True)
class Form:
    """The files of a package for one library, each with its template. `MODULE` is the module's name."""

    files: Mapping[str, str]
    dependencies: Sequence[str]
    run: str
    """The command that runs it, once it is installed."""


FORMS: Mapping[Library, Form] = {
    Library.trl: Form(
        {"MODULE/__init__.py": "trl_init", "train.py": "trl_train", "README.md": "trl_readme"},
        ("trl==1.16.0", "datasets==5.2.0", "jmespath"),
        "python train.py MODEL",
    ),
    Library.verifiers: Form(
        {
            "MODULE/__init__.py": "verifiers_init", "MODULE/taskset.py": "verifiers_taskset",
            "README.md": "verifiers_readme",
        },
        ("verifiers==0.4.0",),
        "vf-eval $module -n 5 -m MODEL --no-push --client.base-url http://127.0.0.1:8000/v1 "
        "--env.agent.harness.id null --env.agent.runtime.type subprocess",
    ),
    Library.openenv: Form(
        {
            "MODULE/__init__.py": "openenv_init", "MODULE/server/__init__.py": "openenv_init",
            "MODULE/server/environment.py": "openenv_environment", "MODULE/server/app.py": "openenv_app",
            "MODULE/openenv.yaml": "openenv_yaml", "README.md": "openenv_readme",
        },
        ("openenv==0.10.0",),
        "uvicorn $module.server.app:app --port 8000",
    ),
}  # fmt: skip
ANNOTATIONS = {"string": "str", "number": "float", "integer": "int", "array": "list"}
ANY_VALUE = "str | int | float | list"
"""Of an argument whose schema has no type."""
PLUGINS_BESIDE = {Library.trl: "MODULE", Library.verifiers: "MODULE", Library.openenv: "MODULE/server"}
"""The folder of the file that loads copied plug-ins."""


@env_app.command(cls=PluginsCommand)
def export(
    name: NameArgument,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")],
    library: Annotated[Library, typer.Option("--as", help="The library that the package is for.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[key=value ...]", help="The environment's own settings.")
    ] = None,
    plugins: PluginsOption = None,
) -> None:
    """Write an environment as a package for TRL, verifiers or OpenEnv.

    The package needs whet and wraps the environment; its README has the command that runs it.
    Example: whet env export textcraft packages/textcraft --as trl
    """

    def work() -> None:
        info, options = _info(name, plugins), settings_of(settings)
        if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
            raise usage(f"{folder} is there and not empty: give a new folder; nothing was written")
        copies = _plugin_copies(plugins or ())
        made(info, options).close()
        form = FORMS[library]
        words = _words(info, library, options, plugins or ())
        for place, template in form.files.items():
            _write(folder / place.replace("MODULE", words["module"]), _filled(template, words))
        _write(folder / "pyproject.toml", _filled("pyproject", words))
        plugins_folder = folder / PLUGINS_BESIDE[library].replace("MODULE", words["module"]) / "plugins"
        for beside, source in copies.items():
            _write(plugins_folder / beside, source.read_text(encoding="utf-8"))
        out.print(escape(f"wrote {folder}; next, with whet installed:"), soft_wrap=True, highlight=False)
        for command in (f"cd {shlex.quote(str(folder))}", "pip install .", Template(form.run).substitute(words)):
            out.print(escape(f"  {command}"), soft_wrap=True, highlight=False)

    guarded(work, None)


def _words(
    info: EnvironmentInfo, library: Library, settings: Mapping[str, Any], plugins: Sequence[Path]
) -> dict[str, str]:
    """The words that templates leave open."""
    plain = re.sub(r"\W", "_", info.name, flags=re.ASCII)
    load = Template((TEMPLATES / "plugins.txt").read_text(encoding="utf-8")) if plugins else None
    names = [file.name for file in plugins]
    return {
        "name": info.name,
        "module": f"whet_{plain}_{library.value}" if library is not Library.verifiers else f"whet_{plain}",
        "project": f"whet-{plain}-{library.value}".replace("_", "-"),
        "title": "".join(part.capitalize() for part in plain.split("_")) or "Whet",
        "library": library.value,
        "dependencies": ", ".join(f'"{each}"' for each in FORMS[library].dependencies),
        "settings": repr(dict(settings)),
        "max_turns": str(info.max_turns),
        "load": f"\n{load.substitute(plugins=repr(names))}" if load is not None else "",
        "tools": "".join(_methods(info)) if library is Library.trl else "",
    }


def _methods(info: EnvironmentInfo) -> list[str]:
    """A method for each tool of the environment, with the docstring that TRL reads its schema from."""
    from whet.trajectories.tools import tools_of

    methods = []
    for tool in tools_of(info.name):
        function = tool["function"]
        parameters = function["parameters"]
        names = [*parameters["required"], *(n for n in parameters["properties"] if n not in parameters["required"])]
        if not all(each.isidentifier() and not keyword.iskeyword(each) for each in (function["name"], *names)):
            raise usage(f"the tool {function['name']!r} of {info.name} can be no method: rename it and its arguments")
        types = {each: ANNOTATIONS.get(parameters["properties"][each].get("type", ""), ANY_VALUE) for each in names}
        told = [f"{each}: {types[each]}" + ("" if each in parameters["required"] else ' = ""') for each in names]
        given = ", ".join(f'"{each}": {each}' for each in names)
        args = "".join(f"\n            {each}: {each.upper()} in the action." for each in names)
        methods.append(
            f"\n    def {function['name']}(self{''.join(f', {each}' for each in told)}) -> str:\n"
            f'        """{function["description"]}\n{f"{chr(10)}        Args:{args}{chr(10)}" if args else ""}'
            f'\n        Returns:\n            What the environment answers.\n        """\n'
            f'        return self._episode.call("{function["name"]}", {{{given}}}).observation\n'
        )
    return methods


def _filled(template: str, words: Mapping[str, str]) -> str:
    return Template((TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")).substitute(words)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _plugin_copies(plugins: Sequence[Path]) -> dict[Path, Path]:
    """The files of plug-ins, and the modules in their folders that they import, by their place in the package.

    Raises: a usage error where two have one place.
    """
    from whet.plugin_modules import module_files

    sources: dict[Path, Path] = {}
    for plugin in plugins:
        file = plugin.resolve()
        for source in (file, *module_files(file)):
            place = source.relative_to(file.parent)
            if (other := sources.setdefault(place, source)) != source:
                raise usage(
                    f"{other} and {source} would be one file of the package, plugins/{place}: rename one of them; "
                    "nothing was written"
                )
    return sources
