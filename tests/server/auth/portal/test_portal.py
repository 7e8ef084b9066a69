"""The portal's pages: who gets in and how, what nobody else's page can do there, and what users wrote as text."""

from __future__ import annotations

import html
import json
import os
import re
import time
from dataclasses import replace
from importlib.resources import files
from urllib.parse import parse_qsl, urljoin, urlsplit

import pytest
from auth_world import API, PASSWORD, AuthWorld
from fastapi.testclient import TestClient
from httpx2 import Response
from portal_browser import HOSTILE, VISIT, browser_of, csrf_in

from millpond.server.auth.guard import PORTAL_PREFIX
from millpond.server.auth.oidc.pending_logins import GOOD_FOR_S
from millpond.server.auth.records import TokenKind, User
from millpond.server.monitoring.time_series.figures import part_of
from millpond.server.store.statistics.time_series import SeriesRow
from millpond.server.views.visibility import Reader
from millpond.server.web import admin_pages
from millpond.server.web.jobs.drafts import LARGEST_DRAFT
from millpond.specs.api.pool.nodes import DeviceInfo, NodeInfo, SpareInfo
from millpond.specs.api.server import AdaptationInfo
from millpond.specs.source_positions import read_documents

PAGES = ("/portal/", "/portal/?colour=owner", "/portal/?colour=health", "/portal/jobs", "/portal/jobs?all=true")
PAGES += ("/portal/queues", "/portal/nodes", "/portal/submit", "/portal/submit?template=shell")
PAGES += ("/portal/nodes/n1", "/portal/admin", "/portal/admin/tokens?all=true")
FOR_ADMINS = ("/portal/admin/webhooks", "/portal/admin/settings")


# ---- ways in --------------------------------------------------------------------------------------------------------


def test_one_who_has_logged_in_by_another_window_goes_on_from_the_page_to_log_in(shared: AuthWorld) -> None:
    page = "/portal/login?next=/portal/queues"
    assert "Go on as" not in shared.client(**VISIT).get(page).text
    assert re.search('href="/portal/queues">Go on as max<', browser_of(shared, "max").get(page).text)


def test_a_link_logs_one_browser_in_and_leads_to_the_job(shared: AuthWorld) -> None:
    job = shared.submit("max")
    link = shared.client("max").post(f"{API}/portal/links", json={"job": job}).json()["url"]
    browser = shared.client(**VISIT)
    answer = browser.get(link)
    assert answer.status_code == 200
    assert f'href="/portal/jobs/{job}"' in answer.text
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert job in browser.get(f"/portal/jobs/{job}").text
    again = shared.client(**VISIT).get(link)
    assert again.status_code == 401
    assert "used already" in again.text
    assert "set-cookie" not in again.headers


def test_a_link_is_good_for_minutes_and_not_for_an_account_that_was_disabled(world: AuthWorld) -> None:
    late = world.client("max").post(f"{API}/portal/links", json={}).json()["url"]
    world.clock.now += GOOD_FOR_S + 1
    assert world.client(**VISIT).get(late).status_code == 401
    link = world.client("max").post(f"{API}/portal/links", json={}).json()["url"]
    assert world.client("olga").patch(f"{API}/users/max", json={"disabled": True}).status_code == 200
    assert world.client(**VISIT).get(link).status_code == 401


def test_the_session_of_a_confined_token_is_confined_as_it_is(world: AuthWorld) -> None:
    answer = world.client("max").post(f"{API}/tokens", json={"name": "reads", "verbs": ["read-jobs"]})
    bearer = {"Authorization": f"Bearer {answer.json()['secret']}"}
    link = world.client(**bearer).post(f"{API}/portal/links", json={}).json()["url"]
    browser = world.client(**VISIT)
    browser.get(link)
    assert browser.get("/portal/jobs").status_code == 200
    assert browser.get("/portal/nodes").status_code == 403
    job = world.submit("max")
    assert "/stop" not in browser.get(f"/portal/jobs/{job}").text


def test_a_program_has_no_browser(world: AuthWorld) -> None:
    world.accounts.add_user(User("robot", service=True))
    _, secret = world.accounts.tokens.issue("robot", TokenKind.PERSONAL, 3600.0)
    answer = world.client(Authorization=f"Bearer {secret}").post(f"{API}/portal/links", json={})
    assert answer.status_code == 403


def test_entries_by_a_link_are_in_the_audit_log(world: AuthWorld) -> None:
    browser_of(world, "max")
    entries = world.client("olga").get(f"{API}/audit").json()["entries"]
    assert [(each["verb"], each["user"], each["status"]) for each in entries[:1]] == [("log-in", "max", 200)]


