"""Items of environments, in place of problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from whet.config.base import Config, NameOf
from whet.config.inputs import InputFile


class EnvironmentData(Config):
    """Items of environments, in place of problems."""

    kind: Literal["environments"] = "environments"
    env: Annotated[dict[str, Annotated[float, Field(gt=0)]], NameOf("environment")] = Field({})
    """Environments by name, each with its share of the training items that are drawn. Names alone may stand as they
    are (`data.env=babyai`, `data.env=maze,wordle`). `whet env list` has them. {}: textcraft."""
    settings: dict[str, dict[str, Any]] = Field({})
    """By environment, its settings, such as {textcraft: {recipes: FOLDER}}."""
    groups: tuple[str, ...] = ()
    """How far goals are: only items of these published subgroups, such as [depth 1, depth 2] of textcraft, in all
    splits. (): items of all."""
    train_items: tuple[InputFile, ...] = ()
    """Files of published training items or trajectories, such as AgentGym's lists for RL. (): the environments'
    split."""
    test_items: tuple[InputFile, ...] = ()
    """Files of test items. Published lists overlap: items that are trained on too are counted and reported."""
    num_train: int | None = Field(None, ge=1)
    """Training items of each environment, in its order. None: all but those of validation."""
    num_validation: int = Field(24, ge=1)
    """Items of each environment on which checkpoints are chosen. They are drawn from its training items, a quarter of
    them at most, and not trained on."""
    num_test: int | None = Field(None, ge=1)
    """Test items of each environment, spread evenly over its list. None: all."""

    @property
    def shares(self) -> dict[str, float]:
        """By environment."""
        return self.env or {"textcraft": 1.0}

    @model_validator(mode="before")
    @classmethod
    def take_one_name(cls, settings: Any) -> Any:
        if not isinstance(settings, Mapping) or not isinstance(settings.get("env"), str | list | tuple):
            return settings
        names = settings["env"]
        if isinstance(names, str):
            names = [name.strip() for name in names.split(",")]
        return {**settings, "env": dict.fromkeys(names, 1.0)}
