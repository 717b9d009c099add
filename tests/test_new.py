"""`whet new env`: what it writes works as it is, is tested by what it writes, and overwrites nothing."""

from __future__ import annotations

import subprocess
import sys

from support.commands import ENVIRONMENT, whet


def test_it_writes_an_environment_that_passes_its_own_tests(tmp_path):
    folder = tmp_path / "my files"
    said = whet("new", "env", "corridor", "--dir", folder).stdout
    assert f"pytest '{folder / 'test_corridor.py'}'" in said
    assert f"whet env play corridor --plugins '{folder / 'corridor.py'}'" in said
    assert sorted(file.name for file in folder.iterdir()) == ["corridor.py", "test_corridor.py"]

    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_corridor.py"]
    done = subprocess.run(tests, cwd=folder, capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "9 passed" in done.stdout

    played = whet("env", "play", "corridor", "--plugins", folder / "corridor.py", "--expert").stdout
    assert "corridor, item 80: reward 1, success" in played


def test_its_tests_find_what_is_broken(tmp_path):
    whet("new", "env", "leaky", "--dir", tmp_path)
    file = tmp_path / "leaky.py"
    text = file.read_text()
    broken = text.replace('chance = random.Random(f"{item} {seed}")', "chance = random.Random()")
    assert broken != text
    file.write_text(broken)
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "test_leaky.py"]
    done = subprocess.run(
        tests, cwd=tmp_path, capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "draw whatever is left to chance from item and seed in reset" in done.stdout
    assert "a_fork_goes_its_own_way" in done.stdout


def test_it_overwrites_nothing_and_says_why(tmp_path):
    (tmp_path / "test_mine.py").write_text("kept")
    for name, why in (
        ("mine", "is there already, and nothing was written: choose another name or --dir"),
        ("my-world", "'my-world' can be no module's name"),
        ("class", "'class' can be no module's name"),
        ("../up", "can be no module's name"),
        ("maze", "there is an environment 'maze' already: choose another name"),
    ):
        done = whet("new", "env", name, "--dir", tmp_path, check=False)
        assert done.returncode == 2
        assert why in " ".join(done.stderr.split())
    assert [file.name for file in tmp_path.iterdir()] == ["test_mine.py"]
    assert (tmp_path / "test_mine.py").read_text() == "kept"
