"""The files of docs/plugins.md, as they stand there: what they register, and that their methods train."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import whet.kit
from support.agent_model import agent_model
from support.commands import logged
from support.commands import whet as command

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
TWO_WAYS = """
import whet


@whet.env("two_ways", splits={"train": range(20), "test": range(20, 24)}, max_turns=2, parser="plain")
class TwoWays:
    \"\"\"The item alone says whether an episode succeeds.\"\"\"

    def reset(self, item, *, seed=0):
        self.reward = float(REWARD)
        return "go", {}

    def step(self, action):
        return "done", self.reward, True, False, {}
"""


@pytest.fixture
def page(tmp_path) -> dict[str, Path]:
    """The page's files by name."""
    blocks = re.findall(r"```(?:python|yaml)\n(# (\w+\.(?:py|yaml))\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    files = {name: tmp_path / name for _, name in blocks}
    for code, name in blocks:
        files[name].write_text(code, "utf-8")
    assert files.keys() >= {
        *(
            "mine.py",
            "half.py",
            "mine.yaml",
            "short.yaml",
            "filtered.py",
            "agent_filtered.py",
            "capped.py",
            "patient.py",
            "digit.py",
        ),
    }
    return files


def test_the_readme_shows_the_same_file_as_the_page():
    readme = Path(__file__).parents[2] / "README.md"
    shown = [re.findall(r"```python\n# mine\.py\n.*?```", p.read_text("utf-8"), re.DOTALL) for p in (readme, PAGE)]
    assert shown[0] == shown[1]
    assert len(shown[0]) == 1


def imported(code: str) -> Iterator[str]:
    """The modules of whet that a file imports."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_a_plugin_imports_whet_and_its_kit_alone(page):
    files = [*page.values(), *(Path(__file__).parents[1] / "plugins").iterdir()]
    files = [file for file in files if file.suffix == ".py"]
    used = {module for file in files for module in imported(file.read_text("utf-8")) if module.startswith("whet")}
    assert used == {"whet", "whet.kit"}


def test_the_table_of_the_kit_has_every_name_once():
    section = PAGE.read_text("utf-8").partition("## `whet.kit`")[2]
    rows = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(whet.kit.__all__)


def test_a_file_with_a_grader_loads_no_torch_by_the_kit(tmp_path):
    """It is imported in the grader's worker processes."""
    file = tmp_path / "light.py"
    file.write_text(
        "from whet.kit import Grade, Task, env, grader, prompts, reward\ngrader('light')(lambda completion: 1)"
    )
    code = f"import sys\nfrom whet.plugins import load_plugins\nload_plugins([{str(file)!r}])\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}print('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert done.stdout.strip() == "False", done.stderr


def test_the_parts_of_the_page_are_listed(page):
    names = ("mine.py", "half.py", "filtered.py", "agent_filtered.py", "capped.py", "patient.py", "digit.py")
    files = [f"--plugins={page[name]}" for name in names]
    listed = " ".join(command("list", *files).stdout.split())
    for line in (
        "last_word Right where the last word is the answer. mine.py",
        "brief 1 for a reply of one token, less the longer it is. mine.py",
        "half_mean Less half of the group's mean. half.py",
        "filtered Imitation of one's own right replies (2304.06767) filtered.py",
        "agent_filtered Imitation of an agent's own successful episodes agent_filtered.py",
        "capped The surrogate, with a cap on the ratio. capped.py",
        "patient DAPO with small steps patient.py",
        "digit The last digit of a chain, exactly digit.py",
    ):
        assert line in listed


@pytest.mark.parametrize(("reward", "learns"), [("item % 2", True), ("0.9", False)])
def test_the_agent_method_of_the_page_learns_from_successes_alone(page, tmp_path, reward, learns):
    env = tmp_path / "two_ways.py"
    env.write_text(TWO_WAYS.replace("REWARD", reward))
    command(
        "train", "agent_filtered", f"plugins=[{page['agent_filtered.py']}, {env}]", "data.env=two_ways",
        f"policy.path={agent_model()}", "rules=none", "num_steps=1", "prompts_per_step=6", "group_size=2",
        "data.num_test=2", "data.num_validation=2", "sampling.max_new_tokens=8", "num_threads=1",
        "--out", tmp_path / "run",
    )  # fmt: skip
    [row] = [row for row in logged(tmp_path / "run") if row["phase"] == "train" and row["step"] == 1]
    assert (0 < row["reward/success"] < 1) == learns
    assert row["reward/mean"] > 0
    assert (row.get("loss/nll", 0) > 0) == (row.get("optim/moved", 0) > 0) == learns


def test_the_preset_of_the_page_trains_with_the_loss_of_the_page(page, tmp_path, random_model):
    """Two epochs, so that ratios leave 1; a cap so low that it holds for some of them."""
    command(
        "train", "patient_short", f"plugins=[{page['patient.py']}, {page['capped.py']}]", "loss={kind: capped, cap: 1}",
        f"policy.path={random_model}", "prompts_per_step=2", "group_size=2", "evaluation.num_samples=0", "resample=0",
        "data.num_validation=2", "data.num_test=2", "data.num_train=8", "num_threads=1", "advantage=reward",
        "signed=true", "learning.learning_rate=1e-3", "--out", tmp_path / "run",
    )  # fmt: skip
    rows = [row for row in logged(tmp_path / "run") if row["phase"] == "train" and row["step"]]
    assert [row["step"] for row in rows] == [1, 2]
    assert all(row["optim/moved"] > 0 for row in rows)
    assert 0 < rows[0]["clip/high"] < 1


def test_the_benchmark_of_the_page_measures_the_shipped_model(page, tmp_path):
    rows = [{"question": "1 + 2", "answer": "3"}, {"question": "1 + 2 + 3", "answer": "never"}]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = ["--benchmark", "digit", f"plugins=[{page['digit.py']}]", f"file={tmp_path / 'problems.jsonl'}"]
    shown = " ".join(command("eval", "tiny", *told, "prompts=chains").stdout.split())
    assert re.search(r"digit, policy of tiny right 0(\.5)? no_answer 0 n 2 grader_errors 0 truncated 0", shown)


@pytest.mark.integration
def test_the_other_parts_of_the_page_train(page, tmp_path, random_model):
    small = [
        f"policy.path={random_model}", "num_steps=1", "prompts_per_step=4", "group_size=2", "evaluation.num_samples=0",
        "evaluation.num_validation=4", "evaluation.num_test=4", "data.num_train=16", "num_threads=1",
    ]  # fmt: skip
    command("train", "filtered", f"plugins=[{page['filtered.py']}]", *small, "--out", tmp_path / "filtered")
    mine = [f"plugins=[{page['mine.py']},{page['half.py']}]", "rewards={brief: 0.1}", "advantage=half_mean"]
    command("train", "grpo", *mine, f"prompts={page['mine.yaml']}", *small, "--out", tmp_path / "mine")
    [row] = [row for row in logged(tmp_path / "mine") if row["phase"] == "train" and row["step"] == 1]
    assert 0 < row["reward/brief"] <= 1
