"""What `make critiques` needs of two runs of the loop: the tokens of the one, and its lead over the other.

.venv/bin/python scripts/lead.py tokens RUN        # [120000,80000]: what each round wrote, for token_budget
.venv/bin/python scripts/lead.py lead RUN OTHER    # the difference on the same test questions, with its interval
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean

from whet.evaluation.intervals import half_width


def tokens_of(run: Path) -> list[int]:
    """Tokens that each round of a run wrote while it explored."""
    return [int(found["tokens"]) for found in json.loads((run / "rounds.json").read_text(encoding="utf-8"))]


def scores_of(run: Path, row: str = "last") -> dict[str, float]:
    """1 or 0 for each test question: whether the greedy answer with the last weights is right. Questions whose grader
    failed are left out."""
    lines = (run / "traces" / "after.jsonl").read_text(encoding="utf-8").splitlines()
    traces = [trace for trace in map(json.loads, lines) if trace.get("policy") == row]
    graded = [trace for trace in traces if trace["answer_score"] is not None]
    return {trace["task"]: float(trace["answer_score"] == 1.0) for trace in graded}


def lead(scores: dict[str, float], others: dict[str, float]) -> tuple[float, float, int]:
    """The mean paired difference, the half width of its 95 % interval, and the number of questions.

    Raises: ValueError where fewer than two questions are in both.
    """
    if len(both := scores.keys() & others.keys()) < 2:
        raise ValueError("the two runs share fewer than two test questions: give both the same data settings")
    differences = [scores[task] - others[task] for task in sorted(both)]
    return fmean(differences), half_width(differences), len(differences)


def table(run: Path, other: Path) -> str:
    """Both runs' accuracy and tokens, the lead with its interval, and whether chance explains it."""
    scores, others = scores_of(run), scores_of(other)
    mean, half, count = lead(scores, others)
    names = f"with a critic in the loop ({run.name})", f"without, at as many tokens ({other.name})", "lead"
    width = max(map(len, names))
    rows = [
        f"{name:<{width}}  {100 * fmean(rights.values()):>5.1f}  {sum(tokens_of(place)):>17,}"
        for name, rights, place in zip(names[:2], (scores, others), (run, other), strict=True)
    ]
    says = "beyond chance" if abs(mean) > half else "within chance"
    return "\n".join(
        [
            f"{'':<{width}}  {'right':>5}  {'tokens to explore':>17}",
            *rows,
            f"{names[2]:<{width}}  {100 * mean:+5.1f} ± {100 * half:.1f}, {says}",
            f"In percent of {count} test questions. The interval (95 %) is of one seed, paired over questions.",
        ]
    )


def main() -> None:
    try:
        match sys.argv[1:]:
            case ["tokens", run]:
                print(json.dumps(tokens_of(Path(run)), separators=(",", ":")))
            case ["lead", run, other]:
                print(table(Path(run), Path(other)))
            case _:
                sys.exit(__doc__)
    except OSError as error:
        sys.exit(f"{error.filename} cannot be read ({error.strerror}): give folders of finished runs of the loop")
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