def test_who_is_not_logged_in_is_led_to_the_login_and_back_to_nowhere_else(shared: AuthWorld) -> None:
    answer = shared.client(**VISIT).get("/portal/jobs?user=max", follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/portal/login?next=/portal/jobs%3Fuser%3Dmax"
    page = shared.client(**VISIT).get(answer.headers["location"])
    assert 'data-then="/portal/jobs?user=max"' in page.text
    for wrong in ("https://evil.example/", "//evil.example", "/portal/../..\\evil", "javascript:alert(1)", "/docs"):
        page = shared.client(**VISIT).get("/portal/login", params={"next": wrong})
        assert 'data-then="/portal/"' in page.text, wrong


def test_the_address_without_the_slash_behind_it_leads_to_the_portal_with_and_without_a_login(world: AuthWorld) -> None:
    for browser in (world.client(**VISIT), browser_of(world, "max")):
        answer = browser.get("/portal", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (307, "/portal/")
    assert ">max<" in browser.get("/portal").text


def test_a_password_opens_the_portal_too(world: AuthWorld) -> None:
    world.security.logins.choose_password("max", PASSWORD)
    browser = world.client(**VISIT)
    answer = browser.post(f"{API}/login", json={"user": "max", "password": PASSWORD, "session": True})
    assert answer.status_code == 200
    assert ">max<" in browser.get("/portal/").text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((page, 200) for page in PAGES),
        ("/portal/jobs/unknown", 404),
        ("/portal/nodes/unknown", 404),
        ("/portal/nodes/%00", 404),
        ("/portal/nowhere", 404),
        ("/portal/nodes?page=0", 422),
        ("/portal/admin/settings", 403),
    ],
)
def test_a_page_is_made_by_the_fast_path_as_by_fastapi(
    shared: AuthWorld, monkeypatch: pytest.MonkeyPatch, path: str, status: int
) -> None:
    limits = shared.app._app._app._others._app  # type: ignore[attr-defined]
    fast = limits._app
    for browser in (browser_of(shared, "max"), shared.client(**VISIT)):
        seen = []
        for routes in (fast, fast._app):
            monkeypatch.setattr(limits, "_app", routes)
            answer = browser.get(path, follow_redirects=False)
            nonce = re.search("nonce-([^']+)'", answer.headers.get("content-security-policy", "")) or [""] * 2
            headers = [(name, value.replace(nonce[1], "N")) for name, value in answer.headers.items()]
            timeless = re.sub(r"\d", "", answer.text.replace(nonce[1], "N"))
            seen.append((answer.status_code, sorted(headers), timeless))
        assert seen[0] == seen[1]
    monkeypatch.setattr(limits, "_app", fast)
    assert browser_of(shared, "max").get(path).status_code == status


# ---- what the pages of jobs, served under the same name, cannot do --------------------------------------------------


