"""Each job at a host name of its own: what is served where, and which pages may use the cookie for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from auth_world import API, AuthWorld
from fastapi.testclient import TestClient
from starlette.testclient import WebSocketDenialResponse

from millpond.specs.config.origins import JobOrigins

NOTHING_RUNS = 503
"""Whoever is let in is told so: no program answers in these tests."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthWorld]:
    made = AuthWorld(tmp_path_factory.mktemp("origins"), origins=JobOrigins("jobs.test", "https")).populate()
    yield made
    made.close()


def at(world: AuthWorld, job: str, user: str = "", scheme: str = "https") -> TestClient:
    """A client that speaks to the origin of a job, and follows nothing by itself."""
    client = world.client(user)
    client.base_url = client.base_url.copy_with(scheme=scheme, host=f"{job}.jobs.test")
    client.follow_redirects = False
    return client


def signed_in(world: AuthWorld, job: str) -> TestClient:
    """A browser of max that has opened a link at the job's origin."""
    link = world.client("max").post(f"{API}/jobs/{job}/link").json()
    browser = at(world, job)
    assert link["open_url"].startswith(f"https://{job}.jobs.test/")
    assert browser.get(link["open_url"]).status_code == 200
    return browser


@pytest.fixture(scope="module")
def job(world: AuthWorld) -> str:
    return world.submit("max", kind="dev", name="A.Notebook__of--mine")


def test_a_link_leads_to_the_jobs_origin_and_its_cookie_is_for_that_host_alone(world: AuthWorld, job: str) -> None:
    link = world.client("max").post(f"{API}/jobs/{job}/link").json()
    opened = at(world, job).get(link["open_url"])
    cookie = opened.headers["set-cookie"]
    assert cookie.startswith("__Host-millpond_pass=")
    assert {"Path=/", "Secure", "HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    assert "Domain" not in cookie
    assert at(world, job).get(link["open_url"]).status_code == 403, "a link works once"


def test_a_link_at_the_servers_own_name_leads_on_to_the_jobs_origin(world: AuthWorld, job: str) -> None:
    link = world.client("max").post(f"{API}/jobs/{job}/link").json()
    browser = world.client()
    sent_on = browser.get(link["open_path"], follow_redirects=False)
    assert (sent_on.status_code, "set-cookie" in sent_on.headers) == (307, False)
    assert sent_on.headers["location"].startswith(f"https://{job}.jobs.test/.millpond/open?ticket=")
    assert at(world, job).get(sent_on.headers["location"]).status_code == 200


def test_a_link_opens_no_other_job_than_its_own(world: AuthWorld, job: str) -> None:
    other = world.submit("max", kind="dev")
    link = world.client("max").post(f"{API}/jobs/{job}/link").json()
    wrong = f"/.millpond/open?{link['open_path'].partition('?')[2]}"
    refused = at(world, other).get(wrong)
    assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)
    chinese = at(world, other).get(wrong, headers={"Accept-Language": "zh-CN"})
    assert (chinese.headers["content-language"], '<html lang="zh-CN">' in chinese.text) == ("zh-CN", True)
    assert "used already" not in chinese.text
    assert "/portal/" not in chinese.text, "there is none at this origin"
    stranger = at(world, other)
    for name, value in signed_in(world, job).cookies.items():
        stranger.headers["Cookie"] = f"{name}={value}"
    assert stranger.get("/").status_code == 401


