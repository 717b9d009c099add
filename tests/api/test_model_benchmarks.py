"""`whet eval MODEL --benchmark NAME`: models and runs by ours and by a user's file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import whet
from support.commands import whet as command
from whet.config import ConfigError
from whet.config.parts import ChainData
from whet.evaluation.user_benchmarks import BENCHMARKS, BenchmarkError
from whet.plugins import PluginError
from whet.run.data import load_tasks
from whet.tasks.chains import answer_text, parse_chain
from whet.tasks.row_formats import DataError

DIGIT = '''
from whet.kit import Grade, Task, benchmark


@benchmark("digit")
class Digit:
    """The last digit of a chain of operations, exactly"""

    def tasks(self, rows):
        return [Task(id=str(n), prompt=row["question"], answer=row["answer"]) for n, row in enumerate(rows)]

    def grade(self, reply, task):
        last = reply.rpartition("\\n")[2]
        return Grade(score=float(last == f"The answer is {task.answer}"), extracted=last[-1:])

    def metrics(self, graded):
        return {"right": sum(each.grade.score for each in graded) / len(graded)}
'''
NUM = 24


@pytest.fixture(autouse=True)
def registered_as_before():
    before = dict(BENCHMARKS._entries)
    yield
    BENCHMARKS._entries.clear()
    BENCHMARKS._entries.update(before)


@pytest.fixture(scope="module")
def chains() -> list[str]:
    return [task.prompt for task in load_tasks(ChainData(num_train=1, num_validation=1, num_test=NUM)).tasks["test"]]


@pytest.fixture(scope="module")
def labelled(chains, tmp_path_factory) -> Path:
    """Right solutions, and ones whose last or first step is wrong, in turn."""
    rows = []
    for n, text in enumerate(chains):
        chain = parse_chain(text)
        place = {0: -1, 1: len(chain.values) - 1, 2: 0}[n % 3]
        values = [(value + 3 * (at == place)) % 10 for at, value in enumerate(chain.values)]
        steps = answer_text(chain, values).split("\n")
        rows.append({"id": text, "problem": text, "steps": steps, "label": place})
    file = tmp_path_factory.mktemp("data") / "labelled.json"
    file.write_text(json.dumps(rows))
    return file


@pytest.fixture(scope="module")
def critic_run(tmp_path_factory) -> Path:
    """The shipped critic, after one step."""
    out = tmp_path_factory.mktemp("runs") / "critic"
    small = {"data": {"num_train": 8, "num_validation": 2, "num_test": 2}, "num_threads": 1}
    whet.train("ctrl", out=out, progress=False, num_steps=1, prompts_per_step=2, group_size=2,
               warm_start={"actor_steps": 0, "critic_steps": 0}, **small)  # fmt: skip
    return out


def digit_file(folder: Path, chains, text: str = DIGIT) -> tuple[Path, Path]:
    file, data = folder / "digit.py", folder / "digits.jsonl"
    file.write_text(text)
    rows = [{"question": text, "answer": str(parse_chain(text).values[-1])} for text in chains]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file, data


def test_a_users_file_measures_what_a_method_measures(tmp_path, chains):
    """The shipped actor's greedy answers: the same share is right by the benchmark and by the method's own test."""
    file, data = digit_file(tmp_path, chains)
    told = {"file": str(data), "prompts": "chains", "plugins": [str(file)], "max_new_tokens": 96}
    found = whet.evaluate("tiny", benchmark="digit", **told)["policy"]
    [by_method] = whet.evaluate("grpo", data={"num_test": NUM, "num_validation": 1, "num_train": 1}).values()
    assert 0 < found["right"] == by_method["acc"] < 1
    assert (found["n"], found["grader_errors"]) == (NUM, 0)
    assert whet.evaluate("tiny", benchmark="digit", **told, limit=3)["policy"]["n"] == 3
    listed = " ".join(command("list", "benchmarks", f"--plugins={file}").stdout.split())
    assert "digit The last digit of a chain of operations, exactly digit.py" in listed
    shown = command("eval", "tiny", "--benchmark", "digit", f"file={data}", "prompts=chains", f"plugins=[{file}]")
    assert "digit, policy of tiny" in shown.stdout
    assert f"{found['right']:.4g}" in shown.stdout


def test_a_grader_that_breaks_is_counted_and_left_out(tmp_path, chains):
    breaks = DIGIT.replace(
        "        last =", "        if int(task.id) % 2:\n            raise OSError('gone')\n        last ="
    )
    file, data = digit_file(tmp_path, chains, breaks.replace('"digit"', '"digit:half"'))
    told = {"file": str(data), "prompts": "chains", "plugins": [str(file)], "limit": 4}
    assert whet.evaluate("tiny", benchmark="digit:half", **told)["policy"]["grader_errors"] == 2
    settings = [f"file={data}", "prompts=chains", f"plugins=[{file}]", "limit=4"]
    shown = " ".join(command("eval", "tiny", "--benchmark", "digit:half", *settings).stdout.split())
    assert f"2 without a score: the benchmark 'digit:half' of {file}, line 14, raised OSError: gone in grade" in shown


def test_a_critic_finds_first_errors_and_a_run_keeps_its_replies(labelled, critic_run):
    by_model = whet.evaluate("tiny", benchmark="first_error", file=str(labelled), prompts="chains")["policy"]
    assert by_model["n"] == NUM
    assert by_model["f1"] > 0.3  # the shipped critic can tell; one that always says the same has 0
    [(policy, by_run)] = whet.evaluate(str(critic_run), benchmark="first_error", file=str(labelled)).items()
    assert policy.startswith("critic")
    assert by_run.keys() == by_model.keys()
    [file] = (critic_run / "eval").glob("benchmark-first_error-*[!s].json")
    record = json.loads(file.read_text())
    assert record["metrics"] == by_run
    assert record["digests"].keys() == {str(labelled)}
    traces = [json.loads(line) for line in file.with_suffix(".traces.jsonl").read_text().splitlines()]
    assert len(traces) == NUM
    assert sum(each["score"] for each in traces) / NUM == pytest.approx(
        (by_run["err"] * NUM * 2 / 3 + by_run["cor"] * NUM / 3) / NUM
    )


def test_replies_are_kept_where_the_metrics_break(tmp_path, labelled, critic_run):
    run = Path(shutil.copytree(critic_run, tmp_path / "run", ignore=shutil.ignore_patterns("eval")))
    file, data = digit_file(tmp_path, [], DIGIT.replace("/ len(graded)", "/ 0").replace('"digit"', '"digit:broken"'))
    data.write_text('{"question": "1 + 2", "answer": "3"}\n')
    with pytest.raises(BenchmarkError, match=rf"{file}, line 17, raised ZeroDivisionError.*the replies are kept in"):
        whet.evaluate(str(run), benchmark="digit:broken", file=str(data), plugins=[str(file)])
    [traces] = (run / "eval").glob("benchmark-digit_broken-*.traces.jsonl")
    assert json.loads(traces.read_text())["messages"][0]["content"] == "Solve: 1 + 2"


def test_what_cannot_be_measured_is_a_sentence(tmp_path, labelled, critic_run, chains):
    file, data = digit_file(tmp_path, chains)
    own = {"plugins": [str(file)], "benchmark": "digit"}
    for place, told, kind, says in (
        ("tiny", own | {"benchmark": "digitt"}, whet.WhetError, "no benchmark 'digitt'; did you mean 'digit'"),
        ("tiny", {"benchmark": "first_error"}, ConfigError, "reads its tasks from a file: give file=FILE"),
        ("tiny", own | {"file": str(data)}, ConfigError, "does not say how it is asked: give prompts=engl"),
        ("tiny", own | {"file": str(data), "policy": "x"}, ConfigError, "is no run folder, so it has no policy 'x'"),
        ("tiny", own | {"fle": str(data)}, ConfigError, "unknown key fle: did you mean file"),
        ("tiny", own | {"file": str(data), "samples": 3}, ConfigError, "leave names, split and samples out"),
        ("tiny", {"benchmark": "processbench", "file": str(labelled), "prompts": "chains"}, ConfigError,
         "words its own questions, so prompts has no effect"),
        ("tiny", {"benchmark": "first_error", "file": str(data), "prompts": "chains"}, DataError,
         "digits.jsonl: row 1 needs problem"),
        (critic_run, {"benchmark": "first_error", "file": str(labelled), "policy": "actor"}, ConfigError,
         "no policy 'actor' that can critique; choose of: critic"),
        ("tiny", {"benchmark": "x", "plugins": [str(tmp_path / "gone.py")]}, PluginError, "is not there"),
    ):  # fmt: skip
        with pytest.raises(kind, match=says) as error:
            whet.evaluate(str(place), **told)
        assert "\n" not in str(error.value)
    done = command("eval", "tiny", "--benchmark", "digit", "--samples", "3", check=False)
    assert done.returncode == 2
    assert "says what is asked" in done.stdout + done.stderr


def test_one_that_makes_its_own_tasks_takes_no_file(tmp_path):
    text = DIGIT.replace("tasks(self, rows)", "tasks(self)").replace('"digit"', '"digit:own"')
    text = text.replace(
        "for n, row in enumerate(rows)]", 'for n, row in enumerate([{"question": "1 + 2", "answer": "3"}])]'
    )
    file, data = digit_file(tmp_path, [], text)
    told = {"benchmark": "digit:own", "plugins": [str(file)], "prompts": "chains"}
    assert whet.evaluate("tiny", **told)["policy"]["n"] == 1
    with pytest.raises(ConfigError, match="makes its own tasks, so file has no effect: leave it out"):
        whet.evaluate("tiny", file=str(data), **told)
