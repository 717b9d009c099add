"""The documentation site: its pages, its API reference and the check of what was built. No builder is needed."""

from __future__ import annotations

import importlib.util
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

import pytest

import whet
import whet.kit

ROOT = Path(__file__).parents[1]
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "scripts" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_recording_shows_each_line_when_it_was_printed():
    spec = importlib.util.spec_from_file_location("terminal_svg", ROOT / "scripts" / "terminal_svg.py")
    assert spec is not None
    assert spec.loader is not None
    terminal = importlib.util.module_from_spec(spec)
    sys.modules["terminal_svg"] = terminal
    spec.loader.exec_module(terminal)
    lines = terminal.record([f"{sys.executable} -c 'print(1); print(2 < 3)'"])
    assert [line.text for line in lines][1:] == ["1", "True"]
    assert [line.is_typed for line in lines] == [True, False, False]
    svg = terminal.animated([terminal.Line(0, "$ a", True), terminal.Line(5, "<b>"), terminal.Line(10, "c")], 40)
    assert len(ET.fromstring(svg).findall(".//{http://www.w3.org/2000/svg}text")) == 3
    assert "&lt;b&gt;" in svg
    assert "44.00%,100%{opacity:1}" in svg  # half of the way, of the 88 % before the end stands still


def test_the_api_reference_has_every_public_name_once():
    pages = (ROOT / "docs" / "api").glob("*.md")
    shown = [name for page in pages for name in re.findall(r"^::: (whet\.[\w.]+)$", page.read_text("utf-8"), re.M)]
    assert len(shown) == len(set(shown))
    of_whet = {f"whet.{name}" for name in whet.__all__}
    of_kit = {f"whet.kit.{name}" for name in set(whet.kit.__all__) - set(whet.__all__)}
    assert set(shown) == of_whet | of_kit


def test_every_page_of_the_docs_is_in_the_navigation_and_no_other():
    listed = set(re.findall(r"[\w/-]+\.md", CONFIG.partition("\nnav:")[2]))
    there = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")}
    assert listed == there | {"index.md", "CONTRIBUTING.md", "CHANGELOG.md"}


def test_the_site_asks_no_other_host_for_anything():
    assert "font: false" in CONFIG
    assert "http" not in re.sub(r"#.*", "", CONFIG)


def test_pages_and_what_they_link_to_are_laid_out_in_their_own_folders(site, tmp_path):
    number = site.lay_out(tmp_path)
    assert number == len(list(tmp_path.rglob("*.md")))
    assert (tmp_path / "index.md").read_text("utf-8").startswith("# whet")
    for name in (
        "docs/traces.png",
        "docs/results/claims.svg",
        "benchmarks/results/bapo_tiny.md",
        "docs/assets/site.css",
    ):
        assert (tmp_path / name).is_file()
    for page in (tmp_path / "docs").rglob("*.md"):
        for target in site.linked(page):
            assert target.is_file()


def test_the_check_finds_a_broken_link_a_missing_heading_and_another_host(site, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(
        '<h1 id="top-of-it">x</h1><a href="sub/there.html#here">fine</a> <a href="#top-of-it">fine</a>'
        '<a href="https://example.org">fine</a> <a href="sub/there.html#nowhere">bad</a> <a href="gone.html">bad</a>'
        '<script src="https://example.org/x.js"></script><img src="data:image/png;base64,AA"><img src="gone.png">'
    )
    (tmp_path / "sub" / "there.html").write_text('<a id="here"></a><a href="../index.html">fine</a>')
    (tmp_path / "site.css").write_text("@font-face { src: url(https://fonts.example.org/a.woff) }")
    assert site.broken(tmp_path) == [
        "index.html: sub/there.html#nowhere: no such heading",
        "index.html: gone.html leads nowhere",
        "index.html: https://example.org/x.js is loaded from another host",
        "index.html: gone.png leads nowhere",
        "site.css: https://fonts.example.org/a.woff is loaded from another host",
    ]
