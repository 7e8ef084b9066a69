"""Logging in with a browser at an OpenID Connect provider: the way there and back, good and hostile."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
from auth_world import API, PASSWORD
from joserfc.jwk import ECKey, RSAKey
from oidc_world import SIGN_ON_COOKIE, OidcWorld, csrf, heading

from oidc_provider import CLIENT, ISSUER, Change, rules


def test_a_login_opens_a_session_that_works_with_the_header_of_its_page(oidc: OidcWorld) -> None:
    browser = oidc.browser()
    page = oidc.log_in(browser)
    assert (page.status_code, heading(page)) == (200, "Logged in as ada")
    assert browser.get(f"{API}/whoami").status_code == 403, "the cookie alone opens nothing"
    me = browser.get(f"{API}/whoami", headers={"X-CSRF-Token": csrf(page)}).json()
    assert (me["user"], me["how"]) == ("ada", "session")
    assert browser.post(f"{API}/logout", headers={"X-CSRF-Token": csrf(page)}).status_code == 204


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ("", "/portal/"),
        ("/portal/jobs/train-abcde?attempt=2", "/portal/jobs/train-abcde?attempt=2"),
        ("https://evil.test/portal/", "/portal/"),
        ("/portal/../proxy/job/", "/portal/"),
        ("/proxy/job/", "/portal/"),
    ],
)
def test_a_browser_that_has_logged_in_is_led_to_the_page_of_the_portal_that_it_wanted(
    oidc: OidcWorld, wanted: str, shown: str
) -> None:
    browser = oidc.browser()
    back = oidc.sent_back(browser, f"/oidc/login?{urlencode({'next': wanted})}")
    page = browser.get(back, headers={"Sec-Fetch-Mode": "navigate"})
    assert f'<a href="{shown}">' in page.text
    assert "location.replace" in page.text


def test_who_is_not_let_in_reads_why_in_their_language(oidc: OidcWorld) -> None:
    oidc.rules = rules(allowed=["lab"])
    browser = oidc.browser()
    page = browser.get(oidc.sent_back(browser), headers={"Accept-Language": "zh-CN"})
    assert '<html lang="zh-CN">' in page.text
    assert heading(page) == "'ada' 不在可登录此处的任何组中"


def test_no_other_page_can_look_into_the_pages_of_a_login(oidc: OidcWorld) -> None:
    page = oidc.log_in()
    assert page.headers["cross-origin-opener-policy"] == "same-origin"
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    set_cookies = page.headers.get_list("set-cookie")
    session = next(cookie for cookie in set_cookies if cookie.startswith("millpond_session="))
    assert "HttpOnly" in session
    assert "SameSite=strict" in session


def test_cookies_are_for_https_alone_where_people_reach_the_server_so(oidc: OidcWorld) -> None:
    oidc.rules = rules()
    plain = oidc.browser().get("/oidc/login").headers["set-cookie"]
    assert "Secure" not in plain
    assert "SameSite=lax" in plain, "it comes along when the provider sends the browser back"
    oidc.rules = rules(client_secret="s", public_url="https://pool.test")
    assert "Secure" in oidc.browser().get("/oidc/login").headers["set-cookie"]


def test_every_login_has_its_own_state_nonce_and_challenge(oidc: OidcWorld) -> None:
    asked = [parse_qs(urlsplit(oidc.browser().get("/oidc/login").headers["location"]).query) for _ in range(2)]
    for name in ("state", "nonce", "code_challenge"):
        assert asked[0][name] != asked[1][name]
        assert len(asked[0][name][0]) >= 43
    assert asked[0]["redirect_uri"] == ["http://testserver/oidc/callback"]


def hours(count: float) -> int:
    return int(count * 3_600)


HOSTILE = {
    "the nonce of another login": lambda claims: claims.update(nonce="other"),
    "no nonce": lambda claims: claims.pop("nonce"),
    "for another client": lambda claims: claims.update(aud="other"),
    "for nobody": lambda claims: claims.pop("aud"),
    "for several, and another one asked": lambda claims: claims.update(aud=[CLIENT, "other"], azp="other"),
    "for several, and nobody asked": lambda claims: claims.update(aud=[CLIENT, "other"]),
    "by another issuer": lambda claims: claims.update(iss="https://evil.test"),
    "by no issuer": lambda claims: claims.pop("iss"),
    "expired": lambda claims: claims.update(exp=claims["iat"] - 61),
    "never expires": lambda claims: claims.pop("exp"),
    "issued in the future": lambda claims: claims.update(iat=claims["iat"] + 61),
    "issued before the login": lambda claims: claims.update(iat=claims["iat"] - 61),
    "not yet valid": lambda claims: claims.update(nbf=claims["iat"] + 61),
    "issued at a word": lambda claims: claims.update(iat="now"),
    "about nobody": lambda claims: claims.pop("sub"),
    "about an empty name": lambda claims: claims.update(sub=""),
    "about a list": lambda claims: claims.update(sub=["0001"]),
    "about somebody too long": lambda claims: claims.update(sub="x" * 256),
}


@pytest.mark.parametrize("wrong", HOSTILE)
def test_an_id_token_with_something_wrong_about_it_opens_nothing(oidc: OidcWorld, wrong: str) -> None:
    oidc.provider.claims = HOSTILE[wrong]
    browser = oidc.browser()
    page = oidc.log_in(browser, sub="666", preferred_username="mallory")
    assert page.status_code == 401
    assert heading(page).startswith("What the provider sent is not accepted")
    assert "millpond_session" not in browser.cookies
    assert "mallory" not in {user.name for user in oidc.accounts.users()}


def test_clocks_may_be_a_minute_apart(oidc: OidcWorld) -> None:
    oidc.provider.claims = lambda claims: claims.update(iat=claims["iat"] + 59, exp=claims["iat"] - 59)
    assert oidc.log_in().status_code == 200


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        (
            lambda claims: claims.update(iat=claims["iat"] + 300),
            "compares the clocks of this server and of the provider",
        ),
        (
            lambda claims: claims.update(iat=claims["iat"] - 300),
            "compares the clocks of this server and of the provider",
        ),
        (
            lambda claims: claims.update(exp=claims["iat"] - 300),
            "compares the clocks of this server and of the provider",
        ),
        (lambda claims: claims.update(aud="other"), "compares oidc.client_id"),
        (lambda claims: claims.update(nonce="other"), "finds more in the audit log"),
    ],
)
def test_a_refused_id_token_is_told_with_what_an_admin_mends(oidc: OidcWorld, wrong: Change, remedy: str) -> None:
    oidc.provider.claims = wrong
    assert f"begin the login again; an admin {remedy}" in oidc.log_in().text


def test_two_logins_in_one_browser_end_with_the_one_that_was_begun_last(oidc: OidcWorld) -> None:
    browser = oidc.browser()
    first, last = oidc.sent_back(browser), oidc.sent_back(browser)
    assert "or another one was since" in heading(browser.get(first))
    assert browser.get(last).status_code == 200


@pytest.mark.parametrize("forged", ["none", "by a public key", "by another key", "of nonsense", "of an own key"])
def test_an_id_token_that_the_provider_did_not_sign_opens_nothing(oidc: OidcWorld, forged: str) -> None:
    provider = oidc.provider
    stranger = RSAKey.generate_key(2048)
    provider.forge = {
        "none": provider.unsigned,
        "by a public key": provider.by_secret,
        "by another key": lambda claims: provider.signed(claims, stranger),
        "of nonsense": lambda claims: "a.b.c",
        "of an own key": lambda claims: provider.signed(claims, stranger, jwk=stranger.as_dict(private=False), kid="x"),
    }[forged]
    assert oidc.log_in().status_code == 401


def test_a_shared_secret_among_the_providers_keys_signs_nothing(oidc: OidcWorld) -> None:
    from joserfc import jwt
    from joserfc.jwk import OctKey

    secret = OctKey.import_key("between us and everybody else here", {"kid": "hmac"})
    oidc.provider.shown.append(secret)
    oidc.provider.forge = lambda claims: jwt.encode({"alg": "HS256", "kid": "hmac"}, claims, secret, ["HS256"])
    assert oidc.log_in().status_code == 401


def test_keys_of_other_kinds_and_such_as_nobody_knows_do_no_harm(oidc: OidcWorld) -> None:
    provider = oidc.provider
    provider.key = ECKey.generate_key("P-256", {"kid": "curve"})
    provider.shown += [{"kty": "PQ", "kid": "a"}, {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA"}, "none"]
    provider.shown += [{"kty": "RSA"}, {"kty": ["RSA"]}, provider.key]
    provider.forge = lambda claims: provider.signed(claims, alg="ES256")
    assert oidc.log_in().status_code == 200


def test_a_rotated_key_is_fetched_once_it_is_needed(oidc: OidcWorld) -> None:
    assert oidc.log_in().status_code == 200
    assert oidc.log_in().status_code == 200
    assert oidc.provider.asked.count("/keys") == 1
    oidc.provider.rotate()
    oidc.clock.now += 31
    assert oidc.log_in().status_code == 200
    assert oidc.provider.asked.count("/keys") == 2


def test_tokens_with_unknown_keys_do_not_have_the_keys_fetched_each_time(oidc: OidcWorld) -> None:
    assert oidc.log_in().status_code == 200
    oidc.provider.forge = lambda claims: oidc.provider.signed(claims, kid="unknown")
    for _ in range(3):
        assert oidc.log_in().status_code == 401
    assert oidc.provider.asked.count("/keys") == 1


def test_a_withdrawn_key_is_forgotten_within_the_hour(oidc: OidcWorld) -> None:
    old = oidc.provider.key
    assert oidc.log_in().status_code == 200
    oidc.provider.rotate()
    oidc.clock.now += hours(1)
    oidc.provider.forge = lambda claims: oidc.provider.signed(claims, old, kid="first")
    assert oidc.log_in().status_code == 401


def test_the_way_back_counts_once(oidc: OidcWorld) -> None:
    browser = oidc.browser()
    back = oidc.sent_back(browser)
    assert browser.get(back).status_code == 200
    again = browser.get(back)
    assert (again.status_code, heading(again)) == (
        401,
        "This login is over: it was used, is too old, or began before a restart",
    )


def test_a_code_that_was_used_elsewhere_opens_nothing(oidc: OidcWorld) -> None:
    code = parse_qs(urlsplit(oidc.sent_back(oidc.browser())).query)["code"][0]
    browser = oidc.browser()
    state = parse_qs(urlsplit(browser.get("/oidc/login").headers["location"]).query)["state"][0]
    page = browser.get(f"/oidc/callback?code={code}&state={state}")
    assert (page.status_code, heading(page)) == (401, "The provider does not take this login any more")


@pytest.mark.parametrize("state", ["", "guessed"])
def test_without_a_state_of_ours_nobody_gets_in(oidc: OidcWorld, state: str) -> None:
    browser = oidc.browser()
    oidc.sent_back(browser)
    assert browser.get(f"/oidc/callback?code=code-1&state={state}").status_code == 401


def test_a_login_that_was_begun_in_another_browser_opens_nothing_in_this_one(oidc: OidcWorld) -> None:
    theirs, mine = oidc.browser(), oidc.browser()
    back = oidc.sent_back(theirs)
    oidc.sent_back(mine)
    page = mine.get(back)
    assert page.status_code == 401
    assert "not begun in this browser" in heading(page)
    assert theirs.get(back).status_code == 401, "and it is used up"


def test_a_login_that_took_too_long_is_over(oidc: OidcWorld) -> None:
    browser = oidc.browser()
    back = oidc.sent_back(browser)
    oidc.clock.now += 601
    assert browser.get(back).status_code == 401


def test_a_login_inside_a_frame_or_a_script_of_another_page_is_refused(oidc: OidcWorld) -> None:
    browser = oidc.browser()
    back = oidc.sent_back(browser)
    for kind in ("iframe", "empty"):
        assert browser.get(back, headers={"Sec-Fetch-Dest": kind}).status_code == 403
    assert browser.get(back, headers={"Sec-Fetch-Dest": "document"}).status_code == 200


def test_who_refuses_at_the_provider_is_told_so_in_plain_words(oidc: OidcWorld) -> None:
    browser = oidc.browser()
    state = parse_qs(urlsplit(browser.get("/oidc/login").headers["location"]).query)["state"][0]
    page = browser.get("/oidc/callback", params={"error": "access_denied<script>", "state": state})
    assert (page.status_code, heading(page)) == (401, "The provider did not log you in (access_deniedscript)")
    assert "http://testserver/oidc/login" in page.text


@pytest.mark.parametrize(("named", "announced", "status"), [("https://evil.test", False, 401), ("", True, 401)])
def test_another_providers_answer_is_not_taken_for_this_ones(
    oidc: OidcWorld, named: str, announced: bool, status: int
) -> None:
    oidc.provider.described = lambda said: said.update(authorization_response_iss_parameter_supported=announced)
    browser = oidc.browser()
    back = oidc.sent_back(browser) + (f"&iss={named}" if named else "")
    assert browser.get(back).status_code == status


def test_nothing_in_a_request_chooses_where_a_browser_is_sent(oidc: OidcWorld) -> None:
    for query in ("next=https://evil.test", "redirect_uri=https://evil.test", "login=", "return_to=//evil.test"):
        away = urlsplit(oidc.browser().get(f"/oidc/login?{query}").headers["location"])
        assert f"{away.scheme}://{away.netloc}{away.path}" == f"{ISSUER}/authorize"
        assert parse_qs(away.query)["redirect_uri"] == ["http://testserver/oidc/callback"]
    assert oidc.browser().get("/oidc/login?login=https://evil.test").status_code == 404


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.ConnectError("refused"),
        httpx2.ReadTimeout("slow"),
        httpx2.Response(502, text="bad gateway"),
        httpx2.Response(200, text="<html>"),
        httpx2.Response(200, json={"issuer": "https://evil.test"}),
        httpx2.Response(200, content=b" " * (2 << 20)),
        httpx2.Response(302, headers={"Location": "https://evil.test"}),
    ],
    ids=["refused", "slow", "502", "html", "other issuer", "endless", "redirect"],
)
def test_with_the_provider_down_people_are_told_and_passwords_go_on(
    oidc: OidcWorld, answer: Exception | httpx2.Response
) -> None:
    oidc.provider.answer = answer
    page = oidc.browser().get("/oidc/login")
    assert page.status_code == 503
    assert "login.test" in heading(page)
    oidc.security.logins.choose_password("max", PASSWORD)
    assert oidc.client().post(f"{API}/login", json={"user": "max", "password": PASSWORD}).status_code == 200
    oidc.provider.answer = None
    oidc.clock.now += 4
    assert oidc.log_in().status_code == 200


def test_a_provider_that_is_down_is_not_asked_by_everybody_in_turn(oidc: OidcWorld) -> None:
    oidc.provider.answer = httpx2.ConnectTimeout("slow")
    for _ in range(5):
        assert oidc.browser().get("/oidc/login").status_code == 503
    assert len(oidc.provider.asked) == 1


def test_a_provider_that_was_down_when_the_clock_was_set_back_is_asked_again(oidc: OidcWorld) -> None:
    oidc.provider.answer = httpx2.ConnectTimeout("slow")
    assert oidc.browser().get("/oidc/login").status_code == 503
    oidc.provider.answer = None
    oidc.clock.now -= hours(24)
    assert oidc.log_in().status_code == 200


@pytest.mark.parametrize("endpoint", ["token_endpoint", "jwks_uri", "authorization_endpoint"])
def test_secrets_do_not_go_over_a_way_that_is_not_encrypted(oidc: OidcWorld, endpoint: str) -> None:
    oidc.provider.described = lambda said: said.update({endpoint: "http://login.test/x"})
    page = oidc.browser().get("/oidc/login")
    assert page.status_code == 503
    assert endpoint in heading(page)


def test_a_provider_that_takes_the_secret_in_the_body_gets_it_there(oidc: OidcWorld) -> None:
    oidc.provider.described = lambda said: said.update(token_endpoint_auth_methods_supported=["client_secret_post"])
    assert oidc.log_in().status_code == 200


def test_a_wrong_client_secret_is_told_as_what_it_is(oidc: OidcWorld) -> None:
    oidc.rules = rules(client_secret="wrong")
    page = oidc.log_in()
    assert page.status_code == 503
    assert "does not take this server for its client" in heading(page)


def test_a_server_without_a_provider_says_so(oidc: OidcWorld) -> None:
    oidc.rules = None
    page = oidc.browser().get("/oidc/login")
    assert (page.status_code, heading(page)) == (404, "This server knows no OpenID Connect provider")


def test_logins_are_in_the_audit_log_the_refused_ones_too(oidc: OidcWorld) -> None:
    oidc.log_in(sub="audited", preferred_username="audrey")
    oidc.provider.claims = lambda claims: claims.update(aud="other")
    oidc.log_in()
    refused, good = oidc.audited()[:2]
    assert (good["user"], good["object"], good["status"]) == ("audrey", "audrey", 200)
    assert good["after"] == f"at {ISSUER}: a new account"
    assert (refused["user"], refused["status"]) == ("", 401)
    assert "aud" in refused["after"]


def test_nobody_fills_the_audit_log_with_ways_back_from_nowhere(oidc: OidcWorld) -> None:
    before = len(oidc.audited())
    oidc.browser().get("/oidc/callback?code=x&state=y")
    assert len(oidc.audited()) == before
    back = oidc.sent_back(oidc.browser())
    oidc.browser().get(back)
    assert len(oidc.audited()) == before + 1, "one that was begun here, and comes back in another browser, is told"


def test_the_cookie_of_a_login_is_gone_after_it(oidc: OidcWorld) -> None:
    browser = oidc.browser()
    oidc.log_in(browser)
    assert SIGN_ON_COOKIE not in browser.cookies
