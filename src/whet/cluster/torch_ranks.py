"""Ranks that torchrun has started. Rank 0 is the run's own process, and the others wait for its commands."""

from __future__ import annotations

import datetime
import os
import pickle
import signal
import sys
import traceback
from typing import Any

import cloudpickle
import torch.distributed as dist

from whet.errors import RunError, WhetError
from whet.models.group import is_lost_connection
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
        self._is_whole = True

    def call(self, command: str, *arguments: Any, first: Any = None) -> Any:
        try:
            self._exchange(cloudpickle.dumps((command, arguments)))
            return self.rank.run(command, *arguments, first=first)
        except Exception as error:
            if not is_lost_connection(error):
                raise
            self._is_whole = False
            raise RunError(
                "a rank has died, and torchrun says how below: the same command, or `torchrun ... -m whet.cluster "
                "resume RUN`, goes on from the last checkpoint (torchrun's --max-restarts does so by itself)"
            ) from error

    def start(self, num_threads: int | None) -> None:
        """Prepare the ranks for a run."""
        self.call("settle", num_threads)

    def close(self) -> None:
        """The run has ended. The ranks wait for another one, until `stop`."""

    def stop(self) -> None:
        """End the other ranks. Without one, torchrun ends them."""
        if not self._is_whole:
            return
        self._exchange(cloudpickle.dumps((STOP, ())))
        dist.destroy_process_group()

    def serve(self) -> None:
        """Run rank 0's commands until it stops. A rank that fails alone ends, and torchrun then ends the others.

        Torchrun passes Ctrl-C and SIGTERM on to all ranks. Rank 0 then saves the run, for which it needs the others.
        """
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_IGN)
        while True:
            try:
                command, arguments = pickle.loads(self._exchange(b""))
            except Exception as error:
                if is_lost_connection(error):
                    sys.exit(f"rank {self.number} ends, as rank 0 is gone")
                raise
            if command == STOP:
                dist.destroy_process_group()
                return
            try:
                self.rank.run(command, *arguments)
            except (WhetError, ValueError):
                pass  # of the rows or the settings: rank 0 raises the same
            except Exception as error:
                if is_lost_connection(error):
                    sys.stderr.write(f"rank {self.number} ends, as it lost another rank\n")
                else:
                    traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)  # the others wait in an exchange, which no exception ends

    def _exchange(self, message: bytes) -> bytes:
        box = [message]
        dist.broadcast_object_list(box, 0, group=self._commands)
        return box[0]
