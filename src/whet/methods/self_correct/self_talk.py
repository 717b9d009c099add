"""Self-correction (after arXiv:2411.16579): an actor learns one chain of thought that checks its steps and mends them.

build    y ~ actor(x);  c ~ critic(x, y), step by step;  s_1 c_1 ... s_k c_k up to the first step found wrong, and on
         from there by the actor, until the answer is right;  smoothed into the first person
learn    argmax sum of log actor(text | x), each form of text anew from the actor as it was:
         self_talk   comments after each step                    response   after a whole answer, then a whole new one
         plain       the same right answers without any talk
test     the actor before, and after each

Every form has as many texts, of the same questions and the same outputs of actor and critic, and as many updates.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from whet.config import ConfigError, SamplingConfig
from whet.config.parts import EndpointConfig, ModelConfig
from whet.credit.metrics import failures
from whet.methods.base import RunContext
from whet.methods.evaluator import Metrics, Traces
from whet.methods.names import POLICY
from whet.methods.report_specs import load_report
from whet.methods.rounds import INITIAL, in_epochs
from whet.methods.self_correct.examples import (
    FORMS,
    NO_TALK,
    chain_of,
    choose_chains,
    fate_of,
    measure_replies,
    row_of,
    self_corrections_of,
)
from whet.methods.self_correct.records import Form, smoothing_messages
from whet.methods.self_correct.rollout import FATES, KEPT, SelfTalk
from whet.methods.self_correct.self_talk_config import ARMS, Arm, SelfTalkConfig
from whet.methods.self_correct.step_comments import words_of
from whet.methods.solvers import PolicyAlgorithm, PolicyEvaluator, ask_policy, solver_spec, trace
from whet.methods.warm_start import check_texts, demonstration_rows, imitation_phase
from whet.models.prompts import REPLY, Conversation, of_rounds
from whet.run_folder.folder import SELF_TALK
from whet.seeds import seed_of
from whet.tasks.demonstrators import Demonstrator, demonstrator, examples_of
from whet.tasks.oracles import RULE_CRITICS
from whet.trainer.buffers import Queue
from whet.trainer.loop import Batch, Phase, Selection
from whet.types import FAULTS, Episode, Row, Task

OF_RUN: dict[str, str] = {"before": INITIAL, **{arm: f"{POLICY}_{arm}" for arm in ARMS}}
"""The eval targets of a run, and the policy behind each name."""


class SelfTalkEvaluator(PolicyEvaluator[SelfTalkConfig]):
    """The actor as it was, and after learning each form."""

    of_run = OF_RUN

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        policy = POLICY if name == "before" else OF_RUN[name]  # nothing was learnt yet
        return self.measured(tasks, policy, num_samples=self.config.evaluation.num_samples, label=name, **labels)

    def measured(
        self,
        tasks: Sequence[Task],
        policy: str,
        *,
        num_samples: int = 0,
        sampling: SamplingConfig | None = None,
        **labels: Any,
    ) -> tuple[Metrics, list[dict[str, Any]]]:
        """With metrics of the greedy replies' self-correction, if the policy has learnt one of its forms."""
        metrics, traces = super().measured(tasks, policy, num_samples=num_samples, sampling=sampling, **labels)
        learning = str(labels["phase"]).removeprefix("learn_")
        form = next((form for arm, form in FORMS.items() if policy == OF_RUN[arm] or learning == arm), None)
        corrections = NO_TALK
        if form is not None:
            words, run = self.algorithm.voice, self.run
            corrections = measure_replies(form, tasks, traces, words, run.prompts, run.grade)
        return {**metrics, **corrections}, traces

    def summary(self) -> dict[str, dict[str, Any]]:
        learnt = {("test", number): arm for number, arm in enumerate(self.config.forms, 1)}
        return self.logged({("before", 1): "before", **learnt})


