"""What do a server's faults do to the episodes of a run? 200 episodes of TextCraft for each fault.

    .venv/bin/python benchmarks/env_faults.py          # all faults, a few minutes

A proxy between client and server cuts connections, swallows requests (half-open), holds answers back, or overwrites
their bytes. In two cases the server itself is killed and started again, or full. Episodes run through the service that
a run has (`rollout.environments`), 16 at a time, with actions by a rule.

*No wrong reward*: every whole episode has to equal the one in process, answer by answer. *Typed and counted*: every
other one has to be a failure of a known kind. *No leak*: the server holds no session once its lease is over.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from study import machine_now, write
from support.cutting_proxy import CuttingProxy, Way
from support.env_process import EnvProcess
from whet.config.environment_data import RemoteEnvironment
from whet.envs import ENVIRONMENTS, EnvironmentInfo
from whet.envs.protocol import ACTIONS
from whet.envs.remote.info import remote_info
from whet.rollout.environments import Act, Begin, Environments, Lease, Seen
from whet.types import Failure

NAME, TURNS, AT_ONCE, LEASE_S = "textcraft", 12, 16, 2.0
TIMEOUT_S = 0.5
"""Seconds of one request, in the cases whose faults are slow."""


@dataclass(frozen=True)
class Case:
    """One fault."""

    says: str
    way: Way = "fine"
    share: float = 0.0
    """Of the requests."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Beside the address."""
    options: tuple[str, ...] = ()
    """Of the server."""
    killed_after: float | None = None
    """Share of the episodes after which the server is killed; a second later it is there again."""
    all_whole: bool = False
    """Whether no episode may fail."""


CASES: dict[str, Case] = {
    "none": Case("no fault", all_whole=True),
    "cut": Case("5 % of the connections are cut", "cut", 0.05, {"reconnects": 6}, all_whole=True),
    "killed": Case("the server is killed and started again", settings={"reconnects": 9}, killed_after=0.5),
    "slow": Case("2 % of the answers come after 1 s, the limit is 0.5 s", "slow", 0.02, {"timeout_s": TIMEOUT_S}),
    "half_open": Case("2 % of the requests are swallowed", "half_open", 0.02, {"timeout_s": TIMEOUT_S}),
    "garbage": Case("2 % of the answers are garbage", "garbage", 0.02),
    "full": Case("room for 4 of 16, waited for 0.2 s", settings={"wait_s": 0.2}, options=("--max-sessions", "4")),
    "waited_for": Case(
        "room for 12 of 16, waited for 60 s",
        settings={"wait_s": 60.0},
        options=("--max-sessions", "12"),
    ),
}


@dataclass
class Episode:
    """One episode as it goes on: its answers, or how it failed."""

    item: int
    lease: Lease
    rng: random.Random
    answers: list[Seen] = field(default_factory=list)
    failure: Failure | None = None

    def next_action(self) -> str | None:
        """By a rule, from the listed actions. None: the episode is over."""
        latest = self.answers[-1]
        if latest.is_over or len(self.answers) > TURNS:
            return None
        return self.rng.choice(sorted(latest.info[ACTIONS])) if latest.info.get(ACTIONS) else "inventory"


def play(info: EnvironmentInfo, count: int, *, after: Callable[[int], None] = lambda _: None) -> list[Episode]:
    """Episodes of the first training items, with seeds of their own.

    Args:
        after: is called after each episode, with how many have ended.
    """
    service = Environments(capacity=AT_ONCE, workers=AT_ONCE, timeout_s=90.0, retries=1)
    items = info.splits()["train"]
    episodes = [Episode(items[i % len(items)], Lease(), random.Random(i)) for i in range(count)]
    waiting, tickets, num_ended = list(enumerate(episodes)), dict[int, tuple[Episode, Any]](), 0
    while waiting or tickets:
        while waiting and len(tickets) < AT_ONCE:
            place, episode = waiting.pop(0)
            begin = Begin(info, episode.item, place, lease=episode.lease)
            tickets[place] = (episode, begin)
            service.submit(place, begin)
        for ticket, answer in service.advance(wait=True):
            episode, _ = tickets.pop(ticket)
            if isinstance(answer, Failure):
                episode.failure = answer
            else:
                episode.answers.append(answer)
                if (action := episode.next_action()) is not None:
                    tickets[ticket] = (episode, Act(episode.lease, action))
                    service.submit(ticket, tickets[ticket][1])
                    continue
            service.done([Begin(info, episode.item, ticket, lease=episode.lease)])
            num_ended += 1
            after(num_ended)
    service.close()
    return episodes


