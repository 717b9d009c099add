"""Pages name only what is there: modules and members, settings, files, commands and options, make targets, methods.

The check reads code spans and shell blocks. It parses the source and imports none of it but the command line. A name
that is not there fails with its page, its line and itself. `EXAMPLES` has the files that a page asks its
reader to write, `FOREIGN` the names of other people's things.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FOLDERS = ("src", "tests", "benchmarks", "scripts", "docs", "examples", "packages")
EXAMPLES = {
    "src/whet/methods/policy/filtered.py",
    "whet.evaluation.module",
    *("helper.py", "guess.py", "test_guess.py"),
}
FOREIGN = {
    *("torch", "transformers", "trl", "datasets", "pytest", "os", "sys", "AutoModelForCausalLM", "CPOTrainer"),
    *("ForTokenClassification", "ProcessPool", "TrainClient"),
    *("actor_rollout_ref", "reward_model.ground_truth", "general.license", "rng.safetensors"),  # of verl, GGUF, a run
}
VARIABLES = {"self", "ask", "run", "context"}
"""Of an example: what follows is a member of some class."""
SUFFIXES = ("py", "md", "json", "jsonl", "yaml", "yml", "html", "toml", "txt", "svg", "png", "parquet", "tsv", "gguf")

SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
PATH = re.compile(r"(?<![\w./*-])((?:[\w*-]+/)+[\w*.-]*)")
OPTION = re.compile(r"--[a-z][a-z-]+")


def test_pages_name_what_is_there():
    assert [str(problem) for page in PAGES for problem in problems(page)] == []


PLANTED = """# Page

`whet.rollout.solve.Solve` and `credit.rewards` and `types.Task` and `engine.rollout` are there, and `Loop.freeze`.
`whet.play.desk` is not. `credit.earn`, `types.Talk`, `Loop.keep`, `whet.tasks.dialects.find_dialect` are not either,
nor are `engine.play=free` and `self.no_such_member`, `EndOfPlay` and `mathgrade.reader`.

See `src/whet/types.py`, `tests/credit/`, `docs/agents.md` and `trainer/losses.py`, but not `src/whet/play/desk.py`,
`tests/evals/`, `benchmarks/no_such.py`, `docs/play.md`, `trainer/store.py`, `tests/*/test_desk.py`, `play.md`.

`--accept-changes` is an option, `--accept-everything` is none, and `whet replay` no command. `make tests` is no target.

```
make test && whet train grpo seed=1 --out runs/x    # fine
whet train grpo --fast
whet train grpo_fast
whet config critique_rl \\
    stage3.num_steps=4
whet env pley maze && make agent
.venv/bin/python scripts/mutants.py --out mutants.jsonl --markers ''
```

