"""`whet eval --strategy` of runs: what is kept, read again, merged, drawn, and said where it cannot be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import whet
from support.browser import watched
from support.commands import Quiet, config_of
from support.commands import whet as command
from support.faulty_server import faulty
from support.sessions import STEPS, WARM, WORLD, session_of
from support.strategies import samples_of, spent
from whet.config import ConfigError
from whet.errors import RunError
from whet.evaluation.inference_scaling import Majority, SelfCheck, Strategy, strategies_of
from whet.methods.evaluator import EvalSettings
from whet.methods.solvers import solve_rollout
from whet.report.inference_scaling import level_table, read_scaling_records, scaling_charts, scaling_rows, scaling_table
from whet.run import launch
from whet.run.evaluate import evaluate, target_of
from whet.run.inference_scaling import ScaleSettings, budgets_of, scale
from whet.run.inference_scaling_records import _File
from whet.types import Completion

CHEAP = {"level_samples": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    launch.start(config_of("ref_critic", *WORLD, *STEPS, *WARM), folder, Quiet()).go()
    return folder


def scaled(run: Path, strategies: str, budgets=(60, 200), *changed: str, **asked):
    config, folder = target_of(str(run), None, changed)
    settings = ScaleSettings(strategies_of(strategies), budgets, changed=changed, **{**CHEAP, **asked})
    return scale(config, folder, settings, Quiet())


def lines(run: Path) -> list[str]:
    [file] = (run / "eval").glob("samples-*.jsonl")
    return file.read_text().splitlines()


@pytest.mark.integration
def test_a_run_keeps_what_was_sampled_and_asks_for_nothing_twice(run):
    [record] = scaled(run, "single,majority,parallel").values()
    assert (record["critic"], record["n"], record["lost"]) == ("ref_critic", 12, 0)
    for each in record["strategies"].values():
        for point in each["points"]:
            assert 0 <= point["low"] <= point["accuracy"] <= point["high"] <= 1
    assert {p["tokens"] for p in record["strategies"]["single"]["points"]} == {
        record["strategies"]["single"]["points"][0]["tokens"]
    }
    before = lines(run)
    [again] = scaled(run, "single,majority,parallel").values()
    assert lines(run) == before
    assert again == record
    # Of the filtered vote, the answers and critiques are those of the chains.
    [more] = scaled(run, "critic_filtered,majority").values()
    assert list(more["strategies"]) == ["single", "parallel", "critic_filtered", "majority"]
    assert more["strategies"]["parallel"] == record["strategies"]["parallel"]
    assert lines(run)[: len(before)] == before
    [file] = (run / "eval").glob("strategies-*.json")
    assert file.name == "strategies-ref_critic-test-t0.7.json"
    assert json.loads(file.read_text()) == more
    rows = [json.loads(line) for line in file.with_suffix(".traces.jsonl").read_text().splitlines()]
    assert len(rows) == 12 * 4
    right = sum(row["right"] for row in rows if row["strategy"] == "majority")
    assert right / 12 == more["strategies"]["majority"]["points"][-1]["accuracy"]


def test_the_majority_is_that_of_whet_eval(run):
    config, folder = target_of(str(run), None, ())
    plain, _ = evaluate(config, folder, EvalSettings(("no_critic",), num_samples=1), Quiet())
    [record] = scaled(run, "single,majority", (1, 2), names=("no_critic",)).values()
    assert record["strategies"]["single"]["points"][0]["accuracy"] == plain["no_critic"]["acc"]
    evaluate(config, folder, EvalSettings(("no_critic",), num_samples=2), Quiet())
    first = json.loads((run / "eval" / "no_critic-test-k2-r1-t0.7.json").read_text())["scaling"]["majority_answer"]["1"]
    assert record["strategies"]["majority"]["points"][0]["accuracy"] == first
    assert record["strategies"]["majority"]["points"][0]["answers"] == 1


def test_a_killed_measurement_goes_on_from_what_was_written(run, tmp_path):
    """The file is cut in the middle of a line, as by a kill: what is there is read, and the end is the same."""
    [whole] = scaled(run, "parallel", (150,), temperature=0.6).values()
    [file] = (run / "eval").glob("samples-*.jsonl")
    full = file.read_bytes()
    file.write_bytes(full[: 2 * len(full) // 3])
    [again] = scaled(run, "parallel", (150,), temperature=0.6).values()
    assert again["strategies"]["parallel"] == whole["strategies"]["parallel"]
    assert all(json.loads(line) for line in file.read_text().splitlines())


def test_a_file_of_samples_reads_what_it_wrote_and_cuts_what_is_torn(tmp_path):
    path, one = tmp_path / "samples.jsonl", Completion(tokens=(3, 4), logprobs=(), stop_reason="eos", version=7)
    file = _File(path)
    file.put("a", one)
    file.close()
    path.write_bytes(path.read_bytes() + b'{"key": "b", "tok')
    file = _File(path)
    assert (file.get("a"), file.get("b")) == (one, None)
    file.put("c", replace(one, version=8))
    file.close()
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == ["a", "c"]


def test_other_actors_have_samples_and_records_of_their_own(run, random_model):
    scaled(run, "majority", (30,))
    before = set((run / "eval").glob("samples-*.jsonl"))
    scaled(run, "majority", (30,), f"actor.path={random_model}")
    scaled(run, "majority", (30,), "evaluation.num_test=5")
    assert len(set((run / "eval").glob("samples-*.jsonl")) - before) == 1  # fewer questions are not other weights
    records = [json.loads(file.read_text()) for file in (run / "eval").glob("strategies-ref_critic-test-t0.7-*.json")]
    assert sorted(record["n"] for record in records) == [5, 12]


def test_a_policy_that_answers_alone_votes_and_checks_itself():
    method = session_of("grpo", *STEPS).algorithm
    task = method.run.tasks["test"][0]
    samples = samples_of(method, task, "policy")
    assert samples.rounds.critic.policy == samples.rounds.actor.policy == "policy"
    one = spent(method, samples, Majority(), 200)[1]
    assert len(one.used) > 2
    [group] = method.run.runtime.by_task(solve_rollout(method, "policy", "evaluation"), [task], num_samples=2)
    assert [each.segments[0].text for each in group] == [one.used[(i,)].segment.text for i in range(2)]
    spent(method, samples, SelfCheck(certainty=1.0), 200)
    config = config_of("grpo", *WORLD, *STEPS)
    [record] = scale(config, None, ScaleSettings(strategies_of("all"), (60,), **CHEAP), Quiet()).values()
    assert record["critic"] == "policy"
    assert set(record["strategies"]) == set(whet.STRATEGIES.names())


def test_from_python_with_a_strategy_of_ones_own(run, tmp_path):
    own = tmp_path / "mine.py"
    own.write_text(
        '''import whet


@whet.strategy("second_opinion")
class SecondOpinion(whet.Strategy):
    """Two answers; the second where the critic calls the first wrong."""

    async def choose(self, ask):
        first = await ask.answer(0)
        critique = await ask.critique(first)
        return await ask.answer(1) if critique.verdict == "wrong" else first
'''
    )
    found = whet.scale(run, "single", [50], level_samples=0)
    assert list(found) == ["ref_critic"]
    kept = whet.Run.open(run).strategies["ref_critic, test"]
    assert kept["strategies"]["single"] == found["ref_critic"]["strategies"]["single"]
    record = whet.scale(run, ["second_opinion"], [50], names="oracle", level_samples=0, plugins=[str(own)])["oracle"]
    [point] = record["strategies"]["second_opinion"]["points"]
    assert 1 <= point["answers"] <= 2
    assert point["tokens_critique"] == 0


def test_what_was_measured_before_is_kept(run):
    """Budgets add up; what was measured in another way is set aside, not overwritten."""
    asked = {"names": ("empty",), "level_samples": 0}
    scaled(run, "majority,single", (30, 60), **asked)
    [record] = scaled(run, "majority", (60, 90), **asked).values()
    assert [point["budget"] for point in record["strategies"]["majority"]["points"]] == [30, 60, 90]
    assert "single" in record["strategies"]
    [record] = scaled(run, "majority", (30,), names=("empty",), level_samples=2).values()
    assert list(record["strategies"]) == ["majority"]
    # Of this critic alone: which other tests have used this run before depends on how they are dealt to processes.
    [earlier] = (run / "eval" / "earlier").glob("strategies-empty-*.json")
    assert set(json.loads(earlier.read_text())["strategies"]) == {"majority", "single"}
    assert earlier.with_suffix("").with_suffix(".1.traces.jsonl").exists()


class Heard(Quiet):
    def __init__(self) -> None:
        self.said: list[str] = []

    def tell(self, level: str, text: str) -> None:
        self.said += [text] if level == "warning" else []


@pytest.mark.parametrize(
    "damage", ["[1, 2]", "{", "5", '{"strategies": []}', '{"strategies": {"majority": {"points": [5]}}}']
)
def test_a_file_that_holds_no_record_is_set_aside_with_a_word(run, damage):
    config, folder = target_of(str(run), None, ())
    settings = ScaleSettings(strategies_of("majority"), (30,), names=("always_correct",), level_samples=0)
    file = run / "eval" / "strategies-always_correct-test-t0.7.json"
    record, heard = scale(config, folder, settings, Quiet()), Heard()
    file.write_text(damage)
    assert scale(config, folder, settings, heard) == record
    assert json.loads(file.read_text()) == record["always_correct"]
    [said] = [text for text in heard.said if "holds no record of strategies" in text]
    aside = Path(said.partition("it is now ")[2].partition(",")[0])
    assert aside.read_text() == damage


@pytest.mark.parametrize("changed", [{"key": [1]}, {"tokens": 5}, {"tokens": ["a"]}, {"stop": "?"}, {"version": None}])
def test_a_sample_that_cannot_be_one_is_sampled_again(tmp_path, changed):
    row = {"key": "a", "tokens": [3, 4], "stop": "eos", "version": 7}
    (tmp_path / "samples.jsonl").write_text(json.dumps(row | changed) + "\n" + json.dumps(row | {"key": "b"}) + "\n")
    file = _File(tmp_path / "samples.jsonl")
    assert (file.get("a"), file.get("b").tokens) == (None, (3, 4))
    file.close()


class Plain(Strategy):
    def choose(self, ask):
        return 5


class Unpaid(Strategy):
    async def choose(self, ask):
        return await ask.samples.answer(0)


class Refines(Strategy):
    async def choose(self, ask):
        return await ask.refinement(await ask.answer(0))


class Negative(Strategy):
    async def choose(self, ask):
        return await ask.answer(-1)


class Twice(Strategy):
    async def choose(self, ask):
        first = await ask.answer(0)
        return await ask.critique(await ask.critique(first))


class Nothing(Strategy):
    async def choose(self, ask):
        async def nothing(part, index):
            return index

        assert await ask.each(nothing) == [0, 1]  # as many as surely fit, and then no more: they cost nothing
        await ask.each(lambda part, index: part.answer(index), ("anser",))


class Trusts(Strategy):
    async def choose(self, ask):
        await ask.critique_score([], "share")


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (Plain(), "choose has to be a coroutine: write `async def"),
        (Unpaid(), "gives an answer that it did not ask its `ask` for"),
        (Refines(), "asks for a refinement after an answer: refinements are after critiques"),
        (Negative(), "asks for number '-1' of something"),
        (Twice(), "a critique of a critique"),
        (Nothing(), "'anser' is none of answer, critique, refinement"),
        (Trusts(), "give it one critique at least"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Strategy) else "",
)
def test_a_strategy_that_cannot_be_is_told_in_a_sentence(run, strategy, said):
    config, folder = target_of(str(run), None, ())
    with pytest.raises(ConfigError, match=said):
        scale(config, folder, ScaleSettings({"mine": strategy}, (60,), level_samples=0), Quiet())


def test_levels_come_from_other_samples(run):
    [record] = scaled(run, "majority", (30,), names=("no_critic",), level_samples=4).values()
    assert record["level_samples"] == 4
    [traces] = (run / "eval").glob("strategies-no_critic-test-t0.7.traces.jsonl")
    rows = [json.loads(line) for line in traces.read_text().splitlines()]
    assert {row["level"] for row in rows} <= {1, 2, 3, 4, 5}
    assert all(row["level"] is not None for row in rows)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"budgets": (0,)}, "a budget of 0 tokens buys nothing"),
        ({"names": ("nobody",)}, "there is no critic 'nobody'"),
        ({"names": ("no_critic",)}, "no_critic critiques nothing"),
    ],
)
def test_what_cannot_be_measured_is_refused(run, asked, said):
    config, folder = target_of(str(run), None, ())
    with pytest.raises(ConfigError, match=said):
        scale(config, folder, ScaleSettings(strategies_of("parallel"), **asked), Quiet())


def of_an_endpoint(server, *more: str, asked="majority,verdict_gated"):
    """The first of 6 questions, answered by whoever sits behind the endpoint."""
    actor = (f"actor.url={server.url}", "actor.model=tiny", "actor.retries=0", "actor.cache=null")
    config = config_of("critique_rl", *WORLD, "actor.kind=endpoint", *actor, "evaluation.num_test=6", *more)
    [record] = scale(config, None, ScaleSettings(strategies_of(asked), (10,), level_samples=0), Quiet()).values()
    return record


def test_an_endpoints_tokens_are_spent_and_what_fails_is_lost_for_all_alike():
    pytest.importorskip("openai", reason="openai is not installed; it comes with the extra 'endpoint'")
    with faulty("ok") as server:
        record = of_an_endpoint(server)
    [point] = record["strategies"]["majority"]["points"]
    assert (point["answers"], point["tokens"], point["calls"]) == (4, 12, 4)  # 3 tokens each, by the server's count
    assert record["lost"] == 0
    with faulty("500", "500", "ok") as server:
        record = of_an_endpoint(server, "actor.max_concurrency=1", "faults.retries=0")
    assert (record["n"], record["lost"]) == (4, 2)
    assert {each["points"][0]["n"] for each in record["strategies"].values()} == {4}
    with faulty("500") as server, pytest.raises(RunError, match=r"every question was lost; .*HTTP 500"):
        of_an_endpoint(server)


def test_agents_have_no_strategies():
    config = config_of("spc", *WORLD)
    with pytest.raises(ConfigError, match="strategies are measured of critics, and of policies that answer alone; spc"):
        scale(config, None, ScaleSettings(strategies_of("majority"), (10,)), Quiet())


@pytest.mark.parametrize(("text", "found"), [("100, 200", (100, 200)), ("", ()), ("5,", (5,))])
def test_budgets(text, found):
    assert budgets_of(text) == found


@pytest.mark.parametrize("text", ["many", "1e3", "-5", "1.5", "²", ",", "1" * 40])  # the last is too much
def test_what_is_no_budget(text):
    with pytest.raises(ConfigError, match=r"no number of tokens|too much|are more than"):
        budgets_of(text)


def test_the_command(run):
    done = command("eval", run, "--strategy", "majority,verdict_gated", "--budget", "60,120", "--level-samples", 2)
    assert "verdict_gated" in done.stdout
    assert "n = 12 questions" in " ".join(done.stdout.split())
    refused = command("eval", run, "--strategy", "majority", "--samples", 4, check=False)
    assert refused.returncode == 2
    assert "leave --samples and the like out" in " ".join(refused.stderr.split())
    listed = command("list", "strategies")
    assert all(entry.name in listed.stdout for entry in whet.STRATEGIES if entry.origin == "whet")


def record_of(*labels: str) -> dict:
    points = [
        {
            "budget": budget, "tokens": budget + 9.5, "accuracy": 0.5, "low": 0.4, "high": 0.6, "answers": 2.0,
            "critiques": 1.0, "refinements": 0.0, "gain": 0.1, "gain_low": -0.1, "gain_high": 0.2,
            "levels": {"1": {"n": 20, "accuracy": 0.9}, "5": {"n": 30, "accuracy": 0.1}},
        }
        for budget in (1000, 2000)
    ]  # fmt: skip
    strategies = {label: {"options": {}, "ceiling": label == "ceiling", "points": points} for label in labels}
    return {
        "critic": "c", "split": "test", "n": 50, "lost": 1, "rule": "A rule.", "votes": "by text", "level_samples": 8,
        "strategies": strategies,
    }  # fmt: skip


def test_tables_and_panels_of_a_record():
    record = record_of("majority", "ceiling")
    rows = [cells for _, cells in scaling_rows(record)]
    assert rows[0] == ["1,000", "1,010", "2.0", "1.0", "0.0", "50.0", "[40.0, 60.0]", "+10.0", "[-10.0, +20.0]"]
    assert scaling_table(record).row_count == 4
    table = level_table(record)
    assert [column.header for column in table.columns] == ["strategy", "1 (n = 20)", "5 (n = 30)"]
    charts = scaling_charts([("c", record)])
    assert [chart["axis"] for chart in charts] == ["tokens", "level"]
    assert charts[0]["series"][1]["x"] == [1009.5, 2009.5]
    assert charts[1]["series"][0]["y"] == [0.9, 0.1]
    twelve = scaling_charts([("c", record_of(*"abcdefghijkl"))])[0]["series"]
    assert len({(each["colour"], each["dash"]) for each in twelve}) == 12


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"strategies": {}}', '{"strategies": {"a": {"points": [{"tokens": "x"}]}}}']
)
def test_a_record_that_is_none_is_left_out(tmp_path, text):
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "strategies-x.json").write_text(text)
    assert list(read_scaling_records(tmp_path)) == []
    (tmp_path / "eval" / "strategies-y.json").write_text(json.dumps(record_of("majority")))
    assert [name for name, _ in read_scaling_records(tmp_path)] == ["c, test"]


def test_the_page_draws_the_curves(run, chromium):
    scaled(run, "majority,parallel,ceiling")
    with watched(chromium, run) as page:
        assert page.locator("#strategy-panels .panel").count() >= 1
        assert page.locator("#strategy-panels .js-plotly-plot").count() >= 1
        assert page.locator("#test-time table tbody tr").count() >= 6
        assert page.get_by_role("link", name="Test time").count() == 1
