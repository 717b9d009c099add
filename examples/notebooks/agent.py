# %% [markdown]
# # An agent in an environment of one's own
#
# The environment is a class with `reset` and `step`. `whet new env` writes one like this, with a test.

# %%
import subprocess
import sys
from pathlib import Path

import whet

run_whet = [sys.executable, "-m", "whet.cli"]
subprocess.run([*run_whet, "new", "env", "hidden", "--dir", "own"], check=True)
print(Path("own/hidden.py").read_text()[:600])

# %% [markdown]
# A tiny agent knows the words of the environment. It clones a few episodes of the environment's expert first.

# %%
make = ["tiny", "agent", "hidden", "--plugins", "own/hidden.py", "--out", "own/agent"]
subprocess.run([*run_whet, *make], check=True)
small = {
    "plugins": ["own/hidden.py"],
    "data.env": "hidden",
    "format": "plain",
    "sampling.max_new_tokens": 8,
    "data.num_validation": 4,
    "data.num_test": 4,
    "evaluation.max_turns": 4,
}
cloned = whet.train(
    "agent_clone", out="runs/cloned", overwrite=True, num_steps=4, **{"policy.path": "own/agent"}, **small
)
cloned

# %% [markdown]
# Then it plays itself, and episodes of one item are compared. Two steps show how; an agent that learns needs hundreds.

# %%
played = whet.train(
    "agent_grpo",
    out="runs/played",
    overwrite=True,
    num_steps=2,
    prompts_per_step=2,
    group_size=2,
    max_turns=4,
    **{"policy.path": "runs/cloned/best"},
    **small,
)
played.plot("reward/mean")
