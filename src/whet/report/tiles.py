"""The run in three numbers, beside what each is to be compared with."""

from __future__ import annotations

from collections.abc import Sequence

from whet.report.curves import rl_phases
from whet.report.kinds import CRITIQUE, Kind, Rows
from whet.report.read import Run
from whet.report.table import percent, title_of

Tile = dict[str, str]


def tiles(run: Run, kind: Kind, rows: Rows) -> list[Tile]:
    found = _critique(rows) if kind is CRITIQUE else _solve(run, rows)
    return [tile for tile in found if not tile["value"].startswith("–")]


def _critique(rows: Rows) -> list[Tile]:
    """Those of the last critic."""
    critics = [name for name, row in rows.items() if row["acc_refine"] is not None and name != "no_critic"]
    if not critics:
        return []
    first, last = rows[critics[0]], rows[critics[-1]]
    who = title_of(critics[-1])
    return [
        {
            "label": f"Right after {who}'s critique",
            "value": f"{percent(last['acc_refine'])} %",
            "beside": f"{percent(last['acc'])} % before: {percent(last['delta'], signed=True)} points",
        },
        {
            "label": f"{who}'s verdicts that are right",
            "value": f"{percent(last['acc_dis'])} %",
            "beside": f"{title_of(critics[0])}: {percent(first['acc_dis'])} %" if len(critics) > 1 else "",
        },
        {
            "label": "Wrong answers made right, i→c",
            "value": f"{percent(last['i2c'])} %",
            "beside": f"right made wrong, c→i: {percent(last['c2i'])} %",
        },
    ]


def _solve(run: Run, rows: Rows) -> list[Tile]:
    """The best weights after training, or the validation so far; then the entropy from start to end."""
    before, best, last = (rows.get(name, {}) for name in ("before", "best", "last"))
    found: list[Tile] = []
    if (acc := best.get("acc")) is not None:
        was = before.get("acc")
        change = "" if was is None else f"{percent(was)} % before: {percent(acc - was, signed=True)} points"
        end = "" if last.get("acc") in (None, acc) else f"last weights: {percent(last['acc'])} %"
        found.append(
            {
                "label": "Right after training, best weights, greedy",
                "value": f"{percent(acc)} %",
                "beside": "; ".join(filter(None, (change, end))),
            }
        )
        mean, k = best.get("average"), best.get("k")
        if mean is not None and k:
            found.append(
                {
                    "label": f"Right on average of {k:.0f} samples",
                    "value": f"{percent(mean)} %",
                    "beside": _from_to(f"pass@{k:.0f}", before.get("pass"), best.get("pass")),
                }
            )
    else:
        found += _in_training(run, "validation/acc", "Right in validation, greedy, so far")
        found += _in_training(run, "reward/correct", "Right in training, sampled, so far")
    return [*found, *_entropy(run)]


def _from_to(name: str, was: float | None, now: float | None) -> str:
    if was is None or now is None:
        return "" if now is None else f"{name}: {percent(now)} %"
    return f"{name}: {percent(was)} % before, {percent(now)} % after"


def _in_training(run: Run, key: str, label: str) -> list[Tile]:
    values = _series(run, key)
    if not values:
        return []
    return [{"label": label, "value": f"{percent(values[-1])} %", "beside": f"{percent(values[0])} % at first"}]


def _entropy(run: Run) -> list[Tile]:
    values = _series(run, "entropy")
    if not values:
        return []
    first, last = values[0], values[-1]
    share = f"{percent(last / first)} % of the first step's" if first > 0 else ""
    return [{"label": "Entropy, first → last step", "value": f"{first:.3f} → {last:.3f}", "beside": share}]


def _series(run: Run, key: str) -> Sequence[float]:
    return [value for phase in rl_phases(run) for value in phase.series(key)[1]]
