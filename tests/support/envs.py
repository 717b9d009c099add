"""Plays environments by rule, and what came of it as one digest; run as a script it prints that of another process.

python -m support.worlds textcraft 3 0 5
"""

from __future__ import annotations

import sys
from hashlib import sha256

from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.scripted import episode


def world_of(name):
    """An instance. Raises: EnvError where what it needs is not installed."""
    return ENVIRONMENTS.get(name).make()


def digest(name, items, seed=0):
    """Of episodes in turn in one world."""
    info, env = ENVIRONMENTS.get(name), world_of(name)
    try:
        return [sha256(repr(episode(env, info, item, seed)).encode(errors="replace")).hexdigest() for item in items]
    finally:
        env.close()


if __name__ == "__main__":
    try:
        print("\n".join(digest(sys.argv[1], [int(item) for item in sys.argv[2:]])))
    except EnvError as error:
        sys.exit(str(error))
