"""Run folders damaged in every way that we know of, and what comes of resuming them; `kill_resume.py` tries them all.

A case is a folder with the run and its inputs beside it (data, answers, demonstrations, model), all by relative names,
copied from one run that was killed in stage I.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from forked import begin, difference, end_state, run
from whet.digests import digest
from whet.trainer.checkpoint import MANIFEST, newest_first

SETTINGS = (
    "data.kind=file", "data.path=questions.jsonl", "data.grader=chains", "data.test_share=0.2", "prompts=english",
    "actor.path=model", "critic.path=model", "answers=cached", "answers_file=answers.jsonl",
    "warm_start.file=demonstrations.jsonl", "warm_start.actor_steps=2", "warm_start.critic_steps=2",
    "warm_start.rows_per_step=4", "checkpoint_every=1", "roles.answer.max_new_tokens=12",
    "roles.critique.max_new_tokens=12", "roles.refinement.max_new_tokens=12", "evaluation.num_validation=2",
    "evaluation.num_test=4",
    *(
        f"stage{n}.{setting}"
        for n in (1, 2)
        for setting in ("num_steps=4", "prompts_per_step=2", "validate_every=4", "learning.minibatch_rows=4")
    ),
)  # fmt: skip
INPUTS = ("questions.jsonl", "answers.jsonl", "demonstrations.jsonl", "model")
STOP_AT = "step_000009"
"""The third step of stage I."""
TRAIN = ("train", "critique_rl", *SETTINGS, "--out", "run")
RESUME = ("resume", "run")
Expected = Literal["same bits", "warned, same bits", "refused", "accepted", "shown"]


@dataclass(frozen=True)
class Damage:
    """One way to damage a case."""

    expected: Expected
    """accepted: goes on to other bits, as asked for, and says so. shown: a finished run's summary, as it is."""
    do: Callable[[Path], object] = lambda case: None
    arguments: Sequence[str] = RESUME
    prepare: Callable[[], object] = lambda: None
    """In the process that resumes."""
    finished: bool = False
    """Of a run that had ended, not of one that was killed."""


# --- the run that is damaged ------------------------------------------------------------------------------------------


def make_base(root: Path) -> None:
    """`root/base`: the inputs, `unbroken` and `killed`."""
    base = root / "base"
    if (base / "killed" / "config.yaml").exists():
        return
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    sums = [(a, b) for a in range(2, 12) for b in range(3, 9)]
    _lines(base / "questions.jsonl", [{"question": f"What is {a} + {b}?", "answer": str(a + b)} for a, b in sums])
    answers = [{"question": f"What is {a} + {b}?", "answer": f"The answer is {a + b + b % 2}."} for a, b in sums]
    _lines(base / "answers.jsonl", answers)
    more = {"critique": "Correct.", "refinement": "The answer is 4.", "correct": True}
    _lines(base / "demonstrations.jsonl", [row | more for row in answers])
    process = os.fork()  # this one must not compute with torch, see `forked.begin`
    if process == 0:
        _make_model(base / "model")
        os._exit(0)
    assert os.waitpid(process, 0)[1] == 0
    enter = partial(os.chdir, base)
    assert run([*TRAIN[:-1], "unbroken"], base / "unbroken.log", prepare=enter) == 0, base / "unbroken.log"
    killed = base / "being_killed"

    def names() -> list[str]:
        return [path.name for path in newest_first(killed)]

    while names() != [STOP_AT, Path(OLD).name]:
        shutil.rmtree(killed, ignore_errors=True)
        process = begin([*TRAIN[:-1], killed.name], base / "killed.log", enter)
        while names() != [STOP_AT, Path(OLD).name] and max(names(), default="") <= STOP_AT:  # later: missed, once more
            time.sleep(0.001)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    killed.rename(base / "killed")


def _make_model(folder: Path) -> None:
    """Random weights, and a tokenizer of bytes."""
    torch.manual_seed(0)
    special = ["<|pad|>", "<|end|>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    bytewise.add_special_tokens(special)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise, pad_token=special[0], eos_token=special[1])
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|end|>{% endfor %}assistant: "
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1, head_dim=16,
        num_attention_heads=2, num_key_value_heads=1, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
        max_position_embeddings=4096,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)


