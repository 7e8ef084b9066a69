"""Quotas, reservations and lists of jobs in a real Chromium: what is changed there is seen before."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from portal_visit import DESKTOP, PHONE, Visit, chromium, expect, pond, submit, unheard, visit
from real_pond import Pond, until

pytestmark = pytest.mark.long

__all__ = ["chromium", "pond", "visit"]
"""Fixtures."""

HOSTILE = "<b>mine</b> & 'yours'"


def at(visit: Visit, pond: Pond, path: str) -> Any:
    """A page of the portal, after a login."""
    page = visit.enter(pond)
    page.goto(path_of(page, path))
    return page


def path_of(page: Any, path: str) -> str:
    parts = urlsplit(page.url)
    return f"{parts.scheme}://{parts.netloc}/portal/{path}"


def test_a_quota_is_previewed_then_changed_in_either_language(pond: Pond, visit: Visit) -> None:
    until(pond.is_idle)
    pond.printed("queue", "set", "default", "guarantee=4")
    job = submit(pond, "sleep 600", "--gpus", "4")
    page = at(visit, pond, "queues")
    page.get_by_role("link", name="default").click()
    page.locator(f"#held-{job}").wait_for()
    page.get_by_role("link", name="Edit").click()
    page.fill("[name='guarantee.gpus']", "1")
    page.get_by_role("button", name="Preview").click()
    page.get_by_text("3 of 4 cards that default holds are borrowed now").wait_for()
    assert page.locator("#room-2 .down").first.inner_text() == "1"
    page.locator("#play h3").wait_for()
    page.get_by_role("link", name="简体中文").click()
    page.get_by_role("heading", name="修改的结果").wait_for()
    page.get_by_role("button", name="确认修改").click()
    page.wait_for_url("**/portal/queues/default")
    shown = json.loads(pond.printed("queue", "show", "default", "-o", "json"))
    assert shown["settings"]["guarantee"] == 1
    page.get_by_role("link", name="English").click()
    page.goto(path_of(page, "queues/default/edit"))
    page.fill("[name='limit.gpus']", "0.5")
    page.fill("[name=weight]", "<i>")
    page.get_by_role("button", name="Preview").click()
    page.locator(".preview.refused").wait_for()
    assert page.locator("#apply").count() == 0
    assert page.locator(".preview i").count() == 0
    pond.printed("stop", job)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"status": 500, "json": {"error": {"cause": "a defect", "remedy": "see its log", "details": []}}}, "a defect"),
        ({"status": 502, "body": "bad"}, "502 Bad Gateway"),
        (
            {"status": 404, "content_type": "text/html", "body": "<main id=main><h1>no such queue</h1></main>"},
            "no such",
        ),
    ],
)
def test_a_preview_that_cannot_be_played_says_so_in_its_place(
    pond: Pond, visit: Visit, answer: dict[str, Any], said: str
) -> None:
    page = visit.enter(pond)
    page.route("**/play?*", lambda route: route.fulfill(**answer))
    page.goto(path_of(page, "queues/default/edit?preview=1&weight=2"))
    expect(page.locator("#play")).to_contain_text(said)
    assert page.locator("#apply").is_enabled()
    visit.forgive_refusals()


def test_a_queue_is_added_and_deleted_by_buttons(pond: Pond, visit: Visit) -> None:
    page = at(visit, pond, "queues")
    page.get_by_role("link", name="Add a queue").click()
    page.fill("[name=name]", "lab")
    page.fill("[name='guarantee.gpus']", "1")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Add it").click()
    page.wait_for_url("**/portal/queues/lab")
    page.on("dialog", lambda dialog: dialog.accept())
    job = submit(pond, "sleep 600", "--queue", "lab")
    page.get_by_role("button", name="Delete").click()
    page.locator("#notice").get_by_role("link", name="Jobs lab").click()
    page.locator(f"#job-{job}").wait_for()
    visit.forgive_refusals()
    pond.printed("stop", job)
    pond("wait", job)
    page.goto(path_of(page, "queues/lab"))
    held: list[Any] = []
    page.route(re.compile(r"/api/v1/queues/lab\b"), lambda route: held.append((route, route.fetch())))
    page.get_by_role("button", name="Delete").click()
    until(lambda: page.evaluate("true") and held)
    page.evaluate("followChange()")  # as when the stream says so before the answer is there
    [(route, answer)] = held
    route.fulfill(response=answer)
    page.wait_for_url("**/portal/queues")
    assert page.get_by_role("link", name="lab").count() == 0


def test_cards_are_reserved_changed_and_given_back_on_the_calendar(pond: Pond, visit: Visit) -> None:
    pond.printed("queue", "set", "default", "guarantee=4")
    page = at(visit, pond, "reservations")
    page.fill("#reserve [name=cards]", "99")
    page.fill("#reserve [name=until]", "2099-01-01T00:00")
    page.get_by_role("button", name="Reserve").click()
    trouble = page.locator("#reserve [data-trouble]")
    trouble.wait_for()
    assert "99 cards of 8 in pool 'default'" in trouble.inner_text()
    page.fill("#reserve [name=cards]", "2")
    page.evaluate(
        """() => { const until = document.querySelector("#reserve [name=until]");
        const moment = new Date(Date.now() + 36 * 3600e3 - 60e3 * new Date().getTimezoneOffset());
        until.value = moment.toISOString().slice(0, 16); }"""
    )
    page.get_by_role("button", name="Reserve").click()
    page.locator("#calendar .span", has_text="default-1 · default · 2").wait_for()
    row = page.locator("#reservation-default-1")
    row.get_by_role("button", name="Change").click()
    assert page.input_value("#reserve [name=name]") == "default-1"
    page.fill("#reserve [name=cards]", "3")
    page.get_by_role("button", name="Reserve").click()
    page.mouse.move(5, 5)
    page.locator("#calendar .span", has_text="default-1 · default · 3").wait_for()
    page = at(visit, pond, "reservations?days=28")
    label = page.locator("#calendar .label", has_text="default-1 · default · 3").bounding_box()
    bar = page.locator("#calendar .span").bounding_box()
    assert label["x"] >= bar["x"] + bar["width"], "what has no room in the bar is read beside it"
    row = page.locator("#reservation-default-1")
    page.on("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Cancel").click()
    page.mouse.move(5, 5)
    row.wait_for(state="detached")
    visit.forgive_refusals()


def test_selected_jobs_are_stopped_together_and_what_was_refused_is_named(pond: Pond, visit: Visit) -> None:
    until(pond.is_idle)
    jobs = [submit(pond, "sleep 600", "--gpus", "1", "--name", f"many-{number}") for number in range(3)]
    page = at(visit, pond, "jobs")
    page.on("dialog", lambda dialog: dialog.accept())
    page.check(f"#job-{jobs[0]} input")
    page.check(f"#job-{jobs[1]} input")
    page.mouse.move(5, 5)
    late = submit(pond, "sleep 600", "--gpus", "1")
    page.locator("button.waiting").wait_for()
    assert page.locator(f"#job-{late}").count() == 0, "rows stay where they are while some are selected"
    assert page.locator("#bulk-count").inner_text() == "2 selected"
    assert pond("stop", jobs[0]).returncode == 0
    pond("wait", jobs[0])  # until then it may be stopped again
    page.locator("#bulk [data-act=stop]").click()
    page.get_by_text("1 done, 1 refused").wait_for()
    assert f"'{jobs[0]}' has ended already" in page.locator("#bulk-result").inner_text()
    page.locator(f"#job-{late}").wait_for()
    pond("wait", jobs[1])
    page.goto(path_of(page, "jobs"))
    page.check("#pick-page")
    page.locator("#bulk-all").click()
    page.get_by_text(re.compile("^2 selected$")).wait_for()
    page.locator("#bulk [data-act=stop]").click()
    page.get_by_text("2 done").wait_for()
    for job in (jobs[2], late):
        page.locator(f"#job-{job}").wait_for(state="detached")


def test_one_who_leaves_while_selected_jobs_are_acted_on_is_asked_first(pond: Pond, visit: Visit) -> None:
    job = submit(pond, "sleep 600", "--name", "left")
    page = at(visit, pond, "jobs?name=left")
    asked, acts = [], []

    def answer(dialog: Any) -> None:
        asked.append(dialog.type)
        if dialog.type == "beforeunload":
            dialog.dismiss()
        else:
            dialog.accept()

    page.on("dialog", answer)
    page.route("**/jobs/act", lambda route: acts.append(route))
    page.check("#pick-page")
    page.locator("#bulk [data-act=stop]").click()
    page.get_by_text("0 of 1 …").wait_for()
    until(lambda: page.evaluate("true") and acts)
    with page.expect_event("dialog"):
        page.get_by_role("link", name="Queues").click(no_wait_after=True)
    assert asked == ["confirm", "beforeunload"]
    acts[0].continue_()
    page.get_by_text("1 done").wait_for()
    page.get_by_role("link", name="Queues").click()
    page.wait_for_url("**/portal/queues")
    assert asked == ["confirm", "beforeunload"], "once it is done, nothing keeps them"
    pond("wait", job)


def test_the_keyboard_stays_where_it_was_when_buttons_have_done_their_work(pond: Pond, visit: Visit) -> None:
    jobs = [submit(pond, "sleep 600", "--name", f"keys-{number}") for number in range(2)]
    page = at(visit, pond, "jobs?name=keys-*")
    page.on("dialog", lambda dialog: dialog.accept())
    page.mouse.move(5, 5)

    def press(place: str, key: str) -> None:
        page.keyboard.press("Tab")  # so that the browser knows that the keyboard is used
        page.locator(place).focus()
        page.keyboard.press(key)

    def focused() -> str:
        return str(page.evaluate("document.activeElement.id"))

    press(f"#job-{jobs[0]} input", "Space")
    press("#bulk-none", "Enter")
    assert focused() == "pick-page"
    press(f"#job-{jobs[0]} input", "Space")
    press("#bulk [data-act=stop]", "Enter")
    page.get_by_text("1 done").wait_for()
    page.wait_for_function("document.activeElement.id === 'bulk-result'")
    page.goto(path_of(page, f"jobs/{jobs[1]}"))
    page.locator("#job .s-running").first.wait_for()
    press("button[hx-post$='/suspend?swap=true']", "Enter")
    page.locator("button[hx-post$='/resume']").first.wait_for()
    page.wait_for_function("document.activeElement.matches('button, main')")
    pond.printed("stop", jobs[1])


def test_selected_jobs_change_their_class_and_start_anew_those_that_ended_too(pond: Pond, visit: Visit) -> None:
    runs = submit(pond, "sleep 600", "--gpus", "1", "--name", "runs")
    over = submit(pond, "true", "--gpus", "1", "--name", "over")
    assert pond("wait", over).returncode == 0
    until(lambda: pond.job(runs)["state"] == "running")
    page, asked = at(visit, pond, "jobs?all=true"), []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    page.check(f"#job-{runs} input")
    page.locator("#bulk select[data-act=priority]").select_option("high")
    page.get_by_text(re.compile("^1 done$")).wait_for()
    assert "high" in pond.printed("ps", "-o", "wide")
    page.check(f"#job-{runs} input")
    page.check(f"#job-{over} input")
    page.locator("#bulk [data-act=requeue]").click()
    page.get_by_text("2 done").wait_for()
    assert asked == ["Priority high for 1 job?", "Requeue 2 jobs?"]
    again = page.locator("#bulk-result li a").nth(1).inner_text()
    assert page.locator("#bulk-result li").inner_text() == f"{over}: runs again as {again}"
    assert pond("wait", again).returncode == 0
    pond.printed("stop", runs)


def test_a_job_changes_its_class_and_starts_anew_from_its_page(pond: Pond, visit: Visit) -> None:
    job = submit(pond, "sleep 600", "--gpus", "1")
    page = at(visit, pond, f"jobs/{job}")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("combobox", name="Priority").select_option("critical")
    page.locator("#job-events li", has_text="gave it priority critical").wait_for()
    page.get_by_role("button", name="Requeue").click()
    page.locator("#job-events li", has_text="(attempt 2").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Run again").click()
    page.wait_for_url(re.compile(f"/portal/jobs/(?!{job})"))
    pond.printed("stop", page.url.rpartition("/")[2])


def test_what_runs_again_does_so_once_however_often_one_presses_until_there_is_an_answer(
    pond: Pond, visit: Visit
) -> None:
    job = pond.printed("run", "-d", "--name", "again", "true")
    pond("wait", job)
    page = at(visit, pond, f"jobs/{job}")
    visit.forgive_refusals()
    page.route("**/requeue", unheard, times=1)
    page.get_by_role("button", name="Run again").click()
    expect(page.locator("#notice")).to_contain_text("The server did not answer.")
    page.get_by_role("button", name="Run again").click()
    page.wait_for_url(re.compile(f"/portal/jobs/(?!{job})"))
    pond("wait", page.url.rpartition("/")[2])  # one that runs still would start anew under its own id
    page.goto(path_of(page, "jobs?all=true&name=again"))
    expect(page.locator("tr[id^=job-again]")).to_have_count(2)
    page.on("dialog", lambda dialog: dialog.accept())
    page.route("**/jobs/act", unheard, times=1)
    page.get_by_label("Select all on this page").check()
    page.locator("#bulk [data-act=requeue]").click()
    expect(page.locator("#notice")).to_contain_text("The server did not answer.")
    page.locator("#bulk [data-act=requeue]").click()
    expect(page.locator("#bulk-result")).to_contain_text("2 done")
    page.reload()
    expect(page.locator("tr[id^=job-again]")).to_have_count(4)


def test_a_list_is_saved_under_a_hostile_name_and_opened_by_its_address(pond: Pond, visit: Visit) -> None:
    page = at(visit, pond, "jobs?state=failed&queue=default")
    page.get_by_text("Saved views").click()
    page.fill("#keep [name=name]", HOSTILE)
    page.get_by_role("button", name="Save these filters").click()
    page.wait_for_url("**/portal/jobs?state=failed&queue=default")
    tab = page.locator(".tabs [aria-current]", has_text=HOSTILE)
    tab.wait_for()
    address = tab.get_attribute("href")
    page.goto(path_of(page, address.removeprefix("/portal/")))
    page.wait_for_url("**/portal/jobs?state=failed&queue=default")
    page.get_by_text("Saved views").click()
    page.get_by_role("button", name="Delete").click()
    tab.wait_for(state="detached")


def test_the_pages_fit_a_phone_and_a_desk(pond: Pond, visit: Visit) -> None:
    job = submit(pond, "sleep 600", "--gpus", "2", "--name", "n" * 60)
    page = visit.enter(pond)
    preview = "queues/default/edit?preview=1&guarantee.models=" + "V" * 90 + ":+2"
    paths = ("jobs", "queues", "queues/default", "queues/default/edit", preview, "new-queue", "cells", "reservations")
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        for path in (*paths, "reservations?days=1", "reservations?days=28", "nothing-there"):
            page.goto(path_of(page, path))
            assert page.locator("h1").first.is_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], path
    visit.forgive_refusals()
    pond.printed("stop", job)
