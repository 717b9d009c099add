"""Critique-RL (arXiv:2510.24320): trains a critic in two stages, so that an actor answers better after its critique.

    y ~ actor(x);  c ~ critic(x, y);  y' ~ actor(x, y, c).

    stage I   maximise E[r_dis(x, y, c)]               - beta   KL(critic || SFT critic)        (eq. 7, 8)
    stage II  maximise E[r_refine(y') (+) r_dis]       - beta_2 KL(critic || stage I critic)    (eq. 4-6, 9)

Where paper and authors' code differ, both are settings, and the default is named. With `answers = cached`, training
answers are made once and critiqued many times (`Answers`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from whet.credit import groups_of, rewarded
from whet.methods.base import RunContext
from whet.methods.critic.critique_rl_config import MAX_ITERATIONS, CritiqueRLConfig
from whet.methods.critics import (
    SFT,
    CriticAlgorithm,
    ask_critic,
    critic_spec,
    critique_rounds,
    roll_out_rounds,
    sample_critiques,
    training_batch,
)
from whet.methods.report_specs import load_report
from whet.methods.stages import STAGES, assign_stage_credit, critic_of, reaches_goal, stage_phase, terms_of
from whet.methods.stages_config import Stage1, Stage2
from whet.models.prompts import REPLY, Conversation
from whet.report.spec import title_of
from whet.rollout.roles import written
from whet.run_folder.folder import RunFolder
from whet.tasks.files import DataError, parse_json, read_text
from whet.trainer.loop import Batch, Phase
from whet.types import Episode, Segment, Task


def name_of(stage: str, iteration: int) -> str:
    """Names a phase, and the table row of its critic: stage1, stage2, then stage1_2, stage2_2, ..."""
    return stage if iteration == 1 else f"{stage}_{iteration}"


NAMES = tuple(name_of(stage, iteration) for iteration in range(1, MAX_ITERATIONS + 1) for stage in STAGES)
REPEATED = {
    name_of(stage, time): f"{title_of(stage)}, time {time}" for time in range(2, MAX_ITERATIONS + 1) for stage in STAGES
}
"""Titles of the stages from the second time on."""


def ask_about_answers(algorithm: CritiqueRL) -> list[Conversation]:
    """Critique rounds, and those about the answers of a file, which may be longer than any that the actor writes."""
    conversations, answers = ask_critic(algorithm), algorithm.answers
    if answers.is_from_file:
        roles, prompts, pairs = algorithm.config.roles, algorithm.run.prompts, answers.texts()
        num_written = roles.critique.max_new_tokens + roles.refinement.max_new_tokens
        conversations += [
            Conversation(
                "actor", pairs, lambda q, a: prompts.refine_messages(q, a, REPLY), prompts.refine_prefill, num_written
            ),
            Conversation("critic", pairs, prompts.critique_messages, "", roles.critique.max_new_tokens),
        ]
    return conversations


_REPORT = load_report("critique")
REPORT = replace(
    _REPORT, order=("no_critic", "sft_critic", *NAMES), phases={**_REPORT.phases, **REPEATED}, titles=REPEATED
)


class CritiqueRL(CriticAlgorithm[CritiqueRLConfig]):
    """Critique-RL: train a critic, first to judge, then to help (2510.24320)"""

    spec = critic_spec(
        CritiqueRLConfig, {critic_of(name): name for name in NAMES}, report=REPORT, conversations=ask_about_answers
    )

    def __init__(self, config: CritiqueRLConfig, run: RunContext) -> None:
        super().__init__(config, run)
        file = config.answers_file if config.answers == "cached" and run.trains else None
        self.answers = Answers(self.run.loop.folder, self.run.tasks["train"], None if file is None else Path(file))
        self._train_on(self.answers.tasks)

    def phases(self) -> Iterator[Phase]:
        yield from self.warm_starts
        reference, tested = SFT, [SFT]
        for iteration in range(1, self.config.iterations + 1):
            for key in STAGES:
                # From the critic of the stage before, with a KL to it; without a stage I, from the warm start's.
                name = name_of(key, iteration)
                yield stage_phase(self, key, reference, partial(self._collect, key, iteration, reference), name=name)
                if getattr(self.config, key).num_steps:
                    reference = critic_of(name)
                    tested.append(reference)
        yield self.evaluator.test_of(tested)

    def _collect(self, key: str, iteration: int, reference: str, step: int) -> Batch:
        """One step of a stage: roll out, reward, assign credit."""
        config = self.at(step)
        stage: Stage1 | Stage2 = getattr(config, key)
        episodes = self._episodes(key, step, stage, iteration)
        terms, total = terms_of(stage)
        episodes = rewarded(episodes, "critic", terms, total, added=config.rewards)
        groups = groups_of(episodes, "critic", "answer")
        assigned = assign_stage_credit(stage, groups, self.run.loop.policies[reference])
        name = name_of(key, iteration)
        return training_batch(self.config, name, step, episodes, groups, assigned, partial(reaches_goal, stage))

    def _episodes(self, key: str, step: int, stage: Stage1 | Stage2, iteration: int = 1) -> list[Episode]:
        """Critiques of the stage's next problems. Each stage goes on where the one before it ended."""
        stage1 = self.config.stage1
        num_before = (iteration - 1) * self._num_prompts
        num_before += stage1.num_steps * stage1.prompts_per_step if key == "stage2" else 0
        is_cached = self.config.answers == "cached"
        if is_cached:
            if not self.answers.is_ready:
                self._sample_answers()
            self._train_on(self.answers.tasks)
        tasks = self.run.next_tasks(step, stage.prompts_per_step, first=num_before)
        answers = self.answers.of(tasks, num_before + (step - 1) * stage.prompts_per_step) if is_cached else {}
        return sample_critiques(
            self,
            (name_of(key, iteration), step),
            tasks,
            answers=answers,
            num_critiques=stage.group_size,
            refine=isinstance(stage, Stage2),
        )

    @property
    def _num_prompts(self) -> int:
        """The problems of one pass through both stages."""
        return sum(stage.num_steps * stage.prompts_per_step for stage in (self.config.stage1, self.config.stage2))

    def _train_on(self, tasks: Sequence[Task]) -> None:
        self.run = replace(self.run, tasks={**self.run.tasks, "train": tasks})

    def _sample_answers(self) -> None:
        """The frozen actor answers, once, the training problems that the stages will use."""
        tasks = self.run.tasks["train"][: self.config.iterations * self._num_prompts]
        rounds = critique_rounds(self, ("cached",), "critic", greedy=False, num_critiques=0)
        groups = roll_out_rounds(self.run, rounds, tasks, num_samples=self.config.cached_per_task)
        self.answers.put({group[0].task.id: [episode.segments[0] for episode in group] for group in groups if group})


