"""`torchrun --nproc-per-node N -m whet.cluster train ...`: the command line in rank 0. All ranks train its policies."""

from __future__ import annotations

import os
import sys


def main() -> None:
    if "RANK" not in os.environ:
        sys.exit("whet.cluster is started by torchrun: torchrun --nproc-per-node 2 -m whet.cluster train grpo ...")
    from whet.cluster import ranks as ranks_of_runs
    from whet.cluster.torch_ranks import TorchRanks

    ranks = TorchRanks()
    if ranks.number:
        ranks.serve()
        return
    ranks_of_runs.HERE = ranks
    from whet.cli import main as command_line

    if sys.argv[1:2] in (["train"], ["resume"]):
        sys.argv.append(f"cluster.ranks={ranks.size}")
    try:
        command_line()
    except SystemExit:  # of every command. After any other exception the ranks may wait in an exchange
        ranks.stop()
        raise
    ranks.stop()


if __name__ == "__main__":
    main()
