"""Runs beside one another: arms by settings, means over seeds, differences paired by seed, and the page."""

from __future__ import annotations

import json
import math
import shutil

import pytest

import whet
from support.browser import watched_page
from support.commands import whet as command
from support.solve_run import fake_solve_run
from whet.report.comparison import ABSENT, Estimate, compare_runs
from whet.report.comparison_page import _mean_and_band, comparison_charts, write_comparison
from whet.report.comparison_tables import _verdict, grids
from whet.report.records import ReportError

ACCURACIES = {("grpo", 0): 0.50, ("grpo", 1): 0.60, ("grpo", 2): 0.70, ("rloo", 0): 0.54, ("rloo", 1): 0.63}
T_2, T_1 = 4.303, 12.706
"""Student's t at 97.5 %, for 2 and for 1 degrees of freedom."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Runs of two advantages and some seeds, whose test accuracies are above."""
    root = tmp_path_factory.mktemp("runs")
    made = []
    for (advantage, seed), acc in ACCURACIES.items():
        folder = fake_solve_run(root / f"{advantage}{seed}")
        (folder / "config.yaml").write_text(
            f"method: policy_gradient\nseed: {seed}\nadvantage: {advantage}\nloss:\n  kind: clip\n"
        )
        summary = json.loads((folder / "summary.json").read_text())
        for row in summary["rows"].values():
            row["acc"] = acc if row is summary["rows"]["best"] else 0.4
        (folder / "summary.json").write_text(json.dumps(summary))
        made.append(folder)
    return made


def test_runs_of_the_same_settings_are_one_arm_whatever_their_seed(folders):
    comparison = compare_runs(folders)
    assert [(arm.name, arm.seeds) for arm in comparison.arms] == [
        ("advantage=grpo", (0, 1, 2)),
        ("advantage=rloo", (0, 1)),
    ]
    assert comparison.differing == {"advantage": ("grpo", "rloo")}


def test_an_arms_value_is_the_mean_over_seeds_with_its_t_interval(folders):
    comparison = compare_runs(folders)
    estimate = comparison.estimate(comparison.arms[0], "best", "acc")
    assert estimate.mean == pytest.approx(0.6)
    assert estimate.half_width == pytest.approx(T_2 * 0.1 / math.sqrt(3))


def test_equal_differences_of_a_few_seeds_prove_nothing():
    assert [_verdict(Estimate(mean, half, ())) for mean, half in ((0.5, 0.0), (0.0, 0.0), (0.5, 0.1), (0.5, None))] == [
        "no spread", "may be chance", "beyond chance", "one seed",
    ]  # fmt: skip


def test_differences_are_paired_by_the_seeds_that_both_arms_have(folders):
    comparison = compare_runs(folders)
    [best] = [difference for difference in comparison.differences if difference.row == "best"]
    assert best.seeds == (0, 1)
    assert best.estimate.values == pytest.approx((0.04, 0.03))
    assert best.estimate.mean == pytest.approx(0.035)
    # The deviation of two values is their distance over the root of 2.
    assert best.estimate.half_width == pytest.approx(T_1 * 0.01 / 2)


def test_one_seed_has_no_interval_and_the_reader_is_told(folders):
    comparison = compare_runs([folders[0], folders[3]])
    assert comparison.differences[0].estimate.half_width is None
    assert "Each arm has one seed. A difference may be chance; more seeds give it an interval." in comparison.notes
    some = compare_runs([*folders[:2], folders[3]])
    assert "One seed has: advantage=rloo. A difference may be chance; more seeds give it an interval." in some.notes


def test_who_is_told_of_a_run_sets_no_arm_apart(folders, tmp_path):
    tracked = fake_solve_run(tmp_path / "tracked")
    text = (folders[0] / "config.yaml").read_text().replace("seed: 0", "seed: 7")
    (tracked / "config.yaml").write_text(text + "track: [tensorboard]\ncallbacks:\n  use: [mine]\n")
    comparison = compare_runs([folders[0], tracked])
    assert [arm.seeds for arm in comparison.arms] == [(0, 7)]
    assert comparison.differing == {}


def test_a_setting_that_only_one_arm_has_is_marked(folders, tmp_path):
    other = fake_solve_run(tmp_path / "other")
    (other / "config.yaml").write_text("method: policy_gradient\nseed: 0\nloss:\n  kind: cispo\n  ceiling: 5\n")
    comparison = compare_runs([folders[0], other])
    assert comparison.differing["loss.ceiling"] == (ABSENT, "5")
    assert comparison.differing["advantage"] == ("grpo", ABSENT)
    assert [arm.name for arm in comparison.arms] == ["grpo0", "other"]


