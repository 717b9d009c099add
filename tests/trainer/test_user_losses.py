"""A policy loss of a user's own: its keyword arguments are settings, and what it gives is checked."""

from __future__ import annotations

import inspect
import math
from typing import Annotated, Literal

import numpy as np
import pytest
import torch
from pydantic import Field

import whet
from support.commands import config_of, logged
from support.commands import whet as command
from whet.config import ConfigError, config_at, describe
from whet.config.losses import LOSSES, ClipLoss
from whet.objectives import clipped_policy_loss, dppo_loss
from whet.plugins import PluginError, load_plugins
from whet.registry import Registry
from whet.trainer.losses import FUNCTIONS, loss_of
from whet.trainer.terms import Pass
from whet.trainer.user_losses import LossError

CAPPED = '''
from typing import Annotated, Literal

import whet
from pydantic import Field
from whet.objectives.ratio import log_ratios, masked_credit, summed

@whet.loss("capped")
def capped(policy_logprobs, old_logprobs, advantages, loss_mask, token_weight, *,
           cap: Annotated[float, Field(gt=0, description="Ratios above it push no more.")] = 2.0):
    """The surrogate, with a cap on the ratio."""
    ratio = log_ratios(policy_logprobs, old_logprobs, loss_mask).exp()
    loss = -ratio.clamp(max=cap) * masked_credit(advantages, loss_mask)
    return summed(loss, loss_mask, token_weight), {"num_capped": (loss_mask & (ratio > cap)).sum()}
'''
SMALL = ["num_steps=1", "prompts_per_step=4", "group_size=4", "evaluation.num_samples=0", "evaluation.num_validation=4",
         "evaluation.num_test=4", "data.num_train=16", "num_threads=1", "signed=true"]  # fmt: skip


@pytest.fixture(autouse=True)
def registered_as_before():
    before, origin = dict(LOSSES._entries), Registry.current_origin
    yield
    LOSSES._entries.clear()
    LOSSES._entries.update(before)
    Registry.current_origin = origin


def pass_of(policy_BT, old_BT, credit_BT, mask_BT) -> Pass:
    weight_BT = torch.full(mask_BT.shape, 0.25)
    return Pass(policy_BT, old_BT, None, credit_BT, torch.zeros(mask_BT.shape), mask_BT, weight_BT, {}, ())


def some_pass() -> Pass:
    generator = torch.Generator().manual_seed(0)
    policy_BT, old_BT, credit_BT = (torch.randn(3, 4, generator=generator) for _ in range(3))
    mask_BT = torch.tensor([[True] * 4, [True, True, False, False], [True, False, False, False]])
    return pass_of(policy_BT.requires_grad_(), old_BT, credit_BT, mask_BT)


def test_its_arguments_are_settings_like_those_of_ours(tmp_path):
    file = tmp_path / "capped.py"
    file.write_text(CAPPED)
    load_plugins([file])
    config = config_of("grpo", "loss.kind=capped", "loss.cap=1.5")
    assert (config.loss.kind, config.loss.cap) == ("capped", 1.5)
    assert "# Ratios above it push no more.\n  cap: 1.5" in describe(config)
    assert (LOSSES.entry("capped").says, LOSSES.entry("capped").origin) == (
        "The surrogate, with a cap on the ratio.",
        str(file),
    )
    for setting, says in {
        "loss.cap=0": "loss.cap must be a number > 0, got 0",
        "loss.capp=3": "unknown key loss.capp: did you mean loss.cap",
        "loss.cap=high": "loss.cap must be a number > 0, got 'high'",
        "loss.dual=3": "loss.dual is a key of loss.kind=clip, but loss.kind is capped",
    }.items():
        with pytest.raises(ConfigError, match=says):
            config_of("grpo", "loss.kind=capped", setting)
    going = config_of("grpo", "loss.kind=capped", "schedule.loss.cap={kind: steps, values: [1.5, 2.5], at: [3]}")
    assert [config_at(going, step).loss.cap for step in (1, 3)] == [1.5, 2.5]


