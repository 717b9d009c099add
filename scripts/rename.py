"""Renames modules, identifiers, settings and metrics across the repository, by a table.

    python scripts/rename.py scripts/renames/words.toml          # applies it to this working tree
    python scripts/rename.py scripts/renames/words.toml --check  # changes nothing, lists what is left of old names

The table has seven parts, all optional:

    [modules]                     # dotted path = new dotted path; files move with `git mv`
    "whet.play.desk" = "whet.rollout.runtime"
    [paths]                       # other files and folders
    "tests/play" = "tests/rollout"
    [code]                        # regular expressions on the text of Python files, before all that follows
    '\\bdesk\\.play\\(' = 'runtime.run('
    [names]                       # identifiers, wherever Python code or a code span of the docs has them
    Desk = "Runtime"
    [scoped]                      # identifiers in one file, or in one function of it; these come before `names`
    "src/whet/play/desk.py" = { each = "endpoint" }
    "src/whet/play/desk.py::Desk.counts" = { found = "counts" }
    [strings]                     # whole words in string literals and docs: settings, metrics
    "engine\\.play" = "engine.rollout"
    [prose]                       # the same, in comments and docstrings as well

Comments and docstrings keep their words, but for names between backticks. Where a function already has a name that one
of its names would get, that is listed as a collision. Needs libcst.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import libcst as cst

ROOT = Path(__file__).resolve().parents[1]
CODE = ("src", "tests", "benchmarks", "examples", "scripts", "packages")
TEXT = (".md", ".toml", ".yaml", ".yml", ".cfg", ".sh")
LEFT_OUT = ("benchmarks/results/", "tests/data/", "scripts/renames/", "CHANGELOG.md", "constraints.txt")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
CODE_SPAN = re.compile(r"`[^`\n]+`")


class Names(cst.CSTTransformer):
    """Renames identifiers, those of the innermost scope that has a table first."""

    def __init__(
        self, path: str, names: Mapping[str, str], scoped: Mapping[str, Mapping[str, str]], local: Mapping[str, str]
    ) -> None:
        self.path, self.names, self.scoped = path, names, scoped
        self.local = local
        """Modules, which are no attributes and no keywords."""
        self.scopes: list[str] = []
        self.seen: dict[str, dict[str, str]] = {}
        """By scope, what each plain name became."""
        self.attributes = set[int]()

    def collisions(self) -> list[tuple[str, str, str]]:
        """Scope, old name and the new one that the scope had before, too."""
        return [
            (scope, old, new)
            for scope, names in self.seen.items()
            for old, new in names.items()
            if old != new and names.get(new) == new
        ]

    def _tables(self) -> list[Mapping[str, str]]:
        keys = [f"{self.path}::{'.'.join(self.scopes[:n])}" for n in range(len(self.scopes), 0, -1)]
        return [self.scoped[key] for key in (*keys, self.path) if key in self.scoped] + [self.names]

    def renamed(self, name: str) -> str:
        return next((table[name] for table in self._tables() if name in table), name)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.scopes.append(node.name.value)

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.scopes.append(node.name.value)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self.scopes.pop()
        return updated_node

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self.scopes.pop()
        return updated_node

    def visit_Name(self, node: cst.Name) -> None:
        if id(node) not in self.attributes:  # `x.old` and `new` do not meet
            self.seen.setdefault(".".join(self.scopes), {})[node.value] = self.renamed(node.value)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self.attributes.add(id(node.attr))

    def visit_Arg(self, node: cst.Arg) -> None:
        if node.keyword is not None:
            self.attributes.add(id(node.keyword))

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        name = original_node.value
        is_module = name in self.local and id(original_node) not in self.attributes
        return updated_node.with_changes(value=self.local[name] if is_module else self.renamed(name))


class NamesInStrings(cst.CSTTransformer):
    """Renames identifiers that stand in strings: exported names, attributes by name, parameters of tests."""

    BY_NAME = frozenset({"setattr", "getattr", "hasattr", "delattr", "attrgetter", "parametrize", "getfixturevalue"})

    def __init__(self, path: str, names: Names) -> None:
        self.path, self.names = path, names
        self.depth = 0

    def visit_Module(self, node: cst.Module) -> None:
        self.depth += self.path == "src/whet/__init__.py"  # its table of what is loaded late

    def visit_Assign(self, node: cst.Assign) -> None:
        self.depth += self._is_exports(node)

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        self.depth -= self._is_exports(original_node)
        return updated_node

    def _is_exports(self, node: cst.Assign) -> bool:
        return any(isinstance(t.target, cst.Name) and t.target.value == "__all__" for t in node.targets)

    def visit_Call(self, node: cst.Call) -> None:
        self.depth += self._is_by_name(node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        self.depth -= self._is_by_name(original_node)
        return updated_node

    def _is_by_name(self, node: cst.Call) -> bool:
        called = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
        return isinstance(called, cst.Name) and called.value in self.BY_NAME

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.SimpleString:
        def name(match: re.Match[str]) -> str:
            new = {**self.names.names, **self.names.scoped.get(self.path, {})}.get(match[0], match[0])
            return new if self.depth or match[0].lower() != match[0] else match[0]

        text = in_code_spans(updated_node.value, self.names.names)
        if re.search(r"\bfrom (whet|envs|support)[\w.]* import ", text):  # code for another process
            return updated_node.with_changes(value=IDENTIFIER.sub(lambda m: self.names.names.get(m[0], m[0]), text))
        is_names = re.fullmatch(r"""["'][\w.:]*(, ?\w+)*["']""", text) is not None
        return updated_node.with_changes(value=IDENTIFIER.sub(name, text) if is_names else text)

    def leave_FormattedStringText(
        self, original_node: cst.FormattedStringText, updated_node: cst.FormattedStringText
    ) -> cst.FormattedStringText:
        return updated_node.with_changes(value=in_code_spans(updated_node.value, self.names.names))

    def leave_Comment(self, original_node: cst.Comment, updated_node: cst.Comment) -> cst.Comment:
        return updated_node.with_changes(value=in_code_spans(updated_node.value, self.names.names))


def in_code_spans(text: str, names: Mapping[str, str]) -> str:
    """Identifiers between backticks."""

    def span(match: re.Match[str]) -> str:
        if re.search(r"\w/\w|\.md|\.py", match[0]):  # a path or a metric
            return match[0]
        return IDENTIFIER.sub(lambda name: names.get(name[0], name[0]), match[0])

    return CODE_SPAN.sub(span, text)


def replaced(text: str, patterns: Mapping[str, str]) -> str:
    """Whole words: what stands before and after a pattern is no letter, digit or underscore."""
    for pattern, new in patterns.items():
        text = re.sub(rf"(?<!\w){pattern}(?!\w)", new, text)
    return text


class Strings(cst.CSTTransformer):
    """Replaces in string literals, also in the fixed parts of f-strings, but not in docstrings."""

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self.patterns = patterns

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        is_docstring = len(node.body) == 1 and isinstance(node.body[0], cst.Expr) and isinstance(
            node.body[0].value, cst.SimpleString | cst.ConcatenatedString)  # fmt: skip
        return not is_docstring

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.SimpleString:
        return updated_node.with_changes(value=replaced(updated_node.value, self.patterns))

    def leave_FormattedStringText(
        self, original_node: cst.FormattedStringText, updated_node: cst.FormattedStringText
    ) -> cst.FormattedStringText:
        return updated_node.with_changes(value=replaced(updated_node.value, self.patterns))


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in listed.splitlines() if not line.startswith(LEFT_OUT)]


