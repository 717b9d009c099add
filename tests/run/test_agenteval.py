"""`whet eval --env agenteval`: what can run, on which items, and an evaluation that goes on after a kill."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from support.agent_model import agent_model
from support.commands import killed_when, whet
from support.json_server import JsonServer
from support.sessions import Silent
from whet.config import ConfigError
from whet.config.environments import PoolConfig
from whet.config.loading import merged, parse_override
from whet.envs import ENVIRONMENTS, EnvError
from whet.errors import RunError
from whet.registry import Entry
from whet.run import agenteval_items
from whet.run.agenteval import measure_agenteval
from whet.run.agenteval_items import parts_of
from whet.run.agenteval_part import Asked

POOL = PoolConfig()
AGENTGYM = Path(os.environ.get("WHET_DATA") or Path(__file__).parents[3] / "shared" / "data") / "agentgym"
QUICK = ("rules=none", "evaluation.max_turns=2", "sampling.max_new_tokens=8", "num_threads=1")


def asked(*settings, num_items=2, **more):
    tree = {}
    for setting in settings:
        tree = merged(tree, parse_override(setting))
    return Asked(tree, num_items, **more)


@pytest.fixture
def only(monkeypatch):
    """Limits whet's environments to some."""

    def limit(*names):
        monkeypatch.setattr(agenteval_items, "agentgym_names", lambda: list(names))

    return limit


@pytest.fixture
def registered(monkeypatch):
    """Registers something as one of whet's environments, for a test."""

    def register(name, make):
        monkeypatch.setitem(ENVIRONMENTS._entries, name, Entry(name, "for a test", "whet", make))

    return register


def by_table(parts):
    return {(part.name, part.table): part for part in parts}


# --- which items ------------------------------------------------------------------------------------------------------


def test_published_items_are_those_whose_numbers_mean_upstreams(only, monkeypatch):
    monkeypatch.delitem(ENVIRONMENTS._entries, "webshop")
    only("maze", "wordle", "textcraft", "webshop")
    parts, not_run = parts_of({}, (), None, POOL)
    assert {key: len(part.items) for key, part in by_table(parts).items()} == {
        ("maze", "published"): 25,
        ("wordle", "generated"): 25,
        ("textcraft", "generated"): 100,
    }
    assert by_table(parts)["maze", "published"].choice == "AgentEval's list"
    assert {(absent.environment, absent.cause) for absent in not_run} == {
        ("wordle", "published"), ("textcraft", "published"), ("webshop", "absent"), ("webarena", "held"),
        ("miniwob", "held"),
    }  # fmt: skip
    [wordle] = [absent.why for absent in not_run if absent.environment == "wordle"]
    assert "data.settings.wordle.words" in wordle


def test_a_generated_shop_has_no_published_items(only):
    only("webshop")
    parts, not_run = parts_of({}, (), None, POOL)
    assert {key: len(part.items) for key, part in by_table(parts).items()} == {("webshop", "generated"): 200}
    [webshop] = [absent.why for absent in not_run if absent.environment == "webshop"]
    assert "data.settings.webshop.products" in webshop


