"""What self-talk did inside replies, by hand."""

from __future__ import annotations

from whet.methods.self_correct.examples import NO_TALK, Mended, self_talk_metrics


def test_repairs_by_hand():
    replies = [
        Mended(1, first=False, right=True),  # helped
        Mended(2, first=False, right=False),
        Mended(1, first=True, right=False),  # harmed
        Mended(1, first=True, right=True),
        Mended(0, first=True, right=True),
        Mended(0, first=False, right=True),  # right by chance, and nothing mended
        Mended(0, first=None, right=True),
        Mended(3, first=None, right=False),
    ]
    found = self_talk_metrics(replies)
    assert found == {"first": 3 / 6, "repaired": 5 / 8, "repairs": 8 / 8, "helped": 1 / 6, "harmed": 1 / 6}
    assert self_talk_metrics([]) == NO_TALK
    assert self_talk_metrics([Mended(1, None, right=True)])["helped"] is None
