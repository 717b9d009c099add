"""What a critique round keeps of its contexts: refinements go on from the answers that they refine, to the id."""

import json

import pytest

from whet.models.tiny import tiny_tokenizer
from whet.rollout.critique import CritiqueRound
from whet.rollout.driver import roll_out
from whet.rollout.roles import PolicyRole
from whet.tasks.prompts import CHAINS
from whet.trainer.buffers import decoded, encoded
from whet.types import Completion, Grade, Sampling, Task

TOKENIZER = tiny_tokenizer()
TOKENS = (*TOKENIZER.encode("Step 1: 7 + 5 = 2\nThe answer is 2", add_special_tokens=False), TOKENIZER.eos_token_id)


def write(requests):
    done = Completion(tokens=TOKENS, logprobs=(-0.5,) * len(TOKENS), stop_reason="eos", version=0)
    return [done for _ in requests]


def episodes(asked, **how):
    """An episode in which everyone always writes the same."""

    def writer(requests):
        asked.extend(requests)
        return write(requests)

    role = PolicyRole("any", "any", TOKENIZER, Sampling(max_new_tokens=30))
    rounds = CritiqueRound(prompts=CHAINS, actor=role, critic=role, reviser=role, key=(0,), **how)
    grader = {"grader": lambda given: [Grade(score=0.0) for _ in given]}
    [episode] = roll_out([rounds(Task(id="t", prompt="7 + 5", answer="2"))], {"any": writer, **grader})
    return episode


@pytest.mark.parametrize(
    "how", [{}, {"num_critiques": 3}, {"num_refinements": 2}, {"num_rounds": 3}, {"num_rounds": 2, "history": "last"}]
)
def test_a_refinement_goes_on_from_a_segment_of_the_episode(how):
    asked = []
    episode = episodes(asked, **how)
    contexts = sorted(request.context for request in asked)
    assert sorted(segment.context for segment in episode.segments) == contexts  # whatever is kept once, all is there
    own = {id(segment) for segment in episode.segments}
    following = [segment for segment in episode.segments if segment.prefix is not None]
    assert all(id(segment.prefix) in own for segment in following)
    for index, segment in enumerate(episode.segments):
        if index and segment.parent and episode.segments[segment.parent].parent == 0:
            assert segment.prefix is episode.segments[0]
    found = decoded(json.loads(json.dumps(encoded(episode))))
    assert found == episode
    assert sum(len(segment.added) for segment in found.segments) == sum(len(s.added) for s in episode.segments)


def test_in_later_rounds_the_dialogue_is_kept_once():
    episode = episodes([], num_rounds=3)
    answer, _, first, _, second, _, third = episode.segments
    assert (first.prefix, second.prefix, third.prefix) == (answer, first, second)
    assert second.prefix is first
    assert third.prefix is second
    assert len(first.added) == len(second.added) == len(third.added) < len(third.context) / 3
