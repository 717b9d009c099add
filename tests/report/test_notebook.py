"""What a notebook shows: a run's table and curves, plots of metrics, and progress that is drawn in one place."""

from __future__ import annotations

import re
import sys
import types
import xml.etree.ElementTree as ET

import pytest

import whet
from support.report_run import fake_run
from whet.api.watching import watched
from whet.report.notebook_progress import NotebookProgress
from whet.report.records import ReportError
from whet.report.svg import chart_svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook") / "run"
    fake_run(folder)
    return whet.Run.open(folder)


def drawn(svg):
    """The points of each line of a chart, as pixels."""
    lines = ET.fromstring(svg).iter(f"{SVG}polyline")
    return [[tuple(map(float, pair.split(","))) for pair in line.get("points").split()] for line in lines]


def chart(**fields):
    series = {"name": "reward", "colour": "blue", "kind": "train", "x": [0, 10], "y": [0.0, 1.0]}
    return {"title": "Reward", "note": "", "unit": "number", "staged": False, "series": [series | fields]}


def test_a_line_goes_from_corner_to_corner_of_its_range():
    """46 pixels to the left, 12 to the right, 44 above and 24 below, of 460 by 230."""
    assert drawn(chart_svg(chart())) == [[(46.0, 206.0), (448.0, 44.0)]]


def test_a_gap_ends_a_line_and_a_lone_point_is_a_dot():
    svg = chart_svg(chart(x=[0, 1, 1, 2, 2, 10], y=[0.0, 1.0, None, 0.5, None, 1.0]))
    assert [len(line) for line in drawn(svg)] == [2]
    assert len(list(ET.fromstring(svg).iter(f"{SVG}circle"))) == 2


def test_equal_values_and_no_values_can_be_drawn():
    assert drawn(chart_svg(chart(y=[0.5, 0.5])))[0][0][1] == drawn(chart_svg(chart(y=[0.5, 0.5])))[0][1][1]
    assert drawn(chart_svg(chart(x=[], y=[]))) == []


def test_a_model_or_a_file_cannot_write_html(run):
    assert "<b>x" not in chart_svg(chart(name="<b>x") | {"title": "<b>x", "note": "<b>x"})


def test_a_run_shows_its_table_and_its_curves(run):
    html = run._repr_html_()
    for row in ("No critic", "Stage II"):
        assert f">{row}</th>" in html
    value = f"{100 * run.table['stage2']['acc_refine']:.1f}"
    assert re.search(rf">{value}[ <]", html)
    charts = re.findall(r"<svg.*?</svg>", html)
    assert len(charts) > 2
    assert all(drawn(svg) for svg in charts)
    assert "<script" not in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")


def test_a_plot_has_the_values_of_the_metric_and_is_saved(run, tmp_path):
    phase = "stage2"
    values = [row["reward/mean"] for row in run.metrics_of(phase) if "reward/mean" in row]
    plot = run.plot("reward/mean", phase=phase)
    heights = [y for _, y in drawn(plot.svg)[0]]
    assert len(heights) == len(values)
    assert heights.index(min(heights)) == values.index(max(values))  # SVG counts from the top
    assert plot.save(tmp_path / "plot.svg").read_text() == plot.svg == plot._repr_html_()


def test_a_metric_that_is_not_there_is_said_with_what_is_near(run):
    with pytest.raises(ReportError, match=r"no metric 'reward/men'.*did you mean reward/mean\?"):
        run.plot("reward/men")
    with pytest.raises(ReportError, match="needs the name of a metric"):
        run.plot()


# --- progress ---------------------------------------------------------------------------------------------------------


def test_progress_is_drawn_in_one_place_with_time_left_and_notes():
    now, shown = [0.0], []
    progress = NotebookProgress(lambda html, text: shown.append((html, text)), {"train": "RL"}, clock=lambda: now[0])
    progress.begin("train", 0, 4)
    for step in (1, 2):
        now[0] += 10
        progress.step(step, {"reward/mean": step / 4, "acc": None})
    html, text = shown[-1]
    assert text == "RL 2/4  0:00:20 left  reward 0.500"
    assert '<progress value="2" max="4">' in html
    assert drawn(re.search(r"<svg.*</svg>", html)[0])
    progress.tell("warning", "nothing <b>learns</b>")
    assert "<b>look:</b> nothing &lt;b&gt;learns" in shown[-1][0]
    progress.end()
    progress.begin("test", 0, 1)
    assert shown[-1][1].splitlines() == ["RL 4/4  in 0:00:20  reward 0.500", "Test 0/1  -:--:-- left",
                                         "look: nothing <b>learns</b>"]  # fmt: skip


def test_fast_steps_are_not_all_drawn():
    shown = []
    progress = NotebookProgress(lambda html, text: shown.append(text), clock=lambda: 0.0)
    progress.begin("train", 0, 100)
    for step in range(1, 101):
        progress.step(step, {})
    assert [text.split()[1] for text in shown] == ["0/100", "100/100"]


def test_a_kernel_gets_it_and_a_plain_python_does_not(monkeypatch, capsys):
    places = []

    class Place:
        def update(self, data, raw):
            places.append(data)

    ipython, shown = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    shown.display = lambda *data, **options: Place()
    for kernel in (None, object()):
        ipython.get_ipython = lambda kernel=kernel: types.SimpleNamespace(kernel=kernel)
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", shown)
        with watched(True) as progress:
            progress.begin("train", 0, 2)
            progress.step(2, {"reward/mean": 0.5})
            progress.end()
        assert bool(places) == (kernel is not None)
    assert places[-1].keys() == {"text/html", "text/plain"}
    assert capsys.readouterr().out.count("Train") == 2  # of the plain one alone
