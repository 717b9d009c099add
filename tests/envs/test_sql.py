"""SQL: BIRD's comparison by hand, limits of a statement, generated items, a folder of BIRD."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from support.envs import digest
from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.formats import sql, write
from whet.envs.scripted import some_items
from whet.envs.sql.connection import Limits, QueryError, run_query
from whet.envs.sql.databases import TEST, TRAIN, database
from whet.envs.sql.descriptions import Description, described
from whet.envs.sql.environment import FIRST_ITEM, OWN_LIMITS, SQLGYM, Sql, expert, group, same_rows, splits
from whet.envs.sql.questions import GRADES, questions

DATA = Path(os.environ.get("WHET_DATA", Path(__file__).parents[3] / "shared" / "data")) / "agentgym"


@pytest.fixture(scope="module")
def pets():
    """Three pets of two people, as the bytes of a database."""
    with closing(sqlite3.connect(":memory:")) as connection:
        fill(connection)
        return connection.serialize()


def fill(connection):
    connection.executescript(
        """
        CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT);
        CREATE TABLE pets (id INTEGER PRIMARY KEY, name TEXT, legs INTEGER, owner INTEGER REFERENCES people);
        INSERT INTO people VALUES (1, 'Ann'), (2, 'Bob');
        INSERT INTO pets VALUES (1, 'Rex', 4, 1), (2, 'Tweety', 2, 1), (3, 'Tom', 4, 2);
        """
    )


# The comparison


@pytest.mark.parametrize(
    ("query", "is_right"),
    [
        ("SELECT owner, name FROM pets WHERE legs = 4", True),
        ("SELECT owner, name FROM pets WHERE legs = 4 ORDER BY name DESC", True),  # the order of rows
        ("SELECT owner, name FROM pets WHERE legs = 4 UNION ALL SELECT 1, 'Rex'", True),  # a row that comes twice
        ("SELECT owner * 1.0, name FROM pets WHERE legs = 4", True),  # 1.0 is 1 in Python
        ("SELECT name, owner FROM pets WHERE legs = 4", False),  # the order of columns
        ("SELECT owner, name, legs FROM pets WHERE legs = 4", False),  # one column more
        ("SELECT owner, name FROM pets", False),  # a row more
        ("SELECT owner, name FROM pets WHERE id = 1", False),  # a row less
        ("SELECT CAST(owner AS TEXT), name FROM pets WHERE legs = 4", False),  # '1' is not 1
        ("SELECT owner, lower(name) FROM pets WHERE legs = 4", False),
    ],
)
def test_results_are_compared_as_sets_of_rows(pets, query, is_right):
    gold = [(1, "Rex"), (2, "Tom")]
    assert same_rows(run_query(pets, query, OWN_LIMITS), gold) is is_right


def test_empty_and_null(pets):
    nothing = run_query(pets, "SELECT name FROM pets WHERE legs = 3", OWN_LIMITS)
    assert same_rows(nothing, [])
    assert not same_rows(nothing, [(None,)])
    assert same_rows(run_query(pets, "SELECT MAX(legs) FROM pets WHERE legs > 9", OWN_LIMITS), [(None,)])


# An episode


def test_one_step_ends_an_episode_right_or_wrong():
    env = Sql()
    for query, reward in ((None, 1.0), ("SELECT 1", 0.0), ("SELEKT 1", 0.0)):
        env.reset(FIRST_ITEM)
        _, got, terminated, truncated, info = env.step(query or env.gold)
        assert (got, terminated, truncated) == (reward, True, False)
        assert info == ({"invalid": True} if query == "SELEKT 1" else {})
        with pytest.raises(EnvError, match="reset"):
            env.step("SELECT 1")


def test_a_result_is_cut_after_a_hundred_characters():
    env = Sql()
    env.reset(FIRST_ITEM)
    assert env.step("SELECT 1, 'a' UNION SELECT 2, NULL")[0] == "[(1, 'a'), (2, None)]"
    env.reset(FIRST_ITEM)
    assert env.step("SELECT printf('%.*c', 95, 'x')")[0] == "[('" + "x" * 95 + "',..."  # 95 and 5 are 100, and more
    env.reset(FIRST_ITEM)
    assert env.step("SELECT printf('%.*c', 94, 'x')")[0] == "[('" + "x" * 94 + "',)]"[:3] + "..."
    env.reset(FIRST_ITEM)
    assert env.step("SELECT printf('%.*c', 93, 'x')")[0] == "[('" + "x" * 93 + "',)]"  # 93 and 7 are 100
    env.reset(FIRST_ITEM)
    assert env.step("SELECT x FROM nowhere")[0] == "no such table: nowhere"


def test_the_first_observation_describes_tables_and_keys():
    observation, info = Sql().reset(FIRST_ITEM + 2000)
    text, question = observation.split("\n\n")
    assert text.startswith(
        "school_4 contains tables such as teachers, courses, students, enrolments. Table teachers has "
    )
    assert "Table teachers has columns such as teacher_id, name, department, salary, hired. teacher_id is the " in text
    assert text.endswith("The course_id of enrolments is the foreign key of course_id of courses.")
    assert question.endswith((".", "?"))
    assert info["actions"][:2] == ("SELECT * FROM teachers", "SELECT COUNT(*) FROM teachers")


PETS = Description(
    "pets",
    ("People", "Pets"),
    ((-1, "*"), (0, "ID"), (0, "Name"), (1, "id"), (1, "owner")),
    primary=((1, 2), 3),
    foreign=((4, 1),),
)


def test_published_descriptions_name_the_next_column():
    before = (
        "pets contains tables such as people, pets. Table people has columns such as id, name.  is the primary key. "
        "Table pets has columns such as id, owner. id is the primary key. "
    )
    assert described(PETS, "published") == before + "The id of pets is the foreign key of name of people."
    assert described(PETS, "right") == before + "The owner of pets is the foreign key of id of people."


@pytest.mark.parametrize(
    ("reply", "thought", "query"),
    [
        ("Thought: I count.\n\nAction: ```sql\nSELECT 1;\n```", "I count.", "SELECT 1;"),
        (
            "```sql\nSELECT 1\n```\nor rather\n```sql\nSELECT 2\n``` done",
            "```sql\nSELECT 1\n```\nor rather",
            "SELECT 2",
        ),
        ("SELECT 1", "", "SELECT 1"),
        ("SELECT 1``` and more", "", "SELECT 1"),
        ("```\nSELECT 1\n```", "", ""),  # as published: a block without a language is none
        ("```sql\nSELECT 1", "", "SELECT 1"),
    ],
)
def test_the_last_block_is_the_query(reply, thought, query):
    assert (sql(reply).thought, sql(reply).action) == (thought, query)
    assert sql(write("so", "SELECT 1", "sql")).thought == "so"


# Limits

SMALL = Limits(max_steps=100_000, timeout_s=5.0, max_rows=50, max_bytes=500, max_value=200)
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (ENDLESS + "SELECT COUNT(*) FROM n", "more than 100,000 steps"),
        (ENDLESS + "SELECT x FROM n", "more than 50 rows"),
        ("SELECT COUNT(*) FROM pets a, pets b, pets c, pets d, pets e, pets f, pets g, pets h, pets i, pets j, pets k",
         "more than 100,000 steps"),
        ("SELECT printf('%.*c', 150, 'x') FROM pets a, pets b", "more than 500 bytes"),
        ("SELECT zeroblob(1000000000)", "too big"),
        ("SELECT hex(zeroblob(150))", "too big"),
        ("SELECT load_extension('x')", "not authorized"),
        ("ATTACH ':memory:' AS other", "not authorized"),
        ("ATTACH 'other.db' AS other", "not authorized"),
        ("VACUUM INTO 'other.db'", "authoriz"),
        ("PRAGMA query_only = 0", "not authorized"),
        ("PRAGMA writable_schema = 1", "not authorized"),
        ("SELECT * FROM pragma_database_list", "not authorized"),
        ("CREATE TEMP TABLE x (a)", "not authorized"),
        ("CREATE TABLE x (a)", "readonly"),
        ("INSERT INTO people VALUES (3, 'Eve')", "readonly"),
        ("UPDATE people SET name = 'x'", "readonly"),
        ("DELETE FROM pets", "readonly"),
        ("DROP TABLE pets", "readonly"),
        ("BEGIN", "not authorized"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("SELECT " + "(" * 2000 + "1" + ")" * 2000, "overflow"),
        ("SELECT '" + "x" * 30_000 + "'", "too"),
        ("SELECT \0", "null character"),
        ("SELECT \ud800", "surrogates"),
        ("SELECT CAST(x'ff' AS TEXT)", "UTF-8"),
    ],
)  # fmt: skip
def test_hostile_statements_end_within_limits(pets, query, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begun = time.process_time()
    with pytest.raises(QueryError, match=says):
        run_query(pets, query, SMALL)
    assert time.process_time() - begun < 1
    assert list(tmp_path.iterdir()) == []


def test_seconds_limit_what_steps_do_not(pets):
    slow = Limits(max_steps=10**12, timeout_s=0.05, max_rows=50, max_bytes=500, max_value=200)
    with pytest.raises(QueryError, match=r"more than 0\.05 seconds"):
        run_query(pets, ENDLESS + "SELECT COUNT(*) FROM n", slow)


def test_long_patterns_are_refused(pets):
    with pytest.raises(QueryError, match="pattern too complex"):
        run_query(pets, "SELECT name FROM pets WHERE name LIKE printf('%.*c', 600, '%')", OWN_LIMITS)


def test_the_schema_may_be_looked_at(pets):
    assert [row[1] for row in run_query(pets, "PRAGMA table_info(pets)", OWN_LIMITS)] == ["id", "name", "legs", "owner"]
    assert run_query(pets, "SELECT name FROM sqlite_master", OWN_LIMITS) == [("people",), ("pets",)]


def test_time_and_chance_are_fixed(pets):
    query = "SELECT random(), random(), randomblob(3), current_timestamp, date('now'), strftime('%Y', 'NOW'), time()"
    first, again = (run_query(pets, query, OWN_LIMITS) for _ in range(2))
    assert first == again
    assert first[0][0] != first[0][1]
    assert first[0][3:] == ("2025-01-01 12:00:00", "2025-01-01", "2025", "12:00:00")
    dates = run_query(pets, "SELECT date('2024-02-28', '+2 days'), strftime('%d.%m.', '2024-02-28')", OWN_LIMITS)
    assert dates == [("2024-03-01", "28.02.")]


# Generated items


def test_train_and_test_share_neither_items_nor_databases():
    parts = splits()
    assert not set(parts["train"]) & set(parts["test"])
    assert len(parts["train"]) == 100 * len(TRAIN) == 2000
    assert len(parts["test"]) == 100 * len(TEST) == 700
    assert not set(TRAIN) & set(TEST)
    assert {name.rpartition("_")[0] for name in TEST} - {name.rpartition("_")[0] for name in TRAIN} == {"farm"}
    assert Counter(map(group, parts["test"])) == dict.fromkeys(GRADES, 140)


@pytest.mark.parametrize("name", [TRAIN[0], TRAIN[7], TEST[-1]])
def test_questions_are_different_and_answered_within_limits(name):
    made = questions(name)
    assert len({question.words for question in made}) == len(made) == 100
    few_steps = Limits(max_steps=OWN_LIMITS.max_steps // 5, timeout_s=5.0, max_rows=60, max_bytes=4000, max_value=4096)
    for question in made:
        assert run_query(database(name), question.gold, few_steps), question


def two_hundred():
    return random.Random(0).sample([*splits()["train"], *splits()["test"]], 200)


def test_expert_random_and_constant_on_two_hundred_items():
    env, wins = Sql(), Counter()
    for item in two_hundred():
        _, info = env.reset(item)
        listed = random.Random(item).choice(info["actions"])
        ((_, gold),) = expert(env)
        for agent, query in (("expert", gold), ("random", listed), ("constant", "SELECT 3")):
            env.reset(item)
            wins[agent] += env.step(query)[1] == 1.0
    assert wins["expert"] == 200
    assert wins["random"] == 0
    assert wins["constant"] <= 4


def test_no_constant_answer_wins_much():
    results = Counter()
    for name in TEST:
        for question in questions(name):
            results[frozenset(run_query(database(name), question.gold, OWN_LIMITS))] += 1
    assert results.most_common(1)[0][1] <= 0.02 * sum(results.values())


def test_items_are_the_same_in_another_process_and_order():
    items = two_hundred()[:40]
    environment = os.environ | {"PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "support.envs", "sqlgym", *map(str, reversed(items))]
    other = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=True)
    assert other.stdout.split()[::-1] == digest("sqlgym", items)


def test_published_numbers_need_a_folder_of_bird():
    for item in (0, 9427, 9428, 10961):
        with pytest.raises(EnvError, match="number of BIRD's: give path=FOLDER"):
            Sql().reset(item)
    for item in (-1, 10962, FIRST_ITEM - 1, FIRST_ITEM + 2700):
        with pytest.raises(EnvError, match=r"Generated items are 100000 to 102699"):
            Sql().reset(item)
    assert set(some_items(SQLGYM)) <= {*splits()["train"], *splits()["test"]}


# A folder of BIRD


def bird_folder(folder, parts=("train", "dev"), gold="SELECT name FROM pets WHERE legs = 4", database=True):
    """A folder as BIRD's archives make it, with one database and two questions a part."""
    tables = {
        "db_id": "pets",
        "table_names_original": ["people", "pets"],
        "table_names": ["people", "pets"],
        "column_names": [[-1, "*"], [0, "id"], [0, "name"], [1, "id"], [1, "name"], [1, "legs"], [1, "owner"]],
        "primary_keys": [1, 3],
        "foreign_keys": [[6, 1]],
    }
    for part in parts:
        (folder / part / f"{part}_databases" / "pets").mkdir(parents=True)
        rows = [
            {"db_id": "pets", "question": f"Which pets of {part} have four legs?", "evidence": "", "SQL": gold},
            {"db_id": "pets", "question": "How many people are there?", "SQL": "SELECT COUNT(*) FROM people"},
        ]
        if part == "dev":
            rows = [row | {"difficulty": "simple"} for row in rows]
        (folder / part / f"{part}.json").write_text(json.dumps(rows))
        (folder / part / f"{part}_tables.json").write_text(json.dumps([tables]))
        if database:
            with closing(sqlite3.connect(folder / part / f"{part}_databases" / "pets" / "pets.sqlite")) as connection:
                fill(connection)
    return folder


