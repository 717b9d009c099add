"""Health notes: what goes wrong is named, and what is as it should be is called so."""

from dataclasses import replace

import pytest

from support.report_run import write_lines
from support.solve_run import fake_solve_run
from whet.methods.report_specs import load_report
from whet.report.closing import closing_notes
from whet.report.health import health_notes
from whet.report.read import read_run
from whet.report.spec import to_json

CRITIQUE = load_report("critique")
SOLVE = load_report("solve")


def notes_of(tmp_path, rows, config="method: policy_gradient\n", report_spec=SOLVE):
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "report_spec.json").write_text(to_json(report_spec))
    write_lines(tmp_path / "metrics.jsonl", [{"phase": "train", "step": i, **row} for i, row in enumerate(rows, 1)])
    return {note.title: note for note in health_notes(read_run(tmp_path))}


def test_a_sound_run_is_called_sound(tmp_path):
    notes = {note.title: note for note in health_notes(read_run(fake_solve_run(tmp_path / "bapo")))}
    assert {note.level for note in notes.values()} == {"good"}
    assert "Above zero is meant here" in notes["Off-policy drift"].text
    assert "4.5 updates old" in notes["Age of the data"].text
    assert "replies" in notes["Failures"].text


@pytest.mark.parametrize(
    ("first", "last", "title", "level"),
    [
        ({"entropy": 0.5}, {"entropy": 0.09}, "Entropy collapse", "watch"),
        ({"entropy": 0.5}, {"entropy": 0.11}, "Entropy", "good"),
        ({"entropy": 0.1}, {"entropy": 0.4}, "Entropy blow-up", "watch"),
        ({"balance/share": 0.5}, {"balance/share": 0.3}, "Good tokens outweighed", "watch"),
        ({"balance/share": 0.5}, {"balance/share": 0.7}, "Bad tokens outweighed", "watch"),
        ({"validation/acc": 0.5}, {"validation/acc": 0.4}, "Falling accuracy", "watch"),
        ({"validation/acc": 0.5}, {"validation/acc": 0.1}, "Falling accuracy", "bad"),
        ({"validation/acc": 0.5, "validation/n": 12}, {"validation/acc": 0.4, "validation/n": 12}, "Accuracy", "good"),
        (
            {"validation/acc": 0.5, "validation/n": 400},
            {"validation/acc": 0.4, "validation/n": 400},
            "Falling accuracy",
            "watch",
        ),
        ({"grader/errors": 0}, {"grader/errors": 3}, "Grader errors", "watch"),
        ({"grader/reply_exhausted": 0}, {"grader/reply_exhausted": 2}, "Replies that exhaust the grader", "watch"),
        ({"value/explained": 0.2}, {"value/explained": -0.1}, "Value model", "watch"),
        ({"staleness/mean": 4}, {"staleness/mean": 4, "ratio/effective_samples": 0.3}, "Age of the data", "watch"),
    ],
)
def test_what_goes_wrong_is_named(tmp_path, first, last, title, level):
    base = {"reward/mean": 0.5, "reward/correct": 0.5}
    assert notes_of(tmp_path, [base | first, base | last])[title].level == level


def test_the_entropy_of_imitation_is_no_collapse(tmp_path):
    """It falls as the policy comes to write what it is shown: there is nothing that it should explore."""
    rows = [{"entropy": entropy, "loss/nll": 1.0, "validation/success": 0.5} for entropy in (0.5, 0.01)]
    shown = replace(SOLVE, training=("validation/success",))
    notes = notes_of(tmp_path, rows, report_spec=shown)
    assert "Entropy collapse" not in notes
    assert notes["Entropy"].level == "good"
    assert "Imitation lowers it" in notes["Entropy"].text
    explores = notes_of(tmp_path, [row | {"reward/mean": 0.5} for row in rows], report_spec=shown)
    assert explores["Entropy collapse"].level == "watch"


