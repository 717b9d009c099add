"""A value model: a policy's decoder with a head that gives one number a token, in the layout of `transformers`.

To the trainer and to checkpoints it is a `Policy` like any other (`ForTokenClassification` with one label). Only its
head differs, and no engine samples from it.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForTokenClassification

from whet.config.base import ConfigError
from whet.models.loading import from_pretrained, reading
from whet.models.places import resolve
from whet.models.policy import Policy


def value_model_of(policy: Policy, name: str) -> Policy:
    """A value model with the weights of a policy's decoder and a new head that gives 0 everywhere.

    Raises: ConfigError where the family has no such model, or where the policy is a LoRA adapter.
    """
    if policy.adapter is not None:
        raise ConfigError("a value model trains all of its weights: for a policy with LoRA give value.path")
    config = copy.deepcopy(policy.causal_lm.config)
    config.num_labels = 1
    try:
        model = AutoModelForTokenClassification.from_config(config, dtype=policy.causal_lm.dtype)
    except ValueError as error:
        raise ConfigError(
            f"transformers has no value model (token classification) for {config.model_type!r}"
        ) from error
    _check_head(model)
    value_model = Policy(name, model.to(policy.device).eval(), policy.tokenizer, is_value=True)
    begin_anew(value_model, policy)
    return value_model


@torch.no_grad()
def begin_anew(value_model: Policy, policy: Policy) -> None:
    """Copy the policy's current decoder, and make the head give 0 everywhere. This is for a policy that was fine-tuned
    after its value model was made."""
    value_model.model.base_model.load_state_dict(policy.causal_lm.get_decoder().state_dict())  # type: ignore[union-attr]
    for parameter in value_model.model.score.parameters():  # type: ignore[union-attr]
        parameter.zero_()


def load_value_model(path: Path | str, policy: Policy, name: str) -> Policy:
    """Load a saved value model.

    Raises: ConfigError where there is none, or the family has no such model.
    """
    place = resolve(str(path))
    advice = "leave it out to begin with the policy's weights and a new head"
    with reading(f"value.path = {str(path)!r} is no model that transformers can load", advice):
        if getattr(AutoConfig.from_pretrained(place, trust_remote_code=False), "num_labels", None) != 1:
            raise ConfigError(
                f"value.path = {str(path)!r} holds no value model (token classification with one label, head "
                f"included); {advice}"
            )
        model = from_pretrained(AutoModelForTokenClassification, place, policy.causal_lm.dtype)
    _check_head(model)
    return Policy(name, model.to(policy.device).eval(), policy.tokenizer, is_value=True)


def _check_head(model: Any) -> None:
    """Raises: ConfigError where the family's head is not a layer `score`, which `models.scoring` applies."""
    if not hasattr(model, "score"):
        raise ConfigError(
            f"whet has no value model for {model.config.model_type!r}, whose head has another form than that of the "
            "families of Llama, Mistral, Qwen and Gemma: take a policy of one of these, or an advantage other than gae"
        )
