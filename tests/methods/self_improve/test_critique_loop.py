"""Critique-in-the-loop self-improvement: what a round keeps and counts, who critiques, and where a round starts."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from support.episodes import exchange
from support.sessions import WARM, Silent, finished, session_of
from whet.config import ConfigError, check_all_read
from whet.grading.critique_filters import is_shortcut
from whet.methods.names import POLICY
from whet.methods.registry import config_of, preset_of
from whet.methods.rounds import INITIAL
from whet.methods.self_improve.exploration_metrics import normalised
from whet.methods.self_improve.improving import Question, reference_of, round_metrics
from whet.methods.solvers import solve_rollout
from whet.run.data import load_tasks
from whet.run.session import prepare
from whet.run_folder.folder import RunFolder
from whet.tasks.chains import parse_chain
from whet.tasks.demonstrations import read_demonstrations
from whet.tasks.prompts import CHAINS
from whet.types import Episode, Grade, Task, as_row

SMALL = (
    *WARM, "num_explored=6", "prompts_per_step=3", "num_samples=2", "num_originals=4", "num_rounds=2",
    "rows_per_step=8", "difficulty.num_samples=2", "evaluation.num_samples=2", "validate_every=100",
    "checkpoint_every=0",
)  # fmt: skip
ALONE = tuple(each for each in SMALL if "critic_steps" not in each)
STUBBORN = "data.misconceptions=[0.9,0.98]"
CHAIN = re.compile(r"\d( [+*-] \d)+(?! =)\b")
LONG = "1 and 2 and 3 and 4 and 5 and 6"


def question(episodes, *, keep=1, barrier=True, task=None):
    found = Question(task or Task(id="t", prompt="q", answer="4"))
    for sample, episode in enumerate(episodes):
        found.add(sample, episode)
    found.choose(keep, barrier=barrier)
    return found


def said(episode: Episode, **texts: str) -> Episode:
    """With texts by the place in the episode (`at3`)."""
    segments = list(episode.segments)
    for place, text in texts.items():
        at = int(place.removeprefix("at"))
        segments[at] = replace(segments[at], text=text)
    return replace(episode, segments=tuple(segments))


# --- what a question comes to -----------------------------------------------------------------------------------------


def test_the_worked_numbers_of_a_round_from_its_episodes():
    """N = 4, right [4, 2, 0, 0], one refinement after each of the 10 critiques, kept [0, 1, 1, 0]."""
    right, failed, mended = exchange(1.0, []), exchange(0.0, [("wrong", [0.0])]), exchange(0.0, [("wrong", [1.0])])
    groups = [[right] * 4, [right] * 2 + [failed, mended], [failed] * 3 + [mended], [failed] * 4]
    records = [question(group).record(None) for group in groups]
    found = round_metrics(records, [], [])
    assert (found["num_critiques"], found["num_refinements"], found["num_kept"]) == (10, 10, 2)
    assert [record["explored"]["num_kept"] for record in records] == [0, 1, 1, 0]
    assert (found["coverage_answers"], found["coverage"], found["recovered"]) == (0.5, 0.75, 0.5)
    assert (found["yield_answers"], found["num_right"]) == (6 / 16, 6)
    assert found["yield"] == pytest.approx(8 / 26)
    assert found["yield_calls"] == pytest.approx(8 / 36)


def test_a_refinement_is_learnt_as_an_answer_to_the_question():
    found = question([exchange(1.0, []), exchange(0.0, [("wrong", [0.0, 1.0, 1.0])])])
    answer, refined = found.examples(cap=None, distinct=False, conditional=False)
    [segment] = found.attempts[1].kept
    assert (answer.kind, refined.kind) == ("answer", "refined")
    context = found.attempts[1].answer.context
    assert refined.tokens.tolist() == [*context, *segment.tokens] != [*segment.context, *segment.tokens]
    assert refined.trains.tolist() == list(range(len(context), len(context) + len(segment.tokens)))
    for row in (answer, refined):
        assert row.credit.tolist() == [1.0] * row.num_trained
        assert (row.logprobs, row.temperature, row.versions) == (None, 1.0, ())
    *_, conditional = found.examples(cap=None, distinct=False, conditional=True)
    assert conditional.tokens.tolist() == as_row(segment).tokens.tolist()


def test_right_answers_have_no_cap_unless_one_is_set():
    found = question([exchange(1.0, [])] * 3 + [exchange(0.0, [("wrong", [1.0])])])
    assert [row.kind for row in found.examples(cap=None, distinct=False, conditional=False)] == ["answer"] * 3 + [
        "refined"
    ]
    assert [row.kind for row in found.examples(cap=2, distinct=False, conditional=False)] == ["answer"] * 2


def test_solutions_with_the_same_equations_are_one_where_that_is_asked_for():
    texts = ("1 + 1 = 2", "So 1+1 = 2", "2 - 0 = 2")
    found = question([said(exchange(1.0, []), at0=text) for text in texts])
    assert len(found.examples(cap=None, distinct=True, conditional=False)) == 2
    assert found.record(None)["diversity"]["distinct"] == 2.0


def test_what_failed_is_no_answer_and_no_label():
    broken = replace(exchange(0.0, [("wrong", [None, 1.0])]), outcome="grader_error")
    unread = exchange(None, [])
    lost = Episode(task=Task(id="t", prompt="q"), segments=(), outcome="endpoint_error", reason="gone")
    silent = replace(exchange(0.0, []), outcome="endpoint_error")  # the critic's endpoint
    found = question([broken, unread, lost, silent])
    assert found.num_failed == 4
    assert len(found.attempts) == 2
    explored = found.explored(None)
    assert (explored.num_answers, explored.num_critiques, explored.num_refinements, explored.num_kept) == (2, 1, 1, 1)


def test_a_shortcut_is_left_out_and_is_no_failure_of_the_critique():
    """Published code files such a refinement as a failure."""
    episode = said(exchange(0.0, [("wrong", [1.0])]), at0=LONG, at2="7")
    found = question([episode])
    assert (found.num_kept, found.num_shortcuts) == (0, 1)
    [row] = found.helpful(1)
    assert (row["refinement"], row["correct"]) == ("7", False)
    assert question([episode], barrier=False).num_kept == 1


def test_every_critique_keeps_its_own_though_its_neighbours_say_the_same():
    found = question([exchange(0.0, [("wrong", [1.0, 1.0])])] * 3)
    assert found.num_kept == 3


def test_answers_are_one_where_the_grader_finds_them_equal():
    graded = [exchange(1.0, []), exchange(1.0, [])]
    texts = ("12", "12.0")
    episodes = [
        replace(e, segments=(replace(e.segments[0], grade=Grade(score=1.0, extracted=text)),))
        for e, text in zip(graded, texts, strict=True)
    ]
    assert question(episodes).record(None)["diversity"]["answer_entropy"] == 0.0


# --- on the tiny world ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loop")
    return finished("critique_loop", *SMALL, "conditional=true", folder=folder), folder


def test_a_run_has_a_row_for_each_round_and_a_manifest(run):
    session, folder = run
    rows = session.algorithm.evaluator.summary()
    assert {"before", "round_1", "round_2", "last"} <= rows.keys()
    assert all(row["acc_low"] <= row["acc"] <= row["acc_high"] for row in rows.values())
    assert sum(rows["before"][f"n_level_{level}"] for level in range(1, 6)) == 12
    rounds = json.loads((folder / "rounds.json").read_text())
    assert [each["round"] for each in rounds] == [1, 2]
    for each in rounds:
        assert each["num_answers"] == 12
        assert each["num_refinements"] == 2 * each["num_critiques"] == 2 * (12 - each["num_right"])
        assert each["num_answer"] == each["num_right"]
        assert each["num_refined"] == each["num_conditional"] == each["num_kept"]
        assert each["merged"] == 4 + each["num_answer"] + 2 * each["num_kept"]
        assert each["tokens"] == sum(each[f"tokens_{what}"] for what in ("answers", "critiques", "refinements")) > 0
    assert [rows[f"round_{each['round']}"]["coverage"] for each in rounds] == [each["coverage"] for each in rounds]
    assert rows["before"]["coverage"] is None
    done = {each.name: each.num_steps for each in session.loop.done}
    assert done["learn_1"] == -(-int(rounds[0]["merged"]) // 8)


def test_levels_are_of_samples_that_serve_for_nothing_else(run):
    method = run[0].algorithm
    levelled, explored = solve_rollout(method, POLICY, "difficulty"), solve_rollout(method, POLICY, "evaluation")
    assert levelled.key != explored.key
    assert set(method.levels.by_id) == {task.id for task in [*method.pool, *method.run.tasks["test"]]}


def test_critiques_that_helped_can_raise_another_critic(run, tmp_path):
    folder = run[1]
    lines = [json.loads(line) for line in (folder / "critiques.jsonl").read_text().splitlines()]
    assert lines, "no critique of the smallest run helped: take another seed for this test"
    assert not any(each["correct"] for each in lines), "critiques are of wrong answers"
    found = read_demonstrations(folder / "critiques.jsonl", CHAINS)
    assert {"critique", "refine"} <= {each.kind for each in found}
    again = session_of("critique_loop", *SMALL, f"warm_start.file={folder / 'critiques.jsonl'}", "num_originals=0",
                       "warm_start.actor_steps=0", folder=tmp_path)  # fmt: skip
    assert [phase.name for phase in again.algorithm._warm_starts if phase.num_steps] == ["sft_critic"]


@pytest.mark.parametrize(
    "name", ["loop_binary", "loop_hint", "loop_oracle", "self_improve", "rft", "star", "rest", "rest_em"]
)
def test_each_baseline_explores_as_it_says(name, tmp_path):
    sizes = [each for each in ALONE if each.partition("=")[0] not in ("num_samples", "num_originals")]
    config = preset_of(name).config
    warm = "warm_start.actor_steps=0"
    sizes = [each for each in sizes if not each.startswith("warm_start.")] + ([warm] if config.merge != "none" else [])
    sizes += ["num_originals=4"] if config.merge != "none" else []
    method = session_of(name, *sizes, *(["num_samples=2"] if config.num_samples > 1 else []), folder=tmp_path).algorithm
    found = method._explore_questions(1, method.pool)
    attempts = [attempt for each in found.values() for attempt in each.attempts.values()]
    wrong = [attempt for each in found.values() for attempt in (each.attempts[sample] for sample in each.wrong)]
    assert len(attempts) == 6 * method.config.num_samples
    assert wrong
    if config.feedback == "none":
        assert not any(attempt.critique for attempt in attempts)
        return
    assert all((attempt.critique is not None) == (attempt in wrong) for attempt in attempts)
    assert {attempt.critique.policy for attempt in wrong} == {"rule"}
    shows = {f"The answer is {each.task.answer}\n" in attempt.critique.text for each in found.values()
             for attempt in each.attempts.values() if attempt.critique}  # fmt: skip
    assert shows == {config.feedback == "hint"}


def test_tokens_are_spent_on_more_answers(tmp_path):
    method = session_of("self_improve_equal", *ALONE, "token_budget=[600,1500]", "warm_start.actor_steps=0",
                        folder=tmp_path).algorithm  # fmt: skip
    for number, budget in ((1, 600), (2, 1500), (3, 1500)):
        found = method._explore_questions(number, method.pool)
        counts = {len(each.attempts) for each in found.values()}
        assert len(counts) == 1, "every question has as many answers"
        written = sum(each.tokens["answers"] for each in found.values())
        assert budget <= written < budget + 6 * method.config.sampling.max_new_tokens


def test_an_explicit_budget_is_left_where_a_question_has_its_refinement(tmp_path):
    method = session_of("loop_oracle", *ALONE, "warm_start.actor_steps=0", "allocation.kind=explicit",
                        "allocation.budget=24", "allocation.cap=4", folder=tmp_path).algorithm  # fmt: skip
    found = method._explore_questions(1, method.pool)
    tried = {name: [len(attempt.refinements) for attempt in each.attempts.values()] for name, each in found.items()}
    assert any(map(sum, tried.values()))
    for name, each in found.items():
        assert each.num_kept <= 1
        assert sum(tried[name]) <= 4
        assert (sum(tried[name]) > 0) == bool(each.wrong), "one attempt at least, where there is something to mend"
    stopped = [each for name, each in found.items() if each.num_kept and sum(tried[name]) < 4]
    assert stopped, "nobody was left early, so this shows nothing"


def test_a_round_that_keeps_nothing_says_so_while_the_run_goes_on(tmp_path):
    settings = ("sampling.max_new_tokens=1", "refinement.max_new_tokens=1", "merge=none", "num_rounds=1")
    own = [setting for setting in SMALL if not setting.startswith(("num_originals", "num_rounds"))]
    session = finished("critique_loop", *own, *settings, folder=tmp_path)
    assert "round 1 kept nothing" in dict(session.loop.progress.told)["warning"]


@pytest.mark.parametrize(("start", "same"), [("base", True), ("last", False)])
def test_a_round_starts_anew_or_goes_on(start, same, tmp_path):
    method = session_of("self_improve", *ALONE, f"start={start}", "warm_start.actor_steps=0", folder=tmp_path).algorithm
    method._begin_rounds()
    policies = method.run.loop.policies
    before = policies[POLICY].model.model.norm.weight.clone()
    with torch.no_grad():
        policies[POLICY].model.model.norm.weight.mul_(0.5)
    method._restart()
    assert torch.equal(policies[POLICY].model.model.norm.weight, before) is same
    assert (INITIAL in policies) is same


def test_the_base_model_is_kept_before_its_warm_start(run):
    session = run[0]
    phases = {phase.name: phase for phase in session.algorithm.phases()}
    assert phases["sft_actor"].begin.args == ("base",)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("token_budget=[100]",), "feedback = none"),
        (("feedback=none", "token_budget=[100,-5]"), "token_budget.1 must be a whole number of at least 1, got -5"),
        (("sampling.temperature=0",), "same answer every time"),
    ],
)
def test_what_contradicts_itself_is_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        config_of("critique_loop", None, settings)


# --- originals, and the world's misconceptions -----------------------------------------------------------------------


def originals(*settings: str, folder: Path) -> list[tuple[list[int], bool]]:
    """The tokens of each original, and whether its text ends in the right answer."""
    session = session_of("self_improve", *ALONE, "num_originals=80", *settings, folder=folder)
    tokenizer, rows = session.loop.policies[POLICY].tokenizer, session.algorithm.solutions.base
    found = []
    for row in (row for rows_of_one in rows for row in rows_of_one):
        text = tokenizer.decode(row.tokens.tolist())
        question = next(words for words in text.splitlines() if CHAIN.search(words))
        right = parse_chain(CHAIN.search(question).group()).values[-1]
        answer = tokenizer.decode(row.tokens[row.trains].tolist())
        found.append((row.tokens.tolist(), re.search(r"answer is (\d)", answer).group(1) == str(right)))
    return found


def test_originals_are_gold_by_share(tmp_path):
    """1, the default: every one is right. 0: the careless author's, of which about half are wrong. Between: some of
    each, and those of the author are fewer."""
    shares = {dial: [right for _, right in originals(f"gold_share={dial}", folder=tmp_path)] for dial in (0, 0.5, 1)}
    counts = {dial: sum(rights) for dial, rights in shares.items()}
    assert counts[1] == 80
    assert [right for _, right in originals(folder=tmp_path)] == shares[1]
    assert 20 < counts[0] < 60
    assert counts[0] < counts[0.5] < counts[1]


def test_a_stubborn_world_reaches_originals(tmp_path):
    landed = originals("gold_share=0", folder=tmp_path)
    stubborn = originals("gold_share=0", "data.misconceptions=[1,1]", folder=tmp_path)
    assert sum(right for _, right in stubborn) < sum(right for _, right in landed)


@pytest.mark.parametrize(("settings", "is_meant"), [((), False), ((STUBBORN,), True)])
def test_only_a_stubborn_warm_start_lowers_the_accuracy_on_purpose(settings, is_meant):
    config = config_of("critique_loop", None, list(settings))
    report_spec = preset_of(config.method).algorithm.spec.report_of(config)
    assert ("sft_actor" in report_spec.lowered) == is_meant


@pytest.mark.parametrize(("start", "is_told"), [("base", True), ("warm_start", False)])
def test_a_stubborn_world_that_rounds_forget_is_told(start, is_told, tmp_path):
    method = session_of("critique_loop", *SMALL, STUBBORN, f"start={start}", folder=tmp_path).algorithm
    assert any("start=warm_start keeps it" in warning for warning in method.run.warnings) is is_told


@pytest.mark.parametrize(
    ("method", "settings", "key"),
    [
        ("critique_loop", ("merge=none", "gold_share=0.5"), "gold_share"),
        ("critique_loop", ("num_originals=0", "gold_share=0.5"), "gold_share"),
        ("critique_loop", ("num_originals=0", "warm_start.actor_steps=0", STUBBORN), "data.misconceptions"),
        ("grpo", (STUBBORN,), "data.misconceptions"),
        ("critique_rl", ("warm_start.actor_steps=0", STUBBORN), "data.misconceptions"),
        ("critique_rl", ("actor.kind=rule", "actor.misconceptions=[0.5,0.6]", STUBBORN), "data.misconceptions"),
        ("imitation", ("solve=0", "critique=1", STUBBORN), "data.misconceptions"),
        ("imitation", ("solve=0", "critique=1", "ramble=2"), "ramble"),
    ],
)
def test_a_dial_that_nothing_reads_is_told(method, settings, key, tmp_path):
    sizes = ("data.num_train=64", "data.num_validation=8", "data.num_test=8")
    config = config_of(method, None, [*sizes, *settings])
    prepare(config, Silent(), RunFolder(tmp_path))
    with pytest.raises(ConfigError, match=rf"^{re.escape(key)} has no effect"):
        check_all_read(config)


@pytest.mark.parametrize("method", ["critique_loop", "critique_rl", "imitation"])
def test_a_dial_that_is_read_is_no_mistake(method, tmp_path):
    sizes = ("data.num_train=64", "data.num_validation=8", "data.num_test=8")
    config = config_of(method, None, [*sizes, STUBBORN])
    prepare(config, Silent(), RunFolder(tmp_path))
    check_all_read(config)


# --- on real data -----------------------------------------------------------------------------------------------------

GSM8K = Path(os.environ.get("WHET_DATA", "shared/data")) / "gsm8k"


@pytest.mark.skipif(not GSM8K.exists(), reason="needs GSM8K")
def test_gsm8k_is_explored_in_its_training_questions_alone():
    config = config_of("self_improve", None, [
        "data.kind=file", f"data.train_path={GSM8K / 'train.jsonl'}", f"data.test_path={GSM8K / 'test.jsonl'}",
        "prompts=english", "num_explored=300",
    ])  # fmt: skip
    tasks = load_tasks(config.data).tasks
    tested = {" ".join(task.prompt.split()).lower() for task in tasks["test"]}
    pool = tasks["train"][: config.num_explored]
    assert len(pool) == 300
    assert not tested & {" ".join(task.prompt.split()).lower() for task in tasks["train"]}
    for task in pool:
        solution = reference_of(task)
        assert solution
        assert not is_shortcut(solution, solution, solution)
        assert normalised(solution) == normalised(solution.replace(" ", "  "))
