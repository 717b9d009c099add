"""Writes docs/results/index.md, its picture, and the README's table of systems from the committed result files.

    .venv/bin/python benchmarks/results_page.py           # writes all three; the picture needs EXTRAS=benchmarks
    .venv/bin/python benchmarks/results_page.py --check    # writes nothing, and fails where one of the texts is old

Every figure is a paired difference over seeds with a 95 % t interval. *Shown* means that the interval lies on the side
that the claim expects, and that the premise of the claim was measured in that world and holds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from claims import SYSTEMS, Claim, Lead, Premise, System
from study import RESULTS, cell
from whet.evaluation.critique import mean_interval

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "index.md"
PICTURE = PAGE.with_name("claims.svg")
README = ROOT / "README.md"
BEGIN, END = "<!-- results: made by benchmarks/results_page.py -->", "<!-- results: end -->"
Verdict = Literal["shown", "partly shown", "not shown", "the other way round", "not measured"]


@dataclass(frozen=True)
class Answer:
    """What a result file says of a claim."""

    claim: Claim
    verdict: Verdict
    premise: Premise | None
    leads: Sequence[Lead]
    result: Mapping[str, Any]

    @property
    def seeds(self) -> str:
        """How many each lead has."""
        counts = [sum(value is not None for value in lead.values) for lead in self.leads] or [0]
        least, most = min(counts), max(counts)
        return f"{most} seeds" if least == most else f"{least} to {most} seeds"


def side_of(lead: Lead, least: float = 0.0) -> int:
    """1: the interval lies on the side that is expected. -1: on the other. 0: it does not, or there is one seed.

    Args:
        least: how far from 0 it has to lie, as a share.
    """
    mean, half = mean_interval([value for value in lead.values if value is not None])
    if half is None or abs(mean) - half <= least:
        return 0
    return 1 if mean * lead.expected > 0 else -1


def answer_of(claim: Claim) -> Answer:
    file = RESULTS / f"{claim.result}.json"
    if not file.exists():
        return Answer(claim, "not measured", None, [], {})
    result = json.loads(file.read_text(encoding="utf-8"))
    premise, leads = claim.premise(result), claim.leads(result)
    return Answer(claim, verdict_of(premise, leads, claim.least), premise, leads, result)


def verdict_of(premise: Premise, leads: Sequence[Lead], least: float = 0.0) -> Verdict:
    sides = [side_of(lead, least) for lead in leads]
    if any(side < 0 for side in sides) and not any(side > 0 for side in sides):
        return "the other way round"
    if not premise.holds or not any(side > 0 for side in sides):
        return "not shown"
    return "shown" if all(side > 0 for side in sides) else "partly shown"


def commits_of(result: Any) -> list[str]:
    """Every commit that a result file names, short, in the order of the file."""
    found: list[str] = []
    if isinstance(result, dict):
        for key, value in result.items():
            if key == "commit" and isinstance(value, str):
                found += [commit.strip()[:7] for commit in value.split(",")]
            else:
                found += commits_of(value)
    return list(dict.fromkeys(found))


def leads_in_words(leads: Sequence[Lead]) -> str:
    return "; ".join(f"{lead.what} **{cell(lead.values, sign=True)}**" for lead in leads)


def section(system: System, answers: Sequence[Answer]) -> Iterator[str]:
    yield f"## {system.title}"
    for answer in answers:
        claim = answer.claim
        yield f"### {claim.says}"
        file = f"../../benchmarks/results/{claim.result}"
        rows = [f"**{answer.verdict[0].upper()}{answer.verdict[1:]}**"]
        if answer.premise is not None:
            rows[0] += f": {leads_in_words(answer.leads)} points ({answer.seeds})."
            holds = "" if answer.premise.holds else " **The premise does not hold.**"
            rows += [f"*Premise:* {answer.premise.text}.{holds}"]
        rows += [f"*Environment:* {claim.env}. *Equal between the arms:* {claim.budget}."]
        if answer.verdict not in ("shown", "not measured") and claim.reason:
            rows += [f"*Why:* {claim.reason}."]
        if answer.premise is None:
            rows += [f"*Command:* `python benchmarks/{claim.result}.py`."]
        else:
            commits = ", ".join(commits_of(answer.result)) or "not named"
            rows += [f"*Command:* `{answer.result['command']}`, commit {commits} ([all of it]({file}.md))."]
        yield "\n".join(f"- {row}" for row in rows)


def page(answers: Mapping[str, Sequence[Answer]]) -> str:
    every = [answer for each in answers.values() for answer in each]
    counts = {
        verdict: sum(answer.verdict == verdict for answer in every)
        for verdict in ("shown", "partly shown", "not shown", "the other way round", "not measured")
    }
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    parts = [
        "# What the five papers claim, and what shows here",
        "`benchmarks/results_page.py` writes this page from the result files. Nobody edits it.",
        "A figure is the difference between two arms of one study, in points, paired by seed. Behind it stands the "
        "half width of its 95 % t interval. **Shown** means two things: the interval lies on the side that the claim "
        "expects, and the premise was measured and holds. *Partly shown*: in some of the claim's settings. *The other "
        "way round*: the interval lies on the other side of zero. The worlds are tiny, and so are the models. What "
        "shows here says that the code does what the paper describes. It says nothing about models of real size.",
        f"Of {len(every)} claims: {told}.",
        "![Every claim's differences with their intervals, in the colours of the verdicts](claims.svg)",
    ]
    for system in SYSTEMS:
        parts += section(system, answers[system.title])
    return "\n\n".join(parts) + "\n"


def table(answers: Mapping[str, Sequence[Answer]]) -> str:
    """The README's: systems, where to begin, and the claims that have a short form."""
    lines = ["| system | begin with | what came out on the tiny models |", "|---|---|---|"]
    for system in SYSTEMS:
        told = []
        for answer in answers[system.title]:
            if not answer.claim.short or answer.verdict == "not measured":
                continue
            named = len(answer.leads) > 1
            figures = ", ".join(
                cell(lead.values, sign=True) + (f" [{lead.what}]" if named else "") for lead in answer.leads
            )
            lacks = ", premise fails" if answer.premise and not answer.premise.holds else ""
            told.append(f"{answer.claim.short}: {figures} (*{answer.verdict}{lacks}*)")
        lines.append(f"| {system.says} | `{system.begin}` | {'<br>'.join(told)} |")  # a line for each claim
    return "\n".join(lines)


