"""`whet eval MODEL --benchmark NAME`: models and runs by ours and by a user's file."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

import whet
from support.commands import whet as command
from whet.api.benchmarks import measure, settings_of
from whet.cli import app
from whet.config import ConfigError
from whet.config.parts import ChainData
from whet.errors import RunError
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


def test_a_grading_without_end_is_stopped_counted_and_left_out(tmp_path, chains):
    """It catches every exception, too; the replies before and after it are graded."""
    hangs = (
        "        while task.id == '1':\n            try:\n                sum(range(1000))\n"
        "            except Exception:\n                pass\n        last ="
    )
    text = DIGIT.replace("        last =", hangs).replace('"digit"', '"digit:endless"')
    file, data = digit_file(tmp_path, chains, text)
    settings = [f"file={data}", "prompts=chains", f"plugins=[{file}]", "limit=3", "timeout_s=0.5"]
    shown = " ".join(command("eval", "tiny", "--benchmark", "digit:endless", *settings).stdout.split())
    assert "n 3 grader_errors 1 " in shown
    assert f"1 without a score: the benchmark 'digit:endless' of {file}: grade took longer than 0.5 s; mend it" in shown


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


@pytest.mark.parametrize(
    ("breaks", "error", "says"),
    [
        (
            "raise whet.WhetError('mine')",
            BenchmarkError,
            "the benchmark 'digit:broken' of .*: mine; the replies are kept",
        ),
        ("raise KeyboardInterrupt", KeyboardInterrupt, "the replies are kept in"),
    ],
)
def test_replies_are_kept_whatever_ends_the_metrics(tmp_path, critic_run, breaks, error, says):
    text = DIGIT.replace("return {", f"{breaks}\n        return {{").replace('"digit"', '"digit:broken"')
    [trace] = kept_traces(tmp_path, critic_run, f"import whet\n{text}", error, says)
    assert trace["score"] == 0


def test_replies_are_kept_where_the_user_stops_a_grading_that_hangs(tmp_path, critic_run):
    text = DIGIT.replace('"digit"', '"digit:broken"').replace(
        "        last =", "        raise KeyboardInterrupt\n        last ="
    )
    [trace] = kept_traces(tmp_path, critic_run, text, KeyboardInterrupt, "the replies are kept in")
    assert trace["reply"]
    assert (trace["score"], trace["reason"]) == (None, "interrupted before it was graded")


def kept_traces(folder: Path, critic_run: Path, text: str, error: type[BaseException], says: str) -> list[dict]:
    run = Path(shutil.copytree(critic_run, folder / "run", ignore=shutil.ignore_patterns("eval")))
    file, data = digit_file(folder, [], text)
    data.write_text('{"question": "1 + 2", "answer": "3"}\n')
    with pytest.raises(error, match=says):
        whet.evaluate(str(run), benchmark="digit:broken", file=str(data), plugins=[str(file)])
    [traces] = (run / "eval").glob("benchmark-digit_broken-*.traces.jsonl")
    [record] = (run / "eval").glob("benchmark-digit_broken-*[!s].json")
    assert json.loads(record.read_text())["metrics"] is None
    return [json.loads(line) for line in traces.read_text().splitlines()]


def test_a_run_that_can_keep_nothing_is_asked_nothing(tmp_path, critic_run):
    run = Path(shutil.copytree(critic_run, tmp_path / "run", ignore=shutil.ignore_patterns("eval")))
    (run / "eval").write_text("in the way")
    file, data = digit_file(tmp_path, [], DIGIT)
    data.write_text('{"question": "1 + 2", "answer": "3"}\n')
    with pytest.raises(RunError, match="eval"):
        whet.evaluate(str(run), benchmark="digit", file=str(data), plugins=[str(file)])


def test_many_reasons_are_a_few_lines(tmp_path):
    text = DIGIT.partition("    def metrics")[0].replace('"digit"', '"digit:own"')
    text = text.replace("        last =", "        raise ValueError(f'\\x1b[31m{task.id}')\n        last =")
    file, data = digit_file(tmp_path, [], text)
    data.write_text('{"question": "1 + 2", "answer": "3"}\n' * 14)
    settings = [f"plugins=[{file}]", f"file={data}", "prompts=chains", "max_new_tokens=1"]
    done = CliRunner().invoke(app, ["eval", "tiny", "--benchmark", "digit:own", *settings])
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    assert done.output.count("1 without a score: the benchmark 'digit:own' of") == 10
    assert "4 more without a score, for 4 other reasons" in done.output


def test_what_cannot_be_measured_is_a_sentence(tmp_path, labelled, critic_run, chains):
    file, data = digit_file(tmp_path, chains)
    own = {"plugins": [str(file)], "benchmark": "digit"}
    for place, told, kind, says in (
        ("tiny", own | {"benchmark": "digitt"}, whet.WhetError, "no benchmark 'digitt'; did you mean 'digit'"),
        ("tiny", {"benchmark": "first_error"}, ConfigError, "reads its tasks from a file: give file=FILE"),
        ("tiny", own | {"file": str(data)}, ConfigError, "does not say how it is asked: give prompts=engl"),
        ("tiny", own | {"file": str(data), "policy": "x"}, ConfigError, "is no run folder, so it has no policy 'x'"),
        ("tiny", own | {"fle": str(data)}, ConfigError,
         r"the benchmark 'digit' does not read fle: it reads file, limit, .*; did you mean 'file'\?"),
        ("tiny", {"benchmark": "first_error", "file": str(data), "prompts": "chains"}, DataError,
         "digits.jsonl: row 1 needs problem"),
        (critic_run, {"benchmark": "first_error", "file": str(labelled), "policy": "actor"}, ConfigError,
         "no policy 'actor' that can critique; choose of: critic"),
        ("tiny", {"benchmark": "x", "plugins": [str(tmp_path / "gone.py")]}, PluginError, "is not there"),
    ):  # fmt: skip
        with pytest.raises(kind, match=says) as error:
            whet.evaluate(str(place), **told)
        assert "\n" not in str(error.value)


READS = "it reads file, limit, policy, prompts, max_new_tokens, timeout_s, device, dtype; leave"


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("first_error", {"samples": 3}, f"does not read samples: {READS} samples out"),
        ("first_error", {"split": "train", "temperature": 1.0, "names": "x"},
         f"does not read names, split, temperature: {READS} them out"),
        ("first_error", {"group_size": 8}, f"does not read group_size: {READS} group_size out"),
        ("processbench", {"prompts": "chains"},
         "does not read prompts: it reads file, limit, policy, max_new_tokens, timeout_s, device, dtype; "
         "leave prompts out"),
        ("digit", {"group_size": 8, "refinements": 2}, f"does not read refinements, group_size: {READS} them out"),
    ],
)  # fmt: skip
def test_what_a_benchmark_does_not_read_is_refused(name, given, says, tmp_path, labelled):
    """Of ours and of a user's, before a model is loaded."""
    more = {"plugins": [str(digit_file(tmp_path, [])[0])]} if name == "digit" else {}
    with pytest.raises(ConfigError) as error:
        whet.evaluate("no model", benchmark=name, file=str(labelled), **more, **given)
    assert str(error.value) == f"the benchmark '{name}' {says}"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--samples", "1"], "--samples"),
        (["--model", "x", "--level-samples=8"], "--model, --level-samples"),
        (["--text-votes", "--critic=oracle", "n=3"], "--critic, --text-votes, n"),
    ],
)
def test_options_that_no_benchmark_reads_are_refused(options, names, labelled, tmp_path):
    file, data = digit_file(tmp_path, [])
    for benchmark in ("first_error", "digit"):
        command_line = ["--benchmark", benchmark, f"plugins=[{file}]", f"file={data}", *options]
        done = CliRunner().invoke(app, ["eval", "no model", *command_line])
        assert done.exit_code == 2
        shown = " ".join(done.output.split())
        assert f"the benchmark '{benchmark}' does not read {names}: it reads file, limit," in shown


