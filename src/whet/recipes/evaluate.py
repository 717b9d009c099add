"""`whet eval`: critics of a run, or any models, put through the critique protocol; or a policy that answers alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from whet.config.base import ConfigError
from whet.evals.critique import Metrics
from whet.evals.protocol import measure, measure_samples, play_rounds, trace_rows
from whet.play.critique import CritiqueRound
from whet.recipes.critique_rl import ROWS, CritiqueRL
from whet.recipes.critique_rl_config import CritiqueRLConfig
from whet.recipes.oracles import RULE_CRITICS
from whet.recipes.origin import changed_inputs, in_short, origin_of
from whet.recipes.session import Session, prepare
from whet.recipes.solve import SolveRecipe
from whet.recipes.solve_answers import BEST, POLICY
from whet.recipes.solve_config import SolveConfig
from whet.training.checkpoint import load_state, newest_whole
from whet.training.files import RunError, check_places, disk_error, write_whole
from whet.training.folder import RunFolder
from whet.training.loop import Progress
from whet.types import Episode


@dataclass(frozen=True)
class EvalSettings:
    """What `whet eval` was asked for."""

    critics: tuple[str, ...] = ()
    """Frozen critics of the run, or rule critics. Empty: all of the run's."""
    split: str = "test"
    num_samples: int = 1
    """Chains a problem. More than 1: sampled, with majority votes."""
    temperature: float | None = None
    """Of samples. None: 0.7 for critics, as in the paper; for a policy alone the run's own."""
    changed: tuple[str, ...] = ()
    """Settings other than the run's, `key=value`: they are in the record, and its name tells them apart."""


def evaluate_critics(
    config: CritiqueRLConfig, run: Path | None, settings: EvalSettings, progress: Progress
) -> dict[str, Metrics]:
    """Metrics by critic; with a run, also written to its `eval/` with the traces.

    Args:
        run: a run folder, whose last checkpoint's policies are taken; None: the config's own models.
    Raises: ConfigError, DataError, RunError.
    """
    session = prepare(config, progress, RunFolder(run or Path()))
    try:
        recipe = session.recipe
        assert isinstance(recipe, CritiqueRL)
        _load(session, run, settings)
        names = settings.critics or tuple(n for n in ROWS if n in recipe.run.policies) or ("critic",)
        found = {}
        progress.begin("evaluation", 0, len(names))
        for number, name in enumerate(names, 1):
            metrics, episodes = _one(recipe, name, settings)
            found[ROWS.get(name, name)] = metrics
            if run is not None:
                _write(run, name, settings, config, metrics, episodes)
            progress.step(number, {"acc_refine": metrics.get("acc_refine"), "acc_dis": metrics.get("acc_dis")})
        progress.end()
        return found
    finally:
        session.grader.close()


def evaluate_solver(
    config: SolveConfig, run: Path | None, settings: EvalSettings, progress: Progress
) -> dict[str, Metrics]:
    """Metrics by row: a run's `best` and `last` policy, or `policy`, the config's own model. Greedy replies, and
    `num_samples` sampled ones where that is more than 1.

    Raises: ConfigError, DataError, RunError.
    """
    if settings.num_samples > 1 and settings.temperature is not None:
        config = config.model_copy(
            update={"sampling": config.sampling.model_copy(update={"temperature": settings.temperature})}
        )
    session = prepare(config, progress, RunFolder(run or Path()))
    try:
        recipe = session.recipe
        assert isinstance(recipe, SolveRecipe)
        _load(session, run, settings)
        known = {"policy": POLICY} if run is None else {"best": BEST, "last": POLICY}
        names = settings.critics or tuple(known)
        if unknown := [name for name in names if name not in known]:
            raise ConfigError(f"there is no policy {unknown[0]!r} to measure; choose of: {', '.join(known)}")
        options = config.evaluation
        tasks = recipe.tasks[settings.split]
        tasks = tasks[: options.num_test if settings.split == "test" else options.num_validation]
        count = settings.num_samples if settings.num_samples > 1 else 0
        found = {}
        progress.begin("evaluation", 0, len(names))
        for number, name in enumerate(names, 1):
            metrics, traces = recipe.solvers.measured(
                tasks, known[name], num_samples=count, phase="eval", step=0, split=settings.split, label=name
            )
            found[name] = dict(metrics)
            if run is not None:
                record = {"policy": name, "settings": asdict(settings), "metrics": metrics}
                place = f"{name}-{settings.split}-n{len(tasks)}-k{settings.num_samples}"
                place += f"-t{config.sampling.temperature:g}" if count else ""
                place += _tag(settings.changed)
                _keep(run, place, record, traces)
            progress.step(number, {"acc": metrics.get("acc"), "average": metrics.get("average")})
        progress.end()
        return found
    finally:
        session.grader.close()


