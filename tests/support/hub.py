"""A hub on loopback: what `huggingface_hub` asks of the real one to find a data set's commit and download its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""


class Hub:
    """One data set, `me/sums`, with folders of files by commit, and branches.

    Args:
        commits: a folder each.
    """

    def __init__(self, commits: dict[str, Path], branches: dict[str, str]) -> None:
        self.commits, self.branches, self.asked = commits, branches, list[str]()

    def answer(self, path: str) -> Answer:
        self.asked.append(path)
        api, _, revision = path.removeprefix("/api/datasets/me/sums").strip("/").partition("/")
        if path.startswith("/api/datasets/me/sums"):
            if api == "tree":
                return self._of_commit(revision.partition("/")[0], self._tree)
            return self._of_commit(revision or "main", self._info)
        if path.startswith("/datasets/me/sums/resolve/"):
            revision, _, name = path.removeprefix("/datasets/me/sums/resolve/").partition("/")
            return self._of_commit(revision, lambda commit: self._file(commit, name))
        return 404, {"X-Error-Code": "RepoNotFound"}, b""

    def _of_commit(self, revision: str, make: Callable[[str], Answer]) -> Answer:
        commit = self.branches.get(revision, revision)
        return make(commit) if commit in self.commits else (404, {"X-Error-Code": "RevisionNotFound"}, b"")

    def _files(self, commit: str) -> list[Path]:
        return sorted(file for file in self.commits[commit].rglob("*") if file.is_file())

    def _info(self, commit: str) -> Answer:
        names = [{"rfilename": file.relative_to(self.commits[commit]).as_posix()} for file in self._files(commit)]
        body = {"id": "me/sums", "sha": commit, "siblings": names, "private": False, "tags": [], "downloads": 0}
        return 200, {}, json.dumps(body).encode()

    def _tree(self, commit: str) -> Answer:
        files = [
            {"type": "file", "path": file.relative_to(self.commits[commit]).as_posix(), "size": file.stat().st_size,
             "oid": sha1(file.read_bytes()).hexdigest()}
            for file in self._files(commit)
        ]  # fmt: skip
        return 200, {}, json.dumps(files).encode()

    def _file(self, commit: str, name: str) -> Answer:
        file = self.commits[commit] / name
        if not file.is_file():
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}, b""
        body = file.read_bytes()
        return 200, {"ETag": f'"{sha1(body).hexdigest()}"', "X-Repo-Commit": commit}, body


@contextmanager
def serving(hub: Hub) -> Iterator[str]:
    """Its address, for as long as it serves."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = hub.answer(unquote(urlsplit(self.path).path))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
