"""Items of environments, in place of problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from whet.config.base import Config, NameOf
from whet.config.inputs import InputFile


class EnvironmentData(Config):
    """Items of environments, in place of problems."""

    kind: Literal["worlds"] = "worlds"
    env: Annotated[dict[str, Annotated[float, Field(gt=0)]], NameOf("environment")] = Field({})
    """Environments by name, each with its share of the training items that are drawn; names alone may stand as they
    are (`data.env=babyai`, `data.env=maze,wordle`). `whet env list` has them. {}: textcraft."""
    settings: dict[str, dict[str, Any]] = Field({})
    """By environment, its own settings, such as {textcraft: {recipes: FOLDER}}."""
    groups: tuple[str, ...] = ()
    """How far goals are: only items of these published subgroups, such as [depth 1, depth 2] of textcraft, in all
    splits. (): items of all."""
    train_items: tuple[InputFile, ...] = ()
    """Files of published items or trajectories, such as AgentGym's lists for RL: what is trained on. (): the
    environments' own split."""
    test_items: tuple[InputFile, ...] = ()
    """The same, of what is tested on. Published lists overlap: items that are trained on too are counted and said."""
    num_train: int | None = Field(None, ge=1)
    """Training items of each environment, in its own order. None: all but those of validation."""
    num_validation: int = Field(24, ge=1)
    """Items of each environment on which checkpoints are chosen, drawn from its training items and not trained on; a
    quarter of them at most."""
    num_test: int | None = Field(None, ge=1)
    """Test items of each environment, spread evenly over its list. None: all."""

    @property
    def shares(self) -> dict[str, float]:
        """By environment."""
        return self.env or {"textcraft": 1.0}

    @model_validator(mode="before")
    @classmethod
    def take_one_name(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or not isinstance(given.get("env"), str | list | tuple):
            return given
        names = [each.strip() for each in given["env"].split(",")] if isinstance(given["env"], str) else given["env"]
        return {**given, "env": dict.fromkeys(names, 1.0)}