def test_settings_bring_published_items(only, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("panic\nmaria\n")
    only("wordle")
    [part], not_run = parts_of({"wordle": {"words": str(words)}}, (), 3, POOL)
    assert (part.table, part.items) == ("published", (0, 8, 16))
    assert {absent.environment for absent in not_run} == {"webarena", "miniwob"}


def test_published_recipes_bring_published_goals(only):
    recipes, openings = AGENTGYM / "textcraft/recipes.tar.gz", AGENTGYM / "AgentTraj-L/textcraft_train.json"
    if not (recipes.exists() and openings.exists()):
        pytest.skip(f"no recipes and records of TextCraft under {AGENTGYM}; set WHET_DATA to the folder that has them")
    only("textcraft")
    [part], _ = parts_of({"textcraft": {"recipes": str(recipes), "openings": str(openings)}}, (), None, POOL)
    assert (part.table, len(part.items)) == ("published", 100)
    assert part.choice == "whet's choice of upstream's items"


def test_a_list_given_is_measured_where_its_numbers_mean_upstreams(only, tmp_path):
    ids = tmp_path / "test.json"
    ids.write_text(json.dumps([{"item_id": name} for name in ("lmrlgym_maze_7", "lmrlgym_maze_3", "textcraft_1")]))
    only("maze", "textcraft")
    parts, _ = parts_of({}, [str(ids)], 5, POOL)
    assert (parts[0].items, parts[0].choice) == ((7, 3), "the list given")
    assert (parts[1].table, len(parts[1].items)) == ("generated", 5)


def test_every_environment_of_whet_says_which_of_its_splits_is_published():
    own = [ENVIRONMENTS.get(entry.name) for entry in ENVIRONMENTS if entry.origin == "whet"]
    for info in own:
        if info.published is not None:
            assert info.published.split in info.splits(), info.name
    assert sum(info.published is not None for info in own) >= 5


def test_what_cannot_run_says_why(only, registered):
    def without_package():
        try:
            import a_package_that_nobody_has  # noqa: F401
        except ImportError as error:
            raise EnvError("bare needs a package: install the extra `envs`") from error

    def without_data():
        raise EnvError("shop needs products: give data.settings.shop.folder")

    registered("bare", without_package)
    registered("shop", without_data)
    registered("odd", lambda: 1 / 0)
    broken = replace(ENVIRONMENTS.get("maze"), name="kitchen", needs="household-of-nobody", make=without_data)
    registered("kitchen", lambda: broken)
    only("bare", "shop", "odd", "kitchen")
    parts, not_run = parts_of({}, (), 1, POOL)
    assert parts == []
    assert {absent.environment: (absent.cause, absent.why) for absent in not_run if absent.cause != "held"} == {
        "bare": ("package", "bare needs a package: install the extra `envs`"),
        "shop": ("requirement", "shop needs products: give data.settings.shop.folder"),
        "odd": ("requirement", "ZeroDivisionError: division by zero"),
        "kitchen": ("package", "shop needs products: give data.settings.shop.folder"),  # its extra is not there
    }


def test_a_plug_in_is_no_part_of_agenteval(monkeypatch):
    maze = ENVIRONMENTS.entry("maze")
    monkeypatch.setitem(ENVIRONMENTS._entries, "mine", Entry("mine", "", "mine.py", maze.make))
    assert "mine" not in agenteval_items.agentgym_names()
    assert {"maze", "webarena", "miniwob"} <= set(agenteval_items.agentgym_names())


# --- a model ----------------------------------------------------------------------------------------------------------


class Interrupts(Silent):
    """Ctrl-C in the middle of the second environment."""

    def step(self, step, shown):
        if self.begun == 2:
            raise KeyboardInterrupt

    begun = 0

    def begin(self, phase, done, total):
        self.begun += 1


def test_an_interrupted_evaluation_goes_on_where_it_was(only, tmp_path):
    only("textcraft", "maze")
    what, first = asked(f"policy.path={agent_model()}", *QUICK), tmp_path / "cut/generated/textcraft.json"
    with pytest.raises(KeyboardInterrupt):
        measure_agenteval(what, tmp_path / "cut", Interrupts())
    assert sorted(file.name for file in tmp_path.rglob("*.json")) == ["plan.json", "textcraft.json"]
    assert not (tmp_path / "cut/published/maze.json").exists()
    before = first.stat().st_mtime_ns
    resumed = measure_agenteval(what, tmp_path / "cut", Silent())
    whole = measure_agenteval(what, tmp_path / "whole", Silent())
    assert first.stat().st_mtime_ns == before
    assert [line.rows for line in resumed.measured] == [line.rows for line in whole.measured]
    assert [line.environment for line in whole.measured] == ["textcraft", "maze"]


@pytest.mark.integration
def test_a_killed_evaluation_goes_on_where_it_was(only, tmp_path):
    out, settings = tmp_path / "killed", (f"policy.path={agent_model()}", *QUICK)
    first = out / "generated" / "textcraft.json"
    command = ("eval", "--policy", agent_model(), "--env", "agenteval", "--items", "2", "--out", out, *QUICK)
    killed_when(out, first.exists, *command)
    assert not (out / "agenteval.json").exists()
    before = first.read_bytes(), first.stat().st_mtime_ns
    only("textcraft", "maze")
    resumed = measure_agenteval(asked(*settings), out, Silent())
    assert (first.read_bytes(), first.stat().st_mtime_ns) == before
    whole = measure_agenteval(asked(*settings), tmp_path / "whole", Silent())
    assert [line.rows for line in resumed.measured] == [line.rows for line in whole.measured]
    for name in ("generated/textcraft", "published/maze"):
        files = [folder / f"{name}.episodes.jsonl" for folder in (out, tmp_path / "whole")]
        assert files[0].read_bytes() == files[1].read_bytes()
    record = json.loads((out / "agenteval.json").read_text())
    assert (list(record["published"]), list(record["generated"])) == (["maze"], ["textcraft"])
    maze = record["published"]["maze"]
    assert (maze["items"], maze["max_turns"], maze["overridden"]) == ([0, 12], 2, ["evaluation.max_turns"])
    assert maze["rows"]["expert"]["turns"] <= 2
    page = tmp_path / "page.html"
    said = whet("show", out / "published" / "maze.episodes.jsonl", "--out", page).stdout
    assert "2 episodes" in said
    assert page.exists()


def test_other_settings_and_other_folders_are_refused(only, tmp_path):
    only("maze")
    out, path = tmp_path / "out", f"policy.path={agent_model()}"
    measure_agenteval(asked(path, *QUICK, num_items=1), out, Silent())
    with pytest.raises(RunError, match=r"holds an evaluation of other settings \(items: 1 -> 2\): name another folder"):
        measure_agenteval(asked(path, *QUICK, num_items=2), out, Silent())
    (out / "published" / "maze.json").write_text("{}")
    with pytest.raises(RunError, match=r"maze\.json cannot be read .* delete it"):
        measure_agenteval(asked(path, *QUICK, num_items=1), out, Silent())
    full = tmp_path / "full"
    full.mkdir()
    (full / "letter.txt").write_text("dear")
    with pytest.raises(RunError, match="holds no evaluation"):
        measure_agenteval(asked(path, *QUICK), full, Silent())


def test_mistakes_are_refused_before_any_work(only, tmp_path, registered, monkeypatch):
    out = tmp_path / "out"
    only("maze")
    for settings, says in {
        ("policy.path=/no/such/model",): "there is no folder",
        ("data.env=maze",): "leave data.env out",
        ("data.settings.chess.depth=3",): "AgentEval has no such environment",
        ("data.settings.maze.depth=3",): "data.settings.maze: got an unexpected keyword argument 'depth'",
        ("policy.kind=endpoint", "policy.url=http://127.0.0.1:9/v1", "policy.model=m"): "cannot be reached",
    }.items():
        with pytest.raises(ConfigError, match=says):
            measure_agenteval(asked(*settings), out, Silent())
    registered("shop", lambda: (_ for _ in ()).throw(EnvError("shop needs products")))
    monkeypatch.delitem(ENVIRONMENTS._entries, "webshop")
    only("shop", "webshop")
    with pytest.raises(RunError, match="no environment of AgentEval can run here: shop: shop needs products"):
        measure_agenteval(asked(f"policy.path={agent_model()}"), out, Silent())
    assert not out.exists()


# --- an endpoint ------------------------------------------------------------------------------------------------------


def says(text):
    """An endpoint that always writes the same."""

    def answer(path, body):
        if path.endswith("/models"):
            return {"object": "list", "data": [{"id": "m", "object": "model", "created": 0, "owned_by": "test"}]}
        message = {"role": "assistant", "content": text}
        return {
            "id": "1", "object": "chat.completion", "created": 0, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }  # fmt: skip

    return answer


def at(server, *more):
    return (
        "policy.kind=endpoint", f"policy.url={server.url}/v1", "policy.model=m", "policy.cache=null",
        "policy.max_concurrency=2", "policy.retries=0", "faults.retries=0", *more,
    )  # fmt: skip


@pytest.mark.integration
def test_an_endpoint_that_always_walks_down(only, tmp_path):
    """Of the 25 starts, three are straight above the goal: (5, 6), (6, 6) and (7, 6)."""
    pytest.importorskip("openai")
    only("maze")
    with JsonServer(says("Thought: down.\n\nAction: move down")) as server:
        result = measure_agenteval(asked(*at(server), num_items=None), tmp_path / "out", Silent())
    [maze] = result.measured
    assert maze.policy["score"] == maze.policy["success"] == 3 / 25
    assert maze.policy["turns"] == ((3 + 2 + 1) + 22 * 15) / 25
    assert (maze.rows["expert"]["success"], maze.max_turns, maze.temperature) == (1.0, 15, 0.0)
    assert result.policy == f"m at {server.url}/v1"
    assert {body["temperature"] for path, body in server.asked if path.endswith("completions")} == {0.0}


def test_an_endpoint_that_is_gone_stops_it_and_it_goes_on_later(only, tmp_path):
    pytest.importorskip("openai")
    only("textcraft", "maze")
    server = JsonServer(says("Action: inventory"))

    class Closes(Silent):
        def begin(self, phase, done, total):
            if phase.startswith("maze"):
                server.__exit__()

    what = asked(*at(server, "evaluation.max_turns=1"))
    with pytest.raises(RunError, match=r"in maze: .*cannot be reached.*the same command goes on"):
        measure_agenteval(what, tmp_path, Closes())
    files = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.json"))
    assert files == ["generated/textcraft.json", "plan.json"]
    with JsonServer(says("Action: move down"), port=int(re.search(r":(\d+)/", what.settings["policy"]["url"])[1])):
        result = measure_agenteval(what, tmp_path, Silent())
    assert [line.environment for line in result.measured] == ["textcraft", "maze"]
    assert result.measured[1].policy["failures"] == {}


def test_a_server_that_refuses_an_environments_prompts_fails_there_alone(only, tmp_path):
    """Its episodes are no zeros: the environment is among what could not run."""
    pytest.importorskip("openai")
    only("textcraft", "maze")
    well = says("Action: move down")

    def answer(path, body):
        if "Crafting" in json.dumps(body):
            return 400, {"error": {"message": "the prompt is too long"}}
        return well(path, body)

    with JsonServer(answer) as server:
        result = measure_agenteval(asked(*at(server, "evaluation.max_turns=1")), tmp_path / "out", Silent())
    assert [line.environment for line in result.measured] == ["maze"]
    [why] = [absent.why for absent in result.not_run if absent.cause == "failed"]
    assert "all 2 episodes failed: endpoint_error: " in why
    assert "the prompt is too long" in why
