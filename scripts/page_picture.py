"""Makes the README's picture of a run's page: the traces whose wrong answer a critique made right.

    python scripts/page_picture.py runs/critique_rl            # writes docs/traces.png
    python scripts/page_picture.py runs/critique_rl --out x.png --query 'critic=stage2&split=test&change=i2c'

It needs the extra `dev` (playwright) and Chromium. Nothing is loaded from a network.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from playwright.sync_api import sync_playwright

from whet.report.page import write_report

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT = 1280, 560
QUERY = "critic=stage2&split=test&change=i2c"


def take(page_file: Path, query: str, out: Path, chromium: str) -> None:
    """Opens the page at some traces, and takes the picture of its browser of traces."""
    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=args)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(f"{page_file.resolve().as_uri()}#{query}")
        page.wait_for_selector("html[data-curves=drawn]")
        page.locator("#filters").evaluate("element => element.scrollIntoView()")
        page.screenshot(path=out)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="The folder of a run of critique_rl.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "traces.png")
    parser.add_argument("--query", default=QUERY, help="Which traces are shown: the page's address behind #.")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    take(write_report(options.run), options.query, options.out, options.chromium)
    print(f"wrote {options.out} ({options.out.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
