"""Does a critic of SmolLM2 judge better when it learns from the actor's own mistakes? Two warm starts of equal updates.

    whet get smollm2 models/smollm2
    python benchmarks/smollm2_own_mistakes.py --processes 1
    python benchmarks/smollm2_own_mistakes.py --processes 1 \\
        engine.products=bfloat16 warm_start.learning.products=bfloat16      # where the processor multiplies it

Actor and critic are SmolLM2-135M-Instruct with the settings of `examples/smollm2_critic.yaml`, without its stages of
reinforcement learning. One critic learns from written solutions, half of which hold a planted mistake: that is the
example's warm start. The other learns from the greedy answers of the same actor to the training problems, as many right
as wrong ones. A critique comments on each step of an answer, by the same rule in both. Answers in another layout, and
those whose steps and result do not agree, are left out. Both critics are measured on the same held-out answers.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from study import Part, accumulate, arguments, cell, machine, made_with, minus, policies_of, rows_of, train
from whet.api.asking import Asked, written_by
from whet.config.yaml_text import dump, read_file
from whet.run.data import load_tasks
from whet.run.load import load_run
from whet.seeds import seed_of
from whet.tasks.basics_steps import Worked, plan, result_of
from whet.tasks.demonstrations import critique_by_steps
from whet.tasks.prompts import Prompts
from whet.types import Task

SEEDS = (420, 421, 422)
EXAMPLE = Path(__file__).parents[1] / "examples" / "smollm2_critic.yaml"
CRITICS = {"written": "written solutions, planted mistakes", "own": "the actor's own answers"}
METRICS = ("acc", "acc_dis", "acc_dis_correct", "acc_dis_incorrect", "acc_refine", "c2i", "i2c")
TITLES = ("Acc", "Acc@Dis", "on right", "on wrong", "Acc@Refine", "c->i", "i->c")
FINAL = "The answer is {}."


def run_seed(root: Path, seed: int, extra: Sequence[str]) -> None:
    """Both warm starts of a seed, or what is missing of them."""
    folder = root / f"seed{seed}"
    shared = [f"seed={seed}", "num_threads=1", "stage1.num_steps=0", "stage2.num_steps=0", *extra]
    train("critique_rl", [_example(folder / "written"), *shared], folder / "written")
    examples = folder / "own.jsonl"
    if not examples.exists():
        _save(own_examples(folder / "written"), examples)
    actor = policies_of(folder / "written") / "actor"
    own = [f"actor.path={actor}", "warm_start.actor_steps=0", f"warm_start.file={examples}"]
    train("critique_rl", [_example(folder / "own"), *shared, *own], folder / "own")


def _example(folder: Path) -> str:
    """The example's settings without those of its stages, as a file beside the run: what has no effect is refused."""
    settings = {key: value for key, value in read_file(EXAMPLE).items() if key not in ("stage1", "stage2")}
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.with_suffix(".yaml")
    file.write_text(dump(settings))
    return str(file)


# --- critiques of the actor's answers ---------------------------------------------------------------------------------


def own_examples(run: Path) -> list[dict[str, str]]:
    """Critiques of the actor's greedy answers to the training problems, as many of right as of wrong ones."""
    trained = load_run(run)
    words, tasks = trained.words(), load_tasks(trained.config.data).tasks["train"]
    asked = [Asked(words.solve_messages(task.prompt), seed_of(0, task.id), words.solve_prefill) for task in tasks]
    actor = trained.load(["actor"])["actor"]
    written = written_by(actor, asked, trained.skills("actor")["answer"], trained.engine_settings)
    answers = [segment.text for segment in written]
    pairs = zip(tasks, answers, strict=True)
    examples = [(task, text, found) for task, text in pairs if (found := critique_of(task, text, words)) is not None]
    by_verdict = {
        right: [
            {"question": task.prompt, "answer": text, "critique": critique}
            for task, text, (critique, is_right) in examples
            if is_right is right
        ]
        for right in (True, False)
    }
    count = min(map(len, by_verdict.values()))
    print(f"{run.parent.name}: {len(tasks)} answers, {len(examples)} taken, {len(by_verdict[False])} of them wrong")
    return [row for rows in by_verdict.values() for row in random.Random(0).sample(rows, count)]


def _save(rows: Sequence[Mapping[str, str]], file: Path) -> None:
    draft = file.with_suffix(".draft")
    draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
    draft.replace(file)


def critique_of(task: Task, answer: str, words: Prompts) -> tuple[str, bool] | None:
    """The critique of an answer, and whether the answer is right. None: its layout is another, or it does not follow
    from its steps.

    A step is wrong where its calculation is not that of the solution with the results so far, or its result is not
    that of its calculation. The critique says which calculation to work out again, and no result.
    """
    *lines, last = answer.strip().splitlines() or [""]
    steps = plan(task.info["of"], task.prompt)
    values = [re.search(r"(-?[0-9]+)\.?$", line) for line in lines]
    if len(lines) != len(steps) or not all(values):
        return None
    worked = Worked(steps, tuple(int(value[1]) for value in values if value), mistake=None)
    comments = []
    for place, line in enumerate(lines):
        is_step_right = line == worked.lines[place] and worked.values[place] == result_of(steps[place], worked.values)
        comments.append((line, "" if is_step_right else worked.advice(place)))
    is_right = last == FINAL.format(task.answer)
    if last != FINAL.format(worked.answer) or is_right is any(trouble for _, trouble in comments):
        return None
    return critique_by_steps(comments, words, right=is_right), is_right


# --- the result file --------------------------------------------------------------------------------------------------


def measure(folder: Path) -> dict[str, Any]:
    values = {name: {key: rows_of(folder / name)["sft_critic"].get(key) for key in METRICS} for name in CRITICS}
    examples = (folder / "own.jsonl").read_text().splitlines()
    return {"machine": machine(folder / "own"), "values": values, "examples": len(examples)}


def markdown(result: Mapping[str, Any]) -> str:
    found = result["critics"]
    lines = [
        "# SmolLM2's critic, warm-started on two kinds of mistakes",
        "",
        f"Seeds {', '.join(map(str, found['seeds']))}. In percent: mean ± half width of a 95 % t interval over seeds. "
        f"Own answers in the file of each seed: {', '.join(map(str, found['examples']))}.",
        "",
        "| the critic learnt from | " + " | ".join(TITLES) + " |",
        "|---" * (len(TITLES) + 1) + "|",
    ]
    for name, title in CRITICS.items():
        lines.append(f"| {title} | " + " | ".join(cell(found["values"][name][key]) for key in METRICS) + " |")
    lead = [minus(found["values"]["own"][key], found["values"]["written"][key]) for key in METRICS]
    lines.append("| difference, paired | " + " | ".join(cell(values, sign=True) for values in lead) + " |")
    return "\n".join([*lines, "", *made_with(found), "", f"Command: `{result['command']}`.", ""])


def main() -> None:
    options = arguments(__doc__, "smollm2_own_mistakes", seeds=SEEDS, processes=2)
    root: Path = options.root
    part = Part(
        place=("critics",),
        settings={"extra": options.settings},
        seeds=options.seeds,
        run=lambda seed: run_seed(root, seed, options.settings),
        folder=lambda seed: root / f"seed{seed}",
        is_whole=lambda seed: all((root / f"seed{seed}" / name / "summary.json").exists() for name in CRITICS),
        measure=lambda seed: measure(root / f"seed{seed}"),
    )
    print(markdown(accumulate(options, [part], markdown)))


if __name__ == "__main__":
    main()
