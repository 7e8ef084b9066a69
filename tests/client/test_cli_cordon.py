"""``pond nodes cordon, drain, maintain, uncordon``: what is asked of the server, and what a person sees of it."""

from __future__ import annotations

import json

import pytest

from millpond.client.cli import main
from millpond.client.cli.printing import formats

NOW = 1_000_000.0
MACHINE = {
    "name": "a",
    "pool": "default",
    "cpu_milli": 8000,
    "free_cpu_milli": 7500,
    "memory_mib": 65536,
    "free_memory_mib": 64512,
}
CLOSED = MACHINE | {"schedulable": False}


@pytest.fixture
def run_pond(client, capsys, monkeypatch):
    monkeypatch.setattr("millpond.client.cli.connection.Client", lambda **_: client)
    monkeypatch.setattr("millpond.client.cli.time_options.time.time", lambda: NOW)

    def run(*arguments):
        code = main._run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("line", "path", "wish"),
    [
        ("cordon a", "close", {"reason": "", "until": None, "drain": False, "begin": None}),
        (
            "cordon a --reason disks --until 2h",
            "close",
            {"reason": "disks", "until": NOW + 7200, "drain": False, "begin": None},
        ),
        ("drain a --until 90m", "close", {"reason": "", "until": NOW + 5400, "drain": True, "begin": None}),
        (
            "maintain a --from 1d --until 2026-11-22T08:00+00:00",
            "close",
            {"reason": "", "until": 1_795_334_400.0, "drain": False, "begin": NOW + 86_400},
        ),
        ("uncordon a", "open", {"planned": False}),
        ("uncordon a --planned", "open", {"planned": True}),
    ],
)
def test_machines_are_closed_and_opened_as_asked(server, run_pond, line, path, wish):
    server.will(200, MACHINE)
    assert run_pond("nodes", *line.split()) == (0, "a: open\n", "")
    assert server.requests[0].url.path == f"/api/v1/nodes/a/{path}"
    assert json.loads(server.requests[0].content) == wish


def test_closing_goes_on_after_a_machine_that_is_not_there(server, run_pond):
    server.will(404, {"error": {"cause": "no node 'b'", "remedy": "`pond nodes` lists them"}})
    server.will(200, CLOSED | {"closure": {"begin": NOW}})
    code, out, err = run_pond("nodes", "cordon", "b", "a")
    assert (code, out) == (4, "a: closed\n")
    assert "no node 'b'" in err


@pytest.mark.parametrize("when", ["soon", "2026-13-01", "-2h"])
def test_a_time_that_is_none_is_told_before_anything_is_asked(server, run_pond, when):
    code, _, err = run_pond("nodes", "cordon", "a", f"--until={when}")
    assert code == 2
    assert "write 90m, 2h, 3d, 14:30, or 2026-11-22T08:00" in err
    assert server.requests == []


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        (
            {"closure": {"begin": 1.0, "until": NOW, "reason": "disks"}},
            f"closed until {formats.instant_text(NOW)}: disks",
        ),
        ({"closure": {"begin": 1.0}, "draining": True}, "drained"),
        (
            {"closure": {"begin": 1.0, "reason": "disks"}, "draining": True, "jobs": ["x", "y"]},
            "draining: disks; waits for x, y",
        ),
        (
            {"planned": [{"begin": NOW, "reason": "disks"}], "schedulable": True},
            f"open, closes {formats.instant_text(NOW)}: disks",
        ),
        ({"unschedulable_reason": "its engine says so"}, "closed: its engine says so"),
    ],
)
def test_a_list_of_machines_says_which_are_closed_why_and_what_they_wait_for(server, run_pond, fields, state):
    server.will(200, {"nodes": [CLOSED | fields]})
    assert run_pond("nodes")[1].splitlines()[1].split("  ")[-1].strip() == state
