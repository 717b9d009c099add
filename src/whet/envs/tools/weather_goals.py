"""Goals of weather: what is asked, and which calls answer it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from datetime import date, timedelta
from random import Random
from typing import Any

from whet.envs.protocol import EnvironmentInfo
from whet.envs.tools.environment import Subgoals, ToolEnvironment, environment_info
from whet.envs.tools.goals import Family, Fields, Kind, Solver, Step, Unfit
from whet.envs.tools.weather import NEAR_KM, Weather, distance_km, make_weather

Asked = Generator[Step, Any, Any]


def _ask(thought: str, name: str, **arguments: Any) -> Asked:
    return (yield thought, name, arguments)


def _today() -> Generator[Step, Any, date]:
    return date.fromisoformat((yield "I need to know which day it is today.", "get_user_current_date", {}))


def _here() -> Asked:
    return (yield "I need to know where the user is.", "get_user_current_location", {})


def _where(name: str) -> Generator[Step, Any, dict[str, float]]:
    found = yield f"I look up the coordinates of {name}.", "get_latitude_longitude", {"name": name}
    first = found["results"][0]
    return {"latitude": first["latitude"], "longitude": first["longitude"]}


def _days(tool: str, where: Mapping[str, float], start: date, end: date) -> Generator[Step, Any, dict[str, list[Any]]]:
    span = {**where, "start_date": start.isoformat(), "end_date": end.isoformat()}
    found = yield f"I ask for the days from {start} to {end}.", tool, span
    return found["daily"]


def _yes(is_so: bool) -> str:
    return "Yes" if is_so else "No"


def _only(values: Sequence[Any], best: Any) -> int:
    """The place of a value that stands in a list once."""
    if values.count(best) != 1:
        raise Unfit
    return values.index(best)


def _level(fields: Fields) -> Solver:
    index = float(fields["index"])
    return (yield from _ask("I ask for the level of this index.", "get_air_quality_level", air_quality_index=index))


def _elevation(fields: Fields) -> Solver:
    where = yield from _where(fields["place"])
    found = yield from _ask(f"I ask how high {fields['place']} lies.", "get_elevation", **where)
    return found["elevation"][0]


def _distance(fields: Fields) -> Solver:
    one = yield from _where(fields["place"])
    other = yield from _where(fields["other"])
    return (yield from _far(one, other))


def _far(one: Mapping[str, float], other: Mapping[str, float]) -> Asked:
    points = {f"{name}1": value for name, value in one.items()} | {f"{name}2": value for name, value in other.items()}
    return (yield from _ask("I ask how far the two are apart.", "get_distance", **points))


def _past_highest(fields: Fields) -> Solver:
    where = yield from _where(fields["place"])
    when = date.fromisoformat(fields["day"])
    daily = yield from _days("get_historical_temp", where, when, when)
    return daily["temperature_2m_max"][0]


def _yesterday(fields: Fields) -> Solver:
    where = yield from _where((yield from _here()))
    when = (yield from _today()) - timedelta(days=1)
    daily = yield from _days("get_historical_temp", where, when, when)
    return daily["temperature_2m_mean"][0]


def _warmer(fields: Fields) -> Solver:
    here = yield from _where((yield from _here()))
    there = yield from _where(fields["place"])
    when = (yield from _today()) + timedelta(days=1)
    ours = yield from _days("get_temp_forecast", here, when, when)
    theirs = yield from _days("get_temp_forecast", there, when, when)
    one, other = theirs["temperature_2m_mean"][0], ours["temperature_2m_mean"][0]
    if one == other or here == there:
        raise Unfit
    return _yes(one > other)


def _rain_so_far(fields: Fields) -> Solver:
    today = yield from _today()
    where = yield from _where(fields["place"])
    first = today - timedelta(days=int(fields["count"]))
    daily = yield from _days("get_historical_rain", where, first, today - timedelta(days=1))
    return round(sum(daily["rain_sum"]), 1)


def _hottest(fields: Fields) -> Solver:
    where = yield from _where(fields["place"])
    first, last = date.fromisoformat(fields["first"]), date.fromisoformat(fields["last"])
    daily = yield from _days("get_historical_temp", where, first, last)
    highest = daily["temperature_2m_max"]
    return daily["time"][_only(highest, max(highest))]


def _air_today(fields: Fields) -> Solver:
    where = yield from _where((yield from _here()))
    today = yield from _today()
    thought = "I ask for the index of the air today."
    found = yield from _ask(thought, "get_current_air_quality_index", **where, current_date=today.isoformat())
    index = found["daily"]["european_aqi_pm2_5"][0]
    return (yield from _ask("I ask for the level of this index.", "get_air_quality_level", air_quality_index=index))


def _snow_days(fields: Fields) -> Solver:
    where = yield from _where(fields["place"])
    first, last = date.fromisoformat(fields["first"]), date.fromisoformat(fields["last"])
    daily = yield from _days("get_historical_snow", where, first, last)
    count = sum(amount > 0 for amount in daily["snowfall_sum"])
    if not count:
        raise Unfit
    return count


def _rainy_days(fields: Fields) -> Solver:
    today = yield from _today()
    where = yield from _where(fields["place"])
    last = today + timedelta(days=int(fields["count"]))
    daily = yield from _days("get_rain_forecast", where, today + timedelta(days=1), last)
    rainy = [when for when, amount in zip(daily["time"], daily["rain_sum"], strict=True) if amount > 0]
    if not rainy:
        raise Unfit
    return rainy


def _umbrella(fields: Fields) -> Solver:
    where = yield from _where(fields["place"])
    today = yield from _today()
    thought = f"I ask for the rain in {fields['place']} today."
    found = yield from _ask(thought, "get_current_rain", **where, current_date=today.isoformat())
    return _yes(found["daily"]["rain_sum"][0] > 0)


def _nothing(weather: Weather, random: Random) -> Fields:
    return {}


def _index(weather: Weather, random: Random) -> Fields:
    return {"index": str(random.randrange(3, 130))}


def _place(weather: Weather, random: Random) -> Fields:
    return {"place": random.choice(weather.names)}


def _two_places(weather: Weather, random: Random) -> Fields:
    one, other = random.sample(weather.names, 2)
    return {"place": one, "other": other}


def _another_place(weather: Weather, random: Random) -> Fields:
    return {"place": random.choice([name for name in weather.names if name != weather.here])}


def _past_day(weather: Weather, random: Random) -> Fields:
    when = weather.today - timedelta(days=random.randrange(2, 300))
    return {**_place(weather, random), "day": when.isoformat()}


def _some_days(weather: Weather, random: Random) -> Fields:
    return {**_place(weather, random), "count": str(random.randrange(3, 15))}


def _past_span(weather: Weather, random: Random) -> Fields:
    last = weather.today - timedelta(days=random.randrange(1, 200))
    first = last - timedelta(days=random.randrange(3, 12))
    return {**_place(weather, random), "first": first.isoformat(), "last": last.isoformat()}


KINDS = (
    Kind(
        "air quality level",
        "The index of the air's quality is {index}. What level is that? Answer with the level as a text.",
        _index,
        _level,
    ),
    Kind(
        "elevation",
        "How high does {place} lie, in metres? Answer with a number.",
        _place,
        _elevation,
    ),
    Kind(
        "distance",
        "How far is it from {place} to {other}, in kilometres? Answer with a number, with all its digits.",
        _two_places,
        _distance,
    ),
    Kind(
        "past temperature",
        "What was the highest temperature in {place} on {day}, in degrees Celsius? Answer with a number.",
        _past_day,
        _past_highest,
    ),
    Kind(
        "yesterday here",
        "What was the mean temperature here yesterday, in degrees Celsius? Answer with a number.",
        _nothing,
        _yesterday,
    ),
    Kind(
        "warmer tomorrow",
        "Will the mean temperature in {place} be higher than here tomorrow? Answer with 'Yes' or 'No'.",
        _another_place,
        _warmer,
    ),
    Kind(
        "sum of rain",
        "How much rain fell in {place} in the {count} days before today, in millimetres? Answer with a number, "
        "rounded to one digit after the point.",
        _some_days,
        _rain_so_far,
    ),
    Kind(
        "hottest day",
        "Which day from {first} to {last} had the highest temperature in {place}? Answer with a date, as YYYY-MM-DD.",
        _past_span,
        _hottest,
    ),
    Kind(
        "air here",
        "Of what level is the quality of the air here today? Answer with the level as a text.",
        _nothing,
        _air_today,
    ),
    Kind(
        "days of snow",
        "On how many days from {first} to {last} did it snow in {place}? Answer with a number.",
        _past_span,
        _snow_days,
    ),
    Kind(
        "days of rain",
        "On which of the next {count} days, from tomorrow on, will it rain in {place}? Answer with a list of dates, "
        "each as YYYY-MM-DD.",
        _some_days,
        _rainy_days,
    ),
    Kind(
        "rain today",
        "Does it rain in {place} today? Answer with 'Yes' or 'No'.",
        _place,
        _umbrella,
    ),
)
FAMILY = Family("weather", KINDS, make_weather)


class WeatherEnvironment(ToolEnvironment):
    """Questions about the weather. Any subgoal that is reached makes the reward 1, as in the published code."""

    family = FAMILY

    def __init__(self, *, subgoals: Subgoals = "answer", share: bool = False) -> None:
        """
        Args:
            subgoals: as of all environments of tools.
            share: whether the reward is the share of subgoals, as in the paper, and not 1 for any of them.
        """
        super().__init__(subgoals=subgoals)
        self._is_share = share

    def share(self) -> float:
        share = super().share()
        return share if self._is_share else float(share > 0)

    def same(self, subgoal: Any, result: Any) -> bool:
        """Coordinates less than 50 km apart are equal."""
        points = [
            (each["latitude"], each["longitude"])
            for each in (subgoal, result)
            if isinstance(each, dict) and {"latitude", "longitude"} <= set(each)
        ]
        if len(points) == 2 and distance_km(*points) < NEAR_KM:
            subgoal, result = ({**each, "latitude": 0, "longitude": 0} for each in (subgoal, result))
        return bool(subgoal == result)


WEATHER: EnvironmentInfo = environment_info(FAMILY, WeatherEnvironment, max_turns=10, item_id="weather")