def kind_of(failure: Failure) -> str:
    """The outcome and the class of the error, as the reason says it."""
    words = failure.reason.replace(":", " ").split()
    name = next((word for word in words if word[0].isupper() and word.isidentifier()), words[0])
    return f"{failure.kind}: {name}"


def run_case(case: Case, count: int) -> dict[str, Any]:
    """What became of the episodes under one fault."""
    expected = play(ENVIRONMENTS.get(NAME), count)
    with ExitStack() as stack:
        server = stack.enter_context(EnvProcess(NAME, options=("--lease-s", str(LEASE_S), *case.options)))
        proxy = CuttingProxy(server.port, way=case.way)
        stack.callback(proxy.close)
        info = remote_info(NAME, RemoteEnvironment(url=proxy.url, **case.settings))
        proxy.share = case.share

        restart = Timer(1.0, server.start)

        def after(num_ended: int) -> None:
            if case.killed_after is not None and num_ended == int(case.killed_after * count):
                server.kill()
                restart.start()

        begun = time.monotonic()
        episodes = play(info, count, after=after)
        seconds = time.monotonic() - begun
        if case.killed_after is not None:
            restart.join()
        held = sessions_after_lease(server)
    whole = [(e, there) for e, there in zip(expected, episodes, strict=True) if there.failure is None]
    return {
        "says": case.says,
        "episodes": count,
        "whole": len(whole),
        "failed": dict(Counter(kind_of(e.failure) for e in episodes if e.failure is not None)),
        "unequal": sum(here.answers != there.answers for here, there in whole),
        "spoilt_requests": proxy.counts["spoilt"],
        "sessions_after_lease": held,
        "seconds": round(seconds, 1),
    }


def sessions_after_lease(server: EnvProcess) -> int:
    """Sessions that the server still holds once all leases are over."""
    until = time.monotonic() + LEASE_S + 5
    while (held := int(server.health()["sessions"])) and time.monotonic() < until:
        time.sleep(0.1)
    return held


def problems(case: Case, result: dict[str, Any]) -> list[str]:
    """What does not hold, in sentences."""
    found = []
    if result["unequal"]:
        found.append(f"{result['unequal']} whole episodes differ from those in process")
    if result["sessions_after_lease"]:
        found.append(f"{result['sessions_after_lease']} sessions outlive their lease")
    if case.all_whole and result["failed"]:
        found.append(f"episodes failed: {result['failed']}")
    if not case.all_whole and result["whole"] + sum(result["failed"].values()) != result["episodes"]:
        found.append("episodes are neither whole nor failed")
    return found


def table(results: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| fault | episodes | whole | unequal to in process | failed, by kind | sessions after the lease | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results.values():
        failed = ", ".join(f"{kind} {number}" for kind, number in sorted(result["failed"].items())) or "–"
        lines.append(
            f"| {result['says']} | {result['episodes']} | {result['whole']} | {result['unequal']} | {failed} | "
            f"{result['sessions_after_lease']} | {result['seconds']} |"
        )
    return "\n".join(lines) + "\n"


def main(count: int = 200) -> None:
    results = {}
    for name, case in CASES.items():
        results[name] = run_case(case, count)
        for problem in problems(case, results[name]):
            print(f"{name}: {problem}", file=sys.stderr)
    write("env_faults", {"machine": machine_now(), "cases": results}, table(results))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
