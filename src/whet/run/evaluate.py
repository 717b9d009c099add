"""`whet eval`: measure a run's last policies, or the models that settings name, as their method measures."""

from __future__ import annotations

import json
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
from whet.methods.evaluator import EvalSettings, Metrics
from whet.methods.registry import METHODS, config_of
from whet.registry import UnknownName
from whet.run.data import load_tasks, measured_problems
from whet.run.launch import saved_config
from whet.run.provenance import changed_inputs, compute_provenance, in_short
from whet.run.session import Session, prepare
from whet.run_folder.files import check_places, disk_error, write_atomic
from whet.run_folder.folder import RunFolder, trace_within
from whet.tasks.row_formats import DataError
from whet.tasks.splits import num_shared
from whet.trainer.checkpoint import load_state, newest_whole
from whet.trainer.loop import Progress


def target_of(target: str, file: Path | None, overrides: Sequence[str]) -> tuple[RunConfig, Path | None]:
    """What is to be measured: a run's settings and its folder, or a method's settings.

    Args:
        target: a run folder, or the name of a method.
        file, overrides: settings; of a run, single ones only.
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
    """Metrics by row; with a run, also written to its `eval/` with the traces.

    Args:
        run: a run folder, whose last checkpoint's policies are taken; None: the config's own models.
    Returns: the metrics, and the session that measured them, closed.
    Raises: ConfigError, DataError, RunError.
    """
    with measuring(config, run, settings.split, settings.changed, progress) as (session, said):
        of_run = run is not None
        evaluator, spec = session.algorithm.evaluator, session.algorithm.spec
        names = [*map(spec.target_of, settings.names)] or evaluator.targets(of_run=of_run)
        if not names:
            raise ConfigError(
                f"{config.method} makes data, and nothing of it is measured: train a model on it, and measure that"
            )
        found = {}
        progress.begin("evaluation", 0, len(names))
        for number, name in enumerate(names, 1):
            measured = evaluator.measure(name, settings, of_run=of_run)
            found[measured.row] = measured.metrics
            if run is not None:
                record = {**measured.record, "data": said, "settings": asdict(settings), "metrics": measured.metrics}
                traces = [trace_within(each, config.max_trace_bytes) for each in measured.traces]
                keep(run, measured.place + tag(settings.changed), record, traces)
            shown = spec.report_of(config).best
            progress.step(number, {shown: measured.metrics.get(shown)})
        progress.end()
        return found, session


@contextmanager
def measuring(
    config: RunConfig, run: Path | None, split: str, changed: Sequence[str], progress: Progress
) -> Iterator[tuple[Session, str]]:
    """A session that measures and trains nothing, with a run's last policies; and what is measured, in a sentence.

    Args:
        changed: settings other than the run's, `key=value`.
    Raises: ConfigError, DataError, RunError.
    """
    keys = {dotted(key) for setting in changed for key in leaves(parse_override(setting))}
    problems = measured_problems(config.data, split, None if run is None else keys)
    session = prepare(config, progress, RunFolder(run or Path()), problems)
    try:
        said = _said(session, split)
        if problems.parts:
            progress.tell("info", said)
        if run is not None:
            _load(session, config, run, keys)
            _say_what_was_trained_on(session, run, split, keys)
        yield session, said
    finally:
        session.close_services()


def _said(session: Session, split: str) -> str:
    """How many problems are measured, and of what."""
    problems = session.problems
    total, count = len(problems.tasks[split]), len(session.algorithm.evaluator.measured_tasks(split))
    number = f"{total} problems"
    if count < total:
        option = f"evaluation.num_{'test' if split == 'test' else 'validation'}"
        number = f"the first {count} ({option}) of {total} problems"
    return f"measured: {number}, {problems.parts.get(split, f'the {split} split')} ({problems.recognised})"


def _say_what_was_trained_on(session: Session, run: Path, split: str, changed: Collection[str]) -> None:
    """Problems of another file than the run's own may be among those that it was trained on."""
    if split == "train" or not any(key.startswith("data.") for key in changed):
        return
    tasks = session.algorithm.evaluator.measured_tasks(split)
    try:
        trained = load_tasks(saved_config(run).data).tasks["train"]
    except DataError:  # its files are not here
        return
    if known := num_shared(tasks, trained):
        session.loop.progress.tell("warning", f"the run was trained on {known} of these {len(tasks)} problems")


