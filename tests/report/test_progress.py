"""What is seen while a run goes on: at any width bar, count and time left; in a file a line now and then."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from whet.methods.report_specs import load_report
from whet.report.progress import RichProgress, print_note

CRITIQUE = load_report("critique")

METRICS = {
    "reward/mean": 0.51234,
    "critique/acc_dis": 0.912,
    "critique/acc_refine_of_incorrect_answers": 0.75,
    "group/no_signal": 0.25,
    "validation/acc_refine": None,
}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def bars(width: int, *phases: str, total: int = 240) -> list[str]:
    """The lines of a terminal, a phase each, all half done after a minute but the last one's first step."""
    clock = Clock()
    console = Console(file=StringIO(), width=width, force_terminal=True, color_system=None)
    progress = RichProgress(console, CRITIQUE.phases, clock=clock)
    for phase in phases:
        progress.begin(phase, 0, total)
        for step in range(1, total // 2 + 1):
            clock.now += 0.5
            progress.step(step, METRICS)
    progress.close()
    with console.capture() as shown:
        console.print(progress._bars.get_renderable())
    return shown.get().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("total", [8, 240, 100_000])
def test_bar_count_and_time_left_are_there_at_any_width(width, total):
    phases = ("stage2", "sft_critic", "a_phase_with_a_very_long_name_indeed")
    lines = bars(width, *phases, total=total)
    assert len(lines) == len(phases)  # nothing wraps
    for line in lines:
        assert cell_len(line.rstrip()) <= width
        assert line[19:40] == f"{'━' * 10:<20} "  # the whole bar, half of it full
        assert f"{total // 2}/{total}" in line
        assert " left" in line
        assert "…" not in line[18:]  # only a name is cut
    assert lines[0].startswith("stage II ")


@pytest.mark.parametrize(
    ("width", "there", "not_there"),
    [
        (80, ["reward 0.512"], ["acc_dis", "steps/s", "so far"]),
        (100, ["reward 0.512", "acc_dis 0.912"], ["acc_refine", "no_signal", "steps/s"]),
        (
            160,
            ["reward 0.512  acc_dis 0.912  acc_refine_of_incorrect_answers 0.750  no_signal 0.250"],
            ["validation", "so far"],
        ),
        (200, ["no_signal 0.250  2.0 steps/s  0:01:00 so far"], []),
    ],
)
def test_metrics_give_way_whole_and_from_the_right(width, there, not_there):
    [line] = bars(width, "stage1")
    assert "120/240" in line
    assert all(text in line for text in there), line
    assert not any(text in line for text in not_there), line


NOTE = "look: train step 40: 92 % of the groups taught nothing in ten steps; easier tasks (data.num_train) would help"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_note_is_wrapped_between_words_at_a_terminal(width):
    console = Console(file=StringIO(), width=width, force_terminal=True, color_system=None)
    RichProgress(console).tell("warning", NOTE.removeprefix("look: "))
    print_note(console, NOTE)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 2 * (1 if width >= len(NOTE) else 2)
    assert all(cell_len(line) <= width for line in lines)
    assert " ".join(line.strip() for line in lines) == f"{NOTE} {NOTE}"  # no word is broken


def test_a_note_is_one_line_where_the_output_is_no_terminal():
    console = Console(file=StringIO(), width=60)
    print_note(console, NOTE)
    assert console.file.getvalue() == f"{NOTE}\n"


def test_a_phase_that_has_ended_says_how_long_it_took():
    clock = Clock()
    console = Console(file=StringIO(), width=80, force_terminal=True, color_system=None)
    progress = RichProgress(console, clock=clock)
    progress.begin("stage1", 0, 2)
    for step in (1, 2):
        clock.now += 40
        progress.step(step, METRICS)
    progress.end()
    progress.close()
    with console.capture() as shown:
        console.print(progress._bars.get_renderable())
    assert "2/2" in shown.get()
    assert "in 0:01:20  reward 0.512" in shown.get()
    assert "left" not in shown.get()


def test_in_a_file_a_line_comes_by_time_and_the_first_and_the_last_always_do():
    clock = Clock()
    console = Console(file=StringIO(), width=60)
    progress = RichProgress(console, CRITIQUE.phases, clock=clock)
    progress.begin("stage2", 4, 20)
    for step in range(5, 21):
        clock.now += 2
        progress.step(step, METRICS)
    progress.end()
    head, *lines = console.file.getvalue().splitlines()
    assert head == "stage II: 20 steps, 4 of them done"
    # After 2 s the first; then every 6 s, as steps of 2 s first pass 5 s; and the last.
    assert [line.split()[2] for line in lines] == ["5/20", "8/20", "11/20", "14/20", "17/20", "20/20"]
    assert lines[1].startswith("  stage II 8/20  0:00:24 left  reward 0.512  acc_dis 0.912  acc_refine")
    assert lines[-1].startswith("  stage II 20/20  reward 0.512")
