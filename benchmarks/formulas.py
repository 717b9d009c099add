"""The published formulas beside ours: cases and differences by method.

    python benchmarks/formulas.py [--cases 1000]

Writes benchmarks/results/formulas.{md,json}. The formulas are in tests/support/formulas, written from papers and
published code in plain numpy; tests/objectives/test_published_formulas.py runs them too.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from study import machine_now, write

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.formulas import FORMULAS, compare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000, help="random inputs of each formula")
    cases = parser.parse_args().cases
    began, rows = time.process_time(), list[dict[str, Any]]()
    for formula in FORMULAS:
        said = {name: getattr(formula, name) for name in ("method", "formula", "source", "differs")}
        rows.append(said | asdict(compare(formula, cases)))
    seconds = time.process_time() - began
    undocumented = sum(row["differences"] for row in rows if not row["differs"])
    write("formulas", {"machine": machine_now(), "rows": rows}, report(rows, cases, undocumented, seconds))
    sys.exit(undocumented > 0)


def report(rows: list[dict[str, Any]], cases: int, undocumented: int, seconds: float) -> str:
    """The page."""
    lines = [
        "# Published formulas beside ours",
        "",
        f"`python benchmarks/formulas.py`: {len(rows)} formulas, {cases:,} random inputs each, "
        f"{seconds:.0f} s of processor time. **Undocumented differences: {undocumented}.** A case counts as a "
        "difference where any number is off by more than 1e-6 (GiGPO: 1e-4), absolute up to 1 and relative past it. "
        "What differs on purpose is a row of [docs/fidelity.md](../../docs/fidelity.md).",
        "",
        "| method | formula | published in | cases | differences | largest | on purpose |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = (row["method"], row["formula"], row["source"], f"{row['cases']:,}", f"{row['differences']:,}",
                 f"{row['largest']:.1e}", row["differs"] or "")  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
