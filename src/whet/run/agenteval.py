"""`whet eval --env agenteval`: one agent in all environments of AgentGym that can run on this machine.

The folder has a file for each environment, `TABLE/NAME.json`, written when the environment is finished, with the
agent's episodes beside it. So an evaluation that was killed goes on with the environment that it was in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whet.config import ConfigError, of_tree
from whet.config.base import plain
from whet.config.environments import AgentRunConfig
from whet.config.loading import merged
from whet.config.parts import EndpointConfig
from whet.config.show import tree_difference
from whet.distribution import version
from whet.engines.endpoint import EndpointEngine
from whet.envs import ENVIRONMENTS
from whet.errors import RunError
from whet.evaluation.agenteval import NAME, TABLES, AgentEval, Measured, NotRun
from whet.methods.environment_tasks import check_settings
from whet.methods.names import POLICY
from whet.methods.registry import preset_of
from whet.models.policy import Policy, load_policies
from whet.plugins import load_entry_points, load_plugins
from whet.run.agenteval_items import Part, agentgym_names, parts_of
from whet.run.agenteval_part import Asked, measure_part
from whet.run.provenance import compute_provenance, first_few
from whet.run_folder.files import write_atomic
from whet.trainer.loop import Progress
from whet.trajectories.files import write_trajectories

GO_ON = "what is finished is kept, and the same command goes on with the rest"
NOWHERE = ("held", "absent")
PLAN, RECORD = "plan.json", f"{NAME}.json"


def measure_agenteval(asked: Asked, out: Path, progress: Progress) -> AgentEval:
    """Measures the agent, or what a killed evaluation in `out` has left.

    Raises: ConfigError, DataError where the settings cannot be used; RunError where `out` holds another evaluation,
        nothing can run, or the endpoint fails.
    """
    load_entry_points()
    load_plugins([path for path in asked.settings.get("plugins") or () if isinstance(path, str)])
    base = _base_config(asked)
    plan = _plan(asked, base)
    _check_folder(out, plan)
    parts, not_run = parts_of(base.data.settings, base.data.test_items, asked.num_items, base.pool)
    if not parts:
        raise RunError(f"no environment of AgentEval can run here: {_reasons(not_run)}")
    policies = _agent_of(base, progress) if any(_finished(out, part) is None for part in parts) else {}
    _make_folders(out, plan)
    measured: list[Measured] = []
    for number, part in enumerate(parts, 1):
        line = _finished(out, part)
        if line is None:
            result = measure_part(asked, part, policies, progress, f"{part.name} ({number} of {len(parts)})")
            if isinstance(result, NotRun):
                if result.cause == "failed":
                    _check_endpoint(base, part)
                not_run.append(result)
                continue
            line, trajectories = result
            if line.policy["failures"]:
                _check_endpoint(base, part)
            write_trajectories(out / part.table / f"{part.name}.episodes.jsonl", trajectories)
            write_atomic(_file(out, part), json.dumps(asdict(line), indent=1) + "\n", of_run=False)
        measured.append(line)
    if not measured:
        raise RunError(f"nothing of AgentEval was measured: {_reasons(not_run)}")
    record = AgentEval(
        policy=_policy_name(base),
        seed=base.seed,
        num_items=asked.num_items,
        version=version(),
        measured=measured,
        not_run=not_run,
        seconds=round(sum(line.seconds for line in measured), 1),
        plan=plan,
    )
    write_atomic(out / RECORD, json.dumps(record.record(), indent=1) + "\n", of_run=False)
    return record


def _reasons(not_run: Sequence[NotRun]) -> str:
    """Without those that can run nowhere."""
    return first_few([f"{absent.environment}: {absent.why}" for absent in not_run if absent.cause not in NOWHERE])


# --- before it begins -------------------------------------------------------------------------------------------------


def _base_config(asked: Asked) -> AgentRunConfig:
    """The settings with all environments. Raises: ConfigError."""
    data = asked.settings.get("data") or {}
    if isinstance(data, Mapping) and "env" in data:
        raise ConfigError("--env agenteval takes all environments of AgentGym: leave data.env out")
    preset = preset_of("agent")
    names = [name for name in agentgym_names() if name in ENVIRONMENTS]
    config = of_tree(type(preset.config), merged(asked.settings, {"data": {"env": names}}), base=preset.config)
    assert isinstance(config, AgentRunConfig)
    if strangers := sorted(config.data.settings.keys() - set(names)):
        raise ConfigError(f"data.settings.{strangers[0]}: AgentEval has no such environment; it has {', '.join(names)}")
    check_settings(config.data)
    return config


def _plan(asked: Asked, base: AgentRunConfig) -> dict[str, Any]:
    """What an evaluation goes on under: the settings, the digests of the files that they name, and whet's version."""
    return {
        "whet": version(),
        "items": asked.num_items,
        "temperature": asked.temperature,
        "seed": plain(base)["seed"],
        "settings": json.loads(json.dumps(plain(asked.settings))),
        "inputs": compute_provenance(base)["inputs"],
    }


