"""TextCraft: its sentences to the letter, recorded episodes, our own table, the expert."""

import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.textcraft.environment import MAX_DISTRACTORS, TEXTCRAFT, TextCraft, splits
from whet.envs.textcraft.expert import expert
from whet.envs.textcraft.recipes import Recipe, build, published, shipped

CONTRADICTORY = {"textcraft_205", "textcraft_210", "textcraft_306"}
"""Records that cannot be as they are: two were cleaned in another way than the rest, and in one a recipe of `birch
planks` answered for `birch stairs`, which the published world had mixed up."""


@pytest.fixture(scope="module")
def small_recipes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipes(tmp_path_factory.mktemp("recipes"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_recipes(tmp_path)


def write_recipes(folder: Path) -> Path:
    """Planks of any log, sticks of any planks, and two pairs that are made of each other."""
    files = {
        "plank": shapeless("plank", 4, "log", group="planks"),
        "fir_plank": shapeless("fir_plank", 4, "fir_log", group="planks"),
        "stick": shapeless("stick", 4, "#planks", "#planks"),
        "ladder": {
            "type": "minecraft:crafting_shaped",
            "pattern": ["S S", "SPS", "S S"],
            "key": {"P": {"tag": "minecraft:planks"}, "S": [{"item": "minecraft:stick"}, {"item": "minecraft:bone"}]},
            "result": {"item": "minecraft:ladder"},
        },
        "salt": shapeless("salt", 9, "salt_block"),
        "salt_block": shapeless("salt_block", 1, *["salt"] * 9),
        "drop": shapeless("drop", 9, "ball"),
        "ball": shapeless("ball", 1, *["drop"] * 9),
        "cooked": {"type": "minecraft:smelting", "ingredient": {"item": "minecraft:raw"}, "result": "minecraft:cooked"},
    }
    for name, details in files.items():
        (folder / f"{name}.json").write_text(json.dumps(details))
    return folder


def shapeless(output, count, *inputs, group=None):
    used = [{"tag": f"minecraft:{each[1:]}"} if each[0] == "#" else {"item": f"minecraft:{each}"} for each in inputs]
    details = {"type": "minecraft:crafting_shapeless", "ingredients": used}
    details["result"] = {"item": f"minecraft:{output}", "count": count}
    return details | ({"group": group} if group else {})


def at(env, goal):
    env.reset(env.goals.index(goal))
    return env


def said(env, *actions):
    """The answer to the last of them."""
    return [env.step(action) for action in actions][-1][0]


# Rules and sentences


def test_goals_are_numbered_by_depth_and_then_by_name(folder):
    env = TextCraft(folder)
    assert [(env.depth(item), goal) for item, goal in enumerate(env.goals)] == [
        (1, "ball"), (1, "fir plank"), (1, "plank"), (1, "salt block"), (2, "stick"), (3, "ladder"),
    ]  # fmt: skip


def seen(env, action):
    """A step, without what could be done next."""
    *said, info = env.step(action)
    return (*said, {key: value for key, value in info.items() if key != "actions"})


def test_an_episode_by_hand(folder):
    env = TextCraft(folder)
    observation, info = env.reset(env.goals.index("stick"))
    lines = observation.removeprefix("Crafting commands:\n").removesuffix("\n\nGoal: craft stick.").split("\n")
    assert sorted(lines) == [
        "craft 1 ladder using 1 planks, 6 stick",  # a distractor
        "craft 4 fir plank using 1 fir log", "craft 4 plank using 1 log", "craft 4 stick using 2 planks",
    ]  # fmt: skip
    assert set(info) == {"actions"}
    assert seen(env, "inventory") == ("Inventory: You are not carrying anything.", 0.0, False, False, {})
    assert seen(env, "get 1 log") == ("Got 1 log", 0.0, False, False, {})
    assert seen(env, "get 4 plank") == ("Could not find plank", 0.0, False, False, {"invalid": True})
    assert env.step("craft 4 plank using 1 log")[0] == "Crafted 4 minecraft:plank"
    assert env.step("get 2 bone")[0] == "Could not find bone"  # the second choice for a stick: not in this world
    assert env.step("inventory")[0] == "Inventory: [plank] (4)"
    assert seen(env, "craft 9 stick using 2 plank") == ("Crafted 4 minecraft:stick", 1.0, True, False, {})
    with pytest.raises(EnvError, match="reset"):
        env.step("inventory")


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        ("get 1 planks", "Could not find planks"),  # a kind, no item
        ("get 3 log, 2 fir log", "Could not find log, 2 fir log"),
        ("get 1 cooked", "Could not find cooked"),  # smelting is not crafting
        ("get log", "Could not execute get log"),
        ("look around", "Could not execute look around"),
        ("", "Could not execute "),
        ("craft 4 plank", "Could not execute craft 4 plank"),
        ("craft 4 plank using log", "Wrong item format: log"),
        ("craft 4 plank using 9 log", "Could not find enough items to craft minecraft:plank"),
        ("craft 4 stick using 2 planks", "Could not find enough items to craft minecraft:stick"),
        ("craft 4 planks using 9 log", "Could not find enough items to craft None"),
        ("get 1" + "0" * 5000 + " log", "Could not execute get 1" + "0" * 5000 + " log"),
    ],
)
def test_what_cannot_be_done_is_answered(folder, action, answer):
    env = at(TextCraft(folder), "ladder")
    env.step("get 8 log")
    assert seen(env, action) == (answer, 0.0, False, False, {"invalid": True})
    assert env.inventory == {"log": 8}


