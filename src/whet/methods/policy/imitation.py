"""Imitation: supervised learning of a policy from given texts (SFT), and how well it answers before and after.

The texts come from a file, from the tiny world's author, or from the set's worked solutions (`tasks.demonstrators`).
A file has question and answer, and critique, refinement and correct if they are there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from whet.config.effects import acts
from whet.methods.base import RunContext
from whet.methods.names import POLICY
from whet.methods.policy.imitation_config import ImitationConfig
from whet.methods.report_specs import load_report
from whet.methods.solvers import BY_BEST, PolicyAlgorithm, solver_spec
from whet.methods.warm_start import check_texts, demonstration_rows, imitation_phase
from whet.seeds import seed_of
from whet.tasks.demonstrations import Kind
from whet.tasks.demonstrators import demonstrator, examples_of
from whet.trainer.loop import Phase
from whet.types import Row


class Imitation(PolicyAlgorithm[ImitationConfig]):
    """Supervised learning of given texts, and how well the policy answers after it"""

    spec = solver_spec(ImitationConfig, report=load_report("imitation"))

    def __init__(self, config: ImitationConfig, run: RunContext) -> None:
        super().__init__(config, run)
        shares: dict[Kind, float] = {"solve": config.solve, "critique": config.critique, "refine": config.refine}
        self.shares = {kind: share for kind, share in shares.items() if share}
        if run.trains:
            ramble = config.ramble if acts(config, "ramble") else 0
            self.shown = demonstrator(
                examples_of(config, ""), config.data, self.run.tasks, self.run.prompts, ramble=ramble
            )
            self.run.warnings.extend(filter(None, [self.shown.warning]))
            check_texts(self.shown, list(self.shares), self.run.loop.policies[POLICY])

    def phases(self) -> Iterator[Phase]:
        config = self.config
        yield self.evaluator.before()
        yield imitation_phase(
            "train", POLICY, config.num_steps, self._rows, config.learning, config.rows_per_step,
            validate=self.evaluator.validate, validate_every=config.validate_every, select=BY_BEST,
        )  # fmt: skip
        yield self.evaluator.after()

    def _rows(self, step: int) -> list[Row]:
        rng = random.Random(seed_of(self.run.loop.seed, "imitation", step))
        kinds = rng.choices(list(self.shares), list(self.shares.values()), k=self.config.rows_per_step)
        return demonstration_rows((self.shown.show(kind, rng) for kind in kinds), self.run.loop.policies[POLICY])
