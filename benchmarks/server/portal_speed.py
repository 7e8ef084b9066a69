"""How fast the portal is on a pool of thousands of machines, with thousands of jobs that wait and many that have ended.

    python -m benchmarks.server.portal_speed --nodes 5000 --waiting 10000 --ended 100000

A real server on pretended cards. Jobs that ended, and the pool's history of 30 days, are put into its store before it
starts; those that wait do so for a limit on the running jobs of their user. A page is asked for as a browser does it,
one request after another, on loopback; the time is from sending the request to the last byte, and beside it stands the
CPU time that the server used meanwhile, which says more where the machine is shared. With Debian's chromium installed,
and Playwright, the first paint of the overview and the time its script takes to follow a change are measured too.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2

from benchmarks.reporting import Table, command_line, emit, note, program
from benchmarks.server import full_store
from benchmarks.server.crowd import crowded
from benchmarks.server.own_postgresql import own_postgresql
from benchmarks.server.served import ServedPond
from millpond.client.sdk import Client
from millpond.specs.api.accounts.accounts import AccountLimits, UserChange

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession

MODEL = "A100-80GB"
_TOGETHER = 1_000
BROWSER_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)

OVERVIEW = ("/portal/", "/portal/?colour=owner", "/portal/?colour=health")
FILTERS = (
    "",
    "state=succeeded",
    "state=failed",
    "state=cancelled",
    "state=failed&state=cancelled",
    "state=suspended",
    "user=ada",
    "user=user-11",
    "user=nobody",
    "queue=default",
    f"queue={full_store.RARE_QUEUE}",
    "queue=none",
    "name=old",
    "name=run-400",
    "name=none",
    "user=ada&state=failed",
    "user=user-11&state=cancelled",
    "user=nobody&state=succeeded",
    "user=ada&queue=default",
    f"user=ada&queue={full_store.RARE_QUEUE}",
    "user=nobody&queue=default",
    f"queue={full_store.RARE_QUEUE}&state=failed",
    f"queue={full_store.RARE_QUEUE}&name=old",
    "name=old&state=cancelled",
    "name=old&user=user-11",
    "name=old&user=nobody",
    "name=run-400&user=ada&queue=default&state=succeeded",
    "behind={middle}",
    "behind={last}",
    "user=user-11&behind={middle}",
    "name=run-400&behind={middle}",
    "name=old&state=failed&behind={last}",
)
"""Of lists with the jobs that have ended; behind ``middle`` half of these stand, behind ``last`` a few."""
LISTS = (
    *("/portal/jobs", "/portal/jobs?order=line", "/portal/jobs?order=cards"),
    *("/portal/jobs?state=queued", "/portal/jobs?state=queued&name=waits-7"),
)
REPORTS = tuple(
    f"/portal/{path}since=2023-11-01&until=2024-02-28"
    for path in (
        *(f"reports?by={by}&" for by in ("user", "group", "queue", "kind", "model", "month", "job")),
        "reports?by=job&user=user-11&",
        *(f"reports/waits?by={by}&" for by in ("group", "user", "queue")),
        "reports/waits/jobs?",
        "reports/waits/jobs?cards=3-4&",
        "reports/mine?",
        "reports.csv?",
        "reports/waits.csv?",
    )
)
HISTORIES = tuple(
    f"/portal/history{query}" for query in ("", "?back=week", "?back=month", "?subject=queues&back=month")
)
QUOTAS = ("/portal/queues", "/portal/queues/default", "/portal/cells", "/portal/reservations")
OTHERS = (*QUOTAS, "/portal/nodes", *REPORTS, *HISTORIES, "/metrics")
RUNS, REPORTED = 20, 10_000
_REPORT = """awk 'BEGIN { for (n = 0; n < COUNT; n++) {
  loss = 1 / (1 + n / 100) + rand() / 10
  printf "{\\"at\\": %d, \\"step\\": %d, \\"values\\": {\\"loss\\": %f}}\\n", 1764000000 + n, n, loss
} }' >> "$MILLPOND_METRICS" """
_QUEUES_REMEMBERED = 20
_PAINTS = 5
_FETCH = """async (path) => {
  const csrf = document.querySelector("meta[name=csrf-token]").content;
  const answer = await fetch(path, { headers: { "X-CSRF-Token": csrf } });
  window.answered = await answer.text();
}"""
_TAKE_OVER = """async () => {
  const given = async () => new Response(window.answered);
  await htmx.ajax("GET", location.pathname, { source: document.getElementById("main"), fetch: given });
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""
"""What the page does on a change, but for waiting for the server, up to its next picture."""


def lists(ended: int) -> list[str]:
    """The addresses of all lists, with so many jobs that have ended."""
    places = {"middle": f"old-{ended // 2:06d}", "last": f"old-{min(50, ended - 1):06d}"}
    return [*LISTS, *(f"/portal/jobs?all=true&{each}".rstrip("&").format_map(places) for each in FILTERS)]


def report_curves(client: Client) -> str:
    """Have an array of runs report a metric many times, and end; returns the page of their curves."""
    command = ["sh", "-c", _REPORT.replace("COUNT", str(REPORTED))]
    runs = {"name": "reports", "array": f"0-{RUNS - 1}", "cpus": "10m", "memory": "10MiB", "command": command}
    array = client.submit(runs)
    client.wait(array.id)
    note(f"{RUNS} runs have reported {REPORTED} times")
    return f"/portal/curves?job={array.id}"


@contextlib.contextmanager
def waiting_in_line(client: Client, jobs: int) -> Iterator[None]:
    """Have one job run, and so many wait for it; none of them ever starts."""
    user = client.accounts.whoami().user
    client.accounts.change_user(user, UserChange(limits=AccountLimits(jobs=1)))
    running = client.submit({"name": "runs", "gpus": 4, "command": ["sleep", "3600"]})
    try:
        _line_up(client, jobs)
        yield
    finally:
        client.accounts.change_user(user, UserChange(limits=AccountLimits(jobs=0)))
        client.stop(running.id)
        client.wait(running.id)


def _line_up(client: Client, jobs: int) -> None:
    for begin in range(0, jobs, _TOGETHER):
        several = range(begin, min(begin + _TOGETHER, jobs))
        client.submit_together([{"name": f"waits-{n % 50}", "gpus": 1 + n % 8, "command": ["true"]} for n in several])
        note(f"{several.stop} jobs wait")


def times_of(served: ServedPond, ask: httpx2.Client, path: str, rounds: int) -> dict[str, Any]:
    """How long a page takes, how much CPU time of the server, and how large it is."""
    took, used = [], served.cpu_s()
    for _ in range(rounds):
        begun = time.perf_counter()
        answer = ask.get(path)
        took.append(1000 * (time.perf_counter() - begun))
        answer.raise_for_status()
    return {
        "page": path,
        "median_ms": statistics.median(took),
        "worst_ms": max(took),
        "cpu_ms": 1000 * (served.cpu_s() - used) / rounds,
        "kb": len(answer.content) / 1000,
    }


def painted(link: str) -> dict[str, float] | None:
    """When a browser first paints the overview, and how long its main thread computes to follow a change."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if chromium is None:
        return None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(BROWSER_OPTIONS))
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.goto(link)
        page.wait_for_url("**/portal/")
        paints, updates = [], []
        for _ in range(_PAINTS):
            page.reload()
            page.wait_for_timeout(1_000)
            paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        for number in range(2 * _PAINTS):
            page.evaluate(_FETCH, OVERVIEW[1 - number // 2 % 2])
            before = computed_s(session)
            page.evaluate(_TAKE_OVER)
            updates.append(1000 * (computed_s(session) - before))
        browser.close()
    return {
        "first_paint_ms": statistics.median(paints),
        "update_of_all_ms": statistics.median(updates[::2]),
        "update_of_little_ms": statistics.median(updates[1::2]),
    }


def computed_s(session: CDPSession) -> float:
    """CPU seconds of the main thread of a page."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


def measured(state_dir: Path, url: str, options: Namespace) -> tuple[list[dict[str, Any]], dict[str, float] | None]:
    """The times of all pages, and what a browser sees of the overview.

    Args:
        url: of the database; empty: the state directory's own.
    """
    full_store.fill(state_dir, options.ended, url=url, with_files=False)
    full_store.remember_pool(state_dir, time.time(), MODEL, _QUEUES_REMEMBERED, url=url)
    note(f"{options.ended} ended jobs are stored")
    stored = ["--store", url] if url else []
    with ServedPond(state_dir, ["--fake-gpus", f"{options.nodes}x8:{MODEL}", *stored]) as served:
        served.up()
        with served.client() as client:
            curves = report_curves(client)
            with waiting_in_line(client, options.waiting):
                link = client.accounts.portal_link().url
                bearer = {"Authorization": f"Bearer {client.address.token}"}
                with httpx2.Client(base_url=client.address.url, headers=bearer, timeout=60, trust_env=False) as ask:
                    ask.get("/portal/")  # the first page reads the templates
                    wanted = (*OVERVIEW, *lists(options.ended), *OTHERS, curves)
                    pages = [times_of(served, ask, path, options.rounds) for path in wanted]
                browser = painted(link)
        served.abandon()
    return pages, browser


@program
def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure, and print what came out."""
    parser = command_line(__doc__)
    parser.add_argument("--nodes", type=int, default=5_000, help="machines of eight cards [5000]")
    parser.add_argument("--waiting", type=int, default=10_000, help="jobs that wait [10000]")
    parser.add_argument("--ended", type=int, default=100_000, help="jobs that have ended [100000]")
    parser.add_argument("--portals", type=int, default=200, help="portals that are open while jobs come and go [200]")
    parser.add_argument("--postgresql", action="store_true", help="have the server store in a PostgreSQL of its own")
    parser.add_argument("--rounds", type=int, default=5, help="requests for each page [5]")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory(prefix="millpond-portal-"))
        url = held.enter_context(own_postgresql()) if options.postgresql else ""
        pages, browser = measured(Path(folder) / "state", url, options)
    with tempfile.TemporaryDirectory(prefix="millpond-portal-") as folder:
        crowd = crowded(Path(folder) / "state", options.portals)
    scene = {"nodes": options.nodes, "waiting": options.waiting, "ended": options.ended}
    result = {**scene, "pages": pages, "browser": browser, "crowd": crowd}
    columns = ("median_ms", "worst_ms", "cpu_ms", "kb")
    table = Table("page", "median ms", "worst ms", "CPU ms", "kB", texts=1)
    for each in pages:
        table.add(each["page"], *(f"{each[column]:.0f}" for column in columns))
    seen = "first paint: not measured, as chromium or playwright is not installed"
    if browser is not None:
        seen = (
            f"overview: first paint {browser['first_paint_ms']:.0f} ms, "
            f"CPU of the main thread for an update {browser['update_of_little_ms']:.0f} ms, "
            f"{browser['update_of_all_ms']:.0f} ms where each machine has changed"
        )
    with_portals = (
        f"{options.portals} open portals while {crowd['ended_a_second']:.1f} jobs a second start and end: server "
        f"{crowd['cpu_percent']:.0f} % of a core, {crowd['cpu_percent_without']:.0f} % without them, "
        f"{crowd['pages_a_second']:.1f} pages a second"
    )
    emit(result, options.json, [table, seen, with_portals])
    return result


if __name__ == "__main__":
    main()
