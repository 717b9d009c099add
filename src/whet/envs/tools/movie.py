"""Movie: questions about films and the people in them, answered by sixteen tools. All of both is invented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Any, ClassVar

from whet.envs.tools.calls import Argument, Tool, ToolError
from whet.envs.tools.service import ANSWERING, VALID, Service
from whet.envs.tools.words import pairs, people, places

MOST_CREDITS = 10
_MOVIE = (Argument("movie_id", "string", "the film's id, as the search gives it"),)
_PERSON = (Argument("person_id", "string", "the person's id, as a search or a list of credits gives it"),)
TOOLS = (
    Tool("get_search_movie", "The film that fits a title best: its id, overview and title.", (
        Argument("movie_name", "string", "the title"),)),
    Tool("get_movie_details", "A film's budget, genres, revenue, average vote and date of release.", _MOVIE),
    Tool("get_movie_production_companies", "The companies that made a film.", _MOVIE),
    Tool("get_movie_production_countries", "The countries where a film was made.", _MOVIE),
    Tool("get_movie_cast", "The first ten actors of a film, with their roles.", _MOVIE),
    Tool("get_movie_crew", "Ten of a film's crew, director, producers and writers first.", _MOVIE),
    Tool("get_movie_keywords", "A film's keywords.", _MOVIE),
    Tool("get_search_person", "The person that fits a name best: id and name.", (
        Argument("person_name", "string", "the name"),)),
    Tool("get_person_details", "A person's biography, birthday and place of birth.", _PERSON),
    Tool("get_person_cast", "Ten films in which a person acted, with the roles.", _PERSON),
    Tool("get_person_crew", "Ten films on which a person worked, with the jobs.", _PERSON),
    Tool("get_person_external_ids", "A person's ids on IMDB, Facebook, Instagram and Twitter.", _PERSON),
    Tool("get_movie_alternative_titles", "A film's titles in other countries.", _MOVIE),
    Tool("get_movie_translation", "A film's overview in other languages.", _MOVIE),
    VALID,
    ANSWERING,
)  # fmt: skip

_QUALITIES = (
    "Amber",
    "Broken",
    "Crimson",
    "Distant",
    "Empty",
    "Falling",
    "Golden",
    "Hidden",
    "Iron",
    "Last",
    "Quiet",
    "Second",
)
_THINGS = (
    "Bridge",
    "Circle",
    "Garden",
    "Harbour",
    "Journey",
    "Lantern",
    "Mirror",
    "Orchard",
    "River",
    "Signal",
    "Tower",
    "Winter",
)
_GENRES = ("Action", "Adventure", "Animation", "Comedy", "Crime", "Drama", "Family", "Mystery", "Romance", "Thriller")
_KEYWORDS = (
    "friendship",
    "heist",
    "island",
    "journey",
    "lighthouse",
    "memory",
    "music",
    "rivalry",
    "school",
    "village",
)
_COMPANIES = ("Bluegate", "Fernhill", "Highwater", "Lindenhof", "Morning Star", "Northlight", "Redwing", "Silverline")
_COUNTRIES = (
    ("CA", "Canada"),
    ("DE", "Germany"),
    ("ES", "Spain"),
    ("JP", "Japan"),
    ("PL", "Poland"),
    ("US", "United States"),
)
_LANGUAGES = (
    ("DE", "de", "Deutsch", "German"),
    ("JP", "ja", "日本語", "Japanese"),
    ("NL", "nl", "Nederlands", "Dutch"),
)
_ROLES = ("the baker", "the captain", "the clerk", "the doctor", "the farmer", "the guard", "the pilot", "the teacher")
_MAIN_JOBS = ("Director", "Producer", "Writer")
_JOBS = (*_MAIN_JOBS, "Editor", "Composer")


@dataclass(frozen=True, slots=True)
class Film:
    """A film with its credits: an id of a person, and the role or job."""

    id: int
    title: str
    budget: int
    revenue: int
    vote: float
    released: date
    genres: tuple[int, ...]
    """Places in the list of genres."""
    companies: tuple[int, ...]
    countries: tuple[int, ...]
    keywords: tuple[str, ...]
    cast: tuple[tuple[int, str], ...]
    crew: tuple[tuple[int, str], ...]
    other_title: str


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who acted in films or made some."""

    id: int
    name: str
    born: date
    place: str


