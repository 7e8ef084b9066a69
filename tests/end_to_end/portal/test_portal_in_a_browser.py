"""The portal in a real Chromium, before a real server: the ways in, lists that live, output, buttons, a lost server."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from portal_visit import DESKTOP, PHONE, Visit, base_of, chromium, expect, pond, submit, visit
from real_pond import Pond, until

from millpond.client.sdk import Client

pytestmark = pytest.mark.long

__all__ = ["chromium", "pond", "visit"]
"""Fixtures."""

REPORTS = ("reports", "reports?by=job", "reports/waits", "reports/waits/jobs", "reports/mine", "what-if")
PASSWORD = "correct horse battery"
GROUND = "getComputedStyle(document.body).backgroundColor"


def test_all_jobs_of_a_page_are_selected_on_a_phone(pond: Pond, visit: Visit) -> None:
    jobs = [submit(pond, "sleep 600", "--name", "chosen") for _ in range(2)]
    page = visit.enter(pond)
    page.set_viewport_size(PHONE)
    page.goto(f"{base_of(page)}/portal/jobs?name=chosen")
    page.get_by_text("Select all on this page").click()
    expect(page.locator("#bulk-count")).to_have_text("2 selected")
    for job in jobs:
        expect(page.locator(f"#job-{job} .pick input")).to_be_checked()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    pond.printed("stop", *jobs)


def test_every_page_fits_a_phone_and_a_desk_in_the_light_and_in_the_dark(pond: Pond, visit: Visit) -> None:
    job = submit(pond, "echo " + "wide" * 100 + "; sleep 600", "--gpus", "1", "--name", "n" * 60)
    page = visit.enter(pond)
    grounds = []
    for scheme, size in (("light", DESKTOP), ("dark", PHONE)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size(size)
        for path in (
            "",
            "?colour=owner",
            "jobs?all=true",
            f"jobs/{job}",
            "queues",
            "nodes",
            "submit",
            "login",
            *REPORTS,
        ):
            page.goto(f"{base_of(page)}/portal/{path}")
            assert page.locator("h1").is_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], path
        grounds.append(page.evaluate(GROUND))
    light, dark = grounds
    assert light != dark
    page.emulate_media(color_scheme="light")
    page.click("#theme")
    assert page.evaluate(GROUND) == dark
    page.emulate_media(media="print")
    assert page.evaluate(GROUND) == light, "ink is dark"
    pond.printed("stop", job)


def test_output_is_followed_and_the_job_stopped_by_a_button(pond: Pond, visit: Visit) -> None:
    job = submit(pond, r"printf '<b>first</b>\nValueError: odd\n'; while sleep 0.2; do date; done", "--gpus", "1")
    page = visit.enter(pond, job)
    log = page.locator("#log-lines")
    log.get_by_text("<b>first</b>").wait_for()
    expect(log.locator(".wrong")).to_have_text(["ValueError: odd"])
    shown = log.locator("div").count()
    log.locator("div").nth(shown + 1).wait_for()
    announced = page.locator("h1 + [role=status]").element_handle()
    page.fill("#log-search", "ValueError")
    expect(log.locator("div:visible")).to_have_count(1)
    page.fill("#log-search", "")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Stop").click()
    page.locator("#job .s-cancelled").first.wait_for()
    log.get_by_text("The output ends here.").wait_for()
    assert announced.inner_text() == "cancelled", "a screen reader hears of what changes within the element of before"
    assert page.get_by_role("button", name="Stop").count() == 0
    expect(log).not_to_have_attribute("data-short", "")
    page.reload()
    expect(log).to_have_attribute("data-short", "")


def test_the_output_waits_while_its_page_is_not_seen_so_that_many_pages_can_be_open(pond: Pond, visit: Visit) -> None:
    job = submit(pond, "while sleep 0.2; do date; done", "--gpus", "1")
    page = visit.enter(pond, job)
    log = page.locator("#log-lines div")
    log.nth(1).wait_for()
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => window.isAway })")
    turn = "(away) => { isAway = away; document.dispatchEvent(new Event('visibilitychange')); }"
    with page.expect_event("requestfailed", lambda request: "follow=true" in request.url):
        page.evaluate(turn, True)
    with page.expect_request(lambda request: "follow=true" in request.url and "cursor=" in request.url):
        page.evaluate(turn, False)
    log.nth(log.count() + 1).wait_for()
    pond.printed("stop", job)


def test_a_line_without_end_is_shown_in_parts_of_which_the_last_are_kept(pond: Pond, visit: Visit) -> None:
    job = submit(pond, "head -c 5000000 /dev/zero | tr '\\0' x; printf end", "--gpus", "0")
    pond("wait", job)
    page = visit.enter(pond, job)
    log = page.locator("#log-lines")
    log.get_by_text("The output ends here.").wait_for()
    expect(log).to_contain_text("… earlier lines are not shown")
    lines = log.locator("div:not(.note)").all_text_contents()
    assert 1_000_000 < sum(map(len, lines)) <= 2_000_000
    assert max(map(len, lines)) < 200_000
    assert lines[-1].endswith("xend")


def test_a_search_goes_through_all_of_a_long_output_and_the_view_goes_where_it_leads(pond: Pond, visit: Visit) -> None:
    command = "seq 400000; echo ValueError: odd; seq 400001 2000000; echo 'loss: nan'; seq 9; echo Needle"
    job = submit(pond, command, "--gpus", "0")
    until(lambda: pond.job(job)["state"] == "succeeded")
    page = visit.enter(pond, job)
    log, told = page.locator("#log-lines"), page.locator("#log-told")
    here = log.locator(".here")
    expect(log).to_contain_text("… earlier lines are not shown")
    page.get_by_role("button", name="Next error").click()
    expect(here).to_have_text("ValueError: odd")
    expect(here).to_be_in_viewport()
    expect(told).to_be_hidden()
    expect(log.get_by_text("400000", exact=True)).to_be_attached()
    expect(log.get_by_text("400001", exact=True)).to_be_attached()
    page.get_by_role("button", name="Later lines").click()
    expect(log.get_by_text("404000", exact=True)).to_be_attached()
    page.get_by_role("button", name="Earlier lines").click()
    page.get_by_role("button", name="Next error").click()
    expect(here).to_have_text("loss: nan")
    page.get_by_role("button", name="Next error").click()
    expect(here).to_have_text("ValueError: odd")
    expect(told).to_have_text("Gone around to the other end.")
    page.get_by_role("button", name="Previous error").click()
    expect(here).to_have_text("loss: nan")
    page.fill("#log-search", "1234567")
    page.press("#log-search", "Shift+Enter")
    expect(here).to_have_text("1234567")
    page.fill("#log-search", "nEEDLE")
    page.press("#log-search", "Enter")
    expect(here).to_have_text("Needle")
    page.set_viewport_size(PHONE)
    page.get_by_role("button", name="Next error").click()
    expect(here).to_have_text("ValueError: odd")
    expect(here).to_be_in_viewport()
    page.fill("#log-search", "nowhere")
    page.press("#log-search", "Enter")
    expect(told).to_have_text("None in all of the output.")
    page.get_by_label("Follow").check()
    expect(log).to_contain_text("The output ends here.")
    expect(log.locator(".here")).to_have_count(0)
    with Client(state_dir=pond.state_dir) as client:
        found = client.search_logs(job, errors=True, backwards=True)
        assert [hit.line for hit in found] == ["loss: nan", "ValueError: odd"]


def test_of_a_program_that_writes_faster_than_one_reads_the_latest_lines_are_there_whole_and_in_order(
    pond: Pond, visit: Visit
) -> None:
    job = submit(pond, "until [ -e $MILLPOND_OUTPUT/go ]; do sleep 0.1; done; seq 1500000; sleep 600", "--gpus", "0")
    page = visit.enter(pond, job)
    page.locator("#log-lines").wait_for()
    page.locator("#job .s-running").first.wait_for()
    pond.printed("exec", job, "--", "sh", "-c", "touch $MILLPOND_OUTPUT/go")
    lines = page.locator("#log-lines div:not(.note)")
    expect(lines.last).to_have_text("1500000")
    shown = [int(text) for text in lines.evaluate_all("(all) => all.map((each) => each.textContent)")]
    assert shown == list(range(shown[0], 1_500_001))
    assert 1_000 <= len(shown) <= 5_000
    expect(page.locator("#log-lines")).to_contain_text("… earlier lines are not shown")
    pond.printed("stop", job)


def test_marks_that_turn_the_direction_of_writing_are_shown_by_their_numbers_and_found_as_written(
    pond: Pond, visit: Visit
) -> None:
    command = r"printf 'seen\nloss \342\200\25605.0\n'; seq 2000; printf 'open \342\201\247'; printf 'end\n'"
    job = submit(pond, command, "--gpus", "0")
    until(lambda: pond.job(job)["state"] == "succeeded")
    page = visit.enter(pond, job)
    log, here = page.locator("#log-lines"), page.locator("#log-lines .here")
    expect(log.get_by_text("open \\u2067end", exact=True)).to_be_attached()
    for text in ("open \u2067end", "open \\u2067end"):
        page.fill("#log-search", text)
        expect(log.locator("div:visible:not(.note)")).to_have_count(1)
    page.fill("#log-search", "loss \u202e05")
    page.press("#log-search", "Enter")
    expect(here).to_have_text("loss \\u202e05.0")
    page.press("#log-search", "Enter")
    expect(here).to_have_text("loss \\u202e05.0")
    assert "\u202e" not in log.inner_text()


def test_lines_in_view_are_filtered_while_one_types_and_it_is_said_when_none_is_left(pond: Pond, visit: Visit) -> None:
    job = submit(pond, "echo ValueError: odd; seq 2000", "--gpus", "0")
    until(lambda: pond.job(job)["state"] == "succeeded")
    page = visit.enter(pond, job)
    log, told = page.locator("#log-lines"), page.locator("#log-told")
    expect(log).to_contain_text("… earlier lines are not shown")
    expect(told).to_be_hidden()
    page.fill("#log-search", "1999")
    expect(log.locator("div:visible:not(.note)")).to_have_count(1)
    expect(told).to_be_hidden()
    page.fill("#log-search", "odd")
    expect(told).to_contain_text("Enter looks through all of the output")


def test_a_page_is_read_anew_only_when_something_has_changed(pond: Pond, visit: Visit) -> None:
    until(pond.is_idle)
    job = submit(pond, "sleep 600", "--gpus", "1")
    until(lambda: pond.job(job)["state"] == "running")
    page = visit.enter(pond, job)
    reads: list[str] = []
    page.on("request", lambda request: reads.append(request.url) if request.url == page.url else None)
    with page.expect_response("**/portal/stream"):
        page.reload()
    page.wait_for_timeout(2_000)
    assert len(reads) == 1
    with page.expect_request(page.url):
        other = submit(pond, "sleep 600", "--gpus", "1")
    pond.printed("stop", job, other)


def test_a_page_that_is_not_seen_holds_no_stream_and_is_read_when_it_is_seen_again(pond: Pond, visit: Visit) -> None:
    page = visit.enter(pond)
    page.goto(f"{base_of(page)}/portal/jobs")
    page.locator("#live[data-state=live]").wait_for()
    show = """hidden => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    asked: list[str] = []
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/portal/stream")):
        page.evaluate(show, True)
    page.on("request", lambda request: asked.append(request.url))
    job = submit(pond, "sleep 600", "--gpus", "1")
    page.wait_for_timeout(1_000)
    assert asked == []
    page.evaluate(show, False)
    page.locator(f"#job-{job}").wait_for()
    pond.printed("stop", job)


