"""A server with people and a provider, and browsers that log in there."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

from auth_world import API, AuthWorld
from fastapi.testclient import TestClient
from one_loop import client_of
from server_world import Clock

from millpond.server.auth.components import Oidc
from millpond.specs.config.oidc import OidcRules
from oidc_provider import FakeProvider, rules

SIGN_ON_COOKIE = "millpond_sign_on"


class OidcWorld(AuthWorld):
    """An ``AuthWorld`` whose people may log in at a provider; ``rules`` can be changed while it runs."""

    def __init__(self, state_dir: Path) -> None:
        clock = Clock(1_000_000.0)
        self.provider = FakeProvider(clock)
        self.rules: OidcRules | None = rules()
        super().__init__(state_dir, "", clock, Oidc(lambda: self.rules, self.provider))

    def browser(self) -> TestClient:
        """A browser that shows redirects instead of following them."""
        return client_of(self.app, follow_redirects=False, raise_server_exceptions=False)

    def sent_back(self, browser: TestClient, path: str = "/oidc/login") -> str:
        """Begin a login in a browser and log in at the provider; the address that it is sent back to."""
        away = browser.get(path)
        assert away.status_code == 303, away.text
        return self.provider.log_in(away.headers["location"])

    def log_in(self, browser: TestClient | None = None, **person: Any) -> Any:
        """The whole way of a browser that wants a session; its last answer."""
        self.provider.person |= person
        browser = browser or self.browser()
        return browser.get(self.sent_back(browser))

    def audited(self) -> list[dict[str, Any]]:
        """What the audit log has of logins, the newest first."""
        entries = self.client("olga").get(f"{API}/audit").json()["entries"]
        return [entry for entry in entries if entry["verb"] == "log-in"]


def heading(answer: Any) -> str:
    """What a page says above all."""
    found = re.search(r"<h1>(.*?)</h1>", answer.text)
    assert found is not None, answer.text
    return unescape(found[1])


def fields(answer: Any) -> dict[str, str]:
    """The hidden fields of a page's form."""
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', answer.text))


def csrf(answer: Any) -> str:
    """What the page after a login has for the header."""
    found = re.search(r'<meta name="csrf-token" content="(\w+)">', answer.text)
    assert found is not None, answer.text
    return found[1]
