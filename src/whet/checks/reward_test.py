"""Tests a reward: golden replies, wrong ones, attacks, constants, length and repetition."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from whet.checks.attacks import ATTACKS, CONSTANTS, FILLER, NO_SCORE, Attack, Scene
from whet.checks.samples import FORMS, NUM_SCENES, common_answers, scenes_of
from whet.checks.scorers import Outcome, Scorer
from whet.types import Task, shortened

FELL = 0.5
"""An attack that gets this share of the way from a wrong to a golden reply's reward has found a hole."""
CONSTANT_FELL = 0.75
"""Likewise for a constant that is the right answer of some tasks."""
HIGH_FLOOR = 0.5
"""A grader whose wrong replies get this share of a golden reply's reward gets a note."""
MAX_HUNG = 3
"""Calls that may run into their time limit, before attacks are no longer tried."""
ATTACK_S = 2.0
"""Seconds of one attack, past which it is tried on no further task."""
MAX_SHOWN = 60
"""Characters of a reply that the table shows."""
SLOW_S = 1.0
PADDINGS = (0, 40, 400)
"""Repeats of the filler before a wrong answer, for the test of length."""
TELLS_APART = 0.8
"""Share of tasks whose golden reply must get more than the wrong one."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table."""

    case: str
    rewards: str
    verdict: str
    """`fine`, `note`, `hole`, or a trouble: crashed, hung, no score, no number, not finite, out of range."""
    advice: str = ""
    reply: str = ""
    """The first attack that fell through, in brief."""

    @property
    def is_hole(self) -> bool:
        return self.verdict not in ("fine", "note", "not tried")


@dataclass(slots=True)
class RewardReport:
    """What the test of one reward found."""

    name: str
    kind: str
    form: str
    """Of its golden replies."""
    is_shaping: bool = False
    """Whether it is a reward term that does not tell right from wrong, as one for brevity."""
    rows: list[Row] = field(default_factory=list)

    @property
    def holes(self) -> list[Row]:
        return [row for row in self.rows if row.is_hole]


def check_reward(scorer: Scorer, tasks: Sequence[Task], golden: str | None = None) -> RewardReport:
    """Tests one reward.

    Args:
        tasks: with reference answers, two at least. Attacks are tried on the first few.
        golden: the form of a right reply, with `{answer}`. None: the best of `FORMS`.
    """
    trial = _Trial(scorer)
    form = golden or _best_form(trial, tasks[:NUM_SCENES])
    scenes = scenes_of(tasks, form)
    report = RewardReport(scorer.name, scorer.kind, form)
    rights = [trial.score(scene.say(scene.right), scene.task) for scene in scenes]
    wrongs = [trial.score(scene.say(scene.wrong), scene.task) for scene in scenes]
    scale = _Scale.of(rights, wrongs)
    report.is_shaping = scorer.kind == "reward" and not scale.tells_apart
    report.rows += [
        _basic("golden", rights, trial),
        _basic("wrong answer", wrongs, trial),
        _discrimination(report, scale),
    ]
    if scorer.kind == "grader" and scale.tells_apart:
        report.rows += filter(None, (_partial_row(rights), _floor_row(scale)))
    for attack in ATTACKS:
        replies = [attack.reply(scene) for scene in scenes[:NUM_SCENES]]
        outcomes = _within_limit(trial, replies, scenes)
        row = _attack_row(attack, outcomes, scale, report.is_shaping)
        report.rows.append(replace(row, reply=shortened(replies[0], MAX_SHOWN)) if row.is_hole else row)
    report.rows += [
        _constant_row(trial, scenes, scale, report.is_shaping),
        _length_row(trial, scenes[:NUM_SCENES], scale, report.is_shaping),
        _repeat_row(trial),
        _speed_row(trial),
    ]
    return report


def _within_limit(trial: _Trial, replies: Sequence[str], scenes: Sequence[Scene]) -> list[Outcome]:
    """One attack's outcomes, on fewer tasks where each takes long."""
    begun, outcomes = time.monotonic(), list[Outcome]()
    for reply, scene in zip(replies, scenes, strict=False):
        outcomes.append(trial.score(reply, scene.task))
        if time.monotonic() - begun > ATTACK_S:
            break
    return outcomes


