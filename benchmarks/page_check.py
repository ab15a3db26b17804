"""Drives the page of `silicast server` in Chromium: every control, six widths, dark, print, axe.

    python benchmarks/page_check.py FOLDER AXE.js [CHROMIUM]

Needs `pip install playwright`, Debian's chromium (CHROMIUM, /usr/bin/chromium unless stated) and
axe.min.js of npm's axe-core. Writes pictures and page_check.json into FOLDER. All requests but
those to the server on 127.0.0.1 are refused, and counted. Exit status 1 if something is wrong.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.speed_server import ready, running_server, server_cpu_s

WIDTHS = (320, 375, 768, 1024, 1440, 1920)
GOALS = {"page_bytes": 300_000, "first_answer_s": 1.0}
SIZE = (
    "performance.getEntries().filter(e => e.entryType === 'navigation' || /page[.]/.test(e.name))"
    ".reduce((sum, e) => sum + (e.encodedBodySize || 0), 0)"
)
WAIT_MS = 120_000


class PageRun:
    """One browser, and what it noticed."""

    def __init__(self, browser: Any, port: int, folder: Path, axe: str) -> None:
        self.browser, self.folder, self.axe = browser, folder, axe
        self.address = f"http://127.0.0.1:{port}"
        self.problems: list[str] = []
        self.outside: list[str] = []
        self.loaded = 0

    def opened(self, **options: Any) -> Any:
        """A page that tells of errors and asks nobody else."""
        context = self.browser.new_context(accept_downloads=True, **options)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=self.address)
        page = context.new_page()
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.route("**/*", self._routed)
        return page

    def _logged(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text}")

    def _routed(self, route: Any) -> None:
        if route.request.url.startswith((self.address, "file:", "blob:", "data:")):
            route.continue_()
        else:
            self.outside.append(route.request.url)
            route.abort()

    def expect(self, holds: object, what: str) -> None:
        if not holds:
            self.problems.append(what)

    def until(self, page: Any, *beginnings: str) -> None:
        """Waits for the page's status; its policy forbids what playwright waits with."""
        end = time.monotonic() + WAIT_MS / 1e3
        while not page.inner_text("#status").startswith(beginnings):
            if time.monotonic() > end:
                raise TimeoutError(page.inner_text("#status"))
            page.wait_for_timeout(50)

    def finished(self, page: Any) -> None:
        self.until(page, "Done.", "Some setups")

    def violations(self, page: Any, name: str) -> None:
        """What axe says of a page as it is."""
        page.evaluate(self.axe)
        result = page.evaluate("axe.run(document)")
        for each in result["violations"]:
            nodes = [node["target"] for node in each["nodes"]][:3]
            self.problems.append(f"axe, {name}: {each['id']}: {each['help']} {nodes}")

    def picture(self, page: Any, name: str) -> None:
        page.screenshot(path=str(self.folder / f"{name}.png"), full_page=True)

    def first(self) -> dict[str, float]:
        """Bytes of the page, and seconds to its first answer in a browser that has started: by the
        clock, and of processors in the browser and the server, which other work does not stretch.
        """
        page = self.opened()
        page.goto("about:blank")
        start, before = time.perf_counter(), server_cpu_s()
        page.goto(self.address)
        page.wait_for_selector(".verdict", timeout=WAIT_MS)
        seconds, spent = time.perf_counter() - start, server_cpu_s() - before
        self.finished(page)
        size = page.evaluate(SIZE)
        page.reload()
        start = time.perf_counter()
        page.wait_for_selector(".verdict", timeout=WAIT_MS)
        again = time.perf_counter() - start
        page.context.close()
        return {
            "page_bytes": size,
            "first_answer_s": seconds,
            "first_answer_cpu_s": round(spent, 2),
            "first_answer_again_s": again,
        }

    def controls(self) -> None:
        """Every control, by mouse and by keyboard, and what it must change."""
        page = self.opened(viewport={"width": 1280, "height": 900})
        page.goto(self.address)
        self.finished(page)
        text = page.inner_text("#results")
        for word in (
            "Fits",
            "Carries",
            "Knee",
            "Memory of a device",
            "A request over time",
            "Each further token against load",
            "Throughput of a device",
        ):
            self.expect(word in text, f"no {word!r} in the first answer")
        self.expect("Cost against load" not in text, "a cost without a price")
        for number in range(2, 6):
            page.click("#add")
            page.fill(f"#device_{number - 1}", ["A100-SXM-80GB", "L40S", "H200", "L4"][number - 2])
        self.expect(page.is_disabled("#add"), "a sixth setup can be added")
        page.click("[aria-label='Remove setup 5']")
        page.fill("#price_0", "2.5")
        page.select_option("#engine_1", "sglang")
        page.select_option("#dtype_0", "fp8")
        page.select_option("#tp_1", "2")
        page.select_option("#pp_2", "2")
        page.fill("[name=input_len]", "512")
        page.fill("[name=output_len]", "64")
        page.fill("[name=ttft]", "500")
        page.fill("[name=tpot]", "30")
        page.focus("#go")
        page.keyboard.press("Enter")
        self.until(page, "Predicting")
        self.finished(page)
        text = page.inner_text("#results")
        for word in ("fp8", "tp 2", "pp 2", "sglang", "Cost against load", "L40S"):
            self.expect(word in text, f"no {word!r} in the comparison")
        rows = page.locator("tbody tr").count()
        self.expect(rows >= 20, f"{rows} rows of the table")
        self.expect(page.locator("section.setup-card").count() == 4, "not four cards")
        self.picture(page, "compared")
        self.violations(page, "compared")
        self.shared(page)
        self.reported(page)
        page.fill("#model_0", "no such model")
        page.click("#go")
        self.until(page, "Some")
        self.expect(page.locator(".alert").count() >= 1, "no reason of a refusal")
        page.fill("[name=output_len]", "1")
        page.click("#go")
        self.expect(page.locator(":invalid").count() > 0, "one output token is taken")
        page.context.close()

    def refused(self) -> None:
        """A model that does not fit says by how much, what would, and each reason once; a link
        that is opened in the same window is answered.
        """
        page = self.opened(viewport={"width": 1280, "height": 900})
        page.goto(f"{self.address}/#s=Llama-3.1-70B~H100-SXM-80GB~vllm~~1~~1")
        self.finished(page)
        text = page.inner_text("#results")
        for word in ("Does not fit", "it would fit with tp = 2", "Carries no user"):
            self.expect(word in text, f"no {word!r} where nothing fits")
        reasons = page.locator(".warning").all_inner_texts()
        self.expect(
            len([line for line in reasons if "does not start" in line]) == 1, "a reason twice"
        )
        self.picture(page, "refused")
        self.violations(page, "refused")
        page.evaluate("location.hash = '#s=Llama-3.1-70B~H100-SXM-80GB~vllm~~2~~1'")
        self.until(page, "Predicting")
        self.finished(page)
        self.expect("Carries no user" not in page.inner_text("#results"), "a link is not answered")
        page.context.close()

    def shared(self, page: Any) -> None:
        """The link holds the whole question."""
        page.click("#share")
        self.until(page, "The")
        link = page.evaluate("navigator.clipboard.readText()")
        other = self.opened(viewport={"width": 1280, "height": 900})
        other.goto(link)
        self.finished(other)
        names = ("#device_1", "#engine_1", "#dtype_0", "#tp_1", "#pp_2", "#price_0", "[name=ttft]")
        for name in names:
            same = other.input_value(name) == page.input_value(name)
            self.expect(same, f"the link does not hold {name}")
        self.expect(other.inner_text("table") == page.inner_text("table"), "another answer by link")
        other.context.close()

    def reported(self, page: Any) -> None:
        """The report of an answer is saved, and is a page of its own."""
        for choice in ("0", "3"):
            page.locator(".report select").first.select_option(choice)
            with page.expect_download(timeout=WAIT_MS) as download:
                page.locator(".report button").first.click()
            target = self.folder / f"report_{choice}.html"
            download.value.save_as(target)
            report = self.opened(viewport={"width": 900, "height": 900})
            report.goto(target.resolve().as_uri())
            self.expect("What to expect" in report.inner_text("body"), "an empty report")
            self.violations(report, "report")
            self.picture(report, f"report_{choice}")
            report.context.close()

    def keyboard(self) -> None:
        """All controls are reached by Tab alone, in order, and show it."""
        page = self.opened(viewport={"width": 1280, "height": 900})
        page.goto(self.address)
        self.finished(page)
        seen = []
        for _ in range(60):
            page.keyboard.press("Tab")
            seen.append(
                page.evaluate(
                    "document.activeElement.id || document.activeElement.name || "
                    "document.activeElement.getAttribute('aria-label')"
                )
            )
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            inside = page.evaluate("document.activeElement !== document.body")
            self.expect(not inside or outline != "none", f"no focus ring on {seen[-1]}")
        for name in (
            "model_0",
            "device_0",
            "pp_0",
            "add",
            "input_len",
            "tpot",
            "go",
            "share",
            "Answer that the report is of",
            "All figures",
        ):
            self.expect(name in seen, f"Tab does not reach {name}")
        page.context.close()

    def looks(self) -> None:
        """At every width, light and dark: nothing is wider than the screen, axe has nothing."""
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                page = self.opened(viewport={"width": width, "height": 900}, color_scheme=scheme)
                page.goto(self.address)
                self.finished(page)
                wide = page.evaluate("document.documentElement.scrollWidth")
                self.expect(wide <= width, f"{wide} px wide at {width}")
                self.picture(page, f"{scheme}_{width}")
                self.violations(page, f"{scheme} {width}")
                page.context.close()

    def without_script(self) -> None:
        page = self.opened(java_script_enabled=False)
        page.goto(self.address)
        self.expect("silicast infer" in page.inner_text("main"), "nothing said without JavaScript")
        page.context.close()

    def as_file(self, path: Path) -> None:
        """The page that `silicast page` writes."""
        page = self.opened(viewport={"width": 375, "height": 800})
        page.goto(path.resolve().as_uri())
        self.finished(page)
        self.expect("Carries" in page.inner_text("#results"), "no answer in the file")
        self.violations(page, "file")
        self.picture(page, "file_375")
        page.context.close()


