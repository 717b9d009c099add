"""A model measured by a registered benchmark: tasks, replies, grades, metrics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.api.asking import Asked, written_by
from whet.config import ConfigError
from whet.config.base import plain
from whet.config.benchmark import BenchmarkConfig
from whet.config.parts import EngineConfig, ModelConfig, SamplingConfig
from whet.evaluation.user_benchmarks import BENCHMARKS, Benchmark, BenchmarkError, Graded
from whet.files import digest
from whet.models.policy import Policy, load_policies
from whet.plugins import load_entry_points, load_plugins
from whet.run.evaluate import keep, tag
from whet.run.load import load_run
from whet.seeds import seed_of
from whet.tasks.files import DataError, file_rows
from whet.tasks.prompts import Prompts, find_prompts
from whet.types import Task

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
    kept: Path | None
    """The file in the run's `eval/`. None: the model is no run's."""


def measure(place: str | Path, config: BenchmarkConfig) -> Measurement:
    """Ask a model each task of a benchmark once, greedily, and grade what it replies.

    Args:
        place: a run folder, whose last checkpoint is taken; a folder written by `save_pretrained`; a hub id.
    Raises: ConfigError, DataError, PluginError, RunError, UnknownName; BenchmarkError where the benchmark's own code
        breaks. Of a run the replies are kept all the same.
    """
    load_entry_points()
    load_plugins(config.plugins)
    benchmark = BENCHMARKS.get(config.benchmark)
    tasks = _tasks(benchmark, config)
    model = _model(Path(place), benchmark, config)
    asked = [
        Asked(messages, seed_of(0, "benchmark", benchmark.name, task.id), prefill)
        for task in tasks
        for messages, prefill in [benchmark.messages(task, model.prompts)]
    ]
    replies = written_by(
        model.policy, asked, model.sampling, model.engine, temperature=0.0, max_new_tokens=config.max_new_tokens
    )
    graded = [
        Graded(task, reply.text, benchmark.grade(reply.text, task, model.prompts), reply.stop_reason == "length")
        for task, reply in zip(tasks, replies, strict=True)
    ]
    digests = _digests(config)
    entry = BENCHMARKS.entry(benchmark.name)
    name = f"benchmark-{re.sub(r'[^a-zA-Z0-9_.]+', '_', entry.name)}-{model.policy.name}-n{len(tasks)}"
    name += tag([*map(str, plain(config).items()), *digests.values()])
    record = {
        "benchmark": entry.name, "origin": entry.origin, "policy": model.policy.name, "settings": plain(config),
        "digests": digests,
    }  # fmt: skip
    traces = [_trace(each, request) for each, request in zip(graded, asked, strict=True)]
    try:
        metrics = benchmark.metrics(graded)
    except BenchmarkError as error:
        if not model.is_of_run:
            raise
        keep(Path(place), name, record | {"metrics": None, "error": str(error)}, traces)
        raise BenchmarkError(f"{error}; the replies are kept in {place}/eval/{name}.traces.jsonl") from error
    if model.is_of_run:
        keep(Path(place), name, record | {"metrics": metrics}, traces)
    failures = Counter(each.grade.reason for each in graded if each.grade.score is None)
    kept = Path(place) / "eval" / f"{name}.json" if model.is_of_run else None
    return Measurement(model.policy.name, metrics, failures, kept)


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
    if not benchmark.reads_file and config.file is not None:
        raise ConfigError(f"the benchmark {benchmark.name!r} makes its own tasks, so file has no effect: leave it out")
    rows: list[Mapping[str, Any]] = []
    for where, row in file_rows(Path(config.file).expanduser(), "file") if config.file is not None else ():
        if not isinstance(row, dict):
            raise DataError(f"{config.file}, {where}: expected an object, {{...}}")
        rows.append(row)
    try:
        return benchmark.tasks(rows)[: config.limit]
    except DataError as error:
        raise DataError(f"{config.file}: {error}") from error


def _model(place: Path, benchmark: Benchmark, config: BenchmarkConfig) -> _Model:
    """Raises: ConfigError, RunError."""
    if config.prompts is not None and not benchmark.uses_prompts:
        raise ConfigError(f"the benchmark {benchmark.name!r} words its own questions, so prompts has no effect")
    if not (place / "config.yaml").is_file():
        if config.policy is not None:
            raise ConfigError(f"{place} is no run folder, so it has no policy {config.policy!r}: leave policy out")
        if benchmark.uses_prompts and config.prompts is None:
            raise ConfigError(f"{place} is a model, which does not say how it is asked: give prompts=english, or yours")
        model = ModelConfig(path=str(place), device=config.device, dtype=config.dtype or "float32")
        [policy] = load_policies({"policy": model}).values()
        prompts = find_prompts(config.prompts) if config.prompts is not None else None
        return _Model(policy, prompts, SamplingConfig(max_new_tokens=MAX_NEW_TOKENS), EngineConfig(), is_of_run=False)
    run = load_run(place)
    name = config.policy or run.who(benchmark.skill)
    able = [each for each in run.versions if benchmark.skill in run.skills(each)]
    if name is None or name not in able:
        which = f"no policy {name!r} that can {benchmark.skill}" if name else f"no policy that can {benchmark.skill}"
        raise ConfigError(f"{place} has {which}; choose of: {', '.join(able) or 'none of this run'}")
    [policy] = run.load([name], device=config.device, dtype=config.dtype).values()
    limits = run.skills(name)[benchmark.skill]
    return _Model(policy, run.words(config.prompts), limits, run.config.engine, is_of_run=True)


def _trace(graded: Graded, asked: Asked) -> dict[str, Any]:
    grade = graded.grade
    return {
        "task": graded.task.id, "messages": [dict(message) for message in asked.messages], "reply": graded.reply,
        "score": grade.score, "reason": grade.reason, "extracted": grade.extracted, "answer": graded.task.answer,
        "truncated": graded.is_truncated,
    }  # fmt: skip


def _digests(config: BenchmarkConfig) -> dict[str, str]:
    """Of the files that the numbers come from, by path."""
    files: Sequence[str] = [*([config.file] if config.file else []), *config.plugins]
    return {file: digest(Path(file).expanduser()) for file in files}