@pytest.mark.parametrize(
    "way",
    [
        {"sec-fetch-mode": "cors", "sec-fetch-dest": "empty"},
        {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"},
        {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        {"sec-fetch-mode": "navigate", "sec-fetch-dest": "object"},
        {"sec-fetch-mode": "navigate", "sec-fetch-dest": "embed"},
    ],
)
def test_a_page_of_a_job_cannot_read_the_portal_with_the_cookie_of_its_visitor(
    shared: AuthWorld, way: dict[str, str]
) -> None:
    browser = browser_of(shared, "max")
    answer = browser.get("/portal/jobs", headers=way, follow_redirects=False)
    assert answer.status_code in (303, 403)
    assert "csrf-token" not in answer.text


def test_a_page_reads_itself_anew_with_what_it_was_given(shared: AuthWorld) -> None:
    browser = browser_of(shared, "max")
    csrf = csrf_in(browser.get("/portal/jobs").text)
    fetched = {"sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
    assert browser.get("/portal/jobs", headers={**fetched, "X-CSRF-Token": csrf}).status_code == 200
    wrong = browser.get("/portal/jobs", headers={**fetched, "X-CSRF-Token": "0" * 64}, follow_redirects=False)
    assert wrong.status_code in (303, 403)


def test_what_a_page_asks_for_goes_to_the_api_and_takes_the_same_header(world: AuthWorld) -> None:
    job = world.submit("max")
    browser = browser_of(world, "max")
    page = browser.get(f"/portal/jobs/{job}").text
    assert f'hx-post="/api/v1/jobs/{job}/stop"' in page
    assert browser.post(f"{API}/jobs/{job}/stop").status_code == 403
    csrf = csrf_in(page)
    assert browser.post(f"{API}/jobs/{job}/stop", headers={"X-CSRF-Token": csrf}).status_code == 202


def test_a_browser_that_does_not_say_what_it_wants_a_page_for_learns_why_it_sees_none(shared: AuthWorld) -> None:
    browser = browser_of(shared, "max")
    for name in VISIT:
        del browser.headers[name]
    answer = browser.get("/portal/jobs")
    assert answer.url.path == "/portal/login"
    assert "only over HTTPS" in answer.text
    assert 'id="login"' not in answer.text


@pytest.mark.parametrize("path", [*PAGES, "/portal/login"])
def test_no_page_runs_or_loads_what_is_not_its_own(shared: AuthWorld, path: str) -> None:
    answer = browser_of(shared, "olga").get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'nonce-")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert not re.search(r"\son[a-z]+=|\sstyle=|<style|javascript:", answer.text)
    assert "http:" not in answer.text
    assert "https:" not in answer.text


@pytest.mark.parametrize("path", [*PAGES, "/portal/login"])
def test_a_page_whose_scripts_do_not_run_says_so_and_sends_no_secret_in_an_address(
    shared: AuthWorld, path: str
) -> None:
    page = browser_of(shared, "olga").get(path).text
    assert "<noscript><p" in page
    for form in re.findall(r"<form.*?</form>", page, re.DOTALL):
        assert 'method="post"' in form or ('method="get"' in form and 'type="password"' not in form), form


def test_the_size_of_texts_is_that_of_the_reader_on_every_page() -> None:
    sheets = [file.read_text() for file in (files("millpond.server.web") / "static").iterdir() if file.suffix == ".css"]
    assert len(sheets) > 5
    for sheet in sheets:
        on_screen = re.sub(r"@media print \{\n.*|\.axis \{.*?\}", "", sheet, flags=re.DOTALL)  # paper, and drawings
        assert re.findall(r"font[-a-z]*: [^;]*\dpx", on_screen) == []


def test_files_of_pages_are_kept_for_good_under_the_name_of_their_content(shared: AuthWorld) -> None:
    page = shared.client(**VISIT).get("/portal/login").text
    for address in re.findall(r'(?:src|href)="(/portal/static/[^"]+)"', page):
        answer = shared.client().get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    assert shared.client(**VISIT).get("/portal/static/0123456789abcdef/portal.js").status_code == 404


# ---- what is shown, and to whom -------------------------------------------------------------------------------------


def test_what_users_wrote_is_text(world: AuthWorld) -> None:
    job = world.submit("max", command=HOSTILE, gpus=4)
    closed = world.client("olga").post(f"{API}/nodes/n1/close", json={"reason": HOSTILE.replace("\u202e", "")})
    assert closed.status_code == 200, closed.text
    world.settled()
    browser = browser_of(world, "max")
    for path in ("/portal/", "/portal/jobs", f"/portal/jobs/{job}", "/portal/nodes", f"/portal/jobs?user={HOSTILE}"):
        text = browser.get(path).text
        assert "<script>alert" not in text, path
        assert "<img src=x" not in text, path
    assert "&lt;script&gt;alert(1)" in browser.get("/portal/nodes").text
    assert "&lt;script&gt;alert(1)" in browser.get(f"/portal/jobs/{job}").text


def test_jobs_of_other_groups_are_counted_on_nodes_in_the_language_of_the_reader(world: AuthWorld) -> None:
    for _ in range(2):
        world.submit("max", gpus=1)
    world.settled()
    browser = browser_of(world, "sam")
    for path in ("/portal/nodes", "/portal/nodes/n1"):
        assert "of other groups: 2" in browser.get(path).text
        in_chinese = browser.get(path, headers={"Accept-Language": "zh-CN"}).text
        assert "其他组的" in in_chinese
        assert "other group" not in in_chinese


def test_what_pages_lead_to_is_a_page(world: AuthWorld) -> None:
    job = world.submit("max", gpus=4)
    world.submit("max", gpus=4)
    world.settled()
    browser = browser_of(world, "olga")
    known, ahead = set[tuple[str, tuple[str, ...]]](), ["/portal/", f"/portal/jobs/{job}"]
    while ahead:
        path = ahead.pop()
        answer = browser.get(path)
        assert answer.status_code == 200, path
        here = urlsplit(str(answer.url)).path
        for link in re.findall(r'(?:href|data-matching)="([^"#]+)', answer.text):
            led = urljoin(here, html.unescape(link))
            if led.startswith(PORTAL_PREFIX) and (kind := _kind_of(led)) not in known:
                known.add(kind)
                ahead.append(led)
    assert {"/portal/reports/waits", "/portal/admin/audit", f"/portal/jobs/{job}"} <= {path for path, _ in known}


def _kind_of(address: str) -> tuple[str, tuple[str, ...]]:
    """Which page an address is of, and what it asks it, whatever the values are."""
    parts = urlsplit(address)
    return parts.path, tuple(sorted({name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}))


def test_one_card_is_called_a_card(world: AuthWorld) -> None:
    world.submit("max", gpus=4)
    world.settled()
    for asked in (1, 0.5):
        world.submit("max", gpus=asked)
        world.settled()
        browser = browser_of(world, "max")
        for path in ("/portal/", "/portal/queues", "/portal/queues/vision"):
            assert {1: "(1 card)", 0.5: "(1.5 cards)"}[asked] in browser.get(path).text, path


def test_buttons_are_offered_to_those_alone_who_may(world: AuthWorld) -> None:
    job = world.submit("max")
    assert "/stop" in browser_of(world, "max").get(f"/portal/jobs/{job}").text
    assert "/stop" in browser_of(world, "lea").get(f"/portal/jobs/{job}").text
    for user in ("mia", "vic"):
        seen = browser_of(world, user).get(f"/portal/jobs/{job}")
        assert seen.status_code == 200
        assert 'hx-post="/api/v1/jobs' not in seen.text
        assert "As it was submitted" not in seen.text
    assert browser_of(world, "sam").get(f"/portal/jobs/{job}").status_code == 404
    assert "/close" in browser_of(world, "olga").get("/portal/nodes").text
    assert "/close" not in browser_of(world, "lea").get("/portal/nodes").text


def test_one_who_is_invited_into_a_group_accepts_or_declines_on_the_overview(world: AuthWorld) -> None:
    browser, place = browser_of(world, "max"), f"{API}/groups/speech/membership"
    for act, groups in ((browser.delete, ["vision"]), (browser.post, ["speech", "vision"])):
        world.client("sue").put(f"{API}/groups/speech/invitations/max", json={"role": "viewer"})
        page = browser.get("/portal/").text
        assert "sue invites you into group speech as viewer." in page
        assert f'hx-post="{place}"' in page
        assert f'hx-delete="{place}"' in page
        assert place not in browser_of(world, "mia").get("/portal/").text
        assert act(place, headers={"x-csrf-token": csrf_in(page)}).is_success
        assert place not in browser.get("/portal/").text
        assert [each["group"] for each in world.client("max").get(f"{API}/whoami").json()["groups"]] == groups


def test_the_overview_of_a_pool_without_work_leads_each_to_what_they_may_begin_with(world: AuthWorld) -> None:
    work, accounts = ("/portal/submit", "/portal/sessions"), ("/portal/admin/groups", "/portal/admin/users")
    seen = {
        name: [f'<a href="{path}">' in told for path in (*work, *accounts)]
        for name in ("olga", "max", "vic")
        for told in [browser_of(world, name).get("/portal/").text.partition("Nothing waits.")[2].partition("</p>")[0]]
    }
    assert seen == {"olga": [True] * 4, "max": [True, True, False, False], "vic": [False] * 4}
    world.submit("max")
    assert "Start a notebook" not in browser_of(world, "olga").get("/portal/").text


def test_cards_and_maintenance_are_for_admins_to_change(world: AuthWorld) -> None:
    seen = browser_of(world, "olga").get("/portal/nodes/n1").text
    assert '{"card": 0}' in seen
    assert 'data-send="/api/v1/nodes/n1/close"' in seen
    plain = browser_of(world, "lea").get("/portal/nodes/n1").text
    assert 'hx-post="/api/v1/nodes' not in plain
    assert "data-send" not in plain
    assert browser_of(world, "lea").get("/portal/nodes/n7").status_code == 404


def test_pages_about_the_server_are_for_those_who_may_ask_the_api_for_the_same(world: AuthWorld) -> None:
    for user, status in (("olga", 200), ("lea", 403)):
        assert {browser_of(world, user).get(path).status_code for path in FOR_ADMINS} == {status}
    assert browser_of(world, "lea").get("/portal/admin/audit").status_code == 200
    assert browser_of(world, "max").get("/portal/admin/audit").status_code == 403
    assert "/portal/admin/audit" not in browser_of(world, "max").get("/portal/admin/tokens").text
    assert "hx-patch" not in browser_of(world, "lea").get("/portal/admin/users").text
    users = browser_of(world, "olga").get("/portal/admin/users").text
    assert '/api/v1/users/max"' in users
    assert '/api/v1/users/olga"' not in users  # nobody takes the server from its owner
    assert f"kill -HUP {os.getpid()}" in browser_of(world, "olga").get("/portal/admin/settings").text
    members = '/api/v1/groups/vision/members/max"'
    assert members in browser_of(world, "lea").get("/portal/admin/groups").text
    assert members not in browser_of(world, "max").get("/portal/admin/groups").text
    queues = [browser_of(world, user).get("/portal/admin/groups").text for user in ("olga", "lea")]
    assert ["Its jobs go to the queue of its name" in page for page in queues] == [True, False]


def test_the_form_of_a_job_names_the_queue_that_it_joins_if_none_is_written(world: AuthWorld) -> None:
    for user, queue in (("max", "vision"), ("olga", "default")):
        page = browser_of(world, user).get("/portal/submit").text
        assert re.search(r'data-field="queue"[^>]* placeholder="([^"]*)"', page)[1] == queue


def test_an_admin_sees_what_the_last_night_chose_why_and_on_trial_until_when(world: AuthWorld) -> None:
    nothing = browser_of(world, "olga").get("/portal/admin/settings").text
    assert "has no section <code>adapt</code>" in nothing
    chosen = AdaptationInfo(
        chooses=True,
        policies="ordering sjf, placement default",
        next_at=300.0,
        looked_at=200.0,
        result="mean slowdown 4.00 -> <3.00>",
        changed_at=200.0,
        other="ordering fifo, placement default",
        trial_until=400.0,
    )
    world.service.about.policies_by = lambda _: chosen
    page = browser_of(world, "olga").get("/portal/admin/settings").text
    for shown in ("Chosen", "On trial until", chosen.policies, chosen.other, "4.00 -&gt; &lt;3.00&gt;"):
        assert shown in page
    world.service.about.policies_by = lambda _: replace(chosen, rolled_back=True, trial_until=None)
    page = browser_of(world, "olga").get("/portal/admin/settings").text
    assert "Given up" in page
    assert "On trial until" not in page
    world.service.about.policies_by = lambda _: replace(chosen, result="the replays are under way")
    chinese = browser_of(world, "olga").get("/portal/admin/settings", headers={"Accept-Language": "zh-CN"}).text
    for shown in ("正在回放", "排序 sjf、放置 default"):
        assert shown in chinese


def test_one_sees_and_revokes_ones_own_tokens_and_an_admin_those_of_all(world: AuthWorld) -> None:
    made = world.client("max").post(f"{API}/tokens", json={"name": "ci <b>"}).json()
    for user, shown in (("max", True), ("olga", True), ("mia", False)):
        text = browser_of(world, user).get("/portal/admin/tokens").text
        assert (f'hx-delete="/api/v1/tokens/{made["id"]}"' in text) is shown
        assert made["secret"] not in text
        assert "ci <b>" not in text
    assert world.client("max").delete(f"{API}/tokens/{made['id']}").status_code == 200
    assert made["id"] not in browser_of(world, "max").get("/portal/admin/tokens").text
    assert made["id"] in browser_of(world, "max").get("/portal/admin/tokens?all=true").text


def test_the_audit_log_is_filtered_by_user_object_and_day(world: AuthWorld) -> None:
    world.client("olga").post(f"{API}/nodes/n1/close", json={"card": 0})
    browser = browser_of(world, "olga")
    assert "n1/0" in browser.get("/portal/admin/audit?by=olga&object=n1/0").text
    assert "No entry matches." in browser.get("/portal/admin/audit?by=max&object=n1/0").text
    assert "No entry matches." in browser.get("/portal/admin/audit?since=2999-01-01").text
    assert browser.get("/portal/admin/audit?since=yesterday").status_code == 422
    for early in ("0001-01-01", "1970-01-01"):
        assert "n1/0" in browser.get(f"/portal/admin/audit?by=olga&since={early}").text


def test_nobody_reads_names_of_other_groups_on_any_page(world: AuthWorld) -> None:
    job = world.submit("sam", name="their-secret", gpus=1)
    waits = world.submit("sam", name="their-other-secret", gpus=4)
    world.settled()
    browser = browser_of(world, "max")
    for path in PAGES:
        text = browser.get(path).text
        assert job not in text, path
        assert waits not in text, path
        assert not re.search(r"\bsam\b", text), path
    assert waits in browser_of(world, "sue").get("/portal/").text


@pytest.mark.long
def test_the_list_goes_on_behind_its_last_job_in_the_chosen_view(world: AuthWorld) -> None:
    jobs = []
    for _ in range(103):
        world.clock.now += 1
        jobs.append(world.submit("max", name="many", gpus=4))
    browser = browser_of(world, "max")
    first = browser.get("/portal/jobs?name=many").text
    shown = re.findall(r'<tr id="job-([^"]+)"', first)
    assert shown == jobs[:-101:-1]
    address = re.search(r'href="([^"]+)" rel="next"', first)
    assert address is not None
    second = browser.get(address[1].replace("&amp;", "&")).text
    assert re.findall(r'<tr id="job-([^"]+)"', second) == jobs[2::-1]
    assert 'rel="next"' not in second
    oldest = browser.get("/portal/jobs?name=many&order=oldest").text
    assert re.findall(r'<tr id="job-([^"]+)"', oldest) == jobs[:100]
    address = re.search(r'href="([^"]+)" rel="next"', oldest)
    assert address is not None
    rest = browser.get(address[1].replace("&amp;", "&")).text
    assert re.findall(r'<tr id="job-([^"]+)"', rest) == jobs[100:]
    assert 'href="/portal/jobs?name=many&amp;order=oldest">To the oldest' in rest
    listed = world.client("max").get("/api/v1/jobs?order=oldest&limit=2").json()
    assert ([job["id"] for job in listed["jobs"]], listed["truncated"]) == (jobs[:2], True)
    assert browser.get("/portal/jobs?order=tallest").status_code == 422
    refused = world.client("max").get("/api/v1/jobs?order=tallest")
    assert refused.status_code == 422
    assert "order" in refused.text
    assert "oldest" in refused.text


def test_each_page_speaks_the_language_of_its_reader(shared: AuthWorld) -> None:
    browser = browser_of(shared, "max", **{"accept-language": "zh-CN,zh;q=0.9,en;q=0.8"})
    assert '<html lang="zh-CN">' in browser.get("/portal/jobs").text
    assert "作业" in browser.get("/portal/jobs").text
    answer = browser.get("/portal/language/en?next=/portal/nodes")
    assert answer.url.path == "/portal/nodes"
    assert '<html lang="en">' in answer.text
    assert browser.get("/portal/language/tlh").status_code == 404


def test_what_there_is_not_is_a_page_too(shared: AuthWorld) -> None:
    answer = browser_of(shared, "max").get("/portal/jobs/nobody-knows")
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "nobody-knows" in answer.text
    assert 'list the jobs with <a href="/portal/jobs?all=true" title="pond ps --all">Jobs</a>' in answer.text
    assert '<a href="/portal/">To the overview' in answer.text
    assert browser_of(shared, "max").get("/portal/jobs?state=odd").status_code == 422
    for path in ("/portal/nothing", "/portal/jobs/a/b", "/portal//x"):
        for browser in (browser_of(shared, "max"), shared.client(**VISIT)):
            answer = browser.get(path)
            assert answer.status_code == 404
            assert "there is no such page" in answer.text
    assert browser_of(shared, "max").get("/portal/jobs/").url.path == "/portal/jobs"


def test_the_overview_of_the_api_is_what_the_page_shows(world: AuthWorld) -> None:
    world.submit("max", name="runs", gpus=3)
    waits = world.submit("max", name="waits", gpus=4)
    world.settled()
    info = world.client("max").get(f"{API}/overview").json()
    assert info["jobs"] == {"queued": 1, "running": 1}
    (room,) = info["models"]
    assert (room["model"], room["cards"], room["held_milli"], room["whole"]) == ("V100", 4, 3000, 1)
    assert (room["largest_block"], room["block_node"]) == (1, "n1")
    assert [(each["job"], each["position"]) for each in info["next"]] == [(waits, 1)]
    assert waits in browser_of(world, "max").get("/portal/").text


def test_counts_of_the_overview_are_said_to_be_of_members_where_lists_have_an_array_as_one_row(
    world: AuthWorld,
) -> None:
    browser = browser_of(world, "max")
    world.submit("max", gpus=1)
    world.settled()
    assert "each member of an array counts as a job" not in browser.get("/portal/").text
    array = world.submit("max", gpus=1, array=2)
    world.settled()
    page = browser.get("/portal/").text
    assert "3 running</a>" in page
    assert "each member of an array counts as a job" in page
    listed = browser.get("/portal/jobs?state=running").text
    assert (listed.count('<tr id="job-'), f'id="job-{array}"' in listed) == (2, True)


def test_counts_of_the_overview_are_said_to_be_of_all_groups_where_its_lists_are_not(world: AuthWorld) -> None:
    world.submit("max", gpus=4)
    world.settled()
    for user, are_said in (("max", True), ("sam", True), ("olga", False)):
        page = browser_of(world, user).get("/portal/").text
        assert "1 running</a>" in page
        assert ("jobs of all groups: <a" in page) is are_said, user


# ---- a job that is written here -------------------------------------------------------------------------------------


def posted(browser: TestClient, path: str, body: dict[str, object]) -> Response:
    """What a page of the portal is answered."""
    csrf = csrf_in(browser.get("/portal/submit").text)
    return browser.post(path, json=body, headers={"X-CSRF-Token": csrf, "sec-fetch-mode": "cors"})


def area_of(page: str) -> str:
    """The job file on the page to submit at."""
    found = re.search(r'<textarea id="job-text"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


def test_only_those_who_may_submit_have_a_form_for_it(shared: AuthWorld) -> None:
    assert 'href="/portal/submit"' in browser_of(shared, "max").get("/portal/").text
    browser = browser_of(shared, "vic")
    assert 'href="/portal/submit"' not in browser.get("/portal/").text
    assert browser.get("/portal/submit").status_code == 403
    assert "To start one, ask a lead or an admin" in browser.get("/portal/sessions").text
    csrf = csrf_in(browser.get("/portal/").text)
    for path in ("/portal/submit/draft", "/portal/submit/plan"):
        answer = browser.post(path, json={"text": "command: a"}, headers={"X-CSRF-Token": csrf})
        assert answer.status_code == 403
        assert browser_of(shared, "max").post(path, json={"text": "command: a"}).status_code == 403, (
            "without the header"
        )


def test_a_job_is_cloned_into_the_form_by_those_who_may_read_its_file(world: AuthWorld) -> None:
    job = world.submit("max", command=HOSTILE, env={"A": "1e5"}, idempotency_key="once")
    page = browser_of(world, "max").get(f"/portal/submit?from={job}").text
    assert "<script>alert" not in page
    text = area_of(page)
    assert "\u202e" not in text, "a mark that turns the direction of writing is written by its number"
    document = read_documents(text)[0].value
    assert (document["command"], document["env"]) == (HOSTILE, {"A": "1e5"})
    assert "idempotency_key" not in document
    for way in ("from", "instead"):
        assert browser_of(world, "mia").get(f"/portal/submit?{way}={job}").status_code == 403
        assert browser_of(world, "sam").get(f"/portal/submit?{way}={job}").status_code == 404


def test_a_draft_is_checked_with_its_lines_and_is_no_entry_of_the_audit_log(world: AuthWorld) -> None:
    browser = browser_of(world, "max")
    before = world.client("olga").get(f"{API}/audit").json()["entries"]
    body = {"text": f"gpus: 1.5\ncommand: {json.dumps(HOSTILE)}\n", "edits": [{"field": "name", "value": HOSTILE}]}
    draft = posted(browser, "/portal/submit/draft", body).json()
    assert [(each["line"], each["loc"]) for each in draft["problems"]] == [(1, "gpus"), (3, "name")]
    assert draft["text"].startswith(body["text"])
    assert world.client("olga").get(f"{API}/audit").json()["entries"] == before
    assert posted(
        browser, "/portal/submit/draft", {"text": "a", "edits": [{"field": "__class__.x", "value": ""}]}
    ).is_success
    assert (
        posted(browser, "/portal/submit/draft", {"text": "a", "edits": [{"field": "a/b", "value": ""}]}).status_code
        == 422
    )


def test_a_plan_says_where_at_whose_cost_and_what_the_queue_has_after(world: AuthWorld) -> None:
    browser = browser_of(world, "max")
    plan = posted(browser, "/portal/submit/plan", {"text": "command: a\ngpus: 2\n"})
    assert plan.status_code == 200
    assert "starts now" in plan.text
    assert "n1" in plan.text
    assert "0 cards in use, 2 after" in plan.text
    assert "no control groups" not in plan.text
    named = posted(browser, "/portal/submit/plan", {"text": "command: a\nmemory: 1GiB\n"}).text
    assert "Nothing keeps all its processes together to its memory: no control groups" in named
    wrong = posted(browser, "/portal/submit/plan", {"text": "gpus: [\n"})
    assert (wrong.status_code, wrong.json()["error"]["details"][0]["line"]) == (422, 2)
    other = posted(browser, "/portal/submit/plan", {"text": "command: a\nqueue: speech\n"})
    assert other.status_code in (403, 404)


def test_what_would_help_a_waiting_job_is_a_button_that_changes_it(world: AuthWorld) -> None:
    world.submit("sam", gpus=2)
    job = world.submit("max", gpus=4, name="waits")
    world.settled()
    browser = browser_of(world, "max")
    assert f'href="/portal/submit?instead={job}"' in browser.get(f"/portal/jobs/{job}").text
    page = browser.get(f"/portal/submit?instead={job}").text
    assert f'data-instead="{job}"' in page
    assert "<del>4</del> → <ins>2</ins>" in page
    assert read_documents(area_of(page))[0].value["gpus"] == 2
    for user in ("mia", "vic"):
        assert "instead=" not in browser_of(world, user).get(f"/portal/jobs/{job}").text


def test_a_job_that_needs_no_change_is_not_replaced(world: AuthWorld) -> None:
    job = world.submit("max", gpus=1)
    world.settled()
    browser = browser_of(world, "max")
    assert "instead=" not in browser.get(f"/portal/jobs/{job}").text
    page = browser.get(f"/portal/submit?instead={job}").text
    assert 'data-instead=""' in page
    assert "No change is advised any more." in page


def test_a_block_of_a_large_map_leads_to_the_list_of_its_machines_and_these_to_their_cards(world: AuthWorld) -> None:
    device = DeviceInfo(
        uuid="u", index=0, vendor="fake", model="V<100>", memory_mib=10, free_memory_mib=10, free_compute_milli=1000,
        health="ok", slices=[], holders=[],
    )  # fmt: skip
    plain = NodeInfo(
        name="", pool="p & q", cpu_milli=1, free_cpu_milli=1, memory_mib=1, free_memory_mib=1, devices=[device]
    )
    nodes = [replace(plain, name=f"m{number}", rack=f"r/{number // 50}") for number in range(100)]
    nodes += [replace(plain, name=f"c{number}", devices=[]) for number in range(150)]

    async def all_of_them(_reader: Reader) -> list[NodeInfo]:
        return nodes

    world.service.machines.all = all_of_them  # type: ignore[method-assign]
    browser = browser_of(world, "max")
    overview = browser.get("/portal/").text
    assert re.findall(r'<h2 id="([\w-]+)"', overview) == ["free", "next", "idle", "queues", "map-title"], (
        "it is pages long"
    )
    links = [html.unescape(each) for each in re.findall(r'href="(/portal/nodes\?[^"]+)"', overview)]
    listed = [re.findall(r'href="/portal/nodes/(\w+)"', browser.get(link).text) for link in links]
    wanted = [(0, 50), (50, 100), (100, 200), (200, 250)]
    assert listed == [[node.name for node in nodes[begin:end]] for begin, end in wanted]
    nodes[3] = replace(nodes[3], devices=[replace(device, health="faulty")])
    nodes[7] = replace(nodes[7], schedulable=False)
    (link,) = set(re.findall(r'<dt>(?:faulty|closed)</dt><dd><a [^>]*href="([^"]+)"', browser.get("/portal/").text))
    assert re.findall(r'href="/portal/nodes/(\w+)"', browser.get(link).text) == ["m3", "m7"], "they need a look"
    page = browser.get(links[2]).text
    further = html.unescape(re.findall(r'href="([^"]+)" rel="next"', page)[0])
    assert browser.get(f"/portal/nodes{further}").text.count('id="node-c') == 50, "it is a page of the same block"
    assert "V&lt;100&gt;" in browser.get(links[0]).text


def test_the_page_of_nodes_says_how_many_empty_ones_stay_on_and_what_the_forecast_is_worth(world: AuthWorld) -> None:
    browser = browser_of(world, "max")
    told = SpareInfo(pool="<b>gold", spare=6, cover=0.98, within_s=300.0, coverage=0.9831, skill=0.5, tested_days=7)
    untold = SpareInfo(pool="new", spare=2, cover=0.98, no_forecast="the history is too short: 0.1 of 3 days")
    world.service.machines.spares = lambda: [told, untold]
    page = browser.get("/portal/nodes").text
    assert "Pool &lt;b&gt;gold: empty nodes to stay on: 6." in page
    assert "98 % of the rises within 5 min, and would have met 98.3 % in 7 days; skill 0.50." in page
    assert "Pool new: empty nodes to stay on: 2. No forecast: the history is too short: 0.1 of 3 days" in page


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.test/",
        "https://evil.test/",
        "/portal/../proxy/job/",
        "/portal/%2e%2E/proxy/job/",
        "/portal/jobs/./../../x",
    ],
)
def test_a_login_leads_back_to_a_page_of_the_portal_alone(shared: AuthWorld, wanted: str) -> None:
    answer = shared.client().get("/portal/language/en", params={"next": wanted}, follow_redirects=False)
    assert answer.headers["location"] == "/portal/"


def test_what_is_wrong_with_a_question_is_named_on_its_page(shared: AuthWorld) -> None:
    browser = browser_of(shared, "olga")
    query = "past_days=0&queue=vision&field=guarantee.gpus&cards=-3"
    page = browser.get(f"/portal/what-if/answer?{query}").text
    assert "<code>vision.guarantee.gpus</code>: -3.0 is too small" in page
    answer = browser.get("/portal/jobs?state=bogus&state=worse&order=<b>")
    assert answer.status_code == 422
    assert "this address is not valid: state, order" in answer.text
    misspelt = browser.get("/portal/jobs?usr=mia&state=running")
    assert misspelt.status_code == 422
    assert "this address is not valid: usr" in misspelt.text


def test_links_that_one_user_makes_push_out_none_of_others_at_the_same_address(world: AuthWorld) -> None:
    link = world.client("mia").post(f"{API}/portal/links", json={}).json()["url"]
    for _ in range(60):
        assert world.client("max").post(f"{API}/portal/links", json={}).status_code == 201
    assert world.client().get(link).status_code == 200


def test_a_job_file_of_megabytes_is_shown_in_part_and_not_cloned_on_a_page(world: AuthWorld) -> None:
    job = world.submit("max", command="work", env={f"A{number}": "x" * 100 for number in range(2_000)})
    browser = browser_of(world, "max")
    page = browser.get(f"/portal/jobs/{job}")
    assert page.status_code == 200
    assert len(page.text) < 4 * LARGEST_DRAFT
    answer = browser.get(f"/portal/submit?from={job}")
    assert answer.status_code == 422
    assert "pond submit" in answer.text


def test_the_page_of_a_node_has_charts_of_its_own_from_a_large_pool_too(world: AuthWorld) -> None:
    browser = browser_of(world, "max")
    assert "Nothing is known of this span." in browser.get("/portal/nodes/n1").text
    now = int(time.time()) // 60 * 60
    looks = [{"n1": (4, held, 0, 4, 1.5, 900.0, 61.0), "other": (8,) * 7} for held in (1, 3)]
    rows = [SeriesRow(part_of("n1"), 60, now - 60 * ago, 1, look) for ago, look in zip((1, 0), looks, strict=True)]
    world.store.time_series.write([*rows, SeriesRow("models", 60, now, 1, {})])
    page = browser.get("/portal/nodes/n1").text
    assert [name for name in ("cards", "power", "heat") if f'id="node-{name}-plot"' not in page] == []
    assert 'data-last="3"' in page
    assert "subject=nodes&amp;name=n1" in page
    assert 'id="node-cards-plot"' in browser.get("/portal/nodes/n1?back=month").text
    past = browser.get(f"/portal/nodes/n1?from={now - 7200}&to={now - 3600}").text
    assert "Nothing is known of this span." in past
    assert browser.get("/portal/nodes/n1?back=year").status_code == 422


def test_the_page_of_the_settings_has_the_beginning_of_long_lists_and_says_where_all_is(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [{"name": f"node-{number}"} for number in range(admin_pages.SETTINGS_SHOWN + 7)]
    read = {"nodes": nodes, "queues": [{"name": "lab"}]}
    facts = world.service.about._facts
    monkeypatch.setattr(world.service.about, "_facts", replace(facts, settings=lambda: read))
    page = browser_of(world, "olga").get("/portal/admin/settings").text
    assert page.count("name: node-") == admin_pages.SETTINGS_SHOWN
    assert "name: lab" in page
    assert "7 further entries of <code>nodes</code>" in page
    assert "further entries of <code>queues</code>" not in page
    assert world.client("olga").get(f"{API}/settings").json()["settings"] == read


def test_the_page_of_the_settings_says_what_waits_for_the_next_start(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = world.service.about._facts
    monkeypatch.setattr(
        world.service.about, "_facts", replace(facts, at_start=("nodes", "ssh"), pending=lambda: ["ssh"])
    )
    page = browser_of(world, "olga").get("/portal/admin/settings").text
    waits, _, all_of_them = page.partition("not in effect before the next one:")[2].partition("</p>")
    assert "<code>ssh</code>" in waits
    assert "nodes" not in waits
    assert "<code>nodes</code>" in all_of_them
    told = world.client("olga").get(f"{API}/settings").json()
    assert (told["at_start"], told["pending"]) == (["nodes", "ssh"], ["ssh"])
