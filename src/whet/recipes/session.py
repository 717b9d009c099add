"""One run from config to summary: load, check, train, measure, save. What `whet train` and `whet resume` call."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import torch

from whet.config import ConfigError, check_all_read, difference, load, read_all, to_yaml
from whet.config.yaml_text import read_file
from whet.engines.local import LocalEngine
from whet.grading import Grader
from whet.models.policy import Policy, load_policies
from whet.models.scoring import score
from whet.play.roles import render, seed_of
from whet.recipes.critique_rl import CritiqueRL
from whet.recipes.critique_rl_config import CritiqueRLConfig
from whet.recipes.data import load_grader, load_tasks
from whet.recipes.prompts import Conversation, check_prompts
from whet.recipes.solve import SolveRecipe
from whet.recipes.solve_config import SolveConfig
from whet.tasks.dialects import Dialect
from whet.training.checkpoint import latest_checkpoint
from whet.training.folder import RunError, RunFolder, environment
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


AnyConfig = CritiqueRLConfig | SolveConfig


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
    run = Run(
        policies, folder, config.seed, config.checkpoint_every, progress, fingerprint=fingerprint(config),
        watching=config.watch,
    )  # fmt: skip
    recipe: Recipe
    if isinstance(config, SolveConfig):
        recipe = SolveRecipe(config, run, tasks, grader.grade)
    else:
        recipe = CritiqueRL(config, run, tasks, grader.grade)
    check_prompts(recipe.conversations(), policies)
    session = Session(recipe, run, recipe.phases(), grader, sentence, tuple(names))
    read_all(recipe.parts_in_use())
    return session


def fingerprint(config: AnyConfig) -> str:
    """Of the settings: checkpoints made under others are not gone on from."""
    return sha256(to_yaml(config).encode()).hexdigest()


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


def start(config: AnyConfig, out: Path, progress: Progress, *, overwrite: bool = False) -> Session | dict[str, Any]:
    """Begin a run in `out`, or go on with the one that is there if its config is the same.

    Returns: the session to `go()`, or the summary of a run that had finished already.
    Raises: RunError where the folder is in use, or holds a run with another config (the difference is shown).
    """
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file; choose another --out")
    is_run = _is_run(out)
    if out.exists() and not is_run and any(p.name not in (".lock", "traces") for p in out.iterdir()):
        raise RunError(f"{out} holds something that is no run; choose another --out")
    folder = RunFolder(out)
    if is_run and not overwrite:
        _check_same(config, out)
        if (done := _summary(out)) is not None:
            return done
    session = prepare(config, progress, folder)
    check_all_read(config)
    folder.acquire()
    if overwrite:
        folder.clear()
    folder.write("config.yaml", to_yaml(config))
    return _opened(session, out)


def resume(out: Path, progress: Progress) -> Session | dict[str, Any]:
    """Go on with the run in `out` from its last whole checkpoint.

    Raises: RunError where `out` is no run or is in use.
    """
    if not (out / "config.yaml").exists():
        raise RunError(f"{out} holds no run (no config.yaml); `whet train RECIPE --out {out}` starts one")
    if (done := _summary(out)) is not None:
        return done
    session = prepare(saved_config(out), progress, RunFolder(out))
    session.run.folder.acquire()
    return _opened(session, out)


def _summary(out: Path) -> dict[str, Any] | None:
    """Of a finished run; None: it is unfinished.

    Raises: RunError where the file is damaged.
    """
    file = out / "summary.json"
    if not file.exists():
        return None
    try:
        done = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(done["rows"], dict) and isinstance(done["seconds"], int | float):
            return dict(done)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    raise RunError(f"{file} is damaged: delete it, and `whet resume {out}` writes it anew from the last checkpoint")


def saved_config(out: Path, overrides: Sequence[str] = ()) -> AnyConfig:
    """The config that the run in `out` was started with.

    Raises: ConfigError where it holds none of ours.
    """
    file = out / "config.yaml"
    is_solve = read_file(file).get("recipe") == "solve"
    return load(SolveConfig, file, overrides) if is_solve else load(CritiqueRLConfig, file, overrides)


def _is_run(out: Path) -> bool:
    """Whether a run of ours began here: other projects have a `config.yaml` too."""
    try:
        saved_config(out)
    except ConfigError:
        return False
    return True


def _check_same(config: AnyConfig, out: Path) -> None:
    saved = saved_config(out)
    if type(saved) is not type(config):
        raise RunError(f"{out} holds a run of another recipe, {saved.recipe}: choose another --out, or --overwrite")
    changes = difference(saved, config)
    if changes:
        raise RunError(
            f"{out} holds a run with another config ({'; '.join(changes)}): choose another --out, give the same "
            "config to go on, or --overwrite to start anew"
        )


def _opened(session: Session, out: Path) -> Session:
    """From the last checkpoint if there is one; then the agreement check."""
    folder, run = session.run.folder, session.run
    saved = latest_checkpoint(out)
    if saved is not None:
        run.resume(saved)
        folder.event("info", "resumed", f"goes on from {saved.name}", checkpoint=saved.name)
    else:
        folder.cut({})
        details = environment(session.recipe.config.seed, str(run.policies[session.sampled[-1]].device))
        folder.write("env.json", json.dumps(details, indent=1) + "\n")
        folder.event("info", "started", "; ".join(plan(session)))
    for name in session.sampled:
        difference_found = check_agreement(run.policies[name], session)
        folder.event(
            "info", "agreement", f"{name}: engine and trainer agree to {difference_found:.1e} in logprob",
            policy=name, difference=difference_found,
        )  # fmt: skip
    return session


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
