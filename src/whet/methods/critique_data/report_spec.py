"""The sheet of critique data: what became of solutions and critiques, source by source, filter by filter."""

from __future__ import annotations

from whet.methods.charts import TIME
from whet.methods.critique_data.formats import SOURCES
from whet.methods.critique_data.records import KEPT
from whet.report.spec import Chart, Column, Line, ReportSpec, Stat

_COUNT = "a count"


def _counted(key: str, title: str, group: str, what: str) -> Column:
    return Column(key, title, group, what, _COUNT, unit="count")


COLUMNS = (
    _counted("made", "made", "solutions", "Solutions that were made, or given."),
    _counted("wrong", "wrong", "solutions", "Those whose final answer is wrong."),
    _counted("chosen", "chosen", "solutions", "Those to be critiqued: each once, in the ratio, and some right ones."),
    _counted("criticised", "written", "left after each filter", "Critiques that were written."),
    _counted("format", "format", "left after each filter", "One verdict, and the steps repeated with a label each."),
    _counted("verdict", "verdict", "left after each filter", "The grader's verdict; no wrong step where all is right."),
    _counted("location", "location", "left after each filter", "The first wrong step is the hint's."),
    _counted("hint_leak", "hint", "left after each filter", "No word of a reference or a hint."),
    _counted("answer_leak", "answer", "left after each filter", "Where those that hold the answer are dropped."),
    _counted("soft", "soft", "left after each filter", "Enough refinements came out right."),
    _counted("kept_right", "of right", "kept", "Critiques kept of right answers."),
    _counted("kept_wrong", "of wrong", "kept", "Critiques kept of wrong answers."),
    Column("share", "kept", "of the critiques", "Those that passed all filters.", "critiques that were written"),
    Column("helped", "refined", "of the critiques", "Refinements that came out right.", "a mean over those refined"),
    Column("leak", "leak", "of the critiques", "Those kept that hold the reference answer.", "critiques kept"),
)  # fmt: skip
CRITIQUE_DATA = ReportSpec(
    who="source",
    order=(*SOURCES, "all"),
    columns=COLUMNS,
    best="share",
    problem="question",
    tested="critiques",
    stats=(
        Stat("Critiques kept", "{all.soft:,.0f}", (
            "of {all.criticised:,.0f} that were written", "{all.kept_right:,.0f} of right answers",
        )),
        Stat("Solutions", "{all.made:,.0f}", ("{all.wrong:,.0f} of them wrong", "{all.chosen:,.0f} chosen")),
        Stat("Refinements that come out right", "{all.helped} %"),
        Stat("Kept critiques that hold the answer", "{all.leak} %"),
    ),
    charts=(
        Chart("Solutions", "shares of those made", "percent", True, (Line("paths/wrong", "wrong", "orange"),)),
        Chart("Critiques", "shares", "percent", True, (
            Line("kept/share", "pass the filters", "blue"), Line("refinement/right", "refinements right", "violet"),
        )),
        TIME,
    ),
    training=("paths/wrong", "kept/share"),
    is_staged=True,
    titles={"rg1": "RG1, from scratch", "rg2": "RG2, pushed off", "rg3": "RG3, planted", "given": "Given answers",
            "trajectory": "Agents' episodes", "all": "All"},
    view="exchange",
    trace="critique",
    traces="critiques",
    makes=KEPT,
)  # fmt: skip
