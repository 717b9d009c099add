"""Academia: questions about papers, their authors and citations, answered by nine tools. All of it is invented."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from whet.envs.tools.calls import Argument, Tool, ToolError
from whet.envs.tools.service import ANSWERING, VALID, Service
from whet.envs.tools.words import pairs, people

PAPERS, AUTHORS = "PaperNet", "AuthorNet"
_PAIR = (Argument("node1", "string", "the first one's name"), Argument("node2", "string", "the second one's name"))
TOOLS = (
    Tool("loadPaperNet", "Loads the net of papers. Its edges are citations."),
    Tool("loadAuthorNet", "Loads the net of authors. Its edges are common papers."),
    Tool("neighbourCheck", "In PaperNet, the papers that a paper cites. In AuthorNet, an author's co-authors.", (
        Argument("graph", "string", "PaperNet or AuthorNet"), Argument("node", "string", "a title or a name"))),
    Tool("paperNodeCheck", "A paper's authors, year, venue, number of citations, keywords and type.", (
        Argument("node", "string", "the title"),)),
    Tool("authorNodeCheck", "An author's name and organization.", (Argument("node", "string", "the name"),)),
    Tool("authorEdgeCheck", "The papers that two authors wrote together.", _PAIR),
    Tool("paperEdgeCheck", "What is known of a citation: nothing more than that it is there.", _PAIR),
    VALID,
    ANSWERING,
)  # fmt: skip

_METHODS = ("Adaptive", "Bounded", "Causal", "Deep", "Efficient", "Fair", "Graph-Based", "Hybrid", "Robust", "Sparse")
_TOPICS = (
    "Clustering of Long Series", "Control of Swarms", "Denoising of Scans", "Detection of Faults", "Planning of Routes",
    "Ranking of Answers", "Recognition of Birds", "Search in Archives", "Tracking of Ships", "Translation of Signs",
)  # fmt: skip
_ORGS = ("Brenner University", "Coast Institute", "Delta Labs", "Eastern Polytechnic", "Fjord College")
_VENUES = ("Annals of Methods", "Conference on Signals", "Journal of Systems", "Workshop on Graphs")
_WORDS = ("graphs", "images", "learning", "robots", "search", "sensors", "speech", "text")


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper and the titles that it cites."""

    title: str
    authors: tuple[str, ...]
    year: int
    venue: str
    num_citations: int
    keywords: tuple[str, ...]
    type: str
    cites: tuple[str, ...]


class Academia(Service):
    """The service. It remembers which nets are loaded."""

    tools: ClassVar = TOOLS

    def __init__(self, papers: Sequence[Paper], orgs: dict[str, str]) -> None:
        """
        Args:
            orgs: organizations by author.
        """
        self.papers = {paper.title: paper for paper in papers}
        self.orgs = orgs
        self._loaded: frozenset[str] = frozenset()

    def state(self) -> Hashable:
        return self._loaded

    def load_paper_net(self) -> str:
        return self._load(PAPERS)

    def load_author_net(self) -> str:
        return self._load(AUTHORS)

    def neighbour_check(self, graph: str, node: str) -> list[str]:
        if graph == PAPERS:
            return list(self._paper(node).cites)
        if graph == AUTHORS:
            self._author(node)
            return [other for other in sorted(self.orgs) if other != node and self.common(node, other)]
        raise ToolError(f"The graph is {graph[:60]!r}: name {PAPERS} or {AUTHORS}.")

    def paper_node_check(self, node: str) -> dict[str, Any]:
        paper = self._paper(node)
        return {
            "authors": list(paper.authors),
            "year": paper.year,
            "venue": paper.venue,
            "n_citation": paper.num_citations,
            "keywords": list(paper.keywords),
            "doc_type": paper.type,
        }

    def author_node_check(self, node: str) -> dict[str, Any]:
        self._author(node)
        return {"name": node, "org": self.orgs[node]}

    def author_edge_check(self, node1: str, node2: str) -> dict[str, Any]:
        self._author(node1)
        self._author(node2)
        papers = [] if node1 == node2 else self.common(node1, node2)
        if not papers:
            raise ToolError(f"There is no edge between {node1} and {node2}.")
        return {"collaborative_papers": papers}

    def paper_edge_check(self, node1: str, node2: str) -> dict[str, Any]:
        one, other = self._paper(node1), self._paper(node2)
        if node2 not in one.cites and node1 not in other.cites:
            raise ToolError(f"There is no edge between {node1} and {node2}.")
        return {}

    def common(self, one: str, other: str) -> list[str]:
        """Titles of the papers of two authors."""
        return sorted(paper.title for paper in self.papers.values() if {one, other} <= set(paper.authors))

    def _load(self, graph: str) -> str:
        self._loaded |= {graph}
        return f"{graph} is loaded."

    def _check_loaded(self, graph: str) -> None:
        if graph not in self._loaded:
            raise ToolError(f"Please load the {graph} first.")

    def _paper(self, title: str) -> Paper:
        self._check_loaded(PAPERS)
        if title not in self.papers:
            raise ToolError(f"There is no node named {title[:80]} in the {PAPERS}.")
        return self.papers[title]

    def _author(self, name: str) -> None:
        self._check_loaded(AUTHORS)
        if name not in self.orgs:
            raise ToolError(f"There is no node named {name[:80]} in the {AUTHORS}.")


def make_academia(random: Random) -> Academia:
    """Twelve papers by seven authors. A paper cites older ones."""
    authors = people(random, 7)
    papers: list[Paper] = []
    year = random.randrange(1996, 2006)
    for title in pairs(random, _METHODS, _TOPICS, 12):
        older = [paper.title for paper in papers if paper.year < year]
        papers.append(
            Paper(
                title=title,
                authors=tuple(random.sample(authors, random.choice((1, 2, 2, 3)))),
                year=year,
                venue=random.choice(_VENUES),
                num_citations=random.randrange(0, 120),
                keywords=tuple(sorted(random.sample(_WORDS, 2))),
                type=random.choice(("Conference", "Journal")),
                cites=tuple(random.sample(older, min(len(older), random.randrange(0, 4)))),
            )
        )
        year += random.randrange(0, 3)
    random.shuffle(papers)
    return Academia(papers, {author: random.choice(_ORGS) for author in authors})
