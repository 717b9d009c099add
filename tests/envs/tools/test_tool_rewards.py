"""Rewards by hand: subgoals, the weather's any, the account of todo, the cells of sheet."""

from dataclasses import replace
from datetime import date, timedelta

import pytest

from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.tools.academia_goals import AcademiaEnvironment
from whet.envs.tools.calls import written
from whet.envs.tools.grid import Grid, share_of_cells
from whet.envs.tools.sheet import Sheet
from whet.envs.tools.sheet_goals import SheetEnvironment
from whet.envs.tools.todo import Project, Task, Todo
from whet.envs.tools.todo_goals import TodoEnvironment
from whet.envs.tools.weather import Place, Weather
from whet.envs.tools.weather_goals import WeatherEnvironment

HERE = Place("Here", 50.0, 10.0, "DE", 100, 1, True)
FAR = Place("Far", -20.0, 30.0, "KE", 980, 2, False)
ACCOUNT = Todo(
    [Project("1", 1, "Home"), Project("2", 2, "Work")],
    [
        Task("11", "1", 1, "Sweep", "- Place: Attic", "2021-03-01", 30, 2),
        Task("12", "1", 2, "Wash", "", "2021-03-05", 60, 1),
        Task("21", "2", 1, "Write", "", "2021-03-09", 90, 4),
    ],
    "2021-03-02",
    "Here",
)


def begun(env, **changes):
    """An episode with a goal of our own: what an item has, but for these changes."""
    env.begin(replace(env.find(0), **changes))
    return env


def rewards(env, *calls):
    return [env.step(written(name, arguments))[1] for name, arguments in calls]


def weather(env, *subgoals):
    service = Weather([HERE, FAR], date(2021, 3, 2), "Here")
    return begun(env, begins=service, results=subgoals[:-1], answer=subgoals[-1])


def test_the_reward_is_the_best_share_of_subgoals_so_far():
    env = begun(AcademiaEnvironment(subgoals="calls"), results=("a", 7, 7), answer=["x", "y"])
    said = rewards(
        env,
        ("check_valid_actions", {}),  # no subgoal: 0 of 4
        ("loadPaperNet", {}),  # nor this
    )
    assert said == [0, 0]
    assert env.reward_after("a") == 0.25
    env._reward = 0.25
    assert env.reward_after("a") == 0.25  # it is there once
    assert env.reward_after(7) == 0.5
    assert env.reward_after(7.0) == 0.75  # it is there twice; 7 and 7.0 are equal
    assert env.reward_after(7) == 0.75
    assert env.reward_after(["x", "y"]) == 1.0


def test_finish_sorts_a_list_and_ends_the_episode():
    env = begun(AcademiaEnvironment(), answer=["x", "y"])
    observation, reward, terminated, _, _ = env.step(written("finish", {"answer": ["y", "x"]}))
    assert (observation, reward, terminated) == ("Observation: ['x', 'y']\nGive me one action.", 1.0, True)
    env = begun(AcademiaEnvironment(), answer=5)
    assert env.step(written("finish", {"answer": "5"}))[1:3] == (0.0, True)  # a text is no number, as published


def test_the_answer_counts_wherever_it_turns_up():
    env = weather(WeatherEnvironment(), "Here")
    assert rewards(env, ("get_user_current_date", {}), ("get_user_current_location", {})) == [0, 1]
    assert env.step(written("finish", {"answer": "Elsewhere"}))[1:3] == (0.0, True)  # the best so far stays


@pytest.mark.parametrize(("share", "said"), [(False, [1, 0, 0]), (True, [0.5, 0, 0.5])])
def test_any_subgoal_is_the_whole_reward_of_weather(share, said):
    calls = [("get_user_current_location", {}), ("get_user_current_location", {}), ("get_user_current_date", {})]
    env = weather(WeatherEnvironment(subgoals="calls", share=share), "Here", "2021-03-02")
    assert rewards(env, *calls) == said


def test_coordinates_less_than_fifty_km_apart_are_equal():
    same = WeatherEnvironment().same
    point = {"latitude": 50.0, "longitude": 10.0, "days": 3}
    assert same(point, {**point, "latitude": 50.4})  # 44 km
    assert not same(point, {**point, "latitude": 50.5})  # 56 km
    assert not same(point, {**point, "latitude": 50.4, "days": 4})
    assert not same(point, 50.0)


def changed(**tasks):
    """The account after changes of tasks by id; None: the task is gone."""
    dates = {task: tasks.get(f"t{task.id}", task.due) for task in ACCOUNT.tasks}
    left = [replace(task, due=due) for task, due in dates.items() if due is not None]
    return Todo(ACCOUNT.projects, left, ACCOUNT.today, ACCOUNT.here)


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([("complete_task", {"task_id": "11"}), ("finish", {"answer": "done"})], [0, 1]),
        ([("delete_task", {"task_id": "11"}), ("finish", {"answer": "done"})], [0, 1]),  # leaves the same account
        ([("complete_task", {"task_id": "11"}), ("finish", {"answer": "ready"})], [0, 0]),
        ([("finish", {"answer": "done"})], [0]),
        ([("complete_task", {"task_id": i}) for i in ("11", "12")] + [("finish", {"answer": "done"})], [0, 0, 0]),
    ],
)
def test_a_change_needs_the_word_and_the_account(calls, said):
    env = begun(TodoEnvironment(), begins=ACCOUNT, answer="done", ends=changed(t11=None))
    assert rewards(env, *calls) == said


