"""One agent's numbers in one environment of AgentEval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from whet.evaluation.agents import agent_metrics, reward_of
from whet.evaluation.intervals import interval
from whet.types import FAULTS, Episode


def agent_row(episodes: Sequence[Episode], score: Callable[[float], float], above: float) -> dict[str, Any]:
    """Metrics of an agent, with one episode of each item. Failed episodes are counted, and are no zeros.

    Args:
        score: an episode's reward in [0, 1] (`EnvironmentInfo.score`).
        above: the reward that a success exceeds.
    Returns: `score` and `success` with their 95 % intervals over items, `reward`, `turns`, `invalid` and `truncated` of
        `agent_metrics`, the count `n` of episodes behind them, `failures` by kind, and the first `reason`. Metrics are
        None where every episode failed.
    """
    failed = [episode for episode in episodes if episode.outcome in FAULTS]
    scores = [score(reward_of(episode)) for episode in episodes if episode.outcome not in FAULTS]
    by_environment = {str(episode.task.info["environment"]): above for episode in episodes}
    metrics = agent_metrics([[episode] for episode in episodes], by_environment)
    low, high = interval(scores) if scores else (None, None)
    return {
        "n": len(scores),
        "score": fmean(scores) if scores else None,
        "score_low": low,
        "score_high": high,
        **{key: metrics[key] for key in ("success", "success_low", "success_high", "reward")},
        **{key: metrics[key] for key in ("turns", "invalid", "truncated")},
        "failures": dict(sorted(Counter(str(episode.outcome) for episode in failed).items())),
        "reason": failed[0].reason if failed else "",
    }
