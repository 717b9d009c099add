# %% [markdown]
# # A reward of one's own
#
# A part of your own is a function in a file. This notebook writes the file, so that a run can name it.

# %%
from pathlib import Path

import whet

Path("brief.py").write_text('''
from whet.kit import Episode, reward


@reward("brief")
def brief(episode: Episode, index: int) -> float | None:
    """1 for a reply of at most 20 tokens, less the longer it is."""
    return min(1.0, 20 / max(1, len(episode.segments[index].tokens)))
''')

# %% [markdown]
# Two runs that differ in one setting: the weight of the reward.

# %%
small = {"num_steps": 4, "prompts_per_step": 8, "group_size": 4, "data.num_validation": 32, "data.num_test": 32}
runs = {
    weight: whet.train(
        "grpo", out=f"runs/brief_{weight}", overwrite=True, plugins=["brief.py"], rewards={"brief": weight}, **small
    )
    for weight in (0.0, 0.5)
}

# %%
runs[0.5].plot("reward/mean", "reward/brief")

# %% [markdown]
# `whet.compare` says which settings differ, and what came out.

# %%
comparison = whet.compare(*(run.folder for run in runs.values()))
print(comparison)
