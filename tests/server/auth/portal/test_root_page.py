"""The page at the root, for whoever has opened the server's address in a browser."""

from __future__ import annotations

from auth_world import API, AuthWorld
from oidc_world import OidcWorld


def test_a_browser_learns_what_this_is_and_how_to_log_in_and_nothing_else(shared: AuthWorld) -> None:
    answer = shared.client().get("/")
    assert answer.status_code == 200
    assert "This is a Millpond server" in answer.text
    assert "pond login http://testserver" in answer.text
    assert 'href="/docs"' in answer.text
    assert "/oidc/login" not in answer.text, "no provider is named"
    assert answer.text == shared.client("olga").get("/").text, "it says the same to everybody"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert shared.client().get(f"{API}/jobs").status_code == 401


def test_a_browser_is_led_to_the_provider_where_there_is_one(oidc: OidcWorld) -> None:
    assert '<a href="/oidc/login">' in oidc.browser().get("/").text


def test_the_name_under_which_somebody_came_is_no_markup(shared: AuthWorld) -> None:
    answer = shared.client(host='<b>"x').get("/")
    assert answer.status_code == 421 or "<b>" not in answer.text
