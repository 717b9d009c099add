"""Reports prose that reads slowly: sentences of more than 25 words, and words that the glossary does not use.

    python scripts/prose.py                    # README, docs and CONTRIBUTING: a line a page
    python scripts/prose.py docs/bapo.md -v    # the sentences and words themselves
    python scripts/prose.py src/whet/rollout   # docstrings and comments of Python files

A page passes with at most 5 % long sentences and none of the words. Code, tables, headings and link targets are no
prose; a code span counts as one word. The words come from the table "Words not used" of docs/glossary.md. The exit code
is 1 where a page does not pass.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/results/*.md")
MOST_WORDS = 25
"""Of a sentence."""
MOST_LONG = 0.05
"""Share of a page's sentences that may be longer."""
ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|cf|vs|eq|sec|fig|no|al|approx)\.$", re.IGNORECASE)
GENERATED = re.compile(r"<!-- \w+: begin.*?end -->", re.DOTALL)


@dataclass
class Page:
    """What was found in one file."""

    path: Path
    num_words: int = 0
    num_sentences: int = 0
    long: list[str] = field(default_factory=list)
    banned: list[tuple[str, str]] = field(default_factory=list)
    """Word and sentence."""

    @property
    def share_long(self) -> float:
        return len(self.long) / max(1, self.num_sentences)

    @property
    def passes(self) -> bool:
        return not self.banned and self.share_long <= MOST_LONG


def banned_words(glossary: str) -> list[str]:
    """The first column of the table under the heading "Words not used"."""
    section = glossary.partition("## Words not used")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")][2:]
    return [word.strip() for cell in rows for word in cell.split(",") if word.strip()]


def paragraphs(text: str) -> Iterator[str]:
    """Prose of a Markdown text, a paragraph or list item each, without code, tables and headings."""
    text = re.sub(r"^```.*?^```", "", GENERATED.sub("", text), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<[^>\n]+>", "", text)
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_apart = not line.strip() or line.lstrip().startswith(("|", "#"))
        if is_apart or re.match(r"\s*([-*]|\d+\.)\s", line):
            if paragraph:
                yield " ".join(paragraph)
            paragraph = []
        if not is_apart:
            paragraph.append(re.sub(r"^\s*([-*]|\d+\.)\s", "", line).strip())


def python_prose(source: str) -> Iterator[str]:
    """Docstrings and comments of a Python file; docstrings of attributes among them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from paragraphs(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#!|# (fmt|type|noqa|ruff)", token.string):
            yield token.string.lstrip("# ")


def plain(text: str) -> str:
    """A code span is one word, a link is its text, emphasis is gone."""
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return text.replace("**", "").replace("*", "")


def sentences(paragraph: str) -> list[str]:
    """Split after a full stop, a colon that ends the line, a question or an exclamation mark."""
    found: list[str] = []
    for piece in re.split(r"(?<=[.!?])[\"')\]]?\s+(?=[\"'(\[A-Z0-9])", plain(paragraph)):
        if found and ABBREVIATIONS.search(found[-1]):
            found[-1] += f" {piece}"
        else:
            found.append(piece)
    return [sentence for sentence in found if re.search(r"[A-Za-z]", sentence)]


def examine(path: Path, banned: Sequence[str]) -> Page:
    """Read one Markdown or Python file."""
    text = path.read_text()
    page = Page(path)
    pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, banned)) or '(?!)'})(?![\w-])", re.IGNORECASE)
    for paragraph in python_prose(text) if path.suffix == ".py" else paragraphs(text):
        for sentence in sentences(paragraph):
            num_words = len([word for word in sentence.split() if re.search(r"\w", word)])
            page.num_words += num_words
            page.num_sentences += 1
            if num_words > MOST_WORDS:
                page.long.append(sentence)
            page.banned += [(word.lower(), sentence) for word in pattern.findall(sentence)]
    return page


def files_of(asked: Sequence[str]) -> list[Path]:
    """Files as they are, of folders all Markdown and Python files; none asked: the pages."""
    if not asked:
        return sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})
    found: list[Path] = []
    for path in map(Path, asked):
        found += sorted([*path.rglob("*.md"), *path.rglob("*.py")]) if path.is_dir() else [path]
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE_OR_FOLDER")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the sentences and words")
    chosen = parser.parse_args(arguments)
    banned = banned_words(GLOSSARY.read_text()) if GLOSSARY.exists() else []
    pages = [examine(path, banned) for path in files_of(chosen.files)]
    print(f"{'words':>7} {'sentences':>9} {'long':>5} {'share':>6} {'banned':>6}  page")
    for page in pages:
        mark = "" if page.passes else "  *"
        print(
            f"{page.num_words:7,} {page.num_sentences:9,} {len(page.long):5} {page.share_long:6.1%} "
            f"{len(page.banned):6}  {page.path.resolve().relative_to(ROOT)}{mark}"
        )
        if chosen.verbose:
            for sentence in page.long:
                print(f"    long: {sentence}")
            for word, sentence in page.banned:
                print(f"    {word}: {sentence}")
    num_failed = sum(not page.passes for page in pages)
    print(f"{len(pages) - num_failed} of {len(pages)} pages pass")
    return int(num_failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
