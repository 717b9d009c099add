"""Sheets: what a method's author writes, what is refused, and what the report makes of sheets it has never seen."""

import json
import subprocess
import sys
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from support.report_run import fake_run, write_lines
from support.solve_run import fake_solve_run
from whet.methods.report_specs import load_charts, load_report, prefixed
from whet.report.comparison_rows import other_metrics
from whet.report.curves import curves
from whet.report.health import health_notes
from whet.report.page import write_report
from whet.report.progress import RichProgress
from whet.report.read import read_report_spec, read_run
from whet.report.records import ReportError
from whet.report.rows import summary_rows
from whet.report.spec import Chart, Column, Line, ReportSpec, Stat, of_json, title_of, to_json
from whet.report.stats import stats

SOLVE, CRITIQUE, CHARTS = load_report("solve"), load_report("critique"), load_charts()
PAIRS = ReportSpec(
    who="policy",
    order=("before", "last"),
    columns=(Column("right", "Right", "pairs", "Pairs that are told apart.", "all pairs"),),
    best="right",
    problem="pair",
    stats=(
        Stat("Pairs told apart", "{last.right} %", ("{before.right} % before: {last.right - before.right:+} points",)),
    ),
    charts=(
        Chart("Pairs told apart", "of all pairs", "percent", False, (Line("pair/right", "right", "blue"),)),
        Chart("Margin", "chosen over rejected", "number", False, (Line("pair/margin", "margin", "blue"),)),
        CHARTS["time"],
    ),
    training=("pair/right",),
)
BOTH = ReportSpec(
    who="policy",
    order=("actor", "critic"),
    columns=CRITIQUE.columns,
    best="acc_refine",
    charts=(
        *(prefixed(CHARTS[name], "actor") for name in ("reward", "entropy", "length", "lost", "kl", "clip", "norm")),
        prefixed(CHARTS["entropy"], "critic"),
    ),
    training=("actor.reward/mean", "critic.reward/mean"),
    policies=("actor", "critic"),
    shares=(replace(SOLVE.shares[0], key="actor.length/truncated", title="Truncated answers"),),
)


