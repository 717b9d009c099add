"""`scripts/lead.py`: what two runs of the loop are to each other, as `make critiques` prints it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "lead.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("lead", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_of(folder: Path, rights: str, tokens: list[int]) -> Path:
    """A run whose last weights have so many questions right (1) and wrong (0); its best weights have all right."""
    (folder / "traces").mkdir(parents=True)
    rows = [
        {"policy": row, "task": f"t{place}", "answer_score": float(right) if row == "last" else 1.0}
        for row in ("best", "last")
        for place, right in enumerate(rights)
    ]
    (folder / "traces" / "after.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rounds.json").write_text(json.dumps([{"round": n, "tokens": count} for n, count in enumerate(tokens)]))
    return folder


def test_the_lead_by_hand(script, tmp_path):
    """Differences 1, 1, 0, 0: mean 0.5, standard deviation sqrt(1/3), half width 1.96 sqrt(1/3) / 2."""
    run, other = run_of(tmp_path / "loop", "1110", [10, 5]), run_of(tmp_path / "vanilla", "0010", [9, 7])
    mean, half, count = script.lead(script.scores_of(run), script.scores_of(other))
    assert (mean, count) == (0.5, 4)
    assert half == pytest.approx(1.96 * (1 / 3) ** 0.5 / 2)


@pytest.mark.parametrize(
    ("rights", "others", "says"),
    [("1" * 40, "0" * 30 + "1" * 10, "+75.0 ± 13.6, beyond chance"), ("01" * 20, "10" * 20, "within chance")],
)
def test_the_table_says_whether_chance_explains_it(script, tmp_path, monkeypatch, capsys, rights, others, says):
    run, other = run_of(tmp_path / "loop", rights, [1000, 234]), run_of(tmp_path / "vanilla", others, [1300])
    monkeypatch.setattr(sys, "argv", ["lead.py", "lead", str(run), str(other)])
    script.main()
    said = capsys.readouterr().out
    assert says in said
    assert "1,234" in said
    assert "of 40 test questions" in said


def test_the_tokens_are_a_setting(script, tmp_path, monkeypatch, capsys):
    run = run_of(tmp_path / "loop", "10", [120, 80])
    monkeypatch.setattr(sys, "argv", ["lead.py", "tokens", str(run)])
    script.main()
    assert capsys.readouterr().out == "[120,80]\n"


def test_a_failed_grader_is_no_wrong_answer(script, tmp_path):
    """The question without a score is left out, as the run's own accuracy leaves it out, and order is no matter."""
    run = run_of(tmp_path / "loop", "110", [1])
    traces = run / "traces" / "after.jsonl"
    lines = [json.loads(line) for line in traces.read_text().splitlines()]
    lines[-2]["answer_score"] = None
    traces.write_text("".join(json.dumps(line) + "\n" for line in reversed(lines)))
    assert script.scores_of(run) == {"t0": 1.0, "t2": 0.0}
    mean, _, count = script.lead({"t2": 0.0, "t0": 1.0}, {"t0": 0.0, "t1": 1.0, "t2": 0.0})
    assert (mean, count) == (0.5, 2)


def test_a_few_questions_that_differ_alike_are_within_chance(script, tmp_path):
    run, other = run_of(tmp_path / "loop", "11", [1]), run_of(tmp_path / "vanilla", "11", [1])
    assert script.table(run, other).count("± 65.8, within chance") == 1


@pytest.mark.parametrize("named", ["tokens", "lead"])
def test_a_run_that_is_not_there_is_a_sentence(script, tmp_path, monkeypatch, named):
    runs = [str(tmp_path / "none")] * (1 if named == "tokens" else 2)
    monkeypatch.setattr(sys, "argv", ["lead.py", named, *runs])
    with pytest.raises(SystemExit, match="cannot be read"):
        script.main()


def test_runs_on_other_questions_have_no_lead(script):
    with pytest.raises(ValueError, match="share fewer than two test questions"):
        script.lead({"a": 1.0}, {"b": 1.0})
