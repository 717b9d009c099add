"""One run from config to summary: load, check, train, measure, save. What `whet train` and `whet resume` call."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from whet.config import read_all
from whet.engines.local import LocalEngine
from whet.grading import Grader
from whet.models.policy import Policy, load_policies
from whet.models.scoring import score
from whet.play.roles import render, seed_of
from whet.recipes.critique_rl import CritiqueRL
from whet.recipes.data import load_grader, load_tasks
from whet.recipes.origin import AnyConfig
from whet.recipes.prompts import Conversation, check_prompts
from whet.recipes.solve import SolveRecipe
from whet.recipes.solve_config import SolveConfig
from whet.tasks.dialects import Dialect
from whet.training.files import RunError
from whet.training.folder import RunFolder
from whet.training.loop import Phase, Progress, Run, set_determinism
from whet.types import Request, Row, Sampling, Task

logger = logging.getLogger(__name__)

AGREEMENT = {torch.float32: ("largest", 1e-4), torch.bfloat16: ("mean", 1e-2)}
"""Difference allowed between engine's and trainer's logprobs, by type of the weights. In bf16 the largest difference
of a few hundred tokens is a matter of luck (0.03 to 0.2 on the tiny model, at any time of a run); their mean is not
(0.0005 to 0.0015)."""


class Recipe(Protocol):
    """What a session needs of a recipe."""

    config: Any
    run: Run
    tasks: Mapping[str, Sequence[Task]]
    dialect: Dialect

    def phases(self) -> list[Phase]: ...
    def summary(self) -> dict[str, dict[str, Any]]: ...
    def conversations(self) -> list[Conversation]: ...
    def parts_in_use(self) -> list[object]: ...
    def plan(self) -> list[str]: ...
    @property
    def token_budget(self) -> int: ...


@dataclass
class Session:
    """A run that is ready to go."""

    recipe: Recipe
    run: Run
    phases: list[Phase]
    grader: Grader
    data: str
    """One sentence on the tasks."""
    sampled: tuple[str, ...]
    """The policies that were loaded, all of which are sampled from."""

    def go(self) -> dict[str, Any]:
        """Train and measure to the end.

        Returns: the summary that is also in `summary.json`.
        Raises: loop.Stopped, RunError, ValueError; the folder stays resumable.
        """
        folder = self.run.folder
        try:
            self.run.run(self.phases)
            summary = {
                "rows": self.recipe.summary(),
                "seed": self.recipe.config.seed,
                "seconds": round(self.run.elapsed(), 1),
                "grader_timeouts": getattr(self.grader, "num_timeouts", 0),
            }
            folder.write("summary.json", json.dumps(summary, indent=1) + "\n")
            folder.event("info", "finished", f"finished after {summary['seconds']:.0f} s")
            return summary
        finally:
            self.close()

    def close(self) -> None:
        self.grader.close()
        self.run.folder.release()


def prepare(config: AnyConfig, progress: Progress, folder: RunFolder) -> Session:
    """Load everything that the config names, and put the recipe together. Writes nothing.

    Raises: ConfigError, DataError: bad input, before any work is done.
    """
    set_determinism(config.num_threads)
    torch.manual_seed(config.seed)
    tasks, sentence = load_tasks(config.data)
    grader = load_grader(config.data)
    names = ("policy",) if isinstance(config, SolveConfig) else ("actor", "critic")
    policies = load_policies({name: getattr(config, name) for name in names})
    run = Run(policies, folder, config.seed, config.checkpoint_every, progress, watching=config.watch)
    recipe: Recipe
    if isinstance(config, SolveConfig):
        recipe = SolveRecipe(config, run, tasks, grader.grade)
    else:
        recipe = CritiqueRL(config, run, tasks, grader.grade)
    check_prompts(recipe.conversations(), policies)
    session = Session(recipe, run, recipe.phases(), grader, sentence, tuple(names))
    read_all(recipe.parts_in_use())
    return session


def plan(session: Session) -> list[str]:
    """What a run would do, in lines: for `--dry-run` and for the log."""
    tasks = ", ".join(f"{len(found)} {split}" for split, found in session.recipe.tasks.items())
    lines = [f"data: {session.data} ({tasks})"]
    for name, policy in session.run.policies.items():
        count = sum(p.numel() for _, p in policy.own_parameters())
        kind = f"LoRA adapter on a shared base, {count:,} weights" if policy.adapter else f"{count:,} weights"
        lines.append(f"policy {name}: {kind}, on {policy.device}")
    lines += session.recipe.plan()
    steps = [f"{phase.name} {phase.num_steps}" for phase in session.phases]
    return [*lines, f"steps of the phases: {', '.join(steps)}"]


def check_agreement(policy: Policy, session: Session) -> float:
    """Sample a probe batch with the engine and score it with the trainer.

    Returns: the difference of the two logprobs of a token, the largest or the mean as `AGREEMENT` says, in nats.
    Raises: RunError where it is past `AGREEMENT`: the run would train on credit for tokens it misjudges.
    """
    recipe = session.recipe
    sampling = Sampling(temperature=1.0, max_new_tokens=24)
    contexts = [
        render(policy.tokenizer, recipe.dialect.solve_messages(task.prompt), recipe.dialect.solve_prefill)
        for task in recipe.tasks["train"][:8]
    ]
    requests = [
        Request(context=context, sampling=sampling, seed=seed_of(recipe.config.seed, "probe", i, j))
        for i, context in enumerate(contexts)
        for j in range(2)
    ]
    completions = LocalEngine(policy).generate(requests)
    rows = [
        Row(
            policy=policy.name,
            tokens=request.context + done.tokens,
            loss_mask=(False,) * len(request.context) + (True,) * len(done.tokens),
            credit=(0.0,) * (len(request.context) + len(done.tokens)),
            logprobs=None,
        )
        for request, done in zip(requests, completions, strict=True)
    ]
    scores = score(policy, rows, token_budget=recipe.token_budget)
    sampled = torch.tensor([p for done in completions for p in done.logprobs])
    differences = (sampled - torch.cat(scores)).abs()
    which, allowed = AGREEMENT[next(policy.model.parameters()).dtype]
    found = float(differences.max() if which == "largest" else differences.mean())
    if not found <= allowed:  # NaN is refused too
        raise RunError(
            f"the engine's logprobs of policy {policy.name!r} differ from the trainer's by {found:.2g} (the {which} "
            f"difference, allowed {allowed:.0e}): the model computes differently with a key/value cache, so training "
            "on its samples would be silently off-policy; try another dtype or transformers version"
        )
    return found
