"""The Python interface: the commands as functions and objects, which `import whet` offers.

commands   `train`, `evaluate`: `whet train` and `whet eval`
run        `Run`: the contents of a run folder
critic     `load_critic`: a trained critic

Like the command line, functions here import heavy modules when they need them.
"""

import whet.environment  # before torch
import whet.methods  # noqa: F401 - registers all of them
