"""Masks: the worked episode of three turns, the published defects as counter-tests, and rows by real chat templates."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from whet.chat import keep_stop_ids
from whet.models.tiny import tiny_tokenizer
from whet.tasks.files import DataError
from whet.trajectories.files import read_trajectories
from whet.trajectories.masks import ROLES, TRAINED, piece_mask, sft_row
from whet.trajectories.preferences import preference_pairs
from whet.trajectories.records import Message, Trajectory

FRAME, END = ("frame", 4), ("end", 1)


def observed(length):
    return (FRAME, ("observation", length), ("frame", 1))


def answered(length):
    return (FRAME, ("answer", length), END)


PIECES = (
    ("prompt", 20),
    *(*observed(6), *answered(5)),
    *(*observed(3), *answered(4)),
    *(*observed(2), *answered(3)),
    *observed(1),
)


def bits(text):
    """`11x0 6x1` as a mask."""
    return tuple(bit == "1" for part in text.split() for n, bit in [part.split("x")] for _ in range(int(n)))


def response_mask(pieces):
    return piece_mask([piece for piece in pieces if piece[0] != "prompt"])


def test_three_turns_by_hand():
    mask = response_mask(PIECES)
    assert mask == bits("11x0 4x0 6x1 8x0 4x0 5x1 7x0 4x0 4x1 6x0")
    assert (len(mask), sum(mask), len(piece_mask(PIECES))) == (59, 15, 79)
    assert piece_mask(PIECES) == (*[False] * 20, *mask)


KINDS = ("prompt", "frame", "observation", "answer", "end", "untrained")


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5))))
def test_laws_of_the_mask(pieces):
    mask = piece_mask(pieces)
    assert len(mask) == sum(length for _, length in pieces)
    assert sum(mask) == sum(length for kind, length in pieces if kind in TRAINED)
    halves = piece_mask([(kind, part) for kind, length in pieces for part in (length // 2, length - length // 2)])
    assert halves == mask


# ---- rows by a chat template --------------------------------------------------------------------------------------

CHATML = (
    "{% for m in messages %}{{ '\n' if not loop.first }}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>"
    "{% endfor %}"
)
QWEN = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are helpful.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
)
LLAMA = "{% for m in messages %}[{{ m['role'] }}]\n{{ m['content'] | trim }} <|eot|>{% endfor %}"
TRIMS = "{% for m in messages %}[{{ m['role'] }}]\n{{ m['content'] | trim }}<|im_end|>{% endfor %}"
DROPS = "{% for m in messages[:2] %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
SHOUTS = "{% for m in messages %}<|im_start|>{{ m['content'] | upper }}<|im_end|>{% endfor %}"


def words(template):
    """A tokenizer in which a word is a token, and so is a line break."""
    special = ["<|im_start|>", "<|im_end|>", "<|unknown|>", "<|eot|>"]
    said = ["\n", *"system user assistant a b c d e f You are helpful . Ok [ ] < | im _ end start >".split()]  # noqa: SIM905
    vocabulary = {piece: number for number, piece in enumerate(special + said)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<|unknown|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Punctuation()]
    )
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False, special=True) for piece in special])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", unk_token="<|unknown|>")
    fast.chat_template = template
    return fast


def episode(*says, losses=(None, False, None, True, None, None, None, True, None)):
    chat = [Message("gpt" if n % 2 else "human", text, losses[n]) for n, text in enumerate(says)]
    return Trajectory(item_id="maze_1", messages=tuple(chat))


RULES = " ".join("a" * 10)
THREE = episode(RULES, "Ok", "a a a a a a", "b b b b b", "c c c", "d d d d", "e e", "f f f", "a")


def test_a_chat_template_gives_the_worked_numbers():
    row = sft_row(THREE, words(CHATML))
    # prompt: 3 + 10 + 1 (no line break before the first) and 4 + 1 + 1
    assert (row.num_prompt, len(row.ids), len(row.mask)) == (20, 79, 79)
    assert row.mask[20:] == response_mask(PIECES)
    assert response_mask(row.pieces) == response_mask(PIECES)
    trained = [each for each, trains in zip(row.ids, row.mask, strict=True) if trains]
    assert words(CHATML).decode(trained) == "b b b b b <|im_end|> d d d d <|im_end|> f f f <|im_end|>"


def test_a_row_is_what_the_template_writes():
    for template in (CHATML, QWEN, TRIMS):
        tokenizer = words(template)
        chat = [{"role": ROLES[message.who], "content": message.text} for message in THREE.messages]
        row = sft_row(THREE, tokenizer)
        assert list(row.ids) == tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False)
        assert sum(row.mask) == 15


def test_loss_is_honoured():
    trained = sft_row(THREE, words(CHATML))
    acknowledged = replace(THREE, messages=(THREE.messages[0], Message("gpt", "Ok"), *THREE.messages[2:]))
    row = sft_row(acknowledged, words(CHATML))
    assert sum(row.mask) == 17  # `Ok` and its end mark, which the published trainers always train
    assert (row.ids, row.num_prompt) == (trained.ids, 20)
    assert row.mask[20:] == trained.mask[20:]
    held = replace(THREE, messages=(*THREE.messages[:3], Message("gpt", "b b b b b", False), *THREE.messages[4:]))
    assert sum(sft_row(held, words(CHATML)).mask) == 9


def test_the_published_mask_is_not_ours():
    """Published: header, text, end mark and the line break after it of every answer, `Ok` among them, and the mask is
    laid on the tokens before those that it means. So what a token too late trains, and an answer's first does not."""
    tokenizer = words(QWEN)
    row = sft_row(THREE, tokenizer)
    ids, begins = list(row.ids), tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
    published = set()
    for at in range(len(ids)):
        if ids[at : at + 3] == begins:
            end = ids.index(tokenizer.eos_token_id, at)
            published |= {place + 1 for place in range(at, end + 2)}  # targets: one place on
    ours = {at for at, trains in enumerate(row.mask) if trains}
    assert len(ours) == 15
    assert len(published) == 15 + 2 + 4 * 3 + 4  # + `Ok` and its end, headers, line breaks
    wrong = published - ours
    user = tokenizer.encode("<|im_start|>", add_special_tokens=False)[0]
    assert sum(ids[at] == user for at in wrong) == 4  # the next turn's own mark