def test_what_was_never_better_says_what_could_have_been_seen(tmp_path):
    """1.96 times the deviation of a difference: sqrt(2 * 0.4 * 0.6 / 96) = 0.0707."""
    rows = [{"reward/mean": 0.5, "validation/acc": 0.4, "validation/n": 96}] * 2
    note = notes_of(tmp_path, rows)["Accuracy"]
    assert note.level == "watch"
    assert note.text.endswith("never above its first value: 96 problems tell differences from 13.9 points on.")


def test_searches_count_by_updates_and_not_by_steps(tmp_path):
    row = {"reward/mean": 0.5, "bounds/settled": 0.0}
    rows = [row | {"bounds/exhausted": share, "optim/updates": n} for share, n in ((1.0, 3), (0.0, 1))]
    note = notes_of(tmp_path, rows)["Exhausted searches"]
    assert note.level == "watch"
    assert "75.0 %" in note.text


@pytest.mark.parametrize(
    ("settled", "exhausted", "level", "said"),
    [
        (0.3, 0.1, "good", "in 30.0 % they moved and met the target"),
        (0.1, 0.3, "watch", "it switched between two fixed pairs"),
    ],
)
def test_a_search_that_only_switches_is_told_from_one_that_adapts(tmp_path, settled, exhausted, level, said):
    row = {"reward/mean": 0.5, "bounds/exhausted": exhausted, "bounds/moves": 9.0, "optim/updates": 2}
    # A step of which no search could reach a token counts nothing.
    rows = [row | {"bounds/settled": settled, "bounds/in_reach": 0.5}]
    rows += [{"reward/mean": 0.5, "bounds/in_reach": 0.0, "optim/updates": 2}]
    note = notes_of(tmp_path, rows)["Searches for bounds"]
    assert note.level == level
    assert said in note.text


@pytest.mark.parametrize(
    ("start", "most", "unit", "level", "said"),
    [
        (
            0.25,
            0.26,
            "target: 0.4",
            "watch",
            "the search cannot reach it. Numbers and lengths of replies fix the share",
        ),
        (0.45, 0.46, "target: 1.0, target_as: odds", "watch", "the target is 50.0 %: in the mean the search cannot"),
        (0.38, 0.42, "target: 0.4", "good", "within reach"),
        (0.45, 0.46, "target: 0.4", "good", "The starts meet it"),
    ],
)
def test_a_search_without_a_lever_is_told(tmp_path, start, most, unit, level, said):
    row = {"reward/mean": 0.5, "balance/tokens_positive": 0.18, "ratio/q01": 0.76, "ratio/q99": 1.15}
    row |= {"bounds/reach_start": start, "bounds/reach_end": start, "bounds/reach_most": most, "bounds/in_reach": 0.0}
    config = f"method: policy_gradient\nloss: {{kind: clip, bounds: {{kind: bapo, {unit}}}}}\n"
    note = notes_of(tmp_path, [row], config)["Reach of the search"]
    assert note.level == level
    assert said in note.text


def test_searches_count_where_they_could_reach_a_token(tmp_path):
    rows = [
        {
            "reward/mean": 0.5,
            "bounds/exhausted": share,
            "bounds/settled": 0.0,
            "bounds/in_reach": reach,
            "optim/updates": 2,
        }
        for share, reach in ((1.0, 0.5), (0.0, 1.0))
    ]
    assert "33.3 %" in notes_of(tmp_path, rows)["Searches for bounds"].text


@pytest.mark.parametrize(("kind", "level"), [("none", "bad"), ("replay", "watch"), ("partial", "watch")])
def test_drift_is_an_error_on_fresh_data_alone(tmp_path, kind, level):
    config = f"method: policy_gradient\noff_policy: {{kind: {kind}}}\n"
    note = notes_of(tmp_path, [{"reward/mean": 0.5, "kl/sampler": 0.2}], config)["Off-policy drift"]
    assert note.level == level
    assert ("is meant" in note.text) == (kind != "none")


