"""The configuration as admins see it: all of it, but for what lets anybody write to a room."""

from __future__ import annotations

import pytest

from millpond.server.views.about import shown_settings
from millpond.specs.config.cluster import read_cluster

TEXT = """
pools:
- name: default
webhooks:
- name: room
  url: https://hooks.slack.com/services/T000/B000/very-secret
  format: slack
  secret: signing
"""


def test_all_of_the_document_is_shown_but_the_paths_of_addresses() -> None:
    shown = shown_settings(read_cluster(TEXT).document)
    assert shown["pools"] == [{"name": "default"}]
    assert shown["webhooks"] == [
        {"name": "room", "url": "https://hooks.slack.com/(hidden)", "format": "slack", "secret": "signing"}
    ]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://10.0.0.5:7433", "http://10.0.0.5:7433"),
        ("https://ada:pw@example.org", "https://example.org/(hidden)"),
        ("https://example.org?key=1", "https://example.org/(hidden)"),
    ],
)
def test_an_address_ends_at_its_host(url: str, shown: str) -> None:
    assert shown_settings({"listen": {"public_url": url}}) == {"listen": {"public_url": shown}}
