"""What ``chaos.py`` looks at when all is over: the tasks' own journal against what the server says."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.server import chaos_jobs as jobs
from benchmarks.server.served import ServedPond
from millpond.client.sdk import Client
from millpond.specs.api.jobs.jobs import JobInfo

_LINE = re.compile(r"(\S+) (\d+) (\d+) line (\d+)")
_SHELLS_NOTICE = "Terminated"
"""What a shell says when the notice to end reached the command below it first."""
_ALL_START_WITHIN_S = 180.0
_SHOWN = 20


class Observed(Protocol):
    """What those who submitted, stopped and followed know."""

    accepted: dict[str, str]
    kinds: dict[str, jobs.Kind]
    stops: set[str]
    followed: dict[str, str]
    broken: list[str]


@dataclass(slots=True)
class Findings:
    """What was counted, and everything that should not be."""

    counts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {"counts": self.counts, "wrong": self.wrong}


def check(pond: ServedPond, book: Path, seen: Observed) -> Findings:
    """Hold the journal, the store, the logs and the ledger against each other."""
    findings = Findings(wrong=list(seen.broken))
    with pond.client() as client:
        listed = client.jobs(ended=True, limit=10_000).jobs
        by_id = {job.id: job for job in listed}
        _expand_arrays(findings, seen, by_id, client)
        _check_ends(findings, seen, by_id)
        _check_runs(findings, seen, by_id, book)
        _check_output(findings, seen, client)
        _check_room(findings, client)
    findings.wrong = findings.wrong[:_SHOWN]
    return findings


def _expand_arrays(findings: Findings, seen: Observed, by_id: dict[str, JobInfo], client: Client) -> None:
    """From here on, the members of an array are looked at in its place."""
    arrays = [(key, job_id) for key, job_id in seen.accepted.items() if seen.kinds[key].members]
    for key, job_id in arrays:
        kind, array = seen.kinds[key], by_id.pop(job_id, None)
        members = client.jobs(ended=True, limit=10_000, members_of=job_id).jobs
        by_id.update((member.id, member) for member in members)
        del seen.accepted[key]
        for index in range(kind.members):
            seen.accepted[f"{key}.{index}"], seen.kinds[f"{key}.{index}"] = f"{job_id}.{index}", kind
        told = None if array is None or array.array is None else (array.state, array.array.succeeded)
        if told != (kind.end, kind.members):
            findings.wrong.append(f"{job_id} ({key}) tells of its {kind.members} members: {told}")
    findings.counts["arrays"] = len(arrays)


def _check_ends(findings: Findings, seen: Observed, by_id: dict[str, JobInfo]) -> None:
    """Every accepted submission is one job, and has the one end that it should have."""
    wrong = findings.wrong
    ids = Counter(seen.accepted.values())
    wrong += [f"job {job} was given for {count} submissions" for job, count in ids.items() if count > 1]
    wrong += [f"job {job} was accepted and is not there" for job in ids if job not in by_id]
    wrong += [f"job {job} is there and nobody submitted it" for job in by_id if job not in ids]
    ends: Counter[str] = Counter()
    for key, job_id in seen.accepted.items():
        job = by_id.get(job_id)
        if job is None:
            continue
        kind = seen.kinds[key]
        ends[job.state] += 1
        allowed = "cancelled" if kind.stopped else kind.end
        if job.state != allowed:
            wrong.append(f"{job_id} ({key}) is {job.state}, should be {allowed}")
        if job.attempt > kind.attempts:
            wrong.append(f"{job_id} ({key}) had {job.attempt} attempts, needs {kind.attempts}")
    findings.counts["accepted"] = len(seen.accepted)
    for state, count in sorted(ends.items()):
        findings.counts[state] = count


def _check_runs(findings: Findings, seen: Observed, by_id: dict[str, JobInfo], book: Path) -> None:
    """By the journal: each run of each task began once; what succeeded ran to its end."""
    wrong = findings.wrong
    violations = _lines(book / jobs.VIOLATIONS)
    wrong += [f"a task found itself running already: {line}" for line in violations]
    journal = Counter(_lines(book / jobs.JOURNAL))
    wrong += [f"the journal says {count} times: {line}" for line, count in journal.items() if count > 1]
    for key, job_id in seen.accepted.items():
        job = by_id.get(job_id)
        if job is None or job.state != "succeeded":
            continue
        missing = [task.task for task in job.tasks if f"end {key} {job.attempt} {task.task}" not in journal]
        if missing:
            wrong.append(f"{job_id} ({key}) succeeded, and tasks {missing} never came to their end")
    findings.counts["runs of tasks"] = sum(line.startswith("start") for line in journal)
    findings.counts["tasks found running twice"] = len(violations)


def _check_output(findings: Findings, seen: Observed, client: Client) -> None:
    """Each run of each task printed 1, 2, 3 ...: nothing may be missing in between, nothing may come twice."""
    followed_lines = kept_lines = 0
    for key, job_id in seen.accepted.items():
        kept = "".join(chunk.data for chunk in client.logs(job_id, cursor="1:", follow=True))
        kept_lines += kept.count("\n")
        _check_lines(findings, seen, key, kept)
        followed = seen.followed.get(job_id)
        if followed:
            followed_lines += followed.count("\n")
            if sorted(followed.splitlines()) != sorted(kept.splitlines()):
                findings.wrong.append(f"who followed {job_id} ({key}) got other lines than were kept")
    findings.counts["lines kept"] = kept_lines
    findings.counts["lines followed"] = followed_lines


def _check_lines(findings: Findings, seen: Observed, key: str, text: str) -> None:
    kind = seen.kinds[key]
    runs: dict[tuple[str, str], list[int]] = defaultdict(list)
    for line in text.splitlines():
        if kind.stopped and line == _SHELLS_NOTICE:
            continue
        match = _LINE.fullmatch(line)
        if match is None or match[1] != key:
            findings.wrong.append(f"a line of {key} is not whole: {line!r}")
        else:
            runs[match[2], match[3]].append(int(match[4]))
    for run, numbers in runs.items():
        if numbers != list(range(1, len(numbers) + 1)) or (not kind.stopped and len(numbers) != kind.lines):
            findings.wrong.append(f"lines of {key}, run {run}, as kept: {numbers[:50]}")


def _check_room(findings: Findings, client: Client) -> None:
    """Nothing is held any more; and one gang that takes the whole limit of the queue starts."""
    for node in client.nodes():
        held = [holder for device in node.devices for holder in device.holders]
        if held or node.free_cpu_milli != node.cpu_milli or node.free_memory_mib != node.memory_mib:
            findings.wrong.append(f"node {node.name} is not free: {held}")
    whole = {"name": "whole", "queue": jobs.QUEUE, "gpus": 1, "tasks": jobs.SLOTS, "cpus": "10m", "memory": "1MiB"}
    job = client.submit({**whole, "command": ["true"]})
    give_up_at = time.monotonic() + _ALL_START_WITHIN_S
    while (job := client.job(job.id)).state != "succeeded":
        if time.monotonic() > give_up_at:
            findings.wrong.append(f"a job that takes the whole limit is {job.state}: {job.reason}")
            return
        time.sleep(0.05)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
