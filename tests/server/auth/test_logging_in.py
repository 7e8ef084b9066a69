"""Passwords, invitations, sessions and what slows down guessing, as a client sees them."""

from __future__ import annotations

from typing import Any

import pytest
from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError
from auth_world import API, PASSWORD, AuthWorld, error_of
from fastapi.testclient import TestClient

from millpond.server.auth.secrets import Passwords

LOGIN = f"{API}/login"


def log_in(world: AuthWorld, user: str = "max", password: str = PASSWORD, **more: Any) -> Any:
    return world.client().post(LOGIN, json={"user": user, "password": password, **more})


@pytest.fixture
def browser(world: AuthWorld) -> TestClient:
    """Somebody who has logged in with a browser; their header is not sent by itself."""
    world.security.logins.choose_password("max", PASSWORD)
    client = world.client()
    answer = client.post(LOGIN, json={"user": "max", "password": PASSWORD, "session": True})
    assert answer.status_code == 200
    client.csrf = answer.json()["csrf"]  # type: ignore[attr-defined]
    return client


def test_a_password_opens_a_token_that_works(world: AuthWorld) -> None:
    world.security.logins.choose_password("max", PASSWORD)
    info = log_in(world, label="laptop").json()
    client = TestClient(world.app, headers={"Authorization": f"Bearer {info['token']}"})
    me = client.get(f"{API}/whoami").json()
    assert (me["user"], me["how"], me["groups"][0]["role"]) == ("max", "token", "member")
    assert [token["name"] for token in client.get(f"{API}/tokens").json()["tokens"]] == ["laptop"]
    assert client.post(f"{API}/logout").status_code == 204
    assert client.get(f"{API}/whoami").status_code == 401


@pytest.mark.parametrize(("user", "password"), [("max", "wrong password"), ("mia", PASSWORD), ("nobody", PASSWORD)])
def test_what_is_wrong_about_a_login_is_not_said(world: AuthWorld, user: str, password: str) -> None:
    world.security.logins.choose_password("max", PASSWORD)
    answer = log_in(world, user, password)
    assert answer.status_code == 401
    assert error_of(answer).cause == "user or password is wrong"


def test_an_account_without_a_password_costs_a_guess_as_much_as_one_with() -> None:
    refused: list[type[Exception]] = []

    class Watched(PasswordHasher):
        def verify(self, *arguments: Any) -> Any:
            try:
                return super().verify(*arguments)
            except Exception as error:
                refused.append(type(error))
                raise

    passwords = Passwords(Watched(time_cost=1, memory_cost=8, parallelism=1))
    assert not passwords.check("a guess, no matter what", passwords.make("something else", "max"))
    assert not passwords.check("a guess, no matter what", "")
    assert refused == [VerifyMismatchError, VerifyMismatchError]


def test_a_disabled_account_and_a_service_cannot_log_in(world: AuthWorld) -> None:
    owner = world.client("olga")
    world.security.logins.choose_password("max", PASSWORD)
    token = log_in(world).json()["token"]
    assert owner.patch(f"{API}/users/max", json={"disabled": True}).status_code == 200
    assert log_in(world).status_code == 401
    bearer = {"Authorization": f"Bearer {token}"}
    assert world.client().get(f"{API}/whoami", headers=bearer).status_code == 401
    assert owner.patch(f"{API}/users/max", json={"disabled": False}).status_code == 200
    assert world.client().get(f"{API}/whoami", headers=bearer).status_code == 200
    made = owner.post(f"{API}/users", json={"name": "bot", "service": True}).json()
    assert made["invitation"] == ""
    assert owner.post(f"{API}/users/bot/invitation").status_code == 422


