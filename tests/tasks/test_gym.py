"""Tasks of reasoning-gym: nothing trained on is tested on, and only the right answer is paid."""

from __future__ import annotations

import ast
import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from whet.config import load
from whet.config.base import Config
from whet.config.parts import GymData
from whet.grading import gym as grading_gym
from whet.grading.gym import GymGrader, final_text
from whet.run.data import load_grader, load_tasks
from whet.sandbox.client import why_not
from whet.tasks import gym, gym_process
from whet.tasks.files import DataError
from whet.tasks.gym import make_tasks, split_of
from whet.types import Grade, Task

needs_package = pytest.mark.skipif(
    find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed: make setup EXTRAS=gym"
)
needs_sandbox = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
FEW = {"train": 4, "validation": 1, "test": 1}
DIGITS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
"""Of chain_sum: `a + b` and `a - b`, 200 questions and no more."""


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A child process silences all logs, for good: made here, it would silence those of the tests that follow."""
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items made here instead of in a child process, which takes seconds to start."""

    def items(dataset: str, params: Mapping[str, Any], seed: int) -> Iterator[dict[str, Any]]:
        return gym_process.items(dataset, dict(params), seed)

    monkeypatch.setattr(gym, "_items", items)


@pytest.fixture(scope="module")
def grader() -> Iterator[GymGrader]:
    with GymGrader(timeout_s=60) as shared:
        yield shared


def prompts(tasks: Mapping[str, tuple[Task, ...]], *splits: str) -> list[str]:
    return [task.prompt for split in splits or tasks for task in tasks[split]]


# --- tasks ----------------------------------------------------------------------------------------------------------


@needs_package
@pytest.mark.usefixtures("in_process")
def test_neighbouring_seeds_make_other_questions() -> None:
    import reasoning_gym

    counts = {"train": 200, "validation": 20, "test": 20}
    first, second = (set(prompts(make_tasks("chain_sum", {}, seed=seed, counts=counts)[0])) for seed in (0, 1))
    assert len(first) == len(second) == 240
    assert len(first & second) <= 5  # about 0.5 % of its questions have two terms of one digit
    theirs = [
        {item["question"] for item in reasoning_gym.create_dataset("chain_sum", seed=s, size=100)} for s in (0, 1)
    ]
    assert len(theirs[0] & theirs[1]) >= 99, "reasoning-gym has changed how it uses seeds: is the hashing still needed?"


@needs_package
@pytest.mark.usefixtures("in_process")
def test_a_question_is_in_the_same_split_under_every_seed_and_count() -> None:
    counts = [{"train": 60, "validation": 5, "test": 5}, {"train": 9, "validation": 9, "test": 9}]
    sets = [make_tasks("chain_sum", DIGITS, seed=seed, counts=counts[seed % 2])[0] for seed in range(4)]
    train, validation, test = ({p for tasks in sets for p in prompts(tasks, split)} for split in FEW)
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert {split_of(prompt) for prompt in test} == {"test"}
    assert split_of("1 +\n2 =") == split_of(" 1 + 2  =")


@needs_package
@pytest.mark.usefixtures("in_process")
def test_repeats_are_dropped_and_ids_differ() -> None:
    counts = {"train": 120, "validation": 10, "test": 10}
    tasks, sentence = make_tasks("chain_sum", DIGITS, seed=0, counts=counts)
    assert {split: len(members) for split, members in tasks.items()} == counts
    assert len(set(prompts(tasks))) == 140
    assert len({task.id for members in tasks.values() for task in members}) == 140
    assert sentence.startswith("chain_sum questions of reasoning-gym, ")
    assert sentence.endswith(" repeats dropped")
    assert make_tasks("chain_sum", DIGITS, seed=0, counts=counts) == (tasks, sentence)


