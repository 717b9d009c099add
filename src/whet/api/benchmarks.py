"""A model measured by a registered benchmark: tasks, replies, grades, metrics."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whet.api.asking import Asked, written_by
from whet.config import ConfigError
from whet.config.base import plain
from whet.config.benchmark import BenchmarkConfig
from whet.config.loading import canonical, merged, of_tree, parse_override
from whet.config.parts import EngineConfig, ModelConfig, SamplingConfig
from whet.config.yaml_text import read_file
from whet.digests import recorded_reads
from whet.evaluation.critique import Metrics
from whet.evaluation.user_benchmarks import BENCHMARKS, Benchmark, BenchmarkError, Graded
from whet.models.policy import Policy, load_policies
from whet.near import near_names
from whet.plugins import load_entry_points, load_plugins
from whet.run.evaluate import eval_folder, keep, tag
from whet.run.load import LoadedRun, load_run
from whet.seeds import seed_of
from whet.tasks.files import DataError, file_rows
from whet.tasks.prompts import Prompts, find_prompts
from whet.types import Grade, Segment, Task

MAX_NEW_TOKENS = 512
"""Of a reply by a model of which no run says it."""


@dataclass(frozen=True)
class Measurement:
    """What a benchmark found."""

    policy: str
    """The name of the policy that was measured; of a model that is no run's, `policy`."""
    metrics: Mapping[str, float | None]
    failures: Mapping[str, int]
    """Why replies have no score, and how often."""
    digests: Mapping[str, str]
    """Sha256 of each file that the numbers come from, of the bytes as they were read."""
    kept: Path | None
    """The file in the run's `eval/`. None: the model is no run's."""


def settings_of(
    name: str, file: Path | None = None, overrides: Sequence[str] = (), *, options: Sequence[str] = ()
) -> BenchmarkConfig:
    """The settings of a measurement by a benchmark.

    Args:
        name: of the benchmark.
        file: YAML with settings.
        overrides: `key=value`; they win over the file.
        options: others that were given, and that no benchmark reads, such as `--samples`.
    Raises: ConfigError where something is given that the benchmark does not read; PluginError, UnknownName.
    """
    tree = canonical(BenchmarkConfig, read_file(file)) if file is not None else {}
    for override in (f"benchmark={json.dumps(name)}", *overrides):
        tree = merged(tree, canonical(BenchmarkConfig, parse_override(override)))
    unknown = [key for key in tree if key not in BenchmarkConfig.model_fields]
    config = of_tree(BenchmarkConfig, {key: value for key, value in tree.items() if key not in unknown})
    load_entry_points()
    load_plugins(config.plugins)
    _refuse_unread(BENCHMARKS.get(config.benchmark), [*options, *unknown, *_given(config)])
    return config


def _given(config: BenchmarkConfig) -> list[str]:
    """The settings that differ from their defaults, besides those that name the benchmark and the plug-ins."""
    values = {name: value for name, value in config.__dict__.items() if name not in ("benchmark", "plugins")}
    return [name for name, value in values.items() if value != BenchmarkConfig.model_fields[name].default]


def _refuse_unread(benchmark: Benchmark, given: Sequence[str]) -> None:
    """Raises: ConfigError."""
    reads = benchmark.settings
    unread = [name for name in given if name not in reads]
    if not unread:
        return
    near = [near_names(name, reads)[:1] for name in unread if name not in BenchmarkConfig.model_fields]
    advice = " or ".join(repr(name) for names in near for name in names)
    raise ConfigError(
        f"the benchmark {benchmark.name!r} does not read {', '.join(unread)}: it reads {', '.join(reads)}; "
        + (f"did you mean {advice}?" if advice else f"leave {unread[0] if len(unread) == 1 else 'them'} out")
    )


def measure(place: str | Path, config: BenchmarkConfig) -> Measurement:
    """Ask a model each task of a benchmark once, greedily, and grade what it replies.

    Args:
        place: a run folder, whose last checkpoint is taken; a folder written by `save_pretrained`; a hub id.
    Raises: ConfigError, DataError, PluginError, RunError, UnknownName; BenchmarkError where the benchmark's own code
        breaks. Of a run the replies are kept all the same.
    """
    load_entry_points()
    place = Path(place)
    run = load_run(place) if (place / "config.yaml").is_file() else None
    with recorded_reads() as digests:
        load_plugins(config.plugins)
        benchmark = BENCHMARKS.get(config.benchmark)
        _refuse_unread(benchmark, _given(config))
        tasks = _tasks(benchmark, config)
        model = _model(place, run, benchmark, config)
        if model.is_of_run:
            eval_folder(place)  # before any work: where nothing can be kept, nothing is asked
        asked = [
            Asked(messages, seed_of(0, "benchmark", benchmark.name, task.id), prefill)
            for task in tasks
            for messages, prefill in [benchmark.messages(task, model.prompts)]
        ]
        replies = written_by(
            model.policy, asked, model.sampling, model.engine, temperature=0.0, max_new_tokens=config.max_new_tokens
        )
        graded, metrics, error = _graded(benchmark, tasks, replies, model.prompts, config.timeout_s)
    entry = BENCHMARKS.entry(benchmark.name)
    name = f"benchmark-{re.sub(r'[^a-zA-Z0-9_.]+', '_', entry.name)}-{model.policy.name}-n{len(tasks)}"
    name += tag([*map(str, plain(config).items()), *digests.values()])
    if model.is_of_run:
        record = {
            "benchmark": entry.name,
            "origin": entry.origin,
            "policy": model.policy.name,
            "settings": plain(config),
            "digests": digests,
            "metrics": metrics,
        }
        traces = [_trace(each, request) for each, request in zip(graded, asked, strict=True)]
        keep(place, name, record if error is None else record | {"error": str(error) or "interrupted"}, traces)
    if error is not None:
        if not model.is_of_run:
            raise error
        where = f"the replies are kept in {place}/eval/{name}.traces.jsonl"
        raise KeyboardInterrupt(where) if isinstance(error, KeyboardInterrupt) else BenchmarkError(f"{error}; {where}")
    failures = Counter(_in_a_line(each.grade.reason) for each in graded if each.grade.score is None)
    kept = place / "eval" / f"{name}.json" if model.is_of_run else None
    return Measurement(model.policy.name, metrics or {}, failures, digests, kept)