```python
whet.anything_goes_here()
```
"""


def test_a_name_that_is_not_there_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PLANTED.replace("\\\\", "\\"))
    assert [(problem.line, problem.name) for problem in problems(page)] == [
        *((4, name) for name in ("whet.play.desk", "credit.earn", "types.Talk", "Loop.keep")),
        (4, "whet.tasks.dialects.find_dialect"),
        *((5, name) for name in ("engine.play", "self.no_such_member", "EndOfPlay", "mathgrade.reader")),
        (7, "src/whet/play/desk.py"),
        *((8, name) for name in ("tests/evals/", "benchmarks/no_such.py", "docs/play.md", "trainer/store.py")),
        *((8, name) for name in ("tests/*/test_desk.py", "play.md")),
        *((10, name) for name in ("--accept-everything", "whet replay", "tests")),
        (14, "whet train --fast"),
        (15, "whet train grpo_fast"),
        (17, "stage3.num_steps"),
        *((18, name) for name in ("whet env pley", "agent")),
        (19, "scripts/mutants.py --markers"),
    ]
    assert str(problems(page)[0]) == "page.md:4: whet.play.desk: no such module, member or setting"


@dataclass(frozen=True)
class Problem:
    page: Path
    line: int
    name: str
    what: str

    def __str__(self) -> str:
        page = self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page.name
        return f"{page}:{self.line}: {self.name}: no such {self.what}"


def problems(page: Path) -> list[Problem]:
    """The names of a page that are not there."""
    text = page.read_text(encoding="utf-8")
    found = []
    in_page = registered(text)
    for line, code, is_span in codes(text):
        checks = [*paths(code), *commands(code, in_page)]
        if is_span:
            checks += [*dotted(code), *options(code), *bare_files(code, text)]
        found += [Problem(page, line, name, what) for name, what in dict.fromkeys(checks)]
    return found


def codes(text: str) -> Iterator[tuple[int, str, bool]]:
    """(line, code, whether it is a span) of each code span and each command of a block without a language."""
    fence = None
    waiting = ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fence = line.strip()[3:] if fence is None else None
        elif fence in ("", "bash", "sh", "console"):
            waiting += line.strip()
            if waiting.endswith("\\"):
                waiting = waiting[:-1]
                continue
            yield number, waiting, False
            waiting = ""
        elif fence is None:
            yield from ((number, span, True) for span in SPAN.findall(line))


# --- files ------------------------------------------------------------------------------------------------------------


def paths(code: str) -> Iterator[tuple[str, str]]:
    """Paths of the repository, or of `src/whet`, that are not there."""
    for path in PATH.findall(code):
        path = path.rstrip(".").removesuffix("::")
        first = path.split("/")[0]
        if path in EXAMPLES or "://" in code or "NAME" in re.split(r"[/.]", path):
            continue
        if first in FOLDERS:
            places = [ROOT]
        elif first in rooms() and path.endswith((".py", ".yaml")):
            places = [ROOT / "src" / "whet", ROOT]
        else:
            continue
        if not any(exists(place, path) for place in places):
            yield path, "file"


def bare_files(span: str, page_text: str) -> Iterator[tuple[str, str]]:
    """A span that is a file's name alone: one of the repository, or of the page's examples."""
    is_example = re.search(rf"(^# |\[|=|--out ){re.escape(span)}", page_text, re.MULTILINE)
    if re.fullmatch(r"[\w-]+\.(py|md)", span) and span not in file_names() | EXAMPLES and not is_example:
        yield span, "file"


@cache
def file_names() -> frozenset[str]:
    return frozenset(
        file.name for folder in FOLDERS for file in (ROOT / folder).rglob("*.*") if "results" not in file.parts
    ) | frozenset(file.name for file in ROOT.iterdir())


def exists(place: Path, path: str) -> bool:
    return any(place.glob(path)) if "*" in path else (place / path).exists()


# --- modules, members, settings ---------------------------------------------------------------------------------------


@cache
def modules() -> Mapping[str, set[str]]:
    """By dotted name, without `whet`."""
    return {name: names_of(tree) for name, tree in trees().items()}


@cache
def trees() -> Mapping[str, ast.Module]:
    """By dotted name: the modules of whet, without `whet`, and those of mathgrade."""
    found = {}
    for above, folder in (("src/whet", "."), ("packages/mathgrade/src", "mathgrade")):
        for file in sorted((ROOT / above / folder).rglob("*.py")):
            parts = file.relative_to(ROOT / above).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(file.read_text(encoding="utf-8"))
    return found


@cache
def rooms() -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in modules() if name)


def names_of(tree: ast.Module) -> set[str]:
    """What a module binds at its top, and texts in its tables, which may be names that are loaded late."""
    names = set(bound(tree.body))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple | ast.Dict):
            texts = (inner.value for inner in ast.walk(node.value) if isinstance(inner, ast.Constant))
            names |= {text for text in texts if isinstance(text, str)}
    return names


def bound(body: list[ast.stmt]) -> Iterator[str]:
    """The names that statements bind."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (inner.id for inner in ast.walk(target) if isinstance(inner, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from bound(node.body)


def members(cls: ast.ClassDef) -> Iterator[str]:
    """Fields, methods, and what methods set on `self`."""
    yield from bound(cls.body)
    for node in ast.walk(cls):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


@cache
def classes() -> Mapping[str, set[str]]:
    """Members by a class's name, those of its bases in whet too."""
    found: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(members(node))
                bases.setdefault(node.name, set()).update(
                    inner.id for base in node.bases for inner in ast.walk(base) if isinstance(inner, ast.Name)
                )
    for _ in range(6):
        for name, parents in bases.items():
            found[name] = found[name].union(*(found.get(parent, set()) for parent in parents))
    return found


@cache
def fields() -> frozenset[str]:
    """Names of fields of any class: the parts of settings."""
    return frozenset(name for names in classes().values() for name in names)


def dotted(code: str) -> Iterator[tuple[str, str]]:
    """Dotted names in a span that lead nowhere."""
    whole = code.removeprefix("@").partition("(")[0].partition("=")[0].strip()
    names = [whole] if DOTTED.fullmatch(whole) else []
    names += [name for name in DOTTED.findall(code) if name.startswith("whet.") and name != whole]
    for name in names:
        if name.rpartition(".")[2] not in SUFFIXES and not leads_somewhere(name):
            yield name, "module, member or setting"
    if re.fullmatch(r"[A-Z][a-z]+([A-Z][A-Za-z]*)+", whole) and whole not in all_names() | FOREIGN:
        yield whole, "class"


def leads_somewhere(name: str) -> bool:
    parts = name.split(".")
    if parts[0] in FOREIGN or name in FOREIGN or name in EXAMPLES:
        return True
    if parts[0] == "whet":
        return is_member(parts[1:])
    if parts[0] in VARIABLES or (parts[0].isupper() and any(parts[0] in names for names in modules().values())):
        return set(parts[1:]) <= fields() or is_member(parts)
    if parts[0][0].isupper():
        return parts[0] in classes() and parts[1] in classes()[parts[0]]
    return is_member(parts) or set(parts) <= fields()