_MODEL_SETTING = re.compile(r"(?:actor|critic|policy|value)\.(?:path|dtype|lora)\b")


def _load(session: Session, run: Path | None, settings: EvalSettings) -> None:
    """The policies of a run's last checkpoint. Other data than it was trained with are said."""
    if run is None:
        return
    if own := [setting for setting in settings.changed if _MODEL_SETTING.match(setting)]:
        raise ConfigError(
            f"{own[0]} changes the model, and a run's checkpoint is measured with the run's own: leave it out, or name "
            "a recipe instead of the run to measure another model"
        )
    saved, passed = newest_whole(run)
    if passed:
        session.run.progress.tell("warning", f"{'; '.join(passed)}; measuring {saved}")
    if saved is None:
        raise RunError(f"{run} has no checkpoint yet; `whet resume {run}` goes on with it")
    before = load_state(saved).get("origin")
    changes = changed_inputs(before, origin_of(session.recipe.config)) if before else []
    overridden = {setting.partition("=")[0] for setting in settings.changed}
    changes = [change for change in changes if change.partition(" ")[0] not in overridden]
    if changes:
        session.run.progress.tell("warning", f"measured otherwise than trained: {in_short(changes)}")
    session.run.load_policies(saved)


def _critics_temperature(settings: EvalSettings) -> float:
    return 0.7 if settings.temperature is None else settings.temperature


def _tag(changed: Sequence[str]) -> str:
    """A few characters that name other settings than the run's."""
    return f"-{sha256(' '.join(sorted(changed)).encode()).hexdigest()[:8]}" if changed else ""


def _keep(run: Path, name: str, record: Mapping[str, Any], traces: Iterable[Mapping[str, Any]]) -> None:
    check_places(run, (), ("eval",))
    folder = run / "eval"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise disk_error(folder, error) from error
    write_whole(folder / f"{name}.traces.jsonl", "".join(json.dumps(t) + "\n" for t in traces))
    write_whole(folder / f"{name}.json", json.dumps(record, indent=1) + "\n")


def _one(recipe: CritiqueRL, critic: str, settings: EvalSettings) -> tuple[Metrics, Sequence[Episode]]:
    options = recipe.config.evaluation
    tasks = recipe.tasks[settings.split]
    tasks = tasks[: options.num_test if settings.split == "test" else options.num_validation]
    common: dict[str, Any] = {
        "num_rounds": options.num_rounds, "history": options.history, "keep_right": options.oracle_verifier,
    }  # fmt: skip
    greedy = settings.num_samples == 1
    if critic in RULE_CRITICS:
        if recipe.config.data.kind != "chains":
            raise ConfigError(f"the rule critic {critic!r} knows the tiny world only: choose a critic of the run")
        rounds: CritiqueRound = recipe.rounds(("eval",), "critic", greedy=greedy, **common)
        rounds = CritiqueRound(**{**vars(rounds), "critic": RULE_CRITICS[critic]})
    elif critic in recipe.run.policies:
        rounds = recipe.rounds(("eval",), critic, greedy=greedy, temperature=_critics_temperature(settings), **common)
    else:
        known = ", ".join([*(n for n in recipe.run.policies if n != "actor"), *RULE_CRITICS])
        raise ConfigError(f"there is no critic {critic!r}; choose of: {known}")
    episodes = play_rounds(rounds, tasks, recipe.services(), num_samples=settings.num_samples)
    every = [episode for group in episodes for episode in group]
    return measure(every) | ({} if greedy else measure_samples(episodes)), every


def _write(
    run: Path,
    critic: str,
    settings: EvalSettings,
    config: CritiqueRLConfig,
    metrics: Metrics,
    episodes: Sequence[Episode],
) -> None:
    options = config.evaluation.model_dump()
    name = f"{ROWS.get(critic, critic)}-{settings.split}-k{settings.num_samples}-r{config.evaluation.num_rounds}"
    name += f"-t{_critics_temperature(settings):g}" if settings.num_samples > 1 else ""
    name += f"-{config.evaluation.history}" if config.evaluation.num_rounds > 1 else ""
    name += "-oracle_verifier" if config.evaluation.oracle_verifier else ""
    name += _tag(settings.changed)
    record = {"critic": critic, "settings": asdict(settings), "evaluation": options, "metrics": metrics}
    traces = trace_rows(episodes, phase="eval", step=0, split=settings.split, critic=ROWS.get(critic, critic))
    _keep(run, name, record, traces)
