"""SearchQA: turns and marks by hand, retrieval, the invented world, a folder of one's own."""

from __future__ import annotations

import json
import os
import random
import re
import string
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.envs import digest
from whet.envs import EnvError
from whet.envs.formats import tags, write
from whet.envs.scripted import expert_episode
from whet.envs.searchqa.answers import first_tag, is_right, last_answer, normalised
from whet.envs.searchqa.environment import (
    FIRST_ITEM,
    NOTHING_FOUND,
    RIGHT,
    SEARCHQA,
    TEST,
    TRAIN,
    UNCLEAR,
    WRONG,
    SearchQA,
    group,
    splits,
)
from whet.envs.searchqa.folder import SOURCES, source_of
from whet.envs.searchqa.questions import FORMS, KINDS, follow, generated
from whet.envs.searchqa.retrieval import Index
from whet.envs.searchqa.world import SENTENCES, Document, the_world, told_object

DATA = Path(os.environ.get("WHET_DATA", Path(__file__).parents[3] / "shared" / "data")) / "agentgym"
pytest.importorskip("bm25s", reason="bm25s is absent: make setup EXTRAS=envs")


@pytest.fixture(scope="module")
def env():
    return SearchQA()


# Turns and marks


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("The Beatles!", "beatles"),
        ("a  Man, an Apple", "man apple"),
        ("Theatre", "theatre"),  # "the" is an article, and no part of a word
        ("U.S.A.", "usa"),
        ("1,024", "1024"),
        ("the", ""),
    ],
)
def test_answers_are_normalised(answer, right):
    assert normalised(answer) == right
    assert is_right(answer, ["else", right]) or not right


def test_more_or_less_than_the_answer_is_wrong():
    assert not is_right("Beatles and others", ["The Beatles"])
    assert not is_right("Beat", ["The Beatles"])
    assert not is_right("", ["The Beatles"])


@pytest.mark.parametrize(
    ("reply", "kind", "content"),
    [
        ("<search> red shoes </search>", "search", "red shoes"),
        ("<answer>x</answer><search>y</search>", "answer", "x"),  # the first one counts
        ("<search>y</search><answer>x</answer>", "search", "y"),
        ("<search>y <answer>x</answer>", "answer", "x"),  # a search that is not closed is none
        ("<search>two\nlines</search>", "search", "two\nlines"),
        ("<search></search>", "search", ""),
        ("<Search>y</Search>", "", ""),
        ("no tag", "", ""),
        ("</search>y<search>", "", ""),
    ],
)
def test_the_first_closed_tag_is_the_action(reply, kind, content):
    assert first_tag(reply) == (kind, content)


PARTS = st.sampled_from(["<search>", "</search>", "<answer>", "</answer>", "a", " ", "\n", "<think>", "</think>", "<"])


@given(st.lists(PARTS, max_size=12).map("".join))
def test_tags_are_read_as_the_published_expressions_read_them(reply):
    match = re.search(r"<(search|answer)>(.*?)</\1>", reply, re.DOTALL)
    assert first_tag(reply) == ((match[1], match[2].strip()) if match else ("", ""))
    answers = re.findall(r"<answer>(.*?)</answer>", reply, re.DOTALL)
    assert last_answer(reply) == (answers[-1].strip() if answers else "")
    if match:  # the thought that the parser takes off holds no action
        assert first_tag(tags(reply).action) == first_tag(reply)


@pytest.mark.parametrize("text", ["<search>" * 200_000, "<answer>" * 200_000, "<think>" * 200_000, "a the " * 200_000])
def test_long_replies_are_read_in_time(env, text):
    begun = time.process_time()
    env.reset(FIRST_ITEM)
    env.step(text)
    env.step(f"<answer>{text}</answer>")
    env.step(f"<search>{text}</search>")
    assert time.process_time() - begun < 2


