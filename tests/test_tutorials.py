"""The tutorials: every file and command of a page, in order, in an empty folder. Long trainings are cut short."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import ENVIRONMENT, whet

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
PAGES = sorted(FOLDER.glob("*.md"))
SHORT = {
    "stage1.num_steps": 2, "stage2.num_steps": 2, "num_steps": 2, "prompts_per_step": 4, "evaluation.num_samples": 1,
    "num_questions": 40, "warm_start.critic_steps": 2,
}  # fmt: skip
"""Settings that a test lowers, where a command names them."""
SMALL_TEST = {"data.num_validation": 4, "data.num_test": 4}
"""What a test adds to a training whose data are not a file."""
MAY_FAIL = {"whet reward test first.py --data problems.jsonl", "whet reward test rewards.py"}
"""They exit with 1, as the page says."""
EXTRAS = {"many-gpus": "ray"}


def files_and_commands(page: Path) -> list[tuple[str, str]]:
    """In order: (name, content) of a file, or ("", command)."""
    steps = []
    for language, code in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        if language in ("python", "yaml"):
            name = re.match(r"# (\w+\.(?:py|yaml))\n", code)
            assert name, f"{page.name}: a block of {language} does not begin with its file's name"
            steps.append((name[1], code))
        elif language == "sh":
            steps += [("", line) for line in code.replace("\\\n", " ").splitlines()]
        else:
            assert language == "text", f"{page.name}: {language} is neither a file, nor a command, nor output"
    return steps


def cut_short(command: list[str]) -> list[str]:
    """The command with fewer steps, where it trains."""
    if command[0] not in ("train", "data", "doctor"):
        return command
    for place, word in enumerate(command):
        key, _, value = word.partition("=")
        if key in SHORT and int(value) > SHORT[key]:
            command[place] = f"{key}={SHORT[key]}"
    is_file = any(word.startswith("data.kind=") or word in ("mine.yaml", "own.yaml") for word in command)
    extra = [] if is_file else [f"{key}={value}" for key, value in SMALL_TEST.items()]
    return [*command, *extra] if command[0] == "train" else command


def test_every_page_is_in_the_index():
    index = (FOLDER / "index.md").read_text("utf-8")
    for page in PAGES:
        assert page.name == "index.md" or f"]({page.name})" in index


@pytest.mark.integration
@pytest.mark.parametrize("page", [page for page in PAGES if files_and_commands(page)], ids=lambda page: page.stem)
def test_a_page_runs_as_it_stands(page, tmp_path, monkeypatch):
    if extra := EXTRAS.get(page.stem):
        pytest.importorskip(extra, reason=f"the extra {extra} is not installed (make setup EXTRAS={extra})")
    monkeypatch.chdir(tmp_path)
    for name, text in files_and_commands(page):
        if name:
            Path(name).write_text(text, encoding="utf-8")
            continue
        program, *arguments = shlex.split(text)
        if program == "whet":
            done = whet(*cut_short(arguments), check=text not in MAY_FAIL)
            assert done.returncode == int(text in MAY_FAIL), done.stdout
        else:
            assert program == "python"
            done = subprocess.run(
                [sys.executable, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False
            )
            assert done.returncode == 0, done.stderr


def test_every_note_of_the_report_that_warns_has_its_line():
    """By the titles in the source; a note of an event has its level and a name, and shares have those of a method."""
    source = "".join(path.read_text("utf-8") for path in (FOLDER.parents[1] / "src/whet/report").glob("*.py"))
    titles = set(re.findall(r'Note\(\s*(?:"(?:watch|bad)"|level|"bad" if [^,]*), "([^"]+)"', source))
    assert {"Groups without signal", "Falling accuracy", "Entropy collapse", "Off-policy drift"} <= titles
    page = (FOLDER / "what-went-wrong.md").read_text("utf-8")
    assert {title for title in titles if f"**{title}**" not in page} == set()
