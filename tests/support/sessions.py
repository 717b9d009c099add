"""Methods put together on the tiny world in no time, to be asked for a step or run to the end."""

from __future__ import annotations

from pathlib import Path

import whet.methods  # noqa: F401 - registers them
from whet.methods.registry import config_of
from whet.run.session import Session, prepare
from whet.run_folder.folder import RunFolder
from whet.trainer.phase import Progress

WORLD = ("num_threads=1", "seed=3", "data.num_train=64", "data.num_validation=8", "data.num_test=12")
STEPS = ("num_steps=2", "prompts_per_step=6", "group_size=4", "validate_every=2", "learning.minibatch_rows=8")
WARM = ("warm_start.actor_steps=2", "warm_start.critic_steps=2", "warm_start.rows_per_step=8")


class Silent(Progress):
    """Watches and says nothing; what it was told is kept."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def begin(self, phase: str, done: int, total: int) -> None: ...
    def step(self, step: int, shown: object) -> None: ...
    def end(self) -> None: ...

    def tell(self, level: str, text: str) -> None:
        self.told.append((level, text))


def session_of(method: str, *settings: str, folder: Path = Path()) -> Session:
    """A run that is ready to go and has no folder yet."""
    return prepare(config_of(method, None, [*WORLD, *settings]), Silent(), RunFolder(folder))


def finished(method: str, *settings: str, folder: Path) -> Session:
    """The same, run to its end in a folder."""
    session = session_of(method, *settings, folder=folder)
    session.loop.folder.acquire()
    session.loop.folder.logs.rewind({})
    session.go()
    return session
