"""Shared by methods that make critiques: the roles, and the solutions that are critiqued.

`made`, `chosen` and `criticised` are queues of the run's store; a record goes from one to the next, and grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.config import ConfigError
from whet.config.parts import EndpointConfig, FileData, ModelConfig
from whet.errors import RunError
from whet.methods.base import RunContext
from whet.methods.critique_data import records as data_of
from whet.methods.critique_data.annotators import annotators, find_annotator
from whet.methods.critique_data.config import (
    MAKING,
    CritiqueDataConfig,
    RuleConfig,
)
from whet.methods.critique_data.formats import CritiqueRecord
from whet.methods.critique_data.hints import has_words
from whet.methods.critique_data.imported import ImportedAnswers, import_answers
from whet.methods.critique_data.mistakes import BY_RULE, CATALOGUE
from whet.methods.critique_data.records import MADE
from whet.methods.critique_data.rollouts import Corruption
from whet.models.prompts import REPLY, Conversation
from whet.rollout.roles import written
from whet.rollout.solve import grade_of
from whet.tasks.chains import parse_chain
from whet.tasks.oracles import has_chains, rule_critics
from whet.tasks.prompts import CHAINS, Message
from whet.tasks.row_formats import DataError
from whet.tasks.sneaky import right_chain_steps
from whet.trainer.buffers import Queue
from whet.trainer.loop import Batch
from whet.types import Episode, Segment, Task


class Solutions:
    """Solutions that are made, or imported, and chosen.

    Raises: ConfigError, DataError where a role cannot do what the settings ask.
    """

    def __init__(self, config: CritiqueDataConfig, run: RunContext) -> None:
        self.config, self.run = config, run
        self.questions_in_use = list(self.run.tasks["train"][: config.num_questions])
        self.by_id = {task.id: task for task in self.run.tasks["train"]}
        self.has_chains = has_chains(config.data, self.questions_in_use)
        """The questions are the tiny world's, whose every step a rule can work out."""
        self.import_answers = ImportedAnswers()
        self.annotate_by_rule = None
        if isinstance(config.annotator, RuleConfig):
            kind = "chains" if self.has_chains else config.data.kind
            critics = rule_critics(kind, self.run.prompts)
            available = annotators(critics, kind, self.run.prompts, config.steps)
            self.annotate_by_rule = find_annotator(config.annotator.name, available)
        self._check_roles()
        if run.trains:
            self.import_answers = import_answers(config.given, config.trajectories, self.run.tasks, config.steps)
            self._check_readable()
            self.by_id |= self.import_answers.tasks
            self.run.warnings.extend(self.import_answers.warnings)

    def _check_readable(self) -> None:
        """Raises: DataError where a rule that knows the tiny world is to critique something else."""
        if self.annotate_by_rule is None or not self.has_chains:
            return
        for record in self.import_answers.records:
            try:
                parse_chain(record.question)
            except ValueError as error:
                name = record.id.partition("/")[2]
                raise DataError(
                    f"answer {name}: {error}, and the annotator's rule knows the tiny world alone; "
                    "set data.kind=file (or basics), prompts=english and another grader for other questions, or use "
                    "a model as annotator"
                ) from error

    def _check_roles(self) -> None:
        """Raises: ConfigError where a role cannot do what the settings ask."""
        config, rule = self.config, self.config.corrupter
        if config.rg3.num_samples:
            if unknown := [name for name in config.rg3.mistakes if name not in CATALOGUE]:
                raise ConfigError(f"rg3.mistakes: there is no {unknown[0]!r}; there are {', '.join(CATALOGUE)}")
            if isinstance(rule, RuleConfig) and rule.name != "catalogue":
                raise ConfigError(f"corrupter.name: there is no rule {rule.name!r}; there is catalogue")
            without = [name for name in config.rg3.mistakes if name not in BY_RULE]
            if isinstance(rule, RuleConfig) and without:
                raise ConfigError(f"rg3.mistakes: no rule makes {without[0]!r}; use a model as corrupter")
            if not isinstance(rule, RuleConfig) and not has_words(self.run.prompts):
                raise ConfigError(
                    "corrupter: the tiny world has no words to ask a model for a mistake; use the rule "
                    "(corrupter.kind=rule)"
                )
            if config.rg3.prefix == "reference" and not any(map(self.solution, self.questions_in_use)):
                raise ConfigError(
                    "rg3.prefix = reference needs worked solutions, and these questions have none; take "
                    "rg3.prefix=actor"
                )
        if config.filters.answer_leak == "mask" and not has_words(self.run.prompts):
            raise ConfigError(
                "filters.answer_leak = mask: the tiny world's tokenizer has no placeholder; measure or drop"
            )
        goes_on = (
            config.rg2.num_samples
            or config.locate.num_completions
            or (config.rg3.num_samples and config.rg3.rest == "actor")
        )
        if (
            goes_on
            and isinstance(config.actor, EndpointConfig)
            and config.actor.prefill == "none"
            and (not has_words(self.run.prompts))
        ):
            raise ConfigError(
                "actor: nobody can ask an endpoint in the tiny world's words to go on from a step; set "
                "actor.prefill=continue if the server knows it, or rg2.num_samples=0 and "
                "rg3.rest=recomputed"
            )

    # --- records in the store -----------------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue[Task]:
        return self.run.loop.store.tasks(name)

    def records(self, name: str) -> list[CritiqueRecord]:
        return [CritiqueRecord.of(task) for task in self.queue(name)]

    def put(self, name: str, key: str, records: Sequence[CritiqueRecord]) -> None:
        self.queue(name).put(key, [record.task() for record in records])

    def made(self) -> dict[str, dict[str, int]]:
        totals: dict[str, Counter[str]] = {}
        for task in self.queue("counts"):
            totals.setdefault(task.id, Counter(dict.fromkeys(MADE, 0))).update(task.info)
        return {name: dict(counts) for name, counts in totals.items()}

    def task_of(self, record: CritiqueRecord) -> Task:
        """The problem of a record, by the record's name: seeds and traces go by it."""
        return replace(self.by_id[record.qid if record.qid in self.by_id else record.id], id=record.id)

    # --- solutions ----------------------------------------------------------------------------------------------------

    def make(self, name: str, step: int) -> Batch:
        config = self.config
        count = config.questions_per_step
        tasks = self.questions_in_use[(step - 1) * count : step * count]
        if name == "rg3" and config.rg3.prefix == "reference":
            tasks = [task for task in tasks if self.solution(task)]
        groups = self.run.runtime.by_task(
            getattr(self._corruption(), name), tasks, num_samples=getattr(config, name).num_samples
        )
        counts = Counter(dict.fromkeys(MADE, 0))
        chosen: list[CritiqueRecord] = []
        for group in groups:
            records = []
            for sample, episode in enumerate(group):
                made = data_of.of_episode(episode, name, sample, self.dataset, self.who(name))
                counts["made"] += 1
                if isinstance(made, str):
                    counts[made] += 1
                    continue
                counts["right" if made.right else "wrong"] += 1
                records.append(data_of.without_hint(made))
            wrong, num_equal = data_of.first_of_each(record for record in records if not record.right)
            counts["duplicate"] += num_equal
            # At most one right solution of a question and source is critiqued.
            chosen += wrong + [record for record in records if record.right][:1]
        self.put("made", f"{name}/{step}", chosen)
        self.queue("counts").put(f"{name}/{step}", [Task(id=name, prompt="", info=dict(counts))])
        graded = counts["right"] + counts["wrong"]
        return Batch(
            metrics={
                "paths/wrong": counts["wrong"] / graded if graded else None,
                **{f"paths/{fate}": float(counts[fate]) for fate in ("made", "no_source", "lost", "duplicate")},
            }
        )

    def _corruption(self) -> Corruption:
        config, roles = self.config, self.config.roles
        by_model = config.rg3.num_samples and not isinstance(config.corrupter, RuleConfig)
        hot = config.rg2.temperature if config.rg2.num_samples else None
        return Corruption(
            prompts=self.run.prompts,
            actor=self.run.runtime.role("actor", "actor", roles.answer),
            hot=self.run.runtime.role("actor", "actor", roles.answer, temperature=hot),
            key=(config.seed, "flaws"),
            by=config.steps,
            corrupter=self.run.runtime.role("corrupter", "corrupter", roles.mistake) if by_model else None,
            mistakes=config.rg3.mistakes if config.rg3.num_samples else (),
            reference=self._pieces if config.rg3.num_samples and config.rg3.prefix == "reference" else None,
            rest=config.rg3.rest if config.rg3.num_samples else "actor",
            only_way=self._pieces if self.has_chains else None,
        )

    def solution(self, task: Task) -> str:
        """The worked solution, its calculator notes left in; empty where there is none."""
        return "".join(self._pieces(task))

    def _pieces(self, task: Task) -> list[str]:
        if self.has_chains:
            steps = right_chain_steps(task)
        else:
            lines = str(task.info.get("solution", "")).split("\n")
            steps = [line.strip() for line in lines if line.strip() and not line.startswith("####")]
        closing = f"The answer is {task.answer}" + ("" if self.run.prompts == CHAINS else ".")
        return [*(f"{step}\n" for step in steps), closing] if steps else []

    def who(self, *names: str) -> dict[str, str]:
        """The models and rules, by role, that a source needs."""
        roles = ["actor", *(["corrupter"] if "rg3" in names else []), *(["annotator"] if "annotator" in names else [])]
        by_role = {}
        for name in roles:
            settings = getattr(self.config, name)
            field = {"model": "path", "rule": "name", "endpoint": "model"}[settings.kind]
            by_role[name] = f"{settings.kind}:{getattr(settings, field)}"
        return by_role

    @property
    def dataset(self) -> str:
        data = self.config.data
        if not isinstance(data, FileData):
            return str(data.kind)
        return data.hub or Path(data.train_path or data.path or "").name

    def take(self, step: int) -> Batch:
        """Takes the imported answers; the grader labels those without a label."""
        labelled = self.import_answers.labelled
        to_grade = [
            record
            for record in self.import_answers.records
            if record.id in self.import_answers.ungraded or record.id in labelled
        ]
        by_id = {record.id: record for record in to_grade}

        async def graded(task: Task, *, sample: int) -> Episode:
            answer = written("actor", by_id[task.id].response)
            problem = replace(self.by_id.get(by_id[task.id].qid, task), id=task.id)
            grade = await grade_of(answer, problem)
            outcome: Any = "ok" if grade.score is not None else "grader_error"
            return Episode(task=task, segments=(replace(answer, grade=grade),), outcome=outcome, reason=grade.reason)

        tasks = [Task(id=record.id, prompt=record.question, answer=record.gold) for record in to_grade]
        episodes = {group[0].task.id: group[0] for group in self.run.runtime.by_task(graded, tasks)}
        self._compare_labels(
            {name: episode.segments[0] for name, episode in episodes.items() if episode.segments}, labelled
        )
        records, counts = [], {name: Counter(dict.fromkeys(MADE, 0)) for name in ("given", "trajectory")}
        for record in self.import_answers.records:
            source_counts = counts[record.source]
            source_counts["made"] += 1
            if record.id in self.import_answers.ungraded:
                answer = episodes[record.id].segments[0] if episodes[record.id].segments else None
                if answer is None or answer.grade is None or answer.grade.score is None:
                    source_counts["lost"] += 1
                    continue
                record = replace(record, right=answer.grade.score == 1.0)
            source_counts["right" if record.right else "wrong"] += 1
            records.append(record)
        self.put("made", "given", records)
        self.queue("counts").put("given", [Task(id=n, prompt="", info=dict(c)) for n, c in counts.items() if c["made"]])
        every = sum(source_counts["right"] + source_counts["wrong"] for source_counts in counts.values())
        wrong = sum(source_counts["wrong"] for source_counts in counts.values())
        return Batch(
            metrics={
                "paths/wrong": wrong / every if every else None,
                "paths/made": float(len(self.import_answers.records)),
            }
        )

    def _compare_labels(self, answers: Mapping[str, Segment], labelled: Mapping[str, bool]) -> None:
        """Warns where an imported label is not what the grader finds; the label stands."""
        graded = {name: answers[name].grade for name in labelled if name in answers}
        other = [
            name
            for name, grade in graded.items()
            if grade and grade.score is not None and (grade.score == 1.0) != labelled[name]
        ]
        if other:
            text = f"{len(other)} of {len(labelled)} labels are not what the grader finds, the first that of answer "
            text += f"{other[0].partition('/')[2]}; they are taken as they are"
            self.run.loop.folder.event("warning", "labels", text, phase="given")

    def choose(self, step: int) -> Batch:
        config, made = self.config, self.records("made")
        order = {name: place for place, name in enumerate(("given", "trajectory", "rg3", "rg2", "rg1"))}
        # The best hint comes first.
        unique, num_equal = data_of.first_of_each(sorted(made, key=lambda record: order[record.source]))
        samples = any(getattr(config, name).num_samples for name in MAKING)
        chosen = unique
        if samples:
            chosen = data_of.balanced(unique, config.ratio, config.right_share, config.seed)
        self.queue("chosen").clear()
        count = config.records_per_step
        for place in range(0, len(chosen), count):
            self.put("chosen", str(place // count + 1), chosen[place : place + count])
        self.queue("made").clear()
        if not chosen:
            counts = self.made().values()
            lost, every = (sum(source_counts[fate] for source_counts in counts) for fate in ("lost", "made"))
            why = "all are right, or equal, or the ratio leaves none" if not lost else f"{lost} of {every} were lost"
            if first := self.run.runtime.episode_counts.first:
                why += f" to failures, the first to {first.outcome}: {first.reason}"
            if lost == every:
                raise RunError(f"no solution is left to be critiqued: {why}")
            self.run.loop.folder.event(
                "warning", "nothing_chosen", f"no solution is left to be critiqued: {why}", phase="choose"
            )
        return Batch(
            metrics={
                "chosen/all": float(len(chosen)),
                "chosen/right": float(sum(record.right for record in chosen)),
                "chosen/duplicates": float(num_equal),
                "chosen/left_over": float(len(unique) - len(chosen)),
            }
        )


# --- before the run begins --------------------------------------------------------------------------------------------


def who_and_what(solutions: Solutions) -> list[str]:
    who = ", ".join(f"{role} {name}" for role, name in solutions.who("rg3", "annotator").items())
    return [
        f"roles: {who}",
        f"{len(solutions.questions_in_use)} questions in use, {len(solutions.import_answers.records)} answers imported",
    ]


def ask_roles(solutions: Solutions) -> list[Conversation]:
    """Conversations known before the run begins: questions to answer, and imported answers."""
    config, roles, words = solutions.config, solutions.config.roles, solutions.run.prompts
    samples = any(getattr(config, name).num_samples for name in MAKING)
    questions = [(task.prompt,) for task in solutions.questions_in_use] if samples else []
    read = [(record.question, record.response) for record in solutions.import_answers.records]
    mended = [
        (record.question, record.response) for record in solutions.import_answers.records if record.gold is not None
    ]
    critiqued = roles.answer.max_new_tokens
    if not isinstance(config.annotator, RuleConfig):
        critiqued += roles.critique.max_new_tokens
    refined = critiqued + (roles.refinement.max_new_tokens if config.filters.num_refinements else 0)

    def refine(question: str, answer: str = REPLY) -> list[Message]:
        return words.refine_messages(question, answer, REPLY)

    def critique(question: str, answer: str = REPLY) -> list[Message]:
        return words.critique_messages(question, answer)

    conversations = [
        Conversation("actor", texts, refine, words.refine_prefill, refined) for texts in (questions, mended) if texts
    ]
    if isinstance(config.annotator, ModelConfig):
        conversations += [
            Conversation("annotator", texts, critique, "", critiqued) for texts in (questions, read) if texts
        ]
    return conversations
