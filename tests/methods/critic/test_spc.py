"""SPC: a zero-sum game, valid plants, phases as long as their games, and two policies that learn."""

from __future__ import annotations

import json

import pytest

from support.sessions import finished, session_of
from whet.tasks.sneaky import right_steps
from whet.types import Grade, Task

GAME = ("sft_steps=2", "games=16", "num_rounds=2", "learning.minibatch_rows=16")


@pytest.fixture(scope="module")
def episodes():
    method = session_of("spc", *GAME, "sft_steps=1").algorithm
    method.keep()
    games, plants, _ = method.games("games 1", method.run.tasks["train"][:40])
    return method, [(episode, plants.get(episode.task.id)) for episode in games]


def test_who_detects_wins_and_who_is_fooled_loses(episodes):
    _, games = episodes
    for episode, planted in games:
        verdict = episode.segments[1].parsed["verdict"]
        assert episode.segments[1].rewards["total"] == (1.0 if verdict == ("wrong" if planted else "correct") else -1.0)


def test_a_plant_is_valid_only_if_it_spoils_the_continuations(episodes):
    """In the tiny world a wrong last step always spoils the answer, and the right one never does."""
    _, games = episodes
    planted = [episode for episode, segment in games if segment is not None]
    assert 0 < len(planted) < 20, "every plant passed, or none"
    for episode in planted:
        shown = episode.segments[0].text.split("\n")
        steps = right_steps(episode.task)[: len(shown)]
        assert shown[:-1] == steps[:-1]
        assert shown[-1] != steps[-1]


def test_a_plant_whose_continuations_could_not_be_graded_is_no_game_and_is_counted():
    """Without a grade nobody knows whether it is an error. Right steps need no continuation."""
    method = session_of("spc", *GAME, "sft_steps=1", "faults.budget=1").algorithm
    method.keep()
    method.run.runtime.grade = lambda items: [Grade(score=None, reason="down") for _ in items]
    games, plants, failed = method.games("games 1", method.run.tasks["train"][:6])
    assert failed == len(plants) == 3
    assert [plants.get(episode.task.id) for episode in games] == [None] * 3


def test_right_steps_stand_in_every_second_game(episodes):
    _, games = episodes
    kept = [episode for episode, planted in games if planted is None]
    assert len(kept) == 20
    for episode in kept:
        shown = episode.segments[0].text.split("\n")
        assert shown == right_steps(episode.task)[: len(shown)]


def test_both_sides_learn_as_long_as_there_were_games(tmp_path):
    session = finished("spc", *GAME, folder=tmp_path)
    done = {each.name: each.num_steps for each in session.loop.done}
    for number in (1, 2):
        rows = session.loop.found[f"games_{number}"]["rows"]
        assert done[f"learn_{number}"] == max(1, round(2 * 2.0 * rows / 16))
    assert session.loop.found["games_2"]["rows"] > session.loop.found["games_1"]["rows"]
    policies = session.loop.policies
    for side in ("generator", "critic"):
        assert any((a != b).any() for a, b in zip(policies[side].state().values(),
                                                  policies[f"{side}_sft"].state().values(), strict=True))  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    learnt = next(row for row in rows if row["phase"] == "learn_1" and row["step"])
    assert {"generator.loss/mean", "critic.loss/mean", "critic.loss/nll", "critic.ratio/mean"} <= set(learnt)


def test_games_and_demonstrations_are_means_of_texts_means_as_published(episodes):
    method, _ = episodes
    game, shown = method._updates(1, 1)["critic"].terms
    assert (game.aggregation, shown.aggregation) == ("sequence_mean", "sequence_mean")
    assert shown.weight == 0.15


def test_rows_start_at_ratio_1_and_are_worth_the_game(episodes):
    method, _ = episodes
    method._play(1, 1)
    critic, generator = (list(method.run.loop.store.rows(side)) for side in ("critic", "generator"))
    assert {row.kind for row in [*critic, *generator]} == {"game"}
    assert all((row.logprobs == row.ref_logprobs).all() for row in [*critic, *generator])
    assert {float(row.credit[0]) for row in critic} <= {1.0, -1.0}
    assert len(generator) < len(critic)


def test_a_set_with_worked_solutions_is_played_in_english():
    from random import Random

    from whet.tasks.prompts import ENGLISH
    from whet.tasks.sneaky import game_demonstrations, sneaky, with_steps

    task = Task(id="1", prompt="How many?", answer="7", info={"solution": "3 + 4 = 7"})
    words = sneaky(ENGLISH)
    assert "3 + 4 = 7" in words.solve_messages(with_steps(task, ["3 + 4 = 7"]).prompt)[0]["content"]
    assert ENGLISH.verdict_line in words.critique_messages("Q", "A")[0]["content"]
    plant, *_ = game_demonstrations("generator", [task], 1, ENGLISH, Random(0))
    assert plant.text != "3 + 4 = 7"
    assert plant.text.startswith("3 + 4 = ")
    judged = game_demonstrations("critic", [task], 8, ENGLISH, Random(0))
    assert {each.text.split(": ")[-1] for each in judged} == {"Correct", "Wrong"}
