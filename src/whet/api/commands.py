"""`whet train` and `whet eval` as functions: the same settings, the same folders, the same errors.

Settings have names as in a config file. Those of a part are a mapping, `learning={"learning_rate": 1e-3}`, or have
its name before a dot, `**{"learning.learning_rate": 1e-3}`. Other settings keep their defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.api.run import Run
from whet.api.watching import StepFunction, watched
from whet.config import ConfigError
from whet.config.base import Config, plain
from whet.config.yaml_text import NotYaml, compact
from whet.exits import exits_refused

if TYPE_CHECKING:
    from whet.trainer.loop import Progress

Settings = str | Path | Mapping[str, Any] | Config
"""A YAML file, or the settings themselves."""
SPLITS = ("train", "validation", "test")


def train(
    method: str,
    *,
    out: str | Path = "runs/run",
    config: Settings | None = None,
    overwrite: bool = False,
    accept_changes: bool = False,
    progress: bool | Progress | StepFunction = True,
    **settings: Any,
) -> Run:
    """Run a method from start to table and report. Resume the run in `out`, if its settings are the same.

        run = whet.train("grpo", out="runs/first", num_steps=20, learning={"learning_rate": 1e-3})

    Args:
        method: a name of `whet.METHODS`.
        out: the run's folder.
        config: settings to begin with, such as another run's `config`. Settings by name override it.
        overwrite: delete the run in `out` first.
        accept_changes: resume though inputs, threads or logs have changed.
        progress: True shows bars. False shows nothing, and logs warnings. A function is called after each step as
            `progress(phase, step, num_steps, metrics)`, and warnings are logged. An object with `begin`, `step`, `tell`
            and `end` (`whet.trainer.loop.Progress`) receives everything.
    Returns: the finished run.
    Raises: WhetError for errors that a user can fix: ConfigError, RunError, ...; `Stopped` after Ctrl-C, with the run
        saved.
    """
    from whet.methods.registry import config_of, preset_of
    from whet.run import launch

    folder, (file, overrides) = Path(out), _sources(config, settings)
    wanted = config_of(method, file, overrides)
    titles = preset_of(wanted.method).algorithm.spec.report.phases
    with exits_refused(), _torch_as_it_was(), watched(progress, titles) as watcher:
        begun = launch.start(wanted, folder, watcher, overwrite=overwrite, accept_changes=accept_changes)
        if not isinstance(begun, dict):
            launch.go(begun, folder, watcher)
            Run.open(folder).report()
    return Run.open(folder)


def evaluate(
    target: str | Path | Run, *, names: str | Sequence[str] = (), split: str = "test", samples: int = 1,
    refinements: int = 1, temperature: float | None = None, benchmark: str = "", config: Settings | None = None,
    progress: bool | Progress | StepFunction = False, **settings: Any,
) -> dict[str, dict[str, float | None]]:  # fmt: skip
    """Measure a run's last policies. With a method's name, measure the models of its settings. A run's measurements are
    saved in its folder, under `eval/`.

        whet.evaluate("runs/first", samples=8)["stage2"]["majority_refine"]
        whet.evaluate("runs/first", benchmark="first_error", file="labelled.json")

    Args:
        target: a run or its folder; or a method.
        names: what to measure. Critics: `critic_sft`, ..., `oracle`. A policy alone: `best` and `last`. An agent:
            `after` and `last`. Empty: all of the run's.
        split: of the problems: train, validation or test.
        samples: replies for each problem. 1: a greedy one. More are sampled, with majority votes.
        refinements: with critics, for each greedy critique. 1: a greedy one. More are sampled, with pass@k.
        temperature: of samples. None: the method's usual one.
        benchmark: a name of `whet.BENCHMARKS`, which says what is asked and measured. The target is then a run or any
            model, and the settings are those of `whet.config.benchmark`. Empty: as the method measures.
    Returns: metrics by row. None: there was nothing to divide by.
    Raises: WhetError, as `train`.
    """
    from whet.api.benchmarks import measure as measure_benchmark
    from whet.api.benchmarks import settings_of
    from whet.methods.evaluator import EvalSettings
    from whet.run.evaluate import evaluate as measure
    from whet.run.evaluate import target_of

    if split not in SPLITS or min(samples, refinements) < 1:
        raise ConfigError(
            f"split = {split!r} has to be one of {', '.join(SPLITS)}, and samples = {samples} and refinements = "
            f"{refinements} at least 1"
        )
    if temperature is not None and not 0 <= temperature < float("inf"):
        raise ConfigError(f"temperature = {temperature} has to be 0 or more")
    file, overrides = _sources(config, settings)
    place = str(target.folder if isinstance(target, Run) else target)
    if benchmark:
        options = {
            "names": bool(names),
            "split": split != "test",
            "samples": samples > 1,
            "refinements": refinements > 1,
            "temperature": temperature is not None,
        }
        given = [name for name, is_given in options.items() if is_given]
        benchmark_config = settings_of(benchmark, file, overrides, options=given)
        with exits_refused(), _torch_as_it_was():
            measurement = measure_benchmark(place, benchmark_config)
        return {measurement.policy: dict(measurement.metrics)}
    wanted, folder = target_of(place, file, overrides)
    eval_settings = EvalSettings(
        (names,) if isinstance(names, str) else tuple(names),
        split,
        samples,
        temperature,
        refinements,
        tuple(overrides) if folder is not None else (),
    )
    with exits_refused(), _torch_as_it_was(), watched(progress) as watcher:
        measured, _ = measure(wanted, folder, eval_settings, watcher)
    return {row: dict(metrics) for row, metrics in measured.items()}


def scale(
    target: str | Path | Run, strategies: str | Sequence[str] = "all", budgets: Sequence[int] = (), *,
    names: str | Sequence[str] = (), split: str = "test", temperature: float | None = None, level_samples: int = 8,
    text_votes: bool = False, config: Settings | None = None, progress: bool | Progress | StepFunction = False,
    **settings: Any,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Measure strategies of inference scaling at budgets of tokens. See docs/test-time.md.

        records = whet.scale("runs/first", ["majority", "parallel"], [100, 200, 400])
        records["stage2"]["strategies"]["parallel"]["points"][-1]["accuracy"]

    Args:
        target: a run or its folder; or a method.
        strategies: names of `whet.STRATEGIES`, with options as in `critic_weighted:by=probability`.
        budgets: generated tokens for each question. Empty: 1, 2, 4, 8 and 16 times an answer's limit.
        names: critics, or policies that answer alone. Empty: the run's best.
        temperature: of samples. None: the method's usual one.
        level_samples: answers only for estimating a question's difficulty. 0: none.
        text_votes: count equal texts, and not answers that the grader finds equal.
    Returns: a record for each row; see `whet.run.inference_scaling.scale`. A run saves it, and every sample, in
        `eval/`.
    Raises: WhetError, as `train`.
    """
    from whet.evaluation.inference_scaling import strategies_of
    from whet.run.evaluate import target_of
    from whet.run.inference_scaling import ScaleSettings
    from whet.run.inference_scaling import scale as measure

    if split not in SPLITS or level_samples < 0:
        raise ConfigError(f"split = {split!r} has to be one of {', '.join(SPLITS)}, and level_samples 0 or more")
    file, overrides = _sources(config, settings)
    wanted, folder = target_of(str(target.folder if isinstance(target, Run) else target), file, overrides)
    chosen = strategies_of(strategies if isinstance(strategies, str) else ",".join(strategies))
    scale_settings = ScaleSettings(
        chosen,
        tuple(budgets),
        (names,) if isinstance(names, str) else tuple(names),
        split,
        temperature,
        level_samples,
        text_votes,
        tuple(overrides) if folder is not None else (),
    )
    with exits_refused(), _torch_as_it_was(), watched(progress) as watcher:
        return measure(wanted, folder, scale_settings, watcher)


