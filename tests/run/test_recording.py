"""An agent's episodes in files: what they hold, and that what is learnt from them is what was played."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from support.sessions import Silent, finished, session_of
from whet.cli import app
from whet.config import ConfigError
from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.formats import PARSERS
from whet.evaluation.agents import reward_of
from whet.methods.registry import config_of
from whet.run.recording import RecordSettings, record
from whet.run.session import prepare
from whet.run_folder.folder import RunFolder
from whet.tasks.files import DataError
from whet.trajectories.files import read_trajectories, write_trajectories
from whet.trajectories.pages import trace_row
from whet.trajectories.preferences import preference_pairs, read_pairs
from whet.trajectories.replay import Comparison, replay_file

QUICK = ("num_threads=1", "data.num_validation=1", "pool.timeout_s=0.25")
SMALL = ("data.env=textcraft", "num_threads=1", "evaluation.max_turns=6", "policy.path=tiny_agent_early")


def episodes(**wanted):
    return record(config_of("agent", None, SMALL), RecordSettings(**wanted), Silent())


@pytest.fixture(scope="module")
def sampled():
    return episodes(player="policy", num_items=6, num_samples=3, against="expert")


def test_an_episode_replayed_in_a_fresh_world_comes_to_what_was_recorded(sampled):
    """The recorded world is of a seed of its own, so what it said is compared where it depends on the actions alone."""
    info = ENVIRONMENTS.get("textcraft")
    assert len(sampled.episodes) == 18
    assert 0 < sampled.num_successes < 18
    for each in sampled.episodes:
        env = info.make()
        env.reset(int(each.item_id.removeprefix("textcraft_")))
        answers, total = [], 0.0
        for reply in each.replies():
            parsed = PARSERS.get(info.parser)(reply)
            if parsed.problem:
                continue
            observation, reward, *_ = env.step(parsed.action)
            answers.append(observation)
            total += reward
        assert total == each.reward
        assert each.success == info.is_success(total)
        if len(answers) == len(each.replies()):
            assert tuple(answers) == each.observations()[1:]


def test_a_recording_replays_to_the_letter(sampled, tmp_path):
    """It holds the seeds of its worlds."""
    write_trajectories(tmp_path / "own.jsonl", sampled.episodes)
    found = replay_file(tmp_path / "own.jsonl", "textcraft", how=Comparison())
    assert not found.differing
    assert (len(found.episodes), found.num_successes) == (18, sampled.num_successes)
    assert trace_row(sampled.episodes[0])["task"] == sampled.episodes[0].item_id
    write_trajectories(tmp_path / "own.jsonl", [replace(each, info={}) for each in sampled.episodes])
    assert replay_file(tmp_path / "own.jsonl", "textcraft", how=Comparison()).differing


def test_each_lost_episode_stands_beside_the_experts_of_its_own_world(sampled):
    assert len(sampled.pairs) == 18 - sampled.num_successes
    lost = [each for each in sampled.episodes if not each.success]
    for pair, episode in zip(sampled.pairs, lost, strict=True):
        chosen, rejected = pair.runs()
        assert rejected.messages == episode.messages
        assert chosen.messages[:3] == rejected.messages[:3]
        assert chosen.replies() != rejected.replies()
        assert "Crafted" in chosen.messages[-1].text


def test_every_player_plays_in_the_same_worlds(sampled):
    """So files of two players make the pairs that one command makes."""
    own_turns = [setting for setting in SMALL if "max_turns" not in setting]  # six are too few for some
    experts = record(config_of("agent", None, own_turns), RecordSettings("expert", num_items=6), Silent()).episodes
    pairs = preference_pairs(experts, sampled.episodes)
    assert [(pair.prompt, pair.rejected) for pair in pairs] == [(p.prompt, p.rejected) for p in sampled.pairs]
    assert all("Crafted" in pair.chosen[-1].text for pair in pairs)


@pytest.mark.integration
def test_of_an_items_own_episodes_the_best_stands_beside_the_worst():
    found = episodes(player="policy", num_items=8, num_samples=6, against="own")
    groups = [found.episodes[at : at + 6] for at in range(0, 48, 6)]
    mixed = [group for group in groups if len({each.success for each in group}) == 2]
    assert len(found.pairs) == len(mixed) > 0
    for pair, group in zip(found.pairs, mixed, strict=True):
        chosen, rejected = pair.runs()
        assert chosen.messages == next(each.messages for each in group if each.success)
        assert rejected.messages in [each.messages for each in group if not each.success]


@pytest.mark.integration
def test_files_of_a_command_are_learnt_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--policy", "tiny_agent_early", "--samples", "2", "--limit", "3", *SMALL[1:3]]
    shown = run("env", "record", "textcraft", *options, "--out", "episodes.jsonl", "--pairs", "pairs.json")
    episodes, pairs = read_trajectories("episodes.jsonl"), read_pairs("pairs.json")
    won = sum(each.success for each in episodes)
    assert f"{len(episodes)} episodes, {won} of them a success, in episodes.jsonl" in shown
    assert len(episodes) == 6
    assert len(pairs) == 6 - won
    few = ("data.env=textcraft", "data.num_validation=1", "data.num_test=1", "evaluation.max_turns=1", "num_threads=1")
    session = finished("agent_dpo", *few, "pairs=[pairs.json]", "validate_every=99", folder=tmp_path / "dpo")
    assert len(session.algorithm.given) == len(pairs)
    with pytest.raises(DataError, match="this is a pair, and an episode is asked for"):
        read_trajectories("pairs.json")
    warnings = session_of("agent_dpo", *few[1:], "data.env=maze", "pairs=[pairs.json]").algorithm.run.warnings
    assert "pairs of textcraft are learnt, which data.env does not name: nothing measures it" in warnings
    run("env", "record", "textcraft", "--policy", "expert", "--limit", "4", "--out", "experts.jsonl")
    method = session_of("agent_clone", *few, "trajectories=[experts.jsonl]").algorithm
    assert len(method.rows) == 4
    warnings = session_of("agent_clone", *few, "trajectories=[episodes.jsonl]").algorithm.run.warnings
    assert f"{6 - won} of the trajectories are marked as no success, and are learnt like the others" in warnings
    run("env", "record", "textcraft", *options, "--out", "won.jsonl", "--successes")
    assert [each.success for each in read_trajectories("won.jsonl")] == [True] * won


def run(*arguments):
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"player": "expert", "against": "own", "num_samples": 2}, "expert acts by rule: give a policy"),
        ({"player": "policy", "against": "own"}, "ask for 2 samples or more"),
    ],
)
def test_what_makes_no_pairs_is_refused(wanted, says):
    with pytest.raises(ConfigError, match=says):
        episodes(**wanted)


def test_a_world_without_an_expert_is_refused_before_anything_is_played(tmp_path):
    file = tmp_path / "mute.py"
    file.write_text(WORLD)
    config = config_of("agent", None, [f"plugins=[{file}]", "data.env=mute", "num_threads=1"])
    with pytest.raises(ConfigError, match="mute has no scripted expert"):
        record(config, RecordSettings("policy", against="expert"), Silent())


WORLD = (
    "import whet\n"
    "@whet.env('mute', splits={'train': range(20), 'test': range(20, 24)}, max_turns=2, parser='plain')\n"
    "class Mute:\n"
    "    def reset(self, item, *, seed=0):\n"
    "        return 'go', {}\n"
    "    def step(self, action):\n"
    "        return 'on', 1.0, True, False, {}\n"
)


FAILING = (
    "import whet\n"
    "def expert(world, *, seed=0):\n"
    "    while True:\n"
    "        yield 'on', 'go'\n"
    "@whet.env('failing', splits={'train': range(20), 'test': range(20, 24)}, max_turns=2, parser='plain',\n"
    "          success_above=0.5, rewards=(0, 2), expert=expert)\n"
    "class Failing:\n"
    "    num = 0\n"
    "    def reset(self, item, *, seed=0):\n"
    "        Failing.num += 1\n"
    "        if item % 3 == 1:\n"
    "            raise OSError('no room')\n"
    "        return ('go', {}) if item % 3 else (f'go {Failing.num}', {})\n"
    "    def step(self, action):\n"
    "        return 'there', 1.0, action == 'go', False, {}\n"
)


def test_items_whose_worlds_fail_or_differ_are_left_out_and_counted(tmp_path, monkeypatch):
    """Of twenty items seven always fail, and seven begin otherwise each time."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing.py").write_text(FAILING)
    options = ("failing", "--plugins", "failing.py", "num_threads=1", "data.num_validation=1", "watch.same_start=warn")
    told = run("env", "record", *options, "--policy", "expert", "--out", "experts.jsonl")
    assert "(OSError: no room)" in told
    items = [int(each.item_id.removeprefix("failing_")) for each in read_trajectories("experts.jsonl")]
    assert {item % 3 for item in items} == {0, 2}
    own = ("sampling.max_new_tokens=4", "faults.budget=0.6")  # each of the seven is tried twice
    told = run("env", "record", *options, *own, "--out", "own.jsonl", "--pairs", "pairs.jsonl")
    assert "begin with another observation" in told
    assert "items whose expert's world failed" in told
    assert len(read_trajectories("own.jsonl")) == len(items)
    assert {int(pair.item_id.removeprefix("failing_")) % 3 for pair in read_pairs("pairs.jsonl")} == {2}


