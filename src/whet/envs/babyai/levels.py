"""BabyAI's forty levels in their published order, and the numbering of items."""

from __future__ import annotations

from typing import Any

from whet.envs.protocol import EnvError

LEVELS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("GoToRedBallGrey", {}),
    ("GoToRedBall", {}),
    ("GoToRedBallNoDists", {}),
    ("GoToObj", {"room_size": 4}),  # as minigrid 2 registered it; minigrid 3 has a side of 6
    ("GoToLocal", {"room_size": 8, "num_dists": 7}),
    ("GoTo", {"num_dists": 1, "room_size": 7}),
    ("GoToImpUnlock", {}),
    ("GoToSeq", {"room_size": 5, "num_rows": 2, "num_cols": 2, "num_dists": 4}),
    ("GoToRedBlueBall", {}),
    ("GoToDoor", {}),
    ("GoToObjDoor", {}),
    ("Open", {}),
    ("OpenRedDoor", {}),
    ("OpenDoor", {"select_by": "loc"}),
    ("OpenTwoDoors", {"first_color": "red", "second_color": "blue", "strict": True}),
    ("OpenDoorsOrder", {"debug": True, "num_doors": 4}),
    ("Pickup", {}),
    ("UnblockPickup", {}),
    ("PickupLoc", {}),
    ("PickupDist", {"debug": True}),
    ("PickupAbove", {}),
    ("PutNextLocal", {"room_size": 6, "num_objs": 4}),
    ("PutNext", {"room_size": 7, "objs_per_room": 4, "start_carrying": True}),
    ("Unlock", {}),
    ("UnlockLocal", {"distractors": True}),
    ("KeyInBox", {}),
    ("UnlockPickup", {"distractors": True}),
    ("BlockedUnlockPickup", {}),
    ("UnlockToUnlock", {}),
    ("ActionObjDoor", {}),
    ("FindObjS5", {"room_size": 7}),
    ("KeyCorridor", {"room_size": 6, "num_rows": 3}),
    ("OneRoomS8", {"room_size": 20}),
    ("MoveTwoAcross", {"room_size": 8, "objs_per_room": 9}),
    ("Synth", {"room_size": 5, "num_rows": 2}),
    ("SynthLoc", {}),
    ("SynthSeq", {}),
    ("MiniBossLevel", {}),
    ("BossLevel", {}),
    ("BossLevelNoUnlock", {}),
)
"""A class of `minigrid.envs.babyai` and its arguments, by level from 1. The order is that in which minigrid
registers the classes. Of each class it is the configuration registered last; level 4 alone is older."""

PUBLISHED = (*range(1, 12), 19, 20, 21, 30, 31, 33, 36)
"""The levels that the published sets draw from."""
_GROUPS = {
    **dict.fromkeys(range(1, 12), "GoTo"),
    **dict.fromkeys((19, 20, 21), "Pickup"),
    30: "AOD",
    31: "FindObj",
    33: "OneRoom",
    36: "SynthLoc",
}
_TRAIN_SEEDS, _TEST_SEEDS = range(45), range(45, 50)


def level_and_seed(item: int) -> tuple[int, int]:
    """An item's level, from 1 to 40, and the seed of its grid, from 0.

    Raises: EnvError for a number below 0.
    """
    if item < 0:
        raise EnvError(f"BabyAI has no item {item}: take a number from 0 up, which is (level - 1) + 40 * seed.")
    seed, place = divmod(item, len(LEVELS))
    return place + 1, seed


def item_of(level: int, seed: int) -> int:
    """The item with this level (1 to 40) and seed (from 0)."""
    return level - 1 + len(LEVELS) * seed


def group(item: int) -> str:
    """The subgroup that results are published by; a level outside the published sets is its own group."""
    level, _ = level_and_seed(item)
    return _GROUPS.get(level) or LEVELS[level - 1][0]


def splits() -> dict[str, tuple[int, ...]]:
    """Forty-five training seeds and five test seeds for each of the published levels, in the order of their numbers.

    There are as many as in the published sets, whose seeds follow no rule. All published test items have seeds from 45
    up, so none of them is among our training items.
    """
    seeds = {"train": _TRAIN_SEEDS, "test": _TEST_SEEDS}
    return {
        name: tuple(item_of(level, seed) for seed in split_seeds for level in PUBLISHED)
        for name, split_seeds in seeds.items()
    }
