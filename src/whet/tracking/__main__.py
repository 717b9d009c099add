"""`python -m whet.tracking RUN NAME`: the process beside a run, which `beside` starts. Users type `whet track`."""

import os
import sys
from pathlib import Path

os.nice(10)  # before the imports, which cost half a CPU second: the run goes first

from whet.tracking.process import main  # noqa: E402

code = main(Path(sys.argv[1]), sys.argv[2])
os._exit(code)  # a tracker's threads may wait for what never comes
