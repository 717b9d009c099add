"""A critic that scores (appendix E): r_dis by a tolerance, the words, the reward model, what either stage pays."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest

import whet
from support.commands import config_of, logged
from support.episodes import exchange
from support.sessions import STEPS, WARM, WORLD, finished, session_of
from whet.config import ConfigError
from whet.config.reads import check_effects
from whet.config.yaml_text import load
from whet.credit import rewarded
from whet.credit.rewards import closeness, refine_score, score_match, weighted
from whet.grading.verdicts import parse_score
from whet.methods.critic.open_ended import (
    beside_reference,
    num_right,
    preferred_pairs,
    prompts_for_scores,
    score_metrics,
    scored_demonstrations,
)
from whet.methods.critic.reward_model import REWARD_MODEL
from whet.models.tiny import tiny_tokenizer
from whet.tasks.chains import VERDICT_LINE, parse_chain
from whet.tasks.prompts import CHAINS, ENGLISH
from whet.trainer.learner import Learner
from whet.types import Task

SMALL = (*STEPS, *WARM, "reward_model.num_steps=2", "reward_model.rows_per_step=8")
TASKS = [Task(id=text, prompt=text, info={"kind": "chains"}) for text in ("7 + 5 * 3 - 4", "2 * 7 + 1 - 9 * 3")]


@pytest.mark.parametrize(
    ("given", "oracle", "scored"),  # tolerance 3
    [(7, 7.0, 1.0), (7, 5.5, 0.5), (4, 7.0, 0.0), (1, 10.0, 0.0), (8, 7.75, 11 / 12), (None, 7.0, 0.0)],
)
def test_r_dis_falls_linearly_to_0_at_the_tolerance(given, oracle, scored):
    assert closeness(given, oracle, 3.0) == pytest.approx(scored)


@pytest.mark.parametrize(
    ("end", "score"),
    [
        (" = 7", 7.0), (": 10", 10.0), (": **3**.", 3.0), (" = 6.5", 6.5), (": 0", None), (" = 11", None), ("", None),
        (": 7, or 8", None), (" = Correct", None), (" = -3", None), (f" = 7\n{VERDICT_LINE} = 8", None),
        (f" = 7\n{VERDICT_LINE} = 7", 7.0), ("s of 7", None), (": 7/10", None),
    ],
)  # fmt: skip
def test_a_score_is_one_number_behind_the_label(end, score):
    assert parse_score(f"Step 1: 7 + 5 = 2, claimed 2: Correct\n{VERDICT_LINE}{end}", 1, 10) == score


def with_scores(answer, given, refinement):
    episode = exchange(1.0, [("correct", [1.0])])
    found = ({"score": answer}, {"score": given, "verdict": None}, {"score": refinement})
    segments = tuple(replace(s, parsed=parsed) for s, parsed in zip(episode.segments, found, strict=True))
    return replace(episode, segments=segments)


def test_metrics_by_hand():
    """Errors 1, 3 and 2; one critique cannot be read."""
    rounds = [with_scores(5.0, 6, 7.0), with_scores(8.0, 5, 8.0), with_scores(4.0, 2, 9.0), with_scores(7.0, None, 4.0)]
    assert score_metrics(rounds) == pytest.approx({
        "score": 6.0, "score_refine": 7.0, "score_gain": 1.0, "mse_dis": (1 + 9 + 4) / 3, "mae_dis": 2.0,
        "near": (8 / 9 + 6 / 9 + 7 / 9 + 0) / 4,
    })  # fmt: skip


def test_stage_two_adds_the_refinements_score_and_a_weight_of_r_dis():
    terms, total = {"direct": score_match(3.0), "indirect": refine_score}, weighted({"direct": 2.0, "indirect": 1.0})
    [scored] = rewarded([with_scores(7.0, 5.5, 9.0)], "critic", terms, total)
    assert scored.segments[1].rewards == {"direct": 0.5, "indirect": 9.0, "total": 10.0}


def test_the_tiny_world_has_a_token_for_every_piece_of_a_scored_critique():
    tokenizer = tiny_tokenizer()
    shown = scored_demonstrations(TASKS, 60, CHAINS, random.Random(0))
    scores = {parse_score(each.text, 1, 10) for each in shown}
    assert None not in scores
    assert {1.0, 10.0} <= scores
    for each in shown:
        ids = tokenizer.encode(each.text, add_special_tokens=False)
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == each.text


def test_the_reward_model_reads_the_reference_beside_what_is_claimed():
    answer = "Step 1: 7 + 5 = 2\nStep 2: 2 * 3 = 7\nStep 3: 7 - 4 = 3\nThe answer is 3"
    messages, text = beside_reference(CHAINS, TASKS[0].prompt, answer)
    assert messages == CHAINS.critique_messages(TASKS[0].prompt, answer)
    assert text.split("\n") == [
        "Step 1: 7 + 5 = 2, claimed 2", "Step 2: 2 * 3 = 6, claimed 7", "Step 3: 6 - 4 = 2, claimed 3"
    ]  # fmt: skip
    _, lost = beside_reference(CHAINS, TASKS[0].prompt, "The answer is 2")
    assert [int(line[-1]) for line in lost.split("\n")] == [7, 1, 7]  # none is right


def test_the_better_answer_of_a_pair_has_more_right_results():
    for question, *answers in preferred_pairs(TASKS, 30, random.Random(0)):
        results = [[int(line[-1]) for line in answer.split("\n")[:-1]] for answer in answers]
        better, worse = (num_right(parse_chain(question), values) for values in results)
        assert better > worse


def test_a_score_is_asked_for_in_the_verdicts_place():
    words = prompts_for_scores(ENGLISH)
    assert f"{VERDICT_LINE}: [a score from 1 to 10]" in words.critique
    assert "[Correct/Wrong]\nExplanation: <your reason; " in words.critique  # of the steps
    with pytest.raises(ConfigError, match="its critique has to ask for"):
        prompts_for_scores(replace(ENGLISH, critique="{question} {answer}"))


def test_the_reward_models_first_loss_is_log_2_and_its_scale_is_that_of_known_answers():
    method = session_of("open_ended", *SMALL).algorithm
    phase = method.oracle.phase("preferences", method._pairs)
    [update] = phase.updates(1).values()
    learner = Learner(method.run.loop.policies[REWARD_MODEL], update)
    found = learner.update(phase.collect(1).rows, seed=1)
    assert found["loss/mean"] == pytest.approx(math.log(2))
    learner.update(phase.collect(2).rows, seed=2)
    known = [(question, each) for question, *pair in method._pairs(0) for each in pair]
    scores = method.oracle.scores(known)
    assert (min(scores), max(scores)) == (1.0, 10.0)
    assert method.oracle.scores(known[:1]) == pytest.approx(scores[:1], abs=1e-3)


def test_a_run_measures_scores_beside_what_the_verifier_says(tmp_path):
    session = finished("open_ended", *SMALL, folder=tmp_path)
    rows = session.algorithm.evaluator.summary()
    assert list(rows) == ["no_critic", "sft_critic", "stage1", "stage2"]
    assert rows["no_critic"]["score"] == rows["no_critic"]["score_refine"]
    assert rows["no_critic"]["score"] == pytest.approx(rows["stage2"]["score"], abs=1e-4)  # the same answers
    assert 1 <= rows["stage2"]["score_refine"] <= 10
    stages = {row["phase"]: row for row in logged(tmp_path) if row["step"] == 1}
    assert stages["stage1"]["reward/mean"] == pytest.approx(stages["stage1"]["reward/direct"])
    scored = 2.0 * stages["stage2"]["reward/direct"] + stages["stage2"]["reward/indirect"]
    assert stages["stage2"]["reward/mean"] == pytest.approx(scored)
    assert stages["stage2"]["kl/ref"] == pytest.approx(0, abs=1e-6)


def test_the_critic_is_asked_and_read_after_the_run_as_in_it(tmp_path):
    settings = {key: load(value) for key, value in (each.split("=") for each in (*WORLD, *SMALL))}
    run = whet.train("open_ended", out=tmp_path / "run", progress=False, **settings)
    critic = whet.load_critic(run.folder)
    assert critic.prompts == prompts_for_scores(CHAINS)
    for text, score, verdict in ((" = 8", 8.0, "correct"), (" = 3", 3.0, "wrong"), (": Correct", None, None)):
        found = critic.reading(f"{VERDICT_LINE}{text}", critic.prompts)
        assert (found["score"], found["verdict"]) == (score, verdict)
    found = critic.critique("7 + 5 * 3", "Step 1: 7 + 5 = 2\nStep 2: 2 * 3 = 6\nThe answer is 6")
    assert found.probability is None
    assert found.score == critic.reading(found.text, critic.prompts)["score"]


def test_the_stages_are_of_one_length():
    with pytest.raises(ConfigError, match="num_steps"):
        config_of("open_ended", "num_steps=3")


def test_a_file_of_demonstrations_is_the_actors_and_needs_no_critiques(tmp_path):
    """The critic's own have scores in place of verdicts, and are of the tiny world."""
    row = {"question": "7 + 5", "answer": "Step 1: 7 + 5 = 2\nThe answer is 2", "correct": True}
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    given = (f"warm_start.file={file}", "warm_start.refine_share=0")
    session = session_of("open_ended", *STEPS, *WARM, *given)
    assert [phase.name for phase in session.algorithm.phases()][:2] == ["sft_actor", "sft_critic"]
    config = config_of("open_ended", "warm_start.actor_steps=0", given[0])
    with pytest.raises(ConfigError, match=r"warm_start\.file has no effect: warm_start\.actor_steps is 0"):
        check_effects(config)