def move(source: Path, target: Path) -> None:
    if source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", str(source), str(target)], cwd=ROOT, check=True)


def move_modules(modules: Mapping[str, str]) -> None:
    """Packages first, then the modules in them, which have moved along."""
    packages: dict[str, str] = {}
    for old, new in sorted(modules.items(), key=lambda pair: pair[0].count(".")):
        package, _, name = old.rpartition(".")
        now = f"{packages.get(package, package)}.{name}"
        source, target = (ROOT / "src" / Path(*dotted.split(".")) for dotted in (now, new))
        if source.is_dir() and not source.with_suffix(".py").exists():
            packages[old] = new
            move(source, target)
        else:
            move(source.with_suffix(".py"), target.with_suffix(".py"))


def module_patterns(modules: Mapping[str, str]) -> dict[str, str]:
    """Dotted paths, and the same as paths of files; longer ones first."""
    patterns: dict[str, str] = {}
    for old, new in sorted(modules.items(), key=lambda pair: -len(pair[0])):
        patterns[re.escape(old)] = new
        patterns[re.escape(old.replace(".", "/"))] = new.replace(".", "/")
        short_old, short_new = (name.removeprefix("whet.").replace(".", "/") for name in (old, new))
        if "/" in short_old:
            patterns[re.escape(short_old) + r"\.py"] = f"{short_new}.py"
    return patterns


def modules_replaced(text: str, patterns: Mapping[str, str]) -> str:
    """All at once, longer paths first: `whet.envs.a` may become `whet.envs.a.b`, which is not looked at again."""
    if not patterns:
        return text
    by_text = {re.sub(r"\\(.)", r"\1", pattern): new for pattern, new in patterns.items()}
    longest_first = sorted(by_text, key=len, reverse=True)
    either = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
    return either.sub(lambda match: by_text[match[0]], text)


