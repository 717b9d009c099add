"""A page in a real browser, watched."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whet.report.page import write_report


@contextmanager
def watched(browser: Any, folder: Path) -> Iterator[Any]:
    """The report of a run, as `watched_page`."""
    with watched_page(browser, write_report(folder)) as page:
        yield page


@contextmanager
def watched_page(browser: Any, file: Path) -> Iterator[Any]:
    """A page; at the end it must have asked for nothing and complained of nothing."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-curves=drawn]")
    yield page
    assert {url.split(":")[0] for url in asked} == {"file"}
    assert complaints == []
    page.close()
