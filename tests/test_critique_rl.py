"""The recipe: prompts, flow, credit, budget and stages (spec sections 3, 4, 9.10, 9.11)."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from whet.config import load, read_all, unread
from whet.engines.local import LocalEngine
from whet.evals.protocol import Chained, last_paths, measure, measure_samples, paths, play_rounds
from whet.grading import make_grader
from whet.grading.verdicts import parse_verdict
from whet.models.policy import load_policies
from whet.play.critique import CritiqueRound
from whet.play.roles import Role, render, seed_of, written
from whet.play.solve import GRADER
from whet.recipes import opening, session
from whet.recipes.critique_credit import credit, pay
from whet.recipes.critique_rl import CritiqueRL
from whet.recipes.critique_rl_config import CritiqueRLConfig, Stage1Config, Stage2Config
from whet.recipes.data import load_tasks
from whet.recipes.oracles import alarmist, empty, false, judge, oracle
from whet.tasks.dialects import CHAINS, DIALECTS, ENGLISH
from whet.training.folder import RunFolder
from whet.training.learner import Learner
from whet.training.loop import Run
from whet.types import Grade, Sampling, Task

TASK = Task(id="t", prompt="7 + 5 * 3", answer="6")
RIGHT, WRONG = (
    "Step 1: 7 + 5 = 2\nStep 2: 2 * 3 = 6\nThe answer is 6",
    "Step 1: 7 + 5 = 3\nStep 2: 3 * 3 = 9\nThe answer is 9",
)


class Quiet:
    def begin(self, phase, done, total): ...
    def step(self, step, shown): ...
    def tell(self, level, text): ...
    def end(self): ...


# --- prompts (9.11) -------------------------------------------------------------------------------------------------


def test_spec_9_11_the_critic_does_not_see_the_prefill_and_the_refinement_prompt_does():
    answer = ENGLISH.solve_prefill + "2 + 2 = 4. The answer is 4."
    [critic] = ENGLISH.critique_messages("What is 2 + 2?", answer)
    assert ENGLISH.solve_prefill.strip() not in critic["content"]
    assert critic["content"].endswith("2 + 2 = 4. The answer is 4.")
    first, actors, critique = ENGLISH.refine_messages("What is 2 + 2?", answer, "Step sentence: a")
    assert [m["role"] for m in (first, actors, critique)] == ["user", "assistant", "user"]
    assert actors["content"] == answer
    assert critique["content"].endswith("Step sentence: a")
    assert ENGLISH.refine_prefill != ENGLISH.solve_prefill


def test_spec_4_5_only_a_prefill_at_the_start_is_taken_off():
    phrase = ENGLISH.solve_prefill
    [critic] = ENGLISH.critique_messages("q", f"I said: {phrase}and meant it. The answer is 4.")
    assert phrase.strip() in critic["content"]


def test_spec_9_11_the_critique_reaches_the_actor_from_its_first_step_on():
    steps = "Step sentence: a\nStep sentence: b"
    assert ENGLISH.steps_onward(f"I think...\n{steps}") == steps
    assert ENGLISH.steps_onward("no marker here") == "no marker here"
    assert CHAINS.steps_onward("Step 1: 7 + 5 = 2") == "Step 1: 7 + 5 = 2"


@pytest.mark.parametrize("name", DIALECTS)
def test_spec_9_11_a_prompt_alone_holds_no_verdict(name):
    dialect = DIALECTS[name]
    messages = dialect.critique_messages("7 + 5", WRONG, [(WRONG, "a critique")]) + dialect.solve_messages("7 + 5")
    for message in messages:
        assert parse_verdict(message["content"]) is None
        assert parse_verdict(message["content"], rule="substring") is None


def test_the_whole_history_comes_oldest_first():
    messages = CHAINS.refine_messages("7 + 5", "second", "c2", [("first", "c1")])
    assert [m["content"] for m in messages] == ["Solve: 7 + 5", "first", "Refine: c1", "second", "Refine: c2"]
    messages = CHAINS.critique_messages("7 + 5", "second", [("first", "c1")])
    assert [m["content"] for m in messages] == ["Critique: 7 + 5\nfirst", "c1", "Critique: second"]


# --- the flow -------------------------------------------------------------------------------------------------------


@pytest.fixture
def stage(random_policy):
    """A round between random actors and a rule or random critic; and the services it needs."""
    sampling = Sampling(temperature=1.0, max_new_tokens=24)

    def role(name: str) -> Role:
        return Role(name, "policy", random_policy.tokenizer, sampling)

    services = {"policy": LocalEngine(random_policy).generate, GRADER: make_grader("chains").grade}
    rounds = CritiqueRound(CHAINS, role("actor"), role("critic"), role("actor"), key=(0, "test"))
    return rounds, services


def test_one_answer_a_group_of_critiques_and_a_refinement_of_each(stage):
    rounds, services = stage
    [[episode]] = play_rounds(replace(rounds, num_critiques=3), [TASK], services)
    assert [s.role for s in episode.segments] == ["actor", *["critic", "actor"] * 3]
    assert [s.parent for s in episode.segments] == [None, 0, 1, 0, 3, 0, 5]
    critiques = [episode.segments[i] for i in episode.indices("critic")]
    assert len({c.group["answer"] for c in critiques}) == 1
    assert len({c.context for c in critiques}) == 1
    assert len({c.seed for c in critiques}) == 3
    assert all(s.grade is not None for s in episode.segments if s.role == "actor")


def test_contexts_are_what_the_dialect_renders_and_tokens_are_kept(stage):
    rounds, services = stage
    [[episode]] = play_rounds(rounds, [TASK], services)
    answer, critique, refinement = episode.segments
    tokenizer = rounds.actor.tokenizer
    assert answer.context == render(tokenizer, CHAINS.solve_messages(TASK.prompt))
    assert critique.context == render(tokenizer, CHAINS.critique_messages(TASK.prompt, answer.text))
    assert refinement.context == render(tokenizer, CHAINS.refine_messages(TASK.prompt, answer.text, critique.text))
    for segment in episode.segments:
        assert len(segment.tokens) == len(segment.logprobs) == sum(count for _, count in segment.versions)


def test_later_rounds_judge_the_refinement_and_share_no_baseline_with_other_answers(stage):
    rounds, services = stage
    [[episode]] = play_rounds(replace(rounds, num_critiques=2, num_rounds=2), [TASK], services)
    assert [s.parent for s in episode.segments] == [None, 0, 1, 2, 3, 0, 5, 6, 7]
    chained = list(last_paths(episode))
    assert len(chained) == 2
    assert all(path.answer is episode.segments[0] for path in chained)
    assert [path.refinement for path in chained] == [episode.segments[4], episode.segments[8]]
    later = [episode.segments[3], episode.segments[7]]
    assert len({s.group["answer"] for s in [episode.segments[1], *later]}) == 3
    [[last]] = play_rounds(replace(rounds, num_rounds=2, history="last"), [TASK], services)
    [[full]] = play_rounds(replace(rounds, num_rounds=2, history="full"), [TASK], services)
    assert len(full.segments[3].context) > len(last.segments[3].context)


def test_the_oracle_verifier_keeps_right_answers(stage):
    rounds, services = stage
    rounds = replace(rounds, keep_right=True, critic=oracle)
    [[kept]] = play_rounds(rounds, [TASK], services, answers={"t": written("actor", RIGHT)})
    [[sent]] = play_rounds(rounds, [TASK], services, answers={"t": written("actor", WRONG)})
    assert len(kept.segments) == 1
    assert len(sent.segments) == 3
    found = measure([kept, sent])
    assert (found["acc"], found["c2i"], found["acc_dis"], found["unparsed"]) == (0.5, 0.0, 1.0, 0.0)


def test_a_broken_grade_is_left_out_and_counted(stage):
    rounds, services = stage
    broken = {**services, GRADER: lambda items: [Grade(score=None, reason="timed out") for _ in items]}
    [[episode]] = play_rounds(rounds, [TASK], broken)
    assert (episode.outcome, episode.reason) == ("grader_error", "timed out")
    assert measure([episode])["grader_errors"] == 1.0
    assert measure([episode])["acc"] is None


@pytest.mark.parametrize("num_rounds", [1, 2, 3])
def test_every_verdict_is_held_against_the_answer_that_it_judges(stage, num_rounds):
    rounds, services = stage
    rounds = replace(rounds, critic=oracle, num_rounds=num_rounds)
    [[episode]] = play_rounds(rounds, [TASK], services, answers={"t": written("actor", WRONG)})
    # the same exchange, but as if the critique had worked: the later answers are right
    segments = tuple(replace(s, text=RIGHT, grade=Grade(score=1.0)) if i and s.role == "actor" else s
                     for i, s in enumerate(episode.segments))  # fmt: skip
    verdicts = [{"verdict": "wrong" if i == 1 else "correct"} for i in range(len(segments))]
    segments = tuple(replace(s, parsed=verdicts[i]) if s.role == "critic" else s for i, s in enumerate(segments))
    found = measure([replace(episode, segments=segments)])
    assert (found["acc"], found["acc_refine"], found["acc_dis"], found["n"]) == (0.0, 1.0, 1.0, 1)


def test_the_oracle_verifier_watches_every_round(stage):
    rounds, services = stage
    rounds = replace(rounds, critic=oracle, num_rounds=3, keep_right=True)
    services = {**services, GRADER: lambda items: [Grade(score=float(text != WRONG)) for text, _ in items]}
    [[episode]] = play_rounds(rounds, [TASK], services, answers={"t": written("actor", WRONG)})
    assert len(episode.segments) == 3  # the first refinement is right, so nothing goes on


def test_samples_with_a_failed_grading_lose_the_question_and_not_the_evaluation(stage):
    rounds, services = stage
    groups = play_rounds(rounds, [TASK, replace(TASK, id="u")], services, num_samples=2)
    segments = groups[1][0].segments
    broken = replace(groups[1][0], segments=(replace(segments[0], grade=Grade(score=None)), *segments[1:]))
    found = measure_samples([groups[0], [broken, groups[1][1]]])
    assert found == measure_samples(groups[:1])


@pytest.mark.parametrize(("answer", "verdict"), [(RIGHT, "correct"), (WRONG, "wrong")])
def test_rule_critics_of_the_tiny_world(answer, verdict):
    assert parse_verdict(oracle(TASK, answer)) == parse_verdict(judge(TASK, answer)) == verdict
    assert len(judge(TASK, WRONG)) < len(oracle(TASK, WRONG))
    assert parse_verdict(alarmist(TASK, answer)) == "wrong"
    assert empty(TASK, answer) == ""
    assert false(TASK, answer) != oracle(TASK, answer)


# --- credit (3.1) ---------------------------------------------------------------------------------------------------


def graded(segment, right):
    return replace(segment, grade=Grade(score=float(right)))


@pytest.fixture
def group(stage):
    """One wrong answer and four critiques of it, as sampled; verdicts and refinements set by hand."""
    rounds, services = stage
    [[episode]] = play_rounds(replace(rounds, num_critiques=4), [TASK], services)
    verdicts, fixed = ["wrong", "wrong", "correct", None], [True, False, True, False]
    return [
        replace(
            path,
            answer=graded(path.answer, False),
            critique=replace(path.critique, parsed={"verdict": verdict}),
            refinement=graded(path.refinement, right),
        )
        for path, verdict, right in zip(paths(episode), verdicts, fixed, strict=True)
    ]


def test_pay_by_stage(group):
    assert [pay(Stage1Config(), path)["total"] for path in group] == [1, 1, -1, -1]
    assert [pay(Stage1Config(scale="unit"), path)["total"] for path in group] == [1, 1, 0, 0]
    assert [pay(Stage2Config(), path)["total"] for path in group] == [1.2, 0.2, -1, -1]
    assert [pay(Stage2Config(combine="additive"), path)["total"] for path in group] == [1.2, 0.2, 1, 0]
    assert [pay(Stage2Config(discrimination=False), path)["total"] for path in group] == [1, 0, 1, 0]


@pytest.mark.parametrize("sequence_level", [False, True])
def test_credit_lands_on_sampled_tokens_and_follows_the_baseline(group, random_policy, sequence_level):
    settings = Stage1Config(kl_coef=0.0, sequence_level=sequence_level)
    earned = credit(settings, [group], [[pay(settings, path) for path in group]], random_policy)
    assert list(earned.advantages.values()) == pytest.approx([4 / 3, 4 / 3, -4 / 3, -4 / 3])
    every = []
    for row, path in zip(earned.rows, group, strict=True):
        before = len(path.critique.context)
        assert row.tokens == path.critique.context + path.critique.tokens
        assert not any(row.loss_mask[:before])
        assert all(row.loss_mask[before:])
        assert len(set(row.credit[before:])) == 1  # without KL, one credit a sequence
        every += row.credit[before:]
    if sequence_level:
        assert sorted(set(every)) == pytest.approx([-4 / 3, 4 / 3])
    else:  # whitened over tokens
        assert sum(every) / len(every) == pytest.approx(0, abs=1e-5)
        assert math.sqrt(sum(c * c for c in every) / len(every)) == pytest.approx(1, abs=1e-4)


def test_the_kl_to_itself_is_nothing_and_to_another_it_shapes_every_token(group, random_policy):
    settings = Stage1Config(kl_coef=0.5)
    rewards = [[pay(settings, path) for path in group]]
    itself = credit(settings, [group], rewards, random_policy)
    assert itself.metrics["kl/ref"] == pytest.approx(0, abs=1e-5)
    other = random_policy.fork("other")
    with torch.no_grad():
        other.model.model.norm.weight.mul_(0.5)
    shaped = credit(settings, [group], rewards, other)
    assert abs(shaped.metrics["kl/ref"]) > 1e-3
    row = shaped.rows[0]
    assert len(set(row.credit[-row.num_trained :])) == row.num_trained


def test_a_group_that_lost_members_uses_the_others_and_a_lone_one_is_dropped(group, random_policy):
    settings = Stage1Config(kl_coef=0.0)
    rewards = [[pay(settings, path) for path in group]]
    three = credit(settings, [group[1:]], [rewards[0][1:]], random_policy)
    assert list(three.advantages.values()) == pytest.approx([2, -1, -1])
    assert credit(settings, [group[:1]], [rewards[0][:1]], random_policy).rows == []


# --- budget, schedule, stages (9.10) --------------------------------------------------------------------------------


@pytest.fixture
def recipe(random_model, tmp_path):
    """The recipe on a random model, in a run folder; settings as overrides."""

    def build(*overrides: str) -> CritiqueRL:
        paths = (f"actor.path={random_model}", f"critic.path={random_model}")
        small = ("data.num_train=512", "data.num_validation=4", "data.num_test=4")
        config = load(CritiqueRLConfig, None, [*paths, *small, *overrides])
        policies = load_policies({"actor": config.actor, "critic": config.critic})
        run = Run(policies, RunFolder(tmp_path / "run"), 0, 0, Quiet())
        run.folder.acquire()
        return CritiqueRL(config, run, load_tasks(config.data)[0], make_grader("chains").grade)

    return build


def test_spec_9_10_the_paper_s_batch_makes_256_critiques_and_8_updates_a_step(recipe):
    paper = ("prompts_per_step=64", "group_size=4", "learning.num_epochs=2", "learning.minibatch_rows=64")
    made = recipe("stage1.num_steps=500", *(f"stage1.{setting}" for setting in paper))
    [phase] = [phase for phase in made.phases() if phase.name == "stage1"]
    assert phase.updates["critic"].num_updates == 500 * 8
    assert 500 * 64 == 32_000


def test_spec_9_10_learning_rate_warms_up_and_ends_at_a_tenth_of_its_peak(recipe):
    made = recipe("stage1.num_steps=10", "stage1.learning.learning_rate=1e-3", "stage1.learning.warmup_steps=4")
    [phase] = [phase for phase in made.phases() if phase.name == "stage1"]
    rule = phase.updates["critic"]
    learner = Learner(made.run.policies["critic"], rule)
    assert [learner.learning_rate(i) for i in range(5)] == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3])
    assert learner.learning_rate(rule.num_updates) == pytest.approx(1e-4)
    rates = [learner.learning_rate(i) for i in range(4, rule.num_updates)]
    assert rates == sorted(rates, reverse=True)


def test_spec_9_10_stages_are_phases_and_stage_two_is_held_to_the_stage_one_critic(recipe):
    made = recipe("stage1.num_steps=2", "stage2.num_steps=2", "stage1.prompts_per_step=4",
                  "stage2.prompts_per_step=4", "warm_start.actor_steps=0", "warm_start.critic_steps=0",
                  "stage1.learning.learning_rate=0.01")  # fmt: skip
    phases = {phase.name: phase for phase in made.phases()}
    assert list(phases) == ["stage1", "stage2", "test"]
    run, policies = made.run, made.run.policies
    run.run([phases["stage1"]])
    assert {"critic_sft", "critic_stage1"} <= policies.keys()
    run.fork("critic", "critic_stage1")  # as if stage I had ended in its best step
    phases["stage2"].begin()
    states = [policies[name].state().values() for name in ("critic", "critic_sft")]
    differs = [not torch.equal(a, b) for a, b in zip(*states, strict=True)]
    assert any(differs)
    first = phases["stage2"].collect(1)
    assert first.metrics["kl/ref"] == pytest.approx(0, abs=1e-6)
    assert {"reward/indirect", "reward/judged_right"} <= first.metrics.keys()
    assert "reward/direct" in phases["stage1"].collect(1).metrics


def test_leaving_a_stage_out_changes_start_and_reference(recipe):
    made = recipe("stage1.num_steps=0", "stage2.num_steps=1", "stage2.prompts_per_step=2")
    phases = {phase.name: phase for phase in made.phases()}
    assert "stage1" not in phases
    phases["stage2"].begin()
    assert "critic_sft" in made.run.policies
    assert phases["stage2"].collect(1).metrics["kl/ref"] == pytest.approx(0, abs=1e-6)


def test_stage_two_goes_on_with_new_problems_and_rounds_come_after_the_last(recipe):
    made = recipe("stage1.num_steps=3", "stage1.prompts_per_step=4", "stage2.prompts_per_step=5", "data.num_train=20")
    first = [task.id for step in (1, 2, 3) for task in made._training_tasks("stage1", step, 4)]
    second = [task.id for task in made._training_tasks("stage2", 1, 5)]
    assert len(set(first + second)) == 17
    assert [t.id for t in made._training_tasks("stage2", 2, 5)][3:] == first[:2]


def test_validation_is_a_plain_round_whatever_the_test_will_be(recipe):
    made = recipe("evaluation.oracle_verifier=true", "evaluation.num_rounds=2", "warm_start.actor_steps=0")
    found = made._validate("stage1", 0).metrics
    assert found["n"] == 4
    assert found["unparsed"] == 1.0  # a random critic judged every answer, the right ones too


def test_a_stage_in_which_nothing_could_be_measured_is_still_kept(recipe):
    made = recipe("stage1.num_steps=1", "stage1.prompts_per_step=2", "stage2.num_steps=1", "stage2.prompts_per_step=2",
                  "warm_start.actor_steps=0", "warm_start.critic_steps=0")  # fmt: skip
    made.grade = lambda items: [Grade(score=None, reason="down") for _ in items]
    made.run.run([phase for phase in made.phases() if phase.name != "test"])
    assert {"critic_stage1", "critic_stage2"} <= made.run.policies.keys()
    events = (made.run.folder.path / "events.jsonl").read_text()
    assert "unmeasured" in events


def test_the_schedule_counts_the_updates_that_are_made(recipe):
    made = recipe("warm_start.actor_steps=3", "warm_start.rows_per_step=10", "warm_start.learning.minibatch_rows=4",
                  "stage1.num_steps=2", "stage1.prompts_per_step=1000", "stage1.learning.minibatch_rows=64",
                  "data.num_train=20")  # fmt: skip
    phases = {phase.name: phase for phase in made.phases()}
    assert phases["sft_actor"].updates["actor"].num_updates == 3 * 3
    assert phases["stage1"].updates["critic"].num_updates == 2 * 2 * 2  # 20 problems x 4 = 80 rows: 2 minibatches


def test_cached_answers_take_turns_when_a_problem_comes_again(recipe):
    made = recipe("answers=cached", "cached_per_task=2", "stage1.prompts_per_step=4", "data.num_train=8",
                  "stage1.num_steps=4", "roles.answer.temperature=1.0")  # fmt: skip
    made.run.fork("critic", "critic_sft")
    tasks = made._training_tasks("stage1", 1, 4)
    assert tasks == made._training_tasks("stage1", 3, 4)
    first, second = made._cached(tasks, 0), made._cached(tasks, 1)
    assert [first[t.id].text for t in tasks] != [second[t.id].text for t in tasks]
    assert made._cached(tasks, 2) == first


def test_cached_answers_are_sampled_once_and_kept_in_the_run_folder(recipe):
    made = recipe("answers=cached", "cached_per_task=2", "stage1.num_steps=2", "stage1.prompts_per_step=4",
                  "stage2.num_steps=0", "warm_start.actor_steps=0", "warm_start.critic_steps=0")  # fmt: skip
    phases = {phase.name: phase for phase in made.phases()}
    phases["stage1"].begin()
    rows = phases["stage1"].collect(1).traces
    kept = [json.loads(line) for line in (made.run.folder.path / "answers.jsonl").read_text().splitlines()]
    assert len(kept) == 2 * 8  # two answers of each of the problems that two steps come to
    assert {row["answer"] for row in rows} <= {row["answer"] for row in kept}
    assert phases["stage1"].collect(2).traces != rows


def test_seeds_tell_their_parts_apart():
    assert seed_of(1, 23) != seed_of(12, 3)
    assert seed_of("a", "bc") != seed_of("ab", "c")
    assert 0 <= seed_of(0) < 2**64
    assert seed_of(0, "answer", "t", 0) == seed_of(0, "answer", "t", 0)


# --- settings that are really read ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_key_is_read_by_a_run_that_uses_its_part(random_model, tmp_path, monkeypatch):
    """`_read_parts_in_use` promises that these parts are read as the run goes on: hold it to that."""
    monkeypatch.setattr(session, "read_all", lambda part: None)
    monkeypatch.setattr(opening, "check_all_read", lambda config: None)
    settings = {
        "seed": 5, "num_threads": 1, "actor.path": random_model, "critic.path": random_model,
        "actor.dtype": "float32", "actor.device": "cpu", "critic.gradient_checkpointing": "true",
        "critic.lora.rank": 2, "critic.lora.alpha": 3.0, "data.min_steps": 2, "data.max_steps": 4,
        "data.num_train": 65, "data.num_validation": 5, "data.num_test": 6, "engine.max_rows": 50,
        "engine.prefill_tokens": 4000, "answers": "cached", "cached_per_task": 2, "checkpoint_every": 3,
        "traces_per_step": 3, "warm_start.actor_steps": 1, "warm_start.critic_steps": 1,
        "warm_start.rows_per_step": 4, "warm_start.refine_share": 0.5, "evaluation.num_rounds": 2,
        "evaluation.history": "last", "evaluation.oracle_verifier": "true", "evaluation.num_validation": 3,
        "evaluation.num_test": 3, "stage1.scale": "unit", "stage2.indirect": "delta", "stage2.combine": "additive",
        "stage2.weight": 0.3,
    }  # fmt: skip
    for role in ("answer", "critique", "refinement"):
        settings |= {f"roles.{role}.temperature": 0.9, f"roles.{role}.top_p": 0.9}
        settings |= {f"roles.{role}.max_new_tokens": 20, f"roles.{role}.stop": "['zzz']"}
    for name in ("stage1", "stage2"):
        settings |= {f"{name}.num_steps": 1, f"{name}.prompts_per_step": 3, f"{name}.group_size": 3}
        settings |= {f"{name}.kl_coef": 0.02, f"{name}.sequence_level": "true", f"{name}.clip": 0.3}
        settings |= {f"{name}.validate_every": 1}
    for name in ("warm_start", "stage1", "stage2"):
        settings |= {f"{name}.learning.{key}": value for key, value in {
            "learning_rate": 1e-4, "final_share": 0.2, "warmup_steps": 1, "betas": "[0.8, 0.9]", "weight_decay": 0.01,
            "max_grad_norm": 0.5, "minibatch_rows": 5, "num_epochs": 3, "token_budget": 500}.items()}  # fmt: skip
    settings["stage2.discrimination"] = "true"
    config = load(CritiqueRLConfig, None, [f"{key}={value}" for key, value in settings.items()])
    begun = opening.start(config, tmp_path / "run", Quiet())
    assert isinstance(begun, session.Session)
    begun.go()
    assert unread(config) == []
    read_all(config)


def test_paths_of_a_bare_answer():
    bare = Chained(graded(written("actor", RIGHT), True), None, None, None)
    assert bare.exchange.refinement_correct is True