def test_a_page_whose_login_has_ended_says_so_and_asks_no_more(pond: Pond, visit: Visit) -> None:
    page = visit.enter(pond)
    page.locator("#live[data-state=live]").wait_for()
    visit.context.clear_cookies()
    job = submit(pond, "sleep 600", "--gpus", "1")
    expect(page.locator("#notice")).to_contain_text("You are not logged in any more.")
    expect(page.get_by_role("link", name="Log in")).to_have_attribute("href", "/portal/")
    pond.printed("stop", job)
    visit.forgive_refusals()


def test_a_button_and_a_form_that_no_server_answers_say_so_and_can_be_used_again(pond: Pond, visit: Visit) -> None:
    job = submit(pond, "sleep 600")
    page = visit.enter(pond, job)
    page.on("dialog", lambda dialog: dialog.accept())
    page.route("**/api/v1/**", lambda route: route.abort())
    notice, suspend = page.locator("#notice"), page.get_by_role("button", name="Suspend")
    suspend.click()
    expect(notice).to_contain_text("The server did not answer.")
    page.locator("footer").scroll_into_view_if_needed()
    expect(notice).to_be_in_viewport()
    page.unroute("**/api/v1/**")
    suspend.click()
    expect(notice).to_be_hidden()
    page.route("**/api/v1/**", lambda route: route.abort())
    page.goto(f"{base_of(page)}/portal/admin/tokens")
    page.fill("[name=name]", "kept")
    page.get_by_role("button", name="Make", exact=True).click()
    expect(page.locator("form [role=alert]")).to_contain_text("The server did not answer.")
    assert page.input_value("[name=name]") == "kept"
    page.unroute("**/api/v1/**")
    page.get_by_role("button", name="Make", exact=True).click()
    page.locator("[data-secret]").get_by_text("pond_").wait_for()
    pond.printed("stop", job)
    visit.forgive_refusals()


