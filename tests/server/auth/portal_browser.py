"""Browsers of people in the portal, without a program: a client that says what a browser says."""

from __future__ import annotations

import re

from auth_world import API, AuthWorld
from fastapi.testclient import TestClient

VISIT = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
HOSTILE = "<script>alert(1)</script>\"'\u202e<img src=x onerror=alert(2)>"


def browser_of(world: AuthWorld, user: str, **headers: str) -> TestClient:
    """A browser that has come in by a link; it says of each request that a person goes to a page."""
    link = world.client(user).post(f"{API}/portal/links", json={}).json()["url"]
    browser = world.client(**VISIT, **headers)
    assert browser.get(link).status_code == 200
    return browser


def csrf_in(page: str) -> str:
    found = re.search(r'name="csrf-token" content="([0-9a-f]+)"', page)
    assert found is not None, page[:500]
    return found[1]