def overrides_of(settings: Mapping[str, Any]) -> list[str]:
    """Python values as the command line's `key=value`, so that one parser reads both.

    Raises: ConfigError where a config file could not hold a value.
    """
    return [f"{name}={_in_yaml(name, value)}" for name, value in settings.items()]


def _in_yaml(name: str, value: Any) -> str:
    try:
        return compact(plain(value))
    except (NotYaml, RecursionError) as error:
        raise ConfigError(
            f"{name}: {type(value).__name__} {str(value)[:60]!r} can be no setting: give numbers, text, lists or "
            "mappings of Python's own"
        ) from error


def _sources(config: Settings | None, settings: Mapping[str, Any]) -> tuple[Path | None, list[str]]:
    """The config file, if `config` is one, and single settings. Later ones win."""
    if isinstance(config, str | Path):
        return Path(config), overrides_of(settings)
    whole = plain(config) if config is not None else {}
    return None, overrides_of(whole) + overrides_of(settings)


@contextmanager
def _torch_as_it_was() -> Iterator[None]:
    """Restores the threads, the seed and the kernels that a run sets in its process. So a second run gives the same
    results as in a fresh process."""
    import torch

    threads, state = torch.get_num_threads(), torch.get_rng_state()
    deterministic = torch.get_deterministic_debug_mode()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)
        torch.set_deterministic_debug_mode(deterministic)
