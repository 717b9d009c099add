"""Builds the documentation site, and fails on what a reader would trip over.

    python scripts/site.py                     # build/site, with Zensical
    python scripts/site.py --with mkdocs       # the same pages with mkdocs-material
    python scripts/site.py --lay-out           # only build/site-pages: what both builders read

The pages are this repository's Markdown, in its own folders, so that links between them need no change. What a page
links to and no builder makes a page of, such as a figure or an example, is copied beside them. These end with exit code
1: a warning of the builder, a link or an anchor that leads nowhere, a script, style or picture of another host.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "site-pages"
SITE = ROOT / "build" / "site"
BUILDERS = {"zensical": ["zensical", "build", "--clean"], "mkdocs": ["mkdocs", "build", "--clean", "--strict"]}
FIRST = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/assets/site.css")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
TROUBLE = re.compile(r"warning|error|issue|not found|unresolved", re.IGNORECASE)
ASSETS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}


def pages() -> list[Path]:
    """The pages that the site has whether or not another page links to them."""
    return [*(ROOT / name for name in FIRST), *sorted((ROOT / "docs").rglob("*.md"))]


def linked(page: Path) -> Iterator[Path]:
    """The files of this repository that a page links to."""
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        link = urlsplit(target)
        file = (page.parent / unquote(link.path)).resolve()
        if not link.scheme and link.path and file.is_file() and file.is_relative_to(ROOT):
            yield file


def files_of_site() -> list[Path]:
    """All pages, and all files that they lead to."""
    todo, done = pages(), set[Path]()
    while todo:
        file = todo.pop()
        if file not in done:
            done.add(file)
            todo += linked(file) if file.suffix == ".md" else []
    return sorted(done)


def lay_out(place: Path) -> int:
    """Copies the files of the site to a folder, anew.

    Returns: the number of pages.
    """
    shutil.rmtree(place, ignore_errors=True)
    files = files_of_site()
    for file in files:
        copy = place / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file == ROOT / "README.md":
            copy = copy.with_name("index.md")
        if file.suffix != ".md":
            shutil.copyfile(file, copy)
            continue
        text = file.read_text(encoding="utf-8")
        if file.parent in (ROOT, ROOT / "docs", ROOT / "docs/results", ROOT / "docs/tutorials"):
            text = re.sub(r"(\]\((?:\.\./)*)README\.md", r"\1index.md", text)
        copy.write_text(text, encoding="utf-8")
    return sum(file.suffix == ".md" for file in files)


class Links(HTMLParser):
    """The links, assets and anchors of a built page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.assets: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {name for key in ("id", "name") if (name := values.get(key))}
        if tag == "a" and (link := values.get("href")):
            self.links.append(link)
        # A canonical address loads nothing.
        if (asset := values.get(ASSETS.get(tag, ""))) and values.get("rel") not in ("canonical", "next", "prev"):
            self.assets.append(asset)


def read_page(file: Path) -> Links:
    parser = Links()
    parser.feed(file.read_text(encoding="utf-8"))
    return parser


def broken(site: Path) -> list[str]:
    """A sentence for each link that leads nowhere, and for each asset of another host."""
    read = {file: read_page(file) for file in sorted(site.rglob("*.html")) if file.name != "404.html"}
    said = []
    for file, page in read.items():
        where = file.relative_to(site)
        for link in (*page.links, *page.assets):
            address = urlsplit(link)
            if address.scheme or address.netloc:
                if link in page.assets and address.scheme != "data":
                    said.append(f"{where}: {link} is loaded from another host")
                continue
            target = (file.parent / unquote(address.path)).resolve() if address.path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                said.append(f"{where}: {link} leads nowhere")
            elif address.fragment and target in read and unquote(address.fragment) not in read[target].anchors:
                said.append(f"{where}: {link}: no such heading")
    for sheet in sorted(site.rglob("*.css")):
        for host in re.findall(r"url\([\"']?(https?:[^)\"']+)", sheet.read_text(encoding="utf-8")):
            said.append(f"{sheet.relative_to(site)}: {host} is loaded from another host")
    return said


def build(builder: str) -> tuple[int, list[str]]:
    """Runs a builder.

    Returns: its exit code, and the lines of its output that report trouble.
    """
    program = Path(sys.executable).with_name(BUILDERS[builder][0])
    command = [str(program), *BUILDERS[builder][1:], "--config-file", str(ROOT / "mkdocs.yml")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    lines = (done.stdout + done.stderr).splitlines()
    return done.returncode, [line for line in lines if TROUBLE.search(line) and "No issues" not in line]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--with", dest="builder", choices=BUILDERS, default="zensical")
    parser.add_argument("--lay-out", action="store_true", help="Only lay out the pages.")
    args = parser.parse_args()
    num_pages = lay_out(PAGES)
    if args.lay_out:
        print(f"{num_pages} pages in {PAGES}")
        return 0
    start = time.monotonic()
    code, warnings = build(args.builder)
    seconds = time.monotonic() - start
    problems = broken(SITE) if SITE.is_dir() else ["nothing was built"]
    print("\n".join([*warnings, *problems]))
    size = sum(file.stat().st_size for file in SITE.rglob("*") if file.is_file()) / 1e6
    print(
        f"{num_pages} pages, {size:.1f} MB, {seconds:.1f} s: {len(warnings)} warnings, {len(problems)} broken links, "
        f"exit code {code}: {SITE / 'index.html'}"
    )
    return int(bool(code or warnings or problems))


if __name__ == "__main__":
    sys.exit(main())
