"""How long a report of 5,000 completions takes to make, and to open in a real browser."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

SAMPLES = 5000
_HELP = Path(__file__).resolve().parent.parent / "tests" / "report"


def measure() -> dict[str, Any]:
    """Seconds to audit, to render, to open (median of five, up to the load event); bytes of the page.

    ``skipped`` says why there is nothing; ``open_s`` is None where there is no browser.
    """
    try:
        from proctor.report.page import render
    except ModuleNotFoundError as error:
        return {"skipped": f"{error.name} is not installed: pip install jinja2 pygments"}
    sys.path.insert(0, str(_HELP))
    try:
        from report_help import many  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(_HELP))
    started = time.perf_counter()
    samples = many(SAMPLES)
    audited = time.perf_counter()
    page = render(samples, title="bench").encode()
    done = time.perf_counter()
    return {"audit_s": audited - started, "render_s": done - audited, "bytes": len(page), "open_s": _opened(page)}


def _opened(page: bytes) -> float | None:
    program = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        return None
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        path = Path(folder, "report.html")
        path.write_bytes(page)
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            times = []
            for _ in range(5):
                tab = browser.new_page(viewport={"width": 1280, "height": 900})
                started = time.perf_counter()
                tab.goto(path.as_uri(), wait_until="load")
                tab.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
                times.append(time.perf_counter() - started)
                tab.close()
            return median(times)
        finally:
            browser.close()
