"""What pages are made of: templates, scripts and data in one file that asks no network for anything."""

from __future__ import annotations

import base64
import gzip
import json
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from whet.run_folder.files import write_atomic

WEB = Path(__file__).parent / "web"
_PLOTLY = WEB / "plotly-basic.min.js.gz"


def write_page(path: Path, page: str, *, of_run: bool = True) -> None:
    """Writes a page. A lone surrogate, which models write and UTF-8 lacks, becomes "?".

    Args:
        of_run: False: it lies where the user said.
    Raises: RunError where it cannot be written.
    """
    write_atomic(path, page.encode("utf-8", errors="replace").decode(), of_run=of_run)


@lru_cache
def page_template(name: str) -> Template:
    """Compiled once, for all pages of a process."""
    environment = Environment(
        loader=FileSystemLoader(WEB), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(name)


def script_json(value: object) -> Markup:
    """JSON for a script element. It has no `<`, so that no model's text can end or open an element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


def plotly_packed() -> str:
    """The plotly bundle, gzipped and in base64. The page unpacks it with the browser's DecompressionStream.

    It is plotly.js's basic bundle, with scatter plots and little more: a quarter of the whole one.
    """
    return base64.b64encode(_PLOTLY.read_bytes()).decode()


@lru_cache(maxsize=1)
def plotly_hash() -> str:
    """As `source_hash`, of the unpacked bundle."""
    return source_hash(gzip.decompress(_PLOTLY.read_bytes()).decode())


def source_hash(script: str) -> str:
    """The hash of a script, for the page's content security policy."""
    return f"'sha256-{base64.b64encode(sha256(script.encode()).digest()).decode()}'"
