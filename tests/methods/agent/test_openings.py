"""How episodes open: rollouts and what is learnt begin alike, by own rules, without any, or as a file has them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import shown_as_recorded
from support.agent_model import agent_model
from support.sessions import Silent, session_of
from whet.config import ConfigError
from whet.config.inputs import inputs_of
from whet.envs import ENVIRONMENTS
from whet.envs.shown_form import ShownForm
from whet.methods.agent.openings import Openings, read_opening
from whet.methods.environment_tasks import rules_of
from whet.methods.names import POLICY
from whet.methods.registry import config_of
from whet.run.recording import RecordSettings, record
from whet.tasks.files import DataError
from whet.trajectories.experts import expert_trajectories
from whet.trajectories.files import write_trajectories
from whet.trajectories.openings import form_of, opening_of
from whet.trajectories.preferences import preference_pairs, write_pairs
from whet.trajectories.records import Message

MAZE = ENVIRONMENTS.get("maze")
THEIRS = "Walk to the goal, and say your moves."
INSTRUCTION = "An example: The goal is at position 1, 1.\n\nNow you:\n"
TINY = (
    f"policy.path={agent_model()}", "data.env=maze", "data.num_train=3", "data.num_test=1", "data.num_validation=1",
    "num_threads=1", "sampling.max_new_tokens=8", "evaluation.max_turns=1",
)  # fmt: skip


def episodes(rules=THEIRS, reply="Fine.", *, before="", items=range(3)):
    """The expert's, as a file of others has them."""
    made = []
    for episode in expert_trajectories(MAZE, items, rules=rules, seed=0):
        _, _, first, *rest = episode.messages
        opening = (Message("human", rules), Message("gpt", reply, False), Message("human", before + first.text))
        made.append(replace(episode, messages=(*opening, *rest)))
    return made


def a_file(folder, *groups, name="theirs.json"):
    write_trajectories(folder / name, [episode for group in groups for episode in group])
    return folder / name


def clone(*settings):
    return session_of("agent_clone", *TINY, *settings).algorithm


def first_prompt(method):
    """Of the first turn, as text: what an agent is shown."""
    agent = method.rollouts.agents(POLICY, "x", max_turns=1)["maze"]
    env = MAZE.make()
    observation, _ = env.reset(0, seed=0)
    messages = [*agent.opening, {"role": "user", "content": agent._shown(observation, is_first=True)}]
    return agent.agent.begin(messages, seed=0).context


def learnt_prompts(method):
    """What stands before the first token that trains, of each row."""
    return {tuple(row.tokens[: row.trains[0]].tolist()) for row in method.rows}


# --- as published -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("environment", shown_as_recorded.RECORDS)
def test_what_is_shown_has_the_tokens_of_the_record(environment, data_folder):
    """A sample; `python tests/shown_as_recorded.py` compares all."""
    if environment == "babyai":
        pytest.importorskip("minigrid")
    counts = shown_as_recorded.compare(data_folder, environment, num_records=6)
    assert str(counts).startswith(f"{environment}: records equal 6 of 6, prompts equal {counts.num_prompts} of")
    assert counts.num_prompts > 6
    assert counts.num_tokens > 1000


# --- what is learnt and what is rolled out ----------------------------------------------------------------------------


def test_rollouts_begin_as_the_trajectories_do(tmp_path):
    method = clone(f"trajectories=[{a_file(tmp_path, episodes(before=INSTRUCTION, items=[0]))}]")
    assert learnt_prompts(method) == {first_prompt(method)}
    assert f"maze: episodes begin with the rules of the trajectories ({len(THEIRS)} characters)" in method.run.info
    assert (
        f"maze: observations are shown in the recorded form, with {len(INSTRUCTION)} characters before the first one"
    ) in method.run.info
    assert not [text for text in method.run.warnings if text.startswith("maze: ")]


