"""The laws of `whet.trainer.protocol.Trainer`, on the trainer of this process; and when an engine agrees with one."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from support.remote_engine import RemoteEngine
from whet.config.parts import LearningConfig
from whet.engines.agreement import REPEATED
from whet.engines.local import LocalEngine
from whet.errors import RunError
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.trainer import imitation
from whet.trainer.local import trainer_of
from whet.trainer.protocol import Trainer
from whet.trainer.selfchecks import check_weights, difference_of, probe_rows
from whet.types import tail_row

RULE = imitation(LearningConfig(learning_rate=1e-2, minibatch_rows=1), 6)


@pytest.fixture
def trainer(random_policy: Policy) -> Trainer:
    return trainer_of(random_policy)


def rows_of(policy: Policy):
    return [tail_row(policy.name, (5, 6, 7), (8, 9, 10 + i), 1.0) for i in range(2)]


def weights(trainer: Trainer) -> torch.Tensor:
    return torch.cat([value.flatten() for value in trainer.state().values()])


def test_updates_count_the_version_and_a_new_phase_counts_its_steps_anew(trainer):
    before = weights(trainer)
    trainer.begin(RULE)
    assert (trainer.version, trainer.num_updates) == (0, 0)
    assert trainer.update(rows_of(trainer.policy), seed=0)["optim/updates"] == 2
    assert (trainer.version, trainer.num_updates) == (2, 2)
    assert trainer.update([], seed=1) == {}
    assert trainer.version == 2
    trainer.finish()
    assert not torch.equal(weights(trainer), before)
    trainer.begin(RULE)
    assert (trainer.version, trainer.num_updates) == (2, 0)


def test_scores_are_those_of_the_policy(trainer):
    rows = rows_of(trainer.policy)
    for one, other in zip(
        trainer.score(rows, token_budget=64), score(trainer.policy, rows, token_budget=64), strict=True
    ):
        assert torch.equal(one, other)


def test_a_fork_has_weights_of_its_own_and_can_be_copied_from(trainer):
    twin = trainer.fork("twin")
    assert (twin.policy.name, twin.policy.frozen, twin.version) == ("twin", True, 0)
    trainer.begin(RULE)
    trainer.update(rows_of(trainer.policy), seed=0)
    trainer.finish()
    assert not torch.equal(weights(twin), weights(trainer))
    twin.copy(trainer)
    assert (twin.version, torch.equal(weights(twin), weights(trainer))) == (2, True)
    twin.copy(trainer, version=9)
    assert twin.version == 9


def test_what_is_saved_goes_on_to_the_same_bits(trainer, tmp_path):
    def learn(one: Trainer, seed: int) -> None:
        one.update(rows_of(one.policy), seed=seed)

    twin = trainer_of(trainer.fork("policy").policy)
    twin.policy.frozen = False
    trainer.begin(RULE)
    learn(trainer, 0)
    trainer.save(tmp_path)
    state = trainer.optimizer_state()
    twin.load(tmp_path, version=trainer.version)
    twin.begin(RULE)
    twin.load_optimizer_state({name: value.clone() for name, value in state.items()})
    assert twin.num_updates == 2
    learn(trainer, 1)
    learn(twin, 1)
    assert (twin.version, torch.equal(weights(twin), weights(trainer))) == (trainer.version, True)


def test_weights_are_not_replaced_under_an_optimiser(trainer, tmp_path):
    other = trainer.fork("other")
    trainer.save(tmp_path)
    trainer.begin(RULE)
    with pytest.raises(RuntimeError, match="weights of policy were to be replaced while a phase trains them"):
        trainer.copy(other)
    with pytest.raises(RuntimeError, match="while a phase trains them"):
        trainer.load(tmp_path, version=1)
    trainer.finish()
    trainer.copy(other)


def test_the_memory_of_an_optimiser_is_freed(trainer):
    trainer.begin(RULE)
    trainer.update(rows_of(trainer.policy), seed=0)
    trainer.finish()
    assert trainer.optimizer_state()
    learner = weakref.ref(trainer.learner)
    trainer.drop_optimizer()
    gc.collect()
    assert learner() is None


# --- engine and trainer -----------------------------------------------------------------------------------------------


def test_a_push_brings_engine_and_trainer_together(trainer):
    engine = RemoteEngine(trainer.policy)
    with pytest.raises(RunError, match="its version is None, and the trainer's is 0"):
        check_weights(trainer, engine)
    trainer.push(engine)
    check_weights(trainer, engine)
    trainer.begin(RULE)
    trainer.update(rows_of(trainer.policy), seed=0)
    with pytest.raises(RunError, match=r"its version is 0, and the trainer's is 2\. Restart the engine and resume"):
        check_weights(trainer, engine)
    trainer.push(engine)
    check_weights(trainer, engine)


@pytest.mark.parametrize("factor", [1.01, float("nan")])
def test_a_probe_tells_weights_of_one_version_apart(trainer, factor):
    engine = RemoteEngine(trainer.policy)
    trainer.push(engine)
    with torch.no_grad():
        trainer.policy.model.model.norm.weight.mul_(factor)
    with pytest.raises(RunError, match=r"the logprobs of a probe differ by \S+ \(the mean difference, allowed 5e-05\)"):
        check_weights(trainer, engine)


def test_the_smallest_usual_rate_shows_in_a_probe(random_policy):
    """An update at 5e-7 that does not arrive is found, not only one of the tiny model's rates."""
    trainer = trainer_of(random_policy)
    rows = probe_rows(random_policy)
    before = trainer.score(rows, token_budget=64)
    trainer.begin(imitation(LearningConfig(learning_rate=5e-7, final_share=1.0, minibatch_rows=1), 6))
    trainer.update(rows_of(random_policy), seed=0)
    which, allowed = REPEATED[torch.float32]
    assert difference_of(random_policy, before, trainer.score(rows, token_budget=64), which) > 2 * allowed


def test_one_memory_is_not_scored(trainer, monkeypatch):
    engine = LocalEngine(trainer.policy)
    monkeypatch.setattr(LocalEngine, "score", lambda *_: pytest.fail("it costs nothing"))
    check_weights(trainer, engine)


def test_sides_that_score_other_tokens_are_refused_in_a_sentence(random_policy):
    two, three = [torch.zeros(4), torch.zeros(2)], [torch.zeros(4), torch.zeros(3)]
    with pytest.raises(RunError, match="of row 2 of a probe the engine has 2 logprobs, and the trainer 3, so the run"):
        difference_of(random_policy, two, three, "mean")
    assert difference_of(random_policy, [torch.tensor([-1.0, -2.0])], [torch.tensor([-1.5, -2.0])], "largest") == 0.5
