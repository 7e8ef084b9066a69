"""How fast the platform is on one machine, with real processes: from submission to result, under load, after a restart.

Each row starts a server of its own. All runs on this machine at once: the server, the jobs, and whoever asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.calibration import calibration_rate
from benchmarks.lean_http import LeanConnection
from benchmarks.reporting import Row, command_line, emit, note, program, table_of
from benchmarks.server.full_store import fill
from benchmarks.server.own_postgresql import own_postgresql, what_is_missing
from benchmarks.server.served import ServedPond
from millpond.client.sdk import Client
from millpond.model.errors import ConflictError
from millpond.specs.api.base import API_PREFIX
from millpond.specs.api.jobs.logs import FIRST_CURSOR

CARDS = "4x8:V100-32GB"
SMALL = {"cpus": "10m", "memory": "1MiB"}
SLEEPING = {**SMALL, "name": "live", "command": ["sleep", "600"], "checkpoint": {"grace": "1s"}}
SUBMITTERS = 4
CLIENTS = 200
THINK_S = 1.0
"""Between two requests of one client, on average."""
REQUESTS_EACH = 15
IDLE_S = 20.0
SWITCHES = 5
MEMBERS_FOR_S = 20.0
"""How long an array is watched at work."""


@program
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = command_line(__doc__)
    parser.add_argument("--only", choices=list(MEASUREMENTS), action="append", help="only this; may be repeated")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the jobs and requests, for a quick look [1]")
    options = parser.parse_args(arguments)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled once, not at every start
    rows: list[Row] = []
    rates: dict[str, float] = {}
    # What a row leaves is removed after the last: on ext4 new files cost more for a while after many were removed.
    with tempfile.TemporaryDirectory(prefix="millpond-speed-") as directory:
        for name in options.only or MEASUREMENTS:
            rates[name] = calibration_rate()
            note(f"measuring: {name} (calibration: {rates[name] / 1e6:.0f} million additions a second)")
            (Path(directory) / name).mkdir()
            rows += MEASUREMENTS[name](Path(directory) / name / "state", options.scale)
    result = {"calibration_rates": rates, "scale": options.scale}
    emit(result | {"rows": [row.plain for row in rows]}, options.json, [table_of(rows)])
    return 0


def throughput(state_dir: Path, scale: float) -> list[Row]:
    """Short jobs on 32 slots, from the first submission to the last end."""
    count = max(int(1_000 * scale), 1)
    job = {**SMALL, "name": "brief", "gpus": 1, "command": ["true"]}
    with ServedPond(state_dir, ["--fake-gpus", CARDS]) as pond:
        pond.up()

        def submit(part: int) -> None:
            with pond.client() as client:
                for _ in range(part, count, SUBMITTERS):
                    client.submit(job)

        cpu_s, began = pond.cpu_s(), time.monotonic()
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            list(pool.map(submit, range(SUBMITTERS)))
        accepted_s = time.monotonic() - began
        with pond.client() as client:
            while client.jobs(limit=1).jobs:
                time.sleep(0.05)
            took_s = time.monotonic() - began
            states = client.server().jobs
        assert states == {"succeeded": count}, states
        return [
            Row("short jobs, submit to all done", count / took_s, "jobs/s", 50.0, least=True),
            Row("  of which accepted", count / accepted_s, "jobs/s"),
            Row("  CPU of the server per job", 1e3 * (pond.cpu_s() - cpu_s) / count, "ms"),
        ]


def array(state_dir: Path, scale: float) -> list[Row]:
    """One array of many members: until it is accepted, until its first member has ended, and at which pace they end."""
    count = max(int(10_000 * scale), 1)
    job = {**SMALL, "name": "many", "gpus": 1, "command": ["true"], "array": count}
    with ServedPond(state_dir, ["--fake-gpus", CARDS]) as pond:
        pond.up()
        with pond.client() as client:
            began = time.monotonic()
            name = client.submit(job).id
            accepted_s = time.monotonic() - began
            cpu_s = pond.cpu_s()
            info = client.job(name)
            while info.array is None or not info.array.ended:
                time.sleep(0.01)
                info = client.job(name)
            first_s = time.monotonic() - began
            time.sleep(MEMBERS_FOR_S * scale)
            early, early_at = info.array.ended, began + first_s
            info = client.job(name)
            assert info.array is not None, info
            pace = (info.array.ended - early) / (time.monotonic() - early_at)
            pond_cpu_s = pond.cpu_s() - cpu_s
            with contextlib.suppress(ConflictError):  # a short one has ended by itself
                client.stop(name)
    return [
        Row(f"array of {count}, submit to accepted", accepted_s, "s", 5.0),
        Row("  until its first member has ended", first_s, "s"),
        Row("  members ended", pace, "jobs/s", 50.0, least=True),
        Row("  CPU of the server per member", 1e3 * pond_cpu_s / max(info.array.ended, 1), "ms"),
    ]


def latency(state_dir: Path, scale: float) -> list[Row]:
    """One job at a time on an idle machine, from the submission to its first line at the client."""
    job = {**SMALL, "name": "hello", "gpus": 1, "command": ["echo", "hello"]}
    times: list[float] = []
    with ServedPond(state_dir, ["--fake-gpus", CARDS]) as pond:
        pond.up()
        with pond.client() as client:
            for _ in range(max(int(100 * scale), 3)):
                began = time.monotonic()
                _first_line(client, client.submit(job).id)
                times.append(time.monotonic() - began)
                time.sleep(0.1)
    return [
        Row("submit to first line, p50", 1e3 * statistics.median(times), "ms", 150.0),
        Row("submit to first line, p99", 1e3 * _p99(times), "ms", 500.0),
    ]


def listing(state_dir: Path, scale: float) -> list[Row]:
    """Lists beside 10,000 ended and 200 living jobs."""
    fill(state_dir, int(10_000 * scale))
    with ServedPond(state_dir, ["--fake-gpus", CARDS]) as pond:
        pond.up()
        _submit_living(pond, int(200 * scale))
        commands = [["ps"], ["ps", "-a"]]
        cpu_s = {
            " ".join(command): statistics.median(_pond_cpu_s(pond, command) for _ in range(5)) for command in commands
        }
        with pond.client() as client:
            pages = {
                "living": _times(lambda: client.jobs(limit=200), 200),
                "all": _times(lambda: client.jobs(ended=True, limit=200), 200),
            }
    return [
        *(Row(f"pond {command}, CPU of the client", value, "s", 0.3) for command, value in cpu_s.items()),
        *(Row(f"page of 200 jobs ({name}), p99", 1e3 * _p99(times), "ms", 50.0) for name, times in pages.items()),
    ]


def crowd(state_dir: Path, scale: float) -> list[Row]:
    """Many clients at once: they list, look, ask why, submit and stop."""
    with ServedPond(state_dir, ["--fake-gpus", CARDS]) as pond:
        pond.up()
        _submit_living(pond, 50)
        with pond.client() as client:
            address = client.address
        clients = max(int(CLIENTS * scale), 2)
        cpu_s, own_s = pond.cpu_s(), time.process_time()
        times, errors = asyncio.run(_crowd(address.url, address.token, clients))
        cpu_s, own_s = pond.cpu_s() - cpu_s, time.process_time() - own_s
    return [
        Row(f"{clients} clients, a request each {THINK_S:g} s: p99", 1e3 * _p99(times), "ms", 250.0),
        Row("  p50", 1e3 * statistics.median(times), "ms"),
        Row("  errors", float(errors), "", 0.0),
        Row("  CPU of the server per request", 1e3 * cpu_s / len(times), "ms"),
        Row("  CPU of the clients per request", 1e3 * own_s / len(times), "ms"),
    ]


def restart(state_dir: Path, scale: float) -> list[Row]:
    """From the launch of a server behind a killed one until a new job runs."""
    stored, living = int(20_000 * scale), int(200 * scale)
    fill(state_dir, stored)
    with ServedPond(state_dir, ["--fake-gpus", CARDS]) as pond:
        pond.up()
        _submit_living(pond, living)
        pond.kill()
        began = time.monotonic()
        ready_s, cpu_s = pond.up(), pond.cpu_s()
        with pond.client() as client:
            job = client.submit({**SMALL, "command": ["echo", "hello"]})
            _first_line(client, job.id)
            scheduling_s = time.monotonic() - began
            client.wait(job.id)
            states = client.server().jobs
        assert (states["running"], sum(states.values())) == (living, living + stored + 1), states
    return [
        Row(f"restart with {stored} stored, {living} running: until a new job runs", scheduling_s, "s", 3.0),
        Row("  until it takes requests", ready_s, "s"),
        Row("  CPU of the server for that", cpu_s, "s"),
    ]


def switch_over(state_dir: Path, scale: float) -> list[Row]:
    """Two servers on one PostgreSQL: the one that leads is killed until a new job runs with the other, turn by turn."""
    if missing := what_is_missing():
        note(f"not measured: {missing}")
        return []
    living = int(200 * scale)
    times: list[float] = []
    with own_postgresql() as url:
        options = ["--fake-gpus", CARDS, "--store", url, "--standby"]
        with ServedPond(state_dir, options) as leading, ServedPond(state_dir, options) as waiting:
            leading.up()
            _submit_living(leading, living)
            for _ in range(SWITCHES):
                waiting.launch()
                waiting.await_standby()
                began = time.monotonic()
                leading.kill()
                waiting.await_ready()
                with waiting.client() as client:
                    _first_line(client, client.submit({**SMALL, "command": ["echo", "hello"]}).id)
                    times.append(time.monotonic() - began)
                    assert client.server().jobs["running"] >= living, client.server().jobs
                leading, waiting = waiting, leading
    return [
        Row(f"switch-over with {living} running: until a new job runs, p50", statistics.median(times), "s", 3.0),
        Row(f"  the worst of {SWITCHES}", max(times), "s"),
    ]


def idle(state_dir: Path, scale: float) -> list[Row]:
    """A server with a cluster large enough for compiled kernels, with nothing to do."""
    with ServedPond(state_dir, ["--fake-gpus", "64x8:V100-32GB"]) as pond:
        pond.up()
        with pond.client() as client:
            _first_line(client, client.submit({**SMALL, "gpus": 1, "command": ["echo", "hello"]}).id)
        while "kernels" not in (state_dir / "server.log").read_text():
            time.sleep(0.2)
        before = pond.cpu_s()
        time.sleep(IDLE_S * scale)
        return [
            Row("idle server, CPU", 100 * (pond.cpu_s() - before) / (IDLE_S * scale), "% of a core", 1.0),
            Row("idle server, memory", pond.memory_mib(), "MiB", 250.0),
        ]


MEASUREMENTS: dict[str, Callable[[Path, float], list[Row]]] = {
    "throughput": throughput,
    "array": array,
    "latency": latency,
    "listing": listing,
    "crowd": crowd,
    "restart": restart,
    "switch-over": switch_over,
    "idle": idle,
}


async def _crowd(url: str, token: str, clients: int) -> tuple[list[float], int]:
    """Times of all requests in seconds, and how many failed."""
    times: list[float] = []
    errors = 0

    async def one(number: int) -> None:
        nonlocal errors
        lots = random.Random(number)
        own: list[str] = []
        async with LeanConnection(url, token) as http:
            await asyncio.sleep(lots.uniform(0, THINK_S))
            for _ in range(REQUESTS_EACH):
                method, path, body = _wish(lots, own)
                began = time.monotonic()
                status, answer = await http.request(method, f"{API_PREFIX}{path}", body)
                times.append(time.monotonic() - began)
                errors += status >= 400
                if method == "POST" and path == "/jobs" and status < 400:
                    own.append(json.loads(answer)["id"])
                await asyncio.sleep(lots.uniform(0, 2 * THINK_S))

    await asyncio.gather(*(one(number) for number in range(clients)))
    return times, errors


def _wish(lots: random.Random, own: list[str]) -> tuple[str, str, Any]:
    """What a client asks next: one in five submits, one in ten stops what it submitted."""
    chance = lots.random()
    if chance < 0.2 or not own:
        return "POST", "/jobs", SLEEPING
    if chance < 0.3:
        return "POST", f"/jobs/{own.pop()}/stop", None
    if chance < 0.6:
        return "GET", "/jobs?limit=50", None
    return "GET", f"/jobs/{lots.choice(own)}{'/why' if chance > 0.9 else ''}", None


def _first_line(client: Client, job_id: str) -> None:
    for chunk in client.logs(job_id, follow=True, cursor=FIRST_CURSOR):
        if chunk.data:
            return
    raise SystemExit(f"{job_id} printed nothing: {client.job(job_id)}")


def _submit_living(pond: ServedPond, count: int) -> None:
    """Jobs that run until they are ended."""
    with pond.client() as client:
        for _ in range(count):
            client.submit(SLEEPING)
        while any(job.state != "running" for job in client.jobs(limit=1_000).jobs):
            time.sleep(0.1)


def _pond_cpu_s(pond: ServedPond, arguments: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(Path(sys.executable).with_name("pond")), *arguments, "--state-dir", str(pond.state_dir)]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _times(ask: Callable[[], object], count: int) -> list[float]:
    # This program holds the server's code as well, to fill stores. A client does not: what a full collection of all
    # that takes (60 ms, every hundredth page) is not part of an answer.
    gc.collect()
    gc.freeze()
    times = []
    for _ in range(count):
        began = time.monotonic()
        ask()
        times.append(time.monotonic() - began)
    return times


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[min(int(len(times) * 0.99), len(times) - 1)]


if __name__ == "__main__":
    raise SystemExit(main())
