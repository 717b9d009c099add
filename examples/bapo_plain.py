"""BAPO in a loop of one's own: plain tensors, no trainer. Runs in seconds and prints the bounds of every update.

    python examples/bapo_plain.py         # needs whet alone

The policy is a table: 16 prompts and 8 tokens to answer with, two of them right. Eight updates are made of each sample,
so the logprobs that it was drawn with go stale. A wrong answer is its token three times, as wrong answers are the
longer ones on real tasks, so that bad tokens outweigh good ones. What to look at: just after sampling every ratio is 1,
so no bound can reach the target share of 0.4, and none matters. Then the good tokens' ratios grow, and the upper bound
opens as far as it takes, less with every update. Where even its end does not do, the lower one goes to its own, which
takes gradient from bad tokens although it lowers the share (a floored token counts at its floor).
"""

import torch

from whet.objectives import aggregation_weights, balanced_bounds, clipped_policy_loss, group_advantages

PROMPTS, GROUP, TOKENS, LENGTH = 16, 32, 8, 3
torch.manual_seed(0)
logits = torch.zeros(PROMPTS, TOKENS, requires_grad=True)
optimizer = torch.optim.Adam([logits], lr=0.1)
print("sample  update  right  c_low  c_high  moves  share: at the start, at the bounds")
for sample in range(2):
    drawn = torch.multinomial(logits.detach().softmax(-1), GROUP, replacement=True)  # [PROMPTS, GROUP]
    right = drawn < 2
    advantages = group_advantages(right.float(), divide_by_std=True).reshape(-1, 1).expand(-1, LENGTH)  # [rows, LENGTH]
    mask = (torch.arange(LENGTH) == 0) | ~right.reshape(-1, 1)
    weight = aggregation_weights(mask.sum(1), torch.ones(len(mask)), "token_mean")[:, None]
    old = None
    for update in range(8):
        policy = logits.log_softmax(-1).gather(1, drawn).reshape(-1, 1).expand(-1, LENGTH)
        old = policy.detach() if old is None else old
        # Once an update, from all of its tokens; its micro-batches, if there are several, share these bounds.
        found = balanced_bounds(policy, old, advantages, mask)
        loss, _ = clipped_policy_loss(policy, old, advantages, mask, weight, low=found.low, high=found.high)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{sample:6}  {update:6}  {right.float().mean():5.2f}  {found.low:5.2f}  {found.high:6.2f}  "
              f"{found.num_moves:5}  {found.start_share:19.3f}  {found.share:13.3f}")  # fmt: skip
