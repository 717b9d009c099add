"""`whet new`: writes a part of one's own and its test, to start from. Both run as they are."""

from __future__ import annotations

import shlex
from collections.abc import Callable
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
_PLACEHOLDERS = ("MY_WORLD", "MY_PART")
"""The words that templates have in place of the name."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the part and its file, such as my_part.")]
Folder = Annotated[Path, typer.Option("--dir", help="Where to write the files.")]


@new.command("env")
def new_environment(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the environment and its file, such as corridor.")],
    folder: Folder = Path(),
) -> None:
    """Write an environment of your own, NAME.py, and its tests, test_NAME.py: a small game that works, to change.

    Example: whet new env corridor, then pytest test_corridor.py
    """

    def commands(file: str) -> list[str]:
        plugins = f"{name} --plugins {file}"
        agent = f"{program()} tiny agent {plugins} --out {shlex.quote(f'models/{name}')}"
        return [f"{program()} env play {plugins}", agent]

    _write("env", "an environment", name, folder, "ENVIRONMENTS", commands)


@new.command("reward")
def new_reward(name: Name, folder: Folder = Path()) -> None:
    """Write a reward term of your own, NAME.py, and its tests, test_NAME.py.

    Example: whet new reward brief, then pytest test_brief.py
    """

    _write("reward", "a reward", name, folder, "REWARDS", _training(name, "grpo", f"'rewards={{{name}: 0.1}}'"))


@new.command("prompts")
def new_prompts(name: Name, folder: Folder = Path()) -> None:
    """Write prompts of your own, NAME.py, and their tests, test_NAME.py.

    Example: whet new prompts terse, then pytest test_terse.py
    """

    def commands(file: str) -> list[str]:
        return [f"{program()} list --plugins {file}"]

    _write("prompts", "the prompts", name, folder, "PROMPTS", commands)


@new.command("loss")
def new_loss(name: Name, folder: Folder = Path()) -> None:
    """Write a policy loss of your own, NAME.py, and its tests, test_NAME.py.

    Example: whet new loss capped, then pytest test_capped.py
    """

    commands = _training(name, "grpo", f"loss.kind={name} learning.num_epochs=2")
    _write("loss", "a loss", name, folder, "LOSSES", commands)


@new.command("callback")
def new_callback(name: Name, folder: Folder = Path()) -> None:
    """Write a callback of your own, NAME.py, and its tests, test_NAME.py.

    Example: whet new callback bell, then pytest test_bell.py
    """

    _write("callback", "a callback", name, folder, "CALLBACKS", _training(name, "grpo", f"callbacks.use=[{name}]"))


@new.command("method")
def new_method(name: Name, folder: Folder = Path()) -> None:
    """Write a method of your own, NAME.py, and its tests, test_NAME.py: it trains a policy, to change.

    Example: whet new method filtered, then pytest test_filtered.py
    """

    _write("method", "a method", name, folder, "METHODS", _training(name, name, ""))


def _training(name: str, method: str, settings: str) -> Callable[[str], list[str]]:
    """The command that trains with a part, from the part's file."""

    def commands(file: str) -> list[str]:
        parts = (program(), "train", method, f"plugins=[{file}]", settings, "--out", shlex.quote(f"runs/{name}"))
        return [" ".join(filter(None, parts))]

    return commands


def _write(
    kind: str,
    what: str,
    name: str,
    folder: Path,
    registry: str,
    commands: Callable[[str], list[str]],
) -> None:
    """Writes a template and its test under a name, and says what to type next.

    Args:
        kind: the templates' name.
        what: the part in words, with its article.
        registry: the public name of the registry of its kind.
        commands: what to type after the tests, from the part's file.
    """

    def work() -> None:
        if not name.isidentifier() or iskeyword(name) or not name.isascii():
            raise usage(f"{name!r} can be no module's name: use letters, digits and _, such as my_world")
        import whet

        if name in getattr(whet, registry):
            there = "there are" if kind == "prompts" else "there is"
            raise usage(f"{there} {what} {name!r} already: choose another name")
        files = {folder / f"{name}.py": f"{kind}.txt", folder / f"test_{name}.py": f"test_{kind}.txt"}
        if present := [file for file in files if file.exists()]:
            raise usage(f"{present[0]} is there already, and nothing was written: choose another name or --dir")
        folder.mkdir(parents=True, exist_ok=True)
        for file, template in files.items():
            text = (_TEMPLATES / template).read_text(encoding="utf-8")
            for placeholder in _PLACEHOLDERS:
                text = text.replace(placeholder, name)
            with file.open("x", encoding="utf-8") as writer:
                writer.write(text)
        module, test = (shlex.quote(str(file)) for file in files)
        out.print(escape(f"wrote {module} and {test}; next:"), soft_wrap=True, highlight=False)
        tests = f"{interpreter()} -m pytest {test}"
        install = [] if find_spec("pytest") else [f"{interpreter()} -m pip install pytest"]
        for command in (*install, tests, *commands(module)):
            out.print(escape(f"  {command}"), soft_wrap=True, highlight=False)

    guarded(work, None)
