"""SPC: a critic against a sneaky generator. Each round trains both anew, on the games of all rounds.

1. The generator rewrites the last step of a right partial solution.
2. The step is an error if continuing from it succeeds less often than before.
3. The critic judges the step. The winner is rewarded +1, the other -1.

    loss    -min(s r, clip(s, 0.8, 1.2) r) + 0.15 mean_t NLL_t,   mean over texts
    s       exp mean_t log (policy / SFT policy)
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from whet.config import GspoLoss
from whet.credit import rewarded, verdict_match, with_reference
from whet.evaluation.protocol import measure, share_right, trace_rows
from whet.methods.base import Algorithm, MethodSpec
from whet.methods.critic.spc_config import SPCConfig
from whet.methods.evaluator import Evaluator, Metrics, Traces
from whet.methods.report_specs import load_report
from whet.methods.warm_start import demonstration_rows, imitation_phase
from whet.models.prompts import Conversation, of_rounds
from whet.rollout.critique import CritiqueRound
from whet.rollout.roles import written
from whet.rollout.solve import Solve
from whet.tasks.sneaky import first_steps, game_demonstrations, sneaky, with_steps
from whet.trainer import Update, nll_term, policy_term
from whet.trainer.loop import Batch, Phase
from whet.types import Episode, Grade, Row, Segment, Task, as_row

Games = tuple[list[Episode], Mapping[str, Segment], int]  # rewarded judgments; planted steps by task; ungraded plants
SIDES, TRIES = ("generator", "critic"), 2  # continuations from a step, to see whether it is an error
SUFFIXES = {"sft": ("_sft", "_sft"), "critic": ("_sft", ""), "generator": ("", "_sft"), "both": ("", "")}
"""By who has trained: what the names of generator and critic end with."""


ROWS = tuple(SUFFIXES)


class SPCEvaluator(Evaluator[SPCConfig]):
    """Measures games between the sides, each as its warm start left it or as it is."""

    @property
    def rows(self) -> tuple[str, ...]:
        return ROWS

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        self.algorithm.keep()
        episodes, _, failed = self.algorithm.games("test", tasks, name)
        return {**measure(episodes), "grader_errors": failed}, list(trace_rows(episodes, critic=name, **labels))


def ask_both(algorithm: SPC) -> list[Conversation]:
    run = algorithm.run
    return of_rounds(SIDES, sneaky(run.prompts), run.questions, algorithm.config.roles.written)


class SPC(Algorithm[SPCConfig]):
    """SPC: a step critic against a sneaky generator that plants errors for it, both trained"""

    spec = MethodSpec(
        config=SPCConfig, roles=SIDES, final_policies=SIDES, is_lazy=True, prompts=sneaky, evaluator=SPCEvaluator,
        skills={"critic": {"critique": "roles.critique"}}, conversations=ask_both, report=load_report("spc"),
    )  # fmt: skip

    def phases(self) -> Iterator[Phase]:
        config, loop, count = self.config, self.run.loop, self.config.learning.minibatch_rows
        for side in SIDES:
            shown = partial(self._shown, side, count, "")
            yield imitation_phase(f"sft_{side}", side, config.sft_steps, shown, config.learning, count)
        for number in range(1, config.num_rounds + 1):
            yield Phase(
                f"games_{number}",
                1,
                partial(self._play, number),
                begin=self.keep,
                headline=("acc_dis",),
                end=lambda: {"rows": max(len(list(loop.store.rows(side))) for side in SIDES)},
            )
            steps = max(1, round(2 * config.num_epochs * loop.found.get(f"games_{number}", {}).get("rows", 0) / count))
            updates = partial(self._updates, steps * config.learning.updates_a_step(count))
            begin, draw = partial(self.keep, restart=True), partial(self._draw, number)
            yield Phase(f"learn_{number}", steps, draw, updates, begin=begin, headline=("critic.loss/mean",))
        yield self.evaluator.test(ROWS)

    def keep(self, *, restart: bool = False) -> None:
        for side in SIDES:
            (self.run.loop.restart if restart else self.run.loop.freeze)(side, f"{side}_sft")

    def games(self, key: str, tasks: Sequence[Task], who: str = "both", number: int = 1) -> Games:
        """A game on each task; every second has the right step. Plants that are ungraded or no errors are left out."""
        runtime, role, roles, seed_key = (
            self.run.runtime,
            self.run.runtime.policy_role,
            self.config.roles,
            (self.config.seed, key),
        )
        plant = Solve(
            sneaky(self.run.prompts), role("generator", f"generator{SUFFIXES[who][0]}", roles.refinement), seed_key
        )
        critic = role("critic", f"critic{SUFFIXES[who][1]}", roles.critique)
        judge = CritiqueRound(
            sneaky(self.run.prompts), critic, critic, critic, seed_key, refine=False, retries=runtime.retries()
        )
        steps = {task.id: first_steps(task, random.Random(f"{seed_key} {task.id}")) for task in tasks}
        planted = {
            e.task.id: e.segments[0]
            for e in runtime.roll_out(partial(plant, with_steps(t, steps[t.id])) for t in tasks[::2])
        }
        shown = steps | {i: [*steps[i][:-1], s.text.strip().split("\n")[0]] for i, s in planted.items()}
        solver = role("generator", "generator_sft", roles.answer)
        starts = [(t, "\n".join(those[t.id])) for t in tasks[::2] for those in (steps, shown)]
        onward = [
            partial(Solve(replace(self.run.prompts, solve_prefill=text), solver, (seed_key,)), t) for t, text in starts
        ]
        tried = self.run.runtime.by_task(lambda rollout, sample: rollout(sample=sample), onward, num_samples=TRIES)
        worth = [share_right(episode.segments[0] for episode in group) for group in tried]
        change = {t.id: now - was for t, was, now in zip(tasks[::2], worth[::2], worth[1::2], strict=True)}
        episodes = [task for task in tasks if task.id not in planted or change[task.id] < 0]
        answers = [(t, "\n".join(shown[t.id]), Grade(score=float(t.id not in planted))) for t in episodes]
        judged = runtime.roll_out(
            partial(judge, t, answer=written("actor", text, grade=grade)) for t, text, grade in answers
        )
        scored = rewarded(judged, "critic", {"verdict": verdict_match("signed")}, added=self.at(number).rewards)
        failed = sum(gain != gain for gain in change.values())  # NaN: ungraded
        return [e for e in scored if len(e.segments) > 1 and e.segments[1].rewards], planted, failed

    def _play(self, number: int, step: int) -> Batch:
        """A round's games. Rows of both sides, with their warm starts' logprobs, go into the store."""
        games, plants, lost = self.games(
            f"games {number}", self.run.next_tasks(number, self.config.games), number=number
        )
        scored_round = {
            "critic": [(e.segments[1], e.segments[1].rewards["total"]) for e in games],
            "generator": [(plants[e.task.id], -e.segments[1].rewards["verdict"]) for e in games if e.task.id in plants],
        }
        for side in SIDES:
            rows, against = (
                [as_row(s, r, kind="game") for s, r in scored_round[side]],
                self.run.loop.policies[f"{side}_sft"],
            )
            scored = with_reference(rows, against, token_budget=self.config.learning.token_budget)
            self.run.loop.store.rows(side).put(f"{number}", [replace(row, logprobs=row.ref_logprobs) for row in scored])
        shown = games[: self.config.traces_per_step]
        traces = list(trace_rows(shown, phase=f"games_{number}", step=1, split="train", critic="both"))
        return Batch([], {**measure(games), "grader/errors": float(lost)}, traces)

    def _draw(self, number: int, step: int) -> Batch:
        """For either side half a batch of games, of all rounds, and as many demonstrations."""
        rows, count = [], self.config.learning.minibatch_rows
        for side in SIDES:
            games, rng = (
                list(self.run.loop.store.rows(side)),
                random.Random(f"{self.config.seed} {side} {number} {step}"),
            )
            rows += rng.sample(games, min(count - count // 2, len(games)))
            rows += self._shown(side, count // 2, "sft", number * 10**6 + step)
        return Batch(rows)

    def _shown(self, side: str, count: int, kind: str, step: int) -> list[Row]:
        rng = random.Random(f"{self.config.seed} {side} {step}")
        shown = game_demonstrations(side, self.run.tasks["train"], count, self.run.prompts, rng)
        return demonstration_rows(shown, self.run.loop.policies[side], kind=kind)

    def _updates(self, num_updates: int, step: int) -> Mapping[str, Update]:
        game = policy_term(GspoLoss(low=0.8, high=1.2), "sequence_mean", kinds=frozenset({"game"}))
        shown = nll_term("sequence_mean", kinds=frozenset({"sft"}), weight=self.config.sft_weight)
        return dict.fromkeys(SIDES, Update((game, shown), self.config.learning, num_updates, from_sampler=False))
