"""AutoMathCritique as a run: what it leaves, what it takes in, who may sit where, and what it refuses."""

from __future__ import annotations

import json
import socket
import threading
import time
from io import StringIO
from itertools import islice
from pathlib import Path

import pytest
import uvicorn
from rich.console import Console
from typer.testing import CliRunner

import whet
from support.browser import watched
from support.commands import Quiet, config_of
from support.commands import whet as command
from support.critique_rows import record_of_row
from support.faulty_server import faulty
from support.files import write_jsonl
from whet.cli import app
from whet.methods.critique_data.formats import MathCritique
from whet.methods.critique_data.records import FILES
from whet.methods.report_specs import load_report
from whet.report.page import write_report
from whet.report.table import summary_tables
from whet.run import launch
from whet.run.load import load_run
from whet.serve.app import app_of
from whet.serve.models import served_policies
from whet.tasks.chains import sample_chains

SMALL = (
    "num_threads=1", "num_questions=6", "data.num_train=6", "data.num_validation=4", "data.num_test=4",
    "checkpoint_every=0", "rg1.num_samples=4", "rg2.num_samples=2", "rg3.num_samples=2",
)  # fmt: skip


def made(folder: Path, *settings: str) -> dict:
    launch.start(config_of("auto_critique", *SMALL, *settings), folder, Quiet()).go()
    return json.loads((folder / "manifest.json").read_text())


def lines(path: Path) -> list:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("data") / "critiques"
    done = CliRunner().invoke(app, ["data", "critiques", *SMALL, "--out", str(place)])
    assert done.exit_code == 0, done.output
    assert "critiques in" in done.output
    return place


def test_a_file_of_the_tiny_worlds_questions_has_its_oracle(tmp_path):
    """The oracle of generated questions, which went by the hints alone where they came from a file: none passed."""
    chains = islice(sample_chains("train", 0, min_steps=3, max_steps=4), 60)
    rows = [{"question": chain.text, "answer": str(chain.values[-1])} for chain in chains]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    settings = [*SMALL[:2], "checkpoint_every=0", *SMALL[6:], "prompts=chains", "data.kind=file", "data.grader=chains"]
    run = tmp_path / "run"
    launch.start(config_of("auto_critique", *settings, f"data.path={tmp_path / 'rows.jsonl'}"), run, Quiet()).go()
    kept = lines(run / "critiques.jsonl")
    assert kept
    assert all("claimed" in row["critique"] for row in kept)


