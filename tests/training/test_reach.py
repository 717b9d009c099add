"""What is said of a search's reach: by the settings alone, and on the first rows that are trained on."""

from __future__ import annotations

from whet.config.losses import BalancedBounds
from whet.training import reach


def test_what_the_settings_say():
    assert "target 40.0 %" in (text := reach.in_advance(BalancedBounds()).replace("%", " %"))
    assert "from a start below 21.1 %" in text
    assert "below" not in reach.in_advance(BalancedBounds(contribution="gradient"))
