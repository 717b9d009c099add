"""What a step's rewards say: means, groups that teach nothing, and the counts that the watch reads."""

import pytest

from support.episodes import exchange, reply
from whet.config.parts import SamplingConfig
from whet.credit.advantages import ADVANTAGES
from whet.credit.metrics import (
    critique_signs,
    flat_groups,
    graded_signs,
    reaches_reference,
    reply_metrics,
    reply_signs,
    reward_metrics,
)
from whet.credit.rewards import groups_of, outcome, overlong, rewarded, verdict_match


def groups(*scores, terms=None, **more):
    episodes = [reply(score, task=f"t{i}", seed=j, tokens=range(5, 6 + i + j), **more)
              for i, group in enumerate(scores) for j, score in enumerate(group)]  # fmt: skip
    return groups_of(rewarded(episodes, "solver", terms or {"outcome": outcome()}), "solver", "task")


MIXED = ([1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.5, 0.5, 0.5])


def test_means_over_replies_and_groups_by_hand():
    found = reply_metrics(groups(*MIXED), SamplingConfig())
    assert found == pytest.approx({
        "reward/mean": (1 + 3 + 1.5) / 12, "reward/correct": 4 / 12, "length/mean": (2 + 3 + 4 + 5) / 4,
        "length/truncated": 0.0, "group/no_signal": 3 / 4, "group/all_right": 1 / 4, "group/all_wrong": 2 / 4,
        "entropy/sampled": 0.5, "length/good": 1.0, "length/bad": 2.5,
    })  # fmt: skip
    assert "entropy/sampled" not in reply_metrics(groups(*MIXED), SamplingConfig(temperature=0.7))
    assert reply_metrics(groups([1.0, 1.0], stop_reason="length"), SamplingConfig())["length/truncated"] == 1
    assert reply_metrics([], SamplingConfig()) == reply_metrics([[]], SamplingConfig()) == {}


def test_rewards_of_many_terms_have_a_mean_each():
    terms = {"outcome": outcome(), "overlong": overlong(6, 4)}
    found = reward_metrics(groups([1.0, 0.0], terms=terms))
    assert found == {"reward/mean": 0.5, "reward/outcome": 0.5, "reward/overlong": 0.0}
    assert reward_metrics([]) == reward_metrics([[]]) == {}


def test_flat_groups():
    found = flat_groups(groups(*MIXED), reaches_reference)
    assert found == {"group/no_signal": 3 / 4, "group/all_right": 1 / 4, "group/all_wrong": 2 / 4}
    failed: list = []
    assert flat_groups([*groups(*MIXED), failed], reaches_reference) == found
    assert flat_groups([], reaches_reference) == flat_groups([[], []], reaches_reference) == {}


@pytest.mark.parametrize(
    ("name", "scores", "taught", "compared"),
    [
        ("grpo", [[1.0, 0.0]], True, 1),
        ("grpo", [[1.0, 1.0], [0.0, 0.0]], False, 2),
        ("grpo", [[1.0, 1.0], [0.0]], False, 1),  # a lone one has none beside it
        ("reinforce_pp", [[1.0, 1.0], [0.0, 0.0]], True, 0),  # the batch is the baseline
        ("gae", [[1.0, 1.0], [0.0, 0.0]], True, 0),
        ("reinforce_pp", [[1.0, 1.0]], False, 0),
        ("reward", [[1.0, 1.0]], True, 0),
        ("reward", [[0.0, 0.0]], False, 0),
    ],
)
def test_whether_replies_taught(name, scores, taught, compared):
    signs = reply_signs(groups(*scores), ADVANTAGES.get(name), num_failed=3)
    count = sum(map(len, scores))
    assert (signs.replies, signs.ungraded, signs.taught) == (count + 3, 3, taught)
    assert signs.compared == compared
    assert signs.right == sum(score == 1.0 for group in scores for score in group)
    critiques = [scored.segment for group in groups(*scores) for scored in group]
    signs = critique_signs(groups(*scores), critiques, reaches_reference, ADVANTAGES.get(name).baseline)
    assert (signs.taught, signs.compared) == (taught, compared)


def test_a_penalty_on_length_alone_teaches_nothing_to_be_told():
    wrong = groups([0.0, 0.0], terms={"outcome": outcome(), "overlong": overlong(2, 2)})
    assert len({scored.reward for scored in wrong[0]}) == 2
    assert not reply_signs(wrong, ADVANTAGES.get("grpo"), 0).taught


def test_the_signs_of_critiques_and_of_what_stands_beside_them():
    episodes = rewarded(
        [exchange(0.0, [("wrong", [1.0]), (None, [0.0])]), exchange(None, [("wrong", [1.0])], task="u")], "critic",
        {"direct": verdict_match()},
    )  # fmt: skip
    critiques = [e.segments[i] for e in episodes for i in e.indices("critic")]
    signs = critique_signs(groups_of(episodes, "critic", "answer"), critiques, lambda scored: scored.reward == 1.0)
    assert (signs.replies, signs.right, signs.unread, signs.ungraded, signs.taught) == (3, 1, 1, 1, True)
    answers = graded_signs("answers", [episode.segments[0] for episode in episodes])
    assert (answers.replies, answers.right, answers.unread, answers.ungraded) == (2, 0, 1, 1)
