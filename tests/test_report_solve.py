"""The report of a run of one policy: its table, its off-policy dashboard, its notes, and groups of replies."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from report_run import fake_run, read_lines, write_lines
from solve_run import CONFIG, fake_solve_run, measured
from whet.report.curves import curves
from whet.report.exchanges import browser
from whet.report.health import health_notes
from whet.report.kinds import CRITIQUE, SOLVE, kind_of
from whet.report.page import write_report
from whet.report.picking import chosen
from whet.report.read import read_run
from whet.report.replies import reply_tags
from whet.report.table import summary_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return fake_solve_run(tmp_path_factory.mktemp("runs") / "bapo")


# --- what kind of run it is, and its table --------------------------------------------------------------------------


def test_the_kind_is_told_by_the_config_or_by_what_was_measured(folder, tmp_path):
    assert kind_of(read_run(folder)) is SOLVE
    bare = fake_solve_run(tmp_path / "bare", length=2, finished=False)
    (bare / "config.yaml").write_text("not: [yaml")
    assert kind_of(read_run(bare)) is SOLVE
    (bare / "metrics.jsonl").write_text("")
    assert kind_of(read_run(bare)) is CRITIQUE
    assert kind_of(read_run(fake_run(tmp_path / "critics", length=2))) is CRITIQUE


ROW = {"acc": 0.5, "average": 0.375, "pass": 0.75, "majority": 0.5, "truncated": 0.0, "length": 29.585}
ROW |= {"n": 200.0, "k": 4.0, "grader_errors": 0.0}


def test_the_table_by_hand():
    table = summary_table({"rows": {"last": ROW, "best": ROW | {"acc": 0.615}, "before": ROW}})
    assert [str(column.header) for column in table.columns] == [
        "policy", "Acc", "mean of 4", "pass@4", "majority of 4", "truncated", "mean length"
    ]  # fmt: skip
    assert [str(cell) for cell in table.columns[0].cells] == ["Before training", "Best", "Last"]
    assert [cell.style for cell in table.columns[1].cells] == ["", "bold", ""]
    console = Console(width=100, file=StringIO())
    console.print(table)
    shown = {" ".join(line.split()) for line in console.file.getvalue().splitlines()}
    assert "Best 61.5 37.5 75.0 50.0 0.0 29.6" in shown
    assert "n = 200 problems" in table.caption
    assert "truncated by all replies" in table.caption
    assert "'mean length' stands a mean over replies, in tokens" in table.caption


def test_without_samples_there_are_no_columns_about_them():
    none = dict.fromkeys(("average", "pass", "majority"))
    table = summary_table({"rows": {"policy": ROW | none | {"k": 0.0}}})
    assert [str(column.header) for column in table.columns] == ["policy", "Acc", "truncated", "mean length"]


# --- the curves -----------------------------------------------------------------------------------------------------


def panel(drawn, part, title):
    [found] = [one for one in drawn[part] if one["title"] == title]
    return found, {(one["name"], one["kind"]): one for one in found["series"]}


def test_panels_say_what_a_run_of_one_policy_has(folder):
    drawn = curves(read_run(folder))
    assert drawn["bands"] == [{"name": "", "start": 0, "end": 30, "kept": 25}]
    _, accuracy = panel(drawn, "panels", "Accuracy")
    assert accuracy["validation, greedy", "validation"]["x"] == [0, 5, 10, 15, 20, 25, 30]
    assert ("training, sampled", "mean") in accuracy
    assert panel(drawn, "panels", "Length")[0]["note"] == "of a reply, in tokens"
    assert "Error of the value model" not in {one["title"] for one in drawn["panels"]}


def test_the_off_policy_dashboard_by_hand(folder):
    drawn = curves(read_run(folder))
    shares, series = panel(drawn, "off_policy", "Contribution of good tokens")
    assert shares["says"]
    assert series["target", "reference"]["y"] == [0.4, 0.4]
    _, bounds = panel(drawn, "off_policy", "Bounds")
    band = bounds["upper bound, on good tokens", "band"]
    assert (band["x"][0], band["low"][0], band["y"][0]) == (3, 1.2, 3.0)
    assert panel(drawn, "off_policy", "Ratios")[0]["log"]
    assert panel(drawn, "off_policy", "How likely those let in were")[1]["good", "points"]["x"] == [*range(3, 31, 3)]
    rule, series = panel(drawn, "off_policy", "Entropy-Clip Rule")
    # Updates 4, 8, ... 56 are probed, in steps 4, 6, ... 30; the sign agrees from step 8 on.
    assert "agreed in 12 of 14 probed updates, and the entropy fell in 14." in rule["says"]
    predicted = series["predicted", "points"]
    assert predicted["x"] == series["measured", "points"]["x"] == [*range(4, 31, 2)]
    assert predicted["raw"][0] == 0.016
    assert max(map(abs, predicted["y"])) == 1


def test_a_target_in_odds_is_drawn_as_the_share_it_is(folder, tmp_path):
    odds = fake_solve_run(tmp_path / "run", length=4)
    (odds / "config.yaml").write_text(CONFIG.replace("target: 0.4, target_as: share", "target: 1.0, target_as: odds"))
    _, series = panel(curves(read_run(odds)), "off_policy", "Contribution of good tokens")
    assert series["target", "reference"]["y"] == [0.5, 0.5]


def test_there_is_no_dashboard_without_its_metrics(tmp_path):
    run = fake_run(tmp_path / "critics", length=2)
    assert curves(read_run(run))["off_policy"] == []
    page = write_report(run).read_text()
    assert "Off-policy dashboard" not in page
    assert '<h2 id="traces-title">Exchanges</h2>' in page


# --- the notes ------------------------------------------------------------------------------------------------------


def notes_of(tmp_path, rows, config="recipe: solve\n"):
    (tmp_path / "config.yaml").write_text(config)
    write_lines(tmp_path / "metrics.jsonl", [{"phase": "train", "step": i, **row} for i, row in enumerate(rows, 1)])
    return {note.title: note for note in health_notes(read_run(tmp_path))}


def test_a_sound_run_is_called_sound(folder):
    notes = {note.title: note for note in health_notes(read_run(folder))}
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
        ({"grader/errors": 0}, {"grader/errors": 3}, "Grader errors", "watch"),
        ({"grader/reply_exhausted": 0}, {"grader/reply_exhausted": 2}, "Replies that exhaust the grader", "watch"),
        ({"value/explained": 0.2}, {"value/explained": -0.1}, "Value model", "watch"),
        ({"staleness/mean": 4}, {"staleness/mean": 4, "ratio/effective_samples": 0.3}, "Age of the data", "watch"),
    ],
)
def test_what_goes_wrong_is_named(tmp_path, first, last, title, level):
    base = {"reward/mean": 0.5, "reward/correct": 0.5}
    assert notes_of(tmp_path, [base | first, base | last])[title].level == level


def test_searches_count_by_updates_and_not_by_steps(tmp_path):
    rows = [{"reward/mean": 0.5, "bounds/exhausted": share, "optim/updates": n} for share, n in ((1.0, 3), (0.0, 1))]
    note = notes_of(tmp_path, rows)["Exhausted searches"]
    assert note.level == "watch"
    assert "75.0 %" in note.text


@pytest.mark.parametrize(
    ("settled", "exhausted", "level", "said"),
    [
        (0.3, 0.1, "good", "in 30.0 % they moved and met the target"),
        (0.1, 0.3, "watch", "it switched between two fixed pairs"),
        (None, 0.3, "good", "In 30.0 % of the searches"),  # a run made before it was logged
    ],
)
def test_a_search_that_only_switches_is_told_from_one_that_adapts(tmp_path, settled, exhausted, level, said):
    row = {"reward/mean": 0.5, "bounds/exhausted": exhausted, "bounds/moves": 9.0, "optim/updates": 2}
    # A step of which no search could reach a token counts nothing.
    rows = [row | ({} if settled is None else {"bounds/settled": settled, "bounds/in_reach": 0.5})]
    rows += [{"reward/mean": 0.5, "bounds/in_reach": 0.0, "optim/updates": 2}]
    note = notes_of(tmp_path, rows)["Searches for bounds"]
    assert note.level == level
    assert said in note.text


def test_searches_count_where_they_could_reach_a_token(tmp_path):
    rows = [
        {"reward/mean": 0.5, "bounds/exhausted": share, "bounds/in_reach": reach, "optim/updates": 2}
        for share, reach in ((1.0, 0.5), (0.0, 1.0))
    ]
    assert "33.3 %" in notes_of(tmp_path, rows)["Searches for bounds"].text


@pytest.mark.parametrize(("kind", "level"), [("none", "bad"), ("replay", "watch"), ("partial", "watch")])
def test_drift_is_an_error_on_fresh_data_alone(tmp_path, kind, level):
    config = f"recipe: solve\noff_policy: {{kind: {kind}}}\n"
    note = notes_of(tmp_path, [{"reward/mean": 0.5, "kl/sampler": 0.2}], config)["Off-policy drift"]
    assert note.level == level
    assert ("is meant" in note.text) == (kind != "none")


@pytest.mark.parametrize(("advantage", "said"), [("grpo", True), ("gae", False)])
def test_equal_rewards_are_a_loss_only_where_groups_are_compared(tmp_path, advantage, said):
    rows = [{"reward/mean": 0.5, "group/no_signal": 0.9}]
    assert ("Groups without signal" in notes_of(tmp_path, rows, f"recipe: solve\nadvantage: {advantage}\n")) == said


@pytest.mark.parametrize(
    ("flat", "right", "wrong", "level", "said"),
    [
        (0.9, 0.9, 0.0, "good", "harder tasks would teach more"),
        (0.9, 0.05, 0.85, "bad", "85.0 % all wrong"),
        (0.2, 0.0, 0.6, "watch", "60.0 % all wrong"),  # a penalty on length pays wrong groups differently
        (0.6, 0.0, 0.0, "watch", "60.0 %"),  # equal parts of the score
        (0.3, 0.1, 0.2, "good", "all wrong"),
        (0.9, None, None, "watch", "right ones or wrong ones"),  # a run made before they were told apart
    ],
)
def test_groups_all_right_are_progress_and_all_wrong_are_trouble(tmp_path, flat, right, wrong, level, said):
    row = {"reward/mean": 0.5, "group/no_signal": flat}
    row |= {} if right is None else {"group/all_right": right, "group/all_wrong": wrong}
    for config in (CONFIG, "recipe: critique_rl\n"):
        note = notes_of(tmp_path, [row], config)["Groups without signal"]
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


# --- the browser of replies -----------------------------------------------------------------------------------------


def test_a_group_is_on_the_page_whole_or_not_at_all(folder):
    run = read_run(folder)
    tagged = [reply_tags(reply) for reply in run.exchanges]
    picked = [one for one in chosen(run.exchanges, tagged, 45, SOLVE) if one.split == "train"]
    assert len(picked) == 40
    assert {one.step for one in picked} == {28, 29, 30}
    found = browser(run.exchanges, 300, kind=SOLVE)
    assert [facet["key"] for facet in found["facets"]] == ["policy", "split", "outcome", "trouble"]
    names = [option["label"] for option in found["facets"][0]["options"]]
    assert names == ["Training", "Before training", "Best", "Last"]
    first = next(one for one in found["exchanges"] if one["tags"]["split"] == ["train"])
    assert (first["at"], first["size"]) == (1, 8)


def test_part_of_the_score_is_not_right(folder):
    part = read_run(folder).exchanges[0]
    [row] = browser([replace(part, answer_score=0.7)], 10, kind=SOLVE)["exchanges"]
    assert row["tags"]["outcome"] == ["wrong"]
    assert row["score"] == 0.7


def test_the_page_of_an_unfinished_run(tmp_path):
    page = write_report(fake_solve_run(tmp_path / "run", length=6, finished=False)).read_text()
    assert "tested its policy" in page
    assert "Right in validation, greedy, so far" in page


@pytest.fixture
def page(chromium, folder):
    """The report in a browser; at the end it must have asked for nothing and complained of nothing."""
    page = chromium.new_page(viewport={"width": 1280, "height": 800})
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(write_report(folder).as_uri())
    page.wait_for_selector("html[data-curves=drawn]")
    yield page
    assert {url.split(":")[0] for url in asked} == {"file"}
    assert complaints == []
    page.close()


def test_the_page_speaks_of_what_the_run_has(page):
    text = page.locator("body").inner_text().lower()
    for word in ("critic", "critique", "refine", "exchange", "verdict", "actor"):
        assert word not in text
    assert page.locator("nav a", has_text="Off-policy dashboard").get_attribute("href") == "#off-policy"
    assert page.locator("#off-policy .panel").count() == 14
    assert page.locator("#off-policy .panel .says").count() == 14
    assert page.locator("#off-policy .panel .main-svg").count() >= 14


def test_a_group_is_one_item_and_its_replies_are_stepped_through(page, folder):
    page.goto(page.url.split("#")[0] + "#policy=training&split=train")
    train = read_lines(folder / "traces" / "train.jsonl")
    newest = [one for one in train if one["step"] == 30]
    assert page.locator("#list li").count() == 37  # 300 replies, less those of the group that is cut
    assert page.locator("#list li").first.locator("a").count() == 8
    assert page.locator("#detail .tries a").count() == 8
    page.keyboard.press("j")
    assert "2 of 8" in page.locator("#detail h3").inner_text()
    assert page.locator("#detail .tries a[aria-current]").inner_text().startswith("2 ")
    page.locator("#detail .tries a").nth(7).click()
    page.keyboard.press("j")
    assert "1 of 8" in page.locator("#detail h3").inner_text()  # of the next problem
    assert page.locator("#detail .column .text").first.inner_text() in {one["question"] for one in newest}
    facts = page.locator("#detail .pay").inner_text()
    assert all(word in facts for word in ("score", "reward", "credit"))


def test_a_number_of_the_table_opens_the_replies_behind_it(page, folder):
    rows = [one for one in read_lines(folder / "traces" / "after.jsonl") if one["critic"] == "best"]
    page.locator("tbody tr", has_text="Best").locator("td").first.locator("a").click()
    page.wait_for_function("location.hash.includes('outcome=right')")
    assert page.locator("#list li").count() == round(measured(rows)["acc"] * 40)
    assert page.locator("#detail .related a").count() == 2  # the same problem before training and with the last weights
    assert "step" not in page.locator("#detail .head").inner_text()