def readme(text: str, answers: Mapping[str, Sequence[Answer]]) -> str:
    """The README with its table made anew.

    Raises: ValueError where its marks are gone.
    """
    before, found, rest = text.partition(BEGIN)
    _, ends, after = rest.partition(END)
    if not (found and ends):
        raise ValueError(f"{README.name} has no table between {BEGIN} and {END}: put the marks back")
    return f"{before}{BEGIN}\n\n{table(answers)}\n\n{END}{after}"


def draw(answers: Mapping[str, Sequence[Answer]], path: Path) -> None:
    """Every difference and its interval; systems below one another."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "whet"  # the same file for the same numbers
    colors = {"shown": "#009e73", "partly shown": "#56b4e9", "not shown": "#888888", "the other way round": "#d55e00"}
    rows: list[tuple[str, Lead | None, str]] = []
    for system in SYSTEMS:
        rows.append((system.title, None, ""))
        for answer in answers[system.title]:
            name = answer.claim.short or answer.claim.says.rstrip(".").removeprefix("... and ")
            name = name if len(name) <= 70 else f"{name[:67]}..."
            for lead in answer.leads:
                of_several = f" ({lead.what})" if len(answer.leads) > 1 else ""
                rows.append((f"{name}{of_several}", lead, colors[answer.verdict]))
    figure = Figure(figsize=(11, 0.29 * len(rows) + 1), layout="constrained")
    axis = figure.subplots()
    for place, (_, lead, color) in enumerate(rows):
        if lead is None:
            continue
        mean, half = mean_interval([100 * value for value in lead.values if value is not None])
        axis.errorbar(mean, place, xerr=half or 0.0, color=color, marker="o", markersize=4, capsize=3)
    axis.set_yticks(range(len(rows)), [name for name, _, _ in rows], fontsize=8)
    for label, (_, lead, _) in zip(axis.get_yticklabels(), rows, strict=True):
        if lead is None:
            label.set_fontweight("bold")
    axis.invert_yaxis()
    axis.axvline(0, color="#444444", linewidth=0.8)
    axis.grid(axis="x", alpha=0.25)
    axis.set_xlabel("difference, points, with its 95 % interval")
    for verdict, color in colors.items():
        axis.plot([], [], color=color, marker="o", linestyle="none", label=verdict)
    axis.legend(fontsize=8, loc="upper left")
    figure.savefig(path, metadata={"Date": None})


def texts() -> dict[Path, str]:
    """What the page and the README have to say now."""
    answers = {system.title: [answer_of(claim) for claim in system.claims] for system in SYSTEMS}
    return {PAGE: page(answers), README: readme(README.read_text(encoding="utf-8"), answers)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the texts are those of the results")
    asked = parser.parse_args()
    if asked.check:
        old = [path.name for path, text in texts().items() if path.read_text(encoding="utf-8") != text]
        if old:
            sys.exit(f"{', '.join(old)}: not what the result files say; run python benchmarks/results_page.py")
        return
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
    draw({system.title: [answer_of(claim) for claim in system.claims] for system in SYSTEMS}, PICTURE)
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
