"""The shop: pages and clicks to the letter, the reward by hand, our own products, a user's files, the expert."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.envs import EnvError
from whet.envs.webshop.catalogue import Goal, Product
from whet.envs.webshop.environment import WEBSHOP, WebShop, splits
from whet.envs.webshop.expert import expert
from whet.envs.webshop.fuzzy import token_set_ratio
from whet.envs.webshop.generate import generated
from whet.envs.webshop.product_files import read_prices
from whet.envs.webshop.reward import COLOURS, nouns, reduced, reward_of, title_score, type_reward
from whet.envs.webshop.search import Index, words_of

DATA = os.environ.get("WHET_DATA", "../shared/data")
PUBLISHED = Path(DATA) / "agentgym/webshop"


def product(asin="B1", title="Fern Mug", query="mugs", path="Home › Kitchen › Mugs", price=12.0, **more):
    values = {
        "category": "garden",
        "description": "Holds a lot of tea.",
        "features": ("Hand made", "Fits a hand"),
        "attributes": ("dishwasher safe", "lead free"),
        "options": {"color": ("red", "navy blue"), "size": ("small", "x-large")},
        "prices": (price,),
    }
    return Product(
        asin=asin, title=title, query=query, product_category=path, price=price, **{**values, **more}
    )  # fmt: skip


def goal_of(wanted, attributes=("lead free",), options=(), limit=20.0):
    return Goal(product=wanted, instruction="x", attributes=attributes, options=options, price_limit=limit)


# The reward by hand


def test_the_reward_counts_attributes_options_and_price():
    wanted = product()
    goal = goal_of(wanted, ("lead free", "dishwasher safe"), {"color": "red", "size": "small"}, limit=10.0)
    # both attributes, one option of two, the price above its limit: (2 + 1 + 0) / (2 + 2 + 1)
    reward = reward_of(wanted, ["red", "x-large"], goal)
    assert reward.total == 3 / 5
    assert (reward.type, reward.attributes, reward.options, reward.price) == (1.0, 1.0, 0.5, False)
    assert reward_of(product(price=10.0), ["red", "small"], goal).total == 1.0  # the limit itself is within it
    assert reward_of(product(price=9.0, attributes=("lead free",)), [], goal).total == (1 + 0 + 1) / 5


def test_without_options_they_do_not_count():
    reward = reward_of(product(), [], goal_of(product(), ("lead free", "gold rim")))
    assert reward.total == (1 + 0 + 1) / 3
    assert reward.options is None


@pytest.mark.parametrize(
    ("bought", "kind"),
    [
        (product(title="Fern Cup"), 1.0),  # the same query; 1 of 2 nouns
        (product(title="Fern Bowl", query="bowls", path="Home › Kitchen › Bowls"), 1.0),  # two categories
        (product(title="Fern Poster", query="posters", path="Art"), 1.0),  # half of the nouns is above a fifth
        (product(title="Glass Cup"), 0.0),  # no noun, though the query is the same
    ],
)
def test_the_type_of_a_purchase(bought, kind):
    assert type_reward(bought, product()) == kind


def test_the_type_with_few_nouns_in_common():
    wanted = product(title="mug teapot kettle tray spoon fork knife")  # 7 nouns
    other = product(title="mug", query="pens", path="Office")
    assert type_reward(other, wanted) == 0.5  # 1 / 7 is below a fifth and above a tenth
    assert type_reward(product(title="mug"), wanted) == 1.0
    many = product(title="mug teapot kettle tray spoon fork knife ladle whisk grater sieve")  # 11 nouns
    assert type_reward(product(title="mug"), many) == 0.1  # 1 / 11: below a tenth whatever the query is
    assert reward_of(product(title="mug"), [], goal_of(many)).total == 0.1 * (1 + 1) / 2


def test_a_title_without_nouns_scores_a_fifth():
    assert title_score("anything", "very good, 12 oz") == 0.2
    assert nouns("Women's Long Sleeve Dress with Pockets (2 Pcs)") == ["women", "sleeve", "dress", "pockets"]
    assert title_score("mug", "mug mug tray") == 1 / 3  # a repeated noun counts in the denominator alone


def test_attributes_match_alike_or_in_the_texts():
    shop = product(attributes=("dishwasher-safe",), features=("Made of Bone China",), description="No lead.")
    sought = ("safe dishwasher", "bone china", "no lead", "fern mug", "gold rim")
    assert reward_of(shop, [], goal_of(shop, sought)).attributes == 4 / 5


def test_options_match_by_their_first_colour():
    assert [reduced("navy blue"), reduced("sky blue"), reduced("standard"), reduced("10 oz")] == [
        "blue", "blue", "tan", "10 oz",
    ]  # fmt: skip
    human = goal_of(product(), options=("navy blue", "10 oz"))
    assert reward_of(product(), ["sky blue", "twelve"], human).options == 0.5
    named = goal_of(product(), options={"color": "navy blue", "size": "x-large"})
    # A named option is compared with its name, and not reduced. Words that are all in it suffice.
    assert reward_of(product(), ["sky blue", "large"], named).options == 1.0
    assert reward_of(product(), ["red", "small"], named).options == 0.0
    assert len(COLOURS) == 102


@pytest.mark.parametrize(
    ("first", "second", "ratio"),
    [
        ("lead free", "free, LEAD!", 100),
        ("free", "lead free", 100),  # all its words are in the other
        ("abcd", "abce", 75),  # 2 * 3 / 8
        ("long sleeve", "short sleeve", 71),  # `sleeve` against `sleeve long`: 2 * 6 / 17
        ("sleeves", "sleeve s", 80),  # words are sorted first: `s sleeve`, so 2 * 6 / 15
        ("", "a", 0),
        ("!", "!", 0),
        ("é", "é", 0),  # characters from 128 to 255 are left out
    ],
)
def test_token_set_ratios(first, second, ratio):
    assert token_set_ratio(first, second) == ratio == token_set_ratio(second, first)


# Pages and clicks


@pytest.fixture
def shop(tmp_path):
    return WebShop(**files(tmp_path))


def record(number, title, **more):
    return {
        "asin": f"B{number}", "name": title, "category": "garden", "query": "Mugs ",
        "full_description": "A mug & more.",
        "product_category": "Home › Kitchen › Mugs", "small_description": ["Holds tea", "Hand made"],
        "pricing": "$12.50", "images": ["x"],
        "customization_options": {"Color": [{"value": " Red/Blue "}, {"value": "Green"}], "Size": None},
        **more,
    }  # fmt: skip


def files(folder, records=None, human=None):
    records = records if records is not None else [record(i, f"Fern Mug {i}") for i in range(12)]
    details = {"attributes": ["lead free"], "instruction": "Find a mug", "instruction_attributes": ["lead free"]}
    (folder / "items.json").write_text(json.dumps(records))
    (folder / "attributes.json").write_text(json.dumps({"B0": details, "B1": {"attributes": ["x"]}}))
    paths = {"products": folder / "items.json", "attributes": folder / "attributes.json"}
    if human is not None:
        (folder / "human.json").write_text(json.dumps(human))
        paths["human_goals"] = folder / "human.json"
    return paths


def test_a_visit_by_hand(shop):
    goals = [goal.instruction for goal in shop.catalogue.goals]
    item = next(item for item, goal in enumerate(shop.catalogue.goals) if goal.options == {"color": "green"})
    said = goals[item]
    assert (
        said
        == f"Find a mug with color: green, and price lower than {shop.catalogue.goals[item].price_limit:.2f} dollars"
    )
    first, info = shop.reset(item)
    assert first == f"WebShop [SEP] Instruction: [SEP] {said} [SEP] Search"
    assert info["actions"] == (f"search[{said}]",)

    head = f"Instruction: [SEP] {said} [SEP] Back to Search"
    page = shop.step("search[Fern MUG]")[0]
    assert page.startswith(
        f"{head} [SEP] Page 1 (Total results: 12) [SEP] Next > [SEP] B0 [SEP] Fern Mug 0 [SEP] $12.5 [SEP] B1 [SEP] "
    )
    assert page.count("$12.5") == 10
    second = shop.step("click[next >]")
    assert second[0].startswith(f"{head} [SEP] Page 2 (Total results: 12) [SEP] < Prev [SEP] Next > [SEP] B10 [SEP] ")
    assert shop.step("click[Next >]")[0] == f"{head} [SEP] Page 3 (Total results: 12) [SEP] < Prev [SEP] Next >"
    shop.step("click[< prev]")
    assert shop.step("click[< Prev]")[0] == page

    item_page, *_, info = shop.step("click[b0]")
    assert item_page == (
        f"{head} [SEP] < Prev [SEP] color [SEP] red | blue [SEP] green [SEP] Fern Mug 0 [SEP] Price: $12.5 [SEP] "
        "Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    assert info["actions"] == tuple(
        f"click[{text}]"
        for text in ("back to search", "< prev", "description", "features", "reviews", "buy now", "red | blue", "green")
    )
    assert shop.step("click[green]")[:4] == (item_page, 0.0, False, False)
    assert shop.step("click[Description]")[0] == f"{head} [SEP] < Prev [SEP] A mug & more."
    assert shop.step("click[buy now]")[4]["invalid"] is True  # only a product's page has this button
    assert shop.step("click[< prev]")[0] == item_page  # the option stays chosen
    assert shop.step("click[features]")[0] == f"{head} [SEP] < Prev [SEP] Holds tea [SEP] Hand made"
    shop.step("click[< prev]")
    page, reward, terminated, truncated, _ = shop.step("click[buy now]")
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert page.startswith("Thank you for shopping with us! [SEP] Your code: [SEP] None [SEP] ")
    assert 'options [SEP] {"color": "green"} [SEP] ' in page
    assert page.endswith("Your score (min 0.0, max 1.0) [SEP] 1.0 [SEP] Reward Details [SEP] None")
    with pytest.raises(EnvError, match="reset"):
        shop.step("click[buy now]")


def test_going_back_forgets_the_options(shop):
    shop.reset(0)
    for action in ("search[mug]", "click[b0]", "click[green]", "click[< prev]", "click[b0]"):
        shop.step(action)
    assert shop.where.options == ()
    shop.step("click[green]")
    assert shop.step("click[back to search]")[0] == shop.reset(0)[0]


@pytest.mark.parametrize(
    "action",
    [
        "", "buy", "click", "click[]", "click[b99]", "click[search]", "Click[green]", " click[green]", "search[]",
        "click[green", "think[green]", "click[color]", "click[attributes]",
    ],
)  # fmt: skip
def test_what_cannot_be_done_leaves_the_page(shop, action):
    shop.reset(0)
    shop.step("search[mug]")
    before = shop.step("click[b0]")[0]
    state = shop.state_key()
    assert shop.step(action) == (before, 0.0, False, False, {**shop._info(), "invalid": True})
    assert shop.state_key() == state


def test_a_search_is_possible_on_every_page_and_text_after_an_action_is_ignored(shop):
    shop.reset(0)
    shop.step("search[mug]")
    shop.step("click[b0]")
    assert "Total results: 0" in shop.step("search[tractor] please")[0]
    assert shop.step("search[a mug]")[4].get("invalid") is None


def test_the_page_of_attributes_is_hidden_but_for_a_setting(tmp_path):
    env = WebShop(**files(tmp_path), show_attributes=True)
    env.reset(0)
    env.step("search[mug]")
    assert " [SEP] Attributes [SEP] Buy Now" in env.step("click[b0]")[0]
    assert env.step("click[attributes]")[0].endswith(
        "< Prev [SEP] lead free [SEP] garden [SEP] mugs [SEP] Home › Kitchen › Mugs"
    )


def test_states_and_forks(shop):
    shop.reset(0)
    for action in ("search[mug]", "click[b0]"):
        shop.step(action)
    other = shop.fork()
    assert other.state_key() == shop.state_key()
    other.step("click[green]")
    assert other.state_key() != shop.state_key()
    assert shop.step("click[buy now]")[1] == 1 / 3 * 2  # attribute and price, without the option
    assert other.step("click[< prev]")[3] is False
    for item in (-1, 2):
        with pytest.raises(EnvError, match="items 0 to 1"):
            shop.reset(item)


# The search


def test_the_search_ranks_by_rare_words_and_by_order():
    index = Index(["red mug", "blue mug", "blue plates", "a mug of mugs"])
    assert index.search("plate") == (2,)
    assert index.search("mugs") == (3, 0, 1)  # twice in one; of equal ones the earlier comes first
    assert index.search("blue mug", limit=2) == (1, 2)
    assert index.search("the of") == index.search("") == ()
    assert words_of("Boxes, Dishes & Berries: the GLASSES of bus") == ["box", "dish", "berry", "glass", "bus"]


# Our own products


def test_our_own_products():
    shop = generated()
    assert (len(shop.products), len(shop.goals), len(shop.by_asin)) == (3200, 9378, 3200)
    assert len({goal.instruction for goal in shop.goals}) > 9000
    parts = splits()
    assert sorted([*parts["train"], *parts["test"]]) == list(range(len(shop.goals)))
    sold = [{shop.goals[item].product.asin for item in parts[name]} for name in ("train", "test")]
    assert not sold[0] & sold[1]
    assert generated(1).goals[0].instruction != shop.goals[0].instruction


def test_every_goal_can_be_met_by_its_own_product():
    for goal in generated().goals:
        assert reward_of(goal.product, list(goal.options.values()), goal).total == 1.0


def test_subgroups_count_what_is_asked():
    names = {WEBSHOP.group(item) for item in splits()["test"]}
    assert names == {f"{a} attribute{'s'[: a > 1]}, {o} option{'s'[: o > 1]}" for a in (1, 2, 3) for o in (1, 2)}


def roll_out(env, item, moves):
    env.reset(item)
    for turns, (_, action) in enumerate(moves(env), start=1):
        _, reward, terminated, _, info = env.step(action)
        assert "invalid" not in info, action
        if terminated or turns == WEBSHOP.max_turns:
            return reward, turns
    raise AssertionError("the moves ended before the visit")


def at_random(seed):
    def moves(env):
        rng = random.Random(seed)
        while True:
            yield "", rng.choice(env._info()["actions"])

    return moves


def test_expert_random_and_constant_shoppers():
    env, items = WebShop(), splits()["test"][:200]
    experts = [roll_out(env, item, expert) for item in items]
    assert {reward for reward, _ in experts} == {1.0}
    assert max(turns for _, turns in experts) <= 8
    randomly = [roll_out(env, item, at_random(item))[0] for item in items]
    assert 0.1 < sum(randomly) / 200 < 0.2
    assert sum(reward == 1.0 for reward in randomly) < 5
    for item in items[:20]:  # the same action over and over buys nothing
        env.reset(item)
        assert [env.step("click[buy now]")[1] for _ in range(15)] == [0.0] * 15


def test_the_expert_goes_on_from_any_page():
    env = WebShop()
    item = splits()["train"][0]
    env.reset(item)
    for action in ("search[tea]", f"click[{env.catalogue.search('tea')[0].asin}]", "click[reviews]"):
        env.step(action)
    for _, action in expert(env):
        _, reward, terminated, _, _ = env.step(action)
        if terminated:
            break
    assert reward == 1.0


@pytest.mark.integration
def test_episodes_are_the_same_under_another_hash_seed_and_in_another_order():
    script = """if True:
        import sys
        from hashlib import blake2b
        from whet.envs.webshop.environment import WEBSHOP, WebShop, splits
        items = splits()["test"][:40]
        env, episodes = WebShop(), {}
        for item in items if sys.argv[1] == "forth" else reversed(items):
            episodes[item] = [env.reset(item)]
            for said in WEBSHOP.expert(env):
                episodes[item] += [said, env.step(said[1])]
                if episodes[item][-1][2]:
                    break
        print(blake2b(repr(sorted(episodes.items())).encode()).hexdigest())
    """
    digests = {
        subprocess.check_output([sys.executable, "-c", script, way], env=os.environ | {"PYTHONHASHSEED": seed})
        for seed, way in (("1", "forth"), ("2", "back"))
    }
    assert len(digests) == 1


WORDS = st.sampled_from(["search[", "click[", "]", "mug", "buy now", "b0", "< prev", "next >", "\n", "[", "É", "green"])


@given(actions=st.lists(st.lists(WORDS, max_size=6).map("".join) | st.text(max_size=20), max_size=20))
@settings(max_examples=40)
def test_any_text_is_an_action(actions):
    env = WebShop()
    env.reset(5)
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        assert observation
        assert not truncated
        assert 0.0 <= reward <= float(terminated)
        if terminated:
            break


# A user's files


def test_files_are_read_as_published(tmp_path):
    records = [
        record(0, "First"), record(0, "Again"), record("x" * 12, "Long"), record(1, "Second", pricing="$5 - $9.00"),
        record(2, "Third", pricing=None, customization_options=None, small_description="One"),
    ]  # fmt: skip
    human = {"B1": [
        {"instruction": "i want it.", "instruction_attributes": ["x"], "instruction_options": ["green"]},
        {"instruction": "nothing", "instruction_attributes": [], "instruction_options": []},
    ]}  # fmt: skip
    shop = WebShop(**files(tmp_path, records)).catalogue
    assert [(p.asin, p.title, p.price_tag) for p in shop.products] == [
        ("B0", "First", "$12.5"), ("B1", "Second", "$5.0 to $9.0"), ("B2", "Third", "$100.0"),
    ]  # fmt: skip
    assert 5.0 <= shop.products[1].price <= 9.0
    assert shop.products[0].options == {"color": ("red | blue", "green")}
    assert (shop.products[2].attributes, shop.products[2].features) == (("DUMMY_ATTR",), ("One",))
    assert len(shop.goals) == 2  # one for each color
    by_humans = WebShop(**files(tmp_path, records, human)).catalogue
    assert sorted(goal.instruction for goal in by_humans.goals) == [
        f"i want it, and price lower than {limit}.00 dollars" for limit in (10, 20, 30, 40)
    ]
    assert WebShop(**files(tmp_path, records), num_products=1).catalogue.products == shop.products[:1]
    assert (read_prices("$1,299.00"), read_prices("")) == ((1299.0,), ())


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"name": 3}, "'name' is int and should be a text"),
        ({"small_description": [3]}, "'small_description' should be a list of texts"),
        ({"customization_options": {"Color": [{}]}}, "it has no 'value'"),
        ({"customization_options": ["Color"]}, "product 1: "),
        ({"pricing": "$1.2.3"}, "product 1: "),
        ({"full_description": "\ud800"}, "half a character"),
    ],
)
def test_a_broken_record_is_named(tmp_path, broken, says):
    with pytest.raises(EnvError, match="product 1: ") as caught:
        WebShop(**files(tmp_path, [record(0, "First"), record(1, "Second", **broken)]))
    assert says in str(caught.value)


def test_a_number_that_reads_like_a_button_is_a_product(tmp_path):
    env = WebShop(
        **files(tmp_path, [record(0, "Mug"), record(1, "Odd", asin="Buy Now"), record(2, "Odd", asin="Features")])
    )
    for asin in ("buy now", "features"):
        env.reset(0)
        env.step("search[odd]")
        page = env.step(f"click[{asin}]")[0]
        assert " [SEP] Odd [SEP] Price: $12.5 [SEP] " in page
        assert page.endswith("[SEP] Buy Now")


def test_files_that_do_not_fit_are_refused(tmp_path):
    paths = files(tmp_path)
    for more, says in (
        ({"attributes": paths["attributes"]}, "give products=FILE"),
        ({"products": paths["products"]}, "holds no instructions: add attributes=FILE"),
        ({**paths, "products": tmp_path / "none.json"}, "cannot read .*none.json"),
        ({**paths, "products": paths["attributes"]}, "should be a list of products"),
        ({**paths, "num_products": 0}, "num_products is 0"),
        ({**paths, "attributes": files(tmp_path, human={})["human_goals"]}, "have no instruction"),
    ):
        with pytest.raises(EnvError, match=says):
            WebShop(**more)
    paths["products"].write_text("{")
    with pytest.raises(EnvError, match="as JSON"):
        WebShop(**paths)


def test_settings_with_files_have_their_own_items(tmp_path):
    records = [record(i, f"Mug {i}") for i in range(30)]
    paths = files(tmp_path, records)
    details = {"attributes": ["a"], "instruction": "Buy", "instruction_attributes": ["a"]}
    paths["attributes"].write_text(json.dumps({f"B{i}": details for i in range(30)}))
    info = WEBSHOP.settled(paths)
    assert sum(map(len, info.splits().values())) == 60
    assert info.group(0) == "1 attribute, 1 option"


def test_the_published_attributes_are_read(tmp_path):
    """Of 1,000 products, 415 have an instruction. Products themselves are not there, so they are made up."""
    path = PUBLISHED / "items_ins_v2_1000.json"
    if not path.exists():
        pytest.skip(f"{path} is not there: WebShop's published attributes are for tests only")
    numbers = list(json.loads(path.read_text()))
    products = tmp_path / "items.json"
    products.write_text(json.dumps([record(0, "Mug", asin=number, customization_options={}) for number in numbers]))
    shop = WebShop(products, attributes=path).catalogue
    assert (len(shop.products), len(shop.goals)) == (1000, 415)
    told = [goal.instruction for goal in shop.goals]
    assert (
        sum(text.startswith("Find me tea tree, natural") for text in told) + sum("Find me" in text for text in told)
        > 400
    )


def test_published_session_ids_are_items_of_our_own_shop_too():
    for part, count in (("eval/webshop_test", 200), ("train/webshop_train", 3930)):
        path = Path(DATA) / f"agentgym/RL-ids/{part}.json"
        if not path.exists():
            pytest.skip(f"{path} is not there: the published ids are for tests only")
        ids = [int(entry["item_id"].removeprefix("webshop_")) for entry in json.loads(path.read_text())]
        assert len(set(ids)) == count
        assert max(ids) < len(generated().goals)
