"""YAML in and out. We read YAML 1.2's scalars, as people expect them: `1e-3` is a number, and `no`, `on`, `12:30` and
`2024-01-01` are text, which a field's type then turns into what it wants (`no` is false for a switch)."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from whet.config.base import ConfigError

TAG = "tag:yaml.org,2002:"
SCALARS = {
    "null": re.compile(r"^(?:~|null|Null|NULL|None|)$"),  # None, because the keys' descriptions say so
    "bool": re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"),
    "int": re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"),  # 007 is text: PyYAML would make it octal
    "float": re.compile(
        r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))$"
        r"|^\.(?:nan|NaN|NAN)$"
    ),
}
"""What plain text stands for; the first that matches wins, and none is text."""


class Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's scalars, which refuses a key given twice (PyYAML takes the last)."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (PyYAML's own way)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True) if key_node.tag != f"{TAG}merge" else None
            if key is not None and isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key!r} is given twice", key_node.start_mark)
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


class Dumper(yaml.SafeDumper):
    """SafeDumper that quotes text which YAML 1.1 or our Loader would take for something else: all readers agree."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _name, _pattern in SCALARS.items():
    Loader.add_implicit_resolver(TAG + _name, _pattern, None)
    Dumper.add_implicit_resolver(TAG + _name, _pattern, None)
Loader.add_implicit_resolver(f"{TAG}merge", re.compile("^<<$"), ["<"])


def _write_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
    scalars = not any(isinstance(item, list | dict) for item in items)
    return dumper.represent_sequence(f"{TAG}seq", items, flow_style=scalars or None)


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar(f"{TAG}str", text, style='"' if "\n" in text else None)


Dumper.add_representer(list, _write_list)
Dumper.add_representer(str, _write_text)


def dump(tree: Any) -> str:
    """The tree as block YAML, keys in their order, lists of scalars on one line."""
    return _dump(tree, flow=False)


def compact(value: Any) -> str:
    """The value on one line."""
    return _dump(value, flow=True).strip().removesuffix("...").strip()


def _dump(tree: Any, *, flow: bool) -> str:
    text: str = yaml.dump(
        tree, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=float("inf"), default_flow_style=flow
    )
    return text


def read_file(file: Path, what: str = "config file") -> dict[str, Any]:
    """The mapping in a YAML file; an empty file is an empty mapping.

    Args:
        what: the file's name for a user.
    Raises: ConfigError where the file cannot be read, is no YAML, or holds something else.
    """
    try:
        if file.exists() and not file.is_file():  # a pipe or a device may never end
            raise ConfigError(f"{file} is a folder, a pipe or a device: give a YAML text file")
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"there is no {what} {file}: check the path") from error
    except OSError as error:
        raise ConfigError(f"the {what} {str(file)[:200]} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the {what} {file} is not UTF-8 (byte {error.start}): give a YAML text file") from error
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{str(file)!r} can be no path ({error}): give a YAML text file") from error
    try:
        tree = yaml.load(text, Loader)
    except RecursionError as error:
        raise ConfigError(f"{file} is nested too deeply to be read: settings have a few levels") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{file} is not valid YAML{_where(error)}: mend that line") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        found = "a list" if isinstance(tree, list) else f"the single value {compact(tree)}"
        raise ConfigError(f"{file} holds {found}, not a mapping: write lines of `key: value`")
    return tree


def parse_value(text: str) -> Any:
    """The value of an override. Quotes, [lists] and {mappings} are YAML; anything else is one scalar as it stands, so
    that `:`, `#` or `*` in a path mean themselves.

    Raises: yaml.YAMLError, ValueError.
    """
    if text[0] in "'\"[{":
        return yaml.load(text, Loader)
    tag = next((name for name, pattern in SCALARS.items() if pattern.match(text)), "str")
    return Loader("").construct_object(yaml.ScalarNode(TAG + tag, text))


def _where(error: Exception) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " (a number of thousands of digits)" if "digits" in str(error) else f" ({str(error).splitlines()[0]})"
    mark = error.problem_mark
    return f" at line {mark.line + 1}, column {mark.column + 1} ({error.problem})"