def test_one_that_no_plugin_registers_is_refused_by_its_name():
    with pytest.raises(ConfigError, match=r"loss: there is no policy loss 'cliip'; did you mean 'clip'"):
        config_of("grpo", "loss.kind=cliip")
    with pytest.raises(ConfigError, match=r"there is no policy loss '3'"):
        config_of("grpo", "loss.kind=3")


def test_a_copy_of_ours_gives_its_loss_gradient_and_metrics():
    whet.loss("my_dppo")(narrow_dppo)
    ours, mine = (some_pass() for _ in range(2))
    settings = config_of("grpo", "loss.kind=dppo", "loss.low=0.05").loss
    of_mine = config_of("grpo", "loss.kind=my_dppo", "loss.low=0.05").loss
    (loss, metrics), (other, others) = (loss_of(each)[0](seen) for each, seen in ((settings, ours), (of_mine, mine)))
    loss.backward()
    other.backward()
    assert loss.item() == other.item() != 0
    assert ours.policy.grad.equal(mine.policy.grad)
    assert {name: value.item() for name, value in metrics.items()} == {n: v.item() for n, v in others.items()}


def narrow_dppo(policy, old, credit, mask, weight, *, low: float = 0.2, divergence: Literal["tv", "kl"] = "tv"):
    return dppo_loss(policy, old, credit, mask, weight, divergence=divergence, low=low, high=0.2, max_ratio=20.0)


def test_every_loss_of_ours_is_behind_the_same_door():
    """None is left out of the table, and each takes its own settings."""
    for entry in LOSSES:
        kind = entry.make()
        assert entry.says
        loss, choose = loss_of(kind())
        assert choose is not None or loss(some_pass())[0].isfinite()
        assert (kind in FUNCTIONS) or entry.name in ("clip", "cispo", "m2po")
    seen = some_pass()
    expected, _ = clipped_policy_loss(
        seen.policy, seen.old, seen.credit, seen.mask, seen.weight, low=0.8, high=1.2, dual=3
    )
    assert loss_of(ClipLoss(dual=3))[0](seen)[0] == expected


def refused(function, says: str) -> None:
    with pytest.raises(ValueError, match=says) as error:
        whet.loss("of a test")(function)
    assert "\n" not in str(error.value)
    assert "of a test" not in LOSSES


def test_one_that_cannot_be_one_is_refused_as_it_is_registered():
    refused(
        lambda policy, old: 0, r"has to take \(policy_logprobs, old_logprobs, advantages, loss_mask, token_weight\)"
    )
    refused(lambda p, o, a, m, w, low=0.2: 0, "after a \\* its settings by keyword")
    refused(lambda p, o, a, m, w, **more: 0, "after a \\* its settings by keyword")
    refused(lambda p, o, a, m, w, *, cap: 0, "give its setting cap a type and a default")
    refused(lambda p, o, a, m, w, *, cap=2.0: 0, "give its setting cap a type and a default")
    refused(5, "decorate a function")

    def of(cap: object, default: object = None, name: str = "cap"):
        def loss(p, o, a, m, w, **_): ...

        kinds = inspect.Parameter
        tensors = [kinds(each, kinds.POSITIONAL_OR_KEYWORD) for each in "poamw"]
        option = kinds(name, kinds.KEYWORD_ONLY, annotation=cap, default=default)
        loss.__signature__ = inspect.Signature([*tensors, option])
        return loss

    refused(of(torch.Tensor, torch.zeros(1)), "settings are numbers, text")
    refused(of(float, "high"), "its defaults are no settings: cap must be a number, got 'high'")
    refused(of(Annotated[float, Field(gt=0)], -1.0), "its defaults are no settings: cap must be a number > 0, got -1")
    refused(of(float, 1.0, "kind"), "cannot be named kind")
    refused(of(float, 1.0, "copy"), "cannot be named copy")
    refused(of(float, 1.0, "function"), "cannot be named function")
    refused(of(object, object()), "settings are numbers, text")
    refused(of(complex, 1j), "settings are numbers, text")
    refused(of(float, Field(1.0)), "its defaults are no settings: cap must be a number, got one of type FieldInfo")
    refused(of("NoSuchType", 1.0), "arguments cannot be read|something else")