def test_a_thought_is_written_and_read():
    reply = write("I need the birthplace.", "<search>Ada birthplace</search>", "tags")
    assert reply == "<think>I need the birthplace.</think>\n<search>Ada birthplace</search>"
    assert (tags(reply).thought, tags(reply).action) == ("I need the birthplace.", "<search>Ada birthplace</search>")
    inside = "<think>or <search>x</search></think><answer>y</answer>"
    assert (tags(inside).thought, tags(inside).action) == ("", inside)


def test_an_episode_by_hand(tmp_path):
    env = SearchQA(folder(tmp_path))
    observation, _ = env.reset(0)
    assert observation.endswith("\n\nQuestion: In which town was the author of Red Sand born?")
    assert seen(env, "<search>Red Sand</search>") == (
        "<information>Doc 1(Title: Red Sand) A novel by Ada Moor.\nDoc 2(Title: Sand) Grains of stone.</information>",
        0.0, False, False, {},
    )  # fmt: skip
    assert seen(env, "<think>Ada</think><search>Ada Moor</search>")[0].startswith("<information>Doc 1(Title: Ada Moor)")
    assert seen(env, "<answer>Ely</answer>") == (WRONG, 0.0, False, False, {})
    assert seen(env, "Ports") == (UNCLEAR, 0.0, False, False, {"invalid": True})
    assert seen(env, "<search>zebra?</search>")[0] == f"<information>{NOTHING_FOUND}</information>"
    assert seen(env, "<answer>Ports</answer> or <answer>Ely</answer>") == (WRONG, 0.0, False, False, {})  # the last
    assert seen(env, "<answer> the PORTS. </answer>") == (RIGHT, 1.0, True, False, {})
    with pytest.raises(EnvError, match="reset"):
        env.step("<answer>Ports</answer>")


def test_one_answer_ends_the_episode_where_settings_say_so(tmp_path):
    env = SearchQA(folder(tmp_path), one_answer=True)
    env.reset(0)
    assert env.step("<search>Red Sand</search>")[2] is False
    assert env.step("<answer>Ely</answer>")[:3] == (WRONG, 0.0, True)


def seen(env, action):
    """A step, without what could be done next."""
    *said, info = env.step(action)
    return (*said, {key: value for key, value in info.items() if key != "actions"})


# Retrieval


def test_equal_scores_are_sorted_by_number():
    index = Index([Document("a", "red"), Document("b", "blue"), Document("c", "red"), Document("d", "red red red")])
    assert index.search("red", 2) == [3, 0]
    assert index.search("red", 9) == [3, 0, 2]  # not those without the word
    assert index.search("the green", 3) == []
    assert index.search("", 3) == []
    assert Index([Document("of", "the")]).search("of", 3) == []


def test_every_document_is_found_by_its_title():
    world = the_world()
    index = Index(world.documents)
    for number in range(0, len(world.documents), 40):
        assert number in index.search(world.documents[number].title, 3)


# The invented world


def test_a_document_tells_its_facts_and_no_others():
    world = the_world()
    assert len(world.documents) == 3344
    assert len({document.title for document in world.documents}) == 3344
    for document in world.documents[::10]:
        facts = world.facts[document.title]
        assert {relation: told_object(document, relation) for relation in facts} == facts
        assert all(told_object(document, relation) is None for relation in SENTENCES.keys() - facts.keys())


def test_splits_and_groups():
    parts = splits()
    assert (len(parts["train"]), len(parts["test"])) == (2000, 400)
    assert Counter(map(group, parts["test"])) == dict.fromkeys(KINDS, 100)
    assert Counter(map(group, parts["train"])) == dict.fromkeys(KINDS, 500)
    train, test = generated("train"), generated("test")
    assert len({question.words for question in train + test}) == 2400
    named = [{name for question in questions for name in question.subjects} for questions in (train, test)]
    assert not named[0] & named[1]


def test_answers_are_true_and_not_in_the_question():
    world = the_world()
    for question in generated("test") + generated("train"):
        assert normalised(question.answers[0]) not in normalised(question.words)
        if not question.compared:
            assert question.answers == (follow(world, question.subjects[0], question.path),)
    assert {len(form.path) for form in FORMS["3 hops"]} == {3}