def test_a_folder_of_bird_has_the_published_numbers(tmp_path):
    env = Sql(bird_folder(tmp_path))
    observation, _ = env.reset(9428)
    assert observation.endswith(
        "The id of pets is the foreign key of name of people.\n\nWhich pets of dev have four legs?"
    )
    assert env.step("SELECT name FROM pets WHERE legs > 3")[:3] == ("[('Rex',), ('Tom',)]", 1.0, True)
    assert env.reset(0)[0].endswith("Which pets of train have four legs?")
    env.reset(1)
    assert env.step("DELETE FROM people")[:2] == ("attempt to write a readonly database", 0.0)
    env.reset(1)
    assert env.step("SELECT 2")[:2] == ("[(2,)]", 1.0)
    for item in (2, 9427, 9430, 10962, FIRST_ITEM):
        with pytest.raises(EnvError, match="no item"):
            env.reset(item)
    right = Sql(tmp_path, keys="right")
    assert "The owner of pets is the foreign key of id of people." in right.reset(0)[0]


def test_a_folder_has_its_own_splits_and_groups(tmp_path):
    info = SQLGYM.settled({"path": bird_folder(tmp_path)})
    assert info.splits() == {"train": (0, 1), "test": (9428, 9429)}
    assert [info.group(item) for item in (0, 9428)] == ["train", "simple"]
    assert SQLGYM.settled({"timeout_s": 3.0}) is SQLGYM