def test_browsers_are_sent_from_the_path_to_the_origin_and_see_no_program_under_the_servers_name(
    world: AuthWorld, job: str
) -> None:
    kept = "; ".join(f"{name.removeprefix('__Host-')}={value}" for name, value in signed_in(world, job).cookies.items())
    browser = world.client(Cookie=kept)
    for method in ("GET", "POST"):
        answer = browser.request(method, f"/proxy/{job}/a%2Fb?x=1", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (307, f"https://{job}.jobs.test/a%2Fb?x=1")
    assert browser.get(f"/proxy/{job}/", headers={"Authorization": "Basic eDp4"}).status_code == 401
    with pytest.raises(WebSocketDenialResponse) as refused, browser.websocket_connect(f"/proxy/{job}/socket"):
        raise AssertionError("let in")
    assert refused.value.status_code == 307


def test_who_shows_the_token_is_served_in_both_places(world: AuthWorld, job: str) -> None:
    assert world.client("max").get(f"/proxy/{job}/").status_code == NOTHING_RUNS
    assert at(world, job, "max").get("/").status_code == NOTHING_RUNS
    assert at(world, job, "sam").get("/").status_code == 404


@pytest.mark.parametrize("path", ["/healthz", "/docs", "/openapi.json", f"{API}/jobs", f"{API}/login", "/oidc/login"])
def test_the_api_is_not_served_at_the_origin_of_a_job(world: AuthWorld, job: str, path: str) -> None:
    assert at(world, job).get(path).status_code == 401
    assert at(world, job, "max").get(path).status_code == NOTHING_RUNS, "it is a path of the program's"


@pytest.mark.parametrize("host", ["jobs.test", "a.b.jobs.test", "web.jobs.test.evil.test"])
def test_names_that_are_no_jobs_are_refused(world: AuthWorld, host: str) -> None:
    assert world.client("max").get(f"{API}/jobs", headers={"Host": host}).status_code == 421


OWN = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "empty"}
SIBLING = {"Sec-Fetch-Site": "same-site"}


@pytest.mark.parametrize(
    ("method", "headers", "is_let_in"),
    [
        ("GET", {}, True),
        ("GET", OWN, True),
        ("POST", OWN, True),
        ("GET", SIBLING | {"Sec-Fetch-Dest": "document"}, True),
        ("GET", SIBLING | {"Sec-Fetch-Dest": "iframe"}, False),
        ("GET", SIBLING | {"Sec-Fetch-Dest": "image"}, False),
        ("GET", SIBLING | {"Sec-Fetch-Dest": "empty"}, False),
        ("POST", SIBLING | {"Sec-Fetch-Dest": "document"}, False),
        ("GET", {"Origin": "https://other.jobs.test"}, False),
        ("POST", {"Origin": "https://testserver"}, False),
        ("POST", {"Origin": "null"}, False),
    ],
)
def test_only_the_jobs_own_pages_use_its_cookie_and_others_may_lead_to_it(
    world: AuthWorld, job: str, method: str, headers: dict[str, str], is_let_in: bool
) -> None:
    status = signed_in(world, job).request(method, "/", headers=headers).status_code
    assert status == (NOTHING_RUNS if is_let_in else 401)


@pytest.mark.parametrize("origin", ["https://other.jobs.test", "https://testserver", "https://jobs.test"])
def test_pages_of_other_origins_open_no_websocket(world: AuthWorld, job: str, origin: str) -> None:
    browser = signed_in(world, job)
    with (
        pytest.raises(WebSocketDenialResponse) as refused,
        browser.websocket_connect(f"wss://{job}.jobs.test/socket", headers={"Origin": origin}),
    ):
        raise AssertionError("let in")
    assert refused.value.status_code == 401


def test_without_encryption_the_cookie_is_for_that_host_alone_too(world: AuthWorld, job: str) -> None:
    link = world.client("max").post(f"{API}/jobs/{job}/link").json()
    browser = at(world, job, scheme="http")
    cookie = browser.get(link["open_url"].replace("https:", "http:")).headers["set-cookie"]
    assert cookie.startswith("millpond_pass=")
    assert "Path=/;" in cookie
    assert "Domain" not in cookie


def test_a_service_tells_its_origin_and_each_revision_has_one(world: AuthWorld) -> None:
    service = world.submit("max", kind="service", name="x" * 100)
    told = world.client("max").get(f"{API}/jobs/{service}/service").json()
    assert told["url"] == f"https://{service}.jobs.test"
    moved = world.client().get(f"/proxy/{service}.r2/", follow_redirects=False)
    assert moved.headers["location"] == f"https://{service}--r2.jobs.test/"


def test_an_id_from_before_that_fits_no_host_name_is_not_shown_under_the_servers_name(world: AuthWorld) -> None:
    answer = world.client().get(f"/proxy/{'x' * 64}/", follow_redirects=False)
    assert (answer.status_code, "cannot be part of a host name" in answer.text) == (410, True)
