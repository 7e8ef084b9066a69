"""What passes between callers and the programs of jobs, and what never does."""

from __future__ import annotations

from millpond.server.auth.guard import COOKIE
from millpond.server.auth.oidc.sign_on import COOKIE as SIGN_ON_COOKIE
from millpond.server.proxy.headers import Caller, to_client, to_program
from millpond.server.proxy.passes import COOKIE as PASS_COOKIE

CALLER = Caller("192.0.2.1", "https", "pool.test")


def test_no_cookie_of_the_platform_reaches_a_program() -> None:
    cookies = "; ".join(f"{name}=secret" for name in (COOKIE, SIGN_ON_COOKIE, PASS_COOKIE))
    passed = dict(to_program([(b"cookie", f"{cookies}; own=1".encode())], CALLER, "/proxy/j", "key"))
    assert passed[b"cookie"] == b"own=1"


def test_a_program_cannot_take_a_name_of_the_platforms_cookies() -> None:
    for name in (COOKIE, SIGN_ON_COOKIE, PASS_COOKIE):
        assert to_client([(b"Set-Cookie", f"{name}=x; Path=/".encode())], "/proxy/j", False) == []


def test_a_page_of_a_program_stays_out_of_the_group_of_windows_of_the_platforms_pages() -> None:
    assert to_client([(b"Cross-Origin-Opener-Policy", b"same-origin")], "/proxy/j", False) == []
