"""The probe of a server after each update of its weights: the trainer's arithmetic decides, not the server's word.

Its prompts are random and new each time, so no cache can answer them. It compares logprobs of given tokens, and of
tokens that the server samples at two temperatures. It also asks whether the server follows temperature and seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.engines.agreement import REPEATED, apart
from whet.engines.vllm_server import ServerError
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.types import Completion, Request, Row, Sampling, tail_row

PROMPTS, PROMPT_LENGTH = 3, 24
"""Prompts whose tokens are scored, and tokens of each."""
SAMPLES, SHORT, WRITTEN = 4, 8, 16
"""Replies of each kind, tokens of their prompts, and tokens that they have at most."""
COOL = 0.3
"""The second temperature: so far from 1 that a few replies tell which of the two they were sampled at."""
BUDGET = 4096
"""Tokens of one pass over the probe."""
MOST_NATS = 20.0
"""Nats by which another temperature may make the samples likelier than their own: past it by chance once in 10^8."""
NEARLY = {torch.float32: 1e-3, torch.bfloat16: 0.25}
"""Nats by which a greedy token may be below the likeliest one, by rounding."""
LIKE_A_TYPE = 0.1
"""Nats. A smaller difference is of the size that another number type makes."""


@dataclass(frozen=True)
class Probe:
    """What a server is asked."""

    prompts: tuple[tuple[int, ...], ...]
    """Their tokens are scored, at temperature 1."""
    warm: tuple[Request, ...]
    """Of one prompt, by different seeds, at temperature 1."""
    again: tuple[Request, ...]
    """The same requests."""
    cool: tuple[Request, ...]
    """At temperature `COOL`."""
    greedy: tuple[Request, ...]

    @property
    def requests(self) -> tuple[Request, ...]:
        return (*self.warm, *self.again, *self.cool, *self.greedy)


@dataclass(frozen=True)
class Answers:
    """What a server answered."""

    scores: Sequence[Sequence[float]]
    """[PROMPT_LENGTH - 1] of each prompt."""
    completions: Sequence[Completion]
    """Of `Probe.requests`."""


def new_probe(policy: Policy, rng: random.Random) -> Probe:
    """A probe that was never asked before.

    Args:
        rng: seeded by chance: no result of a run depends on it.
    """
    size = policy.causal_lm.get_input_embeddings().weight.shape[0]

    def text(length: int) -> tuple[int, ...]:
        return tuple(rng.randrange(size) for _ in range(length))

    def requests(contexts: Sequence[tuple[int, ...]], temperature: float) -> tuple[Request, ...]:
        sampling = Sampling(temperature=temperature, max_new_tokens=WRITTEN)
        return tuple(Request(context=context, sampling=sampling, seed=rng.getrandbits(63)) for context in contexts)

    warm = requests([text(SHORT)] * SAMPLES, 1.0)
    # The last id is asked for too: a server with a smaller vocabulary refuses it.
    prompts = tuple((*text(PROMPT_LENGTH - 1), size - 1 - number) for number in range(PROMPTS))
    return Probe(
        prompts=prompts,
        warm=warm,
        again=warm,
        cool=requests([text(SHORT) for _ in range(SAMPLES)], COOL),
        greedy=requests([text(SHORT) for _ in range(SAMPLES)], 0.0),
    )


def check_probe(policy: Policy, probe: Probe, answers: Answers, server: str, label: str) -> None:
    """Compare a server's answers with the trainer's weights.

    Args:
        server: its url.
        label: of the weights that it was given last.
    Raises: ServerError where they differ, or the server does not sample as it is asked to.
    """
    check = _Check(policy, f"the server {server}, given the weights labelled {label!r},")
    given = [tail_row(policy.name, prompt[:1], prompt[1:], 0.0) for prompt in probe.prompts]
    written = [_row(policy, *pair) for pair in zip(probe.requests, answers.completions, strict=True)]
    expected = score(policy, [*given, *written], token_budget=BUDGET)
    scored = [torch.tensor(scores) for scores in answers.scores]
    sampled = [torch.tensor(done.logprobs) for done in answers.completions]
    check.weights(scored, expected[: len(given)])
    expected = expected[len(given) :]
    hot = [i for i, request in enumerate(probe.requests) if request.sampling.temperature in (0.0, 1.0)]
    check.sampled([sampled[i] for i in hot], [expected[i] for i in hot], 1.0)
    cool = [i for i in range(len(written)) if i not in hot]
    check.sampled([sampled[i] for i in cool], [expected[i] for i in cool], COOL)
    check.seeds(answers.completions[:SAMPLES], answers.completions[SAMPLES : 2 * SAMPLES])
    check.temperature(probe.requests, answers.completions)


def _row(policy: Policy, request: Request, done: Completion) -> Row:
    temperature = request.sampling.temperature or 1.0
    return tail_row(policy.name, request.context, done.tokens, 0.0, temperature=temperature)


@dataclass(frozen=True)
class _Check:
    policy: Policy
    who: str

    def weights(self, scored: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
        which, allowed = REPEATED[self.policy.dtype]
        difference = apart(scored, expected, which)
        if not difference <= allowed:  # NaN is refused too
            why = "restart it (for tied embeddings by a later vLLM, which loads the head too)"
            if difference < LIKE_A_TYPE:
                why = (
                    f"as another number type may put them: start it with --dtype {str(self.policy.dtype)[6:]}, or {why}"
                )
            raise ServerError(
                f"{self.who} does not hold the weights of {self.policy.title}: logprobs of random prompts differ by "
                f"{difference:.2g} nats ({which}; allowed {allowed:.0e}), {why}, and resume the run: its last "
                "checkpoint is whole"
            )

    def sampled(self, sampled: Sequence[Tensor], expected: Sequence[Tensor], temperature: float) -> None:
        which, allowed = REPEATED[self.policy.dtype]
        difference, allowed = apart(sampled, expected, which), allowed / temperature  # a low one magnifies rounding
        if not difference <= allowed:
            raise ServerError(
                f"{self.who} gives other logprobs than those that it samples by at temperature {temperature:g}: they "
                f"differ from the trainer's by {difference:.2g} nats ({which}; allowed {allowed:.0e}). Start it with "
                "--logprobs-mode processed_logprobs"
            )

    def seeds(self, once: Sequence[Completion], again: Sequence[Completion]) -> None:
        """The same seeds give the same replies, for the most part: rounding may differ in another batch."""
        num_same = sum(one.tokens == other.tokens for one, other in zip(once, again, strict=True))
        if 2 * num_same < len(once):
            raise ServerError(
                f"{self.who} ignores seeds: of {len(once)} requests that were sent twice, {num_same} gave the same "
                "reply. Start it without options that set or drop seeds, such as speculative decoding"
            )
        first = once[0]
        if all(done.tokens == first.tokens for done in once) and sum(first.logprobs) < -3.0:
            raise ServerError(f"{self.who} ignores seeds: {len(once)} different ones gave the same unlikely reply")

    @torch.no_grad()
    def temperature(self, requests: Sequence[Request], completions: Sequence[Completion]) -> None:
        """Greedy replies take the likeliest tokens, and others follow their temperature.

        These are tested by their likelihood under the other temperature over that under their own. Under their own it
        is 1 on average, so it is past `e^MOST_NATS` with a chance of `e^-MOST_NATS` at most, whatever the model.
        """
        nats = {1.0: 0.0, COOL: 0.0}
        replies = [
            pair for i, pair in enumerate(zip(requests, completions, strict=True)) if not SAMPLES <= i < 2 * SAMPLES
        ]
        for request, done in replies:  # those that came twice count once
            temperature = request.sampling.temperature
            logits = self._logits(request, done)
            own, tokens = torch.log_softmax(logits / (temperature or 1.0), dim=-1), torch.tensor(done.tokens)[:, None]
            if temperature == 0:
                self._greedy(float((own.max(dim=1).values - own.gather(1, tokens).squeeze(1)).max()))
                continue
            other = torch.log_softmax(logits / (COOL if temperature == 1 else 1.0), dim=-1)
            nats[temperature] += float((other.gather(1, tokens) - own.gather(1, tokens)).sum())
        for temperature, ratio in nats.items():
            if ratio > MOST_NATS:
                raise ServerError(
                    f"{self.who} does not sample at temperature {temperature:g}: another temperature makes its replies "
                    f"e^{ratio:.0f} times as likely. Look for an option that overrides sampling settings"
                )

    def _greedy(self, below: float) -> None:
        if below > NEARLY[self.policy.dtype]:
            raise ServerError(
                f"{self.who} ignores temperature: a greedy reply has a token that is {below:.2g} nats less likely than "
                "the likeliest one. Look for an option that overrides sampling settings"
            )

    def _logits(self, request: Request, done: Completion) -> Tensor:
        """[N, V] of the places of a reply's tokens."""
        ids = torch.tensor([[*request.context, *done.tokens]], device=self.policy.device)
        with self.policy.active():
            logits: Tensor = self.policy.causal_lm(input_ids=ids).logits[0].float().cpu()
        return logits[len(request.context) - 1 : -1]
