"""`whet env serve` in a process of its own, which can be killed and started again on its port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen


class EnvProcess:
    """Serves environments on loopback.

    Args:
        names: of the environments.
        options: more of the command's, such as `--lease-s 1`.
        program: a file that serves instead, and takes `--port`. None: the command.
    """

    def __init__(self, *names: str, options: tuple[str, ...] = (), program: Path | None = None, port: int = 0) -> None:
        self.names, self.options, self.program, self.port = names, options, program, port
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *args: Any) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns once it answers. The port stays the same from the first start on."""
        command = ["-m", "whet.cli", "env", "serve", *self.names] if self.program is None else [str(self.program)]
        self._process = subprocess.Popen(
            [sys.executable, *command, "--port", str(self.port), *self.options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "COLUMNS": "200",
                "PYTHONPATH": "/work/wt/server/src:/work/wt/server/packages/mathgrade/src",
            },
        )
        assert self._process.stdout is not None
        said = ""
        while f"http://127.0.0.1:{self.port or ''}" not in said:
            line = self._process.stdout.readline()
            assert line, f"the server has ended: {said}"
            said += line
        self.port = int(said.split("http://127.0.0.1:")[1].split()[0].strip("/"))
        for _ in range(100):
            try:
                self.health()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"no answer from {self.url}: {said}")

    def kill(self) -> None:
        """At once, with all its sessions."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
        self._process = None

    def health(self) -> dict[str, Any]:
        with urlopen(f"{self.url}/v1/health", timeout=5) as answer:
            return dict(json.load(answer))