def _lines(path: Path, rows: Sequence[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


# --- one case ---------------------------------------------------------------------------------------------------------


def change_threads() -> None:
    """Another number of threads than the run had: from 1 to 2, and from more to 1 or 2."""
    torch.set_num_threads(1 + torch.get_num_threads() % 2)


def try_damage(root: Path, name: str) -> None:
    """Damage a copy, resume it, and keep what came of it in `root/damaged/<name>.json`."""
    kept, case, base = root / "damaged" / f"{name}.json", root / "damaged" / name, root / "base"
    if kept.exists():
        return
    damage = DAMAGES[name]
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    for each in INPUTS:
        (shutil.copytree if (base / each).is_dir() else shutil.copy)(base / each, case / each)
    shutil.copytree(base / ("unbroken" if damage.finished else "killed"), case / "run")
    (case / "elsewhere").mkdir()
    damage.do(case)
    outside = _contents(case / "elsewhere")

    def prepare() -> None:
        os.chdir(case)
        damage.prepare()

    log = case / "said.log"
    code = run(damage.arguments, log, prepare=prepare)
    said = " ".join(log.read_text(errors="replace").split())
    outcome = judge(code, said, damage, case / "run", base / "unbroken")
    if _contents(case / "elsewhere") != outside:
        outcome = "silent"
    shown = in_short(said, outcome).replace(str(root.resolve()), "RUNS")
    kept.write_text(json.dumps({"outcome": outcome, "expected": damage.expected, "said": shown}))
    if outcome == damage.expected:
        shutil.rmtree(case)


def judge(code: int, said: str, damage: Damage, found: Path, unbroken: Path) -> str:
    """What it came to, in one of the words of `Expected`, or `silent` or `traceback`."""
    if "Traceback" in said:
        return "traceback"
    if code:
        return "refused" if "whet: " in said else "silent"
    if damage.finished and "is finished" in said:
        return "shown"
    if "--accept-changes" in damage.arguments:
        events = (found / "events.jsonl").read_text()
        return "accepted" if "goes on though" in said and "changes_accepted" in events else "silent"
    if difference(end_state(unbroken), end_state(found)):
        return "silent"
    return "warned, same bits" if WARNING.search(said) else "same bits"


PROGRESS = r"(?= look:| note:| warm start| stage | test:|$)"
"""Where the console's warnings end."""
WARNING = re.compile(
    rf"(step_\d+ (?:is damaged|does not fit)|goes on with other versions|summary.json is damaged: it).*?{PROGRESS}"
)


def in_short(said: str, outcome: str) -> str:
    """The sentence that a user sees."""
    found = re.search(r"whet: (.*)", said) if outcome == "refused" else WARNING.search(said)
    found = re.search(rf"goes on though.*?{PROGRESS}", said) if outcome == "accepted" else found
    return found.group(found.lastindex if outcome == "refused" else 0).strip()[:300] if found else ""


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- the ways ---------------------------------------------------------------------------------------------------------


def text(name: str, change: Callable[[str], str]) -> Callable[[Path], None]:
    return data(name, lambda old: change(old.decode()).encode())


def data(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def do(case: Path) -> None:
        path = case / name
        path.write_bytes(change(path.read_bytes() if path.exists() else b""))

    return do


def delete(*names: str) -> Callable[[Path], None]:
    def do(case: Path) -> None:
        for name in names:
            (shutil.rmtree if (case / name).is_dir() else os.remove)(case / name)

    return do


def link(name: str) -> Callable[[Path], None]:
    """Moved out of the run, and a link left in its place."""

    def do(case: Path) -> None:
        place, outside = case / name, case / "elsewhere" / Path(name).name
        if place.exists():
            shutil.move(place, outside)
        else:
            outside.write_text("precious")
        place.symlink_to(outside)

    return do


def flip(old: bytes) -> bytes:
    middle = len(old) // 2
    return old[:middle] + bytes([old[middle] ^ 1]) + old[middle + 1 :]


def half(old: bytes) -> bytes:
    return old[: len(old) // 2]


def both(*steps: Callable[[Path], object]) -> Callable[[Path], None]:
    def do(case: Path) -> None:
        for step in steps:
            step(case)

    return do


def state(change: Callable[[dict], object]) -> Callable[[Path], None]:
    """Every checkpoint's `state.json`, as another whet would have written it: the manifest fits."""

    def do(case: Path) -> None:
        for folder in (case / "run" / "checkpoints").glob("step_*"):
            found = json.loads((folder / "state.json").read_text())
            change(found)
            (folder / "state.json").write_text(json.dumps(found))
            manifest = json.loads((folder / MANIFEST).read_text())
            (folder / MANIFEST).write_text(json.dumps(manifest | {"state.json": digest(folder / "state.json")}))

    return do


def settings(change: Callable[[dict], object]) -> Callable[[Path], None]:
    return state(lambda found: change(found["origin"]["settings"]))


def back_to_the_checkpoint_before(name: str) -> Callable[[Path], None]:
    def do(case: Path) -> None:
        before = sorted((case / "run" / "checkpoints").glob("step_*"))[0]
        os.truncate(case / "run" / name, json.loads((before / "state.json").read_text())["logs"][name]["bytes"])

    return do


def in_manifest(name: str) -> Callable[[Path], None]:
    return text(f"{NEW}/{MANIFEST}", lambda old: json.dumps({**json.loads(old), name: "0" * 64}))


def lock_in_another_process(case: Path) -> None:
    """Until this case's resume has ended: the holder looks for the log's last word."""
    process = os.fork()
    if process == 0:
        held = (case / "run" / ".lock").open("w")
        fcntl.flock(held, fcntl.LOCK_EX)
        (case / "locked").touch()
        while not (case / "said.log").exists() or "whet:" not in (case / "said.log").read_text():
            time.sleep(0.01)
        os._exit(0)
    while not (case / "locked").exists():
        time.sleep(0.01)


def as_nobody_in_a_read_only_folder() -> None:
    os.chmod("run", 0o555)
    os.chmod("run/traces", 0o555)
    if os.geteuid() == 0:
        os.setuid(65534)


def no_file_longer_than(length: int) -> Callable[[], None]:
    """What a full disk is, without one: writing past it fails."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (length, length))


NEW, OLD = f"run/checkpoints/{STOP_AT}", "run/checkpoints/step_000008"
WEIGHTS = "policies/critic/model.safetensors"
ACCEPT = (*RESUME, "--accept-changes")
OTHER_QUESTION = text("questions.jsonl", lambda old: old.replace("5 + 4", "5 + 5", 1))

DAMAGES: dict[str, Damage] = {
    "none": Damage("same bits"),
    "none_train_again": Damage("same bits", arguments=TRAIN),
    # inputs
    "data_altered": Damage("refused", OTHER_QUESTION),
    "data_altered_train_again": Damage("refused", OTHER_QUESTION, TRAIN),
    "data_altered_accepted": Damage("accepted", OTHER_QUESTION, ACCEPT),
    "data_longer": Damage("refused", text("questions.jsonl", lambda old: old + '{"question": "1?", "answer": "1"}\n')),
    "data_gone": Damage("refused", delete("questions.jsonl")),
    "answers_altered": Damage("refused", text("answers.jsonl", lambda old: old.replace("is 9", "is 8", 1))),
    "answers_gone": Damage("refused", delete("answers.jsonl")),
    "demonstrations_altered": Damage("refused", text("demonstrations.jsonl", lambda old: old.replace("C", "D", 1))),
    "model_weights_altered": Damage("refused", data("model/model.safetensors", flip)),
    "model_config_altered": Damage("refused", text("model/config.json", lambda old: old + "\n")),
    "model_tokenizer_altered": Damage("refused", text("model/tokenizer.json", lambda old: old + "\n")),
    "model_file_added": Damage("refused", text("model/added_tokens.json", lambda old: "{}")),
    "model_file_gone": Damage("refused", delete("model/generation_config.json")),
    "model_readme_added": Damage("same bits", text("model/README.md", lambda old: "A model.")),
    "model_gone": Damage("refused", delete("model")),
    "other_threads": Damage("refused", prepare=change_threads),
    "other_threads_accepted": Damage("accepted", arguments=ACCEPT, prepare=change_threads),
    "other_versions": Damage("warned, same bits", state(lambda s: s["origin"]["versions"].update(torch="2.0"))),
    # settings
    "config_edited": Damage("refused", text("run/config.yaml", lambda old: old.replace("coef: 0.01", "coef: 0.02", 1))),
    "config_key_unknown": Damage("refused", text("run/config.yaml", lambda old: old + "colour: red\n")),
    "config_key_left_out": Damage(
        "same bits", text("run/config.yaml", lambda old: old.replace("num_threads: null\n", ""))
    ),
    "config_empty": Damage("refused", data("run/config.yaml", lambda old: b"")),
    "config_torn": Damage("refused", data("run/config.yaml", half)),
    "config_no_text": Damage("refused", data("run/config.yaml", lambda old: b"\xff\xfe\x00" + old)),
    "config_no_text_train_again": Damage("refused", data("run/config.yaml", lambda old: b"\xff\xfe\x00" + old), TRAIN),
    "config_gone": Damage("refused", delete("run/config.yaml")),
    "whet_older_without_a_key": Damage("same bits", settings(lambda s: s["stage1"].pop("sequence_level"))),
    "whet_older_with_a_key_that_is_gone": Damage("refused", settings(lambda s: s.update(colour="red"))),
    "whet_of_another_form": Damage("refused", state(lambda s: s.update(format=0))),
    "whet_before_forms": Damage("refused", state(lambda s: [s.pop(k) for k in ("format", "origin", "logs")])),
    # checkpoints
    "weights_truncated": Damage("warned, same bits", data(f"{NEW}/{WEIGHTS}", lambda old: old[:-100])),
    "weights_flipped": Damage("warned, same bits", data(f"{NEW}/{WEIGHTS}", flip)),
    "weights_zeros": Damage("warned, same bits", data(f"{NEW}/{WEIGHTS}", lambda old: bytes(len(old)))),
    "weights_empty": Damage("warned, same bits", data(f"{NEW}/{WEIGHTS}", lambda old: b"")),
    "weights_gone": Damage("warned, same bits", delete(f"{NEW}/{WEIGHTS}")),
    "tokenizer_flipped": Damage("warned, same bits", data(f"{NEW}/policies/actor/tokenizer.json", flip)),
    "optimiser_flipped": Damage("warned, same bits", data(f"{NEW}/optim/critic.safetensors", flip)),
    "rng_gone": Damage("warned, same bits", delete(f"{NEW}/rng.safetensors")),
    "state_flipped": Damage("warned, same bits", data(f"{NEW}/state.json", flip)),
    "state_gone": Damage("warned, same bits", delete(f"{NEW}/state.json")),
    "file_added": Damage("warned, same bits", text(f"{NEW}/policies/critic/adapter_config.json", lambda old: "{}")),
    "manifest_empty": Damage("warned, same bits", text(f"{NEW}/{MANIFEST}", lambda old: "")),
    "manifest_of_nothing": Damage("warned, same bits", text(f"{NEW}/{MANIFEST}", lambda old: "{}")),
    "manifest_a_list": Damage("warned, same bits", text(f"{NEW}/{MANIFEST}", lambda old: "[]")),
    "manifest_deep": Damage("warned, same bits", text(f"{NEW}/{MANIFEST}", lambda old: "[" * 100_000)),
    "manifest_gone": Damage("warned, same bits", delete(f"{NEW}/{MANIFEST}")),
    "manifest_flipped": Damage("warned, same bits", data(f"{NEW}/{MANIFEST}", flip)),
    "manifest_leads_up": Damage("warned, same bits", in_manifest("../../config.yaml")),
    "manifest_leads_to_the_root": Damage("warned, same bits", in_manifest("/etc/hostname")),
    "manifest_with_nul": Damage("warned, same bits", in_manifest("a\0b")),
    "checkpoint_empty": Damage("warned, same bits", both(delete(NEW), lambda case: (case / NEW).mkdir())),
    "checkpoint_a_file": Damage("warned, same bits", both(delete(NEW), text(NEW, lambda old: "x"))),
    "checkpoint_gone": Damage("same bits", delete(NEW)),
    "older_checkpoint_flipped": Damage("same bits", data(f"{OLD}/{WEIGHTS}", flip)),
    "both_checkpoints_flipped": Damage("refused", both(data(f"{NEW}/{WEIGHTS}", flip), data(f"{OLD}/{WEIGHTS}", flip))),
    "checkpoints_gone": Damage("refused", delete("run/checkpoints")),
    "half_a_checkpoint_beside": Damage(
        "same bits", lambda case: shutil.copytree(case / OLD, case / "run/checkpoints/.step_000010.tmp")
    ),
    "note_among_checkpoints": Damage("same bits", text("run/checkpoints/step_by_step.txt", lambda old: "mine")),
    "latest_gone": Damage("same bits", delete("run/checkpoints/latest")),
    "latest_empty": Damage("same bits", text("run/checkpoints/latest", lambda old: "")),
    "latest_no_text": Damage("same bits", data("run/checkpoints/latest", lambda old: b"\xff\xfe")),
    "latest_nowhere": Damage("same bits", text("run/checkpoints/latest", lambda old: "step_999999")),
    "latest_outside": Damage("same bits", text("run/checkpoints/latest", lambda old: "../../../base/unbroken")),
    "latest_nul": Damage("same bits", text("run/checkpoints/latest", lambda old: "step\0")),
    "latest_a_folder": Damage(
        "refused", both(delete("run/checkpoints/latest"), lambda case: (case / "run/checkpoints/latest").mkdir())
    ),
    # logs
    "metrics_torn": Damage("same bits", data("run/metrics.jsonl", lambda old: old + b'{"phase": "to')),
    "metrics_zeros_after": Damage("same bits", data("run/metrics.jsonl", lambda old: old + bytes(500))),
    "metrics_half": Damage("refused", data("run/metrics.jsonl", half)),
    "metrics_half_accepted": Damage("accepted", data("run/metrics.jsonl", half), ACCEPT),
    "metrics_of_the_checkpoint_before": Damage("warned, same bits", back_to_the_checkpoint_before("metrics.jsonl")),
    "metrics_flipped": Damage("refused", data("run/metrics.jsonl", flip)),
    "metrics_flipped_accepted": Damage("accepted", data("run/metrics.jsonl", flip), ACCEPT),
    "metrics_zeros": Damage("refused", data("run/metrics.jsonl", lambda old: bytes(len(old)))),
    "metrics_zeros_accepted": Damage("accepted", data("run/metrics.jsonl", lambda old: bytes(len(old))), ACCEPT),
    "metrics_gone": Damage("refused", delete("run/metrics.jsonl")),
    "metrics_gone_accepted": Damage("accepted", delete("run/metrics.jsonl"), ACCEPT),
    "trace_flipped": Damage("refused", data("run/traces/stage1.jsonl", flip)),
    "trace_half": Damage("refused", data("run/traces/stage1.jsonl", half)),
    "trace_of_the_checkpoint_before": Damage(
        "warned, same bits", back_to_the_checkpoint_before("traces/stage1.jsonl")
    ),
    "trace_gone": Damage("refused", delete("run/traces/stage1.jsonl")),
    "trace_added": Damage("same bits", text("run/traces/stage2.jsonl", lambda old: "x")),
    "traces_gone": Damage("refused", delete("run/traces")),
    "events_torn": Damage("same bits", data("run/events.jsonl", lambda old: old[:-20])),
    "events_zeros": Damage("same bits", data("run/events.jsonl", lambda old: old + bytes(100))),
    "events_gone": Damage("same bits", delete("run/events.jsonl")),
    "env_gone": Damage("same bits", delete("run/env.json")),
    "env_torn": Damage("same bits", data("run/env.json", half)),
    # links
    "link_metrics": Damage("refused", link("run/metrics.jsonl")),
    "link_events": Damage("refused", link("run/events.jsonl")),
    "link_config": Damage("refused", link("run/config.yaml")),
    "link_trace": Damage("refused", link("run/traces/stage1.jsonl")),
    "link_traces": Damage("refused", link("run/traces")),
    "link_checkpoints": Damage("refused", link("run/checkpoints")),
    "link_checkpoint": Damage("refused", link(NEW)),
    "link_weights": Damage("refused", link(f"{NEW}/{WEIGHTS}")),
    "link_latest": Damage("refused", link("run/checkpoints/latest")),
    "link_lock": Damage("refused", both(delete("run/.lock"), link("run/.lock"))),
    "link_report": Damage("refused", link("run/report.html")),
    "link_is_the_run": Damage("same bits", both(
        lambda case: (case / "run").rename(case / "real"), lambda case: (case / "run").symlink_to(case / "real")
    )),
    # a run that had ended
    "finished": Damage("shown", finished=True),
    "finished_checkpoints_gone": Damage("shown", delete("run/checkpoints"), finished=True),
    "summary_torn": Damage("warned, same bits", data("run/summary.json", half), finished=True),
    "summary_empty": Damage("warned, same bits", data("run/summary.json", lambda old: b""), finished=True),
    "summary_zeros": Damage("warned, same bits", data("run/summary.json", lambda old: bytes(len(old))), finished=True),
    "summary_a_list": Damage("warned, same bits", text("run/summary.json", lambda old: "[1]"), finished=True),
    "summary_torn_checkpoints_gone": Damage(
        "refused", both(data("run/summary.json", half), delete("run/checkpoints")), finished=True
    ),
    "summary_torn_metrics_flipped": Damage(
        "refused", both(data("run/summary.json", half), data("run/metrics.jsonl", flip)), finished=True
    ),
    # the place
    "another_process": Damage("refused", lock_in_another_process),
    "read_only": Damage("refused", prepare=as_nobody_in_a_read_only_folder),
    "disk_full_at_the_weights": Damage("refused", prepare=no_file_longer_than(30_000)),
    "disk_full_at_the_logs": Damage("refused", prepare=no_file_longer_than(3_000)),
    "disk_full_at_once": Damage("refused", prepare=no_file_longer_than(600)),
}  # fmt: skip
