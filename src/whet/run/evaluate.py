"""`whet eval`: measures a run's last policies, or the models that settings name, by their method's evaluation."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from whet.config.base import ConfigError, dotted, plain
from whet.config.inputs import inputs_of
from whet.config.loading import leaves, parse_override
from whet.config.runs import RunConfig
from whet.config.show import tree_difference
from whet.errors import RunError
from whet.methods import METHODS
from whet.methods.evaluator import EvalSettings, Metrics
from whet.methods.registry import config_of
from whet.registry import UnknownName
from whet.run.data import load_tasks, measured_problems
from whet.run.launch import saved_config
from whet.run.provenance import changed_inputs, compute_provenance, first_few
from whet.run.session import Session, prepare
from whet.run_folder.files import check_places, disk_error, write_atomic
from whet.run_folder.folder import RunFolder, trace_within
from whet.tasks.row_formats import DataError
from whet.tasks.splits import num_shared
from whet.trainer.checkpoint import load_state, newest_whole
from whet.trainer.loop import Progress


def target_of(target: str, file: Path | None, overrides: Sequence[str]) -> tuple[RunConfig, Path | None]:
    """The eval target: a run's settings and its folder, or a method's settings and None.

    Args:
        target: a run folder, or the name of a method.
        file: settings of a method; None for a run.
        overrides: single settings, `key=value`.
    Raises: ConfigError where it is neither; PluginError.
    """
    run = Path(target)
    is_run = (run / "config.yaml").exists()
    if is_run and target in METHODS:
        raise ConfigError(f"{target} is a method, and a run's folder here: write ./{target} for the run")
    if is_run:
        if file is not None:
            raise ConfigError(f"{target} has its settings already: change single ones (key.sub=value), not by {file}")
        return saved_config(run, overrides), run
    try:
        return config_of(target, file, overrides), None
    except UnknownName as error:
        raise ConfigError(f"{target!r} is neither a run folder nor a method; `whet methods` lists those") from error


def evaluate(
    config: RunConfig, run: Path | None, settings: EvalSettings, progress: Progress
) -> tuple[dict[str, Metrics], Session]:
    """Metrics by row of the table. Those of a run are also written to its `eval/`, with the traces.

    Args:
        run: the folder of a run, whose last checkpoint is measured. None: the config's models are.
    Returns: the metrics, and the session that measured them, closed.
    Raises: ConfigError, DataError, RunError.
    """
    with measuring(config, run, settings.split, settings.changed, progress) as (session, description):
        of_run = run is not None
        evaluator, spec = session.algorithm.evaluator, session.algorithm.spec
        names = [*map(spec.target_of, settings.names)] or evaluator.targets(of_run=of_run)
        if not names:
            raise ConfigError(
                f"{config.method} makes data, and nothing of it is measured: train a model on it, and measure that"
            )
        metrics = {}
        progress.begin("evaluation", 0, len(names))
        for number, name in enumerate(names, 1):
            measured = evaluator.measure(name, settings, of_run=of_run)
            metrics[measured.row] = measured.metrics
            if run is not None:
                record = {
                    **measured.record,
                    "data": description,
                    "settings": asdict(settings),
                    "metrics": measured.metrics,
                }
                traces = [trace_within(trace, config.max_trace_bytes) for trace in measured.traces]
                keep(run, measured.place + tag(settings.changed), record, traces)
            best = spec.report_of(config).best
            progress.step(number, {best: measured.metrics.get(best)})
        progress.end()
        return metrics, session


@contextmanager
def measuring(
    config: RunConfig, run: Path | None, split: str, changed: Sequence[str], progress: Progress
) -> Iterator[tuple[Session, str]]:
    """A session that measures and does not train, with a run's last policies; and a sentence on what it measures.

    Args:
        changed: settings other than the run's, `key=value`.
    Raises: ConfigError, DataError, RunError.
    """
    keys = {dotted(key) for setting in changed for key in leaves(parse_override(setting))}
    problems = measured_problems(config.data, split, None if run is None else keys)
    session = prepare(config, progress, RunFolder(run or Path()), problems)
    try:
        description = _description(session, split)
        if problems.parts:
            progress.tell("info", description)
        if run is not None:
            _load_policies(session, config, run, keys)
            _warn_of_training_problems(session, run, split, keys)
        yield session, description
    finally:
        session.close_services()


def _description(session: Session, split: str) -> str:
    """How many problems are measured, and from which data."""
    problems = session.problems
    total, count = len(problems.tasks[split]), len(session.algorithm.evaluator.measured_tasks(split))
    number = f"{total} problems"
    if count < total:
        option = f"evaluation.num_{'test' if split == 'test' else 'validation'}"
        number = f"the first {count} ({option}) of {total} problems"
    return f"measured: {number}, {problems.parts.get(split, f'the {split} split')} ({problems.recognised})"


def _warn_of_training_problems(session: Session, run: Path, split: str, changed: Collection[str]) -> None:
    """Warns where problems of another file are among those that the run was trained on."""
    if split == "train" or not any(key.startswith("data.") for key in changed):
        return
    tasks = session.algorithm.evaluator.measured_tasks(split)
    try:
        train_tasks = load_tasks(saved_config(run).data).tasks["train"]
    except DataError:  # the run's files are not here
        return
    if count := num_shared(tasks, train_tasks):
        session.loop.progress.tell("warning", f"the run was trained on {count} of these {len(tasks)} problems")


def beside_training(run: Path, config: RunConfig, problems: str, settings: EvalSettings) -> str:
    """A sentence that compares a measurement of a run with the table that its training ended with.

    It says whether problems, sampling and other settings are the same.

    Args:
        config: of the measurement.
        problems: the word for problems, in the plural.
        settings: of the measurement.
    """
    if not (run / "summary.json").is_file():
        return "The run has not finished, so there is no table of training to hold this against."
    changed = tree_difference(plain(saved_config(run)), plain(config))
    data_changes = [change for change in changed if change.startswith(("data.", "evaluation.num_test"))]
    grader_changes = [change for change in data_changes if change.startswith(("data.grader", "data.timeout_s"))]
    data_changes = [change for change in data_changes if change not in grader_changes]
    other_changes = [change for change in changed if change not in (*data_changes, *grader_changes)]
    which = [f"the {settings.split} split"] if settings.split != "test" else []
    which += data_changes
    clauses = [f"other {problems} ({', '.join(which)})" if which else f"the same test {problems}"]
    clauses += [f"another grader ({', '.join(grader_changes)})"] if grader_changes else []
    there = max(1, getattr(getattr(config, "evaluation", None), "num_samples", 1))
    here = settings.num_samples
    if here != there:
        count = f"{here} sampled each here" if here > 1 else "one greedy each here"
        clauses.append(f"other sampling ({count}, {there} there; --samples {there} is as there)")
    elif settings.num_refinements > 1:
        clauses.append(f"other sampling ({settings.num_refinements} refinements each here, one there)")
    elif here > 1 and settings.temperature is not None:
        clauses.append(f"other sampling (at temperature {settings.temperature:g} here)")
    else:
        clauses.append("the same sampling")
    clauses += [f"other settings ({', '.join(other_changes)})"] if other_changes else []
    return f"Beside the table of training: {'; '.join(clauses)}."


def _load_policies(session: Session, config: RunConfig, run: Path, changed: Collection[str]) -> None:
    """Loads the policies of a run's last checkpoint, except those that settings replace by another model.

    It warns where inputs differ from those of training.
    """
    replaced = _replaced_models(config, session.algorithm.spec.swappable, changed)
    saved, skipped = newest_whole(run)
    if skipped:
        session.loop.progress.tell("warning", f"{'; '.join(skipped)}; measuring {saved}")
    if saved is None:
        raise RunError(f"{run} has no checkpoint yet; `whet resume {shlex.quote(str(run))}` goes on with it")
    changes = changed_inputs(load_state(saved)["origin"], compute_provenance(config))
    changes = [change for change in changes if change.partition(" ")[0] not in changed]
    if changes:
        session.loop.progress.tell("warning", f"measured otherwise than trained: {first_few(changes)}")
    session.loop.load_policies(saved, but=replaced)


def _replaced_models(config: RunConfig, swappable: Sequence[str], changed: Collection[str]) -> set[str]:
    """The models that changed settings replace.

    Args:
        swappable: the models that may be replaced.
        changed: dotted keys.
    Raises: ConfigError where another model would be.
    """
    models = {key.rpartition(".")[0] for key, kind, _ in inputs_of(config) if kind == "model"}
    replaced = set[str]()
    for key in sorted(changed):
        for model in models:
            if key.startswith((f"{model}.path", f"{model}.dtype", f"{model}.lora")):
                replaced.add(model)
                if model not in swappable:
                    other = f" (another may sit in for: {', '.join(swappable)})" if swappable else ""
                    raise ConfigError(
                        f"{key} changes the model, and a run's checkpoint is measured with the run's own{other}: leave "
                        "it out, or name a method instead of the run to measure another model"
                    )
    return replaced


def tag(changed: Sequence[str]) -> str:
    """A suffix that identifies settings other than the run's. Empty: there are none."""
    return f"-{sha256(' '.join(sorted(changed)).encode()).hexdigest()[:8]}" if changed else ""


def eval_folder(run: Path) -> Path:
    """The folder of a run's measurements, made if it is missing.

    Raises: RunError where it cannot be written to.
    """
    check_places(run, (), ("eval",))
    folder = run / "eval"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise disk_error(folder, error) from error
    return folder


def keep(run: Path, name: str, record: Mapping[str, Any], traces: Iterable[Mapping[str, Any]]) -> None:
    """Writes a measurement and the traces behind it into the run's `eval/`.

    Raises: RunError where they cannot be written.
    """
    folder = eval_folder(run)
    write_atomic(folder / f"{name}.traces.jsonl", "".join(json.dumps(trace) + "\n" for trace in traces))
    write_atomic(folder / f"{name}.json", json.dumps(record, indent=1) + "\n")
