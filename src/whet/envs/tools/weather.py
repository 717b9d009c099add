"""Weather: questions about temperature, rain, snow, air and distances, answered by nineteen tools.

Places and their weather are invented: each has a climate, and each day is drawn from the place and the date.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from random import Random
from typing import Any, ClassVar

from whet.envs.tools.calls import Argument, Tool, ToolError
from whet.envs.tools.service import ANSWERING, VALID, Service
from whet.envs.tools.words import places
from whet.seeds import seed_of

MOST_DAYS = 30
NEAR_KM = 50.0
"""Coordinates nearer than this to a place are of it. Upstream takes such coordinates as equal, too."""
LEVELS = ((20, "good"), (40, "fair"), (60, "moderate"), (80, "poor"), (100, "very poor"))
COUNTRIES = ("AU", "BR", "CA", "DE", "ES", "FI", "IN", "JP", "KE", "NO", "PL", "US")

_LATITUDE = Argument("latitude", "number", "degrees north")
_LONGITUDE = Argument("longitude", "number", "degrees east")
_SPAN = (
    _LATITUDE,
    _LONGITUDE,
    Argument("start_date", "string", "the first day, YYYY-MM-DD"),
    Argument("end_date", "string", "the last day, YYYY-MM-DD; at most 30 days after the first"),
)
_DAY = (_LATITUDE, _LONGITUDE, Argument("current_date", "string", "today's date, YYYY-MM-DD"))
TOOLS = (
    Tool("get_user_current_date", "Today's date, as YYYY-MM-DD."),
    Tool("get_user_current_location", "The name of the place where the user is."),
    Tool("get_historical_temp", "Each past day's highest, lowest and mean temperature, in degrees Celsius.", _SPAN),
    Tool("get_historical_rain", "Each past day's rain, in millimetres.", _SPAN),
    Tool("get_historical_snow", "Each past day's snow, in centimetres.", _SPAN),
    Tool("get_snow_forecast", "Each coming day's snow, in centimetres.", _SPAN),
    Tool("get_current_snow", "Today's snow, in centimetres.", _DAY),
    Tool("get_current_temp", "Today's highest, lowest and mean temperature, in degrees Celsius.", _DAY),
    Tool("get_latitude_longitude", "The coordinates of a place, the best match first.", (
        Argument("name", "string", "the name of the place"),)),
    Tool("get_elevation", "How high a place lies, in metres.", (_LATITUDE, _LONGITUDE)),
    Tool("get_temp_forecast", "Each coming day's highest, lowest and mean temperature, in degrees Celsius.", _SPAN),
    Tool("get_rain_forecast", "Each coming day's rain, in millimetres.", _SPAN),
    Tool("get_current_rain", "Today's rain, in millimetres.", _DAY),
    Tool("get_distance", "The distance between two points, in kilometres.", (
        Argument("latitude1", "number", "of the first point"), Argument("longitude1", "number", "of the first point"),
        Argument("latitude2", "number", "of the second point"), Argument("longitude2", "number", "of the second point"),
    )),
    Tool("get_historical_air_quality_index", "Each past day's index of the air's quality (PM2.5).", _SPAN),
    Tool("get_current_air_quality_index", "Today's index of the air's quality (PM2.5).", _DAY),
    Tool("get_air_quality_level", "The level of an index: good, fair, moderate, poor, very poor or extremely poor.", (
        Argument("air_quality_index", "number", "the index"),)),
    VALID,
    ANSWERING,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """A place with its climate."""

    name: str
    latitude: float
    longitude: float
    country: str
    elevation: int
    seed: int
    """Of its days."""
    is_clear: bool
    """Whether the air is good."""


@dataclass(frozen=True, slots=True)
class Day:
    """The weather of a place on one day."""

    highest: float
    lowest: float
    mean: float
    rain: float
    snow: float
    air: int


class Weather(Service):
    """The service: places, today's date, and where the user is."""

    tools: ClassVar = TOOLS

    def __init__(self, places: Sequence[Place], today: date, here: str) -> None:
        self.places, self.today, self.here = tuple(places), today, here

    def day(self, place: Place, when: date) -> Day:
        """The weather of a day. It depends on the place and the date alone."""
        random = Random(seed_of(place.seed, when.toordinal()))
        season = math.cos(2 * math.pi * (when.timetuple().tm_yday - 196) / 365.25)  # warmest in the middle of July
        if place.latitude < 0:
            season = -season
        swing = 4 + abs(place.latitude) / 5
        mean = 27 - abs(place.latitude) / 2.5 - place.elevation / 160 + swing * season + random.gauss(0, 3)
        wet = random.random() < 0.45
        amount = round(random.expovariate(1 / 6) + 0.1, 1) if wet else 0.0
        return Day(
            highest=round(mean + random.uniform(2, 6), 1),
            lowest=round(mean - random.uniform(2, 6), 1),
            mean=round(mean, 1),
            rain=amount if mean > 0 else 0.0,
            snow=0.0 if mean > 0 else amount,
            air=random.randrange(4, 45) if place.is_clear else random.randrange(15, 130),
        )

    def get_user_current_date(self) -> str:
        return self.today.isoformat()

    def get_user_current_location(self) -> str:
        return self.here

    def get_latitude_longitude(self, name: str) -> dict[str, Any]:
        wanted = name.strip().casefold()
        found = [place for place in self.places if place.name.casefold() == wanted]
        if not found:
            raise ToolError(f"There is no place of the name {name[:60]!r}.")
        return {
            "results": [
                {
                    "name": place.name,
                    "latitude": place.latitude,
                    "longitude": place.longitude,
                    "country_code": place.country,
                }
                for place in found[:3]
            ]
        }

    def get_elevation(self, latitude: float, longitude: float) -> dict[str, Any]:
        return {"elevation": [float(self._place(latitude, longitude).elevation)]}

    def get_distance(self, latitude1: float, longitude1: float, latitude2: float, longitude2: float) -> float:
        return round(distance_km((latitude1, longitude1), (latitude2, longitude2)), 3)

    def get_air_quality_level(self, air_quality_index: float) -> str:
        return level_of(air_quality_index)

    def get_historical_temp(self, **asked: Any) -> dict[str, Any]:
        return self._temperatures(**asked, direction=-1)

    def get_temp_forecast(self, **asked: Any) -> dict[str, Any]:
        return self._temperatures(**asked, direction=1)

    def get_current_temp(self, latitude: float, longitude: float, current_date: str) -> dict[str, Any]:
        return self._temperatures(latitude, longitude, current_date, current_date)

    def get_historical_rain(self, **asked: Any) -> dict[str, Any]:
        return self._rain(**asked, direction=-1)

    def get_rain_forecast(self, **asked: Any) -> dict[str, Any]:
        return self._rain(**asked, direction=1)

    def get_current_rain(self, latitude: float, longitude: float, current_date: str) -> dict[str, Any]:
        return self._rain(latitude, longitude, current_date, current_date)

    def get_historical_snow(self, **asked: Any) -> dict[str, Any]:
        return self._snow(**asked, direction=-1)

    def get_snow_forecast(self, **asked: Any) -> dict[str, Any]:
        return self._snow(**asked, direction=1)

    def get_current_snow(self, latitude: float, longitude: float, current_date: str) -> dict[str, Any]:
        return self._snow(latitude, longitude, current_date, current_date)

    def get_historical_air_quality_index(self, **asked: Any) -> dict[str, Any]:
        return self._air(**asked, direction=-1)

    def get_current_air_quality_index(self, latitude: float, longitude: float, current_date: str) -> dict[str, Any]:
        return self._air(latitude, longitude, current_date, current_date)

    def _temperatures(self, *asked: Any, **more: Any) -> dict[str, Any]:
        columns: dict[str, tuple[str, Callable[[Day], Any]]] = {
            "temperature_2m_max": ("°C", lambda day: day.highest),
            "temperature_2m_min": ("°C", lambda day: day.lowest),
            "temperature_2m_mean": ("°C", lambda day: day.mean),
        }
        return self._daily(columns, *asked, **more)

    def _rain(self, *asked: Any, **more: Any) -> dict[str, Any]:
        return self._daily({"rain_sum": ("mm", lambda day: day.rain)}, *asked, **more)

    def _snow(self, *asked: Any, **more: Any) -> dict[str, Any]:
        return self._daily({"snowfall_sum": ("cm", lambda day: day.snow)}, *asked, **more)

    def _air(self, *asked: Any, **more: Any) -> dict[str, Any]:
        return self._daily({"european_aqi_pm2_5": ("EAQI", lambda day: day.air)}, *asked, **more)

    def _daily(
        self, columns: Mapping[str, tuple[str, Callable[[Day], Any]]], latitude: float, longitude: float,
        start_date: str, end_date: str, direction: int = 0,
    ) -> dict[str, Any]:  # fmt: skip
        """Columns of days, in the form of Open-Meteo.

        Args:
            direction: -1: only past days; 1: only coming ones; 0: any.
        """
        days = self._days(start_date, end_date, direction)
        place = self._place(latitude, longitude)
        weather = [self.day(place, when) for when in days]
        return {
            "latitude": place.latitude,
            "longitude": place.longitude,
            "daily_units": {"time": "iso8601", **{name: unit for name, (unit, _) in columns.items()}},
            "daily": {
                "time": [when.isoformat() for when in days],
                **{name: [read(day) for day in weather] for name, (_, read) in columns.items()},
            },
        }

    def _days(self, start_date: str, end_date: str, direction: int) -> list[date]:
        start, end = read_date(start_date), read_date(end_date)
        for name, when in (("start_date", start), ("end_date", end)):
            if direction < 0 and when >= self.today:
                raise ToolError(f"{name} has to be before today's date.")
            if direction > 0 and when <= self.today:
                raise ToolError(f"{name} has to be after today's date.")
        if end < start:
            raise ToolError("end_date has to be start_date or a later day.")
        if (end - start).days > MOST_DAYS:
            raise ToolError(f"end_date has to be at most {MOST_DAYS} days after start_date: ask in several calls.")
        return [start + timedelta(days=number) for number in range((end - start).days + 1)]

    def _place(self, latitude: float, longitude: float) -> Place:
        where = (latitude, longitude)
        place = min(self.places, key=lambda each: distance_km(where, (each.latitude, each.longitude)))
        if distance_km(where, (place.latitude, place.longitude)) > NEAR_KM:
            raise ToolError(f"There is no weather station within {NEAR_KM:.0f} km of {latitude}, {longitude}.")
        return place

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of places, each once."""
        return tuple(dict.fromkeys(place.name for place in self.places))


def read_date(text: str) -> date:
    """Raises: ToolError for another text than YYYY-MM-DD in the years 1900 to 2100."""
    try:
        when = date.fromisoformat(text.strip()) if len(text.strip()) == 10 else None
    except ValueError:
        when = None
    if when is None or not 1900 <= when.year <= 2100:
        raise ToolError(f"{text[:60]!r} is no date: write it as YYYY-MM-DD.")
    return when


def level_of(index: float) -> str:
    """The level of an index. Upstream's limits leave 20 to 21, 40 to 41 and so on as extremely poor; ours do not."""
    return next((level for limit, level in LEVELS if index <= limit), "extremely poor")


def distance_km(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Along the great circle of a sphere of 6,371 km."""
    latitude, other_latitude = math.radians(one[0]), math.radians(other[0])
    half = math.sin((other_latitude - latitude) / 2) ** 2
    half += math.cos(latitude) * math.cos(other_latitude) * math.sin(math.radians(other[1] - one[1]) / 2) ** 2
    return 2 * 6371 * math.asin(math.sqrt(min(1.0, max(0.0, half))))


def make_weather(random: Random) -> Weather:
    """Eight places, two of them of one name, today's date, and the user in one of them."""
    names = places(random, 7)
    found: list[Place] = []
    for name in [*names, names[0]]:
        found.append(
            Place(
                name=name,
                latitude=round(random.uniform(-55, 65), 5),
                longitude=round(random.uniform(-170, 170), 5),
                country=random.choice(COUNTRIES),
                elevation=random.choice((3, 12, 35, 80, 140, 260, 410, 655, 980, 1430)),
                seed=random.randrange(2**32),
                is_clear=random.random() < 0.5,
            )
        )
    today = date(2021, 1, 1) + timedelta(days=random.randrange(3 * 365))
    return Weather(found, today, random.choice(names))
