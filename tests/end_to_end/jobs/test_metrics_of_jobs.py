"""What jobs report, over their attempts, in a terminal; and what charts are drawn from, in Python."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from real_pond import Pond

from millpond.client.sdk import Client

pytestmark = pytest.mark.long

PROGRAM = """
import json, os, sys
first = os.environ["MILLPOND_ATTEMPT"] == "1"
with open(os.environ["MILLPOND_METRICS"], "a") as file:
    for step in range(0, 4) if first else range(2, 6):
        values = {"loss": 10 - step, **{f"m{number}": step for number in range(15)}}
        file.write(json.dumps({"at": 1.0, "step": step, "values": values}) + chr(10))
sys.exit(3 if first else 0)
"""


def test_metrics_are_those_of_all_attempts_and_of_all_members(running: Pond, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = ("--detach", "--retries", "1", "--workdir", str(tmp_path), "--", sys.executable, str(program))
    one = running.printed("run", *command)
    assert running("wait", one).returncode == 0, running("logs", one).stdout
    table = running("metrics", one)
    assert table.returncode == 0, table.stderr
    (loss,) = (line.split() for line in table.stdout.splitlines() if line.startswith("loss "))
    assert loss == ["loss", "0", "5", "5", "5", "10", "6"], "steps 0 to 5, of two attempts"
    assert len(table.stdout.splitlines()) == 17, "all metrics, and not the first alone"
    curves = json.loads(running.printed("metrics", one, "-o", "json"))["curves"]
    assert [each["values"] for each in curves if each["metric"] == "loss"] == [[10, 9, 8, 7, 6, 5]]
    first = json.loads(running.printed("metrics", one, "--attempt", "1", "-o", "json"))
    assert [point["step"] for point in first["series"][0]["points"]] == [0, 1, 2, 3]
    array = running.printed("run", "--array", "2", *command)
    assert running("wait", array).returncode == 0
    lines = running("metrics", array).stdout.splitlines()[1:]
    assert {line.split()[0] for line in lines} == {f"{array}.0", f"{array}.1"}
    assert "has reported no metrics" in running("metrics", running.printed("run", "-d", "--", "true")).stderr


def test_what_pages_show_can_be_asked_for_in_python(running: Pond) -> None:
    job = running.printed("run", "--detach", "--", "true")
    assert running("wait", job).returncode == 0
    with Client(state_dir=running.state_dir) as client:
        assert client.charts.cards_of(job).series == []
        assert client.charts.time_series("nodes").end > 0
        assert client.overview().models
        assert client.node(client.nodes()[0].name).devices
        assert client.settings().settings == {}
        assert client.cells().chains == []
        assert [each.job for each in client.waiting_jobs(cards="0").jobs] == [job]
        view = client.saved_views.save("bad ones", "state=failed")
        assert [each.query for each in client.saved_views.all()] == ["state=failed"]
        client.saved_views.delete(view.id)
        assert client.saved_views.all() == []
        assert client.act("stop", [job])[0].error is not None