def test_every_record_says_where_it_came_from_and_the_counts_add_up(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    kept, dropped = (lines(folder / name) for name in FILES[:2])
    total = manifest["critiques"]["all"]
    assert len(kept) == total["kept"] == total["soft"] > 0
    assert len(kept) + len(dropped) == total["chosen"]
    assert sum(manifest["dropped"].values()) == len(dropped)
    assert len({row["id"] for row in kept + dropped}) == total["chosen"]
    for counts in manifest["solutions"].values():
        assert counts["made"] == sum(counts[name] for name in ("right", "wrong", "no_source", "lost"))
    assert manifest["filters"]["num_needed"] == 3
    assert {row["info"]["source"] for row in kept + dropped} == {"rg1", "rg2", "rg3"}
    for row in kept:
        record = record_of_row(row)
        assert not record.dropped
        assert record.num_correct >= 3
        assert record.num_refinements == 10
        assert set(record.policies) >= {"actor", "annotator"}
        assert record.seeds["answer"] != record.seeds["refinement"]
        assert record.verdict == ("correct" if record.right else "wrong")
        assert (record.error_step is not None) == (record.source != "rg1" and not record.right)
    for row in dropped:
        assert row["info"]["dropped"] in ("format", "verdict", "location", "hint_leak", "soft")


def test_the_other_formats_hold_the_kept_ones(folder):
    kept = lines(folder / "critiques.jsonl")
    records = [MathCritique.of(each) for each in json.loads((folder / "mathcritique.json").read_text())]
    assert [each.response for each in records] == [row["answer"] for row in kept]
    trl = lines(folder / "trl.jsonl")
    assert [each["completion"][0]["content"] for each in trl] == [row["critique"] for row in kept]
    labels = json.loads((folder / "first_errors.json").read_text())
    assert all(-1 <= each["label"] < len(each["steps"]) for each in labels)
    assert all((each["label"] == -1) == each["final_answer_correct"] for each in labels)


def test_the_page_shows_the_funnel_and_why_critiques_were_dropped(folder):
    page = write_report(folder).read_text()
    assert "RG3, planted" in page
    assert '"key":"fate"' in page
    assert "refinements are right" in page


def test_the_page_opens_with_all_of_them(folder, chromium):
    count = len(lines(folder / "traces" / "write.jsonl"))
    manifest = json.loads((folder / "manifest.json").read_text())
    assert count == manifest["critiques"]["all"]["chosen"]
    with watched(chromium, folder) as page:
        assert page.locator("#filters [aria-pressed=true]").count() == 0
        assert page.locator("#list li a").count() == count
        page.locator("#filters button[data-value=rg3]").click()
        assert 0 < page.locator("#list li a").count() < count


def test_the_tables_fit_and_part_right_from_wrong(folder):
    summary = json.loads((folder / "summary.json").read_text())
    tables = summary_tables(summary, load_report("critique_data"), width=80)
    assert len(tables) > 1
    heads = [str(column.header).replace("\n", " ") for table in tables for column in table.columns]
    assert [each for each in heads if each != "source"] == [
        column.title for column in load_report("critique_data").columns
    ]
    assert [bool(table.caption) for table in tables] == [False] * (len(tables) - 1) + [True]
    console = Console(width=80, file=StringIO())
    console.print(*tables)
    assert "…" not in console.file.getvalue()
    for row in summary["rows"].values():
        assert row["kept_right"] + row["kept_wrong"] == row["kept"]


def test_nothing_was_trained_so_nothing_is_called_the_best(folder):
    assert not (folder / "best").exists()


def test_a_data_set_that_is_made_is_not_made_again(folder):
    before = {name: (folder / name).read_bytes() for name in FILES}
    done = CliRunner().invoke(app, ["data", "critiques", *SMALL, "--out", str(folder)])
    assert "is finished; --overwrite makes its data anew" in done.output
    assert {name: (folder / name).read_bytes() for name in FILES} == before


def test_a_critics_warm_start_takes_the_file_as_it_is(folder, tmp_path):
    settings = [
        f"warm_start.file={folder / 'critiques.jsonl'}", "warm_start.actor_steps=1", "warm_start.critic_steps=1",
        "warm_start.rows_per_step=4", "prompts_per_step=4", "data.num_train=8",
        "data.num_validation=4", "data.num_test=4",
    ]  # fmt: skip
    done = CliRunner().invoke(app, ["train", "critique_dpo", *settings, "--dry-run", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output


def test_batches_change_nothing(folder, tmp_path):
    made(tmp_path / "other", "questions_per_step=2", "records_per_step=5")
    for name in FILES:
        assert (tmp_path / "other" / name).read_text() == (folder / name).read_text(), name


# --- somebody's own ---------------------------------------------------------------------------------------------------

OWN = ("rg1.num_samples=0", "rg2.num_samples=0", "rg3.num_samples=0", "num_questions=60")
"""Nothing is made: so many questions, the default, are not asked."""


def test_answers_and_labels_of_ones_own_are_taken(tmp_path):
    rows = [
        {"id": "a", "question": "7 + 5 * 3 - 2", "reference": "4", "error_step": 1,
         "answer": "Step 1: 7 + 5 = 2\nStep 2: 2 * 3 = 7\nStep 3: 7 - 2 = 5\nThe answer is 5"},
        {"id": "b", "question": "2 + 2 * 3", "answer": "Step 1: 2 + 2 = 4\nStep 2: 4 * 3 = 2\nThe answer is 2",
         "correct": True},
    ]  # fmt: skip
    manifest = made(tmp_path / "run", *OWN, f"given={write_jsonl(tmp_path / 'mine.jsonl', rows)}")
    assert manifest["solutions"] == {"given": {"made": 2, "wrong": 1, "right": 1, "no_source": 0, "lost": 0,
                                               "duplicate": 0}}  # fmt: skip
    [a, b] = map(record_of_row, lines(tmp_path / "run" / "critiques.jsonl"))
    assert (a.id, a.error_step, a.first_wrong, a.located, a.right) == ("given/a", 1, 1, "given", False)
    assert (b.verdict, b.num_correct, b.gold) == ("correct", None, None)  # nobody can grade its refinements
    assert manifest["kept"]["without_soft_filter"] == 1


def test_episodes_of_agents_are_taken(tmp_path, small_model):
    conversation = [
        {"from": who, "value": text, "loss": who == "gpt"}
        for who, text in (("human", "Rules."), ("gpt", "OK."), ("human", "Goal: one plank."), ("gpt", "get 1 log"),
                          ("human", "Got 1 log."), ("gpt", "craft 4 planks using 1 log"))
    ]  # fmt: skip
    rows = [{"item_id": f"textcraft_{n}", "conversations": conversation, "reward": reward, "success": bool(reward)}
            for n, reward in enumerate((0.0, 1.0))]  # fmt: skip
    rows[0]["conversations"] = conversation[:-2]
    file = write_jsonl(tmp_path / "episodes.jsonl", rows)
    manifest = made(
        tmp_path / "run",
        *OWN,
        f"trajectories=[{file}]",
        "prompts=english",
        "data.kind=basics",
        f"actor.path={small_model}",
    )
    found = [record_of_row(row) for row in lines(tmp_path / "run" / "critiques.jsonl")]
    assert manifest["critiques"]["trajectory"]["kept"] == 2
    assert [each.right for each in found] == [False, True]
    assert found[0].question == "Goal: one plank."
    assert found[0].response == "Turn 1: get 1 log"
    assert found[1].response.splitlines() == [
        "Turn 1: get 1 log -> Got 1 log.", "Turn 2: craft 4 planks using 1 log",
    ]  # fmt: skip


def test_first_errors_are_looked_for_by_monte_carlo(tmp_path):
    made(tmp_path / "run", "locate.num_completions=6", "rg2.num_samples=0", "rg3.num_samples=0")
    found = [record_of_row(row) for name in FILES[:2] for row in lines(tmp_path / "run" / name)]
    located = [each for each in found if each.located == "monte_carlo"]
    assert located
    assert all(each.rates[each.error_step] == 0 and min(each.rates[:-1], default=1) > 0 for each in located)
    labels = {each["id"]: each["label"] for each in json.loads((tmp_path / "run" / "first_errors.json").read_text())}
    assert all(labels[each.id] == each.error_step for each in located)


# --- worked solutions, by rules alone; and endpoints ------------------------------------------------------------------


def gsm(gsm8k: Path) -> tuple[str, ...]:
    return (
        "data.kind=file", f"data.train_path={gsm8k}", "prompts=english", "rg1.num_samples=0", "rg2.num_samples=0",
        "rg3.num_samples=3", "rg3.prefix=reference", "rg3.rest=recomputed", "num_questions=12", "right_share=0",
    )  # fmt: skip


def test_gsm8k_needs_rules_alone_to_be_flawed_and_critiqued(gsm8k, small_model, tmp_path):
    settings = [each for each in SMALL if not each.startswith(("data", "rg", "num_q"))]
    config = config_of("auto_critique", *settings, *gsm(gsm8k), f"actor.path={small_model}",
                       "filters.num_refinements=0")  # fmt: skip
    launch.start(config, tmp_path / "run", Quiet()).go()
    found = [record_of_row(row) for row in lines(tmp_path / "run" / "critiques.jsonl")]
    dropped = lines(tmp_path / "run" / "dropped.jsonl")
    assert len(found) > 15
    assert not dropped
    assert all(each.first_wrong == each.error_step and not each.right for each in found)
    assert {each.mistake for each in found} >= {"arithmetic", "quantity", "operator"}
    records = json.loads((tmp_path / "run" / "mathcritique.json").read_text())
    assert all("Correctness of the final answer: Wrong" in MathCritique.of(each).critique for each in records)


def test_hints_go_to_the_annotator_and_never_into_the_data(gsm8k, tmp_path):
    """All seats behind an endpoint, whose annotator tells what it was told."""
    settings = [each for each in SMALL if not each.startswith(("data", "rg", "num_q"))]
    blab = "By the reference answer this is wrong.\nCorrectness of the final answer: Wrong"
    with faulty("503", "ok", text=blab) as server:
        roles = [f"{role}={{kind: endpoint, url: '{server.url}', model: m, cache: null}}"
                 for role in ("actor", "annotator")]  # fmt: skip
        config = config_of("auto_critique", *settings, *gsm(gsm8k), *roles, "filters.format=false",
                           "filters.num_refinements=2", "num_questions=2")  # fmt: skip
        launch.start(config, tmp_path / "run", Quiet()).go()
    asked = [each["messages"][-1]["content"] for each in server.asked]
    assert all("For your eyes alone" in each and "The first mistake is in step" in each for each in asked)
    dropped = [record_of_row(row) for row in lines(tmp_path / "run" / "dropped.jsonl")]
    assert {each.dropped for each in dropped} == {"hint_leak"}
    assert {each.hints for each in dropped} == {("reference", "location", "mistake")}
    assert not (tmp_path / "run" / "best").exists()  # there is no model of ours
    with pytest.raises(whet.errors.WhetError, match="endpoints and rules had all of its roles"):
        load_run(tmp_path / "run")
    assert (tmp_path / "run" / "critiques.jsonl").read_text() == ""
    assert "nothing_kept" in (tmp_path / "run" / "events.jsonl").read_text()


def test_an_actor_behind_our_own_server_goes_on_from_steps(folder, tmp_path):
    cast = served_policies(load_run(folder))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app_of(cast), host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        url = f"http://127.0.0.1:{port}/v1"
        role = f"actor={{kind: endpoint, url: '{url}', model: actor, cache: null, prefill: continue}}"
        manifest = made(tmp_path / "run", role, "num_questions=3", "filters.num_refinements=4")
    finally:
        server.should_exit = True
        thread.join()
    assert manifest["seats"]["actor"] == "endpoint:actor"
    for name in ("rg1", "rg2", "rg3"):
        assert manifest["solutions"][name]["wrong"] > 0
    assert manifest["kept"]["all"] > 0


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("nonsense=1",), "unknown key nonsense"),
        (OWN, "nothing is to be critiqued: set rg1.num_samples"),
        (("rg3.mistakes=[typo]",), "rg3.mistakes: there is no 'typo'; there are arithmetic, operator"),
        (("rg3.mistakes=[formula]",), "no rule makes 'formula'; use a model as corrupter"),
        (("ratio={given: 1}",), "ratio names 'given'; it is of rg1, rg2 and rg3"),
        (("ratio.rg1=-1",), "ratio.rg1 must be a number of at least 0, got -1"),
        (("annotator.name=prophet",), "there is no rule 'prophet' for these data; choose of: oracle"),
        (("corrupter.name=oracle",), "there is no rule 'oracle'; there is catalogue"),
        (("corrupter={kind: model}",), "the tiny world has no words to ask a model for a mistake"),
        (("filters.answer_leak=mask",), "the tiny world's tokenizer has no placeholder"),
        (("roles.refinement.temperature=0",), "would count one of them N times; set it above 0"),
        (("actor={kind: endpoint, url: 'http://127.0.0.1:1/v1', model: m}",), "nobody can ask an endpoint"),
        (("given=nowhere.jsonl",), "nowhere.jsonl: there is no such file"),
        (("rg2.num_samples=0", "rg2.temperature=1.2"), "rg2.temperature has no effect"),
        (("method=grpo",), "method must be 'auto_critique', got 'grpo'"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(settings, says, tmp_path):
    done = CliRunner().invoke(app, ["data", "critiques", *settings, "--out", str(tmp_path / "run")])
    assert done.exit_code in (1, 2)
    assert says in done.output.replace("\n", " "), done.output
    assert "Traceback" not in done.output


def test_answers_that_nobody_can_label_are_refused_and_measured_questions_dropped(tmp_path):
    rows = [{"question": "What?", "answer": "That."}]
    with pytest.raises(whet.errors.WhetError, match="nothing says whether it is right; give correct or reference"):
        made(tmp_path / "a", *OWN, f"given={write_jsonl(tmp_path / 'a.jsonl', rows)}")


RIGHT = "Step 1: 7 + 5 = 2\nStep 2: 2 * 3 = 6\nStep 3: 6 - 2 = 4\nThe answer is 4"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"question": "what is 3", "answer": "The answer is 3", "correct": True}],
         "answer 1: 'what is 3' is not a chain such as '7 . 5 . 3', and the annotator's rule"),
        ([{"question": "7 + 5 * 3 - 2", "answer": RIGHT, "correct": False, "error_step": 3}],
         "answer 1: error_step = 3, and it has 3 steps, numbered from 0"),
        ([{"question": "7 + 5 * 3 - 2", "answer": RIGHT, "correct": label} for label in (True, False)],
         "answers 1 and 2 are the same to the same question, and one is called correct"),
    ],
)  # fmt: skip
def test_answers_that_contradict_are_refused(rows, says, tmp_path):
    with pytest.raises(whet.errors.WhetError, match=says):
        made(tmp_path / "run", *OWN, f"given={write_jsonl(tmp_path / 'mine.jsonl', rows)}")


