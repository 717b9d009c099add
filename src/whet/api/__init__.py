"""The way in from Python: what the command line does, as functions and objects. `import whet` is its front door.

commands   `train`, `evaluate`: `whet train` and `whet eval`
run        `Run`: what a run folder holds
critic     `load_critic`: a trained critic at work

Like the command line, functions here import what is heavy when they need it.
"""

import whet.environment  # before torch
import whet.methods  # noqa: F401 - all of them are known by name
