"""The report room: a run folder, also a broken or unfinished one, read back and shown in a real browser."""

import json
from io import StringIO

import pytest
from rich.console import Console

from support.browser import watched
from support.report_run import fake_run, read_lines, write_lines
from support.solve_run import fake_solve_run
from whet.methods.report_specs import load_report
from whet.report.browser import browser, tags
from whet.report.curves import curves
from whet.report.health import health_notes
from whet.report.html import script_json
from whet.report.page import _facts, render, write_report
from whet.report.picking import chosen
from whet.report.read import read_run
from whet.report.records import ReportError
from whet.report.spec import to_json
from whet.report.table import percent, summary_tables
from whet.report.texts import changed_lines, flagged_lines

CRITIQUE = load_report("critique")

EVIL = "</script><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>&amp;\u2028\ud800"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run with a hostile exchange in it, and with a torn last line."""
    folder = fake_run(tmp_path_factory.mktemp("runs") / "demo")
    rows = read_lines(folder / "traces" / "test.jsonl")
    hostile = dict.fromkeys(("task", "question", "reference", "answer", "critique", "refinement"), EVIL)
    broken = {"verdict": None, "answer_score": None, "outcome": "grader_error"}
    write_lines(folder / "traces" / "test.jsonl", [*rows, rows[-1] | hostile | broken])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"phase": "stage2", "step": 17, "rew')
    return folder


# --- reading --------------------------------------------------------------------------------------------------------


def test_a_run_is_read_back(folder):
    run = read_run(folder)
    assert [phase.name for phase in run.phases] == ["sft_actor", "sft_critic", "stage1", "stage2"]
    steps, values = run.phase("stage1").series("validation/acc_dis")
    assert steps == list(range(2, 17, 2))
    assert values[-1] > values[0]
    assert len(run.phase("stage1").series("reward/mean")[0]) == 16  # merged with the validation rows, not beside them
    assert not run.phase("stage1").has("novel/null")
    assert run.env["torch"] == "2.6.0"
    assert run.exchanges[-1].question == EVIL
    assert run.exchanges[-1].answer_score is None


def test_torn_and_broken_lines_are_left_out_and_said(tmp_path):
    (tmp_path / "report_spec.json").write_text(to_json(CRITIQUE))
    (tmp_path / "metrics.jsonl").write_text(
        '{"phase": "stage1", "step": 1, "reward/mean": 0.5, "kl/ref": NaN}\n'
        '{"phase": "stage1", "st{"phase": "stage1", "step": 2, "reward/mean": 1}\n'
        '{"phase": "stage1", "step": 3, "reward/mean": 0.7}\n'
        '{"phase": "stage1", "step": 4, "rewar'
    )
    run = read_run(tmp_path)
    assert run.phases[0].series("reward/mean") == ([1, 3], [0.5, 0.7])
    assert [flaw.split(",")[0] for flaw in run.flaws] == [
        "metrics.jsonl",
        "metrics.jsonl ends in a torn line",
        "metrics.jsonl: kl/ref was not finite 1 times.",
    ]
    assert "line 2" in run.flaws[0]


def test_a_resumed_step_counts_once(tmp_path):
    (tmp_path / "report_spec.json").write_text(to_json(CRITIQUE))
    write_lines(tmp_path / "metrics.jsonl", [{"phase": "stage1", "step": s, "reward/mean": s} for s in (1, 2, 3, 2, 3)])
    assert read_run(tmp_path).phases[0].series("reward/mean")[0] == [1, 2, 3]


@pytest.mark.parametrize("name", ["absent", "empty"])
def test_a_folder_that_is_no_run_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReportError, match=name):
        write_report(tmp_path / name)


# --- the table ------------------------------------------------------------------------------------------------------

ROW = {"acc": 0.5, "acc_refine": 0.6, "delta": 0.1, "c2i": 0.2, "i2c": 0.3, "acc_dis": 0.6, "n": 10}
ROW |= {"acc_dis_correct": 0.6, "acc_dis_incorrect": None, "unparsed": 0.1}


def test_the_table_by_hand():
    worse = ROW | {"acc_refine": 0.375, "delta": -0.125}
    summary = {"rows": {"oracle_critic": ROW, "stage2": worse, "no_critic": {"acc": 0.5, "n": 10}}}
    [table] = summary_tables(summary, CRITIQUE)
    assert [str(cell) for cell in table.columns[0].cells] == ["No critic", "Stage II", "Oracle critic"]
    console = Console(width=100, file=StringIO())
    console.print(table)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 100
    shown = {" ".join(line.split()) for line in lines}
    assert "Stage II 50.0 37.5 (15–67) -12.5 20.0 30.0 60.0 60.0 – 10.0" in shown
    assert "Oracle critic 50.0 60.0 (31–83) +10.0 20.0 30.0 60.0 60.0 – 10.0" in shown
    assert "No critic 50.0 – – – – – – – –" in shown
    assert [cell.style for cell in table.columns[2].cells] == ["", "", "bold"]
    assert "n = 10 questions" in table.caption
    assert "unparsed verdict counts as wrong" in table.caption


@pytest.mark.parametrize(
    ("value", "signed", "text"),
    [(0.5, False, "50.0"), (0.0, True, "0.0"), (-0.0001, True, "0.0"), (0.1234, True, "+12.3"), (None, True, "–")],
)
def test_percent(value, signed, text):
    assert percent(value, signed=signed) == text


# --- what is marked and chosen --------------------------------------------------------------------------------------


def test_flagged_lines():
    assert flagged_lines("Step 1: 7 + 5 = 2, claimed 3: Wrong\nCorrectness of the final answer: Wrong") == [0]
    assert flagged_lines("Step 1: 7 + 5 = 2, claimed 2: Correct\nStep 2: 2 - 1 = 1, claimed 3: Wrong, so write 1") == [
        1
    ]
    step = "Step sentence: it is so\nCorrectness of the step: "
    english = f"{step}Correct\n\n{step}**Wrong**\nExplanation: it is not"
    assert flagged_lines(english) == [3, 4]
    assert flagged_lines("Nothing is Wrong here: really\nCorrectness of the final answer: Correct") == []


def test_changed_lines():
    assert changed_lines("a\nb\nc", "a\nB\nc\nd") == ([[1, 1], [3, -1]], [1])
    assert changed_lines("same", "same ") == ([], [])


def test_the_newest_steps_are_chosen(folder):
    run = read_run(folder)
    tagged = [tags(exchange, CRITIQUE) for exchange in run.exchanges]
    picked = chosen(run.exchanges, tagged, 40, order=CRITIQUE.order, whole=False)
    by_group = {}
    for one in picked:
        by_group.setdefault((one.writer, one.split), []).append(one)
    assert {len(group) for group in by_group.values()} == {40}
    assert {one.step for one in by_group["stage2", "train"]} == {15, 16}
    assert picked == chosen(tuple(run.exchanges), tagged, 40, order=CRITIQUE.order, whole=False)
    small = browser(run.exchanges, 300, CRITIQUE, max_bytes=200_000)
    assert len(json.dumps(small["exchanges"])) < 210_000
    assert sum(group["of"] for group in small["shown"]) == len(run.exchanges)


def test_the_stages_lie_side_by_side(folder):
    drawn = curves(read_run(folder))
    assert [(band["name"], band["start"], band["end"], band["kept"]) for band in drawn["bands"]] == [
        ("Stage I", 0, 16, 12),
        ("Stage II", 16, 32, 16),
    ]
    [refined] = [s for s in drawn["panels"][1]["series"] if s["kind"] == "validation" and "after" in s["name"]]
    assert refined["x"] == [*range(2, 17, 2), 16, *range(18, 33, 2)]
    assert refined["y"][8] is None  # no line from one stage to the next
    assert drawn["ticks"]["text"] == ["5", "10", "15", "5", "10", "15"]


def test_health_notes_say_what_is_wrong_and_what_is_fine(folder):
    notes = {note.title: note for note in health_notes(read_run(folder))}
    assert notes["Warning: slow_grader"].level == "watch"
    assert "grader_error" in notes["Failures"].text
    assert notes["Off-policy drift"].level == "good"
    assert notes["Table adds up"].level == "good"
    assert "torn" in notes["Unreadable record"].text


# --- the page -------------------------------------------------------------------------------------------------------


def test_no_text_of_a_model_leaves_its_script_element():
    text = str(script_json({"answer": EVIL}))
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {"answer": EVIL}


def test_the_page_opens_with_what_is_in_trouble_the_worst_first(tmp_path):
    folder = fake_run(tmp_path / "run")
    bad = [
        {"time": "2026-01-01T00:00:00+00:00", "level": level, "event": f"of_a_test_{at}", "message": "See here."}
        for at, level in enumerate(["warning", "warning", "warning", "warning", "warning", "error"])
    ]
    write_lines(folder / "events.jsonl", [*read_lines(folder / "events.jsonl"), *bad])
    page = render(read_run(folder))
    main = page.split("<main>")[1]
    first = main.split('<section class="trouble"')[1].split("</section>")[0]
    assert main.index('class="trouble"') < main.index('class="tiles"') < main.index('id="summary"')
    assert first.count("<li ") == 5
    assert first.index('class="bad"') < first.index('class="watch"')
    assert "Error: of_a_test_5" in first
    assert "more under Health</a>" in first
    assert 'class="good"' not in first


def test_a_run_without_trouble_opens_with_its_numbers(tmp_path):
    assert '<section class="trouble"' not in render(read_run(fake_solve_run(tmp_path / "run")))


def test_the_page_of_a_resumed_run_shows_its_commands_and_names_its_method(tmp_path):
    folder = fake_run(tmp_path / "run")
    began = {"level": "info", "event": "resumed", "message": "goes on from step_8"}
    commands = [
        {"time": "2026-01-01T00:00:00+00:00"},
        {"time": "2026-01-02T00:00:00+00:00", "command": "whet resume r"},
    ]
    write_lines(folder / "events.jsonl", [began | more for more in commands])
    (folder / "config.yaml").write_text("method: critique_rl\nseed: 1\n")
    first = read_run(folder).env["command"]
    run = read_run(folder)
    assert '<p class="made"><strong>critique_rl</strong> <code>whet resume r</code></p>' in render(run)
    info = dict(_facts(run))
    assert info["begun by"] == first
    assert info["resumed"] == "2 times, last 2026-01-02T00:00:00+00:00"
    write_lines(folder / "events.jsonl", [began | commands[0]])
    again = read_run(folder)
    assert f"<code>{first}</code></p>" in render(again)
    assert dict(_facts(again))["resumed"] == "2026-01-01T00:00:00+00:00"
    assert "begun by" not in dict(_facts(again))


def test_a_narrow_screen_scrolls_in_one_direction(chromium, folder):
    """A phone's 390 pixels: whatever is wider, such as the table, scrolls within itself."""
    page = chromium.new_page(viewport={"width": 390, "height": 844})
    page.goto(write_report(folder).as_uri())
    page.wait_for_selector("html[data-curves=drawn]")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    share = "(panel) => panel.querySelector('svg').clientWidth / panel.clientWidth"
    assert max(page.evaluate(f"[...document.querySelectorAll('.panel')].map({share})")) <= 1
    page.close()


