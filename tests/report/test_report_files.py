"""The files of report specs: each is read, agrees with the metrics that it shows, and is refused where it is wrong."""

import pytest

from whet.evaluation.critique import DENOMINATORS
from whet.methods import METHODS
from whet.methods.critique_data.records import KEPT
from whet.methods.registry import preset_of
from whet.methods.report_specs import (
    CHARTS,
    OFF_POLICY,
    load_charts,
    load_columns,
    load_report,
    read_report,
    report_files,
)
from whet.report.spec import of_json, to_json

PARTS = (CHARTS, OFF_POLICY, "agent_leads")
NAMES = sorted({*report_files()} - {*PARTS})


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_a_report_spec(name):
    report = load_report(name)
    assert of_json(to_json(report)) == report


def test_every_file_is_of_a_method_or_of_a_family():
    reports = [preset_of(entry.name).algorithm.spec.report for entry in METHODS if entry.origin == "whet"]
    alone = {"agent_actions", "agent_attempts", "critique", "episodes"}  # by settings; extended; of files
    assert {name for name in NAMES if load_report(name) not in reports} <= alone


SOLVE_DENOMINATORS = {
    "acc": "all problems",
    "average": "all samples",
    "pass": "all problems",
    "majority": "all problems",
    "truncated": "all replies",
    "length": "a mean over replies, in tokens",
}


def test_what_a_column_is_divided_by_is_what_its_metric_is_divided_by():
    for name, denominators in (("critique", DENOMINATORS), ("solve", SOLVE_DENOMINATORS)):
        columns = load_report(name).columns
        assert {column.key: column.denominator for column in columns}.items() <= denominators.items()
        assert len(columns) >= 6


def test_files_agree_with_the_code_that_they_speak_of():
    assert load_report("critique_data").makes == KEPT
    assert [column.key for column in load_columns("agent_leads")] == ["lead", "lead_low", "lead_high"]
    assert all(chart.lines for chart in load_charts().values())


def test_a_file_of_ones_own_extends_one_of_ours(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "extends: solve\nbest: pass\ncolumns: [pass, {like: acc, title: right}]\nbehind: {}\nstats: []\n"
        "charts: [Gradient norm, {like: entropy, policy: actor}]\nadded_charts: [{like: kl, note: a reply}]\n"
    )
    report, solve = read_report(file), load_report("solve")
    assert [(column.key, column.title) for column in report.columns] == [("pass", "pass@{k}"), ("acc", "right")]
    assert report.charts[0] in solve.charts
    assert report.charts[0] != load_charts()["norm"]  # by its title it is that of `solve`
    assert [line.key for line in report.charts[1].lines] == ["actor.entropy", "actor.entropy/sampled"]
    assert (report.charts[2].note, report.charts[2].lines) == ("a reply", load_charts()["kl"].lines)
    assert report.shares == solve.shares


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("extends: solve\ncharts: [entrophy]\n", "names 'entrophy', which is not there; there are reward"),
        ("extends: solve\ncolumns: [{like: rihgt}]\n", "names 'rihgt'"),
        ("extends: solve\nview: film\n", "view"),
        ("extends: solve\nnovel: 1\n", "novel"),
        ("extends: solve\nbest: nothing\n", "asked for: nothing"),
        ("who: policy\n", "order"),
    ],
)
def test_a_wrong_file_is_refused_by_its_name(tmp_path, text, said):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"mine.yaml is no report spec") as raised:
        read_report(file)
    assert said in str(raised.value)