def main(out: str, axe: str, chromium: str = "/usr/bin/chromium") -> int:
    from playwright.sync_api import sync_playwright

    from silicast.app.cli import main as command

    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "page.html"
    asked = ["page", "--model", "Llama-3.1-8B", "--device", "h100,l40s", "--price", "2"]
    command([*asked, "-o", str(made)])
    with running_server() as port, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        wait_for(port)
        run = PageRun(browser, port, folder, Path(axe).read_text())
        table: dict[str, Any] = {"goals": GOALS, "chromium": browser.version, **run.first()}
        run.controls()
        run.refused()
        run.keyboard()
        run.looks()
        run.without_script()
        run.as_file(made)
        browser.close()
    run.expect(table["page_bytes"] <= GOALS["page_bytes"], "the page is too large")
    run.expect(table["first_answer_s"] <= GOALS["first_answer_s"], "the first answer is late")
    run.expect(not run.outside, f"outside requests: {run.outside[:3]}")
    table |= {"file_bytes": made.stat().st_size, "outside_requests": len(run.outside)}
    table["problems"] = run.problems
    text = json.dumps(table, indent=1)
    (folder / "page_check.json").write_text(f"{text}\n", encoding="utf-8")
    print(text)
    return 1 if run.problems else 0


def wait_for(port: int) -> None:
    import threading

    thread = threading.Thread(target=lambda: asyncio.run(ready(port)))
    thread.start()
    thread.join()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
