"""What the services answer, their errors, and the sheet's operations."""

from datetime import date

import pytest

from whet.envs.tools.academia import Academia, Paper
from whet.envs.tools.calls import ToolError
from whet.envs.tools.grid import Grid, box_of, name_of, position_of, result_of, shown
from whet.envs.tools.movie_goals import MovieEnvironment
from whet.envs.tools.sheet import Sheet
from whet.envs.tools.todo import Project, Task, Todo
from whet.envs.tools.weather import Place, Weather, distance_km, level_of

BERLIN = Place("Alt", 52.52, 13.405, "DE", 34, 1, True)
PARIS = Place("Bel", 48.8566, 2.3522, "FR", 35, 2, True)


@pytest.fixture
def weather():
    return Weather([BERLIN, PARIS], date(2021, 3, 10), "Alt")


def test_days_in_the_form_of_open_meteo(weather):
    span = {"latitude": 52.5, "longitude": 13.4, "start_date": "2021-03-08", "end_date": "2021-03-09"}
    answer = weather.call("get_historical_rain", span)
    days = [weather.day(BERLIN, date(2021, 3, day)) for day in (8, 9)]
    assert answer == {
        "latitude": 52.52,
        "longitude": 13.405,
        "daily_units": {"time": "iso8601", "rain_sum": "mm"},
        "daily": {"time": ["2021-03-08", "2021-03-09"], "rain_sum": [day.rain for day in days]},
    }
    assert weather.call("get_latitude_longitude", {"name": " alt"}) == {
        "results": [{"name": "Alt", "latitude": 52.52, "longitude": 13.405, "country_code": "DE"}]
    }


@pytest.mark.parametrize(
    ("tool", "changes", "says"),
    [
        ("get_historical_temp", {"end_date": "2021-03-10"}, "end_date has to be before today"),
        ("get_temp_forecast", {}, "start_date has to be after today"),
        ("get_historical_temp", {"start_date": "2021-02-01"}, "at most 30 days after"),
        ("get_historical_temp", {"start_date": "2021-03-09", "end_date": "2021-03-08"}, "or a later day"),
        ("get_historical_temp", {"start_date": "9.3.2021"}, "'9.3.2021' is no date"),
        ("get_historical_temp", {"latitude": 0}, "no weather station within 50 km of 0, 13.4"),
        ("get_current_temp", None, "is no date"),
    ],
)
def test_weather_that_cannot_be_asked_for(weather, tool, changes, says):
    span = {"latitude": 52.5, "longitude": 13.4, "start_date": "2021-03-07", "end_date": "2021-03-09"}
    today = {"latitude": 52.5, "longitude": 13.4, "current_date": "today"}
    with pytest.raises(ToolError, match=says):
        weather.call(tool, today if changes is None else {**span, **changes})


def test_distances_and_levels():
    berlin, paris = ((place.latitude, place.longitude) for place in (BERLIN, PARIS))
    assert distance_km(berlin, paris) == pytest.approx(877.5, abs=1)
    assert distance_km((0, 0), (0, 180)) == pytest.approx(3.14159 * 6371, rel=1e-4)
    levels = ["good", "fair", "moderate", "poor", "very poor", "extremely poor"]
    assert [level_of(index) for index in (20, 20.5, 60, 61, 100, 101)] == levels


def test_films_are_found_by_parts_of_their_titles():
    service = MovieEnvironment().find(0).begins
    film = next(iter(service.films.values()))
    title = film.title
    assert service.get_search_movie(title.upper())[0]["id"] == film.id
    assert service.get_search_movie(title[4:-1])[0]["title"] == title
    assert service.get_search_person("Nobody At All") == []
    with pytest.raises(ToolError, match="No film is found"):
        service.get_search_movie("")
    details = service.get_movie_details(str(film.id))
    assert list(details) == ["title", "budget", "genres", "revenue", "vote_average", "release_date"]
    for id, role in film.cast:
        cast = service.get_person_cast(str(id))["cast"]
        assert {"id": film.id, "title": title, "character": role} in cast


def test_nets_are_loaded_first():
    papers = [
        Paper("Old", ("Ann", "Bob"), 1990, "V", 3, (), "Journal", ()),
        Paper("New", ("Ann",), 1999, "V", 1, (), "Journal", ("Old",)),
    ]
    service = Academia(papers, {"Ann": "X", "Bob": "Y", "Cay": "X"})
    with pytest.raises(ToolError, match="Please load the PaperNet first"):
        service.call("paperNodeCheck", {"node": "Old"})
    before = service.state()
    other = service.copy()
    assert service.call("loadPaperNet", {}) == "PaperNet is loaded."
    assert (service.state() == before, other.state() == before) == (False, True)
    assert service.call("neighbourCheck", {"graph": "PaperNet", "node": "New"}) == ["Old"]
    assert service.call("paperEdgeCheck", {"node1": "Old", "node2": "New"}) == {}
    with pytest.raises(ToolError, match="no node named Young in the PaperNet"):
        service.call("paperNodeCheck", {"node": "Young"})
    service.call("loadAuthorNet", {})
    assert service.call("neighbourCheck", {"graph": "AuthorNet", "node": "Ann"}) == ["Bob"]
    assert service.call("authorEdgeCheck", {"node1": "Bob", "node2": "Ann"}) == {"collaborative_papers": ["Old"]}
    with pytest.raises(ToolError, match="no edge between Ann and Cay"):
        service.call("authorEdgeCheck", {"node1": "Ann", "node2": "Cay"})