@cache
def all_names() -> frozenset[str]:
    return frozenset().union(classes(), *modules().values())


def is_member(parts: list[str]) -> bool:
    for count in range(len(parts), -1, -1):
        module = modules().get(".".join(parts[:count]))
        if module is not None:
            rest = parts[count:]
            if not rest:
                return True
            if rest[0] not in module:
                return False
            return len(rest) == 1 or rest[1] in classes().get(rest[0], set())
    return False


# --- commands ---------------------------------------------------------------------------------------------------------


@cache
def command_line() -> dict[str, frozenset[str]]:
    """Options by command, `env play` among them."""
    import typer

    from whet.cli import app

    found: dict[str, frozenset[str]] = {}

    def walk(command: object, name: str) -> None:
        params = getattr(command, "params", [])
        opts = {opt for param in params for opt in (*param.opts, *param.secondary_opts)}
        found[name] = frozenset({*opts, "--help"})
        for inner_name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{name} {inner_name}".strip())

    walk(typer.main.get_command(app), "")
    return found


@cache
def other_options() -> frozenset[str]:
    """Options of the repository's scripts, and of pytest as the pages use it."""
    folders = ("scripts", "benchmarks", "tests", "examples")
    files = {file for folder in folders for file in (ROOT / folder).rglob("*.py")}
    files.remove(Path(__file__).resolve())  # its planted page has options that are none
    return frozenset(option for file in files for option in re.findall(r"\"(--[a-z][a-z-]+)", file.read_text()))


def options(code: str) -> Iterator[tuple[str, str]]:
    """A span that is an option of none of our commands."""
    if code.startswith("--"):
        name = OPTION.match(code)
        ours = frozenset().union(*command_line().values())
        if name and name[0] not in ours | other_options():
            yield name[0], "option"


@cache
def make_targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@cache
def methods() -> frozenset[str]:
    from whet.methods import METHODS

    return frozenset(METHODS.names())


def registered(text: str) -> frozenset[str]:
    """Methods and other parts that a page's own code registers, by a decorator or by the line of the registry."""
    by_line = re.findall(r"\(\"(\w+)\", \"[\w.]+:\w+\"", text)
    return frozenset([*by_line, *re.findall(r"@(?:whet\.)?(?:method|preset|reward|loss|env)\(\s*\"(\w+)\"", text)])


def commands(code: str, in_page: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Commands, their options, methods and make targets that are not there."""
    for piece in re.split(r"&&|\|\||[;|]", code.partition("  #")[0]):
        try:
            words = shlex.split(piece, comments=True)
        except ValueError:
            continue
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        if len(words) < 2:
            continue
        if words[0] == "make":
            yield from ((word, "make target") for word in words[1:2] if not is_target(word))
        elif words[0].rpartition("/")[2] == "python" and (ROOT / words[1]).is_file():
            script = (ROOT / words[1]).read_text() + (ROOT / "benchmarks" / "study.py").read_text()
            given = [option[0] for word in words[2:] if (option := OPTION.match(word))]
            yield from ((f"{words[1]} {option}", "option") for option in given if f'"{option}"' not in script)
        elif words[0].rpartition("/")[2] == "whet":
            yield from whet_command(words[1:], in_page)


def is_target(word: str) -> bool:
    return word in make_targets() or "=" in word or not re.fullmatch(r"[a-z][\w-]*", word)


def whet_command(words: list[str], in_page: frozenset[str]) -> Iterator[tuple[str, str]]:
    if not re.fullmatch(r"[a-z][\w-]*", words[0]):
        return
    name = words[0]
    if len(words) > 1 and f"{name} {words[1]}" in command_line():
        name += f" {words[1]}"
    elif any(other.startswith(f"{name} ") for other in command_line()) and len(words) > 1:
        if re.fullmatch(r"[a-z][\w-]*", words[1]):
            yield f"whet {name} {words[1]}", "command"
        return
    if name not in command_line():
        yield f"whet {name}", "command"
        return
    for word in words[1:]:
        if (option := OPTION.match(word)) and option[0] not in command_line()[name]:
            yield f"whet {name} {option[0]}", "option"
    for word in words[1:]:
        key, equals, _ = word.partition("=")
        if equals and DOTTED.fullmatch(key) and not set(key.split(".")) <= fields() | in_page:
            yield key, "setting"
    method = words[1] if name in ("train", "config") and len(words) > 1 else ""
    if re.fullmatch(r"[a-z]\w*", method) and method not in methods() | in_page:
        yield f"whet {name} {method}", "method or preset"
