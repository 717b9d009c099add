"""Dialects: holes filled to the letter, files of a user's own, verdicts by the dialect's labels."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from whet.config import ConfigError
from whet.config.parts import BasicsData, ChainData, FileData, GymData
from whet.engines.local import LocalEngine
from whet.grading import make_grader
from whet.grading.verdicts import parse_verdict
from whet.models.tiny import tiny_tokenizer
from whet.registry import UnknownName
from whet.rollout.critique import CritiqueRound
from whet.rollout.driver import GRADER, roll_out
from whet.rollout.roles import PolicyRole
from whet.tasks.chains import Chain
from whet.tasks.demonstrations import chain_demonstration, solution_demonstration
from whet.tasks.prompts import CHAINS, ENGLISH, PROMPTS, SHORT, Prompts, find_prompts, prompts_problem, read_prompts
from whet.types import Sampling, Task

TINY_WORDS = Path(__file__).parents[1] / "plugins" / "tiny_words.yaml"
FIELDS = {"solve": "{question}", "critique": "{question}{answer}", "critique_again": "{answer}", "refine": "{critique}"}
NASTY = r"{question} {answer} {critique} {} {0} {x!r} } { {{answer}} \boxed{1} %s $x"
VERDICTS = replace(ENGLISH, verdict_line="判定", right="正确", wrong="错误")


def contents(messages):
    return [message["content"] for message in messages]


# --- holes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("built_in", [CHAINS, ENGLISH, SHORT])
def test_the_built_in_ones_are_worded_as_python_formats_them(built_in):
    """The slow obvious way: their templates have no braces but holes."""
    history = [("first", "hm")]
    critic = contents(built_in.critique_messages("q", "second", history))
    assert critic == [
        built_in.critique.format(question="q", answer="first"), "hm", built_in.critique_again.format(answer="second")
    ]  # fmt: skip
    actor = contents(built_in.refine_messages("q", "second", "no", history))
    solve, refine = built_in.solve.format(question="q"), built_in.refine.format
    assert actor == [solve, "first", refine(critique="hm"), "second", refine(critique="no")]


def test_what_is_filled_in_is_not_looked_at_again_and_other_braces_are_text():
    nasty = replace(
        ENGLISH, solve=r"Put {question} in \boxed{}, as \frac{a}{b}; {{x}} {0} {}", critique="{answer}|{question}"
    )
    assert contents(nasty.solve_messages(NASTY)) == [
        rf"Put {NASTY} in \boxed{{}}, as \frac{{a}}{{b}}; {{{{x}}}} {{0}} {{}}"
    ]
    assert contents(nasty.critique_messages("Q {answer}", NASTY)) == [f"{NASTY}|Q {{answer}}"]


@pytest.mark.parametrize(
    ("field", "text", "says"),
    [
        ("solve", "Solve it.", "solve lacks {question}, which the model has to see"),
        ("critique", "{question}", "critique lacks {answer}"),
        ("critique_again", "{question}", "critique_again lacks {answer}"),
        ("refine", "Again!", "refine lacks {critique}"),
        ("solve", "{question} {answer}",
         "solve has the placeholder {answer}, which nothing fills; its placeholders are {question}"),
        ("solve", "{question} {qestion}",
         "has the placeholder {qestion}, which nothing fills; did you mean {question}?"),
        ("critique", "{question} {answer} {Answers}", "did you mean {answer}?"),
        ("refine", "{ critique }", "has the placeholder { critique }, which nothing fills; did you mean {critique}?"),
        ("refine", "{critique!r}", "did you mean {critique}?"),
        ("solve_prefill", "So {question}: ",
         "has the placeholder {question}, which nothing fills; its placeholders are none"),
        ("right", "", "right is '': give words on one line"),
        ("right", "**Yes**", "give words on one line, without spaces, dots, * or _ around them"),
        ("wrong", "No.", "give words on one line"),
        ("wrong", "no\nway", "give words on one line"),
        ("wrong", "correct", "right and wrong are both 'Correct'"),
        ("verdict_line", "Verdict:", "leave out the colon"),
        ("verdict_line", " ", "give words on one line"),
        ("right", True, "right is 'True', which is no text: put quotes around it"),
        ("solve_prefill", "half \ud800", "solve_prefill holds half a character"),
    ],
)  # fmt: skip
def test_what_makes_no_dialect(field, text, says):
    with pytest.raises(ConfigError) as error:
        replace(ENGLISH, **{field: text})
    assert says in str(error.value)


@pytest.mark.parametrize(
    "text", [r"{question} \boxed{x} \text{solution} {n} \sqrt[3]{2}", "{question} {answers_are_short}"]
)
def test_words_in_braces_that_are_near_no_hole_are_text(text):
    assert contents(replace(ENGLISH, solve=text).solve_messages("q")) == [text.replace("{question}", "q")]


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_that_extends_another(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text('extends: english\nsolve: "{question} Think. \\\\boxed{}"\nright: yes\nwrong: no\n')
    mine = find_prompts(str(file))
    assert mine == replace(ENGLISH, solve=r"{question} Think. \boxed{}", right="yes", wrong="no")
    assert find_prompts("english") is ENGLISH


def test_a_whole_file(tmp_path):
    file = tmp_path / "mine.yml"
    file.write_text("".join(f"{name}: '{text}'\n" for name, text in FIELDS.items()))
    assert read_prompts(file) == Prompts(**FIELDS)


def test_the_tiny_worlds_tokenizer_knows_the_example():
    terse, tokenizer = find_prompts(str(TINY_WORDS)), tiny_tokenizer()
    chain = Chain(7, (("+", 5), ("*", 3)))
    kinds = ("solve", "critique", "refine")
    for kind in kinds:
        shown = chain_demonstration(kind, chain, terse, random.Random(0))
        usual = chain_demonstration(kind, chain, CHAINS, random.Random(0))
        ids = tokenizer.apply_chat_template(list(shown.messages), return_dict=False)
        assert tokenizer.unk_token_id not in ids
        assert shown.text == usual.text
        assert sum(map(len, contents(shown.messages))) < sum(map(len, contents(usual.messages)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("extends: english\nsovle: '{question}'\n", "unknown key sovle: did you mean solve?"),
        ("extends: english\nanother thing: x\n", "unknown key another thing: there are solve, critique,"),
        ("extends: english\n1: x\n", "unknown key 1"),
        ("extends: englsh\n", "there is no prompts 'englsh'; did you mean 'english'"),
        ("extends: [english]\n", "extends must be the name of registered prompts"),
        ("solve: '{question}'\n", "it lacks critique, critique_again, refine: add them, or take them over with"),
        ("", "it lacks solve, critique, critique_again, refine"),
        ("extends: english\nsolve: x\n", "solve lacks {question}"),
        ("extends: english\nsolve: {question}\n", "solve is "),
        ("extends: english\nright: 1\n", "right is '1', which is no text"),
        ("extends: english\nright: Wrong\n", "right and wrong are both 'Wrong'"),
        ("extends: english\nsolve: '{question}'\nsolve: x\n", "found duplicate key"),
        ("- solve\n", "holds a list, not a mapping"),
        ("solve: [\n", "not valid YAML at line"),
        ("\udcff", "not UTF-8"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence_with_its_name(tmp_path, text, says):
    file = tmp_path / "mine.yaml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError) as error:
        read_prompts(file)
    assert says in str(error.value)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_names_and_paths():
    with pytest.raises(ConfigError, match="there is no prompts file nowhere/mine: check the path"):
        find_prompts("nowhere/mine")
    with pytest.raises(ConfigError, match=r"there is no prompts file mine\.yaml"):
        find_prompts("mine.yaml")
    with pytest.raises(UnknownName, match="there is no prompts 'mine'"):
        find_prompts("mine")
    assert PROMPTS.names()[:3] == ["chains", "english", "short"]


@pytest.mark.parametrize(
    ("name", "data", "fits"),
    [
        ("chains", ChainData(), True),
        ("chains", FileData(path="x", grader="chains"), True),
        ("chains", FileData(path="x"), False),
        ("chains", GymData(), False),
        ("chains", BasicsData(), False),
        ("short", BasicsData(), True),
        ("english", ChainData(), True),
        ("english", FileData(path="x"), True),
        ("english", GymData(), True),
        ("words/mine.yaml", FileData(path="x"), True),
        ("mine", GymData(), True),
    ],
)
def test_only_the_tiny_worlds_own_dialect_has_a_limit(name, data, fits):
    problem = prompts_problem(name, data)
    assert (problem is None) == fits
    assert fits or "does not fit data.kind" in problem


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("判定:正确", "correct"),
        ("第一步……\n**判定**: **错误**.\n解释", "wrong"),
        ("判定: 正确\n判定: 错误", None),
        ("判定: 正确, 但", None),
        ("判定:", None),
        ("判定: Correct", None),
        ("Correctness of the final answer: Correct", None),  # the label of another dialect
    ],
)
def test_a_verdict_is_read_by_the_dialects_labels(text, verdict):
    assert parse_verdict(text, **VERDICTS.labels) == verdict


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("Verdict: not ok", "wrong"), ("verdict: OK.", "correct"), ("Verdict: not", None), ("Verdict: OK not ok", None)],
)
def test_labels_may_begin_alike_and_hold_other_signs(text, verdict):
    assert parse_verdict(text, line="Verdict", right="ok", wrong="not ok") == verdict
    labels = {"line": "(a+b)?", "right": "[x]", "wrong": "[ ]"}
    assert parse_verdict("(a+b)?: [x]", **labels) == "correct"
    assert parse_verdict("aab: x", **labels) is None
    assert parse_verdict("(a+b)?: [ ]", **labels) == "wrong"


def test_a_critique_round_reads_verdicts_by_the_labels_of_its_dialect(random_policy):
    prompts = replace(CHAINS, verdict_line="Verdict", right="ok", wrong="not ok")
    role = PolicyRole("actor", "policy", random_policy.tokenizer, Sampling(max_new_tokens=4))
    services = {"policy": LocalEngine(random_policy).generate, GRADER: make_grader("chains").grade}
    for said, verdict in {
        "Verdict: OK": "correct",
        "Verdict: not ok": "wrong",
        CHAINS.closing(right=True): None,
    }.items():
        rollout = CritiqueRound(prompts, role, partial(_says, said), role, key=(0,), refine=False)
        (episode,) = roll_out([rollout(Task(id="t", prompt="7 + 5", answer="2"))], services)
        assert episode.segments[1].parsed == {"verdict": verdict}


def _says(text, task, answer):
    return text


def test_the_warm_starts_critiques_close_as_the_dialect_does():
    worked = Task(id="w", prompt="?", answer="4", info={"solution": "1 + 1 = 2\n2 + 2 = 4"})
    verdicts = set()
    for seed in range(20):
        rng = random.Random(seed)
        for shown in (
            chain_demonstration("critique", Chain(7, (("+", 5),)), VERDICTS, rng),
            solution_demonstration("critique", worked, VERDICTS, rng),
        ):
            verdicts.add(parse_verdict(shown.text, **VERDICTS.labels))
            assert parse_verdict(shown.text) is None
    assert verdicts == {"correct", "wrong"}
