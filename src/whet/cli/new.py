"""`whet new`: writes files to start from, which run as they are."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from whet.cli.app import app
from whet.cli.console import guarded, interpreter, out, program, usage

new = typer.Typer(name="new", no_args_is_help=True, help="Files of your own to begin with, which run as they are.")
app.add_typer(new)

_TEMPLATES = Path(__file__).with_name("templates")
_PLACEHOLDER = "MY_WORLD"
"""The word that templates have in place of the name."""


@new.command("env")
def new_environment(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the environment and its file, such as corridor.")],
    folder: Annotated[Path, typer.Option("--dir", help="Where to write the files.")] = Path(),
) -> None:
    """Write an environment of your own, NAME.py, and its tests, test_NAME.py: a small game that works, to change.

    Example: whet new env corridor, then pytest test_corridor.py
    """

    def work() -> None:
        from whet.envs import ENVIRONMENTS

        if not name.isidentifier() or iskeyword(name) or not name.isascii():
            raise usage(f"{name!r} can be no module's name: use letters, digits and _, such as my_world")
        if name in ENVIRONMENTS:
            raise usage(f"there is an environment {name!r} already: choose another name")
        files = {folder / f"{name}.py": "env.txt", folder / f"test_{name}.py": "test_env.txt"}
        if present := [file for file in files if file.exists()]:
            raise usage(f"{present[0]} is there already, and nothing was written: choose another name or --dir")
        folder.mkdir(parents=True, exist_ok=True)
        for file, template in files.items():
            text = (_TEMPLATES / template).read_text(encoding="utf-8").replace(_PLACEHOLDER, name)
            with file.open("x", encoding="utf-8") as writer:
                writer.write(text)
        module, test = (shlex.quote(str(file)) for file in files)
        out.print(escape(f"wrote {module} and {test}; next:"), soft_wrap=True, highlight=False)
        tests = f"{interpreter()} -m pytest {test}"
        install = [] if find_spec("pytest") else [f"{interpreter()} -m pip install pytest"]
        plugins = f"{name} --plugins {module}"
        agent = f"{program()} tiny agent {plugins} --out {shlex.quote(f'models/{name}')}"
        for command in (*install, tests, f"{program()} env play {plugins}", agent):
            out.print(escape(f"  {command}"), soft_wrap=True, highlight=False)

    guarded(work, None)