def run_of(folder, report_spec, rows, summary=None):
    """A run of which there is nothing but its sheet, its metrics and its table."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report_spec.json").write_text(to_json(report_spec))
    write_lines(folder / "metrics.jsonl", [{"phase": "train", "step": i, **row} for i, row in enumerate(rows, 1)])
    if summary:
        (folder / "summary.json").write_text(json.dumps({"rows": summary}))
    return read_run(folder)


# --- as data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("report_spec", [CRITIQUE, SOLVE, PAIRS, BOTH], ids=["critique", "solve", "pairs", "both"])
def test_a_sheet_is_written_and_read_back_as_it_was(report_spec):
    text = to_json(report_spec)
    assert of_json(text) == report_spec
    assert to_json(of_json(text)) == text


def test_sheets_load_without_torch():
    heavy = "('torch', 'transformers')"
    code = f"import sys, whet.methods.report_specs; print(*(name for name in {heavy} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"best": "average"}, "no columns, and yet asked for: average"),
        ({"behind": {"wrong": {}}}, "asked for: wrong"),
        ({"stats": (Stat("Right", "{last.rihgt} %"),)}, "asked for: rihgt"),
        ({"stats": (Stat("Right", "{last.right-before.right:+}"),)}, "asked for: right-before.right"),
        ({"columns": PAIRS.columns * 2}, "two columns of one key"),
        ({"who": "a critic"}, "one word"),
        ({"who": "split"}, "none of"),
    ],
)
def test_a_sheet_that_asks_for_what_is_not_there_is_refused(changed, said):
    with pytest.raises(ValueError, match=said):
        replace(PAIRS, **changed)


@pytest.mark.parametrize("text", ["{Best.acc}", "{rows[2].acc}", "{best.acc", "{0}"])
def test_a_tile_with_a_field_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"field|expected"):
        Stat("Right", text)


def test_what_this_version_does_not_know_is_refused():
    text = json.loads(to_json(PAIRS))
    for changed in ({"novel": 1}, {"view": "film"}, {"panels": [{"title": "no more than that"}]}):
        with pytest.raises(ValueError, match="validation error"):
            of_json(json.dumps(text | changed))


def test_titles():
    assert [title_of(name) for name in ("stage2", "sft_critic", "dpo")] == ["Stage II", "SFT critic", "DPO"]
    theirs = ["__proto__", "a/b_c", "Qwen_2"]  # names of others stay as they are
    assert [title_of(name) for name in theirs] == theirs
    assert SOLVE.title("before") == "Before training"
    assert SOLVE.title("best") == "Best"


def test_a_phase_is_called_while_it_runs_what_the_sheet_says():
    console = Console(file=StringIO())
    progress = RichProgress(console, SOLVE.phases)
    for name in ("before", "stage2"):
        progress.begin(name, 0, 1)
        progress.end()
    assert console.file.getvalue().splitlines() == ["test, before: 1 step", "Stage II: 1 step"]


# --- in a run's folder ----------------------------------------------------------------------------------------------


def test_a_run_is_shown_by_the_sheet_in_its_folder(tmp_path):
    folder = fake_solve_run(tmp_path / "run", length=2)
    assert read_run(folder).report_spec == read_report_spec(folder) == SOLVE
    (folder / "report_spec.json").write_text(to_json(replace(SOLVE, traces="attempts")))
    assert '<h2 id="traces-title">Attempts</h2>' in write_report(folder).read_text()


def test_a_sheet_that_cannot_be_read_is_said(tmp_path):
    folder = fake_solve_run(tmp_path / "run", length=2)
    (folder / "report_spec.json").write_text('{"who": "pol')
    for read in (read_run, read_report_spec):
        with pytest.raises(
            ReportError, match=r"report_spec.json is damaged: put it back from a copy, or let `whet resume`"
        ):
            read(folder)


def test_a_run_without_a_sheet_is_of_an_older_layout(tmp_path):
    folder = fake_solve_run(tmp_path / "run", length=2)
    (folder / "report_spec.json").unlink()
    for read in (read_run, read_report_spec):
        with pytest.raises(ReportError, match=r"run has a layout that this whet \(.*\) does not read: it was"):
            read(folder)


# --- tiles ----------------------------------------------------------------------------------------------------------


def test_tiles_by_hand(tmp_path):
    rows = {"before": {"acc": 0.25, "k": 4.0, "pass": 0.5}, "best": {"acc": 0.5, "k": 4.0, "pass": 0.75}}
    run = run_of(tmp_path, SOLVE, [{"reward/mean": 0, "entropy": 0.5}, {"reward/mean": 0, "entropy": 0.2}], rows)
    found = {one["label"]: (one["value"], one["beside"]) for one in stats(run, summary_rows(run.summary, SOLVE))}
    assert found == {  # no sampled mean was measured, no last weights were, and the run is not "so far"
        "Right after training, best weights, greedy": ("50.0 %", "25.0 % before: +25.0 points"),
        "Entropy, first → last step": ("0.500 → 0.200", "40.0 % of the first step's"),
    }


def test_the_first_row_is_there_where_it_is_not_the_last(tmp_path):
    row = {"acc": 0.5, "acc_refine": 0.6, "delta": 0.1, "acc_dis": 0.7, "i2c": 0.2, "c2i": 0.1}
    run = run_of(tmp_path, CRITIQUE, [], {"no_critic": {"acc": 0.5, "acc_refine": 0.5}, "stage2": row})
    [_, verdicts, _] = stats(run, summary_rows(run.summary, CRITIQUE))
    assert verdicts == {"label": "Stage II's verdicts that are right", "value": "70.0 %", "beside": ""}
    run = run_of(tmp_path, CRITIQUE, [], {"stage2": row, "sft_critic": row | {"acc_dis": 0.5}})
    assert stats(run, summary_rows(run.summary, CRITIQUE))[1]["beside"] == "SFT critic: 50.0 %"


# --- methods that the report has never heard of ---------------------------------------------------------------------


def test_a_method_of_pairs_has_its_own_panels(tmp_path):
    rows = [{"pair/right": 0.5 + 0.1 * i, "pair/margin": 0.2 * i, "loss/mean": 0.7 - 0.1 * i} for i in range(4)]
    summary = {"before": {"right": 0.5, "n": 50}, "last": {"right": 0.8, "n": 50}}
    run = run_of(tmp_path, PAIRS, rows, summary)
    assert [chart["title"] for chart in curves(run)["panels"]] == ["Pairs told apart", "Margin"]
    [lost] = other_metrics(run)
    assert (lost["key"], lost["first"], lost["last"], lost["least"]) == ("loss/mean", "0.7", "0.4", "0.4")
    page = write_report(tmp_path).read_text()
    assert "n = 50 pairs in every row." in page
    assert "50.0 % before: +30.0 points" in page


def test_a_method_that_trains_two_policies_has_panels_and_notes_of_each(tmp_path):
    rows = [
        {"actor.reward/mean": 0.5, "actor.entropy": 0.5 - 0.2 * i, "critic.entropy": 0.5, "actor.length/truncated": 0.3}
        for i in range(3)
    ]
    run = run_of(tmp_path, BOTH, rows)
    titles = [chart["title"] for chart in curves(run)["panels"]]
    assert titles == ["Reward, actor", "Entropy, actor", "Replies and groups lost, actor", "Entropy, critic"]
    notes = {note.title: note.level for note in health_notes(run)}
    assert notes == {"Truncated answers": "bad", "Entropy collapse, actor": "watch", "Entropy, critic": "good"}
    assert other_metrics(run) == []


def test_one_policy_that_solves_and_judges_has_both_tables_columns(tmp_path):
    judged = tuple(column for column in CRITIQUE.columns if column.key.startswith("acc_dis"))
    mixed = replace(SOLVE, columns=(*SOLVE.columns, *judged))
    run = run_of(tmp_path, mixed, [], {"last": {"acc": 0.5, "acc_dis": 0.7}})
    assert summary_rows(run.summary, run.report_spec)["last"]["acc_dis"] == 0.7
    assert "what the critic sees" in write_report(tmp_path).read_text()


# --- what no panel names --------------------------------------------------------------------------------------------


def test_a_metric_that_no_panel_names_is_listed_with_its_phase(tmp_path):
    run = read_run(fake_run(tmp_path / "run"))
    rows = {(row["key"], row["phase"]): row for row in other_metrics(run)}
    novel = rows["novel/metric", "Stage I"]
    assert (novel["count"], novel["first"], novel["last"], novel["greatest"]) == ("16", "1", "16", "16")
    assert novel["points"].startswith("0.0,20.0 ")
    assert novel["points"].endswith(" 100.0,0.0")
    assert ("reward/mean", "Stage I") not in rows
    assert ("loss/nll", "SFT actor") not in rows
    listed = {key for key, _ in rows}
    for phase in run.phases:
        drawn = {key for chart in CRITIQUE.charts for line in chart.lines for key in line.keys} | {"loss/nll"}
        assert set(phase.metrics) <= drawn | listed


def test_the_other_metrics_open_in_a_browser(chromium, tmp_path):
    folder = fake_run(tmp_path / "run", length=4)
    page = chromium.new_page(viewport={"width": 1280, "height": 800})
    page.goto(write_report(folder).as_uri())
    row = page.locator("#others tbody tr", has_text="novel/metric").first
    assert not row.is_visible()
    page.locator("#others summary").click()
    assert row.locator("svg").bounding_box()["width"] == 120
    assert row.locator("td").all_inner_texts()[2:] == ["4", "1", "4", "1", "4"]
    page.close()
