"""What `whet eval MODEL --benchmark NAME` is told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from whet.config.base import Config, NameOf
from whet.config.inputs import InputFile


class BenchmarkConfig(Config):
    """How a model is measured by a benchmark."""

    benchmark: Annotated[str, Field(min_length=1), NameOf("benchmark")]
    """Which one: `whet list benchmarks`."""
    file: InputFile | None = None
    """Its data: JSON lines, a JSON list or Parquet. null: it needs none."""
    limit: int | None = Field(None, ge=1)
    """Take only the first so many tasks. null: all."""
    policy: str | None = None
    """Of a run, which policy. null: the best one that has the benchmark's skill."""
    prompts: Annotated[InputFile | None, NameOf("prompts")] = None
    """Templates: registered ones, or a YAML file. null: those of the run."""
    max_new_tokens: int | None = Field(None, ge=1)
    """Tokens of a reply, at most. null: as in the run; 512 for a model that is no run's."""
    timeout_s: float = Field(5.0, gt=0)
    """Seconds of one grading. A reply whose grading takes longer has no score."""
    device: str = "auto"
    """auto: the first GPU, else the CPU."""
    dtype: Literal["float32", "bfloat16"] | None = None
    """Of the weights. null: that of the run; float32 for a model that is no run's."""
    plugins: tuple[InputFile, ...] = ()
    """Python files of yours that register benchmarks or prompts."""
