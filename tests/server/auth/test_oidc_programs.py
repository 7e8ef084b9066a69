"""Logins that ``pond`` begins and a person finishes in a browser: by a port of their machine, or by a code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from auth_world import API, error_of
from fastapi.testclient import TestClient
from oidc_world import OidcWorld, fields, heading

from millpond.client.sdk.transport.oidc_login import Landing, SignOnAttempt
from millpond.model.errors import NotAllowedError, NotFoundError, NotLoggedInError, UnavailableError
from millpond.server.auth.secrets import digest_of
from millpond.specs.api.accounts.accounts import LoginInfo

CHALLENGE = digest_of("secret")
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://testserver"}


def to(world: OidcWorld) -> httpx2.MockTransport:
    """How the requests of a program get to a server."""

    def pass_on(request: httpx2.Request) -> httpx2.Response:
        client = world.client(**{"Content-Type": request.headers["Content-Type"]})
        answer = client.request(request.method, request.url.raw_path.decode(), content=request.read())
        return httpx2.Response(answer.status_code, content=answer.content)

    return httpx2.MockTransport(pass_on)


def attempt(world: OidcWorld, landing: Landing | None = None) -> SignOnAttempt:
    return SignOnAttempt("http://testserver", landing, to(world))


def send(browser: TestClient, **form: str) -> Any:
    """Send a form of our own page."""
    return browser.post("/oidc/code", data=form, headers=FORM)


def came_back(world: OidcWorld, path: str = "/oidc/code") -> tuple[TestClient, Any]:
    """Somebody who has logged in at the provider for a program, and the page they see."""
    browser = world.browser()
    return browser, browser.get(world.sent_back(browser, path))


def at_once(world: OidcWorld, act: Callable[[], object]) -> Callable[[float], None]:
    """Instead of waiting: the clock moves on, and the person acts."""
    acts = iter([act])

    def wait(seconds: float) -> None:
        world.clock.now += seconds
        next(acts, lambda: pytest.fail("asked again after the person had acted"))()

    return wait


def test_a_code_typed_in_any_browser_lets_the_program_that_shows_it_in(oidc: OidcWorld) -> None:
    begun = attempt(oidc)
    assert begun.info.link == "http://testserver/oidc/code"

    def person() -> None:
        browser, page = came_back(oidc)
        assert heading(page) == "You are ada. Which code does your terminal show?"
        asked = send(browser, code=begun.info.code.lower().replace("-", " "), **fields(page))
        assert heading(asked).startswith("Shall pond login on ")
        assert "testclient" in asked.text, "where the program asked from"
        assert heading(send(browser, answer="allow", **fields(asked))) == "Done"

    login = begun.finish(at_once(oidc, person))
    me = TestClient(oidc.app, headers={"Authorization": f"Bearer {login.token}"}).get(f"{API}/whoami").json()
    assert (login.user, me["user"], me["how"]) == ("ada", "ada", "token")
    claimed, allowed, _ = oidc.audited()[:3]
    assert (claimed["user"], claimed["status"]) == ("ada", 200)
    assert allowed["after"].startswith("lets pond login on ")


def test_a_browser_on_the_same_machine_brings_the_other_half_to_the_program(oidc: OidcWorld) -> None:
    with Landing() as landing:
        begun = attempt(oidc, landing)

        def person() -> None:
            browser, page = came_back(oidc, begun.info.link.removeprefix("http://testserver"))
            assert begun.info.code in page.text
            assert f"form-action 'self' http://127.0.0.1:{landing.port}" in page.headers["content-security-policy"]
            back = send(browser, answer="allow", **fields(page))
            assert back.status_code == 303
            with httpx2.Client(trust_env=False) as here:
                assert here.get(f"http://127.0.0.1:{landing.port}/?login=other&code=x").status_code == 404
                assert here.get(back.headers["location"]).text.startswith("You can close this window")

        assert begun.finish(at_once(oidc, person)).user == "ada"


def test_who_began_a_login_for_a_port_gets_nothing_without_what_came_there(oidc: OidcWorld) -> None:
    """Somebody sends the link of a login of their own to somebody else, who even allows it."""
    begun = oidc.client().post(f"{API}/oidc/logins", json={"challenge": CHALLENGE, "port": 40_000}).json()
    browser, page = came_back(oidc, begun["link"].removeprefix("http://testserver"))
    assert send(browser, answer="allow", **fields(page)).headers["location"].startswith("http://127.0.0.1:40000/?")
    for code, status in (("", 200), ("guessed", 401)):
        answer = oidc.client().post(f"{API}/oidc/logins/{begun['id']}", json={"secret": "secret", "code": code})
        assert answer.status_code == status
        assert not answer.json().get("token")


def test_a_login_is_handed_out_once_and_to_its_program_alone(oidc: OidcWorld) -> None:
    begun = oidc.client().post(f"{API}/oidc/logins", json={"challenge": CHALLENGE}).json()
    browser, page = came_back(oidc)
    asked = send(browser, code=begun["code"], **fields(page))
    send(browser, answer="allow", **fields(asked))
    claim = f"{API}/oidc/logins/{begun['id']}"
    assert oidc.client().post(claim, json={"secret": "guessed"}).status_code == 404
    assert oidc.client().post(claim, json={"secret": "secret"}).json()["state"] == "granted"
    assert oidc.client().post(claim, json={"secret": "secret"}).status_code == 404
    again = send(browser, answer="allow", **fields(asked))
    assert again.status_code == 401, "and the page can allow nothing more"


def test_a_code_allows_one_login_only(oidc: OidcWorld) -> None:
    begun = oidc.client().post(f"{API}/oidc/logins", json={"challenge": CHALLENGE}).json()
    for status in (200, 404):
        browser, page = came_back(oidc)
        assert send(browser, code=begun["code"], answer="allow", form=fields(page)["form"]).status_code == status


def test_who_refuses_ends_the_programs_wait(oidc: OidcWorld) -> None:
    begun = attempt(oidc)

    def person() -> None:
        browser, page = came_back(oidc)
        asked = send(browser, code=begun.info.code, **fields(page))
        assert heading(send(browser, answer="refuse", **fields(asked))) == "Refused"

    with pytest.raises(NotAllowedError, match="ada has refused"):
        begun.finish(at_once(oidc, person))


def test_a_program_is_told_why_its_login_at_the_provider_failed(oidc: OidcWorld) -> None:
    oidc.provider.claims = lambda claims: claims.update(aud="other")
    with Landing() as landing:
        begun = attempt(oidc, landing)
        path = begun.info.link.removeprefix("http://testserver")
        with pytest.raises(NotLoggedInError, match="not accepted"):
            begun.finish(at_once(oidc, lambda: came_back(oidc, path)))


def test_a_login_that_nobody_finishes_is_over_after_ten_minutes(oidc: OidcWorld) -> None:
    begun = attempt(oidc)

    def nobody() -> None:
        oidc.clock.now += 600

    with pytest.raises(NotFoundError, match="over"):
        begun.finish(at_once(oidc, nobody))


def test_a_program_that_asks_without_pause_is_slowed(oidc: OidcWorld) -> None:
    begun = oidc.client().post(f"{API}/oidc/logins", json={"challenge": CHALLENGE}).json()
    claim = f"{API}/oidc/logins/{begun['id']}"
    answers = [oidc.client().post(claim, json={"secret": "secret"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert error_of(answers[1]).remedy == f"ask every {begun['ask_every_s']:g} s"


def test_guessing_codes_is_slowed(oidc: OidcWorld) -> None:
    browser, page = came_back(oidc)
    statuses = [send(browser, code="BBBB-BBBB", **fields(page)).status_code for _ in range(6)]
    assert statuses == [404] * 5 + [429]


@pytest.mark.parametrize("spoilt", ["form", "origin", "cookie"])
def test_no_other_page_can_allow_a_program_in_somebodys_name(oidc: OidcWorld, spoilt: str) -> None:
    begun = oidc.client().post(f"{API}/oidc/logins", json={"challenge": CHALLENGE}).json()
    browser, page = came_back(oidc)
    form = {"form": "guessed" if spoilt == "form" else fields(page)["form"], "code": begun["code"], "answer": "allow"}
    headers = FORM | {"Origin": "https://evil.test" if spoilt == "origin" else FORM["Origin"]}
    sender = oidc.browser() if spoilt == "cookie" else browser
    assert sender.post("/oidc/code", data=form, headers=headers).status_code in (401, 403)
    claim = oidc.client().post(f"{API}/oidc/logins/{begun['id']}", json={"secret": "secret"}).json()
    assert claim["state"] == "waiting"


def test_an_account_that_is_disabled_in_between_gets_nothing(oidc: OidcWorld) -> None:
    begun = oidc.client().post(f"{API}/oidc/logins", json={"challenge": CHALLENGE}).json()
    oidc.provider.person |= {"sub": "leaving", "preferred_username": "leaving"}
    browser, page = came_back(oidc)
    send(browser, code=begun["code"], answer="allow", form=fields(page)["form"])
    oidc.client("olga").patch(f"{API}/users/leaving", json={"disabled": True})
    answer = oidc.client().post(f"{API}/oidc/logins/{begun['id']}", json={"secret": "secret"})
    assert (answer.status_code, error_of(answer).cause) == (403, "the account 'leaving' is disabled")


@pytest.mark.parametrize("content", [b"form=" + b"x" * 5_000, b"\xff\xff", b"&".join([b"a=b"] * 20), b""])
def test_a_form_that_is_none_of_ours_is_refused_in_plain_words(oidc: OidcWorld, content: bytes) -> None:
    answer = oidc.browser().post("/oidc/code", content=content, headers=FORM)
    assert answer.status_code in (401, 422)
    assert heading(answer)


@pytest.mark.parametrize("port", [0, 22, 65_536, "evil.test"])
def test_a_program_can_have_people_sent_to_ports_of_their_own_machine_alone(oidc: OidcWorld, port: Any) -> None:
    answer = oidc.client().post(f"{API}/oidc/logins", json={"challenge": CHALLENGE, "port": port})
    assert answer.status_code == 422


def test_a_login_by_code_has_no_link_that_skips_the_code(oidc: OidcWorld) -> None:
    begun = oidc.client().post(f"{API}/oidc/logins", json={"challenge": CHALLENGE}).json()
    assert oidc.browser().get(f"/oidc/login?login={begun['id']}").status_code == 404


def test_what_answers_without_being_a_server_is_no_login(oidc: OidcWorld) -> None:
    silent = httpx2.MockTransport(lambda request: httpx2.Response(200, text="hello"))
    with pytest.raises(UnavailableError, match="not a Millpond server"):
        SignOnAttempt("http://testserver", None, silent)


def test_a_label_cannot_write_into_the_page_that_asks(oidc: OidcWorld) -> None:
    wish = {"challenge": CHALLENGE, "label": "<script>alert(1)</script>"}
    begun = oidc.client().post(f"{API}/oidc/logins", json=wish).json()
    browser, page = came_back(oidc)
    assert "<script" not in send(browser, code=begun["code"], **fields(page)).text


def test_many_logins_from_one_address_push_out_their_own_and_nobody_elses() -> None:
    from millpond.server.auth.oidc.pending_logins import MOST_OF_ONE_PLACE, PendingLogins

    waiting: PendingLogins[LoginInfo] = PendingLogins(lambda: 0.0)
    mine = LoginInfo(user="ada")
    waiting.put("mine", mine, "192.0.2.1")
    for number in range(MOST_OF_ONE_PLACE + 1):
        waiting.put(f"theirs-{number}", LoginInfo(user="eve"), "192.0.2.2")
    assert waiting.get("mine") == mine
    assert waiting.get("theirs-0") is None
    assert waiting.get("theirs-1") is not None