def _check_folder(out: Path, plan: Mapping[str, Any]) -> None:
    """Raises: RunError where the folder holds another evaluation, or something else."""
    file = out / PLAN
    if not file.exists():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise RunError(f"{out} is there already, and holds no evaluation: name another folder with --out")
        return
    try:
        before = json.loads(file.read_text(encoding="utf-8"))
        changes = tree_difference(before, plan)
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(f"{file} cannot be read ({error}): name another folder with --out") from error
    if changes:
        raise RunError(
            f"{out} holds an evaluation of other settings ({first_few(changes)}): name another folder with --out"
        )


def _make_folders(out: Path, plan: Mapping[str, Any]) -> None:
    """Raises: RunError where they cannot be written."""
    for table in TABLES:
        try:
            (out / table).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"could not make {out}: {error.strerror or error}; name another with --out") from error
    write_atomic(out / PLAN, json.dumps(plan, indent=1) + "\n", of_run=False)


def _agent_of(base: AgentRunConfig, progress: Progress) -> dict[str, Policy]:
    """The model, loaded once for all environments. Of an endpoint: none, but the server is there.

    Raises: ConfigError where it cannot be loaded or reached.
    """
    if isinstance(base.policy, EndpointConfig):
        progress.tell("info", _look(base.policy))
        return {}
    return load_policies({POLICY: base.policy})


def _look(endpoint: EndpointConfig) -> str:
    """A sentence about the server. Raises: ConfigError where it cannot be reached."""
    engine = EndpointEngine(POLICY, endpoint)
    try:
        return engine.look()
    finally:
        engine.close()


def _check_endpoint(base: AgentRunConfig, part: Part) -> None:
    """After failed episodes. Raises: RunError where the endpoint is gone, so that the environment is measured again."""
    if not isinstance(base.policy, EndpointConfig):
        return
    try:
        _look(base.policy)
    except ConfigError as error:
        raise RunError(f"in {part.name}: {error}; {GO_ON}") from error


def _policy_name(base: AgentRunConfig) -> str:
    policy = base.policy
    return f"{policy.model} at {policy.url}" if isinstance(policy, EndpointConfig) else policy.path


def _file(out: Path, part: Part) -> Path:
    return out / part.table / f"{part.name}.json"


def _finished(out: Path, part: Part) -> Measured | None:
    """What an earlier session has measured. Raises: RunError where its file is not as it was written."""
    file = _file(out, part)
    if not file.exists():
        return None
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        line = Measured(**{**record, "items": tuple(record["items"]), "overridden": tuple(record["overridden"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file} cannot be read ({error}): delete it, and it is measured again") from error
    if line.items != part.items:
        raise RunError(f"{file} is of other items than {part.name} has now: delete it, and they are measured")
    return line