def test_what_was_said_of_a_page_that_could_not_be_read_is_over_once_it_can(pond: Pond, visit: Visit) -> None:
    page = visit.enter(pond)
    page.goto(f"{base_of(page)}/portal/jobs")
    page.locator("#live[data-state=live]").wait_for()
    page.route("**/portal/jobs", lambda route: route.fulfill(status=500, json={"error": {"cause": "a defect"}}))
    first = submit(pond, "sleep 600", "--gpus", "1")
    page.locator("#notice").get_by_text("a defect").wait_for()
    page.unroute("**/portal/jobs")
    second = submit(pond, "sleep 600", "--gpus", "1")
    page.locator(f"#job-{second}").wait_for()
    expect(page.locator("#notice")).to_be_hidden()
    visit.forgive_refusals()
    pond.printed("stop", first, second)


def test_a_stream_that_could_not_begin_begins_when_the_server_answers(pond: Pond, visit: Visit) -> None:
    page = visit.enter(pond)
    asked: list[str] = []

    def refuse(route: Any) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.abort()
        else:
            route.fulfill(status=503, body="")

    page.route("**/portal/stream", refuse)
    with page.expect_response("**/portal/stream"):
        page.reload()
    page.get_by_text("The server does not answer.").wait_for()
    page.unroute("**/portal/stream")
    page.locator("#live[data-state=live]").wait_for()
    expect(page.locator("#notice")).to_be_hidden()
    visit.forgive_refusals()


