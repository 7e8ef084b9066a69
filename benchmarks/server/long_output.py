"""Whether the page of a job stays smooth with an output of 100 MB: followed as it is written, searched, jumped through.

    python -m benchmarks.server.long_output --mb 100

A real server on a pretended card, and a real Chromium. The job writes for 30 seconds at the least. What is measured is
the CPU time of the page's main thread and its longest single task, which is what holds up a hand that types or scrolls.
Needs Debian's chromium and Playwright.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.reporting import Table, command_line, emit, program
from benchmarks.server.portal_speed import BROWSER_OPTIONS, computed_s
from benchmarks.server.served import ServedPond
from millpond.model.errors import UnavailableError

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

_LINE = "step 000000 loss 0.1234 lr 0.0003 tokens/s 81234 and what else a program says in a line of a log"
_PIECES = 50
_WRITES = f"""
half() {{ for piece in $(seq {_PIECES}); do yes '{_LINE}' | head -c "$1"; sleep 0.3; done; echo; }}
half {{piece}}; echo 'ValueError: in the middle'; half {{piece}}; echo Needle
"""
_TASKS = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
}).observe({ type: "longtask", buffered: false });
"""


def measured(page: Page, session: CDPSession, act: Any) -> dict[str, float]:
    """What something costs the page: seconds until it is done, CPU seconds of its main thread, its longest task."""
    page.evaluate("window.longest = 0")
    begun, before = time.perf_counter(), computed_s(session)
    act()
    took = time.perf_counter() - begun
    return {
        "took_s": took,
        "main_thread_s": computed_s(session) - before,
        "longest_task_ms": page.evaluate("window.longest"),
    }


def visited(link: str) -> dict[str, dict[str, float]]:
    """The page of the job from the first line on that it shows."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(BROWSER_OPTIONS))
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.set_default_timeout(600_000)
        page.add_init_script(_TASKS)
        page.goto(link)
        page.wait_for_url("**/portal/jobs/**")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        here, told = page.locator("#log-lines .here"), page.locator("#log-lines")

        def follow() -> None:
            told.get_by_text("The output ends here.").wait_for()

        def jump() -> None:
            page.get_by_role("button", name="Next error").click()
            here.get_by_text("ValueError").wait_for()

        def search() -> None:
            page.fill("#log-search", "needle")
            page.press("#log-search", "Enter")
            here.get_by_text("Needle").wait_for()

        def narrow() -> None:
            page.get_by_label("Follow").check()
            follow()
            page.fill("#log-search", "")
            page.type("#log-search", "tokens/s 81234")

        acts = (("follow it to its end", follow), ("jump to an error", jump), ("search it all", search))
        found = {name: measured(page, session, act) for name, act in (*acts, ("narrow the lines", narrow))}
        browser.close()
    return found


@program
def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure, and print what came out."""
    parser = command_line(__doc__)
    parser.add_argument("--mb", type=int, default=100, help="millions of bytes that the job writes [100]")
    options = parser.parse_args(arguments)
    if shutil.which("chromium") is None:
        raise UnavailableError("chromium is not installed", "apt-get install chromium")
    with (
        tempfile.TemporaryDirectory(prefix="millpond-output-") as folder,
        ServedPond(Path(folder) / "state", ["--fake-gpus", "1:V100-32GB"]) as served,
    ):
        served.up()
        with served.client() as client:
            command = _WRITES.replace("{piece}", str(options.mb * 500_000 // _PIECES))
            job = client.submit({"name": "writes", "gpus": 0, "memory": "64MiB", "command": command}).id
            acts = visited(client.accounts.portal_link(job).url)
        served.abandon()
    table = Table("act", "s", "CPU s of the main thread", "longest task ms", texts=1)
    for name, each in acts.items():
        table.add(name, *(f"{each[column]:.2f}" for column in ("took_s", "main_thread_s", "longest_task_ms")))
    result = {"mb": options.mb, "acts": acts}
    emit(result, options.json, [table])
    return result


if __name__ == "__main__":
    main()
