"""`whet.objectives` as others use it: BAPO's bounds and loss inside TRL's trainer, and in a loop of one's own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from whet.objectives import BoundsRule, Range, balanced_bounds

# The import of TRL takes many seconds: in one process.
pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("trl")]
EXAMPLES = Path(__file__).parents[2] / "examples"
LOW, HIGH = 0.8, 1.2  # what TRL's default epsilon of 0.2 is as bounds
FROZEN = BoundsRule(low=Range(start=LOW, ceiling=LOW, step=0), high=Range(start=HIGH, ceiling=HIGH, step=0))
SEARCHING = BoundsRule(target=0.52)

sys.path.insert(0, str(EXAMPLES))


def in_trl(folder, rule, *, sees_loss=None, **options):
    """The example's trainer after its run, and for every update: the bounds of the loss, its tokens (policy and old
    logprobs, advantages, mask: one tuple a micro-batch) and how far the weights had moved before it."""
    pytest.importorskip("trl", reason="TRL is not installed; it comes with the extra 'dev'")
    from bapo_in_trl import BapoTrainer, _credit_and_mask, tiny_trainer

    updates = []

    class Watched(BapoTrainer):
        def _start_update(self, model):
            super()._start_update(model)
            updates.append({"bounds": self.bounds, "batches": [], "weights": weights(self.model)})

        def _policy_logprobs(self, model, rows):
            self.last = super()._policy_logprobs(model, rows)
            return self.last

        def _compute_loss(self, model, inputs):
            loss = super()._compute_loss(model, inputs)
            policy = self.last.detach()
            old = inputs.get("old_per_token_logps", policy)
            updates[-1]["batches"].append((policy, old, *_credit_and_mask(inputs)))
            if sees_loss is not None:
                sees_loss(self, model, inputs, loss)
            return loss

    settings = {"max_steps": 4, "num_iterations": 2, "gradient_checkpointing": False} | options
    trainer = tiny_trainer(partial(Watched, rule=rule), str(folder), **settings)
    trainer.train()
    updates.append({"weights": weights(trainer.model)})
    return trainer, updates


def weights(model):
    return torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])


def test_bounds_in_trl_are_those_of_all_tokens_of_an_update(tmp_path):
    trainer, updates = in_trl(
        tmp_path, SEARCHING, per_device_train_batch_size=16, steps_per_generation=4, max_steps=8, learning_rate=3e-3
    )
    *updates, _ = updates
    assert len(updates) == trainer.state.global_step == 8  # found once an update
    assert all(len(update["batches"]) == 2 for update in updates)
    for number, (update, logged) in enumerate(zip(updates, trainer.state.log_history, strict=False)):
        found = update["bounds"]
        whole = balanced_bounds(*map(torch.cat, zip(*update["batches"], strict=True)), SEARCHING)
        assert (found.low, found.high, found.num_moves) == (whole.low, whole.high, whole.num_moves)
        # Two generations of 2 updates, gone through twice. Just after sampling the ratios are taken to be 1; TRL's two
        # passes, in batches of other rows, agree to rounding.
        rounding = 1e-5 if number % 4 == 0 else 1e-9
        assert found.share == pytest.approx(whole.share, rel=rounding)
        assert logged["bapo/high"] == found.high
        assert logged["bapo/share"] == found.share
    stale = [update["bounds"] for number, update in enumerate(updates) if number % 4]
    assert any(0 < bounds.num_moves < 51 and bounds.met for bounds in stale), stale  # neither idle nor exhausted
    one_batch = [balanced_bounds(*update["batches"][0], SEARCHING).num_moves for update in updates]
    assert one_batch != [update["bounds"].num_moves for update in updates]  # a micro-batch alone would get others


def test_micro_batches_in_trl_add_up(tmp_path):
    """Two micro-batches of 32 rows, and one of 64: the same bounds, and the same weights after every update."""
    _, split = in_trl(tmp_path, SEARCHING, num_iterations=4)
    _, whole = in_trl(
        tmp_path, SEARCHING, num_iterations=4, per_device_train_batch_size=64, gradient_accumulation_steps=1
    )
    assert [len(update.get("batches", ())) for update in whole] == [1, 1, 1, 1, 0]
    for ours, theirs in zip(split, whole, strict=True):
        if "bounds" in ours:
            assert (ours["bounds"].low, ours["bounds"].high) == (theirs["bounds"].low, theirs["bounds"].high)
            assert ours["bounds"].share == pytest.approx(theirs["bounds"].share, rel=1e-4)
        moved = ours["weights"] - split[0]["weights"]
        assert (ours["weights"] - theirs["weights"]).norm() <= 1e-3 * moved.norm()
    assert moved.norm() > 0


@pytest.mark.parametrize(
    ("rule", "num_iterations"), [(FROZEN, 4), (SEARCHING, 4), (FROZEN, 1)], ids=["frozen", "searching", "on policy"]
)
def test_loss_in_trl_is_trls_own_with_these_bounds(rule, num_iterations, tmp_path):
    """TRL's `dapo` divides by the generation batch's tokens, here those of the update. Same loss, same gradient."""
    clipped = []

    def compare(trainer, model, inputs, loss):
        from trl import GRPOTrainer

        if rule is SEARCHING:
            trainer.epsilon_low, trainer.epsilon_high = 1 - trainer.bounds.low, trainer.bounds.high - 1
        theirs = GRPOTrainer._compute_loss(trainer, model, inputs)
        torch.testing.assert_close(loss, theirs, rtol=1e-5, atol=1e-7)
        gradients = [
            torch.cat([g.flatten() for g in torch.autograd.grad(each, list(model.parameters()), retain_graph=True)])
            for each in (loss, theirs)
        ]
        assert (gradients[0] - gradients[1]).norm() <= 1e-5 * gradients[1].norm()
        clipped.append(trainer._metrics["train"]["clip_ratio/region_mean"][-1])

    steps = {"max_steps": num_iterations, "num_iterations": num_iterations}  # one generation
    _, updates = in_trl(tmp_path, rule, sees_loss=compare, loss_type="dapo", **steps)
    assert len(clipped) == 2 * num_iterations
    assert (max(clipped) > 0) == (num_iterations > 1)  # whether the bounds stopped something
    if rule is FROZEN:
        assert {(update["bounds"].low, update["bounds"].high) for update in updates[:-1]} == {(LOW, HIGH)}


RANK = """
import sys, torch
from functools import partial
sys.path[:0] = [{examples!r}, {tests!r}]
torch.set_num_threads(1)
from test_bapo_in_trl import SEARCHING, in_trl
_, updates = in_trl({out!r}, SEARCHING, max_steps=3, num_iterations=3, per_device_train_batch_size=16)
rank = torch.distributed.get_rank()
batches = [tuple(map(torch.cat, zip(*update["batches"]))) for update in updates[:-1]]
bounds = [(found.low, found.high, found.share) for found in (update["bounds"] for update in updates[:-1])]
torch.save((bounds, batches, updates[-1]["weights"]), {out!r} + str(rank))
torch.distributed.destroy_process_group()
"""


def test_ranks_in_trl_share_the_bounds_of_all_their_tokens(tmp_path):
    pytest.importorskip("trl", reason="TRL is not installed; it comes with the extra 'dev'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = RANK.format(examples=str(EXAMPLES), tests=str(Path(__file__).parent), out=str(tmp_path / "rank"))
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for rank in ranks:
        _, errors = rank.communicate(timeout=300)
        assert rank.returncode == 0, errors[-2000:]
    one, other = (torch.load(tmp_path / f"rank{rank}", weights_only=True) for rank in range(2))
    assert one[0] == other[0]
    assert torch.equal(one[2], other[2])  # they stayed one model
    alone = []
    for (low, high, share), *of_ranks in zip(one[0], one[1], other[1], strict=True):
        tokens = [torch.cat([part.flatten() for part in parts]) for parts in zip(*of_ranks, strict=True)]
        whole = balanced_bounds(*tokens, SEARCHING)
        assert (low, high) == (whole.low, whole.high)
        assert share == pytest.approx(whole.share, rel=1e-5)
        alone.append(balanced_bounds(*of_ranks[0], SEARCHING).share)
    assert alone != pytest.approx([share for *_, share in one[0]], rel=1e-3)  # one rank sees something else


def test_what_the_example_would_ignore_is_refused(tmp_path):
    with pytest.raises(ValueError, match="ignore beta"):
        in_trl(tmp_path, FROZEN, beta=0.1)
    with pytest.raises(ValueError, match="multiple of gradient_accumulation_steps"):
        in_trl(tmp_path, FROZEN, gradient_accumulation_steps=2, steps_per_generation=3)


def test_plain_example_runs():
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, EXAMPLES / "bapo_plain.py"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "c_high" in done.stdout
