"""The report of a run of one policy: its table, its off-policy dashboard, its notes, and groups of replies."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from support.browser import watched
from support.report_run import fake_run, read_lines
from support.solve_run import CONFIG, fake_solve_run, measured
from whet.methods.report_specs import load_report
from whet.report.browser import browser, tags
from whet.report.curves import curves
from whet.report.off_policy import setting_in_words
from whet.report.page import write_report
from whet.report.picking import chosen
from whet.report.read import read_run
from whet.report.table import summary_tables

CRITIQUE = load_report("critique")
SOLVE = load_report("solve")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return fake_solve_run(tmp_path_factory.mktemp("runs") / "bapo")


# --- its table ------------------------------------------------------------------------------------------------------

ROW = {"acc": 0.5, "average": 0.375, "pass": 0.75, "majority": 0.5, "truncated": 0.0, "length": 29.585}
ROW |= {"n": 200.0, "k": 4.0, "grader_errors": 0.0}


def test_the_table_by_hand():
    [table] = summary_tables({"rows": {"last": ROW, "best": ROW | {"acc": 0.615}, "before": ROW}}, SOLVE)
    assert [str(column.header) for column in table.columns] == [
        "policy", "Acc", "mean\nof 4", "pass@4", "majority\nof 4", "truncated", "mean length"
    ]  # fmt: skip
    assert [str(cell) for cell in table.columns[0].cells] == ["Before training", "Best", "Last"]
    assert [cell.style for cell in table.columns[1].cells] == ["", "bold", ""]
    console = Console(width=100, file=StringIO())
    console.print(table)
    shown = {" ".join(line.split()) for line in console.file.getvalue().splitlines()}
    assert "Best 61.5 (55–68) 37.5 75.0 50.0 0.0 29.6" in shown
    assert "n = 200 problems" in table.caption
    assert "truncated by all replies" in table.caption
    assert "'mean length' stands a mean over replies, in tokens" in table.caption


def test_how_far_the_headline_can_be_trusted_stands_beside_it():
    """Wilson's interval: of 0.5 of 200, 0.5 -+ 0.0686; of 2 of 3 and 3 of 3 it is lopsided, and within [0, 1]."""
    [table] = summary_tables({"rows": {"last": ROW, "best": ROW | {"acc": 0.9}}}, SOLVE)
    assert [str(cell) for cell in table.columns[1].cells] == ["90.0 (85–93)", "50.0 (43–57)"]
    assert table.caption.endswith("Best Acc: Best.")
    assert "n = 200 problems in every row. In brackets: the 95 % interval of Acc." in table.caption
    [table] = summary_tables(
        {"rows": {"best": ROW | {"acc": 1.0, "n": 3.0}, "last": ROW | {"acc": 2 / 3, "n": 3.0}}}, SOLVE
    )
    assert [str(cell) for cell in table.columns[1].cells] == ["100.0 (44–100)", "66.7 (21–94)"]
    [table] = summary_tables({"rows": {"last": ROW | {"n": 20_000.0}}}, SOLVE)
    assert [str(cell) for cell in table.columns[1].cells] == ["50.0 (49.3–50.7)"]


@pytest.mark.parametrize("several", [False, True])
def test_samples_of_one_question_are_no_questions_of_their_own(several):
    row = {"acc": 0.5, "acc_refine": 0.5, "delta": 0.0, "n": 800.0}
    [table] = summary_tables({"rows": {"stage2": row}}, CRITIQUE, several=several)
    assert ("interval" in table.caption) is not several
    assert [str(cell) for cell in table.columns[2].cells] == ["50.0" if several else "50.0 (47–53)"]


def test_a_table_of_critics_with_intervals_fits_into_80_columns():
    keys = ("acc", "acc_refine", "c2i", "i2c", "acc_dis", "acc_dis_correct", "acc_dis_incorrect", "unparsed")
    row = dict.fromkeys(keys, 0.667) | {"delta": -0.123, "n": 20.0}
    [table] = summary_tables({"rows": {"oracle_critic": row, "stage2": row}}, CRITIQUE, width=80)
    table.caption = None
    assert Console(width=200).measure(table).maximum <= 80


def test_a_mean_over_replies_is_not_given_the_interval_of_a_share():
    columns = tuple(replace(c, denominator="a mean over replies") if c.key == "acc" else c for c in SOLVE.columns)
    [table] = summary_tables({"rows": {"last": ROW}}, replace(SOLVE, columns=columns))
    assert "interval" not in table.caption


def test_without_samples_there_are_no_columns_about_them():
    none = dict.fromkeys(("average", "pass", "majority"))
    [table] = summary_tables({"rows": {"policy": ROW | none | {"k": 0.0}}}, SOLVE)
    assert [str(column.header) for column in table.columns] == ["policy", "Acc", "truncated", "mean length"]


# --- the curves -----------------------------------------------------------------------------------------------------


def chart(drawn, part, title):
    [found] = [one for one in drawn[part] if one["title"] == title]
    return found, {(one["name"], one["kind"]): one for one in found["series"]}


def test_panels_say_what_a_run_of_one_policy_has(folder):
    drawn = curves(read_run(folder))
    assert drawn["bands"] == [{"name": "", "start": 0, "end": 30, "kept": 25}]
    _, accuracy = chart(drawn, "panels", "Accuracy")
    assert accuracy["validation, greedy", "validation"]["x"] == [0, 5, 10, 15, 20, 25, 30]
    assert ("training, sampled", "mean") in accuracy
    assert chart(drawn, "panels", "Length")[0]["note"] == "of a reply, in tokens"
    assert "Error of the value model" not in {one["title"] for one in drawn["panels"]}


