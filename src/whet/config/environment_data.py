"""Items of environments, in place of problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from whet.config.base import Config, NameOf
from whet.config.inputs import InputFile


class RemoteEnvironment(Config):
    """An environment behind an address, and the time that its server has."""

    url: str = Field(min_length=1)
    """The server's address. `http://host:port` is whet's (`whet env serve`), `agentgym+http://host:port` one of
    AgentGym's, `openenv+ws://host:port` an OpenEnv one. A token comes from the variable WHET_ENV_TOKEN alone."""
    share: float = Field(1.0, gt=0)
    """Share of the training items that are drawn."""
    timeout_s: float = Field(60.0, gt=0)
    """Seconds of one request. After that the episode is a `timeout`; `pool.timeout_s` limits a whole step or reset."""
    connect_s: float = Field(5.0, gt=0)
    """Seconds that a connection may take."""
    wait_s: float = Field(30.0, ge=0)
    """Seconds that a full server is waited for. 0: it is not waited for."""
    reconnects: int = Field(5, ge=0)
    """How often a request goes again where its connection was cut, and the server knows that it is the same one."""
    splits: dict[str, tuple[int, int]] = Field({})
    """First item and the end of each split, such as {train: [0, 80], test: [80, 100]}. {}: the server's, or those that
    whet knows."""
    max_turns: int | None = Field(None, ge=1)
    """The environment's usual number of turns. None: as the server or whet says, else 20."""
    rules: str | None = None
    """The agent's first message, as text. None: as the server or whet says, else none."""
    parser: str | None = None
    """The parser of replies, such as react or plain. None: as the server or whet says, else react."""
    rewards: tuple[float, float] | None = None
    """The least and the greatest reward of an episode. None: as the server or whet says, else 0 and 1."""
    success_above: float | None = None
    """An episode with a greater reward is a success. None: as the server or whet says, else 0.99."""


def _label(value: Any) -> str:
    return RemoteEnvironment.__name__ if isinstance(value, Mapping | RemoteEnvironment) else "share"


ShareOrRemote = Annotated[
    Annotated[float, Field(gt=0), Tag("share")] | Annotated[RemoteEnvironment, Tag(RemoteEnvironment.__name__)],
    Discriminator(_label),
]
"""What `data.env` says of an environment: its share alone, or where it is."""


class EnvironmentData(Config):
    """Items of environments, in place of problems."""

    kind: Literal["environments"] = "environments"
    env: Annotated[dict[str, ShareOrRemote], NameOf("environment")] = Field({})
    """Environments by name, each with its share of the training items that are drawn. Names alone may stand as they
    are (`data.env=babyai`, `data.env=maze,wordle`). `whet env list` has them. A remote one has the address of its
    server (`data.env={name: textcraft, url: http://127.0.0.1:8001}`; of several: {textcraft: {url: ...}, maze: 1}).
    {}: textcraft."""
    settings: dict[str, dict[str, Any]] = Field({})
    """By environment, its settings, such as {textcraft: {recipes: FOLDER}}."""
    groups: tuple[str, ...] = ()
    """How far goals are: only items of these published subgroups, such as [depth 1, depth 2] of textcraft, in all
    splits. An environment that has none of them keeps all of its items. (): items of all."""
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
        shares = {name: part.share if isinstance(part, RemoteEnvironment) else part for name, part in self.env.items()}
        return shares or {"textcraft": 1.0}

    @property
    def remotes(self) -> dict[str, RemoteEnvironment]:
        """Those behind an address, by environment."""
        return {name: part for name, part in self.env.items() if isinstance(part, RemoteEnvironment)}

    @classmethod
    def canonical(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Settings whose environments are by name. The user may write one remote environment with its name inside."""
        env = settings.get("env")
        if not isinstance(env, Mapping) or not isinstance(env.get("name"), str):
            return settings
        return {**settings, "env": {env["name"]: {key: value for key, value in env.items() if key != "name"}}}

    @model_validator(mode="before")
    @classmethod
    def take_one_name(cls, settings: Any) -> Any:
        if not isinstance(settings, Mapping):
            return settings
        settings = cls.canonical(settings)
        if not isinstance(settings.get("env"), str | list | tuple):
            return settings
        names = settings["env"]
        if isinstance(names, str):
            names = [name.strip() for name in names.split(",")]
        if not all(isinstance(name, str) for name in names):
            raise ValueError(
                "a list in env holds names alone, such as [maze, wordle]; with shares or an address write a mapping: "
                "{maze: 1, textcraft: {url: http://127.0.0.1:8001}}"
            )
        return {**settings, "env": dict.fromkeys(names, 1.0)}
