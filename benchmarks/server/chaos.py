"""What a server that is killed at random moments loses or does twice: nothing, or this program says what.

While jobs are submitted, stopped and followed without pause, the server is killed with SIGKILL again and again: some
time after it was ready, or in the middle of starting. Each submission is repeated with its key until it is accepted.
In the end every accepted job must have reached exactly one end, no task may ever have run twice at once, no line of
output may be missing or doubled, as kept and with those who followed, and the whole limit of the queue must be free.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.reporting import Table, command_line, emit, note, program
from benchmarks.server import chaos_jobs as jobs
from benchmarks.server.chaos_checks import Findings, check
from benchmarks.server.served import ServedPond
from millpond.client.sdk import Client
from millpond.model.errors import ConflictError, UnavailableError
from millpond.specs.api.jobs.logs import FIRST_CURSOR

MOST_LIVE = 24
"""Submitting pauses while so many jobs live, so that the line stays short."""
SETTLED_WITHIN_S = 300.0
FOLLOWED_WITHIN_S = 1_800.0
_LOOKS_EVERY_S = 0.7
_STARTING_S = (0.05, 2.0)
_RUNNING_S = (0.0, 1.2)


@dataclass(slots=True)
class Stream:
    """What people do meanwhile; filled by several threads.

    Attributes:
        accepted: job id by key.
        kinds: by key.
        stops: keys of jobs whose end was asked for, and accepted.
        followed: what a follower got, by job id.
        broken: what ended one of the threads; always a finding.
        over: nothing more is to be submitted.
        all_in: the answer to the last submission has come, so ``accepted`` is complete.
    """

    book: Path
    lots: random.Random
    accepted: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, jobs.Kind] = field(default_factory=dict)
    stops: set[str] = field(default_factory=set)
    followed: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    all_in: threading.Event = field(default_factory=threading.Event)


@program
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when nothing was lost or doubled."""
    parser = command_line(__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how often the server is killed [200]")
    parser.add_argument("--seed", type=int, default=1, help="of the lots for kinds and moments [1]")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="millpond-chaos-"))
    findings = torment(directory, options.kills, options.seed)
    result = {"kills": options.kills, "seed": options.seed, "took_s": round(time.monotonic() - began, 1)}
    result |= findings.as_json()
    table = Table("what", "count", texts=1)
    for name, count in (("kills", options.kills), *findings.counts.items()):
        table.add(name, str(count))
    emit(result, options.json, [table, *(f"WRONG: {what}" for what in findings.wrong)])
    if findings.wrong:
        note(f"the state directory is kept in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


def torment(directory: Path, kills: int, seed: int) -> Findings:
    """Kill a server so many times under load, let everything end, and look what came of it."""
    config = directory / "cluster.yaml"
    config.write_text(jobs.configuration())
    book = directory / "book"
    (book / jobs.LOCKS).mkdir(parents=True)
    stream = Stream(book, random.Random(seed))
    moments = random.Random(seed + 1)
    with ServedPond(directory / "state", ["--config", str(config)]) as pond:
        pond.up()
        threads = [
            threading.Thread(target=_guarded, args=(stream, each, pond), daemon=True)
            for each in (_submit, _stop, _follow, _follow)
        ]
        for thread in threads:
            thread.start()
        counts = Counter[str]()
        for number in range(kills):
            note(f"kill {number + 1} of {kills}; {len(stream.accepted)} jobs accepted")
            if moments.random() < 0.5:
                pond.await_ready()
                time.sleep(moments.uniform(*_RUNNING_S))
                counts["killed while serving"] += 1
            else:
                time.sleep(moments.uniform(*_STARTING_S))
                counts["killed at any moment"] += 1
            pond.kill()
            pond.launch()
        pond.await_ready()
        _wind_up(stream, *threads)
        _let_end(pond, stream)
        findings = check(pond, stream.book, stream)
        findings.counts = dict(counts) | findings.counts
        return findings


def _wind_up(stream: Stream, submitting: threading.Thread, *others: threading.Thread) -> None:
    """Submitting ends first: what is repeated until a server accepts it may be accepted after the last kill."""
    stream.over.set()
    submitting.join(2 * SETTLED_WITHIN_S)
    stream.all_in.set()
    for thread in others:
        thread.join(SETTLED_WITHIN_S)


def _guarded(stream: Stream, act: Callable[[ServedPond, Stream], None], pond: ServedPond) -> None:
    """Whatever ends a thread early is a finding."""
    try:
        act(pond, stream)
    except Exception as error:
        stream.broken.append(f"{act.__name__.strip('_')} ended early: {error!r}")


def _submit(pond: ServedPond, stream: Stream) -> None:
    """One job after the other; each with a key, again and again until it is accepted."""
    with pond.client(5.0) as client:
        number = 0
        while not stream.over.is_set():
            kind = jobs.draw(stream.lots)
            key = f"{kind.name}-{number}"
            number += 1
            stream.kinds[key] = kind
            job = _insist(client, lambda key=key, kind=kind: client.submit(jobs.document(kind, key, stream.book)))
            stream.accepted[key] = job.id
            while not stream.over.is_set() and _insist(client, lambda: _live(client)) >= MOST_LIVE:
                time.sleep(0.1)


def _stop(pond: ServedPond, stream: Stream) -> None:
    """Jobs of the kind that goes on for ever are asked to end, some twice, some before they ever ran."""
    with pond.client(5.0) as client:
        while True:
            finishing = stream.all_in.is_set()
            for key, job_id in list(stream.accepted.items()):
                if stream.kinds[key].stopped and key not in stream.stops:
                    _insist(client, lambda job_id=job_id: _stopped(client, job_id))
                    stream.stops.add(key)
            if finishing:
                return
            stream.all_in.wait(_LOOKS_EVERY_S)


def _stopped(client: Client, job_id: str) -> None:
    try:
        client.stop(job_id)
    except ConflictError:
        return  # it was asked before, the answer got lost, and it has ended


def _follow(pond: ServedPond, stream: Stream) -> None:
    """Follow one job after the other to its end, through all deaths of the server."""
    with pond.client(5.0) as client:
        while not stream.over.is_set():
            accepted = list(stream.accepted.items())
            free = [job for key, job in accepted if job not in stream.followed and not stream.kinds[key].members]
            if not free:
                time.sleep(0.05)
                continue
            job_id = free[-1]
            stream.followed[job_id] = ""
            stream.followed[job_id] = _followed(client, job_id)


def _followed(client: Client, job_id: str) -> str:
    """All that a job prints. Whom patience leaves, as no server lived long enough, asks again from where they were."""
    text, cursor = "", FIRST_CURSOR
    give_up_at = time.monotonic() + FOLLOWED_WITHIN_S
    while True:
        try:
            for chunk in client.logs(job_id, follow=True, cursor=cursor):
                text, cursor = text + chunk.data, chunk.cursor or cursor
        except UnavailableError:
            if time.monotonic() > give_up_at:
                raise
        else:
            return text


def _live(client: Client) -> int:
    return len(client.jobs(limit=MOST_LIVE).jobs)


def _insist(client: Client, ask: Callable[[], object]) -> object:
    """Ask again until there is a server that answers."""
    give_up_at = time.monotonic() + SETTLED_WITHIN_S
    while True:
        try:
            return ask()
        except UnavailableError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)
        try:
            client.reconnect()
        except UnavailableError:
            continue  # between two servers


def _let_end(pond: ServedPond, stream: Stream) -> None:
    """Wait until no job lives."""
    give_up_at = time.monotonic() + SETTLED_WITHIN_S
    with pond.client() as client:
        while (left := _live(client)) and time.monotonic() < give_up_at:
            time.sleep(0.1)
    if left:
        stream.broken.append(f"{left} jobs have not ended within {SETTLED_WITHIN_S:g} s")


if __name__ == "__main__":
    raise SystemExit(main())
