"""Who may vouch for a server."""

from __future__ import annotations

import ssl

import pytest

from millpond.client.sdk.transport.discovery import Address
from millpond.client.sdk.transport.trust import trust


@pytest.mark.parametrize("url", ["http://127.0.0.1:7433", "HTTP://pool"])
def test_where_nothing_is_encrypted_nobody_is_trusted_and_no_authorities_are_read(url):
    context = trust(Address(url, "token"))
    assert isinstance(context, ssl.SSLContext)
    assert (context.verify_mode, context.cert_store_stats()["x509"]) == (ssl.CERT_REQUIRED, 0)


@pytest.mark.parametrize("url", ["https://pool", "HTTPS://pool"])
def test_an_encrypting_server_is_checked_by_the_systems_authorities(url, monkeypatch):
    monkeypatch.delenv("MILLPOND_CA", raising=False)
    assert trust(Address(url, "token")) is True