@needs_package
@pytest.mark.usefixtures("in_process")
def test_a_generator_that_runs_dry_says_how_much_there_was() -> None:
    with pytest.raises(DataError, match=r"only 200 different questions .* for train \(500 asked for\).*lower data.num"):
        make_tasks("chain_sum", DIGITS, seed=0, counts={"train": 500, "validation": 1, "test": 1})


@needs_package
@pytest.mark.parametrize(
    ("dataset", "params", "sentence"),
    [
        ("chain_sums", {}, r"no dataset 'chain_sums'; choose for data\.dataset of: chain_sum"),
        ("chain_sum", {"min_term": 2}, "no setting 'min_term'; data.params may hold: min_terms, max_terms"),
        ("chain_sum", {"min_terms": -1}, "does not take data.params = .*: min_terms must be positive"),
        ("chain_sum", {"seed": 3}, r"data\.params\.seed is not for you to set: use data\.seed"),
        ("composite", {}, "Must specify at least one dataset"),
        ("game_of_life_halting", {}, "takes 'no such answer' for right"),
    ],
)
def test_wrong_settings(dataset: str, params: dict[str, Any], sentence: str) -> None:
    with pytest.raises(gym_process.Problem, match=sentence):
        next(gym_process.items(dataset, params, 0))


@needs_package
def test_a_problem_in_the_process_is_a_data_error() -> None:
    with pytest.raises(DataError, match="no dataset 'chain_sums'"):
        load_tasks(GymData(dataset="chain_sums"))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"make setup EXTRAS=gym"):
        load_tasks(GymData())


def test_items_that_cannot_be_made_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def items(*_: object) -> Iterator[dict[str, Any]]:
        for index in range(10**6):
            item = {"settings": {}, "index": index, "question": f"{index}?", "answer": "1"}
            yield item if index % 2 and index < 100 else {"error": "no such luck"}

    monkeypatch.setattr(gym, "_items", items)
    monkeypatch.setattr(gym, "find_spec", lambda name: True)
    tasks, sentence = make_tasks("luck", {}, seed=0, counts=FEW)
    assert {task.info["index"] % 2 for members in tasks.values() for task in members} == {1}
    assert sentence == "luck questions of reasoning-gym"
    with pytest.raises(DataError, match=r"only 50 different .* \(it also failed, with: no such luck\)"):
        make_tasks("luck", {}, seed=0, counts={"train": 51, "validation": 1, "test": 1})


def test_settings_from_the_command_line() -> None:
    class Run(Config):
        data: GymData = GymData()

    data = load(
        Run, overrides=["data.dataset=countdown", "data.params.min_numbers=3", "data.params.max_numbers=3"]
    ).data
    assert (data.dataset, data.params) == ("countdown", {"min_numbers": 3, "max_numbers": 3})
    assert GymData().params == {}


# --- what the answer is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "reference", "answer"),
    [
        ("So it is 4.\nThe answer is 4.", "5", "4"),
        ("The answer is 3? No, the answer is: 4", "5", "4"),
        ("**The answer is 4.**", "5", "4"),
        ("The answer is **4**.", "5", "4"),
        ("The answer is\n1 2\n3 4\n", "1 2\n3 4", "1 2\n3 4"),
        ("The answer is Ann is a knave.", "Bob is a knave.", "Ann is a knave."),
        ("<answer>4</answer>", "5", "4"),
        ("The answer is 3\n<answer> 4. </answer> I hope", "5", "4"),
        ("<answer>3</answer> I mean <answer>4</answer>", "5", "4"),
        ("<answer>3</answer> Hm. The answer is 4", "5", "4"),
        ("The answer is <answer>4</answer>.", "5", "4"),
        ("<answer>The answer is 4.</answer>", "5", "4"),
        ("The answer is", "5", ""),
        ("It is 4", "5", None),
        ("<answer>4", "5", None),
        ("", "5", None),
    ],
)
def test_final_text(reply: str, reference: str, answer: str | None) -> None:
    assert final_text(reply, reference) == answer


# --- scores ---------------------------------------------------------------------------------------------------------


