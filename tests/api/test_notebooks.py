"""The notebooks under examples/, as a user runs them: by jupytext and a kernel, in a folder of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.py"))


def test_there_are_three_and_each_begins_with_its_title():
    assert len(NOTEBOOKS) == 3
    for file in NOTEBOOKS:
        assert file.read_text(encoding="utf-8").startswith("# %% [markdown]\n# # ")


@pytest.mark.integration
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_and_shows_tables_curves_and_progress(file, tmp_path, monkeypatch):
    why = "the extra notebooks is not installed (make setup EXTRAS=notebooks)"
    jupytext, nbclient = (pytest.importorskip(name, reason=why) for name in ("jupytext", "nbclient"))
    pytest.importorskip("ipykernel", reason=why)
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    kernel = tmp_path / "jupyter_data_dir" / "kernels" / "here"  # this interpreter, whatever else is installed
    kernel.mkdir(parents=True)
    command = f'["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (kernel / "kernel.json").write_text(f'{{"argv": {command}, "display_name": "here", "language": "python"}}')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    work = tmp_path / "work"
    work.mkdir()
    notebook = jupytext.read(file)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="here", resources={"metadata": {"path": work}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    html = "".join(output["data"].get("text/html", "") for output in outputs if "data" in output)
    assert "<progress" in html
    assert "<svg" in html
    if keep := os.environ.get("WHET_SHOW_NOTEBOOKS"):  # to look at them
        Path(keep, f"{file.stem}.html").write_text(f"<meta charset=utf-8>{html}", encoding="utf-8")