def test_the_off_policy_dashboard_by_hand(folder):
    drawn = curves(read_run(folder))
    shares, series = chart(drawn, "off_policy", "Contribution of good tokens")
    assert shares["says"]
    assert series["target", "reference"]["y"] == [0.4, 0.4]
    _, bounds = chart(drawn, "off_policy", "Bounds")
    band = bounds["upper bound, on good tokens", "band"]
    assert (band["x"][0], band["low"][0], band["y"][0]) == (3, 1.2, 3.0)
    assert chart(drawn, "off_policy", "Ratios")[0]["log"]
    assert chart(drawn, "off_policy", "How likely those let in were")[1]["good", "points"]["x"] == [*range(3, 31, 3)]
    rule, series = chart(drawn, "off_policy", "Entropy-Clip Rule")
    # Updates 4, 8, ... 56 are probed, in steps 4, 6, ... 30; the sign agrees from step 8 on.
    assert "agreed in 12 of 14 probed updates, and the entropy fell in 14." in rule["says"]
    predicted = series["predicted", "points"]
    assert predicted["x"] == series["measured", "points"]["x"] == [*range(4, 31, 2)]
    assert predicted["raw"][0] == 0.016
    assert max(map(abs, predicted["y"])) == 1


def test_a_target_in_odds_is_drawn_as_the_share_it_is(folder, tmp_path):
    odds = fake_solve_run(tmp_path / "run", length=4)
    (odds / "config.yaml").write_text(CONFIG.replace("target: 0.4, target_as: share", "target: 1.0, target_as: odds"))
    _, series = chart(curves(read_run(odds)), "off_policy", "Contribution of good tokens")
    assert series["target", "reference"]["y"] == [0.5, 0.5]


def test_the_setting_says_what_ratios_compare_with_also_where_the_engine_decides(tmp_path):
    run = fake_solve_run(tmp_path / "run", length=4)
    says = {}
    for name, engine in (
        ("float32", "{products: float32}"),
        ("int8", "{products: int8}"),
        ("not corrected", "{products: int8, correct: false}"),
        ("narrow update", "{products: float32}\nlearning: {products: bfloat16}"),
    ):
        (run / "config.yaml").write_text(f"{CONFIG}engine: {engine}\n")
        says[name] = setting_in_words(read_run(run))
    assert says["float32"].endswith("The old weights are those that sampled the token.")
    assert says["not corrected"] == says["float32"]
    assert says["int8"].endswith("differ (engine.correct, as the engine multiplies in int8).")
    assert says["narrow update"].endswith("differ (engine.correct, as the update multiplies in bfloat16).")


def test_there_is_no_dashboard_without_its_metrics(tmp_path):
    run = fake_run(tmp_path / "critics", length=2)
    assert curves(read_run(run))["off_policy"] == []
    page = write_report(run).read_text()
    assert "Off-policy dashboard" not in page
    assert '<h2 id="traces-title">Exchanges</h2>' in page


# --- the browser of replies -----------------------------------------------------------------------------------------


def test_a_group_is_on_the_page_whole_or_not_at_all(folder):
    run = read_run(folder)
    tagged = [tags(reply, SOLVE) for reply in run.exchanges]
    picked = chosen(run.exchanges, tagged, 45, order=SOLVE.order, whole=True)
    picked = [one for one in picked if one.split == "train"]
    assert len(picked) == 40
    assert {one.step for one in picked} == {28, 29, 30}
    found = browser(run.exchanges, 300, SOLVE)
    assert [facet["key"] for facet in found["facets"]] == ["policy", "split", "outcome", "trouble"]
    names = [option["label"] for option in found["facets"][0]["options"]]
    assert names == ["Training", "Before training", "Best", "Last"]
    first = next(one for one in found["exchanges"] if one["tags"]["split"] == ["train"])
    assert (first["at"], first["size"]) == (1, 8)


def test_part_of_the_score_is_not_right(folder):
    part = read_run(folder).exchanges[0]
    [row] = browser([replace(part, answer_score=0.7)], 10, SOLVE)["exchanges"]
    assert row["tags"]["outcome"] == ["wrong"]
    assert row["score"] == 0.7


def test_the_page_of_an_unfinished_run(tmp_path):
    page = write_report(fake_solve_run(tmp_path / "run", length=6, finished=False)).read_text()
    assert "tested its policy" in page
    assert "Right in validation, greedy, so far" in page


@pytest.fixture
def page(chromium, folder):
    with watched(chromium, folder) as page:
        yield page


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
    info = page.locator("#detail .pay").inner_text()
    assert all(word in info for word in ("score", "reward", "credit"))


def test_a_number_of_the_table_opens_the_replies_behind_it(page, folder):
    rows = [one for one in read_lines(folder / "traces" / "after.jsonl") if one["policy"] == "best"]
    page.locator("tbody tr", has_text="Best").locator("td").first.locator("a").click()
    page.wait_for_function("location.hash.includes('outcome=right')")
    assert page.locator("#list li").count() == round(measured(rows)["acc"] * 40)
    assert page.locator("#detail .related a").count() == 2  # the same problem before training and with the last weights
    assert "step" not in page.locator("#detail .head").inner_text()