def grade(grader: GymGrader, task: Task, *answers: str) -> list[Grade]:
    return grader.grade([(f"Let me see.\nThe answer is {answer}", task) for answer in answers])


def one(dataset: str) -> Task:
    return make_tasks(dataset, {}, seed=0, counts={"train": 1, "validation": 0, "test": 0})[0]["train"][0]


@needs_package
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    "dataset",
    # arithmetic, grids of several lines, words, logic with a final period, global random numbers, one answer of several
    [
        "gcd",
        "rotate_matrix",
        "letter_counting",
        "knights_knaves",
        "list_functions",
        pytest.param("n_queens", marks=needs_sandbox),
    ],
)
def test_the_reference_is_right_and_others_are_not(grader: GymGrader, dataset: str) -> None:
    tasks = [task for members in make_tasks(dataset, {}, seed=3, counts=FEW)[0].values() for task in members]
    for task in tasks:
        assert task.answer
        assert [g.score for g in grade(grader, task, task.answer, f"{task.answer}.", f" {task.answer}\n")] == [1.0] * 3
        (empty, silent, *wrong) = grade(grader, task, "", "\n", "no such answer", "it is beyond me", "-77")
        assert (empty.score, silent.score) == (0.0, 0.0)
        assert all(g.score is not None and g.score < 1 for g in wrong), wrong


@needs_package
def test_other_processes_make_the_same_items(grader: GymGrader) -> None:
    """ransom_note's items depend on Python's hash seed, which differs from process to process unless it is set."""
    data = GymData(dataset="ransom_note", num_train=8, num_validation=1, num_test=1)
    tasks = load_tasks(data).tasks
    every = [task for members in tasks.values() for task in members]
    assert [g.score for g in grader.grade([(f"<answer>{task.answer}</answer>", task) for task in every])] == [1.0] * 10


@needs_package
@pytest.mark.usefixtures("in_process")
def test_lists_of_guesses(grader: GymGrader) -> None:
    task = one("chain_sum")
    assert task.answer
    guesses = " ".join([task.answer, "1", "2", "3"])
    scores = [g.score for g in grade(grader, task, guesses, f"{task.answer} or 5", f"{task.answer}\nThe answer is 5")]
    assert all(score is not None and score < 1 for score in scores), scores
    (long,) = grade(grader, task, task.answer + " 1" * 2000)
    assert (long.score, long.reason) == (0.0, f"the answer has {len(task.answer) + 4000} characters")


@needs_package
@pytest.mark.usefixtures("in_process")
def test_an_item_without_a_single_right_answer_can_be_graded(grader: GymGrader) -> None:
    task = one("propositional_logic")
    assert task.answer == ""
    (wrong,) = grade(grader, task, "banana")
    assert wrong.score is not None
    assert 0 < wrong.score < 1  # partial credit stays as the generator gives it, even where nobody knows what for


@needs_package
@pytest.mark.usefixtures("in_process")
def test_an_answer_that_breaks_a_sound_scorer_is_wrong(grader: GymGrader) -> None:
    odd, right = grade(grader, task := one("prime_factorization"), "banana", str(task.answer))
    assert (odd.score, odd.exhausted, right.score) == (0.0, False, 1.0)
    assert odd.reason.startswith("the scorer takes other answers, but on this one it broke: ValueError")


@needs_package
@pytest.mark.usefixtures("in_process")
def test_an_item_that_came_out_otherwise_gives_no_score(grader: GymGrader) -> None:
    task = one("chain_sum")
    moved = Task(id="x", prompt=task.prompt, answer=task.answer, info={**task.info, "index": task.info["index"] + 1})
    odd = Task(id="y", prompt="7 + 5", answer="2", info={"kind": "chains"})
    grades = grader.grade([(f"The answer is {t.answer}", t) for t in (moved, odd, task)])
    assert [g.score for g in grades] == [None, None, 1.0]
    assert "another item" in grades[0].reason
    assert "none of reasoning-gym's" in grades[1].reason


