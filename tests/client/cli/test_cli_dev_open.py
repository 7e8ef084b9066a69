"""``pond dev open`` while what the job serves does not answer yet."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from millpond.client.cli.commands.interactive import dev
from millpond.model.errors import ConflictError


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([True], ["open this in a browser; it works once, for a minute:"]),
        ([False, False, True], ["waiting until a-1 answers", "open this in a browser; it works once, for a minute:"]),
    ],
)
def test_that_a_link_is_waited_for_is_told_once(monkeypatch, answers, said):
    told = []
    monkeypatch.setattr(dev, "say", told.append)
    monkeypatch.setattr(dev, "say_how_editors_open", lambda client, job: None)
    monkeypatch.setattr(dev, "_LOOK_EVERY_S", 0.0)
    job = SimpleNamespace(id="a-1", state="running", kind="dev")
    client = SimpleNamespace(
        serves=lambda _: answers.pop(0),
        document=lambda _: {"serve": {"path": "whole"}},
        job=lambda _: job,
        link=lambda _, alone: SimpleNamespace(open_url="http://a-1", open_path=""),
    )
    assert dev._show_link(client, job) == 0
    assert told == said


def test_while_a_dev_job_waits_the_reason_is_told(monkeypatch, capsys, make_job):
    monkeypatch.setattr(dev, "say_how_editors_open", lambda client, job: None)
    monkeypatch.setattr("millpond.client.cli.printing.waiting_line.PATIENCE_S", 0.0)
    states = [make_job(kind="dev", state="queued", reason="no room"), make_job(kind="dev", state="running")]
    client = SimpleNamespace(
        watch=lambda _: iter(states),
        serves=lambda _: True,
        link=lambda _, alone: SimpleNamespace(open_url="http://a-1", open_path=""),
    )
    assert dev._show_link(client, states[0]) == 0
    assert "waits: no room" in capsys.readouterr().err


def test_a_place_that_is_to_serve_nothing_is_not_waited_for():
    job = SimpleNamespace(id="a-1", state="running", kind="dev")
    client = SimpleNamespace(serves=lambda _: False, job=lambda _: job, document=lambda _: {"kind": "dev"})
    with pytest.raises(ConflictError, match="a-1 serves nothing") as caught:
        dev._show_link(client, job)
    assert "pond attach a-1" in caught.value.remedy