def test_a_wrong_number_with_enough_in_stock_is_no_recipe(folder):
    env = at(TextCraft(folder), "ladder")
    answer = "Could not find a valid recipe for ItemTagWithCount(item_tag=ItemTag(tag={}, item_id={}), count={})"
    plank = answer.format(None, "'minecraft:plank'", 8)
    assert said(env, "get 2 log", "craft 8 plank using 2 log") == plank
    assert said(env, "craft fir plank using 1 log") == answer.format(None, "'minecraft:fir_plank'", 1)
    assert said(env, "craft 4 planks using 1 log") == answer.format("'minecraft:planks'", None, 4)
    assert said(env, "craft 4 plank using 1 log, 1 log") == answer.format(None, "'minecraft:plank'", 4)


def test_a_kind_takes_any_of_its_items_but_not_two_of_them(folder):
    env = at(TextCraft(folder), "ladder")
    said(env, "get 1 log", "get 1 fir log", "craft 4 plank using 1 log", "craft 4 fir plank using 1 fir log")
    assert "no valid" not in said(env, "craft 4 stick using 2 fir plank")
    assert said(env, "craft 4 stick using 1 plank, 1 fir plank").startswith("Could not find a valid recipe")
    said(env, "craft 4 stick using 2 plank")
    assert env.step("craft 1 ladder using 6 stick, 1 plank")[1:3] == (1.0, True)  # in any order


def test_underscores_are_spaces_and_what_is_got_is_repeated_as_said(folder):
    assert said(at(TextCraft(folder), "stick"), "get 1 fir_log") == "Got 1 fir_log"


def test_the_goal_can_also_be_got(folder):
    env = TextCraft(folder)
    observation, _ = env.begin("log", ["craft 4 plank using 1 log"])
    assert observation == "Crafting commands:\ncraft 4 plank using 1 log\n\nGoal: craft log."
    assert seen(env, "get 2 log") == ("Got 2 log", 1.0, True, False, {})


def test_a_recipe_that_closes_a_cycle_is_left_out_and_blocks_are_not_taken_apart(folder):
    table = published(folder)
    assert {"ball", "salt block"} <= set(table.recipes)  # `ball` is read before `drop`
    assert {"drop", "salt"} <= table.base_items
    longer = build([Recipe("a", 1, ((1, "b"),)), Recipe("b", 1, ((1, "c"),)), Recipe("c", 1, ((1, "a"),))])
    assert longer.depths == {"b": 1, "a": 2}
    assert longer.base_items == {"c"}


def test_a_kind_nothing_of_which_is_crafted_is_an_item(folder):
    (folder / "fire.json").write_text(json.dumps(shapeless("fire", 1, "#logs")))
    assert said(at(TextCraft(folder), "fire"), "get 1 logs") == "Got 1 logs"


def test_a_recipe_of_nothing_is_refused(tmp_path):
    (tmp_path / "wish.json").write_text(json.dumps(shapeless("wish", 1)))
    with pytest.raises(EnvError, match=r"wish\.json.*uses nothing"):
        TextCraft(tmp_path)


