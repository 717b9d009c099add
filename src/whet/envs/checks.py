"""Checks that an environment keeps the protocol. Users can run them on their own environments.

Each check runs a few items and yields a sentence for each violation. Without these checks a violation would be silent:
episodes that do not repeat, forks that change their original, rewards outside of the declared range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from whet.envs.formats import PARSERS
from whet.envs.protocol import EnvError, Environment, EnvironmentInfo
from whet.envs.scripted import (
    NOISE,
    NUM_STEPS,
    Said,
    answered,
    episode,
    episodes,
    expert_episode,
    run_to_end,
    some_items,
)

Check = Callable[[EnvironmentInfo, int], Iterator[str]]


def check_env(info: EnvironmentInfo, *, num_items: int = 3) -> list[str]:
    """Runs all checks on a few items. It takes some hundred steps.

    Args:
        num_items: how many, from all splits; 2 at least.
    Returns: the violations, in sentences. Empty: there are none.
    """
    try:
        first_env = info.make()  # so that what all instances share is started once
    except Exception as error:
        return [f"{info.name}: no environment can be made: {type(error).__name__}: {error}"]
    try:
        return [sentence for name in CHECKS for sentence in check(info, name, num_items=num_items)]
    finally:
        first_env.close()


def check(info: EnvironmentInfo, name: str, *, num_items: int = 3) -> list[str]:
    """Runs one of `CHECKS`. Returns: the violations, in sentences."""
    problems = []
    try:
        for sentence in CHECKS[name](info, num_items):
            problems.append(f"{info.name}: {sentence}")
    except Exception as error:
        problems.append(f"{info.name}: {name.replace('_', ' ')} broke with {type(error).__name__}: {error}")
    return problems


def _says_of_itself(info: EnvironmentInfo, _: int) -> Iterator[str]:
    splits = info.splits()
    for missing in [name for name in ("train", "test") if name not in splits]:
        yield f"there is no split {missing!r}"
    if both := set(splits.get("train", ())) & set(splits.get("test", ())):
        yield f"train and test share {len(both)} items, {min(both)} for one"
    for name in [name for name, items in splits.items() if not items or len(items) > len(set(items))]:
        yield f"the split {name!r} is empty, or holds an item twice"
    least, greatest = info.rewards
    if not least <= info.success_above < greatest:
        yield f"success_above={info.success_above:g} is not between its least and its greatest reward"
    if info.score(greatest) != 1.0 or info.score(least) != max(0.0, least / info.scale):
        yield f"its rewards divided by scale={info.scale:g} are no scores of at most 1"
    if info.parser not in PARSERS:
        yield f"there is no parser {info.parser!r}"
    if info.max_turns < 1:
        yield f"max_turns={info.max_turns}, and an episode has one turn at least"


def _same_seed_same_episode(info: EnvironmentInfo, num_items: int) -> Iterator[str]:
    items = some_items(info, num_items)
    env, other = info.make(), info.make()
    try:
        forth = {item: episode(env, info, item, 1) for item in items}
        back = {item: episode(env, info, item, 1) for item in reversed(items)}
        for item in items:
            yield from _differ(forth[item], back[item], f"item {item}, visited in another order")
        yield from _differ(
            forth[items[-1]], episode(other, info, items[-1], 1), f"item {items[-1]}, in another instance"
        )
    finally:
        env.close()
        other.close()


def _any_text_is_answered(info: EnvironmentInfo, num_items: int) -> Iterator[str]:
    env = info.make()
    try:
        item = some_items(info, num_items)[0]
        for noise in NOISE:
            answered(env.reset(item, seed=0))
            try:
                observation, reward, terminated, truncated, about = answered(env.step(noise))
            except Exception as error:
                yield f"the action {noise[:30]!r} is not answered: {type(error).__name__}: {error}"
                continue
            if not isinstance(observation, str) or not observation:
                yield f"the action {noise[:30]!r} is answered by {observation!r}, which is not a text, or is empty"
            if not isinstance(about, dict) or (type(terminated), type(truncated)) != (bool, bool):
                yield f"the action {noise[:30]!r} is not answered by (text, reward, bool, bool, dict)"
            if not info.rewards[0] <= reward <= info.rewards[1]:
                yield f"the action {noise[:30]!r} has reward {reward:g}, outside of rewards={info.rewards}"
    finally:
        env.close()


def _asked_for_what_there_is_only(info: EnvironmentInfo, _: int) -> Iterator[str]:
    env = info.make()
    try:
        if not _refuses(lambda: env.step("look")):
            yield "a step before the first reset raises no EnvError"
        if not _refuses(lambda: env.reset(-1)):
            yield "there is no item -1, and reset(-1) raises no EnvError"
    finally:
        env.close()


def _its_episodes_end_well(info: EnvironmentInfo, num_items: int) -> Iterator[str]:
    env = info.make()
    try:
        for item in some_items(info, num_items):
            total = run_to_end(env, info, item)
            if total is None:
                continue
            if not info.rewards[0] - 1e-9 <= total <= info.rewards[1] + 1e-9:
                yield f"the rewards of item {item} add up to {total:g}, outside of rewards={info.rewards}"
            if not _refuses(lambda: env.step("look")):
                yield f"item {item} has ended, and another step raises no EnvError"
    finally:
        env.close()


def _a_reset_leaks_nothing(info: EnvironmentInfo, num_items: int) -> Iterator[str]:
    first, second, *_ = (*some_items(info, num_items), *some_items(info, num_items))
    env = info.make()
    try:
        fresh = episode(env, info, second, 3)
        episode(env, info, first, 2)
        answered(env.reset(first, seed=5))
        answered(env.step(NOISE[3]))
        yield from _differ(fresh, episode(env, info, second, 3), f"item {second}, after a reset in mid-episode")
    finally:
        env.close()


def _a_fork_goes_its_own_way(info: EnvironmentInfo, num_items: int) -> Iterator[str]:
    env = info.make()
    try:
        for item in some_items(info, num_items)[:2]:
            done, _, _ = episodes(env, info, item, 4, NUM_STEPS)
            half = len(done) // 2
            answered(env.reset(item, seed=4))
            for action in done[:half]:
                answered(env.step(action))
            yield from _forked(env, done[half:], item)
    finally:
        env.close()


def _forked(env: Environment, rest: Sequence[str], item: int) -> Iterator[str]:
    other = env.fork()
    try:
        before = env.state_key()
        hash(before)
        if other.state_key() != before:
            yield f"item {item}: a fork has another state_key than its original"
        answers = _answers_to(other, rest)
        if env.state_key() != before:
            yield f"item {item}: actions in a fork change the state_key of its original"
        if _answers_to(env, rest) != answers:
            yield f"item {item}: a fork answers the same actions otherwise than its original"
        elif other.state_key() != env.state_key():
            yield f"item {item}: a fork and its original have other state_keys after the same actions"
    finally:
        other.close()


def _answers_to(env: Environment, actions: Sequence[str]) -> list[Any]:
    """Its answers, up to the first EnvError: a fork that is no copy has ended its original."""
    answers: list[Any] = []
    for action in actions:
        try:
            answers.append(answered(env.step(action))[:4])
        except EnvError as error:
            return [*answers, str(error)]
    return answers


def _its_expert_succeeds(info: EnvironmentInfo, num_items: int) -> Iterator[str]:
    if info.expert is None:
        return
    env = info.make()
    try:
        items = some_items(info, num_items)
        episodes = [expert_episode(env, info, item, 0) for item in items]
        if not any(info.is_success(reward) for _, reward in episodes):
            yield f"its expert has success in none of the items {', '.join(map(str, items))}"
        if [expert_episode(env, info, item, 0) for item in items] != episodes:
            yield "its expert acts in two ways on the same items with the same seed"
    finally:
        env.close()


CHECKS: dict[str, Check] = {
    "says_of_itself": _says_of_itself,
    "same_seed_same_episode": _same_seed_same_episode,
    "any_text_is_answered": _any_text_is_answered,
    "asked_for_what_there_is_only": _asked_for_what_there_is_only,
    "its_episodes_end_well": _its_episodes_end_well,
    "a_reset_leaks_nothing": _a_reset_leaks_nothing,
    "a_fork_goes_its_own_way": _a_fork_goes_its_own_way,
    "its_expert_succeeds": _its_expert_succeeds,
}


def _refuses(ask: Callable[[], Any]) -> bool:
    try:
        answered(ask())
    except EnvError:
        return True
    return False


def _differ(one: Sequence[Said], other: Sequence[Said], which: str) -> Iterator[str]:
    """The first difference between two episodes that should be equal."""
    if one == other:
        return
    turn = next(
        (turn for turn, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    yield (
        f"{which}, is another episode from turn {turn} on, though item, seed and actions are the same: draw whatever "
        "is left to chance from item and seed in reset"
    )
