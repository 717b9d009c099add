"""A decode step on a GPU, recorded once as a CUDA graph and then replayed.

A step of a small model is some thousand short kernels, and starting them one by one takes longer than they run. A graph
starts them all at once. It holds addresses and shapes, so it computes the rows' number rounded up (`recorded_rows`),
over all tokens that the memory has room for, and it is recorded anew when the memory grows. A recording computes the
step twice without a graph. So few sizes are recorded, and the memory of a GPU grows in large pieces.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from whet.engines.memory import SlotMemory
from whet.engines.runners import LeanRunner, Runner
from whet.models.lean import LeanDecoder, steady_shapes
from whet.models.policy import Policy

logger = logging.getLogger(__name__)

Step = Callable[[], Tensor]
Record = Callable[[Step], tuple[Tensor, Callable[[], None]]]
"""Of a step: where its result will lie, and what computes it anew from the same inputs' present values."""


def with_graphs(runner: Runner) -> Runner:
    """The runner, or one that records its steps, where it is a lean one on a GPU."""
    if type(runner) is LeanRunner and runner.policy.device.type == "cuda" and steady_shapes(runner.lean):
        return GraphRunner(runner.policy, runner.lean)
    return runner


def record_cuda(step: Step) -> tuple[Tensor, Callable[[], None]]:
    """A step as a CUDA graph, with memory of its own for what the step allocates.

    Graphs could share a pool of memory; but torch forgets a pool when the last graph of it goes, and then refuses the
    next one.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()  # libraries allocate their workspaces at the first call, which a recording cannot hold
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            hidden = step()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return hidden, graph.replay


class GraphRunner(LeanRunner):
    """Llama-shaped models on a GPU. Prefills and passes of several tokens a row are not recorded.

    Args:
        record: how a step is recorded. The tests' own records nothing and needs no GPU.
    """

    def __init__(self, policy: Policy, lean: LeanDecoder, record: Record = record_cuda) -> None:
        super().__init__(policy, lean)
        self.record = record
        self._steps: dict[int, _Recorded] = {}
        self._layer: Tensor | None = None
        """The memory's first layer that the steps were recorded for. Held, so that no other can have its address."""
        self._fails = False

    def begin(self, longest: int) -> None:
        self._steps, self._layer = {}, None

    def decode(self, tokens_R: Tensor, memory: SlotMemory) -> Tensor:
        if self._fails:
            return super().decode(tokens_R, memory)
        if self._layer is not memory.layers[0]:
            self._steps, self._layer = {}, memory.layers[0]
        rows = min(recorded_rows(len(tokens_R)), memory.layers[0].shape[1])
        if rows not in self._steps:
            try:
                self._steps[rows] = self._recorded(rows, tokens_R, memory)
            except RuntimeError as error:  # also OutOfMemoryError
                self._fails = True
                logger.warning(
                    "policy %r is sampled without a CUDA graph, more slowly: its step could not be recorded (%s)",
                    self.policy.name,
                    str(error).splitlines()[0],
                )
                return super().decode(tokens_R, memory)
        return self._steps[rows](tokens_R, memory.positions_R)

    def _recorded(self, rows: int, tokens_R: Tensor, memory: SlotMemory) -> _Recorded:
        inputs = torch.zeros(2, rows, dtype=torch.long, device=tokens_R.device)
        # Recording may compute the step, and so write into the memory: what the rows are about to write.
        inputs[0, : len(tokens_R)], inputs[1, : len(tokens_R)] = tokens_R, memory.positions_R
        decode = super().decode

        def step() -> Tensor:
            return decode(inputs[0], memory.at_full_width(inputs[1]))

        return _Recorded(inputs, *self.record(step))


class _Recorded:
    """Rows past those in use write into slots that are not in use, where nothing reads."""

    def __init__(self, inputs: Tensor, hidden: Tensor, replay: Callable[[], None]) -> None:
        self.inputs, self.hidden, self.replay = inputs, hidden, replay

    def __call__(self, tokens_R: Tensor, positions_R: Tensor) -> Tensor:
        count = len(tokens_R)
        self.inputs[0, :count], self.inputs[1, :count] = tokens_R, positions_R
        self.replay()
        return self.hidden[:count]


def recorded_rows(count: int) -> int:
    """The rows that a graph for `count` rows computes: 1, 4, 16 or 64, and from there on powers of two.

    Fewer sizes are fewer recordings. Rows that are not in use are computed for nothing; no GPU has timed the two.
    """
    return next((rows for rows in (1, 4, 16, 64) if count <= rows), 1 << (count - 1).bit_length())