class Movie(Service):
    """The service. Nothing in it changes."""

    tools: ClassVar = TOOLS

    def __init__(self, films: Sequence[Film], persons: Sequence[Person]) -> None:
        self.films: Mapping[str, Film] = {str(film.id): film for film in films}
        self.persons: Mapping[str, Person] = {str(person.id): person for person in persons}

    def get_search_movie(self, movie_name: str) -> list[dict[str, Any]]:
        film = _best(movie_name, {film.title: film for film in self.films.values()})
        if film is None:
            raise ToolError(f"No film is found for {movie_name[:60]!r}.")
        return [{"id": film.id, "overview": overview(film), "title": film.title}]

    def get_movie_details(self, movie_id: str) -> dict[str, Any]:
        film = self._film(movie_id)
        return {
            "title": film.title,
            "budget": film.budget,
            "genres": [{"id": 10 + number, "name": _GENRES[number]} for number in film.genres],
            "revenue": film.revenue,
            "vote_average": film.vote,
            "release_date": film.released.isoformat(),
        }

    def get_movie_production_companies(self, movie_id: str) -> dict[str, Any]:
        numbers = self._film(movie_id).companies
        return {"production_companies": [{"id": 900 + n, "name": f"{_COMPANIES[n]} Pictures"} for n in numbers]}

    def get_movie_production_countries(self, movie_id: str) -> dict[str, Any]:
        countries = [_COUNTRIES[number] for number in self._film(movie_id).countries]
        return {"production_countries": [{"iso_3166_1": code, "name": name} for code, name in countries]}

    def get_movie_cast(self, movie_id: str) -> dict[str, Any]:
        cast = self._film(movie_id).cast[:MOST_CREDITS]
        return {"cast": [{"id": id, "name": self._name(id), "character": role} for id, role in cast]}

    def get_movie_crew(self, movie_id: str) -> dict[str, Any]:
        crew = sorted(self._film(movie_id).crew, key=lambda credit: credit[1] not in _MAIN_JOBS)[:MOST_CREDITS]
        return {"crew": [{"id": id, "name": self._name(id), "job": job} for id, job in crew]}

    def get_movie_keywords(self, movie_id: str) -> dict[str, Any]:
        return {"keywords": list(self._film(movie_id).keywords)}

    def get_search_person(self, person_name: str) -> list[dict[str, Any]]:
        person = _best(person_name, {person.name: person for person in self.persons.values()})
        return [] if person is None else [{"id": person.id, "name": person.name}]

    def get_person_details(self, person_id: str) -> dict[str, Any]:
        person = self._person(person_id)
        return {
            "name": person.name,
            "biography": f"{person.name} grew up in {person.place} and has worked on films since.",
            "birthday": person.born.isoformat(),
            "place_of_birth": person.place,
        }

    def get_person_cast(self, person_id: str) -> dict[str, Any]:
        id = self._person(person_id).id
        credits = [(film, role) for film in self.films.values() for other, role in film.cast if other == id]
        return {"cast": [{"id": f.id, "title": f.title, "character": role} for f, role in credits[:MOST_CREDITS]]}

    def get_person_crew(self, person_id: str) -> dict[str, Any]:
        id = self._person(person_id).id
        credits = [(film, job) for film in self.films.values() for other, job in film.crew if other == id]
        return {"crew": [{"id": f.id, "title": f.title, "job": job} for f, job in credits[:MOST_CREDITS]]}

    def get_person_external_ids(self, person_id: str) -> dict[str, Any]:
        person = self._person(person_id)
        handle = person.name.casefold().replace(" ", "")
        return {
            "imdb_id": f"nm{person.id:07d}",
            "facebook_id": f"{handle}.official",
            "instagram_id": f"the{handle}",
            "twitter_id": f"{handle}{person.born.year % 100:02d}",
        }

    def get_movie_alternative_titles(self, movie_id: str) -> dict[str, Any]:
        film = self._film(movie_id)
        return {"id": film.id, "titles": [{"iso_3166_1": "GB", "title": film.other_title, "type": ""}]}

    def get_movie_translation(self, movie_id: str) -> dict[str, Any]:
        film = self._film(movie_id)
        translations = [
            {
                "iso_3166_1": country,
                "iso_639_1": code,
                "name": name,
                "english_name": english,
                "data": {"overview": f"[{english}] {overview(film)}"},
            }
            for country, code, name, english in _LANGUAGES
        ]
        return {"id": film.id, "translations": translations}

    def _film(self, id: str) -> Film:
        if id not in self.films:
            raise ToolError(f"No film has the id {id[:60]!r}.")
        return self.films[id]

    def _person(self, id: str) -> Person:
        if id not in self.persons:
            raise ToolError(f"No person has the id {id[:60]!r}.")
        return self.persons[id]

    def _name(self, id: int) -> str:
        return self.persons[str(id)].name


def _best(wanted: str, entries: Mapping[str, Any]) -> Any:
    """The entry of this name; else the first one whose name holds the wanted text."""
    wanted = wanted.strip().casefold()
    names = {name.casefold(): entry for name, entry in entries.items()}
    if not wanted or wanted in names:
        return names.get(wanted)
    return next((entry for name, entry in names.items() if wanted in name), None)


def overview(film: Film) -> str:
    """What a film is about."""
    return f"A {_GENRES[film.genres[0]].lower()} film about {' and '.join(film.keywords)}."


def make_movie(random: Random) -> Movie:
    """Eight films and fourteen people."""
    names, towns = people(random, 14), places(random, 14)
    ids = random.sample(range(1000, 99999), 14)
    persons = [
        Person(
            id,
            name,
            date(1940, 1, 1) + timedelta(days=random.randrange(20000)),
            f"{town}, {random.choice(_COUNTRIES)[1]}",
        )
        for id, name, town in zip(ids, names, towns, strict=True)
    ]
    titles = pairs(random, _QUALITIES, _THINGS, 16)
    films = [_film_of(random, ids, title, other) for title, other in zip(titles[:8], titles[8:], strict=True)]
    return Movie(films, persons)


def _film_of(random: Random, ids: Sequence[int], title: str, other: str) -> Film:
    budget = random.randrange(1, 200) * 1_000_000
    crew = random.sample(ids, 4)
    return Film(
        id=random.randrange(100_000, 999_999),
        title=f"The {title}",
        budget=budget,
        revenue=round(budget * random.uniform(0.2, 4)),
        vote=random.randrange(350, 900) / 100,
        released=date(1990, 1, 1) + timedelta(days=random.randrange(12000)),
        genres=tuple(sorted(random.sample(range(len(_GENRES)), random.randrange(1, 4)))),
        companies=tuple(sorted(random.sample(range(len(_COMPANIES)), random.randrange(1, 4)))),
        countries=tuple(sorted(random.sample(range(len(_COUNTRIES)), random.randrange(1, 3)))),
        keywords=tuple(sorted(random.sample(_KEYWORDS, 2))),
        cast=tuple(zip(random.sample(ids, 4), random.sample(_ROLES, 4), strict=True)),
        crew=tuple(zip([*crew, random.choice(crew)], random.sample(_JOBS, 5), strict=True)),
        other_title=f"A {other}",
    )
