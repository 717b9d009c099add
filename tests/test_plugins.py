"""Plug-ins: files and packages that register things, and one sentence for whatever is wrong with them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import whet.plugins
from whet.methods import METHODS
from whet.plugins import PluginError, load_entry_points, load_plugins, plugin_files
from whet.registry import Registry, UnknownName
from whet.tasks.prompts import ENGLISH, PROMPTS, find_prompts

GOOD = """
    from dataclasses import dataclass, replace
    from whet.tasks.prompts import ENGLISH, prompts

    @dataclass
    class Words:  # dataclasses look their module up
        close: str = "{end}"

    @prompts("{name}")
    def mine():
        '''Says little.'''
        return replace(ENGLISH, solve="{{question}} " + Words().close)
"""


def written(folder: Path, file_name: str, text: str, **placeholders: str) -> Path:
    file = folder / file_name
    file.write_text(dedent(text.format(**placeholders) if placeholders else text))
    return file


def test_what_a_file_registers_says_where_it_is_from_and_a_changed_file_replaces_it(tmp_path):
    file = written(tmp_path, "my.py", GOOD, name="changing", end="Go.")
    (module,) = load_plugins([file])
    assert load_plugins([str(file)]) == [module]  # once a content
    assert module.__name__.startswith("whet_plugin_my_")
    assert sys.modules[module.__name__] is module
    assert (PROMPTS.entry("changing").origin, PROMPTS.entry("changing").says) == (str(file), "Says little.")
    assert find_prompts("changing").solve == "{question} Go."
    assert Registry.current_origin == "whet"

    written(tmp_path, "my.py", GOOD, name="changing", end="No.")  # same size, same second: no stale byte code
    assert load_plugins([file]) != [module]
    assert find_prompts("changing").solve == "{question} No."
    written(tmp_path, "my.py", GOOD, name="changing", end="Go.")
    load_plugins([file])
    assert find_prompts("changing").solve == "{question} Go."
    assert not (tmp_path / "__pycache__").exists()


def test_a_name_that_another_holds_is_refused(tmp_path):
    load_plugins([written(tmp_path, "one.py", GOOD, name="held", end="")])
    with pytest.raises(PluginError, match=r"two\.py, line 9, .*there is a prompts 'held' already, of .*one\.py"):
        load_plugins([written(tmp_path, "two.py", GOOD, name="held", end="")])
    with pytest.raises(PluginError, match="there is a prompts 'english' already, of whet"):
        load_plugins([written(tmp_path, "three.py", GOOD, name="english", end="")])
    assert PROMPTS.get("english") is ENGLISH


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", "registers nothing: decorate"),
        ("x = 1\nx.y\n", "line 2, cannot be imported: AttributeError"),
        ("def f(:\n", "line 1, cannot be imported: SyntaxError"),
        ("import json\n\njson.loads('{')\n", "line 3, cannot be imported: JSONDecodeError"),
        ("import no_such_package\n", "line 1, cannot be imported: ModuleNotFoundError: No module named"),
        ("import sys\nsys.exit(3)\n", "line 2, cannot be imported: SystemExit: 3"),
        ("raise ValueError('a\\nb')\n", "ValueError: a"),
        ("raise ValueError\n", "cannot be imported: ValueError"),
        ("\0", "cannot be imported: SyntaxError"),
        (
            "from whet.tasks.prompts import prompts\n@prompts('x')\ndef x(): return 5\n",
            "line 2, .*return a whet.tasks.prompts.Prompts",
        ),
        ("from whet.grading import grader\ngrader('x')(lambda a: 1)\n", "line 2, .*never sees the reply"),
        ("from whet.grading import grader\ngrader('x')(lambda completion, /: 1)\n", "by position only"),
        ("from whet.grading import grader\ngrader('x')(5)\n", "decorate a function"),
        ("import whet\n@whet.method('x')\nclass X: ...\n", "line 2, .*X has no spec: give it one, such as spec ="),
    ],
)
def test_what_breaks_is_one_sentence_and_leaves_no_module(tmp_path, text, says):
    before = set(sys.modules)
    with pytest.raises(PluginError, match=says) as error:
        load_plugins([written(tmp_path, "broken.py", text)])
    assert str(tmp_path / "broken.py") in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2
    assert not [name for name in set(sys.modules) - before if name.startswith("whet_plugin")]


def test_an_interrupt_is_no_fault_of_the_plugin(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        load_plugins([written(tmp_path, "slow.py", "raise KeyboardInterrupt")])
    assert Registry.current_origin == "whet"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/no/such/file.py", "is not there"),
        ("/tmp", "is no file"),
        ("a\0b", "can be no path"),
        ("x" * 5000, "File name too long"),
    ],
)
def test_paths_that_are_no_files(path, says):
    with pytest.raises(PluginError, match=says) as error:
        plugin_files([path])
    assert len(str(error.value)) < 500


def test_files_are_resolved_once_each_and_have_to_be_python(tmp_path, monkeypatch):
    file = written(tmp_path, "a.py", "")
    monkeypatch.chdir(tmp_path)
    assert plugin_files(["a.py", file, f"{tmp_path}/../{tmp_path.name}/a.py"]) == [file.resolve()]
    with pytest.raises(PluginError, match=r"a\.txt is no Python file"):
        plugin_files([written(tmp_path, "a.txt", "")])


def test_what_we_register_is_ours_also_where_a_plugin_imports_it_first(tmp_path):
    """In a fresh process, in which the plug-in is the first to import the room."""
    file = written(tmp_path, "first.py", "from whet.grading import grader\ngrader('first')(lambda completion: 1.0)\n")
    code = f"""
        from whet.plugins import load_plugins
        load_plugins([{str(file)!r}])
        from whet.grading import GRADERS
        print({{entry.origin for entry in GRADERS if entry.name != "first"}}, GRADERS.entry("first").origin)
    """
    done = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{{'whet'}} {file}"


def test_only_importing_ours_is_registering_nothing(tmp_path):
    file = written(tmp_path, "idle.py", "import whet.grading, whet.tasks.prompts\n")
    with pytest.raises(PluginError, match="registers nothing"):
        load_plugins([file])


def package(folder: Path, text: str) -> None:
    """An installed package with an entry point."""
    written(folder, "its_module.py", text)
    info = folder / "its_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: its-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[whet.plugins]\nits = its_module\n")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    load_entry_points.cache_clear()
    yield tmp_path
    load_entry_points.cache_clear()
    sys.modules.pop("its_module", None)


def test_the_plugins_of_installed_packages(packages):
    package(packages, GOOD.format(name="packaged", end="."))
    assert load_entry_points() == ("its-package",)
    assert PROMPTS.entry("packaged").origin == "its-package"
    (packages / "its_module.py").write_text("raise ValueError")
    assert load_entry_points() == ("its-package",)


def test_a_package_that_breaks_is_named(packages):
    package(packages, "raise RuntimeError('not today')")
    with pytest.raises(
        PluginError, match="'its' of the package its-package cannot be imported: RuntimeError: not today"
    ):
        load_entry_points()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("3", "3: a name is a text"),
        ("None", "None: a name is a text"),
        ("''", "'': a name has 1 to 100 characters"),
        ("'x' * 101", "a name has 1 to 100 characters"),
        (r"'a\nb'", "a name is one line of printable characters"),
        (r"'\x1b[31m'", "a name is one line of printable characters"),
        ("' a'", "without space around it"),
        ("'--help'", "a name begins with no dash"),
        ("'a=b'", "has no =, which marks settings"),
        ("'a', says=3", "says has to be a text"),
    ],
)
def test_a_name_that_cannot_be_given_is_refused(tmp_path, name, says):
    file = tmp_path / "named.py"
    file.write_text(f"import whet\n\n\n@whet.preset({name}, of='grpo')\ndef preset():\n    return {{}}\n")
    with pytest.raises(PluginError, match=f"line 4, cannot be imported: ValueError: .*{re.escape(says)}") as error:
        load_plugins([file])
    assert "\n" not in str(error.value)


def test_one_name_in_two_modules_of_a_plugin_is_refused_and_one_that_comes_round_is_not(tmp_path):
    preset = "import whet\n\n\n@whet.preset('of_a_test', of='grpo')\ndef preset():\n    return {}\n"
    file, beside = tmp_path / "named.py", tmp_path / "beside.py"
    beside.write_text(preset)
    file.write_text(f"import beside\n{preset}")
    with pytest.raises(PluginError, match=r"'of_a_test' is registered twice, first by .*beside.py, line 4"):
        load_plugins([file])
    METHODS._entries.pop("of_a_test")
    file.write_text("import beside\n")
    beside.write_text(f"import named\n{preset}")
    load_plugins([file])
    METHODS._entries.pop("of_a_test")


def test_a_registry_says_what_there_is():
    things: Registry[int] = Registry("thing")
    with pytest.raises(UnknownName, match=r"nor any other: `--plugins FILE.py` adds yours"):
        things.get("ones")
    things.add("one", 1)
    with pytest.raises(UnknownName, match=r"there is no thing 'ones'; did you mean 'one'.* `--plugins FILE.py` adds"):
        things.get("ones")
    assert whet.plugins.PluginError.exit_code == UnknownName.exit_code == 2
