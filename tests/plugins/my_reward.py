"""A grader and a reward term of one's own, in one file."""

import whet


@whet.grader("ends_right")
def score(completion: str, answer: str, **info: object) -> float:
    """Right where the reply ends in the answer, whatever comes before it."""
    return float(completion.rstrip().endswith(answer))


@whet.reward("brief")
def brief(episode: whet.Episode, index: int) -> float:
    """A hundredth off for every token."""
    return -len(episode.segments[index].tokens) / 100
