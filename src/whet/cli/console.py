"""The parts that all commands share: the console, the parsing of settings, and the messages for errors."""

from __future__ import annotations

import errno
import gc
import os
import shlex
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

import whet.environment  # before torch  # noqa: F401
from whet.cli.own_files import PluginsCommand
from whet.errors import WhetError, is_out_of_memory, text_of
from whet.exits import exits_refused
from whet.methods import METHODS
from whet.plugins import culprit, said

if TYPE_CHECKING:
    from whet.config.runs import RunConfig
    from whet.report.spec import ReportSpec

for _name in ("stdout", "stderr"):
    if getattr(sys, _name) is None:  # closed, as for some daemons
        setattr(sys, _name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the process lives
    elif hasattr(getattr(sys, _name), "reconfigure"):
        getattr(sys, _name).reconfigure(errors="replace")  # a terminal that knows no arrows still gets its table


class Terminal(Console):
    """A console that leaves the end of its reader, as in `whet list | head`, to `guarded`. Rich itself would exit."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "nobody reads any more")


out = Terminal(width=None if sys.stdout.isatty() else 100)
err = Terminal(stderr=True)
METHODS_HELP = f"One of: {', '.join(METHODS.names())}; or a plug-in's. `whet methods` says what they are."

MethodArgument = Annotated[str, typer.Argument(metavar="METHOD", help=METHODS_HELP)]
SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE.yaml] [key.sub=value ...]",
        help="A YAML file with settings, then single settings; later ones win. `whet config METHOD` lists all keys.",
    ),
]


class SettingsCommand(PluginsCommand):
    """A command that takes settings. If one is written as an option, `--seed 1`, the error shows the right form."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = {name for param in self.params for name in (*param.opts, *param.secondary_opts)} | {"--help"}
        for arg, after in zip(args, [*args, ""][1:], strict=True):
            if arg == "--":
                break
            name, equals, value = arg.partition("=")
            if name.startswith("--") and name not in options and not get_close_matches(name, options, cutoff=0.8):
                value = value if equals else after if after and not after.startswith("-") else "VALUE"
                setting = name.lstrip("-").replace("-", "_")
                fail(f"there is no option {name}; settings are written without dashes: {setting}={value}", 2)
        return super().parse_args(ctx, args)


def config_of(name: str, settings: list[str]) -> RunConfig:
    from whet.methods.registry import config_of as config_by_name

    return config_by_name(name, *file_and_settings(settings))


def file_and_settings(settings: list[str]) -> tuple[Path | None, list[str]]:
    """The settings file, if there is one, and the single settings."""
    files = [s for s in settings if "=" not in s]
    if len(files) > 1:
        raise usage(f"give one settings file at most, not {' and '.join(files)}; single settings are key.sub=value")
    return Path(files[0]) if files else None, [s for s in settings if "=" in s]


def report_spec_of(config: RunConfig) -> ReportSpec:
    """The report spec for runs of a config."""
    from whet.methods.registry import preset_of

    return preset_of(config.method).algorithm.spec.report


def progress_bar(titles: Mapping[str, str] | None = None) -> Any:
    """
    Args:
        titles: of phases whose names are not clear.
    """
    from whet.report.progress import RichProgress

    return RichProgress(out, titles)


def program() -> str:
    """The shell command for this whet: its name where PATH leads to it, else its path."""
    script = Path(sys.executable).with_name("whet")
    if script.exists():
        return _from_here(script)
    return "whet" if shutil.which("whet") else f"{interpreter()} -m whet.cli"


def interpreter() -> str:
    """The shell command for this environment's Python."""
    return _from_here(Path(sys.executable))


def _from_here(script: Path) -> str:
    """Its name where PATH leads to it, else its path, which is relative if it lies below the working directory."""
    on_path = shutil.which(script.name)
    if on_path and os.path.abspath(on_path) == os.path.abspath(script):
        return script.name
    beside = os.path.relpath(script)
    return shlex.quote(str(script) if beside.startswith("..") else beside)


ProductsOption = Annotated[
    Literal["float32", "bfloat16", "int8"],
    typer.Option(
        help="What the weights are multiplied in, on a CPU. For a reply at a time: bfloat16 where the processor has "
        "it, int8 elsewhere and for long replies to short prompts; int8 changes some words."
    ),
]
DraftOption = Annotated[
    int, typer.Option(min=0, max=64, help="Tokens drafted at a time from what a reply repeats, such as 16. 0: none.")
]


@contextmanager
def loading() -> Iterator[None]:
    """Without garbage collection, which takes a fifth of a start: modules, tasks and models stay. Later collections
    pass over them."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def usage(message: str) -> Exception:
    from whet.config import ConfigError

    return ConfigError(message)


def guarded(work: Callable[[], None], folder: Path | None) -> None:
    """Run a command. Errors that users can cause become a sentence and an exit code; our bugs keep their traceback."""
    remains = (
        f"every whole checkpoint in {str(folder)[:200]} is kept" if folder is not None else "nothing was overwritten"
    )
    try:
        with exits_refused():
            work()
    except KeyboardInterrupt as error:
        fail(f"interrupted; {error}" if str(error) else "interrupted", 130)
    except WhetError as error:
        fail(text_of(error), error.exit_code)
    except BrokenPipeError:  # `whet config ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        location = f": {str(error.filename)[:200]}" if error.filename else ""
        fail(f"{error.strerror or error}{location}: {_advice(error)}; {remains}", 1)
    except Exception as error:
        if is_out_of_memory(error):
            fail(
                "out of memory: lower learning.token_budget, engine.max_rows, engine.prefill_tokens or "
                f"max_new_tokens, or set gradient_checkpointing = true; {remains}",
                1,
            )
        traceback.print_exc()
        if place := culprit(error):
            fail(f"the plug-in {place}: {said(error)}; the lines above lead there; {remains}", 1)
        fail(f"this is a mistake in whet, not in what was asked of it: please report the lines above; {remains}", 70)


def _advice(error: OSError) -> str:
    """What to do where the system refused."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "make room, or choose another disk"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "raise the limit of open files (ulimit -n)"
    return "choose another path" if error.filename else "see to that, then try again"


def note(markup: str, console: Console = out) -> None:
    """Prints a sentence, wrapped between words at a terminal."""
    from whet.report.progress import print_note

    print_note(console, markup)


def fail(message: str, code: int) -> None:
    note(f"[bold red]whet:[/bold red] {escape(message)}", err)
    sys.exit(code)
