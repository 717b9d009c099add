"""What an update does to balance, clipping and entropy: an observer of the learner's updates.

It takes the pushes of the update's first term (minus its derivative by each token's logprob) and holds them against
PPO's bounds and the Entropy-Clip Rule (BAPO, arXiv:2510.18927); now and then it measures what the update did to the
entropy of its own rows, which takes one more pass without gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whet.models.policy import Policy
from whet.models.scoring import MicroBatch, token_logprobs
from whet.objectives import update_diagnostics
from whet.trainer.flat import Tokens, joined, pushes


@dataclass
class EntropyClip:
    """See the module's docstring.

    Args:
        bounds: `low`, `high`, `dual` of a clipped loss, as far as they are fixed; those chosen before an update win.
        has_bounds: whether bounds that were chosen are those of a clipped surrogate.
        probe_every: updates between two measurements. 0: none.
    """

    bounds: Mapping[str, float | None] = field(default_factory=dict)
    has_bounds: bool = True
    probe_every: int = 0
    seen: list[tuple[MicroBatch, Tensor, Tokens]] = field(default_factory=list)
    predicted: dict[str, float] = field(default_factory=dict)

    def saw(self, tokens: Tokens, batch: MicroBatch, loss: Tensor, logprobs_N: Tensor, weights_B: Tensor) -> None:
        push_N = pushes(loss, logprobs_N, batch, weights_B)
        mask_BT = batch.mask_BT[:, 1:]
        taken_N = (weights_B != 0)[batch.index, None].expand(mask_BT.shape)[mask_BT]  # the others are of other terms
        if not taken_N.any():
            return
        everything = (tokens.policy_N, tokens.old_N, tokens.credit_N, tokens.entropy_N, push_N)
        self.seen.append((batch, taken_N, Tokens(*(values[taken_N] for values in everything))))

    def before(self, chosen: Mapping[str, float]) -> Mapping[str, float]:
        if not self.seen:
            return {}
        pushes_N = torch.cat([tokens.push_N for _, _, tokens in self.seen if tokens.push_N is not None])
        known = {**self.bounds, **chosen} if self.has_bounds else {}
        policy_N, old_N, credit_N, entropy_N = joined([tokens for _, _, tokens in self.seen])
        found = update_diagnostics(
            policy_N, old_N, credit_N, entropy_N, pushes_N,
            low=known.get("low"), high=known.get("high"), dual=known.get("dual"),
        )  # fmt: skip
        if self.probe_every and "entropy/predicted" in found:
            # A prediction stands beside the measurement of the same update, or nowhere.
            self.predicted = {"entropy/predicted": found.pop("entropy/predicted")}
        return found

    def after(self, policy: Policy, num_updates: int) -> Mapping[str, float]:
        if not self.probe_every or not self.seen or num_updates % self.probe_every:
            return {}
        with torch.no_grad():
            passes = [(token_logprobs(policy, batch, entropy=True)[1], taken_N) for batch, taken_N, _ in self.seen]
        after = torch.cat([entropy_N[taken_N] for entropy_N, taken_N in passes if entropy_N is not None])
        before_N = joined([tokens for _, _, tokens in self.seen])[3]
        measured = float(after.double().mean() - before_N.double().mean())
        shown = {**self.predicted, "entropy/measured": measured, "entropy/falls": float(measured < 0)}
        if self.predicted:
            shown["entropy/rule_agrees"] = float(self.predicted["entropy/predicted"] * measured > 0)
        return shown
