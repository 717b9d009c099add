"""The command line: parse, validate, hand over. Nothing heavy is imported before it is needed.

A file a group of commands; importing it adds them to `app`, in the order of `whet --help`.
"""

from whet.cli import train, measure, chat, serve, export, data, lists, get, tiny, envs, new  # noqa: I001 - the order of the help
from whet.cli.app import app

__all__ = ["app", "chat", "data", "envs", "export", "get", "lists", "main", "measure", "new", "serve", "tiny", "train"]


def main() -> None:
    app()
