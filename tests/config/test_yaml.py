"""YAML 1.2 as settings have it: what a text stands for, what is refused and where, and text that every reader reads."""

from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from whet.config.yaml_text import NotYaml, compact, dump, load, parse_value

MEANINGS = {
    "no": "no", "off": "off", "on": "on", "yes": "yes", "y": "y", "NO": "NO",  # Norway is no switch
    "true": True, "False": False, "~": None, "null": None, "None": None, "": None,
    "1e-3": 1e-3, "-1E5": -1e5, "1.": 1.0, ".5": 0.5, ".inf": math.inf, "1_000": 1000, "+1": 1,
    "0o17": 15, "0x1f": 31, "017": 17, "007": 7,  # octal is 0o alone
    "12:30": "12:30", "2024-01-01": "2024-01-01", "2001-12-14t21:59:43.10-05:00": "2001-12-14t21:59:43.10-05:00",
    "=": "=", "a#b": "a#b", "1.2.3": "1.2.3", "1e": "1e",
}  # fmt: skip


@pytest.mark.parametrize(("text", "value"), MEANINGS.items())
def test_what_a_scalar_stands_for(text, value):
    read = load(f"key: {text}")["key"]
    assert (read, type(read)) == (value, type(value))
    if text:
        assert repr(parse_value(text)) == repr(value)


@pytest.mark.parametrize("text", ["a: b", "x #y", "*", "/a/*.json", "@x", "%x", "- a", "|"])
def test_an_override_is_one_scalar_as_it_stands(text):
    assert parse_value(text) == text


def test_anchors_and_merge_keys():
    text = "base: &base {a: 1, b: [1, 2]}\nmore: {<<: *base, a: 3}\nsame: *base\n"
    assert load(text) == {"base": {"a": 1, "b": [1, 2]}, "more": {"a": 3, "b": [1, 2]}, "same": {"a": 1, "b": [1, 2]}}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: 1\nb: 2\na: 3\n", 'at line 3, column 1 (found duplicate key "a"'),
        ("a: {b: 1, b: 2}\n", 'at line 1, column 11 (found duplicate key "b"'),
        ("a: 1\nb: [1\n", "at line 3, column 1 (expected"),
        ("a: 1\n  b: 2\n", "at line 2, column 4 (mapping values are not allowed here)"),
        ("a: !!python/object/apply:os.getcwd []\n", "at line 1, column 4 (could not determine a constructor"),
        ("? [a]\n: 1\n", "at line 1, column 3 (a key has to be one word or number)"),
        ("a: \0", "unacceptable character"),
        ("a: " + "9" * 5000, "a number of thousands of digits"),
        ("a: *b\n", "at line 1, column 4 (found undefined alias"),
        ("a\n---\nb\n", "at line 2, column 1 (but found another document)"),
    ],
)
def test_what_is_no_yaml_says_where(text, where):
    with pytest.raises(NotYaml) as refused:
        load(text)
    assert where in str(refused.value)


def test_what_no_yaml_can_be_written_for_is_refused():
    with pytest.raises(NotYaml):
        compact({"a": object()})


def test_lists_of_scalars_stand_on_one_line_and_keys_in_their_order():
    tree = {"b": [1, 0.5, "no"], "a": {"c": [{"d": 1e-5}]}, "e": "two\nlines"}
    assert dump(tree) == "b: [1, 0.5, 'no']\na:\n  c:\n  - d: 1.0e-05\ne: \"two\\nlines\"\n"
    assert compact([{"d": 1}, []]) == "[{d: 1}, []]"


ODD = st.sampled_from(
    ["no", "1:30", "0o7", "1e3", "2024-01-01", "=", "<<", "? a", "0?", ":a", "a: b", "- a", "#", "a #b", "*a", "&a",
     "'", '"', "", " x ", "a\nb", "None", "y", "{", "]", ", ,", "---", "...", "|", "%a", "@a", "`a"]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ODD
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD, inner, max_size=3))


@given(TREES)
def test_whatever_is_written_every_reader_reads(tree):
    """PyYAML, as a reader of YAML 1.1."""
    for text in (dump(tree), compact(tree)):
        assert load(text) == tree
        assert yaml.safe_load(text) == tree
