"""``pond webhooks test``: what comes of a test message is waited for, and printed."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.client.cli import main
from millpond.client.cli.commands.cluster import webhooks


@pytest.fixture
def run_pond(client, capsys, monkeypatch):
    monkeypatch.setattr("millpond.client.cli.connection.Client", lambda **_: client)
    monkeypatch.setattr(webhooks, "_LOOK_EVERY_S", 0.0)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main._run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def delivery(state: str = "waiting", **more: Any) -> dict[str, Any]:
    return {"id": 7, "hook": "team", "at": 1.0, "text": "x", "state": state, "tries": 0, "due_at": 1.0, **more}


def test_a_receiver_that_takes_it_is_said_when_it_has(server, run_pond):
    server.will(202, delivery())
    server.will(200, delivery())
    server.will(200, delivery("delivered"))
    assert run_pond("webhooks", "test", "team") == (0, "delivered to team\n", "")
    assert [(request.method, request.url.path) for request in server.requests] == [
        ("POST", "/api/v1/webhooks/team/test"),
        ("GET", "/api/v1/webhooks/deliveries/7"),
        ("GET", "/api/v1/webhooks/deliveries/7"),
    ]


def test_one_that_does_not_take_it_is_an_error_with_its_trouble(server, run_pond):
    server.will(202, delivery())
    server.will(200, delivery("given up", trouble="it answered 503", tries=1))
    code, out, err = run_pond("webhooks", "test", "team")
    assert (code, out) == (1, "")
    assert "team did not take it: it answered 503" in err


def test_one_that_is_not_sent_in_time_is_left_to_the_list(server, run_pond, monkeypatch):
    monkeypatch.setattr(webhooks, "_PATIENCE_S", 0.0)
    server.will(202, delivery())
    code, out, err = run_pond("webhooks", "test", "team")
    assert (code, out) == (1, "")
    assert "delivery 7 to team has not been sent yet" in err
    assert "pond webhooks" in err


def test_without_a_word_after_it_deliveries_are_listed_as_before(server, run_pond):
    server.will(200, {"deliveries": [delivery("delivered")]})
    code, out, _ = run_pond("webhooks", "--limit", "3")
    assert code == 0
    assert "team" in out
    assert server.requests[0].url.query == b"limit=3"