def test_the_page_of_an_unfinished_run(tmp_path):
    page = write_report(fake_run(tmp_path / "run", length=2, finished=False)).read_text()
    assert "This run is unfinished" in page
    assert "No summary yet" in page
    assert not list((tmp_path / "run").glob("*.partial"))


def test_the_page_of_a_run_that_has_hardly_begun(tmp_path):
    (tmp_path / "config.yaml").write_text("method: <b>x</b>\n")
    (tmp_path / "report_spec.json").write_text(to_json(CRITIQUE))
    page = write_report(tmp_path).read_text()
    assert "&lt;b&gt;" in page
    assert "No exchanges were recorded yet" in page


@pytest.fixture
def page(chromium, folder):
    with watched(chromium, folder) as page:
        yield page
        assert page.title() == "demo · whet report"  # the hostile exchange would have changed it


def pressed(page, facet, value):
    button = page.locator(f'button[data-facet="{facet}"][data-value="{value}"]')
    button.click()
    return int(button.locator(".count").inner_text())


def test_the_curves_are_drawn_and_follow_the_colour_scheme(page):
    assert page.locator(".panel .main-svg").count() >= 12
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != paper


def test_filters_count_what_they_find(page, folder):
    tests = read_lines(folder / "traces" / "test.jsonl")
    mended = sum(e["critic"] == "stage2" and (e["answer_score"], e["refinement_score"]) == (0, 1) for e in tests)
    assert page.locator("#list li").count() == 61  # opens with the last critic's test, the hostile exchange included
    assert pressed(page, "change", "i2c") == mended > 5
    assert page.locator("#list li").count() == mended
    page.click("#clear")
    assert page.locator("#list li").count() == len(browser(read_run(folder).exchanges, 300, CRITIQUE)["exchanges"])
    assert pressed(page, "trouble", "failed") == 1
    assert page.locator("#detail .chip", has_text="grader error").count() == 1
    assert page.locator("#detail img").count() == 0
    assert "</script><img" in page.locator("#detail").inner_text()