def test_a_template_may_end_turns_otherwise():
    tokenizer = words(LLAMA)
    with pytest.raises(
        DataError, match=r"maze_1, message 3: .* ends an answer by ' <\|eot\|>\[user.* not by <\|im_end\|>; add its"
    ):
        sft_row(THREE, tokenizer)
    keep_stop_ids(tokenizer, [tokenizer.convert_tokens_to_ids("<|eot|>")])  # as generation_config.json would say
    row = sft_row(THREE, tokenizer)
    trained = [each for each, trains in zip(row.ids, row.mask, strict=True) if trains]
    assert tokenizer.decode(trained) == "b b b b b <|eot|> d d d d <|eot|> f f f <|eot|>"


def test_a_pair_has_the_same_masks():
    better, worse = replace(THREE, reward=1.0), replace(THREE, messages=THREE.messages[:5], reward=0.0)
    (pair,) = preference_pairs([better], [worse])
    rows = [sft_row(each, words(CHATML)) for each in pair.runs()]
    assert [row.mask for row in rows] == [sft_row(each, words(CHATML)).mask for each in (better, worse)]


def test_what_messages_spell_is_no_mark():
    tokenizer = words(CHATML)
    row = sft_row(episode(RULES, "Ok", "a <|im_end|> a", "b<|im_end|>b"), tokenizer)
    assert row.ids.count(tokenizer.eos_token_id) == 4  # one a message


def test_texts_that_the_template_writes_elsewhere_too():
    row = sft_row(
        episode("user", "assistant", "im_end", "im_start", "", "You are helpful.", "\n", "", "a"), words(QWEN)
    )
    assert sum(row.mask) == 4 + 5 + 1  # three pieces and an end, four and an end, an end alone


@pytest.mark.parametrize(
    ("template", "sentence"), [(DROPS, "every message once and in order"), (SHOUTS, "other words")]
)
def test_templates_that_do_not_keep_messages(template, sentence):
    with pytest.raises(DataError, match=f"maze_1: the chat template .*{sentence}"):
        sft_row(THREE, words(template))


def test_published_trajectories_become_rows(data_folder):
    tokenizer = tiny_tokenizer()  # knows few words, and its template is ours
    found = read_trajectories(data_folder / "agentgym/AgentTraj-L/lmrlgym_maze_train.json")
    for each in found[:40]:
        row = sft_row(each, tokenizer)
        ends = [at for at, trains in enumerate(row.mask) if trains and row.ids[at] == tokenizer.eos_token_id]
        assert len(ends) == each.num_turns
        assert ends[-1] == len(row.ids) - 1  # nothing follows the last action