def test_an_archive_is_read_like_its_folder(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "recipes.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, "some/recipes")
    assert published(path) == published(folder)


@pytest.mark.parametrize("content", ["[]", "{}", "nothing", '{"type": "minecraft:crafting_shaped", "key": 3}'])
def test_a_file_that_is_no_recipe_is_named(tmp_path, content):
    (tmp_path / "odd.json").write_text(content)
    with pytest.raises(EnvError, match=r"odd\.json"):
        TextCraft(tmp_path)


def test_places_without_recipes_are_refused(tmp_path):
    with pytest.raises(EnvError, match="There are no recipes at"):
        TextCraft(tmp_path / "nowhere")
    with pytest.raises(EnvError, match="No crafting recipe is among the 0"):
        TextCraft(tmp_path)
    (tmp_path / "text.tar.gz").write_text("no archive")
    with pytest.raises(EnvError, match="neither a folder of recipe files nor a tar archive"):
        TextCraft(tmp_path / "text.tar.gz")


WORDS = st.sampled_from(
    [*("craft", "get", "inventory", "using", "0", "1", "2", "4", "-1", ",", "\n", "É"),
     *("log", "plank", "planks", "fir_log", "stick", "ladder")]
)  # fmt: skip


@given(actions=st.lists(st.lists(WORDS, max_size=9).map(" ".join) | st.text(max_size=20), max_size=30))
@settings(max_examples=60)
def test_any_text_is_an_action_and_nothing_is_ever_owed(small_recipes, actions):
    env = TextCraft(small_recipes)
    env.reset(5)
    for action in actions:
        if env.has_ended:
            break
        before = dict(env.inventory)
        observation, reward, terminated, truncated, info = env.step(action)
        assert observation
        assert not truncated
        assert reward == float(terminated)
        assert min(env.inventory.values(), default=0) >= 0
        assert not info or env.inventory == before


# One world, many episodes


def test_reset_leaves_nothing_of_the_episode_before(folder):
    """The published world writes into its recipes at every reset, and then crafts planks for who asks for sticks."""
    used, fresh = TextCraft(folder), TextCraft(folder)
    for item in range(len(used.goals)):
        used.reset(item)
        said(used, "get 3 log", "craft 4 plank using 1 log")
    used.reset(4)
    fresh.reset(4)
    assert used.state_key() == fresh.state_key()
    assert used.commands == fresh.commands
    for action in ("inventory", "get 1 log", "craft 4 stick using 1 log"):
        assert used.step(action) == fresh.step(action)


def test_state_keys_know_what_is_carried_and_not_how_it_came(folder):
    env, other = at(TextCraft(folder), "ladder"), at(TextCraft(folder), "ladder")
    said(env, "get 2 log", "get 1 fir log")
    said(other, "get 1 fir log", "get 1 log", "get 1 log", "dance")
    assert env.state_key() == other.state_key()
    assert hash(env.state_key()) == hash(other.state_key())
    assert at(other, "stick").state_key() != at(env, "ladder").state_key()
    assert env.fork().state_key() == env.state_key()


def test_a_fork_goes_its_own_way(folder):
    env = at(TextCraft(folder), "ladder")
    env.step("get 2 log")
    twin = env.fork()
    twin.step("craft 4 plank using 1 log")
    assert (env.inventory, twin.inventory) == ({"log": 2}, {"log": 1, "plank": 4})
    at(twin, "stick")
    assert env.goal == "ladder"


def test_only_existing_items_begin(folder):
    env = TextCraft(folder)
    for item in (-1, 6):
        with pytest.raises(EnvError, match="items 0 to 5"):
            env.reset(item)
    with pytest.raises(EnvError, match="reset"):
        TextCraft(folder).step("inventory")


# Our own table


def test_our_own_table_has_goals_of_every_depth():
    table = shipped()
    assert Counter(table.depths.values()) == {1: 139, 2: 219, 3: 119, 4: 43}
    assert table.kinds == set(table.members)  # each generic ingredient has items to stand for
    assert all(len(items) >= 2 for items in table.members.values())
    named = Counter(recipe.line.partition(" using ")[0] for recipes in table.recipes.values() for recipe in recipes)
    assert set(named.values()) == {1}  # `glue` has two recipes, of two yields


def test_splits_share_no_item_and_hold_every_depth():
    parts = splits()
    assert not set(parts["train"]) & set(parts["test"])
    assert sorted([*parts["train"], *parts["test"]]) == list(range(520))
    assert Counter(TEXTCRAFT.group(item) for item in parts["test"]) == {
        "depth 1": 28, "depth 2": 44, "depth 3": 24, "depth 4": 9,
    }  # fmt: skip


def test_a_seed_draws_the_list_and_another_seed_another_one():
    env, item = TextCraft(), 300
    first = env.reset(item, seed=1)
    assert env.reset(item, seed=1) == first
    assert env.reset(item, seed=2) != first
    tree = set(env.table.tree(env.goal).lines)
    assert tree <= set(env.commands)
    assert 0 < len(set(env.commands) - tree) <= MAX_DISTRACTORS
    assert len(set(env.commands)) == len(env.commands)
    plain = TextCraft(max_distractors=0)
    plain.reset(item)
    assert set(plain.commands) == set(plain.table.tree(plain.goal).lines)


def test_episodes_are_the_same_under_another_hash_seed():
    script = """if True:
        from hashlib import blake2b
        from whet.envs.textcraft.environment import TextCraft, splits
        env, told = TextCraft(), [dict(splits())]
        for item in range(0, 520, 7):
            told.append(env.reset(item, seed=5))
        print(blake2b(repr(told).encode()).hexdigest())
    """
    command, told = [sys.executable, "-c", script], set()
    for seed in ("1", "2"):
        told.add(subprocess.check_output(command, env=os.environ | {"PYTHONHASHSEED": seed}))
    assert len(told) == 1


def test_the_environment_is_found_by_name():
    info = ENVIRONMENTS.get("textcraft")
    assert info is TEXTCRAFT
    assert isinstance(info.make(), TextCraft)
    rules = Path(sys.modules["whet.envs.textcraft.environment"].__file__).parents[1] / "prompts" / f"{info.rules}.md"
    assert "Action:\n" in rules.read_text()
    assert (info.score(1.0), info.is_success(1.0), info.is_success(0.0)) == (1.0, True, False)


# The expert


def roll_out(env, item, seed=0):
    """Reward and number of actions."""
    env.reset(item, seed=seed)
    total, actions = 0.0, 0
    for thought, action in expert(env, seed=seed):
        _, reward, *_, info = env.step(action)
        assert thought
        assert "invalid" not in info, (env.goal, action)
        total, actions = total + reward, actions + 1
        assert actions <= 60, env.goal
    return total, actions


def test_the_expert_makes_every_goal_of_our_table():
    env = TextCraft()
    episodes = [roll_out(env, item) for item in range(520)]
    assert {reward for reward, _ in episodes} == {1.0}
    assert max(actions for _, actions in episodes) <= TEXTCRAFT.max_turns


def test_the_expert_says_the_same_for_a_seed_and_goes_on_from_what_it_finds(folder):
    env = TextCraft(folder)
    replies = []
    for seed in (3, 3, 4):
        at(env, "ladder")
        replies.append([])
        for reply in expert(env, seed=seed):
            replies[-1].append(reply)
            env.step(reply[1])
    assert replies[0] == replies[1] != replies[2]
    at(env, "ladder")
    said(env, "get 2 fir log", "craft 4 fir plank using 1 fir log", "craft 4 stick using 2 fir plank")
    actions = []
    for _, action in expert(env):
        actions.append(action)
        env.step(action)
    # It never uses what it did not plan for, and it is done nevertheless.
    assert actions[-1].startswith("craft 1 ladder using 1 ")
    assert env.has_ended


def test_the_expert_fills_up_what_is_missing_and_no_more():
    table = build([Recipe("rope", 3, ((2, "straw"),)), Recipe("net", 1, ((7, "rope"), (1, "straw")))])
    env = TextCraft()
    env.table, env.goals = table, table.goals
    at(env, "net")
    said(env, "get 2 straw", "craft 3 rope using 2 straw")
    actions = []
    for _, action in expert(env):
        actions.append(action)
        env.step(action)
    assert actions == ["get 5 straw", *["craft 3 rope using 2 straw"] * 2, "craft 1 net using 7 rope, 1 straw"]


# The published table and its records


@pytest.fixture(scope="module")
def records(data_folder):
    return json.loads((data_folder / "agentgym/AgentTraj-L/textcraft_train.json").read_text())


@pytest.fixture(scope="module")
def files(data_folder):
    folder = data_folder / "agentgym"
    return {"recipes": folder / "textcraft/recipes.tar.gz", "openings": folder / "AgentTraj-L/textcraft_train.json"}


def numbers(path):
    return [int(each["item_id"].rpartition("_")[2]) for each in json.loads(path.read_text())]


def test_published_depths_and_numbers(data_folder, files):
    table = published(files["recipes"])
    assert Counter(table.depths.values()) == {1: 140, 2: 280, 3: 113, 4: 11}
    assert {"iron nugget", "honey bottle", "gold ingot"} <= set(table.recipes)
    assert {"iron ingot", "honey block", "gold nugget"} <= table.base_items
    env = TextCraft(files["recipes"])
    test = numbers(data_folder / "agentgym/RL-ids/eval/textcraft_test.json")
    assert Counter(map(env.depth, test)) == {1: 31, 2: 41, 3: 25, 4: 3}


def cleaned(reply):
    """What the published client sends; None: nothing is sent."""
    found = re.findall(r"Action:\s*(.*?)(?=\n|$)", reply, re.DOTALL)
    if len(found) > 1:
        return None
    return " ".join(re.sub(r"[^A-Za-z0-9, ]+", "", found[0] if found else "").split())


def replay(env, conversation):
    """The number of equal steps, and the first difference as (step, recorded, got), or None."""
    texts = [turn["value"] for turn in conversation]
    equal, first = 0, None
    for step, (reply, recorded) in enumerate(zip(texts[3::2], [*texts[4::2], None], strict=False), 1):
        action = cleaned(reply)
        if env.has_ended or action is None:
            return equal, first or (step, recorded, "the episode has ended" if env.has_ended else "nothing is sent")
        got = env.step(action)[0]
        if recorded is None:
            break
        if recorded.removeprefix("Instruction:\n") == got:
            equal += 1
        else:
            first = first or (step, recorded, got)
    return equal, first


def test_recorded_episodes_replay_to_the_letter(files, records):
    env = TextCraft(**files)
    equal_steps = num_steps = ended = 0
    different = {}
    for record in records:
        opening, _ = env.reset(int(record["item_id"].rpartition("_")[2]))
        assert record["conversations"][2]["value"] == f"Instruction:\n{opening}"
        equal, first = replay(env, record["conversations"])
        equal_steps, num_steps = equal_steps + equal, num_steps + len(record["conversations"][4::2])
        ended += env.has_ended
        if first is not None:
            different[record["item_id"]] = first
    print(f"episodes equal {len(records) - len(different)} of {len(records)}, steps {equal_steps} of {num_steps}, "
          f"ended {ended}; {different}")  # fmt: skip
    assert set(different) <= CONTRADICTORY


def test_recorded_lists_hold_the_lines_that_the_goal_needs_and_at_most_ten_more(files, records):
    env = TextCraft(files["recipes"])
    for record in records:
        shown, goal = record["conversations"][2]["value"].partition("commands:\n")[2].split("\n\nGoal: craft ")
        goal, lines = goal.rstrip("."), set(shown.split("\n"))
        tree = env.table.tree(goal)
        assert set(tree.lines) <= lines
        extra = lines - set(tree.lines)
        assert len(extra) <= MAX_DISTRACTORS
        assert extra <= {line for others in tree.others for line in others}


def test_openings_give_each_other_number_a_goal_of_its_depth(data_folder, files, records):
    env, plain = TextCraft(**files), TextCraft(files["recipes"])
    assert sorted(env.goals) == sorted(plain.goals)
    assert [*map(env.depth, range(544))] == [*map(plain.depth, range(544))]
    recorded = {int(record["item_id"].rpartition("_")[2]) for record in records}
    assert not recorded & set(numbers(data_folder / "agentgym/RL-ids/eval/textcraft_test.json"))


def test_openings_that_do_not_fit_the_recipes_are_refused(files, folder, tmp_path):
    with pytest.raises(EnvError, match="does not fit these recipes"):
        TextCraft(folder, openings=files["openings"])
    (tmp_path / "records.json").write_text('[{"item_id": "textcraft_1"}]')
    with pytest.raises(EnvError, match="holds no recorded episodes"):
        TextCraft(openings=tmp_path / "records.json")


def test_the_expert_makes_every_published_goal(files):
    env = TextCraft(files["recipes"])
    episodes = [roll_out(env, item) for item in range(544)]
    assert {reward for reward, _ in episodes} == {1.0}
    assert max(actions for _, actions in episodes) <= 60


def test_it_does_not_crawl():
    """A bound of a hang: it does some hundred times as many steps, and other work on the machine is not counted."""
    env = TextCraft()
    actions = []
    for item in range(0, 520, 5):
        env.reset(item)
        for _, action in expert(env):
            actions.append((item, action))
            env.step(action)
    begun, before = time.process_time(), None
    for item, action in actions:
        if item != before:
            env.reset(item)
            before = item
        env.step(action)
    assert len(actions) / (time.process_time() - begun) > 200