WRONG = {
    "no pair": (lambda p, o, a, m, w: p.sum(), "gave a tensor of shape \\[\\].*, where a pair was due"),
    "a loss a token": (lambda p, o, a, m, w: (-p * a, {}), r"gave a tensor of shape \[2, 3\].* single number was due"),
    "no gradient": (lambda p, o, a, m, w: (p.detach().sum(), {}), "gave a loss without a gradient"),
    "a list": (lambda p, o, a, m, w: ((p * m).sum(), ["x"]), "gave a list as its metrics"),
    "a wide metric": (lambda p, o, a, m, w: ((p * m).sum(), {"ratio": p}), "as its metric 'ratio', where a number"),
    "NaN": (lambda p, o, a, m, w: ((p * m).sum() * math.nan, {}), "gave a loss of nan for finite logprobs"),
    "an infinite metric": (lambda p, o, a, m, w: ((p * m).sum(), {"x": math.inf}), "gave a metric 'x' of inf"),
    "another's gradient": (lambda p, o, a, m, w: (torch.ones((), requires_grad=True), {}), "a loss without a gradient"),
    "a device without numbers": (lambda p, o, a, m, w: (p.sum().to("meta"), {}), "gave a loss on the device meta"),
    "a gradient of NaN": (
        lambda p, o, a, m, w: ((p - p.detach()).clamp(min=0).sqrt().sum(), {}),
        "gave a loss whose gradient is NaN or infinite for finite logprobs",
    ),
    "a backward pass": (
        lambda p, o, a, m, w: (backward((p * p * m).sum()), {}),
        r"cannot be computed \(RuntimeErr",
    ),
    "a mask that changes": (
        lambda p, o, a, m, w: (p.sum() * m.fill_(True).sum(), {}),
        "changed loss_mask, which others",
    ),
    "credit that changes": (lambda p, o, a, m, w: ((p * a.mul_(2)).sum(), {}), "changed advantages, which others read"),
    "weights that change": (lambda p, o, a, m, w: ((p * w.zero_()).sum(), {}), "changed token_weight, which others"),
    "a metric on no device": (
        lambda p, o, a, m, w: (p.sum(), {"x": torch.zeros((), device="meta")}),
        "as its metric 'x', where a number",
    ),
    "a complex metric": (lambda p, o, a, m, w: (p.sum(), {"x": torch.tensor(1j)}), "as its metric 'x', where a number"),
    "a number past all": (lambda p, o, a, m, w: (p.sum(), {"x": 10**400}), "gave a int as its metric 'x'"),
    "a number for a name": (lambda p, o, a, m, w: (p.sum(), {3: 1.0}), "gave a metric the name '3'"),
    "no name": (lambda p, o, a, m, w: (p.sum(), {"num_": 1.0}), "gave a metric the name 'num_'"),
    "a long name": (lambda p, o, a, m, w: (p.sum(), {"x" * 999: 1.0}), "use at most 60 characters"),
    "a name of two lines": (lambda p, o, a, m, w: (p.sum(), {"a\nb": 1.0}), "gave a metric the name"),
    "two metrics, one line": (
        lambda p, o, a, m, w: (p.sum(), {"x_sum": 1.0, "num_x": 2.0}),
        "gave a metric 'num_x', logged as loss/x like the metric 'x_sum': give it another name",
    ),
    "the loss's own line": (lambda p, o, a, m, w: (p.sum(), {"mean_sum": 1.0}), "loss/mean like the loss itself"),
    "a divisor": (
        lambda p, o, a, m, w: (p.sum(), {"num_pairs": 1.0}),
        "'num_pairs', which is what sums are",
    ),
}