def test_rl_under_a_file_says_so(tmp_path):
    file = a_file(tmp_path, episodes(before=INSTRUCTION))
    settings = ("num_steps=1", "prompts_per_step=2", "group_size=2", f"rules={file}")
    said = session_of("agent_grpo", *TINY, *settings).algorithm.run.info
    assert f"maze: episodes begin with the rules of {file} ({len(THEIRS)} characters)" in said


@pytest.mark.parametrize("rules", ["own", "none", "FILE"])
def test_rules_that_are_set_are_learnt_too_and_said(tmp_path, rules):
    other = a_file(tmp_path, episodes("Other rules.", "Yes."), name="other.json")
    setting = rules.replace("FILE", str(other))
    method = clone(f"trajectories=[{a_file(tmp_path, episodes(items=[0]))}]", f"rules={setting}")
    assert learnt_prompts(method) == {first_prompt(method)}
    said = [text for text in method.run.info if text.startswith("maze: ")]
    size = len(rules_of(MAZE).text if rules == "own" else "Other rules.")
    source = "whet's rules" if rules == "own" else f"the rules of {other}"
    assert said == ([] if rules == "none" else [
        f"maze: the trajectories begin with {len(THEIRS)} characters of rules; they are learnt and rolled out under "
        f"{source} ({size} characters), as rules={setting} says"
    ])  # fmt: skip


def test_experts_are_learnt_under_the_file_too(tmp_path):
    file = a_file(tmp_path, episodes(before=INSTRUCTION))
    method = clone(f"rules={file}", "data.train_items=" + str([str(a_file(tmp_path, episodes(), name="items.json"))]))
    prompts = learnt_prompts(method)
    assert len(prompts) > 1, "an item each"
    decode = method.run.loop.policies[POLICY].tokenizer.decode
    assert all(THEIRS in decode(prompt) and "An example" in decode(prompt) for prompt in prompts)


def test_several_openings_are_said(tmp_path):
    file = a_file(tmp_path, episodes(), episodes("Rarer rules.", items=[4]))
    method = clone(f"trajectories=[{file}]")
    [said] = [text for text in method.run.warnings if "different openings" in text]
    assert said.startswith("maze: the file has 2 different openings; rollouts begin with the most frequent one (37 ")


def test_other_observations_than_the_trajectories_have_are_said(tmp_path):
    file = a_file(tmp_path, episodes(before=INSTRUCTION))
    [said] = [text for text in clone(f"trajectories=[{file}]", "observations=own").run.warnings if "maze: " in text]
    assert said.endswith("have another form than those of rollouts: observations=recorded shows theirs")


def test_replies_that_are_rewritten_are_rolled_out_under_the_rules_of_their_format(tmp_path):
    method = clone(f"trajectories=[{a_file(tmp_path, episodes(items=[0]))}]", "format=function_calling")
    assert learnt_prompts(method) == {first_prompt(method)}
    assert method.rollouts.openings.rules("maze").rules == rules_of(MAZE, "function_calling").text


def test_evol_and_dpo_roll_out_as_their_files_begin(tmp_path):
    better = episodes(before=INSTRUCTION)
    worse = [replace(e, reward=0.0, messages=(*e.messages[:3], Message("gpt", "Action:\nmove up"))) for e in better]
    write_pairs(tmp_path / "pairs.json", preference_pairs(better, worse))
    file = a_file(tmp_path, better)
    for method, settings in (("agent_evol", f"trajectories=[{file}]"), ("agent_dpo", f"pairs=[{tmp_path}/pairs.json]")):
        algorithm = session_of(method, *TINY, settings).algorithm
        agent = algorithm.rollouts.agents(POLICY, "x", max_turns=1)["maze"]
        assert [turn["content"] for turn in agent.opening] == [THEIRS, "Fine."]
        assert agent.form == ShownForm(before_first=INSTRUCTION)


def test_episodes_are_recorded_as_the_agent_was_shown_them(tmp_path):
    file = a_file(tmp_path, episodes(before=INSTRUCTION))
    config = config_of("agent", None, [*TINY, f"rules={file}"])
    [episode] = record(config, RecordSettings("expert", split="test"), Silent()).episodes
    assert [message.text for message in episode.messages[:2]] == [THEIRS, "Fine."]
    assert episode.observations()[0].startswith(INSTRUCTION)
    assert not episode.observations()[1].startswith(INSTRUCTION)


