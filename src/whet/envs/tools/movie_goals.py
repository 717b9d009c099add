"""Goals of movie: what is asked, and which calls answer it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random
from typing import Any

from whet.envs.protocol import EnvironmentInfo
from whet.envs.tools.environment import ToolEnvironment, environment_info
from whet.envs.tools.goals import Family, Fields, Kind, Solver, Step, Unfit
from whet.envs.tools.movie import Film, Movie, make_movie

Asked = Generator[Step, Any, Any]


def _find(title: str) -> Generator[Step, Any, str]:
    found = yield f"I look for the film {title}.", "get_search_movie", {"movie_name": title}
    return str(found[0]["id"])


def _of_film(title: str, tool: str, what: str) -> Asked:
    id = yield from _find(title)
    return (yield f"I ask for {what} of {title}.", tool, {"movie_id": id})


def _detail(name: str, what: str) -> Callable[[Fields], Solver]:
    def solve(fields: Fields) -> Solver:
        return (yield from _of_film(fields["film"], "get_movie_details", what))[name]

    return solve


def _director(title: str) -> Generator[Step, Any, dict[str, Any]]:
    found = yield from _of_film(title, "get_movie_crew", "the crew")
    return _only([credit for credit in found["crew"] if credit["job"] == "Director"])


def _only(entries: list[Any]) -> Any:
    if len(entries) != 1:
        raise Unfit
    return entries[0]


def _actor(fields: Fields) -> Generator[Step, Any, dict[str, Any]]:
    found = yield from _of_film(fields["film"], "get_movie_cast", "the cast")
    return _only([credit for credit in found["cast"] if credit["character"] == fields["role"]])


def _directed_by(fields: Fields) -> Solver:
    return (yield from _director(fields["film"]))["name"]


def _birthplace(fields: Fields) -> Solver:
    director = yield from _director(fields["film"])
    thought = f"I ask about {director['name']}."
    return (yield thought, "get_person_details", {"person_id": str(director["id"])})["place_of_birth"]


def _better(fields: Fields) -> Solver:
    one = yield from _of_film(fields["film"], "get_movie_details", "the votes")
    other = yield from _of_film(fields["other"], "get_movie_details", "the votes")
    if one["vote_average"] == other["vote_average"]:
        raise Unfit
    return max(one, other, key=lambda details: details["vote_average"])["title"]


def _profit(fields: Fields) -> Solver:
    details = yield from _of_film(fields["film"], "get_movie_details", "budget and revenue")
    return "Yes" if details["revenue"] > details["budget"] else "No"


def _role(fields: Fields) -> Solver:
    found = yield from _of_film(fields["film"], "get_movie_cast", "the cast")
    return _only([credit for credit in found["cast"] if credit["name"] == fields["person"]])["character"]


def _names(tool: str, list_name: str, what: str) -> Callable[[Fields], Solver]:
    def solve(fields: Fields) -> Solver:
        found = yield from _of_film(fields["film"], tool, what)
        return sorted(entry["name"] for entry in found[list_name])

    return solve


def _shared_genre(fields: Fields) -> Solver:
    one = yield from _of_film(fields["film"], "get_movie_details", "the genres")
    other = yield from _of_film(fields["other"], "get_movie_details", "the genres")
    ids, other_ids = ({genre["id"] for genre in details["genres"]} for details in (one, other))
    return "Yes" if ids & other_ids else "No"


def _twitter(fields: Fields) -> Solver:
    actor = yield from _actor(fields)
    thought = f"I ask for the ids of {actor['name']}."
    return (yield thought, "get_person_external_ids", {"person_id": str(actor["id"])})["twitter_id"]


def _num_directed(fields: Fields) -> Solver:
    person = fields["person"]
    found = yield f"I look for {person}.", "get_search_person", {"person_name": person}
    id = str(found[0]["id"])
    credits = yield f"I ask for the films on which {person} worked.", "get_person_crew", {"person_id": id}
    return sum(credit["job"] == "Director" for credit in credits["crew"])


def _latest(fields: Fields) -> Solver:
    actor = yield from _actor(fields)
    thought = f"I ask for the films in which {actor['name']} acted."
    credits = yield thought, "get_person_cast", {"person_id": str(actor["id"])}
    dates: dict[str, str] = {}
    for credit in credits["cast"]:
        thought = f"I ask when {credit['title']} was released."
        details = yield thought, "get_movie_details", {"movie_id": str(credit["id"])}
        dates[details["title"]] = details["release_date"]
    if not 2 <= len(dates) <= 5 or len(set(dates.values())) < len(dates):
        raise Unfit
    return max(dates, key=lambda title: dates[title])


def _films(movie: Movie) -> list[Film]:
    return list(movie.films.values())


def _film(movie: Movie, random: Random) -> Fields:
    return {"film": random.choice(_films(movie)).title}


def _two_films(movie: Movie, random: Random) -> Fields:
    one, other = random.sample(_films(movie), 2)
    return {"film": one.title, "other": other.title}


def _film_and_role(movie: Movie, random: Random) -> Fields:
    film = random.choice(_films(movie))
    return {"film": film.title, "role": random.choice(film.cast)[1]}


def _film_and_actor(movie: Movie, random: Random) -> Fields:
    film = random.choice(_films(movie))
    return {"film": film.title, "person": movie.persons[str(random.choice(film.cast)[0])].name}


def _person(movie: Movie, random: Random) -> Fields:
    directors = sorted({id for film in _films(movie) for id, job in film.crew if job == "Director"})
    return {"person": movie.persons[str(random.choice(directors))].name}


_TEXT, _NUMBER, _YES = "Answer with a text.", "Answer with a number.", "Answer with 'Yes' or 'No'."
KINDS = (
    Kind(
        "release",
        "When was {film} released? Answer with a date, as YYYY-MM-DD.",
        _film,
        _detail("release_date", "the date of release"),
    ),
    Kind("revenue", f"How high was the revenue of {{film}}? {_NUMBER}", _film, _detail("revenue", "the revenue")),
    Kind("director", f"Who directed {{film}}? {_TEXT}", _film, _directed_by),
    Kind("birthplace", f"Where was the director of {{film}} born? {_TEXT}", _film, _birthplace),
    Kind(
        "better vote",
        f"Which film has the higher average vote, {{film}} or {{other}}? {_TEXT}",
        _two_films,
        _better,
    ),
    Kind("profit", f"Did {{film}} bring in more than it cost? {_YES}", _film, _profit),
    Kind("role", f"Which role did {{person}} play in {{film}}? {_TEXT}", _film_and_actor, _role),
    Kind(
        "companies",
        "Which companies made {film}? Answer with a list of their names.",
        _film,
        _names("get_movie_production_companies", "production_companies", "the companies"),
    ),
    Kind("shared genre", f"Do {{film}} and {{other}} have a genre in common? {_YES}", _two_films, _shared_genre),
    Kind(
        "twitter id",
        f"What is the Twitter id of the actor who played {{role}} in {{film}}? {_TEXT}",
        _film_and_role,
        _twitter,
    ),
    Kind("films directed", f"How many films did {{person}} direct? {_NUMBER}", _person, _num_directed),
    Kind(
        "latest film",
        f"Of the films of the actor who played {{role}} in {{film}}, which one was released last? {_TEXT}",
        _film_and_role,
        _latest,
    ),
)
FAMILY = Family("movie", KINDS, make_movie)


class MovieEnvironment(ToolEnvironment):
    """Questions about films."""

    family = FAMILY


MOVIE: EnvironmentInfo = environment_info(FAMILY, MovieEnvironment, max_turns=12, item_id="movie")
