"""Code of the user in this process is stopped when it takes too long, and what was there before is there again."""

import signal

import pytest

from whet.evaluation.time_limit import TimeLimitPassed, time_limit


class Stubborn:
    """Catches every interruption but the second."""

    num_caught = 0

    def run(self) -> None:
        while True:
            try:
                while True:
                    pass
            except BaseException:
                self.num_caught += 1
                if self.num_caught == 2:
                    raise


def test_what_takes_too_long_is_stopped_also_if_it_catches_what_it_can():
    before, stubborn = signal.getsignal(signal.SIGALRM), Stubborn()
    with pytest.raises(TimeLimitPassed), time_limit(0.05):
        stubborn.run()
    assert stubborn.num_caught == 2
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_what_is_in_time_is_left_alone():
    with time_limit(60):
        result = sum(range(10))
    assert result == 45
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
