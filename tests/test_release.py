"""What `make release-check` and `make docker-check` would find: each kind of fault, planted."""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from docker_run_lines import Line, arguments, instructions  # noqa: E402
from release_check import content_problems, metadata_problems, packaged, project, sdist_problems  # noqa: E402


def test_the_dockerfile_has_no_instruction_that_the_check_passes_over():
    lines = list(instructions((ROOT / "Dockerfile").read_text(encoding="utf-8")))
    assert [line.name for line in lines].count("RUN") >= 4
    assert {"PYTHON", "TORCH", "EXTRAS"} == set(arguments(lines, {}))
    assert arguments(lines, {"TORCH": "cu130"})["TORCH"] == "cu130"


def test_instructions_join_continued_lines_and_skip_comments():
    text = "# a comment\nARG A=1\n\nRUN one; \\\n    two\nCOPY . .\n"
    assert list(instructions(text)) == [
        Line(2, "ARG", "A=1"),
        Line(4, "RUN", "one; \n    two"),
        Line(6, "COPY", ". ."),
    ]
    with pytest.raises(ValueError, match="line 1: HEALTHCHECK"):
        list(instructions("HEALTHCHECK CMD true"))
    with pytest.raises(ValueError, match="no ARG B: choose of A"):
        arguments([Line(1, "ARG", "A=1")], {"B": "2"})


def test_the_docker_context_leaves_out_what_git_ignores():
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()}
    left_out = {line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").split()}
    assert {".git", ".venv", "runs", "models", "__pycache__"} <= left_out
    assert {name for name in ignored if "*" not in name} <= left_out


def wheel_of(files: dict[str, bytes]) -> zipfile.ZipFile:
    archive = zipfile.ZipFile(io.BytesIO(), "w")
    for name, content in files.items():
        archive.writestr(name, content)
    return archive


def test_a_wheel_is_compared_with_what_git_knows(tmp_path):
    for name in ("a.py", "b.yaml"):
        (tmp_path / name).write_text(name)
    expected = {"whet/a.py": tmp_path / "a.py", "whet/b.yaml": tmp_path / "b.yaml"}
    whole = {"whet/a.py": b"a.py", "whet/b.yaml": b"b.yaml", "whet-1.dist-info/METADATA": b""}
    assert list(content_problems(wheel_of(whole), expected)) == []
    lacking = {name: content for name, content in whole.items() if name != "whet/b.yaml"}
    assert list(content_problems(wheel_of(lacking), expected)) == ["the wheel lacks whet/b.yaml"]
    [problem] = content_problems(wheel_of(whole | {"whet/notes.txt": b""}), expected)
    assert problem == "the wheel has whet/notes.txt, which git does not know"
    assert list(content_problems(wheel_of(whole | {"whet/a.py": b"x"}), expected)) == ["whet/a.py differs in the wheel"]


def test_the_wheel_has_to_hold_data_and_mathgrade():
    names = packaged().keys()
    assert {"whet/py.typed", "whet/models/tiny_model/model.safetensors", "mathgrade/__init__.py"} <= names
    assert any(name.startswith("whet/report/web/") and name.endswith((".js", ".js.gz")) for name in names)
    assert any(name.endswith(".yaml") for name in names)


def metadata() -> Message:
    settings, message = project()["project"], Message()
    for key, value in (
        ("Name", settings["name"]),
        ("Version", settings["version"]),
        ("Summary", settings["description"]),
        ("Requires-Python", settings["requires-python"]),
        ("License-Expression", settings["license"]),
        ("License-File", "LICENSE"),
        ("Description-Content-Type", "text/markdown"),
        *(("Provides-Extra", extra) for extra in settings["optional-dependencies"]),
    ):
        message[key] = value
    message.set_payload("# whet")
    return message


POINTS = "[console_scripts]\nwhet = whet.cli:main\n"


def test_metadata_is_compared_with_the_settings():
    settings = project()["project"]
    assert list(metadata_problems(metadata(), POINTS, settings)) == []
    [problem] = metadata_problems(metadata(), "[console_scripts]\nwet = whet.cli:main\n", settings)
    assert problem.startswith("the wheel's commands are {'wet'")
    for key, said in (
        ("Version", "Version is None in the wheel"),
        ("License-File", "no License-File LICENSE"),
        ("Provides-Extra", "the wheel lacks the extras"),
    ):
        message = metadata()
        del message[key]
        [problem] = metadata_problems(message, POINTS, settings)
        assert said in problem
    message = metadata()
    message.set_payload(" ")
    assert list(metadata_problems(message, POINTS, settings)) == ["the wheel has no long description"]


def test_an_sdist_holds_what_the_wheel_is_built_of_and_no_run():
    def sdist_of(names: list[str]) -> tarfile.TarFile:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name in names:
                archive.addfile(tarfile.TarInfo(f"whet_rl-1/{name}"))
        file.seek(0)
        return tarfile.open(fileobj=file)

    whole = ["src/whet/a.py", "pyproject.toml", "README.md", "LICENSE"]
    expected = {"whet/a.py": ROOT / "src/whet/a.py"}
    assert list(sdist_problems(sdist_of(whole), expected)) == []
    assert list(sdist_problems(sdist_of(whole[1:]), expected)) == ["the sdist lacks src/whet/a.py"]
    assert list(sdist_problems(sdist_of([*whole, "runs/a/x"]), expected)) == ["the sdist has runs/a/x"]