# --- settings ---------------------------------------------------------------------------------------------------------


def openings(*settings):
    config = config_of("agent", None, list(settings))
    infos = {name: ENVIRONMENTS.get(name) for name in config.data.shares}
    return Openings(config, infos, session_of("agent", *TINY).algorithm.rollouts.given)


def test_rules_by_environment(tmp_path):
    file = a_file(tmp_path, episodes())
    made = openings("data.env=maze,wordle,textcraft", f"rules={{maze: {file}, wordle: none}}")
    assert made.rules("maze").text == (THEIRS, "Fine.")
    shown = {name: made.shows_rules(name, reads_rules=False) for name in ("maze", "wordle", "textcraft")}
    assert shown == {"maze": True, "wordle": False, "textcraft": False}
    assert made.shows_rules("textcraft", reads_rules=True)
    config = config_of("agent", None, ["data.env=maze,wordle", f"rules={{maze: {file}, wordle: none}}"])
    assert [place for key, _, place in inputs_of(config) if key == "rules"] == [str(file), "none"]


YAML = "- {role: user, content: Theirs.}\n- {role: assistant, content: Fine.}\n"


def test_an_opening_in_yaml(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text(YAML)
    made = openings("data.env=maze", f"rules={file}")
    assert made.messages("maze", shown=True) == (
        {"role": "user", "content": "Theirs."},
        {"role": "assistant", "content": "Fine."},
    )
    assert made.form("maze") == ShownForm()
    file.write_text(YAML + '- {role: user, content: "Instruction:\\n{observation}"}\n')
    assert openings("data.env=maze", f"rules={file}").form("maze") == ShownForm(before_first="Instruction:\n")
    assert openings("data.env=maze", f"rules={file}", "observations=own").form("maze") == ShownForm()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "is no YAML"),
        ("- {role: user, content: Theirs.}\n", "a list of two turns"),
        (YAML.replace("user", "system"), r"turn 1: expected \{role: user"),
        (YAML.replace("Fine.", "3"), "turn 2: content has to be a text"),
        (YAML + "- {role: user, content: nothing}\n", "turn 3: it has to end in"),
    ],
)
def test_a_broken_opening_is_refused(tmp_path, text, says):
    (tmp_path / "rules.yaml").write_text(text)
    with pytest.raises(DataError, match=says):
        read_opening(str(tmp_path / "rules.yaml"), "maze")


def test_settings_that_cannot_be_meant(tmp_path):
    file = a_file(tmp_path, episodes())
    (tmp_path / "rules.yaml").write_text(YAML)
    for settings, says in (
        (["data.env=maze", "rules={wordle: own}"], "rules names wordle, which data.env does not"),
        (["data.env=maze,wordle", f"rules={tmp_path}/rules.yaml"], "opens the episodes of one environment"),
        (["data.env=wordle", f"rules={file}"], "has episodes of maze, and none of wordle"),
        (["data.env=maze", "rules=gone.json"], r"gone.json: there is no such file; give rules \(own, none or FILE\)"),
        (["data.env=maze", f"rules={tmp_path}/rules.yaml", "observations=recorded"], "none is named for maze"),
    ):
        with pytest.raises((ConfigError, DataError), match=says):
            openings(*settings)


def test_the_form_of_records():
    [ours] = episodes(items=[0])
    assert form_of([ours], "maze") == ShownForm()
    assert form_of([ours], "wordle") is None
    repeated = [Message(m.who, f"Note:\n{m.text}") if m.who == "human" else m for m in ours.messages]
    assert form_of([replace(ours, messages=tuple(repeated))], "maze") == ShownForm(
        before_first="Note:\n", before_later="Note:\n"
    )
    assert opening_of([ours], "textcraft") is None
    cut = ShownForm(before_later="> ", ends_before="\nAvailable")
    assert cut.shown("A room.\nAvailable: go", 100, is_first=False) == "> A room."