def test_an_exchange_shows_verdict_flag_and_change(page):
    page.goto(page.url.split("#")[0] + "#critic=stage2&split=test&change=i2c&verdict=right")
    headings = page.locator("#detail .column header").all_inner_texts()
    assert [" ".join(heading.split()) for heading in headings] == [
        "Problem", "Answer ✗ wrong", "Critique ✓ says wrong, rightly", "Refinement ✓ right"
    ]  # fmt: skip
    assert "Wrong" in page.locator("#detail .line.flagged").first.inner_text()
    assert page.locator("#detail .line.changed mark").count() >= 1
    assert page.locator("#detail .related a").count() == 2


def test_keys_search_and_permalinks(page, chromium):
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert "2 of 61" in page.locator("#detail .nav").inner_text()
    shown = page.locator("#detail .columns").inner_text()
    again = chromium.new_page()
    again.goto(page.url)
    assert again.locator("#detail .columns").inner_text() == shown
    again.close()
    page.keyboard.press("/")
    page.keyboard.type("jjj <img")
    assert page.locator("#list li").count() == 0
    page.fill("#search", "<IMG src")
    assert page.locator("#list li").count() == 1


def test_a_number_of_the_table_opens_its_exchanges(page):
    cell = page.locator("tbody tr", has_text="Stage I").first.locator("td").nth(4)
    share = float(cell.inner_text())
    cell.locator("a").click()
    page.wait_for_function("location.hash.includes('change=i2c')")
    assert page.locator("#list li").count() == round(share * 60 / 100)