def test_what_was_there_stays_where_nothing_could_be_played(tmp_path):
    file = tmp_path / "episodes.jsonl"
    file.write_text("kept")
    dead = ["--policy", "http://127.0.0.1:9/v1", "--model", "m", "policy.retries=0", "faults.retries=0"]
    done = CliRunner().invoke(app, ["env", "record", "maze", *dead, "--limit", "2", "--out", str(file), "--overwrite"])
    assert done.exit_code == 1
    assert "nothing was written: policy at http://127.0.0.1:9/v1: cannot be reached" in " ".join(done.output.split())
    assert file.read_text() == "kept"
    done = CliRunner().invoke(app, ["env", "record", "maze", "--out", str(file), "--pairs", str(file)])
    assert done.exit_code == 2
    assert "give --out and --pairs different files" in " ".join(done.output.split())


def test_where_to_is_asked_for():
    done = CliRunner().invoke(app, ["env", "record", "textcraft"])
    assert done.exit_code == 2
    assert "--out FILE for the episodes" in " ".join(done.output.split())


LATER = (
    "import whet\n"
    "from pathlib import Path\n"
    "@whet.env('later', splits={'train': range(4), 'test': range(4, 6)}, max_turns=2, parser='plain')\n"
    "class Later:\n"
    "    async def reset(self, item, *, seed=0):\n"
    "        return 'go', {}\n"
    "    async def step(self, action):\n"
    "        return 'on', 1.0, True, False, {}\n"
    "    def close(self):\n"
    "        (Path(__file__).parent / 'closed').touch()\n"
)