def test_an_invitation_chooses_a_password_once(world: AuthWorld) -> None:
    invitation = world.client("olga").post(f"{API}/users", json={"name": "eve", "group": "vision"}).json()["invitation"]
    wish = {"invitation": invitation, "new_password": "short"}
    assert world.client().post(LOGIN, json=wish).status_code == 422
    wish["new_password"] = PASSWORD
    assert world.client().post(LOGIN, json=wish).json()["user"] == "eve"
    assert error_of(world.client().post(LOGIN, json=wish)).cause == "the invitation is wrong, used or expired"
    assert log_in(world, "eve").status_code == 200


def test_of_two_who_use_an_invitation_at_the_same_time_one_chooses_the_password(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    invitation = world.client("olga").post(f"{API}/users", json={"name": "eve", "group": "vision"}).json()["invitation"]
    passwords = world.security.logins._passwords
    make, answers = passwords.make, []

    def redeem(password: str) -> int:
        return world.client().post(LOGIN, json={"invitation": invitation, "new_password": password}).status_code

    def another_comes_first(password: str, user: str) -> str:
        monkeypatch.undo()
        answers.append(redeem(PASSWORD))
        return make(password, user)

    monkeypatch.setattr(passwords, "make", another_comes_first)
    answers.append(redeem("another battery staple"))
    assert answers == [200, 401]
    assert log_in(world, "eve").status_code == 200


def test_a_login_with_a_password_that_is_replaced_meanwhile_opens_nothing(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.security.logins.choose_password("max", PASSWORD)
    passwords = world.security.logins._passwords
    check = passwords.check

    def replaced_meanwhile(password: str, kept: str) -> bool:
        good = check(password, kept)
        world.accounts.set_password("max", "another hash")
        return good

    monkeypatch.setattr(passwords, "check", replaced_meanwhile)
    assert log_in(world).status_code == 401
    assert not [token for token in world.accounts.tokens.all() if token.name == "pond login" and not token.revoked_at]


def test_an_invitation_is_no_token_and_expires(world: AuthWorld) -> None:
    invitation = world.client("olga").post(f"{API}/users", json={"name": "eve"}).json()["invitation"]
    bearer = {"Authorization": f"Bearer {invitation}"}
    assert world.client().get(f"{API}/whoami", headers=bearer).status_code == 401
    world.clock.now += 8 * 86_400
    answer = world.client().post(LOGIN, json={"invitation": invitation, "new_password": PASSWORD})
    assert answer.status_code == 401


@pytest.mark.parametrize("password", ["short", "x" * 300, "max"])
def test_a_password_that_is_no_good_is_refused(world: AuthWorld, password: str) -> None:
    answer = world.client("max").put(f"{API}/password", json={"new_password": password})
    assert answer.status_code == 422
    assert error_of(answer).cause


def test_another_password_needs_the_present_one_and_ends_other_logins(world: AuthWorld) -> None:
    world.security.logins.choose_password("max", PASSWORD)
    first, second = (log_in(world).json()["token"] for _ in range(2))
    mine, other = (TestClient(world.app, headers={"Authorization": f"Bearer {token}"}) for token in (first, second))
    wish = {"password": "wrong", "new_password": "another battery staple"}
    assert mine.put(f"{API}/password", json=wish).status_code == 401
    assert mine.put(f"{API}/password", json=wish | {"password": PASSWORD}).status_code == 204
    assert mine.get(f"{API}/whoami").status_code == 200
    assert other.get(f"{API}/whoami").status_code == 401
    assert log_in(world, password="another battery staple").status_code == 200


# ---- guessing -----------------------------------------------------------------------------------------------------


def test_after_five_wrong_passwords_an_account_waits_longer_each_time(world: AuthWorld) -> None:
    world.security.logins.choose_password("max", PASSWORD)
    waits = []
    for _ in range(5):
        assert log_in(world, password="wrong").status_code == 401
    for _ in range(12):
        answer = log_in(world)
        assert answer.status_code == 429
        waits.append(int(error_of(answer).remedy.split()[3]))
        world.clock.now += waits[-1]
        assert log_in(world, password="wrong").status_code == 401
    assert waits[:4] == [1, 2, 4, 8]
    assert waits[-1] == 900
    world.clock.now += 900
    assert log_in(world).status_code == 200
    assert log_in(world, password="wrong").status_code == 401, "a good login forgives the failures before it"


def test_a_clock_that_is_set_back_locks_no_account_for_as_long(world: AuthWorld) -> None:
    world.security.logins.choose_password("max", PASSWORD)
    for _ in range(8):
        log_in(world, password="wrong")
    world.clock.now -= 86_400.0
    assert error_of(log_in(world)).remedy == "try again in 1 s"
    world.clock.now += 1.0
    assert log_in(world).status_code == 200


def test_a_locked_account_can_still_be_used_by_its_tokens(world: AuthWorld) -> None:
    for _ in range(6):
        log_in(world, password="wrong")
    assert log_in(world).status_code == 429
    assert world.client("max").get(f"{API}/whoami").status_code == 200


def test_an_address_that_tries_many_accounts_waits_too(world: AuthWorld) -> None:
    for number in range(20):
        assert log_in(world, f"user{number}", "wrong").status_code == 401
    assert "address" in error_of(log_in(world, "fresh", "wrong")).cause
    world.clock.now += 4000
    assert log_in(world, "fresh", "wrong").status_code == 401


def test_invitations_cannot_be_guessed_without_end(world: AuthWorld) -> None:
    answers = [
        world.client().post(LOGIN, json={"invitation": f"pond_aaaaaaaaaa_{'x' * 42}{n % 10}", "new_password": PASSWORD})
        for n in range(7)
    ]
    assert [answer.status_code for answer in answers] == [401] * 5 + [429] * 2


# ---- browsers -----------------------------------------------------------------------------------------------------


def test_a_session_is_a_cookie_that_programs_and_other_sites_cannot_use(world: AuthWorld) -> None:
    world.security.logins.choose_password("max", PASSWORD)
    answer = log_in(world, session=True)
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert answer.json()["token"] == ""
    secret = cookie.split("=", 1)[1].split(";")[0]
    bearer = {"Authorization": f"Bearer {secret}"}
    assert world.client().get(f"{API}/whoami", headers=bearer).status_code == 401, "a cookie's secret is no token"
    page = {"Cookie": f"millpond_session={secret}", "X-CSRF-Token": answer.json()["csrf"]}
    assert world.client().get(f"{API}/whoami", headers=page).status_code == 200


def test_over_https_a_session_is_a_cookie_that_no_other_host_can_set(world: AuthWorld) -> None:
    world.security.logins.choose_password("max", PASSWORD)
    client, site = world.client(), "https://testserver"
    answer = client.post(f"{site}{LOGIN}", json={"user": "max", "password": PASSWORD, "session": True})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-millpond_session=")
    assert {"Secure", "Path=/"} <= set(cookie.split("; "))
    assert "Domain" not in cookie
    shown = {"X-CSRF-Token": answer.json()["csrf"]}
    planted = shown | {"Cookie": f"millpond_session={client.cookies['__Host-millpond_session']}"}
    assert world.client().get(f"{site}{API}/whoami", headers=planted).status_code == 401
    assert client.get(f"{site}{API}/whoami", headers=shown).json()["user"] == "max"
    left = client.post(f"{site}{API}/logout", headers=shown)
    assert left.status_code == 204
    assert "Secure" in left.headers["set-cookie"], "without it a browser ignores what is said of such a cookie"
    assert not client.cookies


def test_a_token_is_no_session(world: AuthWorld) -> None:
    world.security.logins.choose_password("max", PASSWORD)
    token = log_in(world).json()["token"]
    assert world.client().get(f"{API}/whoami", headers={"Cookie": f"millpond_session={token}"}).status_code == 401


@pytest.mark.parametrize("headers", [{}, {"X-CSRF-Token": "wrong"}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "ä"}])
def test_a_cookie_alone_opens_nothing(browser: TestClient, headers: dict[str, str]) -> None:
    """Not even reading: the programs of jobs are served under the same name, and their pages send the cookie too."""
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    for method, path in (("GET", "whoami"), ("GET", "jobs"), ("POST", "tokens"), ("DELETE", "tokens/x")):
        answer = browser.request(method, f"{API}/{path}", headers=encoded)  # type: ignore[arg-type]
        assert answer.status_code == 403
        assert "X-CSRF-Token" in error_of(answer).remedy


def test_a_page_of_this_server_may_change_things(browser: TestClient) -> None:
    headers = {"X-CSRF-Token": browser.csrf, "Origin": "http://testserver"}  # type: ignore[attr-defined]
    assert browser.get(f"{API}/whoami", headers=headers).json()["how"] == "session"
    assert browser.post(f"{API}/tokens", json={"name": "t"}, headers=headers).status_code == 201
    assert browser.post(f"{API}/logout", headers=headers).status_code == 204
    assert browser.get(f"{API}/whoami", headers=headers).status_code == 401


def test_a_page_of_an_earlier_login_is_told_to_load_itself_again(browser: TestClient) -> None:
    headers = {"X-CSRF-Token": "0" * 64, "Origin": "http://testserver"}
    answer = browser.post(f"{API}/tokens", json={"name": "t"}, headers=headers)
    assert answer.status_code == 403
    assert error_of(answer).cause == "this page is of an earlier login"
    assert error_of(answer).remedy == "load it again"


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://[", "http://testserver.evil.example"])
def test_a_page_of_another_site_may_not_even_with_the_right_header(browser: TestClient, origin: str) -> None:
    headers = {"X-CSRF-Token": browser.csrf, "Origin": origin}  # type: ignore[attr-defined]
    assert browser.post(f"{API}/tokens", json={"name": "t"}, headers=headers).status_code == 403


def test_another_site_cannot_log_somebody_in(world: AuthWorld) -> None:
    world.security.logins.choose_password("max", PASSWORD)
    body = {"user": "max", "password": PASSWORD, "session": True}
    assert world.client().post(LOGIN, json=body, headers={"Origin": "http://evil.example"}).status_code == 403
    form = {"Content-Type": "text/plain"}
    assert world.client().post(LOGIN, content=b'{"user": "max"}', headers=form).status_code == 422


def test_a_session_ends_by_itself(world: AuthWorld, browser: TestClient) -> None:
    world.clock.now += 13 * 3_600
    assert browser.get(f"{API}/whoami").status_code == 401


# ---- other doors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["token=x", "access_token=x", "TOKEN=x", "q=pond_aaaaaaaaaa_" + "x" * 43])
def test_a_secret_in_the_address_is_refused_with_an_explanation(world: AuthWorld, query: str) -> None:
    answer = world.client("max").get(f"{API}/jobs?{query}")
    assert answer.status_code == 400
    assert "logs" in error_of(answer).cause
    assert "revoke" in error_of(answer).remedy


def test_a_websocket_needs_a_caller_and_no_foreign_page(world: AuthWorld) -> None:
    from starlette.websockets import WebSocketDisconnect

    for headers in ({}, {"Authorization": "Bearer wrong"}):
        with pytest.raises(WebSocketDisconnect), world.client(**headers).websocket_connect("/anything"):
            raise AssertionError("let in")


@pytest.mark.parametrize("name", ["a\r\nb", "a\nb", "a b", "../a", "ä", "-a", "a" * 65, "a\x00", ""])
def test_names_that_could_break_a_header_a_path_or_a_line_are_refused(world: AuthWorld, name: str) -> None:
    owner = world.client("olga")
    for path in ("users", "groups"):
        assert owner.post(f"{API}/{path}", json={"name": name}).status_code == 422
    if not name.isprintable():
        assert owner.post(f"{API}/tokens", json={"name": name}).status_code == 422
        assert log_in(world, session=True, label=name).status_code == 422