def test_drift_of_what_a_method_keeps_and_trains_on_again_is_no_error(tmp_path):
    report_spec = replace(SOLVE, reused="the games of all rounds")
    note = notes_of(tmp_path, [{"reward/mean": 0.5, "kl/sampler": 2.0}], report_spec=report_spec)["Off-policy drift"]
    assert note.level == "watch"
    assert "is meant here: it trains on the games of all rounds" in note.text


def test_a_warm_start_that_is_stubborn_on_purpose_is_no_alarm(tmp_path):
    rows = [{"loss/nll": 1.0, "validation/acc": acc} for acc in (0.5, 0.2)]
    spec = replace(SOLVE, training=("validation/acc",))
    assert notes_of(tmp_path, rows, report_spec=spec)["Falling accuracy"].level == "bad"
    notes = notes_of(tmp_path, rows, report_spec=replace(spec, lowered={"train": "it is stubborn"}))
    assert "Falling accuracy" not in notes
    assert notes["Accuracy"].text == "Validation accuracy went from 50.0 % to 20.0 %, on purpose: it is stubborn."


@pytest.mark.parametrize(("flat", "is_said"), [(0.0, True), (0.5, False), (0.6, False)])
def test_groups_that_are_all_wrong_and_yet_rewarded_differently_are_explained(tmp_path, flat, is_said):
    row = {"reward/mean": 0.5, "group/no_signal": flat, "group/all_right": 0.0, "group/all_wrong": 0.5}
    text = notes_of(tmp_path, [row])["Groups without signal"].text
    assert "50.0 % all wrong" in text
    assert ("only other terms than the score, such as a penalty on length, make the rewards differ" in text) == is_said


@pytest.mark.parametrize("is_compared", [True, False])
def test_equal_rewards_are_a_loss_only_where_groups_are_compared(tmp_path, is_compared):
    rows = [{"reward/mean": 0.5, "group/no_signal": 0.9, "group/all_right": 0.0, "group/all_wrong": 0.9}]
    notes = notes_of(tmp_path, rows, report_spec=replace(SOLVE, is_compared=is_compared))
    assert ("Groups without signal" in notes) == is_compared


@pytest.mark.parametrize(
    ("flat", "right", "wrong", "level", "said"),
    [
        (0.9, 0.9, 0.0, "good", "harder tasks would teach more"),
        (0.9, 0.05, 0.85, "bad", "85.0 % all wrong"),
        (0.2, 0.0, 0.6, "watch", "60.0 % all wrong"),  # a penalty on length pays wrong groups differently
        (0.6, 0.0, 0.0, "watch", "60.0 %"),  # equal parts of the score
        (0.3, 0.1, 0.2, "good", "all wrong"),
    ],
)
def test_groups_all_right_are_progress_and_all_wrong_are_trouble(tmp_path, flat, right, wrong, level, said):
    row = {"reward/mean": 0.5, "group/no_signal": flat}
    row |= {"group/all_right": right, "group/all_wrong": wrong}
    for report_spec in (SOLVE, CRITIQUE):
        note = notes_of(tmp_path, [row], report_spec=report_spec)["Groups without signal"]
        assert note.level == level
        assert said in note.text


def test_a_run_that_becomes_good_is_no_trouble(tmp_path):
    """From hardly any right to all right: at its end groups are flat and the entropy is low, as they should be."""
    rows = []
    for i in range(20):
        share = i / 19 if i < 10 else 1.0
        row = {"reward/mean": share, "reward/correct": share, "entropy": 0.5 * (1 - share) + 0.001}
        row |= {"group/no_signal": 0.95, "group/all_right": share, "group/all_wrong": 0.95 - min(share, 0.95)}
        rows.append(row | {"length/truncated": 0.5 if i < 8 else 0.0, "validation/acc": share, "value/explained": -0.1})
    notes = notes_of(tmp_path, rows)
    assert {note.level for note in notes.values()} == {"good"}, notes
    mastered = [{"reward/mean": 1.0, "reward/correct": 1.0, "validation/acc": 1.0}] * 2
    assert notes_of(tmp_path, mastered)["Accuracy"].level == "good"


