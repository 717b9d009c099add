"""A stand-in for a model that acts: random weights, and a tokenizer that has all that is said in the maze."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from whet.envs import ENVIRONMENTS
from whet.methods.environment_tasks import rules_of
from whet.models.stand_in import save_stand_in
from whet.trajectories.experts import expert_trajectories


@cache
def agent_model() -> Path:
    """The same in every process, wherever it lies."""
    folder = Path(tempfile.mkdtemp(prefix="whet-agent-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    info = ENVIRONMENTS.get("maze")
    episodes = expert_trajectories(info, info.splits()["train"], rules=rules_of(info).text, seed=0)
    save_stand_in([message.text for each in episodes for message in each.messages], folder)
    return folder