def test_a_broken_database_or_gold_query_is_never_a_reward(tmp_path):
    broken = bird_folder(tmp_path / "broken", parts=("dev",))
    env = Sql(broken)
    (broken / "dev" / "dev_databases" / "pets" / "pets.sqlite").write_bytes(b"this is no database" * 100)
    env.reset(9428)
    with pytest.raises(
        EnvError, match="gold query of item 9428 cannot be run on the database pets: file is not a data"
    ):
        env.step("SELEKT")
    wrong = Sql(bird_folder(tmp_path / "wrong", parts=("dev",), gold="SELECT colour FROM pets"))
    wrong.reset(9428)
    with pytest.raises(EnvError, match="no such column"):
        wrong.step("SELECT 1")
    slow = Sql(bird_folder(tmp_path / "slow", gold=ENDLESS + "SELECT COUNT(*) FROM n"), max_steps=1000)
    slow.reset(0)
    with pytest.raises(EnvError, match="more than 1,000 steps; mend the database, or raise max_steps"):
        slow.step("SELECT 1")


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("dev.json", "[1]", "holds no list of objects"),
        ("dev.json", "{", "cannot be read as JSON"),
        ("dev.json", '[{"question": "x"}]', "question 0: there is no 'SQL'"),
        ("dev.json", '[{"question": "x", "SQL": "", "db_id": "pets"}]', "not empty"),
        ("dev.json", '[{"question": "x", "SQL": "y", "db_id": "z"}]', "no database 'z'"),
        ("dev.json", json.dumps([{}] * 1535), "1,535 questions"),
        ("dev_tables.json", '[{"db_id": "pets"}]', "not as BIRD describes one"),
        ("dev_tables.json", None, "cannot be read as JSON"),
        ("dev_databases/pets/pets.sqlite", None, "is missing; unpack"),
    ],
)
def test_a_folder_is_checked_at_the_door(tmp_path, file, content, says):
    place = bird_folder(tmp_path, parts=("dev",)) / "dev" / file
    if content is None:
        place.unlink()
    else:
        place.write_text(content)
    with pytest.raises(EnvError, match=says):
        Sql(tmp_path)