@pytest.mark.parametrize(("count", "level"), [(40, "good"), (2000, "watch")])
def test_a_class_that_lost_more_than_chance_explains_is_said(tmp_path, count, level):
    """70 to 66 percent: of 40 answers each the difference varies by 20 points, of 2,000 by 2.9."""
    values = [(0.6, 0.7), (0.66, 0.66)]
    counts = {"validation/acc_dis": 0.6, "validation/n_correct": count, "validation/n_incorrect": count}
    rows = [
        {"phase": "stage1", "step": i, "validation/acc_dis_correct": right, "validation/acc_dis_incorrect": wrong}
        for i, (right, wrong) in enumerate(values, 1)
    ]
    (tmp_path / "report_spec.json").write_text(to_json(CRITIQUE))
    write_lines(tmp_path / "metrics.jsonl", [row | counts for row in rows])
    [note] = health_notes(read_run(tmp_path))
    assert (note.title, note.level) == ("Balance of the verdicts", level)


@pytest.mark.parametrize(
    ("on_right", "on_wrong", "title"),
    [
        ((0.6, 0.8), (0.7, 0.5), "Over-conservative critic"),
        ((0.6, 0.5), (0.7, 0.9), "Over-aggressive critic"),
        ((0.6, 0.5), (0.7, 0.7), "Falling discriminability"),
        ((0.6, 0.7), (0.7, 0.68), "Balance of the verdicts"),
    ],
)
def test_a_one_sided_critic_is_named(tmp_path, on_right, on_wrong, title):
    keys = [f"validation/acc_dis{part}" for part in ("", "_correct", "_incorrect")]
    rows = [dict(zip(keys, (0.6, *pair), strict=True)) for pair in zip(on_right, on_wrong, strict=True)]
    (tmp_path / "report_spec.json").write_text(to_json(CRITIQUE))
    write_lines(tmp_path / "metrics.jsonl", [{"phase": "stage1", "step": i, **row} for i, row in enumerate(rows, 1)])
    assert [note.title for note in health_notes(read_run(tmp_path))] == [title]


def ended(report_spec, **row):
    return {
        note.title: note for note in closing_notes({"rows": {"last": {"n": 1000.0, "acc": 0.5, **row}}}, report_spec)
    }


def test_a_table_of_few_problems_is_told_so():
    """Wilson's interval of 1.5 of 3 is 0.5 -+ 0.3746: 1.96 sqrt(1 / 12 + 1.96^2 / 36) / (1 + 1.96^2 / 3)."""
    note = ended(SOLVE, n=3.0)["Size of the test"]
    assert note.level == "watch"
    assert "rests on 3 problems: a share near one half may be anything from 12.5 to 87.5 %" in note.text
    assert "data.num_test" in note.text
    assert ended(SOLVE)["Size of the test"].level == "good"
    assert "rests on 3 questions" in ended(CRITIQUE, n=3.0)["Size of the test"].text
    assert not closing_notes(None, SOLVE)


def test_replies_that_were_cut_in_the_test_are_told():
    title = "Truncated replies in the test"
    cut = ended(SOLVE, truncated=0.4)[title]
    assert cut.level == "bad"
    assert "Last: 40.0 % of the replies ran into the token limit, in the test." in cut.text
    assert "max_new_tokens" in ended(SOLVE, truncated=0.1)[title].text
    assert ended(SOLVE, truncated=0.05)[title].level == "good"
    assert title not in ended(SOLVE)
    assert "Truncated critiques in the test" in ended(CRITIQUE, truncated=0.4)


def test_the_page_has_what_the_table_rests_on(tmp_path):
    notes = {note.title for note in health_notes(read_run(fake_solve_run(tmp_path / "bapo")))}
    assert {"Size of the test", "Truncated replies in the test"} <= notes