def test_a_stream_in_which_the_server_says_nothing_any_more_is_lost_and_begun_again(pond: Pond, visit: Visit) -> None:
    page = visit.enter(pond)
    page.clock.install()
    page.reload()
    page.locator("#live[data-state=live]").wait_for()
    os.kill(pond.server_pid, signal.SIGSTOP)  # as where a network drops what is sent: no connection ends
    try:
        page.clock.fast_forward("01:00")
        page.locator("#live[data-state=lost]").wait_for()
    finally:
        os.kill(pond.server_pid, signal.SIGCONT)
    page.locator("#live[data-state=live]").wait_for()
    visit.forgive_refusals()


def test_a_list_lives_and_does_not_move_under_the_hand(pond: Pond, visit: Visit) -> None:
    first = submit(pond, "sleep 600", "--gpus", "1")
    page = visit.enter(pond)
    page.goto(f"{base_of(page)}/portal/jobs")
    row = page.locator(f"#job-{first}")
    row.hover()
    place = row.bounding_box()
    second = submit(pond, "sleep 600", "--gpus", "1")
    page.locator("button.waiting").wait_for()
    assert page.locator(f"#job-{second}").count() == 0
    assert row.bounding_box()["x"] == place["x"]
    assert page.locator("table.jobs tbody tr").first.get_attribute("id") == f"job-{first}"
    page.mouse.move(5, 5)
    page.locator(f"#job-{second}").wait_for()
    pond.printed("stop", first, second)
    page.locator(f"#job-{first}").wait_for(state="detached")