def beside_training(run: Path, config: RunConfig, problems: str, settings: EvalSettings) -> str:
    """How what was measured of a run stands to the table that its training ended with: whether of the same problems,
    sampled alike, under the same settings.

    Args:
        config: that it was measured with.
        problems: what they are called.
    """
    if not (run / "summary.json").is_file():
        return "The run has not finished, so there is no table of training to hold this against."
    changed = tree_difference(plain(saved_config(run)), plain(config))
    of_data = [each for each in changed if each.startswith(("data.", "evaluation.num_test"))]
    others = [each for each in changed if each not in of_data]
    which = [f"the {settings.split} split"] if settings.split != "test" else []
    which += of_data
    said = [f"other {problems} ({', '.join(which)})" if which else f"the same test {problems}"]
    there = max(1, getattr(getattr(config, "evaluation", None), "num_samples", 1))
    here = settings.num_samples
    if here != there:
        count = f"{here} sampled each here" if here > 1 else "one greedy each here"
        said.append(f"other sampling ({count}, {there} there; --samples {there} is as there)")
    elif settings.num_refinements > 1:
        said.append(f"other sampling ({settings.num_refinements} refinements each here, one there)")
    elif here > 1 and settings.temperature is not None:
        said.append(f"other sampling (at temperature {settings.temperature:g} here)")
    else:
        said.append("the same sampling")
    said += [f"other settings ({', '.join(others)})"] if others else []
    return f"Beside the table of training: {'; '.join(said)}."


def _load(session: Session, config: RunConfig, run: Path, changed: Collection[str]) -> None:
    """The policies of a run's last checkpoint, but for one that the settings put another model in the place of. Other
    data than it was trained with are said."""
    models = {key.rpartition(".")[0] for key, kind, _ in inputs_of(config) if kind == "model"}
    swappable, swapped = session.algorithm.spec.swappable, set[str]()
    for key in sorted(changed):
        for model in models:
            if key.startswith((f"{model}.path", f"{model}.dtype", f"{model}.lora")):
                swapped.add(model)
                if model not in swappable:
                    raise ConfigError(_kept_model(key, swappable))
    saved, passed = newest_whole(run)
    if passed:
        session.loop.progress.tell("warning", f"{'; '.join(passed)}; measuring {saved}")
    if saved is None:
        raise RunError(f"{run} has no checkpoint yet; `whet resume {run}` goes on with it")
    changes = changed_inputs(load_state(saved)["origin"], compute_provenance(config))
    changes = [change for change in changes if change.partition(" ")[0] not in changed]
    if changes:
        session.loop.progress.tell("warning", f"measured otherwise than trained: {in_short(changes)}")
    session.loop.load_policies(saved, but=swapped)


def _kept_model(key: str, swappable: Sequence[str]) -> str:
    other = f" (another may sit in for: {', '.join(swappable)})" if swappable else ""
    return (
        f"{key} changes the model, and a run's checkpoint is measured with the run's own{other}: leave it out, or name "
        "a method instead of the run to measure another model"
    )


def tag(changed: Sequence[str]) -> str:
    """A few characters that name other settings than the run's."""
    return f"-{sha256(' '.join(sorted(changed)).encode()).hexdigest()[:8]}" if changed else ""


def eval_folder(run: Path) -> Path:
    """Where a run's measurements are kept.

    Raises: RunError where it cannot be written into.
    """
    check_places(run, (), ("eval",))
    folder = run / "eval"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise disk_error(folder, error) from error
    return folder


def keep(run: Path, name: str, record: Mapping[str, Any], traces: Iterable[Mapping[str, Any]]) -> None:
    """A measurement, and the texts behind it."""
    folder = eval_folder(run)
    write_atomic(folder / f"{name}.traces.jsonl", "".join(json.dumps(t) + "\n" for t in traces))
    write_atomic(folder / f"{name}.json", json.dumps(record, indent=1) + "\n")
