"""Critique-RL (arXiv:2510.24320) on one page: the whole loop, in PyTorch and parts of whet.

    python examples/critique_rl_plain.py        # about two minutes on two cores; needs whet alone

An actor answers, a critic critiques, the actor refines. The critic alone is trained, in two stages:

    y ~ actor(x);  c ~ critic(x, y);  y' ~ actor(x, y, c)
    stage I   R = r_dis(x, y, c)                        is the verdict of c on y right?  (eq. 7)
    stage II  R = r_refine(x, y') + 0.2 r_dis(x, y, c)  is y' right, too?                (eq. 4, 9)
    both      maximise E[R] - 0.01 KL(critic || the critic that the stage began with)    (eq. 8, 9)

Where paper and authors' code differ, this page follows the code, as `whet train critique_rl` does. So a critique
without the right verdict is worth -1, whatever the refinement. Actor and critic begin as whet's tiny model, which knows
all three tasks and errs in each. The questions are chains of last-digit arithmetic. Left out are the warm start by
imitation, the choice of the best checkpoint, and what makes long runs safe.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Adam

from whet.config.parts import ModelConfig
from whet.credit.rewards import combine, direct_reward, indirect_reward
from whet.engines.local import LocalEngine
from whet.evaluation.critique import Exchange
from whet.evaluation.intervals import interval
from whet.grading import ChainGrader
from whet.grading.verdicts import parse_verdict
from whet.models.policy import Policy, load_policies
from whet.objectives import aggregation_weights, clipped_policy_loss, k1, leave_one_out, reward_to_go, whiten
from whet.rollout.roles import PolicyRole
from whet.seeds import seed_of
from whet.tasks.chains import Split, sample_chains
from whet.tasks.prompts import CHAINS, Message
from whet.types import Sampling, Segment, Task

GROUP_SIZE = 4  # critiques of each answer
EPOCHS, MINIBATCH = 2, 64  # passes over a step's critiques, and critiques of one optimizer update
LEARNING_RATE, CLIP, KL_COEF = 3e-4, 0.2, 0.01
Engines = dict[str, LocalEngine]


# --- sample, critique, refine -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    """An answer, one critique of it, and the refinement after that. Stage I needs no refinement."""

    task: Task
    answer: Segment
    critique: Segment
    refinement: Segment | None = None

    @property
    def exchange(self) -> Exchange:
        """Is the answer right, is the refinement, and what does the critique say of the answer?"""
        refined = None if self.refinement is None else is_right(self.refinement, self.task)
        return Exchange(is_right(self.answer, self.task), refined, parse_verdict(self.critique.text))


def is_right(reply: Segment, task: Task) -> bool:
    """r_oracle: the reply closes with the reference answer."""
    [grade] = ChainGrader().grade([(reply.text, task)])
    return grade.score == 1.0


def questions(split: Split, seed: int) -> Iterator[Task]:
    """An endless stream. A question is in one split only, whatever the seed."""
    for chain in sample_chains(split, seed, min_steps=3, max_steps=6):
        yield Task(id=chain.text, prompt=chain.text, answer=str(chain.values[-1]))


def write(engine: LocalEngine, chats: list[list[Message]], temperature: float, limit: int, seed: int) -> list[Segment]:
    """A reply to each list of messages: its text, its tokens, and their logprobs when they were sampled."""
    sampling = Sampling(temperature=temperature, max_new_tokens=limit)
    role = PolicyRole("", engine.policy.name, engine.policy.tokenizer, sampling)
    begun = [role.begin(messages, seed=seed_of(seed, place)) for place, messages in enumerate(chats)]
    return list(map(role.extended, begun, engine.generate([role.request(segment) for segment in begun])))


def rollout(engines: Engines, tasks: list[Task], seed: int, greedy: bool = False, refine: bool = True) -> list[Round]:
    """An answer to each task, and a group of critiques of it, which stay next to each other. Greedy: one critique."""
    chats = [CHAINS.solve_messages(task.prompt) for task in tasks]
    answers = write(engines["actor"], chats, 0.0 if greedy else 0.7, 48, seed_of(seed, "answer"))

    group_size = 1 if greedy else GROUP_SIZE
    pairs = [pair for pair in zip(tasks, answers, strict=True) for _ in range(group_size)]
    chats = [CHAINS.critique_messages(task.prompt, answer.text) for task, answer in pairs]
    critiques = write(engines["critic"], chats, 0.0 if greedy else 1.0, 80, seed_of(seed, "critique"))
    rounds = [Round(*pair, critique) for pair, critique in zip(pairs, critiques, strict=True)]
    if not refine:
        return rounds

    chats = [CHAINS.refine_messages(r.task.prompt, r.answer.text, r.critique.text) for r in rounds]
    refinements = write(engines["actor"], chats, 0.0, 48, seed_of(seed, "refinement"))
    return [replace(r, refinement=refinement) for r, refinement in zip(rounds, refinements, strict=True)]


# --- reward, advantage, update; B critiques, T tokens -----------------------------------------------------------------


def reward(stage: str, exchange: Exchange) -> float:
    """What a critique is worth. One whose verdict cannot be read counts as wrong."""
    if stage == "I":
        return direct_reward(exchange.verdict, exchange.answer_correct, "signed")
    refined = indirect_reward("refine", exchange.answer_correct, bool(exchange.refinement_correct))
    return combine(refined, exchange.judged_right, "gated", weight=0.2)


def padded(critiques: Sequence[Segment]) -> tuple[Tensor, Tensor, Tensor]:
    """Ids [B, T + 1], context included. Of all but the first [B, T]: logprobs when sampled, and which of them train."""
    ids, old, mask = [], [], []
    for critique in critiques:
        num_before = len(critique.context) - 1
        ids.append(torch.tensor([*critique.context, *critique.tokens]))
        old.append(torch.tensor([*[0.0] * num_before, *critique.logprobs]))
        mask.append(torch.tensor([*[False] * num_before, *[True] * len(critique.tokens)]))
    return pad_sequence(ids, True), pad_sequence(old, True), pad_sequence(mask, True)


def logprobs(policy: Policy, ids: Tensor) -> Tensor:
    """[B, T] at temperature 1. Padding is on the right, where causal attention does not look."""
    logits_BTV = policy.model(input_ids=ids).logits[:, :-1]
    return logits_BTV.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)


def advantages(rewards_B: Tensor, old_BT: Tensor, reference_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """[B, T]. The reward minus the mean of the group's others is RLOO. The authors' code then subtracts at each token
    the KL from there to the end, and scales all tokens to mean 0 and variance 1."""
    scalar_B = leave_one_out(rewards_B.reshape(-1, GROUP_SIZE)).flatten()
    returns_BT = reward_to_go(scalar_B, k1(old_BT, reference_BT), mask_BT, kl_coef=KL_COEF)
    return whiten(returns_BT, mask_BT)


def update(critic: Policy, optimizer: Adam, ids: Tensor, old_BT: Tensor, mask_BT: Tensor, credit_BT: Tensor) -> None:
    """PPO's clipped loss: the mean over a critique's tokens, then over critiques."""
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(ids)).split(MINIBATCH):
            old, mask, credit = old_BT[rows], mask_BT[rows], credit_BT[rows]
            weight = aggregation_weights(mask.sum(-1), torch.ones(len(rows)), "sequence_mean")[:, None]
            policy = logprobs(critic, ids[rows])
            loss, _ = clipped_policy_loss(policy, old, credit, mask, weight, low=1 - CLIP, high=1 + CLIP)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(critic.model.parameters(), 1.0)
            optimizer.step()


def show(label: str, rounds: Sequence[Round]) -> None:
    """Prints right answers, right verdicts and right refinements in percent, with 95 % intervals."""
    exchanges = [r.exchange for r in rounds]
    rights = [(e.answer_correct, e.judged_right, e.refinement_correct is True) for e in exchanges]
    print(f"{label:21}", end="")
    for values in zip(*rights, strict=True):
        low, high = interval(values)
        print(f"{100 * sum(values) / len(values):8.1f} ({100 * low:3.0f} to {100 * high:3.0f})", end="")
    print(flush=True)


def main(arguments: Sequence[str] | None = None) -> tuple[Policy, Policy, Policy]:
    """Trains, and prints how the critic does on held-out questions. Returns actor, critic and reference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20, help="of each stage")
    parser.add_argument("--prompts", type=int, default=32, help="questions of a step")
    parser.add_argument("--held-out", type=int, default=400, help="questions that the critic is measured on")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)

    actor, critic = load_policies({name: ModelConfig(device="cpu") for name in ("actor", "critic")}).values()
    engines = {"actor": LocalEngine(actor), "critic": LocalEngine(critic)}
    train, test = questions("train", options.seed), questions("test", options.seed)
    held_out = list(islice(test, options.held_out))
    print("stage  step   reward                    Acc             Acc@Dis          Acc@Refine")
    show("before", rollout(engines, held_out, 0, greedy=True))
    for stage in ("I", "II"):
        reference = critic.fork("reference")  # frozen: the KL holds the critic to where its stage began
        optimizer = Adam(critic.model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95))
        for step in range(1, options.steps + 1):
            tasks = list(islice(train, options.prompts))
            rounds = rollout(engines, tasks, seed_of(options.seed, stage, step), refine=stage == "II")
            rewards_B = torch.tensor([reward(stage, one.exchange) for one in rounds])
            ids, old_BT, mask_BT = padded([r.critique for r in rounds])
            credit_BT = advantages(rewards_B, old_BT, logprobs(reference, ids), mask_BT)
            update(critic, optimizer, ids, old_BT, mask_BT, credit_BT)
            engines["critic"].update_weights(critic.version + 1, critic)
            if step % 5 == 0 or step == options.steps:
                show(f"{stage:5}  {step:4}  {rewards_B.mean():7.2f}", rollout(engines, held_out, 0, greedy=True))
    return actor, critic, reference


if __name__ == "__main__":
    main()
