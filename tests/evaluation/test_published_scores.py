"""Published scores: the worked numbers of the spec on critics of mathematics (section 9), by hand and on real data."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from support.episodes import exchange
from whet.evaluation.benchmarks import error_reduction, judgment_metrics, oracle_accuracy, processbench
from whet.evaluation.critique import Exchange, critique_metrics, majority_at_k, pass_at_k
from whet.evaluation.protocol import exchanges

PROCESSBENCH = ("gsm8k", "math", "olympiadbench", "omnimath")


@cache
def rows_of(path: Path) -> list[dict]:
    if not path.exists():
        pytest.skip(f"{path} is absent")
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]


# --- 1 to 3: verdicts and what came of them --------------------------------------------------------------------------

AFTER = [i in (1, 2, 3, 4, 5, 7, 8) for i in range(1, 11)]
VERDICTS = ["correct"] * 5 + ["wrong"] + ["wrong", "wrong", "correct", None]
TEN = [
    Exchange(i < 6, after, verdict) for i, (after, verdict) in enumerate(zip(AFTER, VERDICTS, strict=True))
]  # the first 6 are right before


def test_1_transitions():
    found = critique_metrics(TEN)
    wanted = {"acc": 0.6, "acc_refine": 0.7, "delta": 0.1, "c2c": 0.5, "c2i": 0.1, "i2c": 0.2, "i2i": 0.2}
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
    assert 1 - found["c2i_of_correct"] == pytest.approx(5 / 6)  # keep
    assert found["i2c_of_incorrect"] == 0.5  # fix
    assert oracle_accuracy(TEN) == pytest.approx(0.8)


def test_the_oracles_accuracy_is_over_answers_that_were_kept_too():
    kept = [exchange(1.0, []) for _ in range(6)]
    refined = [exchange(0.0, [("wrong", [score])]) for score in (1.0, 1.0, 0.0, 0.0)]
    assert oracle_accuracy(exchanges([*kept, *refined])) == pytest.approx(0.8)


def test_2_discriminability():
    found, judged = critique_metrics(TEN), judgment_metrics(TEN)
    assert found["acc_dis"] == pytest.approx(0.7)
    assert found["acc_dis_parsed"] == pytest.approx(7 / 9)
    assert found["acc_dis_correct"] == pytest.approx(5 / 6)
    assert (found["acc_dis_incorrect"], found["acc_dis_parsed_incorrect"]) == pytest.approx((0.5, 2 / 3))
    assert 1 - found["unparsed"] == pytest.approx(0.9)
    assert judged["balanced"] == pytest.approx(2 / 3)
    wanted = {"precision_wrong": 2 / 3, "recall_wrong": 0.5, "f1_wrong": 4 / 7}
    assert {name: judged[name] for name in wanted} == pytest.approx(wanted)


@pytest.mark.parametrize(("verdict", "accuracy", "f1"), [("wrong", 0.4, 4 / 7), ("correct", 0.6, 0.0)])
def test_3_constant_critics(verdict, accuracy, f1):
    exchanges = [Exchange(i < 6, None, verdict) for i in range(10)]
    found = judgment_metrics(exchanges)
    assert critique_metrics(exchanges)["acc_dis"] == pytest.approx(accuracy)
    assert found["f1_wrong"] == pytest.approx(f1)
    assert found["f1_always_wrong"] == pytest.approx(4 / 7)
    assert found["balanced"] == 0.5
    assert oracle_accuracy(exchanges) is None  # nothing was refined


def test_without_exchanges_there_is_nothing_to_divide_by():
    assert set(judgment_metrics([]).values()) == {None}
    assert oracle_accuracy([]) is None


# --- 6: pass@k -------------------------------------------------------------------------------------------------------


def test_6_pass_at_k():
    two_of_eight = [[True] * 2 + [False] * 6]
    found = [pass_at_k(two_of_eight, k) for k in (1, 2, 4, 8)]
    assert found == pytest.approx([0.25, 13 / 28, 11 / 14, 1.0])
    assert 1 - (1 - 2 / 8) ** 2 == 0.4375 < found[1]  # the plug-in estimate is biased low
    assert pass_at_k([[False] * 8], 4) == 0
    assert pass_at_k([[True] * 5 + [False] * 3], 4) == 1


# --- 8 to 10: ProcessBench -------------------------------------------------------------------------------------------


def test_8_processbench_by_hand():
    found = processbench([2, 0, 5, 1, 3, -1, -1, -1], [2, 1, 5, -1, 3, -1, -1, 0])
    assert (found["err"], found["cor"]) == pytest.approx((0.6, 2 / 3))
    assert 100 * found["f1"] == pytest.approx(63.158, abs=5e-4)
    always = processbench([2, 0, -1], [-1, -1, -1])
    assert (always["err"], always["f1"]) == (0.0, 0.0)
    assert processbench([2, 0], [-1, None])["f1"] is None
    assert processbench([0, -1], [1, None])["f1"] == 0.0  # both 0: no division by zero


@pytest.mark.parametrize(
    ("step", "f1", "err"),
    [
        (lambda n: 0, (27.50, 27.07, 10.06, 10.96), (15.94, 15.66, 5.30, 5.80)),
        (lambda n: n - 1, (13.51, 9.31, 7.57, 2.86), None),
        (lambda n: n // 2, (35.06, 31.97, 22.55, 18.20), None),
    ],
)
def test_9_simple_predictors_on_processbench(data_folder, step, f1, err):
    for at, name in enumerate(PROCESSBENCH):
        rows = rows_of(data_folder / "processbench" / f"{name}.json")
        guesses = [-1 if row["final_answer_correct"] else step(len(row["steps"])) for row in rows]
        found = processbench([row["label"] for row in rows], guesses)
        assert 100 * found["f1"] == pytest.approx(f1[at], abs=5.1e-3), name
        assert found["cor"] == 1.0
        if err:
            assert 100 * found["err"] == pytest.approx(err[at], abs=5.1e-3), name


def test_10_what_holds_of_processbench(data_folder):
    most = []
    for name in PROCESSBENCH:
        rows = rows_of(data_folder / "processbench" / f"{name}.json")
        assert all(row["final_answer_correct"] for row in rows if row["label"] == -1)
        assert all(row["label"] < len(row["steps"]) for row in rows)
        most.append(max(row["label"] for row in rows))
    assert most == [7, 14, 25, 21]
    counts = Counter(row["label"] for row in rows_of(data_folder / "processbench" / "gsm8k.json"))
    assert counts == {-1: 193, 0: 37, 1: 61, 2: 50, 3: 31, 4: 13, 5: 12, 6: 2, 7: 1}


# --- 12, 13, 15: other real data -----------------------------------------------------------------------------------


def test_12_constant_critics_of_gsm8ks_sample_solutions(data_folder):
    rows = rows_of(data_folder / "gsm8k" / "example_model_solutions.jsonl")
    models = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
    right = {name: [row[name]["is_correct"] for row in rows] for name in models}
    assert [sum(flags) for flags in right.values()] == [286, 515, 458, 742]
    every = [flag for flags in right.values() for flag in flags]
    wrong, correct = ([Exchange(flag, None, verdict) for flag in every] for verdict in ("wrong", "correct"))
    assert (sum(every), len(every)) == (2001, 5276)
    assert 100 * critique_metrics(wrong)["acc_dis"] == pytest.approx(62.07, abs=5e-3)
    assert 100 * judgment_metrics(wrong)["f1_wrong"] == pytest.approx(76.60, abs=5e-3)
    assert 100 * critique_metrics(correct)["acc_dis"] == pytest.approx(37.93, abs=5e-3)
    assert judgment_metrics(correct)["f1_wrong"] == 0


def test_13_eight_samples_of_a_hundred_questions(data_folder):
    rows = rows_of(data_folder / "math_cot_100" / "math_cot_100.jsonl")
    rights, texts = [row["score"] for row in rows], [row["pred"] for row in rows]
    assert [pass_at_k(rights, k) for k in (1, 2, 4, 8)] == pytest.approx([0.91, 0.932857, 0.951, 0.96], abs=5e-7)
    first = [([each[:k] for each in texts], [each[:k] for each in rights]) for k in (1, 2, 4, 8)]
    assert [majority_at_k(*each) for each in first] == pytest.approx([0.90, 0.90, 0.93, 0.93])
    assert [sum(map(any, flags)) for _, flags in first] == [90, 94, 95, 96]
    best = [max(range(8), key=lambda i, row=row: row["pred_score"][i][0]) for row in rows]
    assert sum(flags[i] for flags, i in zip(rights, best, strict=True)) == 94
    assert Counter(map(sum, rights)) == {0: 4, 1: 1, 2: 1, 3: 2, 4: 3, 6: 2, 7: 1, 8: 86}


def test_15_math_500(data_folder):
    path = data_folder / "math500" / "test.jsonl"
    rows = rows_of(path)
    assert sha256(path.read_bytes()).hexdigest().startswith("35dc41080a368085")
    assert [count for _, count in sorted(Counter(row["level"] for row in rows).items())] == [43, 90, 105, 128, 134]
    eval_targets = Counter(row["subject"] for row in rows)
    assert sorted(eval_targets.values(), reverse=True) == [124, 97, 82, 62, 56, 41, 38]
    assert eval_targets["Algebra"] == 124


# --- 19 ----------------------------------------------------------------------------------------------------------


def test_19_error_reduction():
    assert error_reduction(0.80, 0.85) == pytest.approx(0.25)
    assert error_reduction(1.0, 1.0) is None
