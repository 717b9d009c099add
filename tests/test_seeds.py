"""Seeds of everything that is random in a run."""

from whet.seeds import seed_of


def test_seeds_tell_their_parts_apart():
    assert seed_of(1, 23) != seed_of(12, 3)
    assert seed_of("a", "bc") != seed_of("ab", "c")
    assert 0 <= seed_of(0) < 2**64
    assert seed_of(0, "answer", "t", 0) == seed_of(0, "answer", "t", 0)
