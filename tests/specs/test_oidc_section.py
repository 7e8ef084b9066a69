"""The ``oidc`` section of a configuration: what it means, and what is wrong about it."""

from __future__ import annotations

import pytest

from millpond.specs.config.cluster import read_cluster
from millpond.specs.errors import SpecError

LISTEN = "listen: {public_url: 'https://pool.test'}\n"
LEAST = "issuer: 'https://login.test', client_id: pool"


def test_a_section_gives_the_rules_of_a_provider(tmp_path):
    (tmp_path / "secret").write_text("between us\n")
    text = f"""
listen: {{public_url: "https://pool.test/"}}
oidc:
  issuer: https://login.test/realms/lab
  client_id: pool
  client_secret_file: {tmp_path}/secret
  scopes: [profile, groups, profile]
  groups:
    cv-people: {{group: vision}}
    cv-heads: {{group: vision, role: lead}}
  admins: [ops]
  allowed: [lab]
"""
    rules = read_cluster(text).oidc
    assert (rules.issuer, rules.client_secret) == ("https://login.test/realms/lab", "between us")
    assert rules.callback == "https://pool.test/oidc/callback"
    assert rules.scope == "openid profile groups"
    meant = {value: (each.group, each.role) for value, each in rules.groups.items()}
    assert meant == {"cv-people": ("vision", "member"), "cv-heads": ("vision", "lead")}
    assert rules.create_users
    assert rules.asks_for_groups
    assert "between us" not in repr(rules)


def test_without_the_section_there_is_no_provider():
    assert read_cluster("pools: []").oidc is None


def test_the_least_that_can_be_written_is_a_public_client():
    rules = read_cluster(f"{LISTEN}oidc: {{{LEAST}}}").oidc
    assert (rules.client_secret, rules.asks_for_groups) == ("", False)


def test_a_provider_on_this_machine_need_not_be_encrypted():
    assert read_cluster(f"{LISTEN}oidc: {{issuer: 'http://127.0.0.1:9000', client_id: x}}").oidc


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"oidc: {{{LEAST}}}", "set listen.public_url"),
        (
            f"{LISTEN}oidc: {{issuer: 'http://login.test', client_id: x}}",
            "2:16: oidc.issuer: 'http://login.test' is no ",
        ),
        (f"{LISTEN}oidc: {{issuer: 'https://login.test?x=1', client_id: x}}", "is no issuer"),
        (f"{LISTEN}oidc: {{issuer: login.test, client_id: x}}", "is no issuer"),
        (f"{LISTEN}oidc: {{issuer: 'https://login.test'}}", "client_id"),
        (f"{LISTEN}oidc: {{{LEAST}, client_secret: x}}", "did you mean 'client_secret_file'?"),
        (f"{LISTEN}oidc: {{{LEAST}, client_secret_file: /nowhere/secret}}", "cannot be read"),
        (f"{LISTEN}oidc: {{{LEAST}, client_secret_file: EMPTY}}", "secret is empty"),
        (f"{LISTEN}oidc: {{{LEAST}, groups: {{a: {{group: vision, role: admin}}}}}}", "'admin' is not allowed"),
        (f"{LISTEN}oidc: {{{LEAST}, groups: {{a: vision}}}}", "oidc.groups.a"),
        (f"{LISTEN}oidc: {{{LEAST}, scopes: ['two words']}}", "characters that are not allowed"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path, text, words):
    empty = tmp_path / "secret"
    empty.touch()
    text = text.replace("EMPTY", str(empty))
    with pytest.raises(SpecError) as refused:
        read_cluster(text, "pool.yaml")
    assert words in str(refused.value)
    assert str(refused.value).startswith("pool.yaml:")
