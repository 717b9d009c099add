"""`pairwise_loss` against TRL 1.16.0's own DPO, conservative DPO, margin and IPO: values and gradients."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from whet.objectives import pairwise_loss, row_sums

# The import of TRL takes many seconds: in one process.
pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("trl")]
NO_TRL = "TRL is not installed; it comes with the extra 'dev'"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scale", [0.1, 5.0, 1e3])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"kind": "logistic"}, {"loss_type": "sigmoid"}),
        ({"kind": "logistic", "label_smoothing": 0.2}, {"loss_type": "sigmoid", "label_smoothing": 0.2}),
        ({"kind": "logistic", "margin": 0.7}, {"loss_type": "simpo", "simpo_gamma": 0.7}),
        (
            {"kind": "logistic", "margin": 0.7, "label_smoothing": 0.2},
            {"loss_type": "simpo", "simpo_gamma": 0.7, "label_smoothing": 0.2},
        ),
        ({"kind": "ipo"}, {"loss_type": "ipo"}),
    ],
    ids=["logistic", "smoothed", "margin", "smoothed margin", "ipo"],
)
def test_pairs_are_trls(ours, theirs, scale, seed):
    """TRL 1.16's `DPOTrainer` smooths the labels of none of these losses, so this is its `CPOTrainer.cpo_loss`: the
    same ones without a reference, here given log ratios. It reads settings from its trainer and keeps nothing."""
    pytest.importorskip("trl", reason=NO_TRL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what stands under `experimental`
        from trl.experimental.cpo import CPOTrainer

    settings = {"alpha": 0.0, "beta": 0.3, "label_smoothing": 0.0} | theirs
    trainer = SimpleNamespace(**settings, accelerator=SimpleNamespace(device="cpu"))
    generator = torch.Generator().manual_seed(seed)
    chosen, rejected = (scale * torch.randn(2, 16, generator=generator, dtype=torch.float64)).requires_grad_()
    weight = torch.rand(16, generator=generator, dtype=torch.float64)
    loss, _ = pairwise_loss(chosen, rejected, weight, beta=0.3, **ours)
    trls = (CPOTrainer.cpo_loss(trainer, chosen, rejected)[0] * weight).sum()
    assert_close(loss, trls)
    assert_close(*(torch.autograd.grad(each, (chosen, rejected)) for each in (loss, trls)))


@pytest.fixture(scope="module")
def dpo_trainer(tmp_path_factory):
    """TRL's trainer on the tiny model, its reference the model before some noise; and a batch of 4 of its pairs."""
    pytest.importorskip("trl", reason=NO_TRL)
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    from whet.models.shipped import TINY

    def message(role, text):
        return [{"role": role, "content": text}]

    texts = ["1 + 2 = 3", "2 * 3 = 6 so 6 - 4 = 2", "The answer is 4", "4 - 1"]
    rows = {
        "prompt": [message("user", f"Solve: {text}") for text in texts],
        "chosen": [message("assistant", text) for text in texts],
        "rejected": [message("assistant", text) for text in texts[1:] + texts[:1]],
    }
    model, ref = (AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32) for _ in range(2))
    settings = {"use_cpu": True, "bf16": False, "report_to": [], "gradient_checkpointing": False, "disable_tqdm": True}
    config = DPOConfig(str(tmp_path_factory.mktemp("dpo")), per_device_train_batch_size=4, **settings)
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    trainer = DPOTrainer(model, ref, config, train_dataset=Dataset.from_dict(rows), processing_class=tokenizer)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
    trainer.model.eval()
    return trainer, next(iter(trainer.get_train_dataloader()))


def logprobs_of(model, inputs):
    """[B, T - 1], of the token after each position."""
    logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[:, :-1]
    return logits.float().log_softmax(-1).gather(-1, inputs["input_ids"][:, 1:, None]).squeeze(-1)


@pytest.mark.parametrize(("kind", "trls", "mean"), [("logistic", "sigmoid", False), ("ipo", "ipo", True)])
def test_dpo_on_a_model_is_trls(dpo_trainer, kind, trls, mean):
    """From tokens to the loss and its gradient by every weight; TRL's loss is a mean over pairs."""
    trainer, inputs = dpo_trainer
    trainer.loss_types, trainer.loss_weights, trainer.beta = [trls], [1.0], 0.5
    theirs = trainer.compute_loss(trainer.model, inputs)
    mask = inputs["completion_mask"][:, 1:].bool()
    with torch.no_grad():
        ref = logprobs_of(trainer.ref_model, inputs)
    chosen, rejected = row_sums(logprobs_of(trainer.model, inputs) - ref, mask, mean=mean).chunk(2)
    loss, metrics = pairwise_loss(chosen, rejected, torch.full_like(chosen, 1 / 4), kind=kind, beta=0.5)
    assert_close(loss, theirs, rtol=1e-5, atol=1e-6)
    gradients = [
        torch.cat([g.flatten() for g in torch.autograd.grad(each, list(trainer.model.parameters()))])
        for each in (loss, theirs)
    ]
    assert gradients[1].norm() > 0
    assert (gradients[0] - gradients[1]).norm() <= 1e-5 * gradients[1].norm()
    if kind == "logistic":
        logged = {name: values[-1] for name, values in trainer._metrics["eval"].items()}
        assert metrics["pair_right_sum"].item() / 4 == pytest.approx(logged["rewards/accuracies"])
        assert metrics["pair_margin_sum"].item() / 4 == pytest.approx(logged["rewards/margins"], rel=1e-4)
        assert 0.5 * metrics["chosen_sum"].item() / 4 == pytest.approx(logged["rewards/chosen"], rel=1e-4)
