"""Environment variables that have to be set before torch is loaded. Importing this sets those that are not set.

The command line and `whet.api` import it before anything that needs torch. Only the standard library is needed here.
"""

from __future__ import annotations

import os

VARIABLES = {
    # Torch's threads otherwise spin while they wait: a factor of ten when anything else runs on the machine.
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # cuBLAS is deterministic with this only
}

for _name, _value in VARIABLES.items():
    os.environ.setdefault(_name, _value)
