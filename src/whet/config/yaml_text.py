"""Reads and writes YAML 1.2, by ruamel.yaml: `1e-3` is a number, and `no`, `on` and `12:30` are text. A field's type
then converts the text: `no` is false for a switch."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.emitter import Emitter
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import Node, ScalarNode
from ruamel.yaml.representer import SafeRepresenter
from ruamel.yaml.resolver import VersionedResolver, implicit_resolvers

from whet.config.base import ConfigError
from whet.digests import read_text

TAG = "tag:yaml.org,2002:"
MAX_BYTES = 500_000
"""Of a file of settings or prompts. Parsing takes up to 16 microseconds a byte."""


class NotYaml(ValueError):
    """A text that is no YAML, or a value that YAML cannot hold: what is wrong, and where."""


class _Resolver(VersionedResolver):
    """Takes `None` for null too, because the keys' descriptions say so."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is ScalarNode and value == "None" and implicit[0]:
            return self.DEFAULT_SCALAR_TAG.__class__(suffix=f"{TAG}null")
        return super().resolve(kind, value, implicit)


class _Constructor(SafeConstructor):
    """Dates, and the signs `=` and `<<` where they are no key, are text. A key is one scalar."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise ConstructorError(problem="a key has to be one word or number", problem_mark=key.start_mark)
        return super().construct_mapping(node, deep=deep)


class _Representer(SafeRepresenter):
    """Quotes text that any version of YAML would take for something else, so that all readers agree."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> Node:
        is_plain = not any(pattern.match(text) for _, _, pattern, _ in implicit_resolvers) and text != "None"
        return self.represent_scalar(f"{TAG}str", text, style='"' if "\n" in text else None if is_plain else "'")

    def represent_number(self, value: float) -> Node:
        node = self.represent_float(value)
        if "." not in node.value:
            node.value = node.value.replace("e", ".0e")  # YAML 1.1 takes 1e-05 for text
        return node

    def represent_row(self, items: list[Any]) -> Node:
        """A list; of scalars, on one line."""
        scalars = not any(isinstance(item, list | dict) for item in items)
        return self.represent_sequence(f"{TAG}seq", items, flow_style=scalars or None)


class _Emitter(Emitter):
    """Quotes text with the signs of keys in one-line mappings, where YAML 1.1 sees keys."""

    def analyze_scalar(self, scalar: Any) -> Any:
        analysis = super().analyze_scalar(scalar)
        analysis.allow_flow_plain &= not {"?", ":"} & set(str(scalar))
        return analysis


for _name in ("timestamp", "value", "merge"):
    _Constructor.add_constructor(TAG + _name, SafeConstructor.construct_yaml_str)
_Representer.add_representer(str, _Representer.represent_text)
_Representer.add_representer(float, _Representer.represent_number)
_Representer.add_representer(list, _Representer.represent_row)


def load(text: str) -> Any:
    """The value that a text of YAML holds: None, switches, numbers, text, lists and mappings.

    Raises: NotYaml, which says where; RecursionError where it is nested too deeply.
    """
    try:
        return _yaml().load(text)
    except (YAMLError, ValueError) as error:
        raise NotYaml(_where(error)) from error


def dump(tree: Any) -> str:
    """The tree as block YAML, keys in their order, lists of scalars on one line.

    Raises: NotYaml where it holds other values than YAML has.
    """
    return _dump(tree, on_one_line=False)


def compact(value: Any) -> str:
    """The value on one line. Raises: NotYaml, as `dump`."""
    return _dump(value, on_one_line=True).strip().removesuffix("...").strip()


def read_file(file: Path, title: str = "config file") -> dict[str, Any]:
    """The mapping in a YAML file; an empty file is an empty mapping.

    Args:
        title: the kind of file, for the user.
    Raises: ConfigError where the file cannot be read, is too large or no YAML, or holds something else.
    """
    try:
        if file.exists() and not file.is_file():  # a pipe or a device may never end
            raise ConfigError(f"{file} is a folder, a pipe or a device: give a YAML text file")
        if file.exists() and (size := file.stat().st_size) > MAX_BYTES:
            raise ConfigError(
                f"the {title} {file} has {size:,} bytes, more than {MAX_BYTES:,}: give a file of settings or prompts; "
                "rows of data belong in a .jsonl file that the settings name"
            )
        text = read_text(file)
    except FileNotFoundError as error:
        raise ConfigError(f"there is no {title} {file}: check the path") from error
    except OSError as error:
        raise ConfigError(
            f"the {title} {str(file)[:200]} cannot be read: {error.strerror}; give another file"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the {title} {file} is not UTF-8 (byte {error.start}): give a YAML text file") from error
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{str(file)!r} can be no path ({error}): give a YAML text file") from error
    try:
        tree = load(text)
    except RecursionError as error:
        raise ConfigError(f"{file} is nested too deeply to be read: settings have a few levels") from error
    except NotYaml as error:
        raise ConfigError(f"{file} is not valid YAML{error}: mend that line") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        content = "a list" if isinstance(tree, list) else f"the single value {compact(tree)}"
        raise ConfigError(f"{file} holds {content}, not a mapping: write lines of `key: value`")
    return tree


def parse_value(text: str) -> Any:
    """The value of an override. Quotes, [lists] and {mappings} are YAML; anything else is one scalar as it stands, so
    that `:`, `#` or `*` in a path mean themselves.

    Raises: NotYaml, RecursionError.
    """
    kind = str(_yaml().resolver.resolve(ScalarNode, text, (True, False))).removeprefix(TAG)
    return load(text) if text[0] in "'\"[{" or kind in ("null", "bool", "int", "float") else text


def _yaml(*, on_one_line: bool = False) -> YAML:
    yaml: Any = YAML(typ="safe", pure=True)
    yaml.Resolver, yaml.Constructor = _Resolver, _Constructor
    yaml.Representer, yaml.Emitter = _Representer, _Emitter
    yaml.default_flow_style, yaml.width = on_one_line, float("inf")
    yaml.sort_base_mapping_type_on_output = False
    yaml.brace_single_entry_mapping_in_flow_sequence = True
    return yaml


def _dump(tree: Any, *, on_one_line: bool) -> str:
    sink = StringIO()
    try:
        _yaml(on_one_line=on_one_line).dump(tree, sink)
    except YAMLError as error:
        raise NotYaml(str(error).splitlines()[0]) from error
    return sink.getvalue()


def _where(error: Exception) -> str:
    if not isinstance(error, MarkedYAMLError) or error.problem_mark is None:
        return " (a number of thousands of digits)" if "digits" in str(error) else f" ({str(error).splitlines()[0]})"
    mark = error.problem_mark
    return f" at line {mark.line + 1}, column {mark.column + 1} ({error.problem})"
