"""Pages of accounts with more rows than anybody reads: a page of them, and those whose names are asked for."""

from __future__ import annotations

import re

import pytest
from auth_world import AuthWorld
from portal_browser import browser_of

from millpond.server.auth.records import TokenKind, User
from millpond.server.auth.roles import UserRole
from millpond.server.web import admin_pages


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROWS_ON_A_PAGE", "MEMBERS_SHOWN"):
        monkeypatch.setattr(admin_pages, name, 5)


def rows(page: str) -> list[str]:
    return re.findall(r'<tr id="(?:user|token)-([^"]+)"', page)


def test_users_stand_on_pages_and_are_found_by_a_part_of_their_names(world: AuthWorld) -> None:
    for number in range(8):
        world.accounts.add_user(User(f"worker{number}"))
    browser = browser_of(world, "olga")
    first, second = (browser.get(f"/portal/admin/users?find=worker&page={page}").text for page in (1, 2))
    assert (len(rows(first)), len(rows(second))) == (5, 3)
    assert sorted(rows(first) + rows(second)) == [f"worker{number}" for number in range(8)]
    assert 'href="?find=worker&amp;page=2"' in first
    assert 'href="?find=worker&amp;page=1"' in second
    assert "6\N{EN DASH}8 / 8" in second
    assert rows(browser.get("/portal/admin/users?find=KER7").text) == ["worker7"]
    assert "No user matches." in browser.get("/portal/admin/users?find=<b>").text
    assert rows(browser.get("/portal/admin/users?find=worker&page=9").text) == rows(second)
    assert browser.get("/portal/admin/users?page=0").status_code == 422


def test_tokens_stand_on_pages_and_are_found_by_their_user(world: AuthWorld) -> None:
    for _ in range(6):
        world.accounts.tokens.issue("mia", TokenKind.PERSONAL, 60.0, "many")
    browser = browser_of(world, "olga")
    first = browser.get("/portal/admin/tokens?find=mia&all=true").text
    assert len(rows(first)) == 5
    assert 'href="?all=true&amp;find=mia&amp;page=2"' in first
    assert len(rows(browser.get("/portal/admin/tokens?find=mia&all=true&page=2").text)) == 1


def test_members_of_a_large_group_are_found_by_a_part_of_their_names(world: AuthWorld) -> None:
    for number in range(30):
        world.accounts.add_user(User(f"worker{number:02}"), "vision", UserRole.MEMBER)
    browser = browser_of(world, "lea")
    whole = browser.get("/portal/admin/groups").text
    assert whole.count("/members/worker") <= 5 * 3
    assert "The first 5 of 34 are shown" in whole
    found = browser.get("/portal/admin/groups?find=ker29").text
    assert "/members/worker29" in found
    assert "/members/worker28" not in found


def test_the_name_that_somebody_gave_a_token_is_not_translated_and_that_of_a_login_is(world: AuthWorld) -> None:
    world.accounts.tokens.issue("max", TokenKind.PERSONAL, 60.0, "read jobs")
    page = browser_of(world, "max", **{"accept-language": "zh-CN"}).get("/portal/admin/tokens").text
    assert "<bdi>read jobs</bdi>" in page
    assert "browser, by a link" not in page


@pytest.mark.parametrize(
    ("path", "one"),
    [
        ("admin/users", "Invite lea"),
        ("admin/groups", "Remove lea vision"),
        ("admin/tokens", "Revoke many "),
        ("nodes", "Drain n1"),
    ],
)
def test_buttons_of_rows_are_told_apart_by_those_who_hear_their_words_alone(
    world: AuthWorld, path: str, one: str
) -> None:
    for user in ("olga", "olga", "lea"):
        world.accounts.tokens.issue(user, TokenKind.PERSONAL, 60.0, "many")
    page = browser_of(world, "olga").get(f"/portal/{path}").text
    lists = page.partition("<tbody>")[2].rpartition("</tbody>")[0]
    heard = [re.sub("<[^>]*>", "", words) for words in re.findall(r"<button[^>]*>(.*?)</button>", lists, re.DOTALL)]
    assert any(words.startswith(one) for words in heard)
    assert len(set(heard)) == len(heard)