class Scorer:
    """Gives what it was told to, and breaks where that is an exception; right for the answer `1`."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def score_answer(self, answer: str, entry: dict[str, Any]) -> Any:
        if answer == "1":
            return 1.0
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


NO_SCORES = [
    (1.5, "gave 1.5, which is not in [0, 1]"),
    (-1, "gave -1, which is not in [0, 1]"),
    (float("nan"), "gave no number"),
    (None, "broke: TypeError"),
    ("right", "broke: ValueError"),
    (KeyError("metadata"), "broke: KeyError: 'metadata'"),
    (RecursionError(), "broke: RecursionError"),
]


@pytest.mark.parametrize(("given", "reason"), NO_SCORES)
def test_what_is_no_score(given: Any, reason: str) -> None:
    outcome = gym_process.answer((Scorer(given), {}), {"reply": "2"})
    assert outcome["score"] == 0.0
    assert outcome["reason"].endswith(reason) or reason in outcome["reason"]
    assert gym_process.answer((Scorer(given), {}), {"reply": "1"}) == {"score": 1.0, "reason": ""}


@pytest.mark.parametrize(("given", "reason"), NO_SCORES)
def test_a_scorer_that_does_not_work_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch, given: Any, reason: str) -> None:
    monkeypatch.setattr(gym_process, "generator", lambda *_: Scorer(given))
    monkeypatch.setattr(gym_process, "entry", lambda *_: {"question": "?", "answer": "2"})
    common = {"dataset": "d", "settings": {}, "index": 0, "question": "?", "answer": "2"}
    with pytest.raises(gym_process.Problem, match="the scorer of d does not work, not even on '2': it ") as caught:
        gym_process.prepare(common)
    assert reason in str(caught.value)


def test_memory_that_a_reply_uses_up_is_not_passed_over() -> None:
    with pytest.raises(MemoryError):
        gym_process.answer((Scorer(MemoryError()), {}), {"reply": "2"})


@needs_package
@needs_sandbox
@pytest.mark.usefixtures("in_process")
def test_an_endless_answer_is_wrong_and_costs_one_limit() -> None:
    task = one("countdown")  # its scorer hands the answer to SymPy
    with GymGrader(timeout_s=4) as grader:
        assert grade(grader, task, str(task.answer))[0].score == 1.0
        start = time.monotonic()
        *late, right = grade(grader, task, "9**9**9**9", "8**9**9**9", "7**9**9**9", str(task.answer))
        assert time.monotonic() - start < 3 * 4
    assert [(g.score, g.reason, g.exhausted) for g in late] == [(0.0, "timed out after 4 s", True)] * 3
    assert (right.score, grader.num_timeouts) == (1.0, 0)


@needs_package
@needs_sandbox
@pytest.mark.usefixtures("in_process")
def test_memory_and_death_are_the_replys_doing_too(grader: GymGrader) -> None:
    task = one("puzzle24")
    (big,) = grade(grader, task, "int('9' * 4000).__pow__(10**7)")
    (gone,) = grade(grader, task, "__import__('os')._exit(3)")  # SymPy's parser evaluates
    assert (gone.score, gone.exhausted, gone.reason) == (0.0, True, "ended without an answer (exit code 3)")
    assert big.score is not None
    assert big.score < 1


@needs_package
@needs_sandbox
@pytest.mark.usefixtures("in_process")
def test_code_in_an_answer_does_nothing(grader: GymGrader, tmp_path: Path) -> None:
    """The two attacks that were seen: one replaced the scorer, one turned off what watched it and wrote a file."""
    target = tmp_path / "written"
    tmp_path.chmod(0o777)
    replace = "import gc\nfor c in gc.get_objects():\n if isinstance(c, type) and hasattr(c, 'score_answer'):\n"
    replace += "  c.score_answer = lambda *a: 1.0"
    codes = [
        f"exec({replace!r})",
        f"open('{target}', 'w')",
        f"__import__('os').system('touch {target}')",
        f"setattr(__import__('sys').modules['program'], 'score', lambda *a: (1.0, '')) or open('{target}', 'w')",
    ]
    for dataset in ("spiral_matrix", "binary_matrix", "n_queens", "string_insertion", "countdown", "puzzle24"):
        task = one(dataset)
        for code in codes:
            attack, wrong, right = grade(grader, task, code, "5", str(task.answer))
            assert attack.score is not None
            assert wrong.score is not None
            assert wrong.score < 0.1, (dataset, code)
            assert right.score is not None
            assert right.score >= 0.5 or not task.answer
    assert not target.exists()


@needs_package
@needs_sandbox
def test_lists_are_read_and_code_is_not() -> None:
    gym_process.warm()
    task = one("spiral_matrix")
    made, item = gym_process.generator("spiral_matrix", json.dumps(task.info["settings"], sort_keys=True)), None
    item = gym_process.entry("spiral_matrix", json.dumps(task.info["settings"], sort_keys=True), task.info["index"])
    assert made.score_answer(str([int(n) for n in item["answer"].split()]), item) == 0.1
    assert made.score_answer(f"'{item['answer']}'.split().copy()", item) == 0.0


# What evaluates in reasoning-gym 0.1.25, and what of it answers can reach. A new version has to be looked at anew.
EVALUATE = ("eval", "exec", "parse_expr", "sympify", "literal_eval", "compile", "__import__")
OF_ITEMS = {
    *("algorithmic.number_sorting", "arithmetic.basic_arithmetic", "arithmetic.bitwise_arithmetic", "code.bf"),
    *("arithmetic.gsm_symbolic.generators_00_49", "arithmetic.gsm_symbolic.generators_50_99", "code.codeio"),
    *("code.contrib.bfit.BF-it", "code.contrib.bfit.Compiler.Compiler"),
    "logic.propositional_logic",  # a parse_expr of its own, which does not evaluate
}


@needs_package
def test_every_scorer_that_evaluates_is_known() -> None:
    import reasoning_gym

    root = Path(reasoning_gym.__file__).parent
    found = {
        ".".join(file.relative_to(root).with_suffix("").parts)
        for file in root.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        if (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in EVALUATE
        if ast.unparse(node.func) != "re.compile"
    }
    assert {module.rpartition(".")[2] for module in found - OF_ITEMS} == gym.EVALUATING - {"composite"}
    assert set(gym_process.LITERAL) == {module for module in found - OF_ITEMS if not _uses_sympy(root, module)}


def _uses_sympy(root: Path, module: str) -> bool:
    return "sympy" in root.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")


@needs_package
def test_what_evaluates_is_refused_without_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym, "why_not", lambda: "a sandbox needs bubblewrap, which is not installed: apt install it")
    monkeypatch.setattr(grading_gym, "why_not", lambda: "not here")
    with pytest.raises(DataError, match=r"the scorer of n_queens evaluates what the model writes.*; .*apt install it"):
        load_tasks(GymData(dataset="n_queens"))
    tasks = load_tasks(GymData(dataset="gcd", num_train=1, num_validation=1, num_test=1)).tasks["train"]
    unsafe = replace(tasks[0], info={**tasks[0].info, "dataset": "countdown"})
    with GymGrader() as grader:
        right, refused = grader.grade([(f"The answer is {task.answer}", task) for task in (tasks[0], unsafe)])
    assert right.score == 1.0, "what does not evaluate goes on without"
    assert refused.score is None
    assert "evaluates what the model writes" in refused.reason


@needs_package
def test_load_grader() -> None:
    grader = load_grader(GymData(timeout_s=3))
    assert isinstance(grader, GymGrader)
    assert grader.grade([("The answer is 2", Task(id="a", prompt="1 + 1", answer="2"))])[0].score is None
    grader.close()
