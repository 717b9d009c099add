"""Whether an agent is shown what published records show, token by token, under `rules=FILE observations=recorded`.

    python tests/shown_as_recorded.py FOLDER    # the data folder (else WHET_DATA): all records of three environments

Each record's replies are said again, in our environment, by the rollout function of a run. Every prompt is compared
with the ids of the record up to there, as `agent_clone` would learn it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from support.sessions import session_of
from whet.envs.formats import PARSERS
from whet.methods.agent.cloning import clone_row
from whet.methods.environment_tasks import environment_task
from whet.methods.names import POLICY
from whet.models.stand_in import save_stand_in
from whet.rollout.driver import roll_out
from whet.rollout.environments import Environments
from whet.rollout.roles import PolicyRole
from whet.trajectories.files import read_trajectories
from whet.trajectories.records import Trajectory, item_number
from whet.trajectories.replay import COMPARISONS
from whet.types import Segment

RECORDS = {"maze": "lmrlgym_maze_train.json", "textcraft": "textcraft_train.json", "babyai": "babyai_train.json"}


@dataclass
class Counts:
    """Of the records of one environment."""

    environment: str
    num_records: int = 0
    num_equal: int = 0
    """Records with all prompts equal."""
    num_prompts: int = 0
    num_equal_prompts: int = 0
    num_tokens: int = 0
    """Of the longest equal prompt of each record."""
    unequal: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = (
            f"{self.environment}: records equal {self.num_equal} of {self.num_records}, prompts equal "
            f"{self.num_equal_prompts} of {self.num_prompts}, {self.num_tokens} tokens"
        )
        return f"{text}; not {', '.join(self.unequal)}" if self.unequal else text


class Repeats:
    """A role that writes the replies of a record, and keeps the ids of its prompts."""

    def __init__(self, role: PolicyRole, replies: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        self.role, self.replies = role, replies
        self.name, self.policy, self.sampling = role.name, role.policy, role.sampling
        self.prompts: list[tuple[int, ...]] = []

    async def reply(self, messages: Any, **settings: Any) -> Segment:
        begun = self.role.begin(messages, **settings)
        text, tokens = self.replies[len(self.prompts)]
        self.prompts.append(begun.context)
        count = len(tokens)
        return replace(begun, tokens=tokens, logprobs=(0.0,) * count, versions=((0, count),), text=text,
                       stop_reason="eos")  # fmt: skip


def compare(data: Path, environment: str, *, parser: str = "", num_records: int | None = None) -> Counts:
    """Compares the records of an environment, or so many evenly from its file.

    Args:
        data: the folder with `agentgym`.
        parser: of the replies; an older client read BabyAI's otherwise. Empty: the run's.
    """
    file = data / "agentgym" / "AgentTraj-L" / RECORDS[environment]
    records = read_trajectories(file)
    if num_records is not None:
        records = records[:: max(1, len(records) // num_records)][:num_records]
    settings = [f"data.env={environment}", f"rules={file}", "observations=recorded"]
    if environment == "textcraft":
        recipes = data / "agentgym" / "textcraft" / "recipes.tar.gz"
        settings.append(f"data.settings={{textcraft: {{recipes: {recipes}, openings: {file}}}}}")
    with tempfile.TemporaryDirectory() as folder:
        save_stand_in([message.text for record in records[:60] for message in record.messages], Path(folder))
        session = session_of("agent", f"policy.path={folder}", *settings)  # fmt: skip
        counts = Counts(environment)
        envs = Environments()
        try:
            for record in records:
                _compare(record, session.algorithm.rollouts, envs, parser, counts)
        finally:
            envs.close()
    return counts


def _compare(record: Trajectory, rollouts: Any, envs: Environments, parser: str, counts: Counts) -> None:
    agent = rollouts.agents(POLICY, "records", max_turns=len(record.replies()))[record.environment]
    if parser:
        agent = replace(agent, parse=PARSERS.get(parser))
    assert isinstance(agent.agent, PolicyRole)
    row = clone_row(record, POLICY, agent.agent.tokenizer, shows_rules=lambda _: True)
    spans = np.split(row.trains, np.flatnonzero(np.diff(row.trains) > 1) + 1)
    ids = tuple(row.tokens.tolist())
    replies = [(text, ids[span[0] : span[-1] + 1]) for text, span in zip(record.replies(), spans, strict=True)]
    role = Repeats(agent.agent, replies)
    task = environment_task(agent.environment, item_number(record.item_id))
    roll_out([replace(agent, agent=role)(task)], {"environment": envs})
    equal = [prompt == ids[: span[0]] for prompt, span in zip(role.prompts, spans, strict=False)]
    counts.num_records += 1
    counts.num_prompts += len(spans)
    counts.num_equal_prompts += sum(equal)
    counts.num_tokens += max([len(prompt) for prompt, same in zip(role.prompts, equal, strict=True) if same], default=0)
    if len(equal) == len(spans) and all(equal):
        counts.num_equal += 1
    else:
        counts.unequal += (record.item_id,)


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["WHET_DATA"])
    for name in RECORDS:
        print(compare(folder, name), flush=True)
        if older := COMPARISONS[name].parser:
            print(f"by the parser {older}, {compare(folder, name, parser=older)}", flush=True)