def test_a_comparison_by_hand():
    world = the_world()
    for question in generated("test"):
        if question.words.startswith("Of the authors of"):
            authors = [world.facts[novel]["author"] for novel in question.subjects]
            years = [int(world.facts[author]["birth year"]) for author in authors]
            assert question.answers == (authors[years.index(min(years))],)
        if question.words.startswith("Which river runs through the larger"):
            sizes = [int(world.facts[town]["inhabitants"]) for town in question.subjects]
            assert question.answers == (world.facts[question.subjects[sizes.index(max(sizes))]]["river"],)


def test_questions_of_several_hops_need_several_searches(env):
    """The documents that the question's own words find tell the answer of one hop, and hardly ever that of more."""
    index, shares = Index(the_world().documents), Counter()
    for question in generated("test"):
        found = [index.documents[number] for number in index.search(question.words, 3)]
        shares[question.kind] += any(question.answers[0] in document.text for document in found) / 100
    assert shares["1 hop"] > 0.95
    assert shares["2 hops"] < 0.05
    assert shares["3 hops"] < 0.05


def two_hundred():
    return random.Random(0).sample([*TRAIN, *TEST], 200)


def test_expert_random_and_constant_on_two_hundred_items(env):
    most = Counter(question.answers[0] for question in generated("train")).most_common(1)[0][0]
    wins = Counter()
    for item in two_hundred():
        wins["expert"] += expert_episode(env, SEARCHQA, item, 0, limit=SEARCHQA.max_turns)[1]
        draws = random.Random(item)
        _, info = env.reset(item)
        for _ in range(SEARCHQA.max_turns):
            _, reward, is_over, _, info = env.step(draws.choice(info["actions"]))
            wins["random"] += reward
            if is_over:
                break
        env.reset(item)
        wins["constant"] += env.step(f"<answer>{most}</answer>")[1]
    assert wins["expert"] == 200
    assert wins["random"] <= 30
    assert wins["constant"] <= 5


def test_no_constant_answer_wins_much():
    answers = Counter(question.answers[0] for question in generated("test"))
    assert answers.most_common(1)[0][1] <= 0.02 * 400


def test_the_expert_takes_a_search_a_hop(env):
    for kind, most in (("1 hop", 2), ("2 hops", 3), ("3 hops", 4), ("comparison", 5)):
        items = [item for item in TEST if group(item) == kind][::10]
        turns = [len(expert_episode(env, SEARCHQA, item, 0)[0]) for item in items]
        assert 2 <= min(turns) <= max(turns) <= most


def test_items_are_the_same_in_another_process_and_order():
    items = two_hundred()[:40]
    environment = os.environ | {"PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "support.envs", "searchqa", *map(str, reversed(items))]
    other = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=True)
    assert other.stdout.split()[::-1] == digest("searchqa", items)


def test_a_state_is_what_was_seen_in_any_order(env):
    keys = []
    for order in (("Brothers", "Academy"), ("Academy", "Brothers")):
        env.reset(FIRST_ITEM)
        first = env.state_key()
        for word in order:
            env.step(f"<search>{word}</search>")
        keys.append(env.state_key())
    assert keys[0] == keys[1] != first


# Numbers, and a folder of one's own


def test_published_ranges():
    sizes = {source: len(numbers) for source, numbers in SOURCES.items()}
    assert sizes == {
        "nq": 3610, "triviaqa": 11313, "popqa": 14267, "hotpotqa": 7405, "2wikimultihopqa": 12576, "musique": 2417,
        "bamboogle": 125,
    }  # fmt: skip
    ends = (0, 3609, 3610, 14922, 51712, 51713, 130881, 221327, 221328)
    assert [source_of(number) for number in ends] == [
        "nq", "nq", "triviaqa", "triviaqa", "bamboogle", "nq", "hotpotqa", "hotpotqa", "",
    ]  # fmt: skip


