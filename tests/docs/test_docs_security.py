"""The tables of security.md are those of the code."""

from __future__ import annotations

from pages import DOCS, block, table

from millpond.server.auth.roles import RIGHTS, UserRole

PAGE = DOCS / "security.md"


def test_the_roles_are_those_of_the_code():
    code = [(verb.value, *(rights[role].name.lower() for role in UserRole)) for verb, rights in RIGHTS.items()]

    assert table(PAGE, "Roles") == code


def test_the_numbers_are_those_of_the_code():
    from millpond.server.auth import logins, secrets, throttle
    from millpond.server.auth.oidc import id_tokens, pending_logins

    text = PAGE.read_text()
    assert f"for {logins.INVITATION_S / 86_400:g} days" in text
    assert f"after {throttle.FREE_PER_ACCOUNT} failures" in text
    assert f"up to {throttle.LONGEST_PAUSE_S / 60:g} min; an address after {throttle.FREE_PER_ADDRESS}" in text
    assert f"tokens ({logins.LOGIN_S / 86_400:g} days) and" in text
    assert f"sessions ({logins.SESSION_S / 3_600:g} hours)" in text
    assert f"clocks may be {id_tokens.CLOCK_SKEW_S:g} s apart" in text
    assert f"in memory, for {pending_logins.GOOD_FOR_S / 60:g} minutes" in text
    assert f"{secrets.SHORTEST_PASSWORD} to {secrets.LONGEST_PASSWORD} characters" in text


def test_the_section_on_a_provider_is_one_that_a_server_takes(tmp_path):
    from millpond.specs.config.cluster import read_cluster

    (tmp_path / "secret").write_text("between us")
    lines = "\n".join(block(PAGE, "Logging in elsewhere: OpenID Connect"))
    rules = read_cluster(lines.replace("/etc/millpond/oidc-secret", str(tmp_path / "secret"))).oidc

    assert f"redirect address `{rules.callback}`" in PAGE.read_text()
    meant = {value: (each.group, each.role) for value, each in rules.groups.items()}
    assert meant == {"cv-people": ("vision", "member"), "cv-heads": ("vision", "lead")}
