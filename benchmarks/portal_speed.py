"""How fast the portal is on a pool of thousands of machines, with thousands of jobs that wait and many that have ended.

    python benchmarks/portal_speed.py --nodes 5000 --waiting 10000 --ended 100000

A real server on pretended cards. Jobs that ended are put into its store before it starts; those that wait do so for a
limit on the running jobs of their user. A page is asked for as a browser does it, one request after another, on
loopback; the time is from sending the request to the last byte. With Debian's chromium installed, and Playwright, the
first paint of the overview and the time its script takes to follow a change are measured too.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2

import full_store
from crowd import crowded
from millpond.client.sdk import Client
from millpond.specs.api.accounts.accounts import AccountLimits, UserChange
from reporting import Table, command_line, emit, note, program
from served import ServedPond

_TOGETHER = 1_000
_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")

OVERVIEW = ("/portal/", "/portal/?colour=owner", "/portal/?colour=health")
LISTS = (
    "/portal/jobs",
    "/portal/jobs?state=queued",
    "/portal/jobs?all=true",
    "/portal/jobs?state=succeeded",
    "/portal/jobs?state=failed",
    "/portal/jobs?all=true&user=ada",
    "/portal/jobs?all=true&user=nobody",
    "/portal/jobs?all=true&queue=default",
    "/portal/jobs?all=true&queue=none",
    "/portal/jobs?all=true&name=old",
    "/portal/jobs?all=true&name=none",
)
REPORTS = tuple(
    f"/portal/{path}since=2023-11-01&until=2024-02-28"
    for path in (
        *(f"reports?by={by}&" for by in ("user", "group", "model", "month", "job")),
        "reports/waits?",
        "reports/waits/jobs?",
        "reports/mine?",
        "reports.csv?",
    )
)
QUOTAS = ("/portal/queues", "/portal/queues/default", "/portal/cells", "/portal/reservations")
OTHERS = (*QUOTAS, "/portal/nodes", *REPORTS, "/metrics")


def wait_in_line(client: Client, jobs: int) -> None:
    """Have one job run, and so many wait for it."""
    user = client.accounts.whoami().user
    client.accounts.change_user(user, UserChange(limits=AccountLimits(jobs=1)))
    client.submit({"name": "runs", "gpus": 4, "command": ["sleep", "3600"]})
    for begin in range(0, jobs, _TOGETHER):
        several = range(begin, min(begin + _TOGETHER, jobs))
        client.submit_together([{"name": f"waits-{n % 50}", "gpus": 1 + n % 8, "command": ["true"]} for n in several])
        note(f"{several.stop} jobs wait")


def times_of(ask: httpx2.Client, path: str, rounds: int) -> dict[str, Any]:
    """How long a page takes, and how large it is."""
    took = []
    for _ in range(rounds):
        begun = time.perf_counter()
        answer = ask.get(path)
        took.append(1000 * (time.perf_counter() - begun))
        answer.raise_for_status()
    return {"page": path, "median_ms": statistics.median(took), "worst_ms": max(took), "kb": len(answer.content) / 1000}


def painted(link: str) -> dict[str, float] | None:
    """When a browser first paints the overview, and how long its main thread takes to follow a change."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if chromium is None:
        return None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_OPTIONS))
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.goto(link)
        page.wait_for_url("**/portal/")
        paints = []
        for _ in range(3):
            page.reload()
            page.wait_for_timeout(1_000)
            paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        # What the page does on a change, but for waiting for the server: it reads the page and takes over what differs.
        update = page.evaluate(
            """async () => {
                const csrf = document.querySelector("meta[name=csrf-token]").content;
                const answer = await fetch(location.pathname, { headers: { "X-CSRF-Token": csrf } });
                const text = await answer.text();
                const begun = performance.now();
                const fresh = new DOMParser().parseFromString(text, "text/html");
                takeChildren(document.getElementById("overview"), fresh.getElementById("overview"));
                return performance.now() - begun;
            }"""
        )
        browser.close()
    return {"first_paint_ms": statistics.median(paints), "update_ms": update}


@program
def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure, and print what came out."""
    parser = command_line(__doc__)
    parser.add_argument("--nodes", type=int, default=5_000, help="machines of eight cards [5000]")
    parser.add_argument("--waiting", type=int, default=10_000, help="jobs that wait [10000]")
    parser.add_argument("--ended", type=int, default=100_000, help="jobs that have ended [100000]")
    parser.add_argument("--portals", type=int, default=200, help="portals that are open while jobs come and go [200]")
    parser.add_argument("--rounds", type=int, default=5, help="requests for each page [5]")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="millpond-portal-") as folder:
        state_dir = Path(folder) / "state"
        full_store.fill(state_dir, options.ended, with_files=False)
        note(f"{options.ended} ended jobs are stored")
        with ServedPond(state_dir, ["--fake-gpus", f"{options.nodes}x8:A100-80GB"]) as served:
            served.up()
            with served.client() as client:
                wait_in_line(client, options.waiting)
                link = client.accounts.portal_link().url
                bearer = {"Authorization": f"Bearer {client.address.token}"}
                with httpx2.Client(base_url=client.address.url, headers=bearer, timeout=60, trust_env=False) as ask:
                    ask.get("/portal/")  # the first page reads the templates
                    pages = [times_of(ask, path, options.rounds) for path in (*OVERVIEW, *LISTS, *OTHERS)]
                browser = painted(link)
            served.abandon()
    with tempfile.TemporaryDirectory(prefix="millpond-portal-") as folder:
        crowd = crowded(Path(folder) / "state", options.portals)
    scene = {"nodes": options.nodes, "waiting": options.waiting, "ended": options.ended}
    result = {**scene, "pages": pages, "browser": browser, "crowd": crowd}
    table = Table("page", "median ms", "worst ms", "kB", texts=1)
    for each in pages:
        table.add(each["page"], f"{each['median_ms']:.0f}", f"{each['worst_ms']:.0f}", f"{each['kb']:.0f}")
    seen = "first paint: not measured, as chromium or playwright is not installed"
    if browser is not None:
        seen = f"overview: first paint {browser['first_paint_ms']:.0f} ms, an update {browser['update_ms']:.0f} ms"
    with_portals = (
        f"{options.portals} open portals while {crowd['ended_a_second']:.1f} jobs a second start and end: server "
        f"{crowd['cpu_percent']:.0f} % of a core, {crowd['cpu_percent_without']:.0f} % without them, "
        f"{crowd['pages_a_second']:.1f} pages a second"
    )
    emit(result, options.json, [table, seen, with_portals])
    return result


if __name__ == "__main__":
    main()
