"""Wordle: marks by hand, the published strings, words of one's own, and a solver."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter

import pytest

from whet.envs.protocol import EnvError
from whet.envs.wordle import NUM_TRIES, WORDLE, WORDS, Wordle, fitting, load_words, marks, spaced


@pytest.fixture
def few(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("erase\nspeed\nabide\nsteal\ncrepe\nlever\nTRAIN\nsix\n\nsteal\n")
    return path


@pytest.mark.parametrize(
    ("guess", "word", "answer"),
    [
        ("speed", "abide", "bbyby"),  # one e in the word, for the first e of the guess; the d is elsewhere
        ("speed", "erase", "ybyyb"),  # two e for two e
        ("speed", "steal", "gbgbb"),  # the only e is green at its place, and the second gets none
        ("speed", "crepe", "bygyb"),  # p elsewhere, one e green, the other elsewhere
        ("erase", "speed", "ybbyy"),
        ("lever", "elder", "yybgg"),  # the last e is green; of the word's two, one is left for the first e
        ("allee", "apple", "gybbg"),  # one l and one e: the second l gets none, the last e is green
        ("aabbb", "baaaa", "ygybb"),
        ("array", "maria", "ybgyb"),
        ("panic", "panic", "ggggg"),
        ("panic", "robot", "bbbbb"),
    ],
)
def test_marks_by_hand(guess, word, answer):
    assert marks(guess, word) == answer


def test_marks_count_letters():
    """Laws: green where equal, and a letter is marked as often as both words have it."""
    rng, words = random.Random(0), load_words(WORDS)
    for _ in range(3000):
        guess, word = rng.choice(words), rng.choice(words)
        answer = marks(guess, word)
        assert all((mark == "g") == (a == b) for mark, a, b in zip(answer, guess, word, strict=True))
        marked = Counter(letter for letter, mark in zip(guess, answer, strict=True) if mark != "b")
        assert marked == Counter(guess) & Counter(word)


def of_word(env, word):
    """The first item that draws this word."""
    return next(item for item in range(10_000) if random.Random(item).choice(env.words) == word)


def test_a_game_by_hand(few):
    env = Wordle(few)
    assert env.words == ("erase", "speed", "abide", "steal", "crepe", "lever")
    observation, info = env.reset(of_word(env, "steal"))
    assert observation == "Let's start Wordle!"
    assert info["actions"][:2] == ("e r a s e", "s p e e d")
    assert env.step("s p e e d") == ("g b g b b\n", 0.0, False, False, {})
    assert env.step("t r a i n") == ("invalid word", 0.0, False, False, {"invalid": True})
    assert env.candidates() == ("steal",)
    assert env.step("s t e a l") == ("g g g g g\n", 1.0, True, False, {})
    with pytest.raises(EnvError, match="reset"):
        env.step("s t e a l")


@pytest.mark.parametrize(
    "action",
    ["", " ", "stea", "s t e a l s", "S T E A L", "s-t-e-a-l", "s,t,e,a,l", "ſteal", "s t e\na l", "x x x x x"],
)
def test_what_is_no_word_costs_a_try(few, action):
    env = Wordle(few)
    env.reset(of_word(env, "steal"))
    said = [env.step(action) for _ in range(NUM_TRIES)]
    assert {step[0] for step in said} == {"invalid word"}
    assert all(step[4] == {"invalid": True} for step in said)
    assert [step[2] for step in said] == [False] * 5 + [True]
    assert sum(step[1] for step in said) == 0


@pytest.mark.parametrize("action", ["s t e a l", "steal", " steal\n", "st eal"])
def test_spaces_do_not_matter(few, action):
    env = Wordle(few)
    env.reset(of_word(env, "steal"))
    assert env.step(action)[1] == 1.0


def test_an_item_draws_its_word_as_published(few):
    """The first word that the published world draws for a seed, from the same list."""
    env = Wordle(few)
    for item in (0, 1, 24, 1450):
        env.reset(item, seed=99)
        assert env.state_key()[1] == random.Random(item).choice(list(env.words))
    with pytest.raises(EnvError, match="no item -1"):
        env.reset(-1)


def test_a_file_without_words(tmp_path):
    (tmp_path / "none.txt").write_text("six\nABOUT\n")
    with pytest.raises(EnvError, match="has no word"):
        Wordle(tmp_path / "none.txt")
    with pytest.raises(EnvError, match="cannot read"):
        Wordle(tmp_path / "absent.txt")


def test_our_list():
    words = load_words(WORDS)
    assert 800 < len(words) < 1000
    assert list(words) == sorted(set(words))
    assert WORDS.read_text().split() == list(words)


def roll_out(env, item):
    env.reset(item)
    total = 0.0
    for num, (thought, action) in enumerate(WORDLE.expert(env, seed=0), start=1):
        assert len(thought.split()) > 5
        _, reward, over, _, info = env.step(action)
        assert not info
        total += reward
        if over:
            return total, num
    raise AssertionError


def test_the_expert_wins():
    """On every tenth test item."""
    items = WORDLE.splits()["test"][::10]
    won = [roll_out(Wordle(), item) for item in items]
    assert sum(reward for reward, _ in won) >= 0.95 * len(items)
    assert sum(num for _, num in won) / len(won) < 4.5


def test_the_expert_wins_on_the_published_words(data_folder):
    env = Wordle(data_folder / "agentgym/lmrlgym/tweet_words.txt")
    assert len(env.words) == 40
    assert [roll_out(env, item)[0] for item in range(25)] == [1.0] * 25


def test_thoughts_say_what_is_known(few):
    env = Wordle(few)
    env.reset(of_word(env, "steal"))
    env.step("speed")
    thought, action = next(WORDLE.expert(env))
    assert action == "s t e a l"
    assert thought == "I know: letter 1 is 's'; letter 3 is 'e'; it has no d or p. Only 'steal' fits all of it."


def test_fitting_words_always_hold_the_hidden_one():
    rng, env = random.Random(1), Wordle()
    for item in range(30):
        env.reset(item)
        word = env.state_key()[1]
        for _ in range(5):
            env.step(spaced(rng.choice(env.words)))
            if env.state_key()[3]:
                break
            assert word in env.candidates()
            assert set(env.candidates()) <= set(fitting(env.words, env.answers[:1]))


def test_train_and_test_have_no_word_in_common():
    splits, words = WORDLE.splits(), load_words(WORDS)
    drawn = {split: [random.Random(item).choice(words) for item in splits[split]] for split in ("train", "test")}
    assert not set(drawn["train"]) & set(drawn["test"])
    assert set(drawn["train"]) | set(drawn["test"]) == set(words)
    assert sum(map(len, drawn.values())) == len(words)
    assert 0.15 < len(drawn["test"]) / len(words) < 0.25
    assert list(splits["published_test"]) == list(range(25))


def test_another_list_is_split_by_its_own_words(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("\n".join(load_words(WORDS)[:60]))
    parts = WORDLE.settled({"words": str(words)}).splits()
    env = Wordle(words)

    def drawn(split):
        return [(env.reset(item), env._word)[1] for item in parts[split]]

    train, test = drawn("train"), drawn("test")
    assert train
    assert test
    assert sorted(train + test) == sorted(env.words)
    assert parts["published_test"] == range(25)


def test_a_list_that_is_too_short_for_two_splits(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("panic\n")
    with pytest.raises(EnvError, match="too few for train and test"):
        WORDLE.settled({"words": str(words)})


def test_a_fork_goes_its_own_way(few):
    env = Wordle(few)
    env.reset(3)
    env.step("a b i d e")
    other = env.fork()
    assert other.state_key() == env.state_key()
    other.step("l e v e r")
    assert other.state_key() != env.state_key()
    assert other.answers[0] == env.answers[0]
    assert len(env.answers) == 1


def test_the_order_of_guesses_is_no_part_of_the_state(few):
    one, other = Wordle(few), Wordle(few)
    one.reset(of_word(one, "steal"))
    other.reset(of_word(one, "steal"))
    for guess in ("abide", "lever"):
        one.step(guess)
    for guess in ("lever", "abide"):
        other.step(guess)
    assert one.state_key() == other.state_key()


PROGRAM = """
from whet.envs.wordle import WORDLE, Wordle
env = Wordle()
for item in WORDLE.splits()["test"][:3]:
    print(item, env.reset(item, seed=1)[0])
    for thought, action in WORDLE.expert(env):
        step = env.step(action)
        print(thought, action, step)
        if step[2]:
            break
"""


def test_another_process_and_hash_seed_play_the_same():
    said = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, check=True, text=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(said) == 1
    assert "g g g g g" in said.pop()


def test_speed():
    env, begun, steps = Wordle(), time.process_time(), 0
    while steps < 12_000:
        env.reset(steps)
        for action in ("s t o n e", "r a i s e", "w o r l d", "n o n e", "c h a r t", "h o u s e"):
            steps += 1
            if env.step(action)[2]:
                break
    assert steps / (time.process_time() - begun) > 18_000
