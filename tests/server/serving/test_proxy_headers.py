"""What passes between callers and the programs of jobs, and what never does."""

from __future__ import annotations

import pytest

from millpond.server.auth.guard import COOKIE
from millpond.server.auth.oidc.sign_on import COOKIE as SIGN_ON_COOKIE
from millpond.server.serving.proxy.access_tokens import COOKIE as PASS_COOKIE
from millpond.server.serving.proxy.headers import ProxyCaller, to_client, to_program

CALLER = ProxyCaller("192.0.2.1", "https", "pool.test")


def test_no_cookie_of_the_platform_reaches_a_program() -> None:
    names = (COOKIE, SIGN_ON_COOKIE, PASS_COOKIE, f"__Host-{PASS_COOKIE}", f"__host-{PASS_COOKIE}")
    cookies = "; ".join(f"{name}=secret" for name in names)
    passed = dict(to_program([(b"cookie", f"{cookies}; own=1".encode())], CALLER, "/proxy/j", "key"))
    assert passed[b"cookie"] == b"own=1"


def test_a_program_cannot_take_a_name_of_the_platforms_cookies() -> None:
    for name in (COOKIE, SIGN_ON_COOKIE, PASS_COOKIE, f"__Host-{PASS_COOKIE}"):
        assert to_client([(b"Set-Cookie", f"{name}=x; Path=/".encode())], "/proxy/j", False) == []


def test_at_its_own_origin_a_program_keeps_its_paths_and_its_cookies_its_host() -> None:
    passed = to_client([(b"Location", b"/a"), (b"Set-Cookie", b"own=1; Path=/a; Domain=jobs.test")], "", False)
    assert passed == [(b"location", b"/a"), (b"set-cookie", b"own=1; Path=/a")]
    assert b"x-forwarded-prefix" not in dict(to_program([], CALLER, "", "key"))


def test_a_service_worker_may_have_the_whole_of_an_origin_of_its_own_and_no_more_elsewhere() -> None:
    wider = [(b"Service-Worker-Allowed", b"/")]
    assert to_client(wider, "", False) == [(b"service-worker-allowed", b"/")]
    assert to_client(wider, "/proxy/j", False) == []


@pytest.mark.parametrize("name", [b"NEL", b"Report-To", b"Alt-Svc", b"Accept-CH", b"Use-As-Dictionary"])
def test_a_program_says_nothing_that_browsers_keep_for_the_whole_origin(name: bytes) -> None:
    for prefix in ("/proxy/j", ""):
        assert to_client([(name, b"x"), (b"etag", b"y")], prefix, False) == [(b"etag", b"y")]


@pytest.mark.parametrize("name", [b"X-Accel-Redirect", b"X-Sendfile", b"X-LIGHTTPD-send-file"])
def test_a_program_does_not_have_a_web_server_in_front_answer_with_something_else(name: bytes) -> None:
    buffering = (b"x-accel-buffering", b"no")  # of this answer alone: programs that stream need it
    assert to_client([(name, b"/internal/x"), buffering], "/proxy/j", False) == [buffering]


def test_an_answer_has_one_date() -> None:
    assert to_client([(b"Date", b"Mon, 30 Nov 2026 05:53:19 GMT")], "/proxy/j", False) == []


def test_a_page_of_a_program_stays_out_of_the_group_of_windows_of_the_platforms_pages() -> None:
    assert to_client([(b"Cross-Origin-Opener-Policy", b"same-origin")], "/proxy/j", False) == []


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        (b"/lab", b"/proxy/j/lab"),
        (b"/proxy/j/user/login/", b"/proxy/j/user/login/"),  # Label Studio 1.23, told where it is shown
        (b"/proxy/j", b"/proxy/j"),
        (b"/proxy/jj/x", b"/proxy/j/proxy/jj/x"),
        (b"//elsewhere/x", b"//elsewhere/x"),
        (b"login", b"login"),
        (b"http://Pool.test:7433/items/?page=2", b"/proxy/j/items/?page=2"),  # FastAPI: another slash at the end
        (b"https://pool.test:7433/proxy/j/items/", b"/proxy/j/items/"),
        (b"http://pool.test:7433?page=2", b"/proxy/j/?page=2"),
        (b"http://pool.test:74330/x", b"http://pool.test:74330/x"),
        (b"http://pool.test/x", b"http://pool.test/x"),
    ],
)
def test_a_redirect_leads_below_the_place_where_the_program_is_shown(said: bytes, seen: bytes) -> None:
    host = b"pool.test:7433"
    assert to_client([(b"Location", said)], "/proxy/j", whole_path=False, host=host) == [(b"location", seen)]
    assert to_client([(b"Location", said)], "/proxy/j", whole_path=True, host=host) == [(b"location", said)]
