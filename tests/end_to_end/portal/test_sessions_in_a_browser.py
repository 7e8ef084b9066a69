"""Notebooks in a real Chromium, behind the proxy: a stand-in for the program, and JupyterLab itself."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route
from portal_visit import PHONE, Visit, base_of, chromium, expect, unheard, visit
from real_pond import Pond, until

from millpond.client.sdk import Client

pytestmark = pytest.mark.long

__all__ = ["chromium", "visit"]
"""Fixtures."""

STAND_IN = f"""#!{Path(sys.executable).resolve()}
import os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
options = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
class Handler(BaseHTTPRequestHandler):
    visits = 0
    def do_GET(self):
        Handler.visits += "text/html" in self.headers.get("Accept", "")
        body = f"<h1>a notebook of {{os.getcwd()}}, opened {{Handler.visits}} times</h1>".encode()
        is_known = self.headers["Authorization"] == "Bearer " + os.environ["JUPYTER_TOKEN"]
        self.send_response(200 if is_known and self.path.startswith(options["--ServerApp.base_url"]) else 403)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body)
ThreadingHTTPServer(("127.0.0.1", int(options["--port"])), Handler).serve_forever()
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that is not below /tmp, of which each job has one of its own."""
    made = Path(tempfile.mkdtemp(prefix="millpond-home-", dir=Path.home()))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def pond(tmp_path: Path, home: Path) -> Iterator[Pond]:
    made = Pond(tmp_path / "state")
    made.env |= {"HOME": str(home)}
    yield made
    made.printed("down")


def sessions_of(pond: Pond, visit: Visit) -> Any:
    """The page of sessions, which somebody who came in at the overview has clicked at."""
    page = visit.enter(pond)
    page.get_by_role("link", name="Sessions").click()
    return page


def started(pond: Pond, visit: Visit, home: Path) -> tuple[Any, Any]:
    """The page of sessions with one that runs on a quarter card, a stand-in, and its row there."""
    program = home / "bin" / "jupyter-lab"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    pond.env |= {"PATH": f"{program.parent}:{pond.env['PATH']}"}
    pond.up()
    page = sessions_of(pond, visit)
    page.get_by_role("button", name="jupyterlab: ¼ card").click()
    page.locator("#notice.good", has_text="It starts").wait_for()
    row = page.locator("tr[id^=session-]")
    row.locator(".s-running").wait_for()
    return page, row


def opened_by(row: Any, visit: Visit) -> Any:
    """What a session shows when it is opened from its row."""
    with visit.context.expect_page() as opened:
        row.get_by_role("button", name="Open").click()
    return opened.value


def test_a_session_is_started_opened_extended_and_stopped(pond: Pond, visit: Visit, home: Path) -> None:
    page, row = started(pond, visit, home)
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    opened = opened_by(row, visit)
    opened.get_by_role("heading", name=f"a notebook of {home}").wait_for()
    assert opened.evaluate("window.opener") is None, "the portal and the program have no hold on each other"
    expect(row).to_contain_text("ends in 8 hr.")
    row.get_by_role("button", name="4 h more").click()
    expect(row).to_contain_text("ends in 12 hr.")
    page.on("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Stop").click()
    page.get_by_text("You have no session.").wait_for()


def test_a_session_that_is_started_again_as_no_answer_came_is_one(pond: Pond, visit: Visit, home: Path) -> None:
    page, _ = started(pond, visit, home)
    visit.forgive_refusals()

    def start_unheard(route: Route) -> None:  # the page itself is read at the same address
        (unheard if route.request.method == "POST" else Route.fallback)(route)

    page.route("**/portal/sessions", start_unheard)
    page.get_by_role("button", name="jupyterlab: ¼ card").click()
    page.locator("#notice", has_text="The server did not answer.").wait_for()
    page.unroute("**/portal/sessions")
    page.get_by_role("button", name="jupyterlab: ¼ card").click()
    page.locator("#notice.good", has_text="It starts").wait_for()
    page.reload()
    expect(page.locator("tr[id^=session-]")).to_have_count(2)
    page.get_by_role("button", name="jupyterlab: ¼ card").click()
    expect(page.locator("tr[id^=session-]")).to_have_count(3)


def test_a_suspended_session_leaves_its_card_and_goes_on_with_what_it_had_in_memory(
    pond: Pond, visit: Visit, home: Path
) -> None:
    page, row = started(pond, visit, home)
    opened_by(row, visit).get_by_role("heading", name="opened 1 times").wait_for()
    page.once("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Suspend").click()
    row.locator(".s-suspended").wait_for()
    row.get_by_text("swapped to host memory (suspended by").wait_for()
    expect(row.get_by_role("button", name="Open")).to_have_count(0)
    with Client(state_dir=pond.state_dir) as client:
        assert all(card.free_compute_milli == 1_000 for node in client.nodes() for card in node.devices)
    row.get_by_role("button", name="Resume").click()
    row.locator(".s-running").wait_for()
    opened_by(row, visit).get_by_role("heading", name="opened 2 times").wait_for()


def test_a_newcomer_runs_a_cell_on_a_quarter_card_after_five_clicks_at_the_most(pond: Pond, visit: Visit) -> None:
    pond.up()
    page = sessions_of(pond, visit)  # 1
    page.get_by_role("button", name="jupyterlab: ¼ card").click()  # 2
    with Client(state_dir=pond.state_dir) as client:
        until(lambda: len(client.jobs(ended=True).jobs) >= 1)
        until(lambda: all(job.state not in ("queued", "starting") for job in client.jobs(ended=True).jobs), 900)
        failed = [job.id for job in client.jobs(ended=True).jobs if job.state == "failed"]
    if failed and "package index cannot be reached" in (said := pond("logs", failed[-1]).stderr):
        pytest.skip(f"JupyterLab cannot be installed here: {said.splitlines()[-1]}")
    with visit.context.expect_page() as opened:
        page.get_by_role("button", name="Open").click()  # 3
    lab = opened.value
    lab.set_default_timeout(120_000)
    lab.locator(".jp-LauncherCard[data-category=Notebook]").first.click()  # 4
    lab.locator(".jp-Notebook .jp-Cell").first.wait_for()
    lab.get_by_text("Python 3 (ipykernel) | Idle").first.wait_for()
    lab.keyboard.type("print(6 * 7)")
    lab.locator("[data-command='notebook:run-cell-and-select-next'], [title^='Run this cell']").first.click()  # 5
    expect(lab.locator(".jp-OutputArea-output").first).to_have_text("42\n")
    assert base_of(lab) == base_of(page)