def ask_all_models(algorithm: SelfTalkMethod) -> list[Conversation]:
    config, run = algorithm.config, algorithm.run
    conversations = ask_policy(algorithm)
    conversations += of_rounds((POLICY, "critic"), run.prompts, run.questions, config.roles.written)
    if config.smoother is not None:
        written = config.sampling.max_new_tokens + config.smoothing.max_new_tokens
        conversations.append(
            Conversation("smoother", run.questions, lambda q: smoothing_messages(q, REPLY), "", written)
        )
    return conversations


def plan_lines(algorithm: SelfTalkMethod) -> list[str]:
    config = algorithm.config
    chains = config.num_steps * config.prompts_per_step * config.group_size
    return [
        f"then build {chains:,} chains in {config.num_steps} steps, learn what is kept of them in each form "
        f"({', '.join(config.forms)}), test"
    ]


class SelfTalkMethod(PolicyAlgorithm[SelfTalkConfig]):
    """Self-talk: an actor learns to check its own steps as it writes them, and to mend them"""

    spec = solver_spec(
        SelfTalkConfig,
        roles=(POLICY, "critic", "smoother"),
        is_lazy=True,
        report=load_report("self_talk"),
        evaluator=SelfTalkEvaluator,
        final_policies=(POLICY, *(OF_RUN[arm] for arm in ARMS)),
        conversations=ask_all_models,
        plan=plan_lines,
    )

    def __init__(self, config: SelfTalkConfig, run: RunContext) -> None:
        super().__init__(config, run)
        self.voice = words_of(self.run.prompts)
        self._learnt: dict[str, list[Row]] = {}
        self._shown: Demonstrator | None = None
        if config.feedback != "critic" and config.data.kind != "chains":
            raise ConfigError(f"feedback = {config.feedback!r} knows the tiny world only: take critic")
        if run.trains and "critic" in self.run.loop.policies and config.warm_start.critic_steps:
            examples = examples_of(config.warm_start)
            self._shown = demonstrator(examples, config.data, self.run.tasks, self.run.prompts)
            self.run.warnings.extend(filter(None, [self._shown.warning]))
            check_texts(self._shown, ["critique"], self.run.loop.policies["critic"])

    # --- the run ------------------------------------------------------------------------------------------------------

    def phases(self) -> Iterator[Phase]:
        config = self.config
        yield self.evaluator.before()
        if self._shown is not None:
            start = config.warm_start
            yield imitation_phase(
                "sft_critic",
                "critic",
                start.critic_steps,
                partial(self._critiques, self._shown),
                start.learning,
                start.rows_per_step,
            )
        yield Phase(
            "build",
            config.num_steps,
            self._build,
            begin=self._begin,
            end=self._end,
            headline=("talk/repaired", "talk/clean", "talk/missed"),
        )
        count = self.run.loop.found.get("build", {}).get("learnt", 0)
        if not count:
            return
        for arm in config.forms:
            name = f"learn_{arm}"
            yield imitation_phase(
                name,
                POLICY,
                math.ceil(config.num_epochs * count / config.rows_per_step),
                partial(self._rows, arm),
                config.learning,
                config.rows_per_step,
                begin=partial(self.run.loop.restart, POLICY, INITIAL),
                validate=partial(self.evaluator.validate, phase=name),
                validate_every=config.validate_every,
                select=Selection(POLICY, OF_RUN[arm], "validation/acc"),
            )
        yield self.evaluator.test(config.forms)

    def _critiques(self, shown: Demonstrator, step: int) -> list[Row]:
        rng = random.Random(seed_of(self.run.loop.seed, "sft_critic", step))
        made = (shown.show("critique", rng) for _ in range(self.config.warm_start.rows_per_step))
        return demonstration_rows(made, self.run.loop.policies["critic"])

    # --- building -----------------------------------------------------------------------------------------------------

    @property
    def _queue(self) -> Queue[Episode]:
        return self.run.loop.store.episodes("talks")

    @property
    def _chosen(self) -> list[Episode]:
        return choose_chains(self._queue, self.config.clean_share, seed_of(self.config.seed, "clean"))

    @property
    def _forms(self) -> list[Form]:
        """The forms of records to make; other texts follow from the chain."""
        return ["step", "response"] if "response" in self.config.forms else ["step"]

    def _begin(self) -> None:
        self.run.loop.freeze(POLICY, INITIAL)

    def _rollout(self, step: int) -> SelfTalk:
        config, sampling, role = self.config, self.config.roles, self.run.runtime.role
        rule = RULE_CRITICS.get(config.feedback)
        critic = config.feedback if rule else config.critic
        models = {"actor": config.policy, "critic": critic, "smoother": config.smoother}
        return SelfTalk(
            self.run.prompts,
            self.voice,
            role("actor", POLICY, sampling.answer),
            role("actor", POLICY, sampling.refinement),
            rule or role("critic", "critic", sampling.critique),
            (config.seed, "build", step),
            config.max_rounds,
            self._forms,
            role("smoother", "smoother", config.smoothing) if config.smoother else None,
            {name: _name(model) for name, model in models.items()},
        )

    def _build(self, step: int) -> Batch:
        """Makes chains by the current actor and critic, and stores them."""
        config = self.config
        tasks = self.run.next_tasks(step, config.prompts_per_step)
        groups = self.run.runtime.by_task(self._rollout(step), tasks, num_samples=config.group_size)
        episodes = [episode for group in groups for episode in group]
        encode, limit = self.run.loop.policies[POLICY].tokenizer.encode, config.sampling.max_new_tokens
        chains = [chain_of(episode, encode, limit) for episode in episodes if episode.outcome not in FAULTS]
        self._queue.put(str(step), chains)
        fates = Counter(fate_of(chain) for chain in chains)
        kept_chains = [chain for chain in chains if fate_of(chain) in KEPT]
        rounds = [self_corrections_of(chain)[0].rounds for chain in kept_chains]
        labels: dict[str, Any] = {"phase": "build", "step": step, "split": "train", "label": "training"}
        return Batch(
            metrics={
                **{f"talk/{fate}": fates[fate] / len(chains) if chains else None for fate in FATES},
                "talk/rounds": fmean(rounds) if rounds else None,
                **failures(episodes),
            },
            traces=[trace(chain.task, chain.segments[0], **labels) for chain in kept_chains[: config.traces_per_step]],
        )

    def _end(self) -> dict[str, Any]:
        """Writes the records that are learnt, and counts all chains by their fate."""
        fates = Counter(fate_of(chain) for chain in self._queue)
        learnt = self._chosen
        records = [talk for chain in learnt for talk in chain.segments[0].parsed["talks"]]
        self.run.loop.folder.write(SELF_TALK, "".join(json.dumps(record) + "\n" for record in records))
        if not learnt:
            text = "no chain with a repair came out right, so there is nothing to learn: more problems (num_steps), "
            text += "more rounds (max_rounds) or a better critic may help"
            self.run.loop.folder.event("warning", "nothing_kept", text, phase="build")
            self.run.loop.progress.tell("warning", text)
        return {**{fate: fates[fate] for fate in FATES}, "learnt": len(learnt)}

    # --- learning -----------------------------------------------------------------------------------------------------

    def _rows(self, arm: Arm, step: int) -> list[Row]:
        config = self.config
        if arm not in self._learnt:
            make = partial(
                row_of, prompts=self.run.prompts, policy=self.run.loop.policies[POLICY], with_mistakes=config.mistakes
            )
            self._learnt[arm] = [make(arm, self_corrections_of(chain)) for chain in self._chosen]
        return in_epochs(self._learnt[arm], step, config.rows_per_step, config.seed, "learn")


def _name(who: ModelConfig | EndpointConfig | str | None) -> str:
    return who.path if isinstance(who, ModelConfig) else who.model if isinstance(who, EndpointConfig) else who or "rule"
