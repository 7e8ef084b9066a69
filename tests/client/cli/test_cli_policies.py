"""``pond config policies``: what holds, and what the server chose at night."""

from __future__ import annotations

import pytest

from millpond.client.cli import main
from millpond.client.cli.printing.formats import instant_text


@pytest.fixture
def run_pond(client, capsys, monkeypatch):
    monkeypatch.setattr("millpond.client.cli.connection.Client", lambda **_: client)

    def run(*arguments: str) -> tuple[int, str]:
        return main.run_line(list(arguments)), capsys.readouterr().out

    return run


def test_a_choice_on_trial_is_shown_with_its_reason_and_its_end(server, run_pond):
    server.will(
        200,
        {
            "chooses": True,
            "policies": "ordering sjf, placement default",
            "next_at": 300.0,
            "looked_at": 200.0,
            "result": "mean slowdown 4.00 -> 3.00",
            "changed_at": 100.0,
            "other": "ordering fifo, placement default",
            "rolled_back": False,
            "trial_until": 400.0,
        },
    )
    changed, ends = instant_text(100.0), instant_text(400.0)
    code, out = run_pond("config", "policies")
    assert code == 0
    assert out.splitlines() == [
        "ordering sjf, placement default",
        f"chosen instead of ordering fifo, placement default on {changed}, on trial until {ends}",
        f"last night, {instant_text(200.0)}: mean slowdown 4.00 -> 3.00",
        f"next: {instant_text(300.0)}",
    ]
    assert server.requests[0].url.path == "/api/v1/adaptation"


def test_a_server_that_chooses_nothing_says_what_is_missing(server, run_pond):
    server.will(200, {"chooses": False, "policies": "ordering default, placement default"})
    code, out = run_pond("config", "policies")
    assert code == 0
    assert out.splitlines() == [
        "ordering default, placement default",
        "the server chooses none by itself: its configuration has no section `adapt`",
    ]
