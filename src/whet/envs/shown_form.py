"""The form in which observations are shown to an agent: the environment's own, or that of published records."""

from __future__ import annotations

from dataclasses import dataclass

from whet.types import shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownForm:
    """What is shown of an observation, and what stands before it. The default shows it as the environment gives it."""

    before_first: str = ""
    """Stands before the first observation, such as an instruction with a worked example."""
    before_later: str = ""
    """Stands before each later one."""
    ends_before: str = ""
    """An observation ends before the first place of this text. Empty: nothing is left out."""

    def shown(self, observation: str, max_characters: int, *, is_first: bool) -> str:
        """The observation as the agent reads it.

        Args:
            max_characters: of the observation. The middle of a longer one is left out; what stands before is whole.
        """
        if self.ends_before:
            observation = observation.partition(self.ends_before)[0]
        before = self.before_first if is_first else self.before_later
        return before + shortened(observation, max_characters)


OWN_FORM = ShownForm()
BEGINNINGS = {"textcraft": "Crafting commands:\n", "maze": "The goal is at position ", "babyai": "Your goal: "}
"""By environment, the words that its first observation begins with. In a record, what stands before their last place is
the record's own text."""
ADDED = {"babyai": "\nAvailable actions: "}
"""By environment, the beginning of a text that its observations end in, and those of some published records do not."""