def test_a_person_with_a_password_is_led_to_what_they_wanted(pond: Pond, visit: Visit) -> None:
    with Client(state_dir=pond.state_dir) as client:
        client.accounts.change_password("", PASSWORD)
        user, url = client.accounts.whoami().user, client.address.url
    page = visit.page
    page.goto(f"{url}/portal/nodes?name=fake-1")
    page.fill("[name=user]", user)
    page.fill("[name=password]", "wrong")
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("user or password is wrong").wait_for()
    visit.forgive_refusals()
    page.fill("[name=password]", PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/portal/nodes?name=fake-1")
    page.get_by_role("link", name="简体中文").click()
    page.get_by_role("heading", name="节点").wait_for()
    page.get_by_role("button", name="退出登录").click()
    page.wait_for_url("**/portal/login")
    page.goto(f"{url}/portal/nodes")
    assert urlsplit(page.url).path == "/portal/login"


def test_a_report_leads_from_a_user_to_the_jobs_and_its_period_is_in_the_address(pond: Pond, visit: Visit) -> None:
    job = submit(pond, "sleep 600", "--gpus", "1")
    until(lambda: pond.job(job)["state"] == "running")
    page = visit.enter(pond)
    page.get_by_role("link", name="Reports").click()
    page.get_by_role("link", name="7 days").click()
    page.wait_for_url("**days=7")
    page.locator("tbody tr", has_text="V100").get_by_role("link").first.click()
    page.locator("tbody").get_by_role("link", name=job).wait_for()
    assert "by=job" in page.url
    assert "days=7" in page.url
    with page.expect_download() as download:
        page.get_by_role("link", name="As CSV").click()
    assert job in Path(download.value.path()).read_text()
    page.get_by_label("From").fill("2001-01-01")
    page.get_by_label("To the end of").fill("2001-01-31")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("Nothing was held in that time.").wait_for()
    page.get_by_role("link", name="Waits").click()
    page.get_by_text("No job could start in that time.").wait_for()
    page.get_by_role("link", name="Mine").click()
    page.get_by_role("link", name="30 days").click()
    page.locator("tbody").get_by_role("link", name=job).wait_for()
    pond.printed("stop", job)


def test_a_question_is_played_beside_the_server_answered_and_cancelled(pond: Pond, visit: Visit) -> None:
    waiting = [submit(pond, "sleep 600", "--gpus", "4", "--time-limit", "1h") for _ in range(4)]
    page = visit.enter(pond)
    page.goto(f"{base_of(page)}/portal/what-if")
    page.get_by_label("Play").first.select_option("0")
    page.get_by_label("More nodes").fill("2x4:V100-32GB")
    page.get_by_role("button", name="Play").click()
    page.get_by_role("heading", name="Who gains and who loses").wait_for()
    assert page.locator("table.sides .up").count() > 0
    assert "add_nodes=2x4" in page.url
    page.route("**/what-if/answer?*", lambda _: None)  # an answer that takes longer than a click
    page.reload()  # the address is the question
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Cancelled.").wait_for()
    pond.printed("stop", *waiting)


def test_nodes_are_closed_and_opened_by_buttons(pond: Pond, visit: Visit) -> None:
    page = visit.enter(pond)
    page.goto(f"{base_of(page)}/portal/nodes")
    page.on("dialog", lambda dialog: dialog.accept())
    row = page.locator("#node-fake-2")
    row.get_by_role("button", name="Close").click()
    row.get_by_role("button", name="Open").click()
    row.get_by_role("button", name="Close").wait_for()


def test_no_page_of_this_name_that_is_not_the_portals_reads_it(pond: Pond, chromium: Any) -> None:
    visit = Visit(chromium, bypass_csp=True)  # what programs of jobs serve has no policy of ours
    page = visit.enter(pond)
    page.goto(f"{base_of(page)}/healthz")
    assert page.evaluate("fetch('/portal/jobs').then((answer) => answer.status)") == 403
    assert page.evaluate("fetch('/api/v1/jobs').then((answer) => answer.status)") == 403
    with visit.context.expect_page() as opened:
        page.evaluate("window.theirs = window.open('/portal/')")
    opened.value.locator("h1").wait_for()
    assert page.evaluate("window.theirs.closed"), "it opened in a group of windows of its own"
    visit.context.close()


def test_a_lost_server_is_shown_and_found_again(pond: Pond, visit: Visit) -> None:
    page = visit.enter(pond)
    page.locator("#live[data-state=live]").wait_for()
    port = str(urlsplit(page.url).port)
    os.kill(pond.server_pid, signal.SIGKILL)
    page.locator("#live[data-state=lost]").wait_for()
    expect(page.locator("#live")).to_have_accessible_name(re.compile("does not answer"))
    page.get_by_text("The server does not answer.").wait_for()
    until(lambda: pond("up", "--detach", "--port", port).returncode == 0)
    page.locator("#live[data-state=live]").wait_for()
    expect(page.locator("#live")).to_have_accessible_name("live")
    job = submit(pond, "sleep 1", "--gpus", "1")
    page.goto(f"{base_of(page)}/portal/jobs?all=true")
    page.locator(f"#job-{job}").wait_for()
    visit.forgive_refusals()


def test_the_link_is_in_no_log(pond: Pond) -> None:
    log = Path(pond.state_dir / "server.log").read_text()
    assert "/portal/" in log
    assert "ticket" not in log