def imports_split(text: str, modules: Mapping[str, str]) -> str:
    """`from package import a, b`, where a and b are modules that move, as a line for each module."""

    def lines(match: re.Match[str]) -> str:
        indent, package, names = match.groups()
        moved, stay = [], []
        for name in re.split(r", *", names):
            new = modules.get(f"{package}.{name.partition(' as ')[0]}")
            if new is None:
                stay.append(name)
            else:
                room, _, last = new.rpartition(".")
                alias = name.partition(" as ")[2]
                moved.append(f"{indent}from {room} import {last}" + (f" as {alias}" if alias else ""))
        return "\n".join(([f"{indent}from {package} import {', '.join(stay)}"] if stay else []) + moved)

    return re.sub(r"^([ ]*)from (whet[\w.]*) import ([\w, ]+)$", lines, text, flags=re.MULTILINE)


def imported_modules(text: str, modules: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """Modules that the file imports by their last name, and that get another one; `others` are no modules."""
    renamed = {}
    for package, names in re.findall(r"^[ ]*from (whet[\w.]*) import ([\w, ]+)$", text, re.MULTILINE):
        for name in names.split(", "):
            if name not in others and (new := modules.get(f"{package}.{name}")):
                renamed[name] = new.rpartition(".")[2]
    return renamed


def apply_to_code(path: Path, table: Mapping[str, Mapping[str, str]], modules: Mapping[str, str]) -> str:
    text = path.read_text()
    local = imported_modules(text, table.get("modules", {}), table.get("names", {}))
    text = modules_replaced(imports_split(text, table.get("modules", {})), modules)
    for pattern, new in table.get("code", {}).items():
        text = re.sub(pattern, new, text)
    text = replaced(text, table.get("prose", {}))
    tree = cst.parse_module(text)
    name = path.relative_to(ROOT).as_posix()
    scoped: Mapping[str, Mapping[str, str]] = table.get("scoped", {})  # type: ignore[assignment]
    names = Names(name, table.get("names", {}), scoped, local)
    tree = tree.visit(names)
    for scope, old, new in sorted(names.collisions()):
        print(f"collision: {name}::{scope}: {old} and {new}", file=sys.stderr)
    tree = tree.visit(NamesInStrings(name, names))
    tree = tree.visit(Strings(table.get("strings", {})))
    return tree.code


def apply_to_text(path: Path, table: Mapping[str, Mapping[str, str]], modules: Mapping[str, str]) -> str:
    text = modules_replaced(path.read_text(), modules)
    text = replaced(text, {**table.get("prose", {}), **table.get("strings", {})})
    return in_fenced(in_code_spans(text, table.get("names", {})), table.get("names", {}))


def in_fenced(text: str, names: Mapping[str, str]) -> str:
    """Identifiers in fenced blocks of Python."""

    def block(match: re.Match[str]) -> str:
        return match[1] + IDENTIFIER.sub(lambda name: names.get(name[0], name[0]), match[2])

    return re.sub(r"(```python\n)(.*?)(?=```)", block, text, flags=re.DOTALL)


def apply_to_template(path: Path, table: Mapping[str, Mapping[str, str]]) -> str:
    """Identifiers in the expressions and statements of a Jinja template."""

    def code(match: re.Match[str]) -> str:
        return IDENTIFIER.sub(lambda name: table.get("names", {}).get(name[0], name[0]), match[0])

    return re.sub(r"\{\{.*?\}\}|\{%.*?%\}", code, path.read_text(), flags=re.DOTALL)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--check", action="store_true", help="change nothing, list files that would change")
    chosen = parser.parse_args(arguments)
    table = tomllib.loads(chosen.table.read_text())
    modules = module_patterns(table.get("modules", {}))
    if not chosen.check:
        move_modules(table.get("modules", {}))
        for old, new in table.get("paths", {}).items():
            move(ROOT / old, ROOT / new)
    for path in tracked():
        if not path.is_file():
            continue
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in CODE:
            changed = apply_to_code(path, table, modules)
        elif path.suffix in TEXT or path.name == "Makefile":
            changed = apply_to_text(path, table, modules)
        elif path.suffix == ".j2":
            changed = apply_to_template(path, table)
        else:
            continue
        if changed != path.read_text():
            print(path.relative_to(ROOT))
            if not chosen.check:
                path.write_text(changed)


if __name__ == "__main__":
    main(sys.argv[1:])
