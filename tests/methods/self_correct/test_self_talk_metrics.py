"""What self-talk did inside replies, by hand."""

from __future__ import annotations

from whet.methods.self_correct.examples import NO_TALK, CorrectedReply, self_talk_metrics


def test_repairs_by_hand():
    replies = [
        CorrectedReply(1, first=False, right=True),  # helped
        CorrectedReply(2, first=False, right=False),
        CorrectedReply(1, first=True, right=False),  # harmed
        CorrectedReply(1, first=True, right=True),
        CorrectedReply(0, first=True, right=True),
        CorrectedReply(0, first=False, right=True),  # right by chance, and nothing mended
        CorrectedReply(0, first=None, right=True),
        CorrectedReply(3, first=None, right=False),
    ]
    found = self_talk_metrics(replies)
    assert found == {"first": 3 / 6, "repaired": 5 / 8, "repairs": 8 / 8, "helped": 1 / 6, "harmed": 1 / 6}
    assert self_talk_metrics([]) == NO_TALK
    assert self_talk_metrics([CorrectedReply(1, None, right=True)])["helped"] is None