def test_an_account_is_changed_by_calls_alone():
    task = Task("5", "1", 1, "Sweep", "- Place: Attic", "2021-03-01", 30, 2)
    service = Todo([Project("1", 1, "Home")], [task], "2021-03-02", "Here")
    shown = {"id": "5", "order": 1, "content": "Sweep", "is_completed": False, "priority": 2, "due_date": "2021-03-01"}
    assert service.call("get_tasks", {"project_id": "1"}) == [shown]
    assert service.call("get_task_duration", {"task_id": "5"})["duration"] == "30(minute)"
    assert service.call("update_project", {"project_id": "1", "is_favorite": "True"})["project"]["is_favorite"] is True
    assert service.call("update_task", {"task_id": "5", "due_date": "2021-04-01"})["task"]["due_date"] == "2021-04-01"
    assert "is_completed" not in service.call("complete_task", {"task_id": "5"})["task"]
    assert service.status() == {
        "projects": [{"order": 1, "color": "charcoal", "name": "Home", "is_favorite": True}],
        "tasks": [],
    }
    for tool, arguments in (("complete_task", {"task_id": "5"}), ("get_tasks", {"project_id": "9"})):
        with pytest.raises(ToolError, match="There is no"):
            service.call(tool, arguments)
    with pytest.raises(ToolError, match="write True or False"):
        service.call("update_project", {"project_id": "1", "is_favorite": "maybe"})


# Sheets

GRID = Grid((("Name", "Kind", "Number"), ("b", "x", "10"), ("a", "y", "9"), ("c", "x", "")), notes=(((1, 0), "first"),))


@pytest.fixture
def sheet():
    return Sheet({"S": GRID, "T": GRID}, "S")


@pytest.mark.parametrize(
    ("tool", "arguments", "rows"),
    [
        ("sort_sheet_by_col", {"col_num": 1, "order": "asc"}, ["a y 9", "b x 10", "c x "]),
        ("sort_sheet_by_col", {"col_num": 3, "order": "asc"}, ["a y 9", "b x 10", "c x "]),  # numbers, not texts
        ("sort_sheet_by_col", {"col_num": 3, "order": "des"}, ["b x 10", "a y 9", "c x "]),  # what is empty stays last
        ("sort_sheet_by_col", {"col_num": 2, "order": "des"}, ["a y 9", "b x 10", "c x "]),  # equal ones stay
        ("delete_batch_data", {"dimension": "row", "index_list": [2, "4"]}, ["a y 9"]),
        ("insert_rows", {"values_list": [["d", 1.50]], "row_idx": 2}, ["d 1.5 ", "b x 10", "a y 9", "c x "]),
        ("update_cell", {"position": "C4", "value": "8.0"}, ["b x 10", "a y 9", "c x 8"]),
        ("update_range", {"start_position": "B2", "end_position": "C3", "values_list": [[1, 2], [3]]},
         ["b 1 2", "a 3 9", "c x "]),
        ("merge_cells", {"start_position": "A2", "end_position": "A4"}, ["b x 10", "b y 9", "b x "]),
        ("update_cell_by_formula", {"position_list": ["C2", "C3"], "result_position": "C4", "operator": "MINUS"},
         ["b x 10", "a y 9", "c x 1"]),
        ("update_cell_by_formula", {"start_position": "C2", "end_position": "C4", "result_position": "C4",
                                    "operator": "AVERAGE"}, ["b x 10", "a y 9", "c x 9.5"]),
    ],
)  # fmt: skip
def test_changes_of_a_sheet(sheet, tool, arguments, rows):
    assert [" ".join(row) for row in sheet.call(tool, arguments)[1:]] == rows
    assert sheet.sheets["T"] == GRID


def test_notes_go_with_their_cells(sheet):
    sheet.call("sort_sheet_by_col", {"col_num": 1, "order": "asc"})
    assert sheet.call("get_note", {"position": "A3"}) == "first"
    sheet.call("insert_cols", {"values_list": [["New", 1, 2]], "col_idx": 1})
    assert sheet.call("get_note", {"position": "B3"}) == "first"
    assert [row[0] for row in sheet.call("get_all_values", {})] == ["New", "1", "2", ""]
    sheet.call("delete_batch_data", {"dimension": "row", "index_list": [2]})
    assert sheet.call("get_note", {"position": "B2"}) == "first"
    sheet.call("delete_batch_data", {"dimension": "row", "index_list": [2]})
    assert sheet.call("get_note", {"position": "B2"}) == ""


