"""Ranks that torchrun has started. Rank 0 is the run's own process, and the others wait for its commands."""

from __future__ import annotations

import datetime
import os
import pickle
import sys
import traceback
from typing import Any

import cloudpickle
import torch.distributed as dist

from whet.errors import WhetError
from whet.models.sharding import join
from whet.trainer.rank import Rank

STOP = "stop"


class TorchRanks:
    """The ranks of this torchrun, as `whet.trainer.sharded.Ranks`. Every process of it makes one.

    Rank 0 calls `call`, and `stop` in the end. The others call `serve`.
    """

    def __init__(self) -> None:
        number, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.rank = Rank(join(number, size, "env://", int(os.environ["LOCAL_RANK"])))
        self.number, self.size = number, size
        # A rank waits for its next command as long as rollouts take.
        self._commands = dist.new_group(backend="gloo", timeout=datetime.timedelta(days=365))

    def call(self, command: str, *arguments: Any, first: Any = None) -> Any:
        self._exchange(cloudpickle.dumps((command, arguments)))
        return self.rank.run(command, *arguments, first=first)

    def start(self, num_threads: int | None) -> None:
        """Prepare the ranks for a run."""
        self.call("settle", num_threads)

    def close(self) -> None:
        """The run has ended. The ranks wait for another one, until `stop`."""

    def stop(self) -> None:
        """End the other ranks."""
        self._exchange(cloudpickle.dumps((STOP, ())))
        dist.destroy_process_group()

    def serve(self) -> None:
        """Run rank 0's commands until it stops. A rank that fails alone ends, and torchrun then ends the others."""
        while True:
            command, arguments = pickle.loads(self._exchange(b""))
            if command == STOP:
                dist.destroy_process_group()
                return
            try:
                self.rank.run(command, *arguments)
            except (WhetError, ValueError):
                pass  # of the rows or the settings: rank 0 raises the same
            except Exception:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)  # the others wait in an exchange, which no exception ends

    def _exchange(self, message: bytes) -> bytes:
        box = [message]
        dist.broadcast_object_list(box, 0, group=self._commands)
        return box[0]