def test_published_numbers_need_a_folder(env):
    for item, source in ((12545, "triviaqa"), (51713, "nq"), (221327, "hotpotqa")):
        with pytest.raises(EnvError, match=f"published number, of {source}: give path=FOLDER"):
            env.reset(item)
    for item in (-1, 221328, FIRST_ITEM - 1, TEST.stop):
        with pytest.raises(EnvError, match="Generated items are 1000000 to 1002399"):
            env.reset(item)


@pytest.mark.skipif(not DATA.is_dir(), reason="the lists of item ids are absent (../shared/data)")
def test_published_ids_lie_in_the_range_of_their_source():
    from whet.trajectories.published import read_published

    path = DATA / "RL-ids/eval/searchqa_test.json"
    ids = [row["item_id"] for row in json.loads(path.read_text())]
    numbers = read_published(path)
    assert {name for name, _ in numbers} == {"searchqa"}
    assert len(ids) == 400
    assert all(item_id == f"{source_of(number)}_{number}" for item_id, (_, number) in zip(ids, numbers, strict=True))


def folder(path, **files):
    """A folder with four documents and a question a split."""
    documents = [
        {"title": "Red Sand", "text": "A novel by Ada Moor."},
        {"contents": "Ada Moor\nAda Moor was born in Ports."},
        {"title": "Sand", "text": "Grains of stone."},
        {"title": "Ely", "text": "A town in the fens."},
    ]
    question = {"question": "In which town was the author of Red Sand born?", "answers": ["Ports", "Ports, Fens"]}
    content = {
        "documents": documents,
        "test": [question | {"kind": "2 hops"}],
        "train": [{"question": "Where is Ely?", "golden_answers": ["the fens"]}],
        **files,
    }
    for name, rows in content.items():
        if rows is not None:
            text = rows if isinstance(rows, str) else "\n".join(map(json.dumps, rows))
            (path / f"{name}.jsonl").write_text(text)
    return path


def test_a_folder_has_the_published_numbers(tmp_path):
    info = SEARCHQA.settled({"path": folder(tmp_path)})
    assert info.splits() == {"test": (0,), "train": (51713,)}
    assert [info.group(item) for item in (0, 51713)] == ["2 hops", "questions"]
    env = SearchQA(tmp_path)
    assert env.reset(51713)[0].endswith("Question: Where is Ely?")
    assert env.step("<answer>Fens</answer>")[1] == 1.0
    for item in (1, 51714, FIRST_ITEM):
        with pytest.raises(EnvError, match="has no item"):
            env.reset(item)
    assert expert_episode(env, info, 0, 0)[1] == 1.0
    assert SEARCHQA.settled({"one_answer": True}) is SEARCHQA


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"documents": None}, "lacks documents.jsonl"),
        ({"test": None, "train": None}, "has neither test.jsonl nor train.jsonl"),
        ({"documents": ""}, "is empty"),
        ({"test": "", "train": ""}, "has no question"),
        ({"documents": "{"}, "line 1 is no JSON"),
        ({"documents": "[]"}, "line 1 is no object"),
        ({"documents": [{"title": "x"}]}, "line 1: text is 'None'"),
        ({"documents": [{"title": "x", "text": "\ud800"}]}, "write a text that is not empty"),
        ({"test": [{"question": "", "answers": ["x"]}]}, "line 1: question is ''"),
        ({"test": [{"question": "x", "answers": "x"}]}, "answers is 'x'; write a list"),
        ({"test": [{"question": "x", "answers": []}]}, "answers is"),
        ({"test": [{"question": "x", "answers": ["The."]}]}, "'The.' is nothing once"),
    ],
)
def test_a_folder_is_checked_at_the_door(tmp_path, files, says):
    with pytest.raises(EnvError, match=re.escape(says)):
        SearchQA(folder(tmp_path, **files))


def test_punctuation_is_that_of_ascii():
    assert normalised(string.punctuation) == ""
    assert normalised("Sao-Tome’s") == "saotome’s"  # as published: a typographic mark stays
