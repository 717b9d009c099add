"""Recorded decode steps: the contract of what a CUDA graph needs, held without a GPU."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from whet.engines.graphs import GraphRunner, recorded_rows, with_graphs
from whet.engines.local import LocalEngine
from whet.engines.runners import LeanRunner
from whet.models.lean import LeanDecoder, steady_shapes
from whet.models.policy import Policy
from whet.types import Request, Sampling


class Recorder:
    """Does what a CUDA graph does: the step's inputs and its result stay where they were when it was recorded."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, step: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        hidden = step()
        self.rows.append(len(hidden))

        def replay() -> None:
            hidden.copy_(step())

        return hidden, replay


def engine_of(policy: Policy, runner: LeanRunner, **options: int) -> LocalEngine:
    engine = LocalEngine(policy, **options)
    engine.runner = runner
    return engine


def requests_of(number: int) -> list[Request]:
    """Different contexts and lengths, so that rows finish and join at different steps."""
    return [
        Request(
            context=tuple(5 + (7 * i + j) % 40 for j in range(3 + i % 4)),
            sampling=Sampling(temperature=float(i % 3 != 0), max_new_tokens=4 + 9 * (i % 5)),
            seed=i,
        )
        for i in range(number)
    ]


@pytest.fixture
def lean(random_policy: Policy) -> LeanDecoder:
    found = LeanDecoder.of(random_policy.causal_lm)
    assert found is not None
    return found


@pytest.mark.parametrize("max_rows", [1, 3, 8, 13])
def test_a_recorded_step_gives_the_tokens_of_a_step_that_is_not(
    random_policy: Policy, lean: LeanDecoder, max_rows: int
) -> None:
    requests = requests_of(13)
    expected = engine_of(random_policy, LeanRunner(random_policy, lean), max_rows=max_rows).generate(requests)
    recorder = Recorder()
    engine = engine_of(random_policy, GraphRunner(random_policy, lean, recorder), max_rows=max_rows)
    for _ in range(2):  # nothing of the first batch may be left in the second
        done = engine.generate(requests)
        assert [d.tokens for d in done] == [d.tokens for d in expected]
        assert (
            max(
                abs(one - two)
                for d, e in zip(done, expected, strict=True)
                for one, two in zip(d.logprobs, e.logprobs, strict=True)
            )
            < 1e-4
        )
    assert all(rows in {1, 4, max_rows} for rows in recorder.rows)
    assert len(recorder.rows) < 12


def test_a_graph_computes_a_few_sizes_of_its_own() -> None:
    counts = [1, 2, 4, 5, 16, 17, 64, 65, 128, 129, 300]
    assert list(map(recorded_rows, counts)) == [1, 4, 4, 16, 16, 64, 64, 128, 128, 256, 512]


def test_a_stream_whose_rows_join_and_leave_gives_the_same_tokens(random_policy: Policy, lean: LeanDecoder) -> None:
    found = []
    for runner in (LeanRunner(random_policy, lean), GraphRunner(random_policy, lean, Recorder())):
        engine = engine_of(random_policy, runner, max_rows=5)
        engine._new_runner = lambda runner=runner: runner
        done, waiting = {}, list(enumerate(requests_of(13)))
        while waiting or engine.num_open:
            for ticket, request in waiting[:2]:
                engine.submit(ticket, request)
            del waiting[:2]
            done |= {ticket: completion.tokens for ticket, completion in engine.advance()}
        found.append(dict(sorted(done.items())))
    assert len(found[0]) == 13
    assert found[0] == found[1]


def test_weights_that_change_between_batches_are_seen(random_policy: Policy, lean: LeanDecoder) -> None:
    engine = engine_of(random_policy, GraphRunner(random_policy, lean, Recorder()))
    before = engine.generate(requests_of(4))
    head = random_policy.causal_lm.get_output_embeddings().weight
    kept = head.detach().clone()
    with torch.no_grad():
        head.mul_(0.1)
    changed = engine.generate(requests_of(4))
    expected = engine_of(random_policy, LeanRunner(random_policy, lean)).generate(requests_of(4))
    with torch.no_grad():
        head.copy_(kept)
    assert [d.tokens for d in changed] == [d.tokens for d in expected] != [d.tokens for d in before]


def test_a_step_that_cannot_be_recorded_is_computed_and_told_once(
    random_policy: Policy, lean: LeanDecoder, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(step: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    expected = engine_of(random_policy, LeanRunner(random_policy, lean)).generate(requests_of(6))
    done = engine_of(random_policy, GraphRunner(random_policy, lean, fails)).generate(requests_of(6))
    assert [d.tokens for d in done] == [d.tokens for d in expected]
    assert len(caplog.records) == 1
    assert "without a CUDA graph, more slowly" in caplog.text
    assert "more)" not in caplog.text


def test_nothing_is_recorded_on_a_cpu(random_policy: Policy, lean: LeanDecoder) -> None:
    runner = LeanRunner(random_policy, lean)
    assert with_graphs(runner) is runner


def test_embeddings_that_look_at_the_positions_are_not_recorded(lean: LeanDecoder) -> None:
    assert steady_shapes(lean)
    before = lean.decoder.config.rope_parameters
    lean.decoder.config.rope_parameters = {**before, "rope_type": "dynamic", "factor": 2.0}
    try:
        assert not steady_shapes(lean)
    finally:
        lean.decoder.config.rope_parameters = before
