"""What the report on prose counts: sentences, words, and what is no prose."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "prose.py"
SPEC = importlib.util.spec_from_file_location("prose", SCRIPT)
assert SPEC is not None
assert SPEC.loader is not None
prose = importlib.util.module_from_spec(SPEC)
sys.modules["prose"] = prose
SPEC.loader.exec_module(prose)

PAGE = f"""# {"heading " * 26}

Short and active. See [the guide](a.md#b), e.g. its table; `a code span` is a word.

- An item of a list.
- Another item
  that goes on.

| a table | is no prose. |
|---|---|

```bash
whet train grpo  # Neither is this. Nor that.
```
"""


def test_what_is_a_sentence():
    found = [sentence for paragraph in prose.paragraphs(PAGE) for sentence in prose.sentences(paragraph)]
    assert found == [
        "Short and active.",
        "See the guide, e.g. its table; CODE is a word.",
        "An item of a list.",
        "Another item that goes on.",
    ]


def test_long_sentences_and_banned_words_fail_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(" ".join(["word"] * 25) + ". Seats are `seat`.\n")
    found = prose.examine(page, ["seat", "who sits there"])
    assert (found.num_words, found.num_sentences, found.long, found.passes) == (28, 2, [], True)  # `seat` is code
    page.write_text(" ".join(["word"] * 26) + ". He knows who sits there.\n")
    found = prose.examine(page, ["seat", "who sits there"])
    assert (len(found.long), found.banned) == (1, [("who sits there", "He knows who sits there.")])
    assert not found.passes


def test_banned_words_come_from_the_glossary():
    glossary = (
        "# G\n\n## Words not used\n\n| not | but |\n|---|---|\n| seat, who sits there | role |\n\n## Next\n| a | b |\n"
    )
    assert prose.banned_words(glossary) == ["seat", "who sits there"]


def test_docstrings_and_comments_are_prose(tmp_path):
    file = tmp_path / "code.py"
    file.write_text('"""First words."""\n\nX = 1  # why it is one\n"""What X is."""\nTEXT = "no prose"\n')
    assert sorted(prose.python_prose(file.read_text())) == ["First words.", "What X is.", "why it is one"]
