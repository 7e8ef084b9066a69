"""The jobs that a server ran, exported and played through the simulator."""

from __future__ import annotations

import csv
import json

import pytest
from real_pond import Pond

pytestmark = pytest.mark.long


def test_the_jobs_of_a_server_are_replayed_by_the_simulator(running: Pond, tmp_path):
    assert running("run", "--gpus", "1", "--name", "short", "--", "sleep 0.3").returncode == 0
    assert running("run", "--gpus", "0.25", "--", "true").returncode == 0
    gang = tmp_path / "gang.yaml"
    gang.write_text("name: gang\ncommand: sleep 0.2\ngpus: 2\ntasks: 2\n")
    assert running("wait", running.printed("submit", str(gang))).returncode == 0
    live = running.printed("run", "-d", "--", "sleep 600")
    done = running("history", "export", "jobs.csv")
    assert done.returncode == 0, done.stderr
    assert "3 jobs in jobs.csv; left out: 1 wait or run still" in done.stderr
    command = done.stderr.splitlines()[-1].split("`")[1]
    assert command == "pond replay --format native --jobs jobs.csv --cluster 2x4:V100"
    running.env["NUMBA_DISABLE_JIT"] = "1"  # to compile them takes longer than to replay three jobs
    replayed = running(*command.split()[1:], "--json", "-")
    assert replayed.returncode == 0, replayed.stderr
    result = json.loads(replayed.stdout)
    assert (result["jobs"], result["unfinished"]) == (3, 0)
    assert running("history", "export", "-", "--since", "2099-01-01").returncode == 4
    assert "3 jobs in -" in running("history", "export", "-", "--since", "1h").stderr
    rows = list(csv.DictReader(running("history", "export", "-").stdout.splitlines()))
    assert [(row["gpus"], row["gpu_milli"], row["tasks"]) for row in rows] == [
        ("1", "1000", ""),
        ("1", "250", ""),
        ("4", "1000", "2"),
    ]
    assert 0.3 <= float(rows[0]["duration_s"]) < 60
    assert running("stop", live).returncode == 0
