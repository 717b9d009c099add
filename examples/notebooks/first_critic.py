# %% [markdown]
# # A first critic
#
# An actor answers, a critic judges the answer, and the actor refines it. Here the critic is trained for a minute on the
# tiny world: chains of arithmetic on last digits. No GPU and no download is needed.
#
# Open this file in Jupyter with jupytext, or make a notebook of it: `jupytext --to ipynb first_critic.py`.

# %%
import whet

quick = {"data.num_validation": 32, "data.num_test": 64, "warm_start": {"actor_steps": 0, "critic_steps": 20}}
run = whet.train(
    "critique_rl", out="runs/first_critic", overwrite=True, stage1={"num_steps": 3}, stage2={"num_steps": 3}, **quick
)

# %% [markdown]
# A run shows its table and its curves. More steps make better critics: these have 26.

# %%
run

# %% [markdown]
# Every metric of `run.metrics` can be plotted.

# %%
run.plot("critique/acc_dis", "critique/acc_refine")

# %% [markdown]
# The critic reads a question and an answer. `probability` is its own, of the verdict "right".

# %%
critic = whet.load_critic(run.folder)
answer = "Step 1: 7 + 5 = 2\nStep 2: 2 * 3 = 7\nStep 3: 7 - 4 = 3\nThe answer is 3"
critique = critic.critique("7 + 5 * 3 - 4", answer)
print(critique.text)
print(critique.verdict, critique.probability)
