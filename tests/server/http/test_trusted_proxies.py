"""What is believed of a request's way, and by whom it must be said."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from millpond.server.http.security_headers import seen_from_outside
from millpond.specs.config.cluster import read_cluster
from millpond.specs.config.listen import ListenFile
from millpond.specs.errors import SpecError

TOLD = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}


async def tells(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope)
    await JSONResponse([request.client.host if request.client else "", request.url.scheme])(scope, receive, send)


def seen(listening: ListenFile, client: str, headers: dict[str, str]) -> tuple[list[str], str]:
    browser = TestClient(seen_from_outside(tells, listening), client=(client, 5000))
    answer = browser.get("/", headers=headers)
    return answer.json(), answer.headers.get("strict-transport-security", "")


def test_a_trusted_proxy_tells_where_a_request_comes_from_and_that_it_was_encrypted() -> None:
    listening = ListenFile(trusted_proxies=["10.0.0.0/8"], public_url="https://pool.test")
    found, stay = seen(listening, "10.1.2.3", TOLD)
    assert found == ["203.0.113.9", "https"]
    assert stay.startswith("max-age=")


def test_a_chain_of_trusted_proxies_is_read_from_its_trusted_end() -> None:
    listening = ListenFile(trusted_proxies=["10.0.0.0/8"])
    found, _ = seen(listening, "10.1.2.3", {"X-Forwarded-For": "1.1.1.1, 203.0.113.9, 10.9.9.9"})
    assert found[0] == "203.0.113.9", "what stands before it may be the caller's own invention"


@pytest.mark.parametrize("trusted", [[], ["10.0.0.0/8"]])
def test_what_anybody_else_says_of_it_is_not_believed(trusted: tuple[str, ...]) -> None:
    found, stay = seen(ListenFile(trusted_proxies=trusted, public_url="https://pool.test"), "192.0.2.7", TOLD)
    assert (found, stay) == (["192.0.2.7", "http"], "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("listen: {trusted_proxies: [nginx]}", "neither an address nor a network"),
        ("listen: {certificate: /etc/x.crt}", "key is missing"),
        ("listen: {public_url: pool.test}", "1:22"),
        ("listen: {certificate: x.crt, key: x.key}", "1:23"),
        ("listen: {jobs_domain: 127.0.0.1}", "1:23"),
        ("listen: {jobs_domain: '*.jobs.test'}", "1:23"),
        ("listen: {jobs_domain: jobs.test, trusted_proxies: [10.0.0.1]}", "needs public_url"),
    ],
)
def test_a_wrong_section_is_told_with_its_place(text: str, words: str) -> None:
    with pytest.raises(SpecError) as refused:
        read_cluster(text, "pool.yaml")
    assert words in str(refused.value)
