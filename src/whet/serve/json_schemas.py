"""JSON schemas as constraints on replies, by llguidance (MIT): it says which tokens may come next.

A client writes the schema, so its size and depth are limited, and the library's work by counted steps ("fuel"): a
schema costs a request no more time than `LIMITS` allow, whatever its patterns are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from whet.distribution import how_to_install
from whet.errors import ConstraintError
from whet.models.policy import Policy
from whet.models.prompts import measured
from whet.serve.schemas import ApiError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

LIMITS: Mapping[str, Any] = {
    "initial_lexer_fuel": 200_000,
    "step_lexer_fuel": 100_000,
    "step_max_items": 20_000,
    "max_lexer_states": 10_000,
    "max_grammar_size": 20_000,
    "verbose_errors": False,
}
"""llguidance's `LLParserLimits`. By its figures the two fuels are 4 and 7 ms, and 10,000 states 20 MB."""
SHAPE: Mapping[str, Any] = {
    "whitespace_flexible": False,
    "whitespace_pattern": "(\\n {0,16}| )?",
    "lenient": False,
    "coerce_one_of": False,
}
"""How JSON is written: between its parts a space, or a new line with an indent; a weak model would write blanks up to
its limit. No keyword of a schema is ignored. They replace what a schema's own `x-guidance` says."""
MARKS = '{"a": [1, -2.5e0, true]}'
MAX_REASON = 300


class SchemaCompiler:
    """Compiles schemas for one policy. It is slow at first, as it reads the vocabulary.

    Args:
        num_ids: of the model's output.
    Raises: ApiError where llguidance is missing, or cannot read the tokenizer.
    """

    def __init__(self, policy: Policy, num_ids: int) -> None:
        try:
            from llguidance import LLTokenizer
        except ModuleNotFoundError as error:
            reason = f"response_format: JSON needs llguidance: {how_to_install('json')}"
            raise ApiError(400, reason, param="response_format", code="not_installed") from error
        for _, lost in measured([MARKS], policy.tokenizer):
            if lost:
                reason = f"response_format: the tokenizer of {policy.name} has no token for {lost}, which JSON needs"
                raise ApiError(400, reason, param="response_format", code="no_constraint")
        tokenizer = policy.tokenizer
        ends = sorted(policy.stop_ids) or ([] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id])
        try:
            text = tokenizer.backend_tokenizer.to_str()
            self._tokenizer: LLTokenizer = LLTokenizer(text, n_vocab=num_ids, eos_token=ends or None)
        except (AttributeError, ValueError) as error:
            reason = f"response_format: llguidance cannot read the tokenizer of {policy.name} ({_brief(error)})"
            raise ApiError(400, reason, param="response_format", code="no_constraint") from error

    def constraint(self, schema: str) -> JsonConstraint:
        """
        Args:
            schema: as JSON.
        Raises: ApiError where the schema is too big, has a keyword that cannot be followed, or allows nothing.
        """
        from llguidance import LLMatcher, LLParserLimits

        try:
            grammar = LLMatcher.grammar_from_json_schema(schema, overrides=dict(SHAPE))
            matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=LLParserLimits(**LIMITS))
            _check(matcher)
            matcher.compute_logit_bias()  # a schema that refers to itself alone fails here
            _check(matcher)
        except (ValueError, ConstraintError) as error:
            raise _refused(f"this schema cannot be followed ({_brief(error)})") from error
        return JsonConstraint(matcher)


class JsonConstraint:
    """A schema, ready for replies: a `Constraint`."""

    def __init__(self, beginning: LLMatcher) -> None:
        self._beginning = beginning

    def matcher(self) -> JsonMatcher:
        return JsonMatcher(self._beginning.deep_copy())


class JsonMatcher:
    """One reply of a schema: a `Matcher`."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def allowed(self) -> bytes:
        allowed = self._matcher.compute_logit_bias()
        _check(self._matcher)
        return allowed

    def accept(self, token: int) -> bool:
        """The reply is complete with its end token, or as soon as nothing but that may follow."""
        self._matcher.consume_token(token)
        _check(self._matcher)
        return self._matcher.is_stopped()


def _check(matcher: LLMatcher) -> None:
    """Raises: ConstraintError where a matcher has failed: from then on it allows anything."""
    if matcher.is_error():
        raise ConstraintError(_brief(matcher.get_error()))


def _brief(error: object) -> str:
    return " ".join(str(error).split())[:MAX_REASON]


def _refused(reason: str) -> ApiError:
    return ApiError(400, f"response_format: {reason}", param="response_format", code="invalid_schema")
