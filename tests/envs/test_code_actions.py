"""Replies that are code: one call of a known function, with literals; nothing is ever run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.envs.formats import PARSERS, Parsed, write
from whet.envs.protocol import EnvError
from whet.trajectories.code_actions import MAX_CHARACTERS
from whet.trajectories.function_calls import FUNCTIONS, INVALID_ACTION

BABYAI, SCIWORLD, ALFWORLD = (PARSERS.get(f"code_as_action:{env}") for env in ("babyai", "sciworld", "alfworld"))


@pytest.mark.parametrize(
    ("text", "thought", "action"),
    [
        ("```python\n# The key first.\ngo_to('red key 1')\n```", "The key first.", "go to red key 1"),
        ("```\n#One.\n# Two.\n\ngo_to(\"red key 1\")  # Three.\n```</s>", "One.\nTwo.\nThree.", "go to red key 1"),
        ("go_to('red key 1')", "", "go to red key 1"),
        ("```python\ngo_to(object='red key 1')\n```", "", "go to red key 1"),
        ("```python\n# No # here.\npick_up('key #1')\n```", "No # here.", "pick up key #1"),
        ("```python\nturn_left()\n```", "", "turn left"),
    ],
)  # fmt: skip
def test_a_call_is_read(text, thought, action):
    assert BABYAI(text) == Parsed(thought, action)


def test_arguments_may_be_left_out_and_come_in_the_published_order():
    assert ALFWORLD("examine('desk 1')").action == "examine desk 1"
    assert ALFWORLD("examine('desk 1', 'book 2')").action == "examine desk 1 with book 2"
    assert ALFWORLD("examine('desk 1', obj='book 2')").action == "examine desk 1 with book 2"
    assert SCIWORLD("pour('water', 'cup')").action == "pour water into cup"
    assert SCIWORLD("wait()").action == "wait"
    assert SCIWORLD("wait(1)").action == "wait1"


@pytest.mark.parametrize(
    "text",
    [
        "", "```python\n```", "# only a thought", "go_to", "fly('x')", "go_to()", "go_to('a', 'b')", "go_to(thing='x')",
        "go_to('a', object='b')", "go_to(*['a'])", "go_to(**{'object': 'a'})", "go_to('a'); go_to('b')",
        "go_to('a')\ngo_to('b')", "x = go_to('a')", "print(go_to('a'))", "go_to(open('/etc/passwd').read())",
        "__import__('os').system('x')", "go_to(f'{1}')", "go_to('a' + 'b')", "go_to(['a'])", "go_to(True)",
        "go_to(1.5)", "go_to('\\ud800')", "go_to('a\x00')", "go_to(" + "(" * 500 + ")" * 501,
        "go_to(" + "-" * 5000 + "1)",
        f"go_to('{'a' * MAX_CHARACTERS}')", "Sure!\n```python\ngo_to('a')\n```", "```python\n  go_to('a'\n```",
    ],
)  # fmt: skip
def test_whatever_else_is_invalid(text):
    parsed = BABYAI(text)
    assert (parsed.action, parsed.problem) == ("", INVALID_ACTION)
    assert parsed.answer("A room.") == f"{INVALID_ACTION}\n\nA room."


def test_code_is_read_and_not_run(tmp_path):
    place = tmp_path / "made"
    BABYAI(f"go_to(open({str(place)!r}, 'w').write('x'))")
    assert not place.exists()


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_is_read(text):
    for name in FUNCTIONS:
        PARSERS.get(f"code_as_action:{name}")(text)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1), st.text(max_size=40))
def test_what_is_written_reads_back(key, thought):
    text = write(" ".join(thought.split()), f"go to {key}", "code_as_action:babyai")
    assert text.startswith("```python\n")
    parsed = BABYAI(text)
    assert parsed.action == f"go to {key}"


def test_a_thought_of_several_lines_reads_back():
    assert BABYAI(write("One.\n\nTwo.", "toggle", "code_as_action:babyai")) == Parsed("One.\n\nTwo.", "toggle")
    with pytest.raises(EnvError, match="no function of babyai says 'dance'"):
        write("", "dance", "code_as_action:babyai")