def test_an_empty_folder_and_wrong_settings(tmp_path):
    with pytest.raises(EnvError, match="neither train/train"):
        Sql(tmp_path)
    for wrong in ({"max_steps": 0}, {"timeout_s": -1.0}, {"keys": "left"}):
        with pytest.raises(EnvError, match="sqlgym"):
            Sql(**wrong)


def test_a_fork_goes_on_alone():
    env = ENVIRONMENTS.get("sqlgym").make()
    env.reset(FIRST_ITEM)
    other = env.fork()
    assert other.state_key() == env.state_key()
    assert other.step(other.gold)[1] == 1.0
    assert env.step("SELECT 1")[1] == 0.0


@pytest.mark.skipif(not DATA.is_dir(), reason="the lists of item ids are absent (../shared/data)")
def test_published_ids_are_numbers_of_bird():
    from whet.envs.sql.bird import PLACES
    from whet.trajectories.published import read_published

    train = read_published(DATA / "RL-ids/train/sqlgym_train.json")
    test = read_published(DATA / "RL-ids/eval/sqlgym_test.json")
    assert {name for name, _ in train + test} == {"sqlgym"}
    assert (len(train), len(test)) == (3000, 200)
    assert all(number in PLACES["train"] for _, number in train)
    assert all(number in PLACES["dev"] for _, number in test)
