"""``pond nodes cordon, drain, maintain, uncordon, forget``: what the server is asked, and what a person sees of it."""

from __future__ import annotations

import json

import pytest
from machine_bodies import MACHINE

from millpond.client.cli.printing import formats

NOW = 1_000_000.0
CLOSED = MACHINE | {"schedulable": False}


@pytest.fixture(autouse=True)
def _clock_stands(monkeypatch):
    monkeypatch.setattr("millpond.client.cli.time_options.time.time", lambda: NOW)


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


def test_machines_that_do_not_come_back_are_forgotten(server, run_pond):
    server.will(204)
    assert run_pond("nodes", "forget", "a") == (0, "a: forgotten\n", "")
    assert (server.requests[0].method, server.requests[0].url.path) == ("DELETE", "/api/v1/nodes/a")


CARD = {
    "uuid": "GPU-1", "index": 1, "vendor": "nvidia", "model": "H100", "memory_mib": 1, "free_memory_mib": 1,
    "free_compute_milli": 1000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "fields", "path", "wish", "said"),
    [
        (
            "cordon a/1 --reason fan",
            {"closure": {"begin": 1.0, "reason": "fan", "by": "ada"}},
            "close",
            {"reason": "fan", "until": None, "drain": False, "begin": None, "card": 1},
            "closed by ada: fan",
        ),
        (
            "drain a/1",
            {"closure": {"begin": 1.0, "drain": True}, "holders": ["x"], "health": "faulty", "health_detail": "XID 79"},
            "close",
            {"reason": "", "until": None, "drain": True, "begin": None, "card": 1},
            "draining; faulty: XID 79; waits for x",
        ),
        (
            "uncordon a/1",
            {"probation_until": NOW},
            "open",
            {"planned": False, "card": 1},
            f"ok, on probation until {formats.instant_text(NOW)}",
        ),
    ],
)
def test_single_cards_are_closed_and_opened_by_their_number(server, run_pond, line, fields, path, wish, said):
    server.will(200, MACHINE | {"devices": [CARD | {"index": 0, "uuid": "GPU-0"}, CARD | fields]})
    assert run_pond("nodes", *line.split()) == (0, f"a/1: {said}\n", "")
    assert server.requests[0].url.path == f"/api/v1/nodes/a/{path}"
    assert json.loads(server.requests[0].content) == wish


@pytest.mark.parametrize("place", ["a/", "a/x", "a/-1", "a/²"])
def test_a_card_without_a_number_is_refused_before_anything_is_asked(server, run_pond, place):
    code, _, err = run_pond("nodes", "cordon", place)
    assert code != 0
    assert "write NODE/CARD with the card's number" in err
    assert server.requests == []


def test_closed_cards_are_counted_apart_from_unusable_ones_and_free_nothing(server, run_pond):
    closed, sick = CARD | {"closure": {"begin": 1.0}}, CARD | {"health": "faulty"}
    server.will(200, {"nodes": [MACHINE | {"devices": [closed, sick, CARD]}]})
    line = run_pond("nodes")[1].splitlines()[1]
    assert "1 card unusable, 1 card closed" in line
    assert line.split("3 x H100 0GiB")[1].split()[0] == "1"


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
        (
            {"closure": {"begin": 1.0, "reason": "disks"}, "planned": [{"begin": NOW, "reason": "fans"}]},
            f"closed: disks, closes {formats.instant_text(NOW)}: fans",
        ),
        ({"unschedulable_reason": "its engine says so"}, "closed: its engine says so"),
    ],
)
def test_a_list_of_machines_says_which_are_closed_why_and_what_they_wait_for(server, run_pond, fields, state):
    server.will(200, {"nodes": [CLOSED | fields]})
    assert run_pond("nodes")[1].splitlines()[1].split("  ")[-1].strip() == state