@pytest.mark.filterwarnings("error")
def test_a_world_of_coroutines_is_played_by_rule_and_does_not_stay_open(tmp_path):
    file = tmp_path / "later.py"
    file.write_text(LATER)
    settings = [f"plugins=[{file}]", "data.env=later", "data.num_validation=1", "num_threads=1"]
    method = session_of("agent", *settings).algorithm
    (tmp_path / "closed").unlink(missing_ok=True)  # what was looked at before the run
    [[one], [other]] = method.rollouts.scripted_episodes("random", method.run.tasks["test"], 1)
    assert [reward_of(each) for each in (one, other)] == [1.0, 1.0]
    assert (tmp_path / "closed").exists()
    with pytest.raises(EnvError, match="later has no scripted expert"):
        method.rollouts.scripted_episodes("expert", method.run.tasks["test"], 1)


def test_a_world_that_hangs_under_an_expert_is_left(tmp_path, monkeypatch):
    """Of twenty items seven hang, in two worlds each."""
    monkeypatch.chdir(tmp_path)
    env = FAILING.replace("raise OSError('no room')", "time.sleep(60)").replace("'failing'", "'hanging'")
    (tmp_path / "hanging.py").write_text(f"import time\n{env}")
    options = ("hanging", "--plugins", "hanging.py", "num_threads=1", "data.num_validation=1", "pool.timeout_s=0.25",
               "watch.same_start=warn")  # fmt: skip
    told = run("env", "record", *options, "--policy", "expert", "--out", "experts.jsonl")
    assert "(no answer within 0.25 s (pool.timeout_s))" in told
    items = [int(each.item_id.removeprefix("hanging_")) for each in read_trajectories("experts.jsonl")]
    assert {item % 3 for item in items} == {0, 2}
    settings = [f"plugins=[{tmp_path / 'hanging.py'}]", "data.env=hanging", *QUICK, "watch.same_start=warn"]
    session = prepare(config_of("agent_clone", None, settings), Silent(), RunFolder(tmp_path / "cloned"))
    assert len(session.algorithm.rows) == 12
    [said] = [warning for warning in session.algorithm.run.warnings if "left out" in warning]
    told = (
        r"7 of 19 items are left out, as their environments failed; "
        r"the first: hanging, item \d+: its expert failed at it"
    )
    assert re.fullmatch(told + r": no answer within 0.25 s \(pool.timeout_s\)", said)
    strict = config_of("agent_clone", None, [*settings, "faults.budget=0.3"])
    with pytest.raises(EnvError, match="7 of 19 items are left out"):
        prepare(strict, Silent(), RunFolder(tmp_path / "strict"))


