"""The page in a real browser: it renders, asks for nothing, fits a phone, has both schemes, and works by keyboard."""

from __future__ import annotations

import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="pip install jinja2 pygments")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser can be driven")

from report_help import EVIL, hostile, many

from proctor.report.page import render

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this host (Debian: apt-get install chromium)")

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 375, "height": 812}
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as play:
        # The pages are made here and may load nothing, so they need no sandbox of the browser's own (root has none).
        running = play.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"], timeout=180_000
        )
        yield running
        running.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pages")
    (made / "usual.html").write_text(render(many(400), title="grades.jsonl"), encoding="utf-8")
    (made / "hostile.html").write_text(render(hostile(), title=EVIL, about={"--reward": EVIL}), encoding="utf-8")
    return made


class Opened:
    """A page and all that it said, asked for or tried."""

    def __init__(self, browser: Any, path: Path, size: dict[str, int] = DESK, scheme: str = "light") -> None:
        self.said: list[str] = []
        self.page = browser.new_page(viewport=size, color_scheme=scheme)
        self.page.set_default_timeout(60_000)
        self.page.on("console", lambda message: self.said.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.said.append(f"dialog: {dialog.message}"))
        self.page.on("request", self._asked)
        self.url = path.as_uri()
        self.page.goto(self.url)

    def _asked(self, request: Any) -> None:
        if request.url != self.url:
            self.said.append(f"request: {request.url}")

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *error: object) -> None:
        self.page.close()


@pytest.mark.parametrize("name", ["usual", "hostile"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_it_renders_and_asks_for_nothing(
    browser: Any, folder: Path, name: str, scheme: str, size: dict[str, int]
) -> None:
    with Opened(browser, folder / f"{name}.html", size, scheme) as shown:
        page = shown.page
        for card in page.query_selector_all("details.sample")[:4]:
            card.evaluate("card => card.open = true")
        for part in (
            "h1",
            ".tile >> nth=0",
            "#verdicts svg",
            "#problems svg",
            "#suspicious",
            "#samples-table tbody tr >> nth=0",
        ):
            assert page.locator(part).first.is_visible(), part
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert page.evaluate("window.owned") is None
        assert page.screenshot(full_page=True).startswith(b"\x89PNG")
        assert shown.said == []


def test_schemes(browser: Any, folder: Path) -> None:
    with Opened(browser, folder / "usual.html", scheme="light") as light:
        before = light.page.evaluate(BACKGROUND)
        light.page.click("#scheme")
        switched = light.page.evaluate(BACKGROUND)
        light.page.reload()
        assert light.page.evaluate(BACKGROUND) == switched  # it is kept
    with Opened(browser, folder / "usual.html", scheme="dark") as dark:
        assert dark.page.evaluate("document.documentElement.dataset.scheme") in (None, "dark")
        system = dark.page.evaluate(BACKGROUND)
    assert before != switched
    assert switched == system


def test_the_table_filters_sorts_and_turns_pages(browser: Any, folder: Path) -> None:
    with Opened(browser, folder / "usual.html") as shown:
        page, rows = shown.page, "#samples-table tbody tr"
        assert page.locator(rows).count() == 50
        assert page.inner_text("#where") == "1–50 of 400"
        page.click("#next")
        assert page.inner_text("#where") == "51–100 of 400"
        page.select_option("#verdict", "no_code")
        assert {row.inner_text() for row in page.locator(f"{rows} td:nth-child(4)").all()} == {"no code"}
        page.select_option("#verdict", "flagged")
        flagged = page.locator(rows).count()
        assert flagged > 0
        page.select_option("#verdict", "")
        page.fill("#find", "step-1200 #39")
        texts = page.locator(rows).all_inner_texts()
        assert texts
        assert all("step-1200" in text and text.startswith("39") for text in texts)
        page.fill("#find", "nothing is called so")
        assert page.inner_text("#where") == "no sample matches"
        page.fill("#find", "")
        page.click("#samples-table th:last-child button")
        suspicions = page.locator(f"{rows} td:last-child").all_inner_texts()
        assert suspicions[0] == max(suspicions[:5])
        assert page.get_attribute("#samples-table th:last-child", "aria-sort") == "descending"
        page.click("#problems th >> nth=1")
        rates = page.locator("#problems tbody .rate span").all_inner_texts()
        numbers = [float(rate.rstrip(" %").lstrip("<> ")) for rate in rates]
        assert numbers == sorted(numbers)
        assert shown.said == []


def test_the_keyboard_is_enough(browser: Any, folder: Path) -> None:
    with Opened(browser, folder / "usual.html", PHONE) as shown:
        page = shown.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.focus("details.sample summary")
        page.keyboard.press("Enter")
        assert page.evaluate("document.querySelector('details.sample').open") is True
        page.focus("#samples-table th button")
        page.keyboard.press("Enter")
        assert page.get_attribute("#samples-table th", "aria-sort") is not None
        unnamed = "[...document.querySelectorAll('button, input, select, [role=region], [role=img]')].filter(e => !(e.textContent.trim() || e.getAttribute('aria-label'))).length"
        assert page.evaluate(unnamed) == 0


def test_a_row_leads_to_its_code(browser: Any, folder: Path) -> None:
    with Opened(browser, folder / "usual.html") as shown:
        page = shown.page
        page.select_option("#verdict", "flagged")
        link = page.locator("#samples-table tbody a").first
        target = link.get_attribute("href")
        link.click()
        assert page.evaluate(f"document.querySelector('{target}').open") is True
        assert page.locator(f"{target} .code").is_visible()


def test_even_a_script_in_the_page_could_send_nothing(browser: Any, folder: Path) -> None:
    asked: list[str] = []

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        tries = f"""async () => {{
            const tried = [];
            try {{ await fetch("{address}/fetch", {{mode: "no-cors"}}); tried.push("fetch"); }} catch (error) {{}}
            for (const [tag, name] of [["img", "src"], ["script", "src"], ["iframe", "src"], ["link", "href"]]) {{
                const made = document.createElement(tag);
                if (tag === "link") made.rel = "stylesheet";
                const done = new Promise((ended) => {{ made.onload = made.onerror = ended; setTimeout(ended, 2000); }});
                made[name] = "{address}/" + tag;
                document.body.append(made);
                await done;
            }}
            const inline = document.createElement("script");
            inline.textContent = "window.ran = 1";
            document.body.append(inline);
            if (window.ran) tried.push("inline");
            return tried;
        }}"""
        with Opened(browser, folder / "usual.html") as shown:
            assert shown.page.evaluate(tries) == []
        with browser.new_page() as page:  # the listener does hear what is not forbidden
            page.goto(f"{address}/heard")
        server.shutdown()
        thread.join()
    assert set(asked) - {"/favicon.ico"} == {"/heard"}
