"""Pairs for DPO: the worked cases, and files."""

from __future__ import annotations

import json

import pytest

from whet.tasks.files import DataError
from whet.trajectories.preferences import preference_pairs, read_pairs, write_pairs
from whet.trajectories.records import Message, Trajectory


def run(reward, who, item="webshop_1", begin="A shop."):
    says = ["Rules.", "Ok.", begin, f"Action: {who}", "Bought."]
    chat = tuple(Message("gpt" if n % 2 else "human", text) for n, text in enumerate(says))
    return Trajectory(item_id=item, messages=chat, reward=reward)


@pytest.mark.parametrize(
    ("expert", "sample", "chosen"),
    [
        (1.0, 0.3, "expert"),
        (0.5, 0.95, "sample"),
        (0.95, 0.9, None),  # too near
        (0.8, 0.1, None),  # neither is good enough
        (1.0, 0.9, "expert"),  # just the gap, which rounding makes 0.09999999999999998
        (0.9, 0.0, "expert"),  # just the threshold
    ],
)
def test_pairs_by_gap_and_threshold(expert, sample, chosen):
    pairs = preference_pairs([run(expert, "expert")], [run(sample, "sample")], reward_gap=0.1, expert_threshold=0.9)
    assert [pair.chosen[0].text for pair in pairs] == ([f"Action: {chosen}"] if chosen else [])
    for pair in pairs:
        assert [message.text for message in pair.prompt] == ["Rules.", "Ok.", "A shop."]
        assert pair.rejected[0].text == ("Action: sample" if chosen == "expert" else "Action: expert")


def test_equal_rewards_make_no_pair():
    assert preference_pairs([run(1.0, "expert")], [run(1.0, "sample")], reward_gap=0.0) == ()


def test_every_sample_is_held_against_the_first_expert_of_its_item():
    experts = [run(1.0, "first"), run(1.0, "second"), run(1.0, "other", "webshop_2")]
    samples = [run(0.2, "a"), run(0.1, "b", "webshop_3"), run(0.3, "c")]
    pairs = preference_pairs(experts, samples)
    assert [(pair.chosen[0].text, pair.rejected[0].text) for pair in pairs] == [
        ("Action: first", "Action: a"),
        ("Action: first", "Action: c"),
    ]


def test_rewards_may_have_a_scale():
    assert preference_pairs([run(60.0, "expert")], [run(0.0, "sample")], scale=100) == ()
    assert len(preference_pairs([run(80.0, "expert")], [run(0.0, "sample")], scale=100)) == 1


def test_runs_that_cannot_be_compared_are_named():
    with pytest.raises(DataError, match="a run of webshop_1 has no reward"):
        preference_pairs([run(1.0, "expert")], [run(None, "sample")])
    with pytest.raises(DataError, match="two runs of webshop_1 begin in different ways"):
        preference_pairs([run(1.0, "expert")], [run(0.0, "sample", begin="Another shop.")])


@pytest.mark.parametrize("name", ["pairs.json", "pairs.jsonl"])
def test_files_of_pairs_round_trip(name, tmp_path):
    pairs = preference_pairs([run(1.0, "expert")], [run(0.2, "a"), run(0.1, "b")])
    write_pairs(tmp_path / name, pairs)
    assert read_pairs(tmp_path / name) == pairs


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"id": 7}, "record 1: a pair has no id"),
        ({"chosen": []}, "record 1: chosen is no list of messages"),
        ({"prompt": [{"from": "human", "value": "Rules."}]}, "record 1: the prompt has 1 messages"),
        ({"rejected": [{"from": "human", "value": "x"}]}, "record 1, rejected: message 3 is of 'human'"),
    ],
)
def test_what_is_wrong_with_a_pair(change, sentence, tmp_path):
    path = tmp_path / "pairs.json"
    write_pairs(path, preference_pairs([run(1.0, "expert")], [run(0.2, "a")]))
    path.write_text(json.dumps([json.loads(path.read_text())[0] | change]))
    with pytest.raises(DataError, match=sentence):
        read_pairs(path)