def test_what_makes_a_comparison_doubtful_is_said(folders, tmp_path):
    again, unfinished = fake_solve_run(tmp_path / "again"), fake_solve_run(tmp_path / "unfinished")
    for folder in (again, unfinished):
        (folder / "config.yaml").write_text((folders[0] / "config.yaml").read_text())
    (unfinished / "summary.json").unlink()
    for folder, version in ((again, "1.0"), (folders[0], "2.0")):
        (folder / "env.json").write_text(json.dumps({"torch": version}))
    notes = " ".join(compare_runs([folders[0], again, unfinished]).notes)
    assert "unfinished is unfinished: it has curves, and no row in the table." in notes
    assert "have the same settings and seed 0" in notes
    assert "The runs differ in torch: 1.0, 2.0." in notes
    assert "All runs have the same settings" in notes


def test_a_page_takes_no_file_of_a_runs_place(folders, tmp_path):
    comparison, metrics = compare_runs(folders), (folders[0] / "metrics.jsonl").read_bytes()
    for place in (folders[0] / "metrics.jsonl", tmp_path / "nowhere" / "c.html", tmp_path):
        with pytest.raises(ReportError, match="no page can be written to"):
            write_comparison(comparison, place)
    assert (folders[0] / "metrics.jsonl").read_bytes() == metrics


@pytest.mark.parametrize("given", [[0], [0, 0]])
def test_one_run_is_no_comparison(folders, given):
    with pytest.raises(ReportError, match="needs two runs at least"):
        compare_runs([folders[index] for index in given])


def test_one_arm_of_several_seeds_says_each_of_them(folders):
    """More arms say it by their differences."""
    [by_seed] = [grid for grid in grids(compare_runs(folders[:3])) if grid.title.endswith("by seed")]
    assert by_seed.heads == ("policy", "seed 0", "seed 1", "seed 2")
    assert ("Best", "50.0", "60.0", "70.0") in by_seed.rows
    assert not any(grid.title == by_seed.title for grid in grids(compare_runs(folders)))


def test_a_band_of_what_is_never_negative_ends_at_0():
    """Of 0 and 1 the interval is 0.5 ± 6.4."""
    [band, _] = _mean_and_band({}, [{1: 0.0}, {1: 1.0}], "train")
    assert band["low"] == [0.0]
    [band, _] = _mean_and_band({}, [{1: -0.5}, {1: 0.5}], "train")
    assert band["low"][0] < -1


def test_a_chart_has_a_line_and_a_band_for_each_arm(folders):
    charts = comparison_charts(compare_runs(folders))
    chart = next(chart for chart in charts if chart["note"] == "validation")
    assert [(one["name"], one["kind"]) for one in chart["series"]] == [
        ("advantage=grpo", "band"),
        ("advantage=grpo", "validation"),
        ("advantage=rloo", "band"),
        ("advantage=rloo", "validation"),
    ]
    line, band = chart["series"][1], chart["series"][0]
    assert line["x"] == band["x"]
    assert all(low <= y <= high for low, y, high in zip(band["low"], line["y"], band["y"], strict=True))


def test_runs_of_one_seed_are_one_sample_in_the_charts_too(folders, tmp_path):
    again = shutil.copytree(folders[0], tmp_path / "again")
    [once, twice] = [
        comparison_charts(compare_runs([*given, folders[3]])) for given in ([folders[0]], [folders[0], again])
    ]
    assert once == twice


def test_python_gives_rows_for_a_data_frame_and_prints_the_tables(folders):
    compared = whet.compare(*folders)
    assert len(compared.rows) == sum(len(whet.Run.open(folder).table) for folder in folders)
    assert {(row["arm"], row["seed"]) for row in compared.rows if row["row"] == "best"} == {
        (f"advantage={advantage}", seed) for advantage, seed in ACCURACIES
    }
    trained = [row for row in compared.metrics if "reward/mean" in row]
    assert all(row["phase"] == "train" for row in trained)
    assert len(trained) == len(folders) * max(row["step"] for row in trained)
    assert "+3.5 ± 6.4" in str(compared)  # 12.706 x 0.01 / 2 = 0.0635


def test_commands_print_the_tables_and_write_the_page(folders, tmp_path):
    page = tmp_path / "c.html"
    done = command("compare", *folders, "--out", page)
    assert "60.0 ± 24.8" in done.stdout  # 4.303 x 0.1 / sqrt(3) = 0.248
    assert page.stat().st_size > 100_000
    refused = command("report", folders[0], "--out", page, check=False)
    assert refused.returncode == 2
    assert "--out is of several runs" in refused.stderr
    nowhere = command("compare", folders[0], tmp_path / "nowhere", check=False)
    assert nowhere.returncode == 2
    assert "is no folder" in nowhere.stderr


def test_the_page_draws_in_a_browser(folders, chromium, tmp_path):
    with watched_page(chromium, write_comparison(compare_runs(folders), tmp_path / "c.html")) as page:
        assert page.locator("#panels .panel").count() > 3
        assert page.locator("#panels .js-plotly-plot").count() == page.locator("#panels .panel").count()
        assert "+3.5 ± 6.4" in page.locator("main").inner_text()
