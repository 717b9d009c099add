"""What a command checks before it serves others: the secret that clients send, and whether it needs one."""

from __future__ import annotations

import os
import re

from whet.cli.console import note, usage


def check_secret(secret: str | None, what: str, variable: str, host: str, *, is_open: bool) -> None:
    """Checks the secret of a server. Notes where whoever reaches it may use it.

    Args:
        what: what it is called, also as an option: key of `--api-key`, or token.
        variable: the environment variable that may hold it.
        host: the address to listen on.
        is_open: serve other machines without a secret.
    Raises: a usage error where it is no word, its variable is empty, or other machines need one.
    """
    from whet.config.parts import LOOPBACK

    if secret is None and os.environ.get(variable) == "":
        raise usage(f"{variable} is set and empty: give it the {what}, or unset it")
    if secret is not None and not re.fullmatch(r"[!-~]+", secret):
        raise usage(f"a {what} is a word of ASCII characters without space: check {variable} and the option")
    if host in LOOPBACK or secret is not None:
        return
    if not is_open:
        raise usage(
            f"{host} is reached from other machines: set {variable} to a {what} that clients send, or serve without "
            f"one by --no-{what}"
        )
    note(f"[bold yellow]look:[/bold yellow] whoever reaches this address may use it: there is no {what} ({variable})")
