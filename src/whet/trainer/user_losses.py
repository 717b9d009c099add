"""`@whet.loss`: a user's policy loss, whose keyword arguments become settings like those of any other loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypeVar

import torch
from pydantic import PydanticSchemaGenerationError, PydanticUserError, ValidationError, create_model
from torch import Tensor

from whet.config.losses import LOSSES, PolicyLoss
from whet.config.problems import validation_problem
from whet.errors import RunError
from whet.plugins import line_of, said

PolicyLossFunction = Callable[..., tuple[Tensor, dict[str, Tensor]]]
"""From (policy logprobs, old logprobs, advantages, loss mask, token weight), and settings by keyword, to a weighted sum
and to sums as metrics. The tensors are [B, T]; the token weight may be [B, 1]. See `objectives.clipped_policy_loss`."""
F = TypeVar("F", bound=PolicyLossFunction)

ARGUMENTS = ("policy_logprobs", "old_logprobs", "advantages", "loss_mask", "token_weight")
MEND = "mend it, then `whet resume --accept-changes` goes on from the last checkpoint"


class LossError(RunError):
    """A user's loss raised an error, or returned no loss. The last checkpoint is whole."""


class UserLoss(PolicyLoss):
    """Base class of the settings of users' losses. A subclass has a field for each keyword argument of its function."""

    function: ClassVar[PolicyLossFunction]

    def checked(self, *tensors: Tensor, **arguments: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Call the function and check its result against `PolicyLossFunction`.

        Raises: LossError where it raises an error, or gives no finite loss and metrics for finite logprobs and credit.
        """
        origin = LOSSES.entry(self.kind).origin
        whose = f"the policy loss {self.kind!r} of {origin}"
        try:
            result = type(self).function(*tensors, **arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit and CancelledError too
            raise LossError(f"{whose}{line_of(error, origin)} raised {said(error)}; {MEND}") from error
        if problem := _problem(result, tensors):
            raise LossError(f"{whose} {problem}; {MEND}")
        loss, metrics = result
        return loss, {name: torch.as_tensor(value).detach() for name, value in metrics.items()}


def loss(name: str, *, says: str = "") -> Callable[[F], F]:
    """Registers a policy loss, for `loss.kind: NAME` in a config:

        @whet.loss("asymmetric")
        def asymmetric(policy_logprobs, old_logprobs, advantages, loss_mask, token_weight, *, cap: float = 2.0):
            ratio = log_ratios(policy_logprobs, old_logprobs, loss_mask).exp()
            loss = -ratio.clamp(max=cap) * advantages
            return summed(loss, loss_mask, token_weight), {"num_capped": (loss_mask & (ratio > cap)).sum()}

    Every keyword argument is a setting, `loss.cap`, with the annotation as its type and a default.
    `Annotated[float, Field(gt=0, description="...")]` adds bounds, and the text that `whet config` shows.

    Registration tries the function once, on a few made-up tokens.

    Args:
        says: a line that says what the loss is. Empty: the docstring's first line.
    Raises: ValueError where it takes other arguments, has a setting of an unusable type, or gives no loss.
    """

    def register(function: F) -> F:
        settings = _settings_of(name, function)
        _try_out(name, settings)
        LOSSES.add(name, settings, says=says or (function.__doc__ or "").strip().partition("\n")[0])
        return function

    return register


def _settings_of(name: str, function: PolicyLossFunction) -> type[UserLoss]:
    """A config class with a field for each keyword argument.

    Raises: ValueError where the arguments are not those of a policy loss, or cannot be settings.
    """
    whose = f"the policy loss {name!r}"
    try:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
    except (TypeError, ValueError, NameError) as error:
        raise ValueError(f"{whose}: its arguments cannot be read ({error}); decorate a function") from error
    tensors = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    options = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    if len(tensors) != len(ARGUMENTS) or len(tensors) + len(options) != len(parameters):
        raise ValueError(f"{whose} has to take ({', '.join(ARGUMENTS)}), and after a * its settings by keyword")
    fields: dict[str, Any] = {"kind": (Literal[name], name)}
    for option in options:
        if option.annotation is option.empty or option.default is option.empty:
            raise ValueError(f"{whose}: give its setting {option.name} a type and a default, as in cap: float = 2.0")
        if hasattr(UserLoss, option.name) or option.name.startswith(("_", "model_")) or option.name == "kind":
            raise ValueError(f"{whose}: a setting cannot be named {option.name}: choose another name")
        fields[option.name] = (option.annotation, option.default)
    try:
        settings = create_model(
            f"{name}_loss",
            __base__=UserLoss,
            __module__=function.__module__,
            __doc__=inspect.getdoc(function) or name,
            **fields,
        )
        settings.function = staticmethod(function)
        settings.model_validate({option.name: option.default for option in options})
    except ValidationError as error:
        raise ValueError(f"{whose}: its defaults are no settings: {validation_problem(settings, error)}") from error
    except (PydanticSchemaGenerationError, PydanticUserError, NameError, TypeError) as error:
        raise ValueError(
            f"{whose}: settings are numbers, text, true or false, or lists of these, and one of "
            f"{', '.join(option.name for option in options)} is something else ({said(error)})"
        ) from error
    return settings


def _try_out(name: str, settings: type[UserLoss]) -> None:
    """Call a loss with its default settings, on two rows of three tokens, of which one does not train.

    Raises: ValueError where the function gives no loss for them.
    """
    policy_BT = torch.tensor([[-0.5, -1.0, -2.0], [-0.1, -3.0, -1.5]]).requires_grad_()
    old_BT = torch.tensor([[-0.6, -1.0, -1.5], [-0.3, -2.5, -1.5]])
    credit_BT = torch.tensor([[1.0, 1.0, 1.0], [-0.5, -0.5, -0.5]])
    mask_BT = torch.tensor([[True, True, True], [True, True, False]])
    tensors = (policy_BT, old_BT, credit_BT, mask_BT, torch.full((2, 1), 0.2))
    defaults = settings.model_validate({"kind": name})
    arguments = {field: value for field, value in defaults.__dict__.items() if field != "kind"}
    with torch.enable_grad():
        problem = _problem(settings.function(*tensors, **arguments), tensors)
    if problem:
        raise ValueError(f"the policy loss {name!r} {problem}")


def _problem(result: object, tensors: tuple[Tensor, ...]) -> str | None:
    """What is wrong with the result of a user's loss, as a clause. None: nothing.

    Args:
        tensors: the arguments of the call.
    """
    policy_BT, old_BT, credit_BT, mask_BT, _ = tensors
    if not isinstance(result, tuple) or len(result) != 2:
        return f"gave {_kind_of(result)}, where a pair was due: the loss, and a mapping of metrics, which may be {{}}"
    loss, metrics = result
    if not isinstance(loss, Tensor) or loss.shape != () or not loss.is_floating_point():
        return (
            f"gave {_kind_of(loss)} as its loss, where a single number was due: the sum over trained tokens, each "
            "times its token_weight (whet.kit.summed makes it)"
        )
    if policy_BT.requires_grad and not loss.requires_grad:
        return "gave a loss without a gradient: compute it from policy_logprobs, and detach nothing of that"
    if not isinstance(metrics, Mapping):
        return f"gave {_kind_of(metrics)} as its metrics, where a mapping from names to numbers was due"
    numbers = {"loss": loss, **{str(key): value for key, value in metrics.items()}}
    for key, value in numbers.items():
        is_number = isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1)
        if not is_number:
            return f"gave {_kind_of(value)} as its metric {key!r}, where a number was due: a sum over trained tokens"
    inputs = torch.stack([torch.where(mask_BT, x_BT.detach(), 0.0) for x_BT in (policy_BT, old_BT, credit_BT)])
    for key, value in numbers.items():
        if not torch.as_tensor(value).isfinite().all() and inputs.isfinite().all():
            what = f"gave a {'loss' if key == 'loss' else f'metric {key!r}'} of {torch.as_tensor(value).item():g}"
            return (
                f"{what} for finite logprobs and advantages; where a token does not train, anything may stand, so use "
                "torch.where(loss_mask, ..., 0)"
            )
    return None


def _kind_of(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)} and type {str(value.dtype).removeprefix('torch.')}"
    return f"a {type(value).__name__}"
