"""What a plug-in imports from its own folder: its own, apart from others' of the same name, and known by its digest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import whet.methods
import whet.plugins
from whet.grading import GRADERS
from whet.methods.registry import config_of
from whet.plugin_modules import digests, module_files
from whet.plugins import PluginError, load_entry_points, load_plugins, package_files
from whet.rewards import REWARDS
from whet.run.provenance import changed_inputs, compute_provenance
from whet.types import Task

PLUGIN = """
    import whet
    {imports}

    @whet.reward("{name}")
    def reward(episode, index):
        {late}
        return {value}
"""


def written(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dedent(text))
    return file


def plugin(file: Path, name: str, *, imports: str = "", late: str = "pass", value: str = "0.0") -> Path:
    return written(file, dedent(PLUGIN).format(name=name, imports=imports, late=late, value=value))


def value_of(name: str) -> float:
    """What a registered reward gives; these look at no episode."""
    function = REWARDS.get(name)
    while hasattr(function, "function"):
        function = function.function
    return function(None, 0)


def test_two_plugins_have_helpers_of_one_name(tmp_path):
    for folder, number in (("a", 1), ("b", 2)):
        written(tmp_path / folder / "helper.py", f"from other import MORE\nVALUE = {number} + MORE\n")
        written(tmp_path / folder / "other.py", f"MORE = {10 * number}\n")
        plugin(tmp_path / folder / "mine.py", f"of_{folder}", imports="import helper", value="helper.VALUE")
    load_plugins([tmp_path / "a" / "mine.py", tmp_path / "b" / "mine.py"])
    assert (value_of("of_a"), value_of("of_b")) == (11, 22)
    assert "helper" not in sys.modules
    assert "other" not in sys.modules
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.parametrize(
    ("imports", "late", "value"),
    [
        ("import package.inner", "pass", "package.inner.VALUE"),
        ("import package.inner as inner", "pass", "inner.VALUE"),
        ("from package.inner import VALUE", "pass", "VALUE"),
        ("from package import inner", "pass", "inner.VALUE"),
        ("from package.inner import *", "pass", "VALUE"),
        ("from package import again", "pass", "again"),
        ("from spaces.deep import VALUE", "pass", "VALUE"),
        ("", "from package.inner import VALUE", "VALUE"),
        ("", "import spaces.deep as deep", "deep.VALUE"),
    ],
)
def test_every_way_to_import_a_neighbour(tmp_path, imports, late, value):
    written(tmp_path / "package" / "__init__.py", "from .inner import VALUE as again\n")
    written(tmp_path / "package" / "inner.py", "import json, dataclasses\nVALUE = 7\n")
    written(tmp_path / "spaces" / "deep.py", "VALUE = 7\n")  # a folder without __init__.py
    file = plugin(tmp_path / "mine.py", tmp_path.name, imports=imports, late=late, value=value)
    load_plugins([file])
    assert value_of(tmp_path.name) == 7
    names = {str(path.relative_to(tmp_path)) for path in module_files(file)}
    assert names == ({"spaces/deep.py"} if "spaces" in imports + late else {"package/__init__.py", "package/inner.py"})


def test_the_files_that_are_imported_at_any_time_are_found(tmp_path):
    written(tmp_path / "one.py", "def late():\n    from sub import two\n")
    written(tmp_path / "sub" / "__init__.py", "")
    written(tmp_path / "sub" / "two.py", "from . import three\nfrom ..up import x\n")
    written(tmp_path / "sub" / "three.py", "import importlib\nimportlib.import_module('named')\n")
    written(tmp_path / "named.py", "import one\n")  # in a circle
    for name in ("up", "json", "whet", "not_imported"):  # Python's own and whet are not the neighbours
        written(tmp_path / f"{name}.py", "")
    written(tmp_path / "broken.py", "def f(:\n")
    file = written(tmp_path / "mine.py", "import one, json, whet, torch, broken\n")
    found = [str(path.relative_to(tmp_path)) for path in module_files(file)]
    assert found == ["broken.py", "named.py", "one.py", "sub/__init__.py", "sub/three.py", "sub/two.py", "up.py"]
    assert module_files(tmp_path / "not_there.py") == []
    assert digests([tmp_path / "gone.py"]) == {str(tmp_path / "gone.py"): ""}


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ('__all__ = ["inner", "deep"]', {"inner.py", "deep/__init__.py"}),
        ('__all__: list[str] = ["inner"]\n__all__ += ("deep", "no_module")', {"inner.py", "deep/__init__.py"}),
        ("__all__ = []", set()),
        ("", set()),  # a star takes names alone, and no module that was not imported
        ('__all__ = [name for name in ("inner",)]', {"inner.py", "idle.py", "deep/__init__.py"}),  # not known: all
        ('__all__ = ["inner"]\n__all__.append("deep")', {"inner.py", "idle.py", "deep/__init__.py"}),
        ('__all__ = ["*", "."]', set()),
    ],
)
@pytest.mark.parametrize("way", ["from package import *", "import package.star"])
def test_modules_that_a_star_imports_are_found(tmp_path, names, found, way):
    written(tmp_path / "package" / "__init__.py", f"{names}\n")
    written(tmp_path / "package" / "star.py", "from . import *\n")
    for name in ("inner.py", "idle.py", "deep/__init__.py"):
        written(tmp_path / "package" / name, "VALUE = 7\n")
    files = module_files(written(tmp_path / "mine.py", f"{way}\n"))
    star = {"star.py"} if "star" in way or "idle.py" in found else set()
    assert {str(path.relative_to(tmp_path / "package")) for path in files} == {"__init__.py"} | star | found


def test_a_star_imports_what_was_found(tmp_path):
    written(tmp_path / "package" / "__init__.py", '__all__ = ["inner"]\n')
    inner = written(tmp_path / "package" / "inner.py", "VALUE = 7\n")
    file = plugin(tmp_path / "mine.py", "starred", imports="from package import *", value="inner.VALUE")
    load_plugins([file])
    assert value_of("starred") == 7
    inner.write_text("VALUE = 8\n")
    load_plugins([file])
    assert value_of("starred") == 8


def test_what_is_installed_beside_a_plugin_is_not_its_own(tmp_path):
    folder = tmp_path / "site-packages"
    written(folder / "neighbour.py", "")
    assert module_files(written(folder / "mine.py", "import neighbour\n")) == []
    ours = Path(whet.plugins.__file__)
    assert module_files(ours.with_name("mine.py")) == []


def test_a_module_that_the_ordinary_import_finds_in_the_same_file_is_that_one(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    written(tmp_path / "shared_helper.py", "VALUE = []\n")
    import shared_helper

    plugin(tmp_path / "mine.py", "shared", imports="import shared_helper", value="shared_helper.VALUE")
    load_plugins([tmp_path / "mine.py"])
    assert value_of("shared") is shared_helper.VALUE
    del sys.modules["shared_helper"]


def test_a_changed_helper_is_imported_anew(tmp_path):
    helper = written(tmp_path / "helper.py", "VALUE = 1\n")
    file = plugin(tmp_path / "mine.py", "anew", imports="from helper import VALUE", value="VALUE")
    (before,) = load_plugins([file])
    assert load_plugins([file]) == [before]
    helper.write_text("VALUE = 2\n")  # same size, same second
    assert load_plugins([file]) != [before]
    assert value_of("anew") == 2


def test_a_helper_that_breaks_or_is_missing_is_said_and_can_be_mended(tmp_path):
    file = plugin(tmp_path / "mine.py", "mended", imports="from helper import VALUE", value="VALUE")
    with pytest.raises(PluginError, match=r"mine\.py, line 3, cannot be imported: .*No module named 'helper'"):
        load_plugins([file])
    helper = written(tmp_path / "helper.py", "import no_such_thing\nVALUE = 1\n")
    with pytest.raises(PluginError, match="No module named 'no_such_thing'"):
        load_plugins([file])
    helper.write_text("VALUE = 1\n")
    load_plugins([file])
    assert value_of("mended") == 1


def test_a_grader_of_a_helper_is_found_by_its_workers(tmp_path):
    helper = written(
        tmp_path / "helper.py",
        "import whet\nfrom other import VALUE\n@whet.grader('far')\ndef far(completion): return VALUE\n",
    )
    written(tmp_path / "other.py", "VALUE = 0.5\n")
    load_plugins([written(tmp_path / "mine.py", "import helper\n")])
    task = Task(id="1", prompt="?", answer=None)
    with GRADERS.get("far")(timeout_s=20, num_workers=1) as grader:
        assert grader.grade([("reply", task)])[0].score == 0.5
    maker = GRADERS.get("far")(timeout_s=20, num_workers=1)
    helper.write_text(helper.read_text() + "\n")
    with pytest.raises(PluginError, match=r"helper\.py has changed since it was loaded"):
        maker.grade([("reply", task)])
    maker.close()


# --- in the identity of a run -----------------------------------------------------------------------------------------


def inputs(file: Path) -> dict:
    return compute_provenance(config_of("grpo", None, [f"plugins=[{file}]"]))


def test_a_changed_vanished_or_new_helper_is_told_by_name(tmp_path):
    written(tmp_path / "helper.py", "VALUE = 1\n")
    late = written(tmp_path / "parts" / "late.py", "VALUE = 2\n")
    file = plugin(tmp_path / "mine.py", "told", imports="import helper", late="from parts import late", value="1")
    before = inputs(file)
    assert changed_inputs(before, inputs(file)) == []

    written(tmp_path / "helper.py", "VALUE = 3\n")
    (change,) = changed_inputs(before, inputs(file))
    assert change == f"plugins = {file}, module helper.py, was replaced since the run began"
    written(tmp_path / "helper.py", "VALUE = 1\n")
    assert changed_inputs(before, inputs(file)) == []

    late.unlink()
    (change,) = changed_inputs(before, inputs(file))
    assert change == f"plugins = {file}, module parts/late.py, is gone since the run began"
    late.write_text("VALUE = 2\n")

    written(tmp_path / "torch" / "__init__.py", "")
    written(tmp_path / "helper.py", "VALUE = 1\nif False: import torch\n")
    assert f"plugins = {file}, module torch/__init__.py, is new since the run began" in changed_inputs(
        before, inputs(file)
    )


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder of installed packages."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    load_entry_points.cache_clear()
    yield folder
    load_entry_points.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] in ("its_pack", "lone_module")]:
        del sys.modules[name]


def test_installed_plugins_are_digested_with_what_they_import_of_their_package(packages):
    for name, module in (("its-pack", "its_pack.plug"), ("lone", "lone_module")):
        info = packages / f"{name.replace('-', '_')}-1.0.dist-info"
        written(info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        written(info / "entry_points.txt", f"[whet.plugins]\nits = {module}\n")
    written(packages / "its_pack" / "__init__.py", "")
    helper = written(packages / "its_pack" / "helper.py", "VALUE = 1\n")
    written(packages / "its_pack" / "idle.py", "")
    written(packages / "lone_module.py", "import its_pack\n")
    plugin(packages / "its_pack" / "plug.py", "packed", imports="from its_pack.helper import VALUE", value="VALUE")
    assert set(load_entry_points()) == {"its-pack", "lone"}
    assert value_of("packed") == 1
    names = {package: [file.name for file in files] for package, files in package_files().items()}
    assert names == {"its-pack": ["__init__.py", "helper.py", "plug.py"], "lone": ["lone_module.py"]}
    before = compute_provenance(config_of("grpo"))
    helper.write_text("VALUE = 2\n")
    assert changed_inputs(before, compute_provenance(config_of("grpo"))) == [
        "the installed plug-in its-pack, file its_pack/helper.py, was replaced since the run began"
    ]


def test_a_fresh_process_finds_the_same_neighbours(tmp_path):
    written(tmp_path / "helper.py", "VALUE = 5\n")
    file = plugin(tmp_path / "mine.py", "fresh", imports="import helper", value="helper.VALUE")
    code = f"""
        import json
        from whet.plugins import as_loaded, load_plugins
        from pathlib import Path
        load_plugins([{str(file)!r}])
        print(json.dumps(dict(as_loaded(Path({str(file)!r}))[1])))
    """
    done = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == digests(module_files(file))
    assert list(json.loads(done.stdout)) == [str(tmp_path / "helper.py")]