def test_a_label_that_the_grader_does_not_find_is_told(tmp_path):
    rows = [{"question": "7 + 5 * 3 - 2", "answer": RIGHT, "correct": label, "reference": "4"} for label in (False,)]
    made(tmp_path / "run", *OWN, f"given={write_jsonl(tmp_path / 'mine.jsonl', rows)}")
    events = (tmp_path / "run" / "events.jsonl").read_text()
    assert "1 of 1 labels are not what the grader finds, the first that of answer 1; they are taken as" in events


def test_what_nobody_could_grade_is_lost_and_says_nothing_of_a_critique_or_a_step(tmp_path, small_model):
    """A grader that is always down: nothing is located, and no critique is dropped for refinements nobody graded."""
    rows = [{"question": "What is 7 + 5 - 2?", "answer": "7 + 5 = 12\n12 - 2 = 11\nThe answer is 11.", "correct": False,
             "reference": "10"}]  # fmt: skip
    (tmp_path / "down.py").write_text(
        "import whet\n\n@whet.grader('down')\ndef down(completion, **more):\n    raise RuntimeError('down')\n"
    )
    problems = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(20, 80)]
    settings = [
        *OWN, f"given={write_jsonl(tmp_path / 'g.jsonl', rows)}", f"actor.path={small_model}", "prompts=english",
        "data.kind=file", f"data.path={write_jsonl(tmp_path / 'train.jsonl', problems)}", "data.grader=down",
        f"plugins=[{tmp_path / 'down.py'}]", "locate.num_completions=2", "filters.num_refinements=2",
        "faults.budget=1",
    ]  # fmt: skip
    command("data", "critiques", *settings, "--out", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["dropped"] == {"lost": 1}
    assert json.loads((tmp_path / "run" / "first_errors.json").read_text()) == []
    assert "of 1 solutions 1 are not located" in (tmp_path / "run" / "events.jsonl").read_text()
