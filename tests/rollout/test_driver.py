"""Flows: batching, order, forks, and what happens when something breaks."""

import pytest

from whet.rollout.driver import Ask, roll_out, together


async def ask_twice(name):
    first = await Ask("echo", name)
    return await Ask("echo", first + "!")


def test_flows_are_batched_and_results_keep_their_order():
    batches = []

    def echo(payloads):
        batches.append(list(payloads))
        return [payload.upper() for payload in payloads]

    assert roll_out([ask_twice("a"), ask_twice("b")], {"echo": echo}) == ["A!", "B!"]
    assert batches == [["a", "b"], ["A!", "B!"]]


def test_forks_run_side_by_side_and_may_nest():
    calls = []

    def double(payloads):
        calls.append(len(payloads))
        return [2 * payload for payload in payloads]

    async def leaf(x):
        return await Ask("double", x)

    async def branch(xs):
        return sum(await together(leaf(x) for x in xs))

    async def root():
        return await together(branch([n, n + 1]) for n in range(3))

    assert roll_out([root()], {"double": double}) == [[2, 6, 10]]
    assert calls == [6]  # one batch for all leaves of all branches


def test_the_longest_queue_is_served_first():
    served = []

    async def rollout(service):
        await Ask(service, None)

    def service(name):
        return lambda payloads: [served.append((name, len(payloads)))] * len(payloads)

    roll_out([rollout("few"), rollout("many"), rollout("many")], {"few": service("few"), "many": service("many")})
    assert served == [("many", 2), ("few", 1)]


def test_no_flows_and_empty_forks():
    async def nothing():
        return await together([])

    assert roll_out([], {}) == []
    assert roll_out([nothing()], {}) == [[]]


def test_an_error_in_a_service_reaches_the_caller_and_closes_the_flows():
    closed = []

    async def rollout():
        try:
            await Ask("broken", 1)
        finally:
            closed.append(True)

    def broken(payloads):
        raise OSError("down")

    with pytest.raises(OSError, match="down"):
        roll_out([rollout(), rollout()], {"broken": broken})
    assert closed == [True, True]


def test_a_flow_can_handle_a_failed_answer_itself():
    async def careful():
        answer = await Ask("maybe", 1)
        return "gave up" if answer is None else answer

    assert roll_out([careful()], {"maybe": lambda payloads: [None]}) == ["gave up"]
