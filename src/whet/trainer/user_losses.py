"""`@whet.loss`: a user's policy loss, whose keyword arguments become settings like those of any other loss."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, TypeVar

import torch
from pydantic import PydanticSchemaGenerationError, PydanticUserError, ValidationError, create_model
from torch import Tensor

from whet.config.base import plain
from whet.config.losses import LOSSES, PolicyLoss
from whet.config.problems import validation_problem
from whet.config.yaml_text import NotYaml, compact, load
from whet.errors import RunError
from whet.plugins import line_of, said
from whet.trainer.terms import COUNTS, named
from whet.types import in_brief

PolicyLossFunction = Callable[..., tuple[Tensor, dict[str, Tensor]]]
"""From (policy logprobs, old logprobs, advantages, loss mask, token weight), and settings by keyword, to a weighted sum
and to sums as metrics. The tensors are [B, T]; the token weight may be [B, 1]. See `objectives.clipped_policy_loss`."""
F = TypeVar("F", bound=PolicyLossFunction)

ARGUMENTS = ("policy_logprobs", "old_logprobs", "advantages", "loss_mask", "token_weight")
MEND = "mend it, then `whet resume RUN --accept-changes` goes on from the last checkpoint"


MAX_NAME = 60
"""Characters of a metric's name."""


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
            loss, metrics = _call(type(self).function, tensors, arguments)
        except KeyboardInterrupt:
            raise
        except _NoLossError as error:
            raise LossError(f"{whose} {error}; {MEND}") from error
        except BaseException as error:  # SystemExit and CancelledError too
            raise LossError(f"{whose}{line_of(error, origin)} raised {said(error)}; {MEND}") from error
        return loss, {name: torch.tensor(value, dtype=torch.float64) for name, value in metrics.items()}


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
        is_taken = hasattr(UserLoss, option.name) or option.name in ("kind", "function")
        if is_taken or option.name.startswith(("_", "model_")):
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
        defaults = settings.model_validate({option.name: option.default for option in options})
        of_config_file = load(compact(plain(defaults)))
        if settings.model_validate(of_config_file) != defaults:
            raise TypeError("a config file would change its default")
    except ValidationError as error:
        raise ValueError(f"{whose}: its defaults are no settings: {validation_problem(settings, error)}") from error
    except (PydanticSchemaGenerationError, PydanticUserError, NameError, NotYaml, TypeError) as error:
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
    try:
        with torch.enable_grad():
            _call(settings.function, tensors, arguments)
    except _NoLossError as error:
        raise ValueError(f"the policy loss {name!r} {error}") from error


class _NoLossError(Exception):
    """What is wrong with a call of a user's loss, as a clause whose subject is the loss."""


def _call(
    function: PolicyLossFunction, tensors: tuple[Tensor, ...], arguments: Mapping[str, Any]
) -> tuple[Tensor, dict[str, float]]:
    """The loss and the metrics that a user's function gives, checked.

    Raises: _NoLossError where they are none, or the function changed its arguments; what the function raises.
    """
    versions, dtype = [tensor._version for tensor in tensors], torch.get_default_dtype()
    with torch.set_grad_enabled(torch.is_grad_enabled()):  # the function may switch gradients off
        result = function(*tensors, **arguments)
    if torch.get_default_dtype() != dtype:
        torch.set_default_dtype(dtype)
        raise _NoLossError("changed torch's default dtype, which all of the run reads: give a dtype to each tensor")
    for argument, tensor, version in zip(ARGUMENTS, tensors, versions, strict=True):
        if tensor._version != version:
            raise _NoLossError(
                f"changed {argument}, which others read too: work on a copy ({argument}.clone()), and use no function "
                "whose name ends in _"
            )
    if problem := _problem(result, tensors):
        raise _NoLossError(problem)
    loss, metrics = result
    metrics = dict(metrics)
    return loss, {name: _number(value) or 0.0 for name, value in metrics.items()}


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
    if loss.device.type == "meta":
        return "gave a loss on the device meta, which holds no number: compute it from policy_logprobs"
    if not isinstance(metrics, Mapping):
        return f"gave {_kind_of(metrics)} as its metrics, where a mapping from names to numbers was due"
    numbers: dict[str, float] = {}
    for name, value in metrics.items():
        number = _number(value)
        if number is None:
            kind = _kind_of(value)
            return f"gave {kind} as its metric {in_brief(name)}, where a number was due: a sum over trained tokens"
        numbers[name] = number
    if problem := _names_problem(numbers):
        return problem
    inputs = torch.stack([torch.where(mask_BT, x_BT.detach(), 0.0) for x_BT in (policy_BT, old_BT, credit_BT)])
    are_finite = bool(inputs.isfinite().all())
    for what, number in {"loss": loss.item(), **{f"metric {name!r}": value for name, value in numbers.items()}}.items():
        if are_finite and not math.isfinite(number):
            return f"gave a {what} of {number:g} {_FOR_FINITE}"
    return _gradient_problem(loss, policy_BT, mask_BT, are_finite=are_finite)


_FOR_FINITE = (
    "for finite logprobs and advantages; where a token does not train, anything may stand, so use "
    "torch.where(loss_mask, ..., 0)"
)


def _gradient_problem(loss: Tensor, policy_BT: Tensor, mask_BT: Tensor, *, are_finite: bool) -> str | None:
    """What is wrong with the loss's gradient, as a clause. None: nothing.

    The backward pass would find it too, but could not say whose it is.
    """
    if not policy_BT.requires_grad:
        return None
    without = "gave a loss without a gradient: compute it from policy_logprobs, and detach nothing of that"
    if not loss.requires_grad:
        return without
    try:
        (push_BT,) = torch.autograd.grad(loss, policy_BT, retain_graph=True, allow_unused=True)
    except Exception as error:  # it called backward, changed what the graph holds, or has a hook that breaks
        return f"gave a loss whose gradient cannot be computed ({said(error)}): call no backward, and change no tensor"
    if push_BT is None:
        return without
    if are_finite and not torch.where(mask_BT, push_BT, 0.0).isfinite().all():
        return f"gave a loss whose gradient is NaN or infinite {_FOR_FINITE}"
    return None


def _number(value: object) -> float | None:
    """A metric's value, of Python's, NumPy's or PyTorch's numbers. None: it is no real number."""
    if isinstance(value, str | bytes | complex) or (isinstance(value, Tensor) and value.is_complex()):
        return None
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)  # type: ignore[arg-type]
    except Exception:  # no number, one too large, several, or a user's class that breaks
        return None


def _names_problem(names: Iterable[object]) -> str | None:
    """Why metrics cannot be logged under these names, as a clause. None: they can."""
    of_logged = {"loss/mean": "the loss itself"}
    for name in names:
        if not isinstance(name, str) or not name.isprintable() or not name.strip("_ ") or len(name) > MAX_NAME:
            return f"gave a metric the name {in_brief(name)}: use at most {MAX_NAME} characters, as in num_capped"
        if name == "num_tokens":  # losses of ours give it too; the trainer puts its own in its place
            continue
        if name in COUNTS:
            return f"gave a metric {name!r}, which is what sums are divided by: give it another name"
        [logged] = named({name: 0.0})
        if logged.endswith("/"):
            return f"gave a metric the name {name!r}, which says not what it counts: call it as in num_capped"
        if logged in of_logged:
            return f"gave a metric {name!r}, logged as {logged} like {of_logged[logged]}: give it another name"
        of_logged[logged] = f"the metric {name!r}"
    return None


def _kind_of(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)} and type {str(value.dtype).removeprefix('torch.')}"
    return f"a {type(value).__name__}"
