"""Errors provoked over all commands: each says what was wrong, where, and what to do.

A row is a command line, the words that say what was wrong and where, and those that say what to do. `{run}` is a
finished run, other names in braces are files and folders made by `places`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from whet.cli import app

NUL, LONG, HALF = "\0", "x" * 5000, "\udc80"
SIZES = (
    "num_threads=1 data.num_train=40 data.num_validation=4 data.num_test=4 evaluation.num_samples=0 num_steps=2 "
    "prompts_per_step=4 group_size=4 validate_every=1 sampling.max_new_tokens=16"
)
NO_RUN = "give the folder of one, such as runs/NAME"
METHODS = "choose of: critique_rl"
ENVS = "choose of: textcraft"
NOT_JSON = ("oops.json, line 1: not JSON", "write one whole JSON object a line")
FILE_DATA = "train grpo --dry-run prompts=english data.kind=file data.path="

ERRORS: dict[str, list[tuple[str, str, str]]] = {
    "train": [
        ("train", "Missing argument 'METHOD'", "whet train --help"),
        ("train nosuch", "no method 'nosuch'", METHODS),
        ("train grop", "no method 'grop'", "did you mean 'grpo'"),
        ("train ''", "no method ''", METHODS),
        ("train grpo num_steps=abc", "num_steps", "must be a whole number >= 1"),
        ("train grpo num_steps=-3", "got -3", "must be a whole number >= 1"),
        ("train grpo num_steps=1e999", "got .inf", "should be a finite number"),
        ("train grpo numsteps=5", "unknown key numsteps", "did you mean num_steps?"),
        ("train grpo learning.lr=1", "unknown key learning.lr", "did you mean learning.learning_rate?"),
        ("train grpo learning=5", "learning", "must be a mapping"),
        ("train grpo loss.kind=nosuch", "no policy loss 'nosuch'", "choose of: clip"),
        ("train grpo advantage=nosuch --dry-run", "no advantage 'nosuch'", "choose of: grpo"),
        ("train grpo num_steps=", "'num_steps=' gives no value", "write num_steps=null for none"),
        ("train grpo =5", "cannot read the override '=5'", "write key=value"),
        ("train grpo 'num_steps=[1'", "num_steps: '[1' is not valid YAML", "close its brackets"),
        ("train grpo --steps 5", "no option --steps", "written without dashes: steps=5"),
        ("train grpo {gone}.yaml", "there is no config file", "check the path"),
        ("train grpo {folder}", "is a folder, a pipe or a device", "give a YAML text file"),
        ("train grpo {oops.yaml}", "oops.yaml is not valid YAML at line 2", "mend that line"),
        ("train grpo {list.yaml}", "holds a list, not a mapping", "write lines of `key: value`"),
        ("train grpo {bytes}", "is not UTF-8 (byte 0)", "give a YAML text file"),
        ("train grpo {loop}", "loop cannot be read", "give another file"),
        ("train grpo {unreadable}", "/proc/self/mem cannot be read", "give another file"),
        ("train grpo {long}.yaml", "cannot be read: File name too long", "give another file"),
        ("train grpo {folder}/a{nul}.yaml", "can be no path", "give a YAML text file"),
        ("train grpo {oops.yaml} {list.yaml}", "give one settings file at most", "single settings are key.sub=value"),
        ("train grpo policy.path={gone} --dry-run", "no folder", "give one written by save_pretrained"),
        ("train grpo policy.path={empty} --dry-run", "empty' is a file", "give the folder that save_pretrained wrote"),
        ("train grpo policy.path={folder} --dry-run", "holds no tokenizer", "give a folder with tokenizer.json"),
        ("train grpo policy.path=nosuch/model --dry-run", "no folder 'nosuch/model'", "check the path, or download"),
        ("train grpo policy.path={nul} --dry-run", "no folder '\\x00'", "give one written by save_pretrained"),
        ("train grpo policy.device=toaster --dry-run", "no device 'toaster'", "use 'auto', 'cpu'"),
        ("train grpo data.kind=file --dry-run", "kind=file has no questions", "give data.path"),
        (FILE_DATA + "{gone}.jsonl", "gone.jsonl: there is no such file", "give data.path the path of a .jsonl"),
        (FILE_DATA + "{folder}/数据.jsonl", "数据.jsonl: there is no such file", "give data.path the path of a .jsonl"),
        (FILE_DATA + "{folder}", "is a folder", "give data.path a .jsonl"),
        (FILE_DATA + "{oops.json}", *NOT_JSON),
        ("train grpo prompts=nosuch --dry-run", "no prompts 'nosuch'", "choose of: chains"),
        ("train grpo 'rewards={nosuch: 1}' --dry-run", "no reward term 'nosuch'", "`--plugins FILE.py` adds"),
        ("train grpo --plugins {gone}.py --dry-run", "gone.py is not there", "give the path of a Python file"),
        ("train grpo --plugins {folder} --dry-run", "is no file", "give the path of a Python file"),
        ("train grpo --plugins {raises.py} --dry-run", "raises.py, line 1, cannot be imported", "mend it there"),
        ("train grpo --plugins {syntax.py} --dry-run", "line 1, cannot be imported: SyntaxError", "mend it there"),
        ("train grpo --plugins {plain.py} --dry-run", "registers nothing", "decorate what is yours"),
        ("train grpo group_size=1 --dry-run", "compares the replies of a group", "group_size has to be 2 at least"),
        ("train grpo prompts_per_step=100000 --dry-run", "is more than the 20000 training problems", "lower it"),
        ("train grpo data.num_train=999999999 --dry-run", "not 999999999", "lower data.num_train"),
        ("train grpo data.min_steps=9 data.max_steps=3 --dry-run", "data.min_steps = 9 is more", "lower the one"),
        ("train grpo --out {unwritable}", "cannot write into /proc/x", "choose another --out"),
        ("train grpo --out {empty}", "is a file", "choose another --out"),
        ("train grpo --out {full}", "holds something that is no run", "choose another --out"),
        ("train grpo --out {run}", "holds a run with another config", "choose another --out"),
        ("train grpo --out {long}", "File name too long", "choose another path"),
        ("train agent_grpo data.env=nosuch --dry-run", "no environment 'nosuch'", ENVS),
        (
            "train agent_grpo rules=false --dry-run",
            "rules: false is no opening",
            "rules=none for the first observation",
        ),
        ("train agent_grpo rules=gone.txt --dry-run", "gone.txt: there is no such file", "rules (own, none or FILE)"),
        ("train agent_clone 'trajectories=[{oops.json}]' --dry-run", *NOT_JSON),
        ("train agent_dpo 'pairs=[{folder}]' --dry-run", "is a folder", "give pairs a .jsonl"),
        ("train imitation file={bytes} --dry-run", "is not UTF-8 text (byte 0)", "save it as UTF-8"),
    ],
    "resume": [
        ("resume", "Missing argument 'DIR'", "whet resume --help"),
        ("resume {gone}", "gone holds no run", NO_RUN),
        ("resume {folder}/{half}", "holds no run", NO_RUN),
        ("resume {run-broken-config}", "config.yaml is not valid YAML at line 2", "mend that line"),
        ("resume {run-other-method}", "no method 'ppo2' here", "name the plug-in that has the method"),
        ("resume {run} num_steps=1", "num_steps = 1 is less than the run's 2", "can only be made longer"),
        ("resume {run} seed=3", "not seed: 0 -> 3", "can only be given more steps"),
        ("resume {run-metrics-folder} num_steps=4", "metrics.jsonl is no plain file", "move it away"),
    ],
    "eval": [
        ("eval", "say what to measure", "a run's folder, a method, or an agent"),
        ("eval nosuch", "'nosuch' is neither a run folder nor a method", "`whet methods` lists those"),
        ("eval {run} --split nosuch", "Invalid value for '--split'", "one of 'train', 'validation', 'test'"),
        ("eval {run} --samples 0", "Invalid value for '--samples'", "should be greater than or equal to 1"),
        ("eval {run} --critic nosuch", "no policy 'nosuch'", "choose of: best, last"),
        ("eval {run} --strategy nosuch", "no strategy 'nosuch'", "choose of: single"),
        ("eval {run} --strategy majority:x=1", "--strategy majority:x=1: unknown key x", "leave it out"),
        ("eval {run} --strategy majority --budget -5", "--budget: '-5' is no number of tokens", "write some, such as"),
        ("eval {run} --benchmark nosuch", "no benchmark 'nosuch'", "choose of: processbench"),
        ("eval {run} --benchmark first_error", "reads its tasks from a file", "give file=FILE"),
        ("eval {run} --benchmark first_error file={oops.json}", *NOT_JSON),
        ("eval {run} --rounds 3", "--rounds and --oracle-verifier are of critics", "leave them out"),
        ("eval {run-no-checkpoints}", "has no checkpoint yet", "`whet resume"),
        ("eval --policy http://127.0.0.1:9/v1 --env textcraft", "serves models by name", "give --model too"),
    ],
    "report": [
        ("report {gone}", "gone is no folder", "give the folder of a run"),
        ("report {folder}", "holds no run", NO_RUN),
        ("report {run} --out x.html", "--out is of several runs", "the page of one is DIR/report.html"),
        ("report {long}", "File name too long", "choose another path"),
    ],
    "doctor": [
        ("doctor nosuch", "no method 'nosuch'", METHODS),
        ("doctor grpo num_steps=-3", "got -3", "must be a whole number >= 1"),
        ("doctor grpo --plugins {raises.py}", "raises.py, line 1, cannot be imported", "mend it there"),
    ],
    "reward": [
        ("reward test", "Missing argument 'FILE_OR_NAME'", "whet reward test --help"),
        ("reward test nosuch", "no grader and no reward 'nosuch'", "whet reward test nosuch --plugins mine.py"),
        ("reward test mine.py:last_word", "is no name", "whet reward test last_word --plugins mine.py"),
        ("reward test {rows.jsonl}", "is a file of rows", "name the grader or its file first"),
        ("reward test {gone}.py", "gone.py is not there", "give the path of a Python file"),
        ("reward test {plain.py}", "plain.py registers nothing", "decorate what is yours"),
        ("reward test math_verify --data {gone}.jsonl", "there is no such file", "give --data the path"),
        ("reward test math_verify data.columns.prompt=q", "there are none", "give them with --data FILE"),
        ("reward test math_verify --data {rows.jsonl} a=1", "'a=1' is no setting", "it takes data.columns.prompt="),
        ("reward test math_verify --samples 0", "Invalid value for '--samples'", "greater than or equal to 2"),
    ],
    "show": [
        ("show", "Missing argument 'FILE ...'", "whet show --help"),
        ("show {gone}.jsonl", "there is no such file", "give FILE the path of a .jsonl or .json file"),
        ("show {words.txt}", "line 1: not JSON", "write one whole JSON object a line"),
        ("show {rows.jsonl}", "this is no conversation that whet knows", "`whet report RUN`"),
        ("show {empty}", "is empty", "write one JSON object a line"),
    ],
    "compare": [
        ("compare {run}", "needs two runs at least", "name their folders"),
        ("compare {run} {folder}", "holds no run", NO_RUN),
        ("compare {run} {run-other-method} --out {folder}", "no page can be written", "give a file"),
        ("compare {run} {run-other-method} --out {unwritable}.html", "could not write /proc/x", "choose another file"),
    ],
    "track": [
        ("track {run}", "Missing option '--to'", "whet track --help"),
        ("track {run} --to nosuch", "no tracker 'nosuch'", "choose of tensorboard"),
        ("track {run} --to ''", "--to is empty", "name a tracker"),
        ("track {folder} --to tensorboard", "holds no run", NO_RUN),
        ("track {gone} --to tensorboard", "is no folder", "give the folder of a run"),
        ("track {run-metrics-folder} --to tensorboard", "metrics.jsonl is a folder", "move it away"),
        ("track {run-events-folder} --to tensorboard", "events.jsonl is a folder", "move it away"),
        (
            "track {run} --to tensorboard --traces -1",
            "Invalid value for '--traces'",
            "should be greater than or equal to 0",
        ),
        ("track {run} --to tensorboard --project ' '", "--project is empty", "give it a name, or leave it out"),
    ],
    "export": [
        ("export {gone} {new}", "gone holds no run", NO_RUN),
        ("export {run} {full}", "is there and not empty", "give a new folder"),
        ("export {run} {unwritable}", "could not write /proc/x", "choose another folder"),
        ("export {run} {new} --policy nosuch", "no policy 'nosuch'", "choose of: policy_best, policy"),
        ("export {run} {new} --merge", "no adapter to merge", "leave it out"),
    ],
    "chat": [
        ("chat {gone}", "gone holds no run", NO_RUN),
        ("chat {run} --policy nosuch", "no policy 'nosuch'", "choose of: policy_best, policy"),
        ("chat {run} --temperature 99", "Invalid value for '--temperature'", "should be less than or equal to 10"),
        ("chat {run-no-checkpoints}", "has no checkpoint yet", "`whet resume"),
    ],
    "serve": [
        ("serve {gone}", "gone holds neither a run (config.yaml) nor a model", "give the folder of one"),
        ("serve {run} --port {port}", "port {port}: Address already in use", "choose another --port"),
        ("serve {run} --port 99999", "Invalid value for '--port'", "should be less than or equal to 65535"),
        ("serve {run} --policy nosuch", "no policy 'nosuch'", "choose of: policy_best, policy"),
    ],
    "list": [
        ("list nosuch", "no list of 'nosuch'", "choose of: methods"),
        ("list --plugins {raises.py}", "raises.py, line 1, cannot be imported", "mend it there"),
    ],
    "config": [
        ("config grpö", "no method 'grpö'", "did you mean 'grpo'"),
        ("config grpo num_steps=abc", "got 'abc'", "must be a whole number >= 1"),
        ("config grpo --plugins {bytes}", "is no Python file", "has to end in .py"),
    ],
    "get": [
        ("get nosuch {new}", "no file 'nosuch'", "give a GGUF file, or smollm2"),
        ("get {words.txt} {new}", "is no GGUF file that can be read", "download it again, or give another"),
        ("get smollm2 {full}", "is there and not empty", "give a new folder"),
    ],
    "data": [
        ("data nosuch", "No such command 'nosuch'", "whet data --help"),
        ("data critiques num_questions=-5", "got -5", "must be a whole number >= 1"),
        ("data critiques num_questions=4 --out {full}", "holds something that is no run", "choose another --out"),
    ],
    "tiny": [
        ("tiny build nosuch", "'nosuch' is not one of", "one of 'model', 'agents'"),
        ("tiny build --steps 1 --out {unwritable}", "No such file or directory: /proc/x", "choose another path"),
        ("tiny random {empty} --out {new}", "is empty", "write one JSON object a line"),
        ("tiny random {words.txt} --out {full}", "is not empty", "choose another --out"),
        ("tiny random {unreadable} --out {new}", "cannot read /proc/self/mem", "give FILE another file"),
        ("tiny agent nosuch --out {new}", "no environment 'nosuch'", ENVS),
    ],
    "env": [
        ("env nosuch", "No such command 'nosuch'", "whet env --help"),
        ("env splits textcraft --train {gone}", "give both --train and --test", "which items they share"),
        ("env play tëxtcraft", "no environment 'tëxtcraft'", "did you mean 'textcraft'"),
        ("env play textcraft --item 99999999", "not 99999999", "has the items 0 to"),
        ("env play textcraft nosuch=5", "does not take these settings", "it takes recipes"),
        ("env play textcraft novalue", "'novalue' is no setting", "write key=value"),
        ("env play textcraft recipes={gone}", "no recipes at", "give a folder of recipe files"),
        ("env replay {words.txt} --env textcraft", "words.txt, line 1: not JSON", "write one whole JSON object a line"),
        ("env replay {rows.jsonl} --env textcraft", "line 1: conversations is missing", "write a list of messages"),
        ("env replay {rows.jsonl} --env textcraft --limit -1", "value for '--limit'", "should be greater than"),
        ("env show {rows.jsonl} --limit 0", "Invalid value for '--limit'", "should be greater than"),
        ("env show {folder}", "is a folder", "give the trajectories a .jsonl"),
        ("env show {long}", "cannot read", "give the trajectories another file"),
        ("env serve --port {port}", "port {port}: Address already in use", "choose another --port"),
        ("env serve --host 0.0.0.0 --port 0", "0.0.0.0 is reached from other machines", "set WHET_ENV_TOKEN"),
        ("env serve textcraft --set textcraft.nosuch=5", "does not take these settings", "it takes recipes"),
        ("env serve textcraft --set nosuch.key=5", "names 'nosuch', which is not served", "serve it too, or leave"),
        ("env check textcraft --items 1", "Invalid value for '--items'", "should be greater than or equal to 2"),
        ("env check textcraft --set nosuch=5", "does not take these settings", "it takes recipes"),
        ("env check http://127.0.0.1:9", "no connection with http://127.0.0.1:9", "is its server up?"),
        ("env check nonsense://x", "'nonsense://x' is no address of a server", "begin it with http://"),
        ("env export textcraft {full} --as trl", "is there and not empty", "give a new folder"),
        ("env export textcraft {unwritable} --as trl", "/proc/x", "choose another path"),
        ("env export textcraft {new} --as nosuch", "Invalid value for '--as'", "one of 'trl'"),
        ("env record textcraft", "give an output", "--out FILE for the episodes"),
        ("env record textcraft --policy expert --out {rows.jsonl}", "is there already", "--overwrite writes over it"),
        ("env record textcraft --policy expert --out {unwritable}.jsonl", "could not write /proc/x", "name a folder"),
    ],
    "new": [
        ("new env 'my env'", "'my env' can be no module's name", "use letters, digits and _"),
        ("new env näme", "'näme' can be no module's name", "use letters, digits and _"),
        ("new method grpo", "there is a method 'grpo' already", "choose another name"),
        ("new reward 2nd", "'2nd' can be no module's name", "use letters, digits and _"),
        ("new prompts english", "there are the prompts 'english' already", "choose another name"),
        ("new loss clip", "there is a loss 'clip' already", "choose another name"),
        ("new callback ok --dir {words.txt}", "File exists", "choose another path"),
        ("new env ok --dir {words.txt}", "File exists", "choose another path"),
        ("new env ok --dir {unwritable}", "No such file or directory: /proc/x", "choose another path"),
    ],
    "whet": [
        ("nosuch", "No such command 'nosuch'", "whet --help"),
        ("methods extra", "unexpected extra argument", "whet methods --help"),
    ],
}
ROWS = [row for rows in ERRORS.values() for row in rows]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """By the names in braces: runs whole and broken, files, folders, and a port that is taken."""
    base = tmp_path_factory.mktemp("errors")
    run = base / "run"
    done = CliRunner().invoke(app, ["train", "grpo", *SIZES.split(), "--out", str(run)])
    assert done.exit_code == 0, done.output
    for name in ("metrics-folder", "events-folder", "broken-config", "other-method", "no-checkpoints"):
        shutil.copytree(run, base / f"run-{name}", symlinks=True)
    for name in ("metrics", "events"):
        file = base / f"run-{name}-folder" / f"{name}.jsonl"
        file.unlink()
        file.mkdir()
    (base / "run-broken-config" / "config.yaml").write_text("a: [\n")
    settings = base / "run-other-method" / "config.yaml"
    settings.write_text(settings.read_text().replace("method: policy_gradient", "method: ppo2"))
    shutil.rmtree(base / "run-no-checkpoints" / "checkpoints")
    texts = {
        "empty": "",
        "oops.json": "{oops",
        "oops.yaml": "a: [\n",
        "list.yaml": "- a\n",
        "words.txt": "some words here\n",
        "plain.py": "x = 1\n",
        "raises.py": "1 / 0\n",
        "syntax.py": "def\n",
        "rows.jsonl": json.dumps({"question": "2 + 3?", "answer": "5"}) + "\n",
        "full/x": "x",
    }
    (base / "full").mkdir()
    (base / "folder").mkdir()
    for name, text in texts.items():
        (base / name).write_text(text)
    (base / "bytes").write_bytes(b"\xff\xfe\x00")
    os.symlink(base / "loop", base / "loop")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        yield {
            **{name: str(base / name) for name in (*texts, "bytes", "full", "folder", "loop", "run", "gone", "new")},
            **{place.name: str(place) for place in base.glob("run-*")},
            "port": str(taken.getsockname()[1]),
            "unreadable": "/proc/self/mem",  # also for root
            "unwritable": "/proc/x",
            "nul": NUL,
            "long": LONG,
            "half": HALF,
        }


def filled(text: str, places: dict[str, str]) -> str:
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", value)
    return text


@pytest.mark.parametrize(("command", "where", "what_to_do"), ROWS, ids=[row[0] for row in ROWS])
def test_an_error_says_what_where_and_what_to_do(command, where, what_to_do, places, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = [filled(part, places) for part in shlex.split(command)]
    done = CliRunner().invoke(app, arguments, prog_name="whet", env={"COLUMNS": "1000", "TERMINAL_WIDTH": "1000"})
    text = " ".join(done.stderr.replace("│", " ").split())
    assert done.exit_code in (1, 2), text
    assert isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in text
    assert filled(where, places) in text
    assert what_to_do in text
    assert len(text) < 2500, "an error is read, not searched"
    assert not list(tmp_path.iterdir()), "an error leaves nothing behind"


def test_a_hundred_errors_over_all_commands():
    commands = set(typer.main.get_command(app).commands)
    assert commands - {"methods"} <= ERRORS.keys(), "a command without a row"  # `methods` takes nothing
    assert len(ROWS) >= 150
    assert len({row[0] for row in ROWS}) == len(ROWS)