def backward(loss):
    loss.backward()
    return loss


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_loss_is_a_sentence_at_once_and_in_a_run(name):
    function, says = WRONG[name]
    refused(function, says)
    late = []

    def breaks_late(policy, old, credit, mask, weight):
        late.append(1)
        return function(policy, old, credit, mask, weight) if len(late) > 1 else ((policy * mask).sum(), {})

    whet.loss("of a test: late")(breaks_late)
    loss, _ = loss_of(config_of("grpo", "loss.kind='of a test: late'").loss)
    seen = some_pass()
    with pytest.raises(LossError, match=r"the policy loss 'of a test: late' of .*goes on") as error:
        loss(Pass(seen.policy[:2, :3], *(each if each is None else each[:2, :3] for each in (
            seen.old, None, seen.credit, seen.entropy, seen.mask, seen.weight)), {}, ()))  # fmt: skip
    assert error.value.exit_code == 1


def test_numbers_of_any_library_are_metrics_to_the_last_digit():
    many = 2**24 + 1  # no float32
    whet.loss("of a test")(lambda p, o, a, m, w: ((p * m).sum(), {"num_x": torch.tensor(many), "y_sum": np.float32(2)}))
    _, metrics = loss_of(config_of("grpo", "loss.kind='of a test'").loss)[0](some_pass())
    assert {name: value.item() for name, value in metrics.items()} == {"num_x": many, "y_sum": 2}


def test_torch_is_as_before_it():
    def careless(p, o, a, m, w):
        torch.set_grad_enabled(False)
        return loss_before, {}

    loss_before = torch.ones((), requires_grad=True)
    refused(careless, "gave a loss without a gradient")
    assert torch.is_grad_enabled()
    refused(lambda p, o, a, m, w: (torch.set_default_dtype(torch.float64), {}), "changed torch's default dtype")
    assert torch.get_default_dtype() == torch.float32


def test_an_error_of_its_own_is_named_with_the_line(tmp_path):
    file = tmp_path / "late.py"
    file.write_text(
        "import whet\ncalls = []\n\n@whet.loss('late')\ndef late(p, o, a, m, w):\n    calls.append(1)\n"
        "    if len(calls) > 1:\n        raise KeyError('mine')\n    return (p * m * w).sum(), {}\n"
    )
    load_plugins([file])
    loss, _ = loss_of(config_of("grpo", "loss.kind=late").loss)
    with pytest.raises(LossError, match=rf"the policy loss 'late' of {file}, line 8, raised KeyError: 'mine'; mend it"):
        loss(some_pass())


def test_a_name_of_ours_is_refused(tmp_path):
    file = tmp_path / "clip.py"
    file.write_text(CAPPED.replace('loss("capped")', 'loss("clip")'))
    with pytest.raises(PluginError, match=r"there is a policy loss 'clip' already, of whet: choose another name"):
        load_plugins([file])
    assert LOSSES.get("clip") is ClipLoss


def test_a_run_with_it_learns_logs_its_metrics_and_says_where_the_file_changed(tmp_path, random_model):
    """The file alone, and no edit of the library: from `whet list` to `whet resume`."""
    file, run = tmp_path / "capped.py", tmp_path / "run"
    file.write_text(CAPPED)
    assert "capped The surrogate, with a cap on the ratio. capped.py" in " ".join(
        command("list", "losses", f"--plugins={file}").stdout.split()
    )
    settings = [f"plugins=[{file}]", f"policy.path={random_model}", *SMALL, "loss.kind=capped", "loss.cap=0.5"]
    command("train", "grpo", *settings, "advantage=reward", "--out", run)
    [row] = [row for row in logged(run) if row["phase"] == "train" and row["step"] == 1]
    assert row["loss/capped"] == 1  # on policy each ratio is 1, above the cap
    assert row["loss/mean"] == pytest.approx(0.5, abs=1e-6)  # and each reward -1
    (run / "summary.json").unlink()
    file.write_text(CAPPED.replace("max=cap", "max=2 * cap"))
    done = command("resume", run, check=False)
    assert done.returncode == 1
    assert f"plugins = {file} was replaced since the run began" in " ".join((done.stdout + done.stderr).split())
