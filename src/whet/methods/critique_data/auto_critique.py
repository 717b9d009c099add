"""AutoMathCritique (arXiv:2411.16579, section 3): critique data without people, for a critic to be trained on.

1. make      y ~ pi by RG1 (from scratch), RG2 (diverted at a step), RG3 (a planted mistake); or imported answers.
2. choose    those that are wrong, each once, in a ratio; and some that are right.
3. locate    first error: y_1..t, completed M times; the first t after which hardly any completion is right (optional).
4. critique  c ~ annotator(x, y, hints)                           the rule filters: format, verdict, location, leaks.
5. refine    y' ~ pi(x, y, c), N times; kept iff N_correct >= k   the soft filter.
6. write     critiques.jsonl and the same data in other projects' formats, and a manifest of what became of all.

Nothing is trained: every phase only collects, so a run that was killed goes on as any other.
`docs/auto-critique.md` says what is published, what is not, and what was decided here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from whet.grading.critique_filters import masked
from whet.methods.base import Algorithm, MethodSpec, RunContext
from whet.methods.critique_data import records as data_of
from whet.methods.critique_data.auto_critique_config import AutoCritiqueConfig
from whet.methods.critique_data.config import (
    MAKING,
)
from whet.methods.critique_data.corrupted import Solutions, ask_roles, who_and_what
from whet.methods.critique_data.formats import CritiqueRecord
from whet.methods.critique_data.hints import has_words, hint_lines, hinted
from whet.methods.critique_data.records import KEPT, LOST, MANIFEST, STAGES
from whet.methods.critique_data.rollouts import FirstErrors, first_error
from whet.methods.evaluator import Evaluator, Metrics, Traces
from whet.methods.report_specs import load_report
from whet.rollout.critique import CritiqueRound
from whet.rollout.roles import Role, written
from whet.rollout.runtime import Call
from whet.rollout.services import Fault
from whet.seeds import seed_of
from whet.tasks.prompts import CHAINS
from whet.trainer.loop import Batch, Phase
from whet.types import Episode, Task


class DataEvaluator(Evaluator[AutoCritiqueConfig]):
    """Nothing is trained: the table shows what became of the data."""

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(self.run.loop.found.get("write", {}).get("rows", {}))

    def summary(self) -> dict[str, dict[str, Any]]:
        return dict(self.run.loop.found["write"]["rows"])

    def targets(self, *, of_run: bool) -> tuple[str, ...]:
        return ()

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        raise AssertionError("there is nothing to measure")


class AutoCritique(Algorithm[AutoCritiqueConfig]):
    """AutoMathCritique: critique data without people; `whet data critiques` (2411.16579)"""

    spec = MethodSpec(
        config=AutoCritiqueConfig,
        roles=("actor", "annotator", "corrupter"),
        final_policies=("corrupter", "annotator", "actor"),
        skills={
            "actor": {"answer": "roles.answer", "refine": "roles.refinement"},
            "annotator": {"critique": "roles.critique"},
        },
        evaluator=DataEvaluator,
        conversations=lambda algorithm: ask_roles(algorithm.solutions),
        plan=lambda algorithm: who_and_what(algorithm.solutions),
        is_lazy=True,
        report=load_report("critique_data"),
    )

    def __init__(self, config: AutoCritiqueConfig, run: RunContext) -> None:
        super().__init__(config, run)
        self.solutions = Solutions(config, run)

    # --- phases -------------------------------------------------------------------------------------------------------

    def phases(self) -> Iterator[Phase]:
        config = self.config
        steps = -(-len(self.solutions.questions_in_use) // config.questions_per_step)
        for name in MAKING:
            if getattr(config, name).num_samples:
                yield Phase(name, steps, partial(self.solutions.make, name), headline=("paths/wrong",))
        if self.solutions.import_answers.records:
            yield Phase("given", 1, self.solutions.take, headline=("paths/wrong",))
        yield Phase("choose", 1, self.solutions.choose, end=lambda: {"steps": len(self.solutions.queue("chosen"))})
        steps = int(self.run.loop.found.get("choose", {}).get("steps", 0))
        if config.locate.num_completions:
            yield Phase("locate", steps, self._locate, headline=("located/share",))
        yield Phase("critique", steps, self._critique, headline=("kept/share",))
        if config.filters.num_refinements:
            yield Phase("refine", steps, self._refine, headline=("refinement/right", "kept/share"))
        yield Phase("write", 1, self._write, end=self._written)

    # --- critiques ----------------------------------------------------------------------------------------------------

    def _locate(self, step: int) -> Batch:
        config, records = (
            self.config,
            [CritiqueRecord.of(task) for task in self.solutions.queue("chosen").batches[str(step)]],
        )
        rollout = FirstErrors(
            self.run.prompts,
            self.run.runtime.role("actor", "actor", config.roles.answer),
            (config.seed, "locate"),
            config.locate.num_completions,
            self.run.runtime.retries(),
            config.steps,
        )
        unlocated = [r for r in records if not r.right and r.error_step is None and r.gold is not None]
        episodes = self.run.runtime.roll_out(
            [partial(_error_rates, rollout, self.solutions.task_of(record), record) for record in unlocated]
        )
        if lost := sum(rates is None for rates in episodes):
            self.run.loop.folder.event(
                "warning",
                "not_located",
                f"of {len(unlocated)} solutions {lost} are not located: a completion or its grading failed",
                phase="locate",
            )
        updates = {}
        for record, rates in zip(unlocated, episodes, strict=True):
            place = first_error(rates or (), config.locate.threshold)
            if place >= 0:
                updates[record.id] = replace(record, rates=tuple(rates or ()), error_step=place, located="monte_carlo")
        self.solutions.put("chosen", str(step), [updates.get(record.id, record) for record in records])
        return Batch(
            metrics={
                "located/share": len(updates) / len(unlocated) if unlocated else None,
                "located/failed": float(lost),
            }
        )

    def _critique(self, step: int) -> Batch:
        config = self.config
        records = {task.id: CritiqueRecord.of(task) for task in self.solutions.queue("chosen").take(str(step))}
        texts = self._texts(records)
        criticised = []
        for record in records.values():
            text, seed, hints = texts[record.id]
            policies = {**record.policies, "annotator": self.solutions.who("annotator")["annotator"]}
            record = replace(
                record,
                hints=hints,
                policies=policies,
                seeds={**record.seeds, **({"critique": seed} if seed else {})},
            )
            if text is None:
                criticised.append(replace(record, dropped=LOST))
            else:
                criticised.append(data_of.criticised(record, text, self.run.prompts, config.steps, config.filters))
        self.solutions.put("criticised", str(step), criticised)
        return Batch(metrics=self._shares(criticised))

    def _texts(self, records: Mapping[str, CritiqueRecord]) -> dict[str, tuple[str | None, int, tuple[str, ...]]]:
        """By record: a critique (None: it is lost), its seed, and the names of its hints."""
        if self.solutions.annotate_by_rule is not None:
            return {
                name: (
                    self.solutions.annotate_by_rule(self.solutions.task_of(record), record),
                    0,
                    self._rule_hints(record),
                )
                for name, record in records.items()
            }
        role: Role = self.run.runtime.role("annotator", "annotator", self.config.roles.critique)
        lines = {name: self._hints(record) for name, record in records.items()}

        async def critique(task: Task, *, sample: int) -> Episode:
            messages = self.run.prompts.critique_messages(
                task.prompt, self.run.prompts.solve_prefill + records[task.id].response
            )
            seed = seed_of(self.config.seed, "critique", task.id, sample)
            reply = await role.reply(hinted(messages, lines[task.id]), seed=seed)
            return Episode(task=task, segments=(reply,))

        episodes = self.run.runtime.by_task(critique, [self.solutions.task_of(record) for record in records.values()])
        texts = {}
        for [episode] in episodes:
            reply = episode.segments[0] if episode.segments else None
            names = tuple(name for name, _ in lines[episode.task.id])
            texts[episode.task.id] = (reply.text if reply else None, reply.seed if reply else 0, names)
        return texts

    def _hints(self, record: CritiqueRecord) -> list[tuple[str, str]]:
        if not has_words(self.run.prompts):
            return []
        hints = {
            "reference": record.gold,
            "location": record.error_step,
            "mistake": record.mistake,
            "exact": record.located in ("planted", "given"),
        }
        return hint_lines(hints, right=record.right)

    def _rule_hints(self, record: CritiqueRecord) -> tuple[str, ...]:
        """Names of the hints that a rule uses: it has the task, and those of the tiny world need no hint."""
        hints = ("reference",) if record.gold is not None else ()
        return hints + (("location",) if record.error_step is not None and self.run.prompts != CHAINS else ())

    def _refine(self, step: int) -> Batch:
        config = self.config
        records = [CritiqueRecord.of(task) for task in self.solutions.queue("criticised").batches[str(step)]]
        pending = [record for record in records if not record.dropped and record.gold is not None]
        episodes = self.run.runtime.roll_out([self._round(record) for record in pending])
        updates: dict[str, CritiqueRecord] = {}
        for record, episode in zip(pending, episodes, strict=True):
            refinements = [episode.segments[i] for c in episode.indices("critic") for i in episode.children(c, "actor")]
            scored = [
                (segment, segment.grade.score)
                for segment in refinements
                if segment.grade and segment.grade.score is not None
            ]
            if len(scored) < config.filters.num_refinements:  # of one that nobody could grade, nothing is counted
                updates[record.id] = replace(record, dropped=LOST)
                continue
            prefill = self.run.prompts.refine_prefill
            graded = [(segment.text.removeprefix(prefill), score == 1.0) for segment, score in scored]
            if self._is_masked(record):
                record = replace(record, flags=(*record.flags, "masked"))
            seeds = {**record.seeds, "refinement": scored[0][0].seed}
            solution = self.solutions.solution(self.solutions.task_of(record))
            updates[record.id] = data_of.refined(replace(record, seeds=seeds), graded, solution, config.filters)
        now = [updates.get(record.id, record) for record in records]
        self.solutions.put("criticised", str(step), now)
        tried = [record for record in updates.values() if record.num_refinements]
        right = (
            sum(record.num_correct or 0 for record in tried) / sum(record.num_refinements for record in tried)
            if tried
            else None
        )
        return Batch(metrics={**self._shares(now), "refinement/right": right})

    def _is_masked(self, record: CritiqueRecord) -> bool:
        return self.config.filters.answer_leak == "mask" and "answer_leak" in record.flags

    def _round(self, record: CritiqueRecord) -> Call[Episode]:
        """N refinements after the record's critique."""
        config, critique = self.config, record.critique or ""
        shown = masked(critique, record.gold) if self._is_masked(record) else critique
        role = self.run.runtime.role("actor", "actor", config.roles.refinement)
        rounds = CritiqueRound(
            self.run.prompts,
            actor=role,
            critic=lambda task, answer: shown,
            reviser=role,
            key=(config.seed, "refine"),
            num_refinements=config.filters.num_refinements,
            retries=self.run.runtime.retries(),
        )
        answer = written("actor", self.run.prompts.solve_prefill + record.response, policy="cached")
        return partial(rounds, self.solutions.task_of(record), answer=answer)

    def _shares(self, records: Sequence[CritiqueRecord]) -> dict[str, float | None]:
        counts = data_of.funnel(records)
        share = counts["kept"] / counts["criticised"] if counts["criticised"] else None
        gone = Counter(record.dropped for record in records)
        return {"kept/share": share, **{f"dropped/{name}": float(gone[name]) for name in (*STAGES, LOST)}}

    # --- the data set -------------------------------------------------------------------------------------------------

    def _write(self, step: int) -> Batch:
        config, records = self.config, self.solutions.records("criticised")
        folder = self.run.loop.folder
        for name, text in data_of.files(records, self.run.prompts, config.steps):
            folder.write(name, text)
        made, num_questions = self.solutions.made(), len(self.solutions.questions_in_use)
        about = {
            "method": config.method,
            "seed": config.seed,
            "dataset": self.solutions.dataset,
            "prompts": config.prompts,
            "steps": config.steps,
            "questions": num_questions if made.keys() & set(MAKING) else 0,
            "seats": self.solutions.who("rg3", "annotator"),
            "ratio": config.ratio if made.keys() & set(MAKING) else {},
            "right_share": config.right_share if made.keys() & set(MAKING) else None,
        }
        manifest = data_of.manifest(records, made, config.filters, about)
        folder.write(MANIFEST, json.dumps(manifest, indent=1) + "\n")
        traces = data_of.examples(records, config.traces_per_step, phase="write", step=1)
        return Batch(metrics=self._shares(records), traces=traces)

    def _written(self) -> dict[str, Any]:
        records = self.solutions.records("criticised")
        if not any(not record.dropped for record in records):
            text = f"no critique passed the filters, so {KEPT} is empty; {MANIFEST} says which filter dropped how many"
            self.run.loop.folder.event("warning", "nothing_kept", text, phase="write")
        return {"rows": data_of.rows(records, self.solutions.made())}


async def _error_rates(rollout: FirstErrors, task: Task, record: CritiqueRecord) -> list[float] | None:
    """What `FirstErrors` finds of a record's steps. None: a completion or its grading failed."""
    try:
        return await rollout(task, record.response, name=record.id)
    except Fault:
        return None