def test_a_right_answer_is_lost_where_the_account_was_changed():
    env = begun(TodoEnvironment(), begins=ACCOUNT, answer="2021-03-02", ends=ACCOUNT)
    calls = [("get_user_current_date", {}), ("delete_task", {"task_id": "12"}), ("finish", {"answer": "2021-03-02"})]
    assert rewards(env, *calls) == [1, 0, -1]
    assert ACCOUNT.tasks[1].content == "Wash"  # the goal's own account is as it was


def test_moved_tasks_have_to_be_where_they_should():
    env = begun(TodoEnvironment(), begins=ACCOUNT, answer="done", ends=changed(t12="2021-04-01"))
    wrong = ("update_task", {"task_id": "12", "due_date": "2021-05-01"})
    right = ("update_task", {"task_id": "12", "due_date": "2021-04-01"})
    assert rewards(env, wrong, right, ("finish", {"answer": "done"})) == [0, 0, 1]


TABLE = Grid((("A", "B"), ("1", "9"), ("2", "8"), ("3", "7")))


@pytest.mark.parametrize(
    ("target", "share", "overlap"),
    [
        ([["A", "B"], ["1", "9"], ["2", "8"], ["3", "7"]], 1, 1),
        ([["A", "B"], ["3", "7"], ["2", "8"], ["1", "9"]], 4 / 8, 4 / 8),
        ([["A", "B"], ["1", "9"], ["2", "8"]], 6 / 8, 1),  # a row too many does not count, as published
        ([["A", "B"], ["1", "9"], ["2", "8"], ["3", "7"], ["4", "6"]], 8 / 10, 1),  # nor one too few
        ([["A", "B", "C"], ["1", "9", ""], ["2", "8", ""], ["3", "7", ""]], 8 / 12, 1),
        ([], 0, 0),
    ],
)
def test_shares_of_cells(target, share, overlap):
    assert share_of_cells(TABLE.values(), target) == share
    assert share_of_cells(TABLE.values(), target, is_overlap=True) == overlap


def test_a_sheet_is_rewarded_by_its_best_state():
    begins = Sheet({"Sheet1": TABLE, "Sheet2": TABLE.sorted(1, False)})
    ends = Sheet({"Sheet1": TABLE.sorted(0, True)}, "Sheet1")
    env = begun(SheetEnvironment(), begins=begins, ends=ends)
    said = rewards(
        env,
        ("get_all_values", {}),  # nothing is open
        ("open_sheet", {"name": "Sheet1"}),  # the header and the row in the middle: 4 of 8
        ("update_cell", {"position": "A2", "value": 3}),  # 5 of 8
        ("update_cell", {"position": "A1", "value": "X"}),  # 4 of 8
        ("sort_sheet_by_col", {"col_num": 2, "order": "asc"}),  # B is right, A has X, 3, 2, 3: 6 of 8
        ("finish", {}),
    )
    assert said == [0, 0.5, 0.125, 0, 0.125, 0]
    assert env.has_ended


def test_settings_that_are_none_are_refused():
    with pytest.raises(EnvError, match="subgoals is 'some'; choose one of: answer, calls"):
        WeatherEnvironment(subgoals="some")
    with pytest.raises(EnvError, match=r"todo\.jsonl"):
        TodoEnvironment(published="/nowhere")


# Answers, found in the contents without any call


def goals_of(name, kind):
    info = ENVIRONMENTS.get(name)
    env = info.make()
    for item in range(300):
        if info.group(item) == kind:
            goal = env.find(item)
            yield next(k for k in env.family.kinds if k.name == kind).fields(goal.text), goal.begins, goal.answer


def test_answers_of_weather():
    for fields, service, answer in goals_of("weather", "sum of rain"):
        place = next(place for place in service.places if place.name == fields["place"])
        days = [service.day(place, service.today - timedelta(days=n + 1)) for n in range(int(fields["count"]))]
        assert answer == pytest.approx(sum(day.rain for day in days), abs=0.051)
    for _, service, answer in goals_of("weather", "yesterday here"):
        place = next(place for place in service.places if place.name == service.here)
        assert answer == service.day(place, service.today - timedelta(days=1)).mean
    days = [service.day(place, service.today) for _, service, _ in goals_of("weather", "elevation") for place in
            service.places]  # fmt: skip
    assert all(day.lowest < day.mean < day.highest and not (day.rain and day.snow) for day in days)


def test_answers_of_movie():
    for fields, service, answer in goals_of("movie", "birthplace"):
        film = next(film for film in service.films.values() if film.title == fields["film"])
        director = next(id for id, job in film.crew if job == "Director")
        assert answer == service.persons[str(director)].place
    for fields, service, answer in goals_of("movie", "films directed"):
        id = next(person.id for person in service.persons.values() if person.name == fields["person"])
        assert answer == sum((id, "Director") in film.crew for film in service.films.values()) > 0


def test_answers_of_academia():
    for fields, service, answer in goals_of("academia", "mutual collaborators"):
        pair = {fields["author"], fields["other"]}
        others = {
            one: {name for paper in service.papers.values() if one in paper.authors for name in paper.authors}
            for one in pair
        }
        assert answer == len(set.intersection(*others.values()) - pair)
    for fields, service, answer in goals_of("academia", "common citations"):
        papers = [p for p in service.papers.values() if {fields["author"], fields["other"]} <= set(p.authors)]
        assert answer == sum(paper.num_citations for paper in papers)


def test_answers_of_todo():
    for fields, service, answer in goals_of("todo", "due before"):
        id = next(project.id for project in service.projects if project.name == fields["project"])
        tasks = [task.content for task in service.tasks if task.project_id == id and task.due < fields["day"]]
        assert answer == sorted(tasks)
    for _, service, answer in goals_of("todo", "count"):
        assert answer == len(service.tasks)
