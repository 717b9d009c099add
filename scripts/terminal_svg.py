"""Records commands at a terminal as an animated SVG, which a README or a page shows without a script.

    python scripts/terminal_svg.py --out docs/terminal.svg 'whet methods' 'whet train grpo num_steps=20 --out runs/x'

The commands really run, one after another, and each line appears when it was printed. Waiting is scaled so that the
whole takes `--seconds`. Output of more lines than the window has moves up, as at a terminal.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path

COLUMNS, ROWS = 100, 26
CHAR, LINE, PAD = 7.8, 18, 14
"""Pixels: the width of a character of 13 px, the height of a line, the margin."""
TYPING_S = 0.04
"""Seconds a typed character takes, before scaling."""
HOLD = 0.12
"""Share of the time in which the end stands still."""


@dataclass(frozen=True)
class Line:
    at: float
    """Seconds since the start."""
    text: str
    is_typed: bool = False


def record(commands: list[str]) -> list[Line]:
    """Runs the commands.

    Returns: their lines, and those of the commands themselves.
    Raises: SystemExit where a command fails, with its output.
    """
    lines: list[Line] = []
    now = 0.0
    environment = os.environ | {"COLUMNS": str(COLUMNS), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    for command in commands:
        lines.append(Line(now, f"$ {command}", is_typed=True))
        now += TYPING_S * len(command)
        start = time.monotonic()
        process = subprocess.Popen(
            shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        assert process.stdout is not None
        for text in process.stdout:
            wrapped = [text.rstrip()[i : i + COLUMNS] for i in range(0, max(1, len(text.rstrip())), COLUMNS)]
            lines += [Line(now + time.monotonic() - start, part) for part in wrapped]
        if process.wait():
            raise SystemExit("\n".join([*(line.text for line in lines), f"{command}: exit code {process.returncode}"]))
        now += time.monotonic() - start + 0.5
    return lines


def animated(lines: list[Line], seconds: float) -> str:
    """The lines as an animated SVG that starts anew after so many seconds."""
    end = lines[-1].at or 1.0
    moments = [line.at / end * (1 - HOLD) * 100 for line in lines]  # percent of the whole
    width, height = round(COLUMNS * CHAR + 2 * PAD), ROWS * LINE + 2 * PAD
    styles, texts = [], []
    for number, (line, at) in enumerate(zip(lines, moments, strict=True)):
        styles.append(f"@keyframes l{number}{{0%,{max(0.0, at - 0.01):.2f}%{{opacity:0}}{at:.2f}%,100%{{opacity:1}}}}")
        style = f"animation:l{number} {seconds}s infinite" if at > 0 else ""
        fill = ' class="typed"' if line.is_typed else ""
        y = PAD + LINE * number + 13
        texts.append(f'<text x="{PAD}" y="{y}" xml:space="preserve"{fill} style="{style}">{escape(line.text)}</text>')
    moves = ["0%{transform:translateY(0)}"]
    for number, at in enumerate(moments):
        if number >= ROWS:
            moves.append(f"{at:.2f}%{{transform:translateY({-LINE * (number - ROWS + 1)}px)}}")
    last = -LINE * max(0, len(lines) - ROWS)
    moves.append(f"100%{{transform:translateY({last}px)}}")
    styles.append(f"@keyframes up{{{''.join(moves)}}}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="A recording of a terminal"><style>{"".join(styles)}'
        f"#t{{animation:up {seconds}s steps(1,end) infinite}}"
        'text{font:13px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#e4e6e8}'
        ".typed{fill:#8fb8ee}</style>"
        f'<defs><clipPath id="c"><rect width="{width}" height="{height - PAD}"/></clipPath></defs>'
        f'<rect width="{width}" height="{height}" rx="8" fill="#15171a"/>'
        f'<g clip-path="url(#c)"><g id="t">{"".join(texts)}</g></g></svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="+", help="Commands, each one argument.")
    parser.add_argument("--out", type=Path, required=True, help="The SVG file.")
    parser.add_argument("--seconds", type=float, default=40.0, help="Length of the recording.")
    options = parser.parse_args()
    lines = record(options.commands)
    options.out.write_text(animated(lines, options.seconds), encoding="utf-8")
    size = options.out.stat().st_size / 1000
    print(f"wrote {options.out}: {len(lines)} lines in {options.seconds:g} s, {size:.0f} kB")


if __name__ == "__main__":
    main()
