"""Shared by policy gradients of replies (`policy_gradient`) and of episodes (`agent_gradient`).

It decides how credit is assigned, which loss is used, and how old the data may be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from whet.config import (
    BalancedBounds,
    Config,
    ConfigError,
    ReinforceLoss,
    config_at,
    counted,
    possible,
)
from whet.config.losses import VALUE_MODEL
from whet.credit import ADVANTAGES, Reference, with_reference
from whet.credit.advantages import Advantage
from whet.methods.gradient_config import GradientConfig
from whet.methods.names import POLICY
from whet.trainer import Update, correction_of, entropy_clip, policy_terms, reach, value_model
from whet.trainer.loop import Batch, Loop, Phase, Selection
from whet.types import Row

REFERENCE = "policy_ref"


class Gradient:
    """A policy gradient in a run: which policies it has and how they learn.

    Args:
        length: tokens of a whole reply or episode, for `aggregation = constant`.
    """

    def __init__(self, config: GradientConfig, loop: Loop, *, length: int) -> None:
        self.config, self.loop, self.length = config, loop, length
        self.advantage: Advantage = ADVANTAGES.get(config.advantage)
        self._logged_reach: set[str] = set()
        if self.advantage.baseline == "group" and min(possible(config, "group_size")) < 2:
            raise ConfigError(
                f"advantage = {config.advantage!r} compares the {config.unit} of a group, so group_size has to be 2 at "
                f"least; single {config.unit} go with reinforce_pp, reward or gae"
            )
        if config.advantage == "gae":
            value_model.ensure_value_model(loop.policies, config.value, POLICY)
        if has_kl(config) and REFERENCE not in loop.policies:
            loop.fork(POLICY, REFERENCE)

    def phase(
        self,
        at: Callable[[int], GradientConfig],
        collect: Callable[[int], Batch],
        validate: Callable[[int], Batch],
        select: Selection,
        *,
        headline: tuple[str, ...],
    ) -> Phase:
        """The training of a run.

        Args:
            at: the settings at a step.
            headline: what the progress line shows.
        """
        return Phase(
            name="train",
            num_steps=self.config.num_steps,
            collect=collect,
            updates=lambda step: self.updates(at(step)),
            validate=validate,
            validate_every=self.config.validate_every,
            select=select,
            main=POLICY,
            headline=headline,
        )

    def updates(self, config: GradientConfig) -> Mapping[str, Update]:
        """How the policy learns, and the value model where there is one.

        Args:
            config: at a step.
        """
        updates: dict[str, Update] = {}
        num_rows, steps = config.prompts_per_step * config.group_size, config.num_steps
        sizes = partial(counted, self.config, "group_size", gates=self.loop.gates)
        if config.off_policy.kind == "replay":
            steps -= config.off_policy.staleness
        if config.advantage == "gae":
            updates[VALUE_MODEL] = value_model.update_of(config.value, num_rows, steps)
            steps = value_model.steps_after_warmup(config.value, num_rows, steps)
        updates[POLICY] = Update(
            policy_terms(config.loss, config.kl, config.aggregation, length=self.length, entropy=config.entropy_coef),
            config.learning,
            sum(n * config.learning.updates_a_step(config.prompts_per_step * size) for size, n in sizes(steps)),
            proximal=config.proximal,
            correct=correction_of(config.correction),
            observers=(entropy_clip(config.loss, config.probe_every),),
        )
        return updates

    def compares_with_start(self, config: GradientConfig) -> bool:
        """Whether ratios compare with the weights that a step starts from: by `proximal`, or by `engine.correct`."""
        return self.loop.adapted(self.updates(config)[POLICY]).proximal

    def reference(self, config: GradientConfig) -> Reference | None:
        """The policy that a KL compares with. None: there is no KL at this step."""
        if not config.kl.coef:
            return None
        return Reference(self.loop.policies[REFERENCE], config.kl, config.learning.token_budget)

    def due(self, config: GradientConfig, step: int, rows: list[Row]) -> list[Row]:
        """The rows to train on now. With replay, those of `staleness` steps ago; while the value model warms up, its
        rows alone."""
        if config.off_policy.kind == "replay":
            queue = self.loop.store.rows("replay")
            queue.put(str(step), rows)
            rows = queue.take() if len(queue) > config.off_policy.staleness else []
            if config.kl.coef and config.kl.where == "loss":  # it may have been 0 when they were sampled
                rows = with_reference(rows, self.loop.policies[REFERENCE], token_budget=config.learning.token_budget)
        rows = value_model.rows_to_train(config.value, self.loop.policies, rows) if config.advantage == "gae" else rows
        self._log_reach(config, step, rows)
        return rows

    def _log_reach(self, config: GradientConfig, step: int, rows: Sequence[Row]) -> None:
        """Logs which bounds a search can reach: on the first rows of this session, and on the first by older weights.

        Replay trains first on rows of the current weights, whose ratios do not predict later ones.
        """
        bounds = balanced_bounds_of(config)
        if bounds is None or "old" in self._logged_reach:
            return
        at_start = self.compares_with_start(config)
        policy, policy_rows = self.loop.policies[POLICY], [row for row in rows if row.policy == POLICY]
        age = "fresh" if at_start or reach.is_fresh(policy_rows, policy) else "old"
        if age in self._logged_reach:
            return
        budget = config.learning.token_budget
        lines = reach.measured(bounds, policy_rows, policy, at_start=at_start, token_budget=budget)
        if lines:
            self._logged_reach.add(age)
            self.loop.folder.event("info", "reach", f"train step {step}: {'; '.join(lines)}", phase="train", step=step)
        for line in lines:
            self.loop.progress.tell("info", f"train step {step}: {line}")

    def buffer_metrics(self) -> dict[str, float]:
        """Metrics of the rows that wait to be trained on."""
        if self.config.off_policy.kind != "replay":
            return {}
        return {"buffer/batches": float(len(self.loop.store.rows("replay")))}

    def plan(self) -> list[str]:
        """What a run would do, in lines."""
        config, learning = self.config, self.config.learning
        rows = config.prompts_per_step * config.group_size
        updates = learning.updates_a_step(rows)
        lines = [
            f"loss: {in_words(config.loss)}; advantage {config.advantage}, averaged by {config.aggregation}",
            f"off-policy regime: {in_words(config.off_policy)}",
            f"each step: {config.prompts_per_step} problems x {config.group_size} {config.unit} = {rows} rows, "
            f"{updates} {'update' if updates == 1 else 'updates'} of {min(rows, learning.minibatch_rows)} rows; "
            f"{learning.rate_said}",
        ]
        waits = config.off_policy.steps_old
        if (bounds := balanced_bounds_of(config_at(config, waits + 1))) is not None:
            lines.append(reach.in_advance(bounds, None if config.advantage == "gae" else waits + 1))
        at_start = self.compares_with_start(config)
        is_on_policy = updates == 1 and (at_start or config.off_policy.kind == "none")
        if is_on_policy and not isinstance(config.loss, ReinforceLoss):
            why = "to the weights that the step starts from" if at_start else "on fresh data"
            lines.append(
                f"note: with one update a step every ratio {why} is 1, and no bound, gate or weight of the loss acts; "
                "lower learning.minibatch_rows or raise learning.num_epochs for more updates"
                f"{'' if at_start else ', or set off_policy.kind'}"
            )
        return lines


def balanced_bounds_of(config: GradientConfig) -> BalancedBounds | None:
    """The settings of BAPO's search, where the loss has one."""
    bounds = getattr(config.loss, "bounds", None)
    return bounds if isinstance(bounds, BalancedBounds) else None


def in_words(settings: Config) -> str:
    """A loss or a regime in one line: its kind and its settings."""
    fields = {name: getattr(settings, name) for name in type(settings).model_fields if name != "kind"}
    parts = [f"{n} {in_words(v) if isinstance(v, Config) else v}" for n, v in fields.items() if v is not None]
    kind = getattr(settings, "kind", "")
    return f"{kind} ({', '.join(parts)})".strip() if parts else kind


def has_kl(config: GradientConfig) -> bool:
    """Whether there may be a KL at some step."""
    return any(possible(config, "kl.coef"))
