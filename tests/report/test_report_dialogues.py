"""The page of episodes of many turns: what was done, what came back, and where it went wrong, turn by turn."""

import json
from dataclasses import replace

import pytest

from support.browser import watched
from support.report_run import write_lines
from whet.evaluation.agents import turns_trace
from whet.methods.report_specs import load_report
from whet.report.browser import browser, tags
from whet.report.read import read_run
from whet.report.spec import to_json
from whet.rollout.roles import observed, written
from whet.types import Episode, Task

SOLVE = load_report("solve")

SHEET = replace(SOLVE, view="dialogue", trace="episode", traces="episodes")
NUM_TURNS = 30


def an_episode(task, turns, *, outcome="ok", reason=""):
    """Every fifth action is one that the world does not know; the last one is paid."""
    segments = [observed(f"You are at place 0 of {task}.", parent=0)]
    for turn in range(1, turns + 1):
        more = {"parsed": {"note": "invalid action"}} if turn % 5 == 0 else {}
        scored = {"rewards": {"total": 1.0}} if turn == turns and outcome == "ok" else {}
        text = f"Thought:\nPlace {turn} is next.\n\nAction:\ngo to {turn}"
        segments.append(written("agent", text, policy="policy", seed=turn, **more, **scored))
        segments.append(observed(f"You are at place {turn}.\n<b>North</b>: a wall.", parent=len(segments) - 1))
    where = Task(id=task, prompt=f"Reach the end of {task}.")
    return Episode(task=where, segments=tuple(segments), outcome=outcome, reason=reason)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "agent"
    labels = {"phase": "after", "step": 1, "split": "test", "label": "best"}
    rows = [turns_trace(an_episode("maze-1", NUM_TURNS), score=1.0, **labels)]
    rows += [turns_trace(an_episode("maze-1", 12, outcome="truncated"), score=0.0, **labels)]
    lost = an_episode("maze-2", 3, outcome="env_error", reason="the world has crashed")
    rows += [turns_trace(lost, score=0.0, **labels)]
    write_lines(folder / "traces" / "after.jsonl", rows)
    write_lines(folder / "metrics.jsonl", [{"phase": "train", "step": 1, "reward/mean": 0.5}])
    (folder / "report_spec.json").write_text(to_json(SHEET))
    (folder / "config.yaml").write_text("method: agent\n")
    return folder


def test_a_trace_has_a_turn_a_segment_and_a_failure_no_score():
    row = turns_trace(an_episode("m", 2), score=1.0, phase="p", step=3, split="train", label="x", credit={1: 0.5})
    assert [turn["role"] for turn in row["turns"]] == ["observation", *["agent", "observation"] * 2]
    assert [turn.get("stop") for turn in row["turns"]] == [None, "eos", None, "eos", None]
    assert "credit" not in row["turns"][1]  # no token of it was sampled here
    assert (row["reward"], row["answer_score"]) == (1.0, 1.0)
    failed = turns_trace(an_episode("m", 2, outcome="timeout"), score=0.0, phase="p", step=3, split="train", label="x")
    assert failed["answer_score"] is None
    assert json.loads(json.dumps(row)) == row


def test_episodes_are_found_by_what_became_of_them(folder):
    whole, cut, lost = read_run(folder).exchanges
    assert [tags(one, SHEET)["trouble"] for one in (whole, cut, lost)] == [[], ["truncated"], ["ungraded", "failed"]]
    assert [tags(one, SHEET)["outcome"] for one in (whole, cut, lost)] == [["right"], ["wrong"], []]
    torn = replace(whole, turns=(replace(whole.turns[1], stop="length"),))
    assert tags(torn, SHEET)["trouble"] == ["truncated"]


def test_a_long_observation_is_cut_in_its_middle(folder):
    whole = read_run(folder).exchanges[0]
    long = replace(whole, turns=(replace(whole.turns[0], text="\n".join(map(str, range(1000)))),))
    [row] = browser([long], 10, SHEET)["exchanges"]
    assert row["turns"][0]["gap"]["lines"] > 500
    assert row["turns"][0]["text"].startswith("0\n1\n")
    assert row["turns"][0]["text"].endswith("\n999")


def test_thirty_turns_read_well(chromium, folder):
    with watched(chromium, folder) as page:
        page.locator("#list a", has_text="✓").first.click()
        turns = page.locator("#turns > li")
        assert turns.count() == 2 * NUM_TURNS + 1
        assert page.locator("#turns .own").count() == NUM_TURNS
        cells = page.locator(".strip button")
        assert [cells.nth(i).inner_text() for i in (0, 29)] == ["1", "30"]
        assert page.locator(".strip .watch").count() == 6
        assert page.locator(".strip .right").count() == 0  # the last one was paid, and is no known action
        cells.nth(19).click()
        page.wait_for_function(
            "() => { const t = document.getElementById('turns'), li = document.getElementById('turn-20');"
            " return Math.abs(li.getBoundingClientRect().top - t.getBoundingClientRect().top) < 3; }"
        )
        assert "invalid action" in page.locator("#turn-20").inner_text()
        bold = page.locator("#turn-20 .line.action").all_inner_texts()
        assert bold == ["Action:", "go to 20"]
        assert "<b>North</b>" in turns.nth(2).inner_text()  # as text, and as nothing else
        assert "turns\n30" in page.locator("#detail .pay").inner_text().replace("\t", "\n")


def test_a_failed_episode_says_why(chromium, folder):
    with watched(chromium, folder) as page:
        page.locator(".facet button", has_text="failed").click()
        assert page.locator("#list li").count() == 1
        assert "! env error" in page.locator("#detail .head").inner_text()
        assert "the world has crashed" in page.locator("#detail .pay").inner_text()


def test_the_turns_are_searched(chromium, folder):
    with watched(chromium, folder) as page:
        page.locator("#search").fill("place 29")
        assert page.locator("#list a[data-id]").count() == 1
