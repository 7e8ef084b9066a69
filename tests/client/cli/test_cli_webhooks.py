"""``pond webhooks``: adding, listing, removing; what comes of a test message is waited for, and printed."""

from __future__ import annotations

import io
import json
import threading
from typing import Any

import pytest

from millpond.client.cli.commands.cluster import webhooks
from millpond.client.cli.error_output import say


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(webhooks, "_LOOK_EVERY_S", 0.0)


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


def test_while_one_does_not_answer_it_is_said_what_is_waited_for(server, run_pond, monkeypatch):
    said = threading.Event()
    monkeypatch.setattr(webhooks, "_SILENT_S", 0.0)
    monkeypatch.setattr(webhooks, "say", lambda line: (say(line), said.set()))
    monkeypatch.setattr(webhooks.time, "sleep", lambda _: said.wait(60.0))
    server.will(202, delivery())
    server.will(200, delivery("delivered"))
    code, out, err = run_pond("webhooks", "test", "team")
    assert (code, out) == (0, "delivered to team\n")
    assert "waiting for team to answer, up to 60 s" in err


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


def test_the_address_of_one_to_be_added_is_read_and_never_an_argument(server, run_pond, monkeypatch):
    server.will(
        201, {"name": "room", "url": "https://chat.example.org/(hidden)", "format": "slack", "on": ["job.failed"]}
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("https://chat.example.org/very-secret\n"))
    options = ("--format", "slack", "--on", "job.failed", "--queue", "vision", "--stdin")
    assert run_pond("webhooks", "add", "room", *options) == (0, "added; try it with `pond webhooks test room`\n", "")
    (request,) = server.requests
    assert (request.method, request.url.path) == ("POST", "/api/v1/webhooks")
    assert json.loads(request.content) == {
        "name": "room",
        "url": "https://chat.example.org/very-secret",
        "format": "slack",
        "on": ["job.failed"],
        "queues": ["vision"],
        "secret": "",
    }


def test_the_list_says_which_the_configuration_has(server, run_pond):
    both = {"url": "https://chat.example.org/(hidden)", "format": "slack", "on": ["job.failed"]}
    hooks = [{"name": "team", "in_file": True, **both}, {"name": "room", "by": "ada", **both}]
    server.will(200, {"webhooks": hooks})
    code, out, _ = run_pond("webhooks", "ls")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["NAME", "team", "room"]
    assert [line.split()[-1] for line in out.splitlines()] == ["FROM", "configuration", "ada"]


def test_one_of_the_configuration_is_not_removed(server, run_pond):
    cause = {"cause": "the configuration names the webhook 'team'", "code": "conflict", "remedy": "remove it there"}
    server.will(409, {"error": cause})
    code, out, err = run_pond("webhooks", "rm", "team")
    assert (code, out) == (5, "")
    assert "the configuration names the webhook 'team'" in err
    assert "remove it there" in err