# --- answers ----------------------------------------------------------------------------------------------------------


ANSWERS = "answers.jsonl"
"""In the run folder."""


class Answers:
    """Training answers that are made once and critiqued many times.

    Args:
        tasks: the training problems.
        file: JSON lines with question and answer. None: the run folder's answers, once they are made.
    """

    def __init__(self, folder: RunFolder, tasks: Sequence[Task], file: Path | None) -> None:
        self.folder, self.tasks = folder, tasks
        self.by_task: dict[str, list[Segment]] = {}
        self.is_from_file = file is not None
        if file is not None:
            self._read(file)

    @property
    def is_ready(self) -> bool:
        """Whether there are answers. Reads those that the run made before it was resumed."""
        path = self.folder.path / ANSWERS
        if not self.by_task and path.exists():
            self._read(path)
        return bool(self.by_task)

    def put(self, sampled: Mapping[str, Sequence[Segment]]) -> None:
        """Writes answers into the run folder and reads them back, as a resumed run will."""
        rows = [{"question": task.prompt, "answer": s.text} for task in self.tasks for s in sampled.get(task.id, ())]
        self.folder.logs.put(ANSWERS, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        self._read(self.folder.path / ANSWERS)

    def _read(self, file: Path) -> None:
        """Takes the answers, and of the problems those that have one: an endpoint may have lost some."""
        self.by_task = read_answers(file, self.tasks)
        self.tasks = [task for task in self.tasks if task.id in self.by_task]

    def of(self, tasks: Sequence[Task], num_before: int) -> dict[str, Segment]:
        """One answer to each task. Passes through the set take a task's answers in turn.

        Args:
            num_before: problems before these, over all passes.
        """
        answers = {}
        for number, task in enumerate(tasks, num_before):
            sampled = self.by_task[task.id]
            answers[task.id] = sampled[number // len(self.tasks) % len(sampled)]
        return answers

    def texts(self) -> list[tuple[str, str]]:
        """Questions with their answers."""
        return [(task.prompt, segment.text) for task in self.tasks for segment in self.by_task.get(task.id, ())]


def read_answers(path: Path, tasks: Sequence[Task]) -> dict[str, list[Segment]]:
    """Reads cached answers, JSON lines with `question` and `answer`, and matches them to tasks by the question's text.

    Raises: DataError, with the line's number, or if no question is among the tasks.
    """
    by_prompt = {task.prompt.strip(): task for task in tasks}
    answers_by_task: dict[str, list[Segment]] = {}
    lines = read_text(path, "answers_file").rstrip("\n").split("\n")
    for number, line in enumerate(lines, 1):
        row = parse_json(line, f"{path}, line {number}")
        question, answer = (row.get(name) if isinstance(row, dict) else None for name in ("question", "answer"))
        if not isinstance(question, str) or not isinstance(answer, str | int | float):
            raise DataError(f"{path}, line {number}: expected an object with question and answer, both text")
        task = by_prompt.get(question.strip())
        if task is not None:
            answers_by_task.setdefault(task.id, []).append(written("actor", str(answer), policy="cached"))
    if not answers_by_task:
        raise DataError(f"none of the {len(lines)} questions in {path} is among the {len(tasks)} training problems")
    return answers_by_task