def test_files_that_are_there_are_not_written_over(tmp_path):
    file = tmp_path / "episodes.jsonl"
    file.write_text("kept")
    asked = ["env", "record", "maze", "--policy", "expert", "--limit", "1", "--out", str(file), "data.num_validation=1"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 2
    assert "is there already: name another file, or --overwrite writes over it" in " ".join(done.output.split())
    assert file.read_text() == "kept"
    assert CliRunner().invoke(app, [*asked, "--overwrite"]).exit_code == 0
    assert len(read_trajectories(file)) == 1


def test_episodes_are_no_pairs_and_no_pairs_are_no_file(tmp_path):
    episodes, pairs = tmp_path / "episodes.jsonl", tmp_path / "pairs.jsonl"
    told = run("env", "record", "maze", *SMALL[1:2], "--policy", "tiny_agent_early", "--limit", "1", "--samples", "2",
               "--against", "own", "--threshold", "1", "--reward-gap", "1", "--out", episodes, "--pairs", pairs,
               "evaluation.max_turns=1")  # fmt: skip
    assert "is not written: no two episodes of an item are 1 apart, the better one at 1 or more" in told
    assert not pairs.exists()
    with pytest.raises(DataError, match="this is an episode, and not a pair; `whet env record --pairs FILE` writes"):
        read_pairs(episodes)


def test_a_world_that_hangs_as_it_begins_ends_the_run_before_it_begins(tmp_path):
    env = FAILING.replace("if item % 3 == 1", "if True").replace("raise OSError('no room')", "time.sleep(60)")
    (tmp_path / "stuck.py").write_text("import time\n" + env.replace("'failing'", "'stuck'"))
    config = config_of("agent_grpo", None, [f"plugins=[{tmp_path / 'stuck.py'}]", "data.env=stuck", *QUICK])
    with pytest.raises(EnvError, match=r"stuck began none of its first 4 test items: no answer within 0.25 s"):
        prepare(config, Silent(), RunFolder(tmp_path / "run"))