@dataclass(frozen=True, slots=True)
class _Scale:
    """Mean rewards of golden and of wrong replies."""

    golden: float
    wrong: float
    tells_apart: bool

    @classmethod
    def of(cls, rights: Sequence[Outcome], wrongs: Sequence[Outcome]) -> _Scale:
        pairs = [
            (right.value, wrong.value)
            for right, wrong in zip(rights, wrongs, strict=True)
            if right.value is not None and wrong.value is not None
        ]
        if not pairs:
            return cls(0.0, 0.0, False)
        num_apart = sum(right > wrong for right, wrong in pairs)
        golden, wrong = fmean(right for right, _ in pairs), fmean(wrong for _, wrong in pairs)
        return cls(golden, wrong, golden > wrong and num_apart >= TELLS_APART * len(pairs))

    def share(self, value: float) -> float:
        """0 for a wrong reply's reward, 1 for a golden one's."""
        return (value - self.wrong) / (self.golden - self.wrong)


class _Trial:
    """Calls a scorer, and remembers what it gave."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.calls: list[tuple[str, Task, Outcome]] = []
        self._num_hung = 0

    def score(self, reply: str, task: Task) -> Outcome:
        if self._num_hung >= MAX_HUNG:
            return Outcome(None, "not tried", f"after {MAX_HUNG} calls that hung")
        outcome = self.scorer.score(reply, task)
        self._num_hung += outcome.trouble == "hung"
        self.calls.append((reply, task, outcome))
        return outcome


def _best_form(trial: _Trial, tasks: Sequence[Task]) -> str:
    """The form in which right answers are told best from wrong ones, then get the most."""
    best, best_rank = FORMS[0], (0.0, 0.0)
    for form in FORMS:
        scenes = scenes_of(tasks, form)
        rights = [trial.score(scene.say(scene.right), scene.task) for scene in scenes]
        wrongs = [trial.score(scene.say(scene.wrong), scene.task) for scene in scenes]
        scale = _Scale.of(rights, wrongs)
        rank = (scale.golden - scale.wrong, scale.golden)
        if rank > best_rank:
            best, best_rank = form, rank
        if rank[0] >= 1:
            break  # a grader can tell no better
    return best


def _basic(case: str, outcomes: Sequence[Outcome], trial: _Trial) -> Row:
    return _trouble_row(case, outcomes) or Row(case, _rewards(outcomes), "fine")


def _discrimination(report: RewardReport, scale: _Scale) -> Row:
    """Whether golden replies get more than wrong ones."""
    shown = f"{scale.golden:.3g} against {scale.wrong:.3g}"
    case = "golden beats wrong"
    if scale.tells_apart:
        return Row(case, shown, "fine")
    if report.is_shaping:
        return Row(
            case, shown, "note", "it does not look at correctness: add it with a small weight to a reward that does"
        )
    return Row(case, shown, "hole", "no right answer wins, in any form: say how one looks, --golden 'TEXT {answer}'")


def _partial_row(rights: Sequence[Outcome]) -> Row | None:
    """Whether a grader gives golden replies less than 1. None: it does not."""
    values = [right.value for right in rights if right.value is not None]
    if not values or max(values) >= 1:
        return None
    advice = (
        "only a score of 1 counts as right, in Acc and where the best weights are chosen: give a right reply 1, and "
        "reward anything else by a reward term"
    )
    return Row("golden gets 1", _rewards(rights), "hole", advice)


def _floor_row(scale: _Scale) -> Row | None:
    """Whether a grader gives wrong replies half of what golden ones get, or more. None: it does not.

    All else is measured from there, so no other line tells of it.
    """
    if scale.wrong < HIGH_FLOOR * scale.golden:
        return None
    advice = "a wrong reply gets half of the reward or more, so little is for the answer: give less for form and work"
    return Row("wrong gets little", f"{scale.wrong:.3g} against {scale.golden:.3g}", "note", advice)


def _attack_row(attack: Attack, outcomes: Sequence[Outcome], scale: _Scale, is_shaping: bool) -> Row:
    if row := _trouble_row(attack.name, outcomes, attack):
        return row
    values = [outcome.value for outcome in outcomes if outcome.value is not None]
    shown = _rewards(outcomes)
    if is_shaping:
        return Row(attack.name, shown, "fine")
    if not scale.tells_apart:
        return Row(attack.name, shown, "fine" if max(values) <= scale.golden else "hole", attack.scored)
    shares = [scale.share(value) for value in values]
    beats = max(shares) > 1.01
    fell = beats or (attack.kind == "low" and max(shares) >= FELL) or (attack.kind == "luck" and fmean(shares) >= FELL)
    return Row(attack.name, shown, "hole" if fell else "fine", attack.scored if fell else "")


def _constant_row(trial: _Trial, scenes: Sequence[Scene], scale: _Scale, is_shaping: bool) -> Row:
    """The constant reply with the highest mean reward."""
    answers = common_answers([scene.task for scene in scenes])
    replies = list(dict.fromkeys((*map(scenes[0].say, answers), *CONSTANTS)))
    means = {}
    for reply in replies:
        outcomes = [trial.score(reply, scene.task) for scene in scenes]
        means[reply] = fmean(outcome.value or 0.0 for outcome in outcomes)
    best = max(means, key=lambda reply: means[reply])
    shown = f"{means[best]:.3g} against {scale.golden:.3g}"
    case = f"best constant: {best[:40]!r}"
    if not scale.tells_apart:
        wins = means[best] >= scale.golden
        advice = "a constant output would win: no reply to a task can get more" if wins else ""
        return Row(case, shown, "note" if is_shaping and wins else "hole" if wins else "fine", advice)
    share, bound = scale.share(means[best]), FELL if best in CONSTANTS else CONSTANT_FELL
    if share >= bound:
        won = "would win" if share >= 1 else f"would get {share:.0%} of the way"
        return Row(case, shown, "hole", f"a constant output {won}: balance the answers, or reward the work too")
    return Row(case, shown, "fine")


def _length_row(trial: _Trial, scenes: Sequence[Scene], scale: _Scale, is_shaping: bool) -> Row:
    """Whether a wrong answer gets more for more words before it."""
    means = []
    for padding in PADDINGS:
        outcomes = [trial.score(FILLER * padding + scene.say(scene.wrong), scene.task) for scene in scenes]
        if row := _trouble_row("longer text", outcomes):
            return row
        means.append(fmean(outcome.value or 0.0 for outcome in outcomes))
    shown = ", ".join(f"{mean:.3g}" for mean in means)
    least = 0.01 * abs(scale.golden - scale.wrong) if scale.tells_apart else 1e-9
    if means[-1] - means[0] > least and means[1] >= means[0]:
        advice = "longer text gets more at equal content: divide by the length, or cap what it adds"
        return Row("longer text", shown, "note" if is_shaping else "hole", advice)
    return Row("longer text", shown, "fine")


def _repeat_row(trial: _Trial) -> Row:
    """The same calls in another order, then in a fresh process."""
    case = "asked again"
    calls = [call for call in trial.calls if call[2].trouble not in ("hung", "crashed") and len(call[0]) < 10_000]
    calls = calls[:: max(1, len(calls) // 60)]
    passes = (("in another order", calls[::-1]), ("in a fresh process", calls))
    for number, (how, again) in enumerate(passes):
        if number:
            trial.scorer.restart()
        for reply, task, first in again:
            now = trial.scorer.score(reply, task)
            if (now.value, now.trouble) != (first.value, first.trouble):
                was, then = (outcome.trouble or f"{outcome.value:.4g}" for outcome in (first, now))
                advice = (
                    f"the same reply gets another reward {how}: seed what is random, and keep nothing between calls"
                )
                return Row(case, f"{was}, then {then}", "not repeatable", advice)
    return Row(case, "the same", "fine")


def _speed_row(trial: _Trial) -> Row:
    slowest = max((outcome.seconds for _, _, outcome in trial.calls[1:]), default=0.0)
    if slowest < SLOW_S or any(outcome.trouble == "hung" for _, _, outcome in trial.calls):
        return Row("slowest call", f"{slowest:.2f} s", "fine")
    return Row(
        "slowest call", f"{slowest:.2f} s", "note", "a step waits for it: cut long replies before they are parsed"
    )


def _trouble_row(case: str, outcomes: Sequence[Outcome], attack: Attack | None = None) -> Row | None:
    """A row for outcomes without a number. None: all have one."""
    troubled = [outcome for outcome in outcomes if outcome.trouble]
    if not troubled:
        return None
    worst = next((outcome for outcome in troubled if outcome.trouble != "not tried"), troubled[0])
    if worst.trouble == "not tried":
        return Row(case, "", "not tried", worst.reason)
    advice = attack.advice(worst.trouble) if attack else NO_SCORE if worst.trouble == "no score" else ""
    what = f"{worst.reason}; {advice}" if advice else worst.reason
    count = sum(outcome.trouble == worst.trouble for outcome in troubled)
    return Row(case, f"{count} of {len(outcomes)}", worst.trouble, what)


def _rewards(outcomes: Sequence[Outcome]) -> str:
    values = [outcome.value for outcome in outcomes if outcome.value is not None]
    low, high = min(values), max(values)
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
