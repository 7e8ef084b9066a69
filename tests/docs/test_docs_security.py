"""The tables of security.md are those of the code."""

from __future__ import annotations

from pages import DOCS, table

from millpond.server.auth.roles import RIGHTS, Role

PAGE = DOCS / "security.md"


def test_the_roles_are_those_of_the_code():
    code = [(verb.value, *(rights[role].name.lower() for role in Role)) for verb, rights in RIGHTS.items()]

    assert table(PAGE, "Roles") == code


def test_the_numbers_are_those_of_the_code():
    from millpond.server.auth import logins, secrets, throttle

    text = PAGE.read_text()
    assert f"for {logins.INVITATION_S / 86_400:g} days" in text
    assert f"after {throttle.FREE_PER_ACCOUNT} failures" in text
    assert f"up to {throttle.LONGEST_PAUSE_S / 60:g} min; an address after {throttle.FREE_PER_ADDRESS}" in text
    assert f"{secrets.SHORTEST_PASSWORD} to {secrets.LONGEST_PASSWORD} characters" in text
