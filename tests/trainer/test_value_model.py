"""A value model's warm-up, in steps."""

from __future__ import annotations

import pytest

from whet.config.losses import ValueConfig
from whet.config.parts import LearningConfig
from whet.trainer.value_model import steps_after_warmup


@pytest.mark.parametrize(
    ("warmup_updates", "steps"),
    [(0, 60), (4, 58), (5, 57), (6, 57), (400, 1)],  # two updates a step: five are done within the third
)
def test_a_step_in_which_the_warm_up_ends_is_a_step_of_it(warmup_updates, steps):
    learning = LearningConfig(num_epochs=1, minibatch_rows=8)
    assert steps_after_warmup(ValueConfig(warmup_updates=warmup_updates, learning=learning), 16, 60) == steps
