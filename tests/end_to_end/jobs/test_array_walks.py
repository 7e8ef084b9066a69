"""Arrays with real processes: a server killed on the way, one member at a time, and many at once."""

from __future__ import annotations

import json

import pytest
from real_pond import until

pytestmark = pytest.mark.long


def test_an_array_whose_server_is_killed_again_and_again_runs_each_member_once(running, tmp_path):
    ran = tmp_path / "ran"
    script = f"echo $MILLPOND_ARRAY_INDEX >> {ran}; sleep 0.2"
    array = running.printed("run", "--detach", "--cpus", "100m", "--array", "40%6", "--", "sh", "-c", script)
    for done in (3, 12, 25):
        until(lambda done=done: ran.exists() and len(ran.read_text().splitlines()) >= done)
        running.kill_server()
        running.up()
    ended = running("wait", array)
    assert (ended.returncode, ended.stdout) == (0, f"{array}: succeeded\n")
    assert sorted(map(int, ran.read_text().split())) == list(range(40))
    assert running.job(array)["array"]["succeeded"] == 40


def test_members_are_stopped_one_by_one_or_all_at_once(running):
    array = running.printed("run", "--detach", "--array", "20%2", "--", "sleep", "300")
    until(lambda: running.job(array)["array"]["running"] == 2)
    assert running("stop", f"{array}[0]", f"{array}[19]").returncode == 0
    until(lambda: running.job(array)["array"]["cancelled"] == 2)
    members = json.loads(running.printed("ps", "--members", array, "-o", "json"))["jobs"]
    states = {member["index"]: member["state"] for member in members}
    assert (states[0], states[19]) == ("cancelled", "cancelled")
    assert running("why", array).stdout.startswith(f"{array}: running")
    assert running("stop", array).returncode == 0
    ended = running("wait", array)
    assert (ended.returncode, ended.stdout) == (143, f"{array}: cancelled\n")
    assert running("logs", array).returncode == 2
    assert f"name a member: {array}.0" in running("logs", array).stderr


def test_a_wrong_array_is_refused_with_its_place(running, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("command: true\narray: 9-1\n")
    refused = running("submit", str(file))
    assert refused.returncode == 2
    assert f"{file}:2:8" in refused.stderr
    refused = running("submit", "--array", "x", str(file))
    assert refused.returncode == 2
    assert "'x' is neither an index nor a range" in refused.stderr