def test_frozen_rows_stay(sheet):
    sheet.call("freeze_data", {"dimension": "rows", "num": 2})
    rows = sheet.call("sort_sheet_by_col", {"col_num": 1, "order": "asc"})
    assert [row[0] for row in rows] == ["Name", "b", "a", "c"]
    sheet.call("freeze_data", {"dimension": "rows", "num": 0})
    rows = sheet.call("sort_sheet_by_col", {"col_num": 1, "order": "des"})
    assert [row[0] for row in rows] == ["Name", "c", "b", "a"]  # the header is sorted in: n is after c


@pytest.mark.parametrize(
    ("query", "more", "cells"),
    [
        ("x", {}, ["B2", "B4"]),
        ("x", {"in_row": 4}, ["B4"]),
        ("a", {"in_column": 1}, ["A1", "A3"]),
        ("^[0-9]+$", {}, ["C2", "C3"]),
        ("re.compile('9|[1]\\\\d')", {}, ["C3"]),
    ],
)
def test_cells_are_found(sheet, query, more, cells):
    assert sheet.call("filter_cells", {"query": query, **more}) == cells


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("filter_cells", {"query": "(a+)+$"}, "without groups"),
        ("filter_cells", {"query": ".*.*.*x"}, "two repetitions"),
        ("filter_cells", {"query": "["}, "no regular expression"),
        ("open_sheet", {"name": "U"}, "no sheet 'U'"),
        ("delete_batch_data", {"dimension": "row", "index_list": [2, 3, 4]}, "cannot be deleted at once"),
        ("delete_batch_data", {"dimension": "row", "index_list": [9]}, "whole numbers from 1 to 4"),
        ("delete_batch_data", {"dimension": "line", "index_list": [2]}, "row or col"),
        ("update_cell", {"position": "AA1", "value": 1}, "'AA1' is no cell"),
        ("update_cell", {"position": "A1", "value": [1]}, "a text or a number"),
        ("update_range", {"start_position": "A1", "end_position": "A1", "values_list": [[1, 2]]}, "larger than"),
        ("update_range", {"start_position": "A1", "end_position": "C4", "values_list": [[1]]}, "cannot be set at once"),
        ("update_range", {"start_position": "B2", "end_position": "A1", "values_list": [[1]]}, "is no range"),
        ("insert_rows", {"values_list": [1], "row_idx": 2}, "a list of lists"),
        ("insert_rows", {"values_list": [[1]] * 200, "row_idx": 2}, "at most 200 rows"),
        ("sort_sheet_by_col", {"col_num": 4, "order": "asc"}, "1 to 3"),
        ("sort_sheet_by_col", {"col_num": 1, "order": "up"}, "asc or des"),
        ("get_value_by_formula", {"operator": "POWER"}, "POWER"),
        ("get_value_by_formula", {"operator": "MINUS", "position_list": ["C2"]}, "two cells"),
        ("update_cell", {"position": "A1", "value": "x" * 501}, "at most 500 characters"),
        ("insert_rows", {"values_list": [["x" * 500] * 26] * 2, "row_idx": 2}, "at most 20,000 characters"),
    ],
)
def test_what_a_sheet_refuses(sheet, tool, arguments, says):
    before = sheet.state()
    with pytest.raises(ToolError, match=says):
        sheet.call(tool, arguments)
    assert sheet.state() == before


def test_nothing_is_done_before_a_sheet_is_open():
    service = Sheet({"S": GRID})
    with pytest.raises(ToolError, match="Please open a sheet before operating it"):
        service.call("get_all_values", {})
    assert service.call("finish", {}) == "Please open a sheet before operating it"
    service.call("open_sheet", {"name": "S"})
    with pytest.raises(ToolError, match="only one"):
        service.call("del_sheet", {"name": "S"})


def test_cells_formulas_and_numbers():
    assert [position_of(text) for text in ("A1", "C12")] == [(0, 0), (11, 2)]
    assert [name_of(at) for at in ((0, 0), (11, 2))] == ["A1", "C12"]
    assert box_of("A1", "B2") == ((0, 0), (1, 1))
    cells = ["3", "x", "4.5", ""]
    found = {operator: result_of(operator, cells) for operator in ("SUM", "COUNT", "MAX", "MIN", "PRODUCT", "AVERAGE")}
    assert found == {"SUM": "7.5", "COUNT": "2", "MAX": "4.5", "MIN": "3", "PRODUCT": "13.5", "AVERAGE": "3.75"}
    assert [shown(value) for value in (8, 8.0, "0.40", "-0", None, True, "8 kg")] == [
        "8", "8", "0.4", "0", "", "TRUE", "8 kg",
    ]  # fmt: skip
