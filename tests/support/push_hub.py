"""A hub on loopback that takes models: what `huggingface_hub` sends to create one, to upload files, and to commit.

Small files come in the commit itself and large ones before it, as git LFS objects. Faults come on request.
`python tests/support/push_hub.py` serves one, to try a push without an account.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_right"
LARGE = 5000
"""Bytes from which on a file is an LFS object."""


@dataclass
class Fault:
    """What one kind of request gets in place of its answer."""

    at: str
    """`create`, `preupload`, `batch`, `put`, `commit` or `card`."""
    status: int = 0
    """0: the connection is cut in the middle of the answer."""
    message: str = "no"


@dataclass
class PushHub:
    """Its models by name, each the files of its last commit."""

    models: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    fault: Fault | None = None
    address: str = ""
    lfs: dict[str, bytes] = field(default_factory=dict)
    sizes_sent: list[int] = field(default_factory=list)

    def create(self, body: dict[str, Any]) -> tuple[int, Any]:
        name = f"{body.get('organization') or 'me'}/{body['name']}"
        if name in self.models:
            return 409, {"error": "You already created this model repo"}
        self.models[name], self.private[name] = {}, body.get("visibility") == "private"
        return 200, {"url": f"{self.address}/{name}", "name": name}

    def preupload(self, body: dict[str, Any]) -> tuple[int, Any]:
        modes = [
            {"path": file["path"], "uploadMode": "lfs" if file["size"] >= LARGE else "regular", "shouldIgnore": False}
            for file in body["files"]
        ]
        return 200, {"files": modes}

    def batch(self, body: dict[str, Any]) -> tuple[int, Any]:
        objects = [
            {"oid": each["oid"], "size": each["size"],
             "actions": {"upload": {"href": f"{self.address}/lfs/{each['oid']}", "header": {}}}}
            for each in body["objects"]
        ]  # fmt: skip
        return 200, {"transfer": "basic", "objects": objects}

    def put(self, oid: str, content: bytes) -> tuple[int, Any]:
        assert hashlib.sha256(content).hexdigest() == oid
        self.lfs[oid] = content
        return 200, {}

    def commit(self, name: str, lines: list[dict[str, Any]]) -> tuple[int, Any]:
        files = dict(self.models[name])
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.commits.append(value["summary"])
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                assert len(self.lfs[value["oid"]]) == value["size"]
                files[value["path"]] = self.lfs[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        self.models[name] = files
        number = f"{len(self.commits):040x}"
        return 200, {"success": True, "commitOid": number, "commitUrl": f"{self.address}/{name}/commit/{number}",
                     "hookOutput": ""}  # fmt: skip

    def tree(self, name: str) -> tuple[int, Any]:
        return 200, [
            {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for path, content in self.models[name].items()
        ]

    def info(self, name: str) -> tuple[int, Any]:
        return 200, {"id": name, "sha": "0" * 40, "private": self.private[name], "siblings": [], "tags": []}

    def answer(self, method: str, path: str, body: bytes) -> tuple[str, int, Any]:
        """The kind of request, the status and the answer."""
        parts = path.strip("/").split("/")
        if path == "/api/repos/create":
            return "create", *self.create(json.loads(body))
        if path == "/api/validate-yaml":
            return "card", 200, {"errors": [], "warnings": []}
        if method == "PUT":
            return "put", *self.put(parts[1], body)
        name = "/".join(parts[2:4]) if path.startswith("/api/models/") else "/".join(parts[:2]).removesuffix(".git")
        if name not in self.models:
            return "missing", 404, {"error": "Repository not found"}
        if path.endswith("/info/lfs/objects/batch"):
            return "batch", *self.batch(json.loads(body))
        match parts[4:5]:
            case ["preupload"]:
                return "preupload", *self.preupload(json.loads(body))
            case ["commit"]:
                return "commit", *self.commit(name, [json.loads(line) for line in body.splitlines()])
            case ["tree"]:
                return "tree", *self.tree(name)
            case _:
                return "info", *self.info(name)


@contextmanager
def pushing(hub: PushHub) -> Iterator[str]:
    """Its address, for as long as it serves."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            path = unquote(urlsplit(self.path).path)
            body = (
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if not self._is_chunked()
                else self._chunks()
            )
            fault = hub.fault
            if not path.startswith("/lfs/") and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                hub.asked.append("no token")
                self._send(401, {"error": "Invalid username or password."})
                return
            if fault is not None and fault.at == kind_of(self.command, path):
                hub.asked.append(f"{fault.at} {fault.status}")
                self._fail(fault)
                return
            kind, status, answer = hub.answer(self.command, path, body)
            hub.asked.append(kind)
            hub.sizes_sent.append(len(body))
            headers = {"X-Error-Code": "RepoNotFound"} if kind == "missing" else {}
            self._send(status, answer, headers)

        do_GET = do_POST = do_PUT = do_HEAD = _any

        def _is_chunked(self) -> bool:
            return self.headers.get("Transfer-Encoding", "").lower() == "chunked"

        def _chunks(self) -> bytes:
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content

        def _fail(self, fault: Fault) -> None:
            if fault.status:
                self._send(fault.status, {"error": fault.message})
                return
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"{")
            self.close_connection = True

        def _send(self, status: int, answer: Any, headers: dict[str, str] | None = None) -> None:
            content = json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Type": "application/json"}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hub.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub.address
    finally:
        server.shutdown()
        server.server_close()


def kind_of(method: str, path: str) -> str:
    """The name of a request that may get a fault."""
    if method == "PUT":
        return "put"
    names = {"/api/repos/create": "create", "/api/validate-yaml": "card"}
    marks = {"/preupload/": "preupload", "/info/lfs/objects/batch": "batch", "/commit/": "commit"}
    return names.get(path) or next((kind for mark, kind in marks.items() if mark in path), "")


def main() -> None:
    """Serves until it is interrupted, and then says what it got."""
    hub = PushHub()
    with pushing(hub) as address, contextlib.suppress(KeyboardInterrupt):
        print(f"export HF_ENDPOINT={address} HF_TOKEN={TOKEN} HF_HUB_DISABLE_XET=1", flush=True)
        threading.Event().wait()
    for name, files in hub.models.items():
        print(f"{name}: {len(files)} files, {sum(map(len, files.values())):,} bytes")


if __name__ == "__main__":
    main()