def _graded(
    benchmark: Benchmark, tasks: Sequence[Task], replies: Sequence[Segment], prompts: Prompts | None, timeout_s: float
) -> tuple[list[Graded], Metrics | None, BenchmarkError | KeyboardInterrupt | None]:
    """The replies with their grades, and the metrics or why there are none.

    Where the user stops the grading, the replies that are left have no grade.
    """
    ungraded = Grade(score=None, reason="interrupted before it was graded")
    graded = [
        Graded(task, reply.text, ungraded, reply.stop_reason == "length")
        for task, reply in zip(tasks, replies, strict=True)
    ]
    try:
        for number, each in enumerate(graded):
            graded[number] = replace(each, grade=benchmark.grade(each.reply, each.task, prompts, timeout_s=timeout_s))
        return graded, benchmark.metrics(graded), None
    except (BenchmarkError, KeyboardInterrupt) as error:
        return graded, None, error


def _in_a_line(reason: str) -> str:
    """A grade's reason for a table: one line, without control characters."""
    text = "".join(character if character.isprintable() else " " for character in reason)
    return " ".join(text.split()) or "no reason was given"


@dataclass(frozen=True)
class _Model:
    policy: Policy
    prompts: Prompts | None
    sampling: SamplingConfig
    engine: EngineConfig
    is_of_run: bool


def _tasks(benchmark: Benchmark, config: BenchmarkConfig) -> list[Task]:
    """Raises: ConfigError, DataError, BenchmarkError."""
    if benchmark.reads_file and config.file is None:
        raise ConfigError(f"the benchmark {benchmark.name!r} reads its tasks from a file: give file=FILE")
    rows: list[Mapping[str, Any]] = []
    for where, row in file_rows(Path(config.file), "file") if config.file is not None else ():
        if not isinstance(row, dict):
            raise DataError(f"{config.file}, {where}: expected an object, {{...}}")
        rows.append(row)
    try:
        return benchmark.tasks(rows)[: config.limit]
    except DataError as error:
        raise DataError(f"{config.file}: {error}") from error


def _model(place: Path, run: LoadedRun | None, benchmark: Benchmark, config: BenchmarkConfig) -> _Model:
    """Raises: ConfigError, RunError."""
    if run is None:
        if config.policy is not None:
            raise ConfigError(f"{place} is no run folder, so it has no policy {config.policy!r}: leave policy out")
        if benchmark.uses_prompts and config.prompts is None:
            raise ConfigError(
                f"{place} is no run folder, and a model does not say how it is asked: give prompts=english, "
                "or yours, or name a run"
            )
        model = ModelConfig(path=str(place), device=config.device, dtype=config.dtype or "float32")
        [policy] = load_policies({"policy": model}).values()
        prompts = find_prompts(config.prompts) if config.prompts is not None else None
        return _Model(policy, prompts, SamplingConfig(max_new_tokens=MAX_NEW_TOKENS), EngineConfig(), is_of_run=False)
    name = config.policy or run.who(benchmark.skill)
    able = [each for each in run.versions if benchmark.skill in run.skills(each)]
    if name is None or name not in able:
        which = f"no policy {name!r} that can {benchmark.skill}" if name else f"no policy that can {benchmark.skill}"
        raise ConfigError(f"{place} has {which}; choose of: {', '.join(able) or 'none of this run'}")
    [policy] = run.load([name], device=config.device, dtype=config.dtype).values()
    limits = run.skills(name)[benchmark.skill]
    return _Model(policy, run.words(config.prompts), limits, run.engine_settings, is_of_run=True)


def _trace(graded: Graded, asked: Asked) -> dict[str, Any]:
    grade = graded.grade
    return {
        "task": graded.task.id,
        "messages": [dict(message) for message in asked.messages],
        "reply": graded.reply,
        "score": grade.score,
        "reason": grade.reason,
        "extracted": grade.extracted,
        "answer": graded.task.answer,
        "truncated": graded.is_truncated,
    }
