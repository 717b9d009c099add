"""Goals of academia: what is asked, and which calls answer it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random
from typing import Any

from whet.envs.protocol import EnvironmentInfo
from whet.envs.tools.academia import AUTHORS, PAPERS, Academia, make_academia
from whet.envs.tools.environment import ToolEnvironment, environment_info
from whet.envs.tools.goals import Family, Fields, Kind, Solver, Step, Unfit

Asked = Generator[Step, Any, Any]


def _load(graph: str) -> Asked:
    what = "papers" if graph == PAPERS else "authors"
    return (yield f"I load the net of {what}.", f"load{graph}", {})


def _paper(title: str) -> Generator[Step, Any, dict[str, Any]]:
    return (yield f"I ask about the paper {title}.", "paperNodeCheck", {"node": title})


def _org(name: str) -> Generator[Step, Any, str]:
    return (yield f"I ask where {name} works.", "authorNodeCheck", {"node": name})["org"]


def _together(one: str, other: str) -> Generator[Step, Any, list[str]]:
    thought = f"I ask what {one} and {other} wrote together."
    return (yield thought, "authorEdgeCheck", {"node1": one, "node2": other})["collaborative_papers"]


def _collaborators(name: str) -> Generator[Step, Any, list[str]]:
    return (yield f"I ask with whom {name} wrote.", "neighbourCheck", {"graph": AUTHORS, "node": name})


def _cited(title: str) -> Generator[Step, Any, list[str]]:
    return (yield f"I ask what the paper {title} cites.", "neighbourCheck", {"graph": PAPERS, "node": title})


def _attribute(name: str) -> Callable[[Fields], Solver]:
    def solve(fields: Fields) -> Solver:
        yield from _load(PAPERS)
        return (yield from _paper(fields["paper"]))[name]

    return solve


def _organization(fields: Fields) -> Solver:
    yield from _load(AUTHORS)
    return (yield from _org(fields["author"]))


def _mutual(fields: Fields) -> Solver:
    yield from _load(AUTHORS)
    one = yield from _collaborators(fields["author"])
    other = yield from _collaborators(fields["other"])
    return len(set(one) & set(other))


def _more_cited(fields: Fields) -> Solver:
    yield from _load(PAPERS)
    one = yield from _paper(fields["paper"])
    other = yield from _paper(fields["other"])
    if one["n_citation"] == other["n_citation"]:
        raise Unfit
    return fields["paper"] if one["n_citation"] > other["n_citation"] else fields["other"]


def _same_venue(fields: Fields) -> Solver:
    yield from _load(PAPERS)
    one = yield from _paper(fields["paper"])
    other = yield from _paper(fields["other"])
    return "Yes" if one["venue"] == other["venue"] else "No"


def _same_organization(fields: Fields) -> Solver:
    yield from _load(AUTHORS)
    org = yield from _org(fields["author"])
    names = []
    for name in (yield from _collaborators(fields["author"])):
        if (yield from _org(name)) == org:
            names.append(name)
    if not names:
        raise Unfit
    return sorted(names)


def _common_papers(fields: Fields) -> Solver:
    yield from _load(AUTHORS)
    return sorted((yield from _together(fields["author"], fields["other"])))


def _common_citations(fields: Fields) -> Solver:
    yield from _load(AUTHORS)
    titles = yield from _together(fields["author"], fields["other"])
    yield from _load(PAPERS)
    total = 0
    for title in titles:
        total += (yield from _paper(title))["n_citation"]
    return total


def _closest(fields: Fields) -> Solver:
    yield from _load(AUTHORS)
    counts: dict[str, int] = {}
    for name in (yield from _collaborators(fields["author"])):
        counts[name] = len((yield from _together(fields["author"], name)))
    best = [name for name, count in counts.items() if count == max(counts.values())]
    if len(best) != 1 or len(counts) < 2:
        raise Unfit
    return best[0]


def _cites(fields: Fields) -> Solver:
    yield from _load(PAPERS)
    return "Yes" if fields["other"] in (yield from _cited(fields["paper"])) else "No"


def _num_cited(fields: Fields) -> Solver:
    yield from _load(PAPERS)
    return len((yield from _cited(fields["paper"])))


def _oldest_cited(fields: Fields) -> Solver:
    yield from _load(PAPERS)
    years: dict[str, int] = {}
    for title in (yield from _cited(fields["paper"])):
        years[title] = (yield from _paper(title))["year"]
    oldest = [title for title, year in years.items() if year == min(years.values())]
    if len(oldest) != 1 or len(years) < 2:
        raise Unfit
    return oldest[0]


def _any_paper(service: Academia, random: Random) -> Fields:
    return {"paper": random.choice(sorted(service.papers))}


def _two_papers(service: Academia, random: Random) -> Fields:
    one, other = random.sample(sorted(service.papers), 2)
    return {"paper": one, "other": other}


def _maybe_cited(service: Academia, random: Random) -> Fields:
    """A paper with another one, which it cites in half of all cases."""
    citing = [paper for paper in service.papers.values() if paper.cites]
    paper = random.choice(citing)
    if random.random() < 0.5:
        return {"paper": paper.title, "other": random.choice(paper.cites)}
    others = [title for title in sorted(service.papers) if title != paper.title and title not in paper.cites]
    return {"paper": paper.title, "other": random.choice(others)}


def _author(service: Academia, random: Random) -> Fields:
    return {"author": random.choice(sorted(service.orgs))}


def _two_authors(service: Academia, random: Random) -> Fields:
    one, other = random.sample(sorted(service.orgs), 2)
    return {"author": one, "other": other}


def _two_who_wrote(service: Academia, random: Random) -> Fields:
    fields = _two_authors(service, random)
    if not service.common(fields["author"], fields["other"]):
        raise Unfit
    return fields


_TEXT, _NUMBER, _YES = "Answer with a text.", "Answer with a number.", "Answer with 'Yes' or 'No'."
KINDS = (
    Kind("year", f"In which year was the paper '{{paper}}' published? {_NUMBER}", _any_paper, _attribute("year")),
    Kind("venue", f"Where was the paper '{{paper}}' published? {_TEXT}", _any_paper, _attribute("venue")),
    Kind("organization", f"For which organization does {{author}} work? {_TEXT}", _author, _organization),
    Kind(
        "mutual collaborators",
        f"How many authors wrote both with {{author}} and with {{other}}? {_NUMBER}",
        _two_authors,
        _mutual,
    ),
    Kind(
        "more cited", f"Which paper has more citations, '{{paper}}' or '{{other}}'? {_TEXT}", _two_papers, _more_cited
    ),
    Kind(
        "same venue",
        f"Were the papers '{{paper}}' and '{{other}}' published at the same venue? {_YES}",
        _two_papers,
        _same_venue,
    ),
    Kind(
        "same organization",
        "Which authors who wrote with {author} work for the same organization? Answer with a list of names.",
        _author,
        _same_organization,
    ),
    Kind(
        "common papers",
        "Which papers did {author} and {other} write together? Answer with a list of titles.",
        _two_who_wrote,
        _common_papers,
    ),
    Kind(
        "common citations",
        f"How many citations do the papers that {{author}} and {{other}} wrote together have in all? {_NUMBER}",
        _two_who_wrote,
        _common_citations,
    ),
    Kind("closest author", f"With whom did {{author}} write the most papers? {_TEXT}", _author, _closest),
    Kind("cites", f"Does the paper '{{paper}}' cite the paper '{{other}}'? {_YES}", _maybe_cited, _cites),
    Kind("papers cited", f"How many papers does the paper '{{paper}}' cite? {_NUMBER}", _any_paper, _num_cited),
    Kind(
        "oldest cited",
        f"Of the papers that the paper '{{paper}}' cites, which one is the oldest? {_TEXT}",
        _any_paper,
        _oldest_cited,
    ),
)
FAMILY = Family("academia", KINDS, make_academia)


class AcademiaEnvironment(ToolEnvironment):
    """Questions about papers and authors."""

    family = FAMILY


ACADEMIA: EnvironmentInfo = environment_info(FAMILY, AcademiaEnvironment, max_turns=12, item_id="tool_academia")
