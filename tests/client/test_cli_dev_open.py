"""``pond dev open`` while what the job serves does not answer yet."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from millpond.client.cli import dev


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
    job = SimpleNamespace(id="a-1", state="running")
    client = SimpleNamespace(
        serves=lambda _: answers.pop(0),
        job=lambda _: job,
        link=lambda _, alone: SimpleNamespace(open_url="http://a-1", open_path=""),
    )
    assert dev._show_link(client, job) == 0
    assert told == said