def test_a_settings_file_is_held_to_the_same(tmp_path, labelled):
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"file: {labelled}\nprompts: null\nsampels: 3\n")
    with pytest.raises(ConfigError, match="the benchmark 'processbench' does not read sampels: it reads file, limit"):
        whet.evaluate("no model", benchmark="processbench", config=settings)


READER = DIGIT.replace("tasks(self, rows)", "tasks(self)").replace('"digit"', '"digit:read"')
READER = READER.replace("for n, row in enumerate(rows)]", "for n, row in enumerate(map(json.loads, lines))]")
READER = READER.replace("        return [Task", '        lines = read_text("DATA").splitlines()\n        return [Task')
READER = "import json\n\nimport words\nfrom whet.kit import read_text\n" + READER


def test_files_are_recorded_by_the_bytes_that_were_read(tmp_path, chains):
    """A grader that changes every file after they were read changes no digest."""
    file, data = digit_file(tmp_path, chains[:1])
    file.write_text(
        READER.replace("DATA", str(data)).replace("        last =", "        words.spoil()\n        last =")
    )
    helper, prompts = tmp_path / "words.py", tmp_path / "mine.yaml"
    prompts.write_text('extends: chains\nsolve: "{question}"\n')
    files = [file, helper, data, prompts]
    helper.write_text(f"def spoil():\n    for file in {[*map(str, files)]}:\n        open(file, 'a').write('#')\n")
    before = {str(path): sha256(path.read_bytes()).hexdigest() for path in files}
    settings = settings_of("digit:read", overrides=[f"plugins=[{file}]", f"prompts={prompts}"])
    assert dict(measure("tiny", settings).digests) == before
    assert data.read_bytes().endswith(b"#")


def test_a_runs_result_has_the_digests(tmp_path, labelled, critic_run):
    """Of Parquet too, whose reader opens the file by itself."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    table = tmp_path / "labelled.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(json.loads(labelled.read_text())), table)
    measurement = measure(critic_run, settings_of("first_error", overrides=[f"file={table}", "limit=2"]))
    assert measurement.digests == {str(table): sha256(table.read_bytes()).hexdigest()}
    assert measurement.kept is not None
    assert json.loads(measurement.kept.read_text())["digests"] == measurement.digests


def test_one_that_makes_its_own_tasks_takes_no_file(tmp_path):
    text = DIGIT.replace("tasks(self, rows)", "tasks(self)").replace('"digit"', '"digit:own"')
    text = text.replace(
        "for n, row in enumerate(rows)]", 'for n, row in enumerate([{"question": "1 + 2", "answer": "3"}])]'
    )
    file, data = digit_file(tmp_path, [], text)
    told = {"benchmark": "digit:own", "plugins": [str(file)], "prompts": "chains"}
    assert whet.evaluate("tiny", **told)["policy"]["n"] == 1
    with pytest.raises(ConfigError, match=r"'digit:own' does not read file: it reads limit, .*; leave file out"):
        whet.evaluate("tiny", file=str(data), **told)
