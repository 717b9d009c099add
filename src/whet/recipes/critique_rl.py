"""Critique-RL (arXiv:2510.24320): train a critic in two stages so that an actor answers better after its critique.

    y ~ actor(x);  c ~ critic(x, y);  y' ~ actor(x, y, c)
    stage I   maximise E[r_dis(x, y, c)]               - beta   KL(critic || SFT critic)        (eq. 7, 8)
    stage II  maximise E[r_refine(y') (+) r_dis]       - beta_2 KL(critic || stage I critic)    (eq. 4-6, 9)

The phases: warm start of actor and critic, stage I, stage II, and the test of every critic on the way. The rewards
are in `critique_rewards`, the credit in `critique_credit`, the clipped loss in `whet.objectives`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from whet.config.parts import SamplingConfig
from whet.engines.local import LocalEngine
from whet.evals.critique import no_critic_metrics
from whet.evals.protocol import is_right, measure, paths, play_rounds, trace_rows
from whet.objectives import clipped_policy_loss
from whet.play.critique import CritiqueRound
from whet.play.driver import Service
from whet.play.roles import Role
from whet.play.solve import GRADER
from whet.recipes.critique_credit import credit, pay, reward_metrics, signs, terms
from whet.recipes.critique_rl_config import CritiqueRLConfig, RLConfig, Stage2Config
from whet.recipes.data import read_answers, write_answers
from whet.recipes.prompts import Conversation
from whet.recipes.warm_start import warm_start_phase
from whet.tasks.dialects import DIALECTS
from whet.training.loop import Batch, Phase, Run, Selection
from whet.training.rule import UpdateRule
from whet.types import Episode, Sampling, Segment, Task

SFT, STAGE1, STAGE2 = "critic_sft", "critic_stage1", "critic_stage2"
"""The frozen critics that the run keeps: after the warm start, and the best of each stage."""
ROWS = {SFT: "sft_critic", STAGE1: "stage1", STAGE2: "stage2"}
"""Their names in tables and traces."""
ACC_REFINE = "critique/acc_refine"


@dataclass
class CritiqueRL:
    """The recipe, put together for one run.

    Args:
        tasks: by split: train, validation, test.
        grade: the service that grades `(reply, task)` pairs.
    """

    config: CritiqueRLConfig
    run: Run
    tasks: Mapping[str, Sequence[Task]]
    grade: Service

    def __post_init__(self) -> None:
        self.dialect = DIALECTS[self.config.dialect]
        self.engines: dict[str, LocalEngine] = {}
        self.greedy_answers: dict[str, Segment] = {}
        self.train_tasks = self.tasks["train"]
        self.cached_answers: dict[str, list[Segment]] | None = None
        if self.config.answers == "cached" and self.config.answers_file is not None:
            self.cached_answers = read_answers(Path(self.config.answers_file), self.train_tasks)
            self.train_tasks = [task for task in self.train_tasks if task.id in self.cached_answers]

    # --- phases ---------------------------------------------------------------------------------------------------

    def phases(self) -> list[Phase]:
        """The run from start to end."""
        stage1, stage2 = self.config.stage1, self.config.stage2
        phases = [
            warm_start_phase(self.config, self.run, self.tasks["train"], "actor"),
            warm_start_phase(self.config, self.run, self.tasks["train"], "critic"),
        ]
        reference = SFT
        for name, stage, into, metric in (
            ("stage1", stage1, STAGE1, "validation/acc_dis"),
            ("stage2", stage2, STAGE2, "validation/acc_refine"),
        ):
            # Stage II starts from, and is held to, the stage I critic; without a stage I, the warm start's.
            phases.append(self._stage(name, stage, reference=reference, into=into, metric=metric))
            reference = into if stage.num_steps else reference
        kept = [SFT, *([STAGE1] if stage1.num_steps else []), *([STAGE2] if stage2.num_steps else [])]
        phases.append(self._test(kept))
        return [phase for phase in phases if phase.num_steps]

    def _stage(self, name: str, stage: RLConfig, *, reference: str, into: str, metric: str) -> Phase:
        learning = stage.learning
        num_rows = min(stage.prompts_per_step, len(self.train_tasks)) * stage.group_size
        rule = UpdateRule(
            loss=partial(clipped_policy_loss, low=1 - stage.clip, high=1 + stage.clip),
            aggregation="sequence_mean",
            learning=learning,
            num_updates=stage.num_steps * learning.updates_a_step(num_rows),
        )

        def begin() -> None:
            if reference == SFT:
                self.run.fork("critic", SFT) if SFT not in self.run.policies else None
            self.run.policies["critic"].copy_from(self.run.policies[reference])

        return Phase(
            name=name,
            num_steps=stage.num_steps,
            collect=partial(self._collect, name, stage, reference),
            updates={"critic": rule},
            begin=begin,
            validate=partial(self._validate, name),
            validate_every=stage.validate_every,
            select=Selection("critic", into, metric),
            # Stage I plays no refinements.
            headline=("reward/mean", "critique/acc_dis", ACC_REFINE if into == STAGE2 else "group/no_signal"),
        )

    def _test(self, critics: Sequence[str]) -> Phase:
        """One step a row of the final table: no critic, then every critic kept."""

        def begin() -> None:
            if SFT not in self.run.policies:
                self.run.fork("critic", SFT)

        def collect(step: int) -> Batch:
            tasks = self.tasks["test"][: self.config.evaluation.num_test]
            if step == 1:
                answers = [self._greedy_answers(tasks)[task.id] for task in tasks]
                metrics = no_critic_metrics([is_right(a) for a in answers if a.grade and a.grade.score is not None])
                return Batch(metrics={f"test/{name}": value for name, value in metrics.items()})
            critic = critics[step - 2]
            episodes = self._evaluate(tasks, critic)
            traces = trace_rows(episodes, phase="test", step=step, split="test", critic=ROWS[critic])
            return Batch(metrics={f"test/{n}": v for n, v in measure(episodes).items()}, traces=list(traces))

        return Phase("test", 1 + len(critics), collect, begin=begin, headline=("test/acc_refine", "test/acc_dis"))

    def summary(self) -> dict[str, dict[str, Any]]:
        """The final table's rows, from the metrics that the test phase logged."""
        names = ["no_critic", *(ROWS[name] for name in (SFT, STAGE1, STAGE2) if name in self.run.policies)]
        return {
            names[row["step"] - 1]: {k.removeprefix("test/"): v for k, v in row.items() if k.startswith("test/")}
            for row in self.run.folder.read_metrics()
            if row.get("phase") == "test" and row.get("step") in range(1, len(names) + 1)
        }

    # --- what a session asks of every recipe ------------------------------------------------------------------------

    def conversations(self) -> list[Conversation]:
        """What may be put to actor and critic, with replies of one letter in place of those still to be written."""
        roles, rounds, dialect = self.config.roles, self.config.evaluation.num_rounds, self.dialect
        questions = [(task.prompt,) for tasks in self.tasks.values() for task in tasks]
        more = rounds * (roles.critique.max_new_tokens + roles.refinement.max_new_tokens)
        written = roles.answer.max_new_tokens + more
        history = [("a", "c")] * (rounds - 1)
        found = [
            Conversation("actor", questions, lambda q: dialect.refine_messages(q, "a", "c", history),
                         dialect.refine_prefill, written),
            Conversation("critic", questions, lambda q: dialect.critique_messages(q, "a", history), "", written),
        ]  # fmt: skip
        if self.cached_answers is not None:  # those of a file may be longer than any that is written here
            pairs = [(t.prompt, s.text) for t in self.train_tasks for s in self.cached_answers[t.id]]
            more = roles.critique.max_new_tokens + roles.refinement.max_new_tokens
            found += [
                Conversation("actor", pairs, lambda q, a: dialect.refine_messages(q, a, "c"),
                             dialect.refine_prefill, more),
                Conversation("critic", pairs, dialect.critique_messages, "", roles.critique.max_new_tokens),
            ]  # fmt: skip
        return found

    def plan(self) -> list[str]:
        """What a run would do beside what all recipes tell, in lines."""
        return []

    @property
    def token_budget(self) -> int:
        return self.config.stage1.learning.token_budget

    def parts_in_use(self) -> list[object]:
        """The settings that phases read as they run. What is left out here has no effect with these settings.

        tests/test_critique_rl.py holds this against the reads of a real run.
        """
        config = self.config
        parts: list[object] = [stage for stage in (config.stage1, config.stage2) if stage.num_steps]
        parts += [config.engine, config.evaluation, config.roles, config.recipe, config.traces_per_step, config.watch]
        if config.warm_start.actor_steps or config.warm_start.critic_steps:
            parts.append(config.warm_start)
        if config.answers == "cached" and config.answers_file is None:
            parts.append(config.cached_per_task)
        return parts

    # --- playing --------------------------------------------------------------------------------------------------

    def services(self) -> dict[str, Service]:
        """Every policy's engine, and the grader."""
        for name, policy in self.run.policies.items():
            if name not in self.engines:
                settings = self.config.engine
                self.engines[name] = LocalEngine(
                    policy, max_rows=settings.max_rows, prefill_tokens=settings.prefill_tokens
                )
        return {GRADER: self.grade, **{name: engine.generate for name, engine in self.engines.items()}}

    def rounds(
        self, key: Sequence[object], critic: str, *, greedy: bool, temperature: float | None = None, **settings: Any
    ) -> CritiqueRound:
        """The critique round with this run's actor and one of its critics.

        Args:
            temperature: of all roles, where not greedy. None: each role's own.
        """
        roles = self.config.roles

        def role(name: str, policy: str, sampling: SamplingConfig) -> Role:
            chosen = Sampling(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_new_tokens=sampling.max_new_tokens,
                stop=sampling.stop,
            )
            if greedy:
                chosen = replace(chosen, temperature=0.0, top_p=1.0)
            elif temperature is not None:
                chosen = replace(chosen, temperature=temperature)
            return Role(name, policy, self.run.policies[policy].tokenizer, chosen)

        return CritiqueRound(
            dialect=self.dialect,
            actor=role("actor", "actor", roles.answer),
            critic=role("critic", critic, roles.critique),
            reviser=role("actor", "actor", roles.refinement),
            key=(self.config.seed, *key),
            **settings,
        )

    def _collect(self, name: str, stage: RLConfig, reference: str, step: int) -> Batch:
        """One step of a stage: play, pay, turn pay into credit."""
        tasks = self._training_tasks(name, step, stage.prompts_per_step)
        rounds = self.rounds((name, step), "critic", greedy=False, num_critiques=stage.group_size,
                             refine=isinstance(stage, Stage2Config))  # fmt: skip
        visit = self._first_task(name, step, stage.prompts_per_step) // len(self.train_tasks)
        answers = self._cached(tasks, visit) if self.config.answers == "cached" else {}
        episodes = [group[0] for group in play_rounds(rounds, tasks, self.services(), answers=answers)]
        groups = [[path for path in paths(episode) if not path.broken] for episode in episodes]
        rewards = [[pay(stage, path) for path in group] for group in groups]
        earned = credit(stage, groups, rewards, self.run.policies[reference])
        paid = {}
        for episode, group, pays in zip(episodes, groups, rewards, strict=True):
            for path, each in zip(group, pays, strict=True):
                key = (episode.task.id, path.critique_index or 0)
                paid[key] = {"reward": each["total"], "rewards": terms(each), "credit": earned.advantages.get(key)}
        shown = episodes[: self.config.traces_per_step]
        traces = trace_rows(shown, phase=name, step=step, split="train", critic="training", paid=paid)
        metrics = {**reward_metrics(stage, groups, rewards), **self._critique_metrics(episodes), **earned.metrics}
        return Batch(earned.rows, metrics, list(traces), signs=signs(stage, episodes, rewards))

    def _cached(self, tasks: Sequence[Task], visit: int) -> dict[str, Segment]:
        """Each task's answers in turn, from the file given, or sampled once of the frozen actor and kept in the run
        folder.

        Args:
            visit: how often the set has been gone through before.
        """
        if self.cached_answers is None:
            kept = self.run.folder.path / "answers.jsonl"
            if not kept.exists():
                rounds = self.rounds(("cached",), "critic", greedy=False, num_critiques=0)
                used = self._tasks_in_use()
                groups = play_rounds(rounds, used, self.services(), num_samples=self.config.cached_per_task)
                sampled = {group[0].task.id: [episode.segments[0] for episode in group] for group in groups}
                self.run.folder.logs.put(kept.name, write_answers(sampled, used))
            self.cached_answers = read_answers(kept, self.train_tasks)
        found = self.cached_answers
        return {task.id: found[task.id][visit % len(found[task.id])] for task in tasks}

    def _tasks_in_use(self) -> list[Task]:
        """The training problems that the stages will come to."""
        stages = (self.config.stage1, self.config.stage2)
        return list(self.train_tasks[: sum(stage.num_steps * stage.prompts_per_step for stage in stages)])

    def _training_tasks(self, name: str, step: int, count: int) -> list[Task]:
        """The stage's next problems, once round the set before any comes again; stage II goes on where I ended."""
        train = self.train_tasks
        first = self._first_task(name, step, count)
        return [train[(first + i) % len(train)] for i in range(min(count, len(train)))]

    def _first_task(self, name: str, step: int, count: int) -> int:
        before = self.config.stage1.num_steps * self.config.stage1.prompts_per_step if name == "stage2" else 0
        return before + (step - 1) * count

    # --- measuring ------------------------------------------------------------------------------------------------

    def _validate(self, name: str, step: int) -> Batch:
        tasks = self.tasks["validation"][: self.config.evaluation.num_validation]
        # One plain round whatever the test will be: a checkpoint is chosen by what its stage is to learn.
        episodes = self._evaluate(tasks, "critic", num_rounds=1, keep_right=False)
        traces = trace_rows(episodes[:50], phase=name, step=step, split="validation", critic="training")
        return Batch(metrics=measure(episodes), traces=list(traces))

    def _evaluate(self, tasks: Sequence[Task], critic: str, **changed: Any) -> list[Episode]:
        """Greedy answer, critique and refinement of each task, as the paper evaluates.

        Args:
            changed: settings of the round other than the config's.
        """
        options = self.config.evaluation
        settings = {"num_rounds": options.num_rounds, "history": options.history, "keep_right": options.oracle_verifier}
        protocol = self.rounds(("evaluation",), critic, greedy=True, **(settings | changed))
        answers = self._greedy_answers(tasks)
        return [group[0] for group in play_rounds(protocol, tasks, self.services(), answers=answers)]

    def _greedy_answers(self, tasks: Sequence[Task]) -> Mapping[str, Segment]:
        """The frozen actor's; made once."""
        missing = [task for task in tasks if task.id not in self.greedy_answers]
        if missing:
            rounds = self.rounds(("evaluation",), "critic", greedy=True, num_critiques=0)
            for [episode] in play_rounds(rounds, missing, self.services()):
                self.greedy_answers[episode.task.id] = episode.segments[0]
        return self.greedy_answers

    def _critique_metrics(self, episodes: Sequence[Episode]) -> dict[str, float | None]:
        lengths = [len(e.segments[i].tokens) for e in episodes for i in e.indices("critic")]
        measured = {f"critique/{name}": value for name, value in measure(episodes).items()}
        exhausted = measured.pop("critique/reply_exhausted")
        return {
            **measured,
            "length/mean": sum(lengths) / len(lengths) if lengths else None,
            "length/truncated": measured.pop("critique/truncated"),
            "grader/reply_exhausted": exhausted,
        }
