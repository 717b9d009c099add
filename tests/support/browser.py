"""A run's page in a real browser, watched."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whet.report.page import write_report


@contextmanager
def watched(browser: Any, folder: Path) -> Iterator[Any]:
    """The report; at the end it must have asked for nothing and complained of nothing."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(write_report(folder).as_uri())
    page.wait_for_selector("html[data-curves=drawn]")
    yield page
    assert {url.split(":")[0] for url in asked} == {"file"}
    assert complaints == []
    page.close()
