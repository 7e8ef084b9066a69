"""A job is written, planned, submitted and followed in a real Chromium; with the server, nothing written is lost."""

from __future__ import annotations

import os
import re
import signal
from typing import Any
from urllib.parse import urlsplit

import pytest
from portal_visit import PHONE, Visit, base_of, chromium, expect, pond, submit, visit
from real_pond import Pond, until

from millpond.client.sdk import Client

pytestmark = pytest.mark.long

PASSWORD = "correct horse battery"

__all__ = ["chromium", "pond", "visit"]
"""Fixtures."""


def form_of(visit: Visit, pond: Pond, query: str = "") -> Any:
    """The page to submit at."""
    page = visit.enter(pond)
    page.goto(f"{base_of(page)}/portal/submit{query}")
    return page


def follows(page: Any, part: str) -> None:
    """The text beside the form has this in it, sooner or later."""
    expect(page.locator("#job-text")).to_have_value(re.compile(re.escape(part)))


def test_a_job_is_written_in_the_form_planned_submitted_followed_and_stopped(pond: Pond, visit: Visit) -> None:
    until(pond.is_idle)
    page = form_of(visit, pond)
    page.fill("#f-command", "echo '<i>it runs</i>'\nwhile sleep 0.2; do date; done")
    page.fill("#f-gpus", "0.25")
    page.get_by_text("Failures and checkpoints").click()
    page.fill("#f-retries", "2")
    follows(page, "command: |-\n  echo '<i>it runs</i>'\n  while sleep 0.2; do date; done\ngpus: 0.25\nretries: 2\n")
    page.get_by_role("button", name="Show the plan").click()
    page.get_by_text("starts now").wait_for()
    page.get_by_text("Queue default: 0 cards in use, 0.25 after").wait_for()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url("**/portal/jobs/*")
    page.locator("#job .s-running").first.wait_for()
    page.locator("#log-lines").get_by_text("<i>it runs</i>").wait_for()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Stop").click()
    page.locator("#job .s-cancelled").first.wait_for()
    page.get_by_role("link", name="Clone").click()
    follows(page, "gpus: 0.25\nretries: 2\n")
    expect(page.locator("#f-gpus")).to_have_value("0.25")


def test_text_and_form_follow_each_other_and_faults_lead_to_their_lines(pond: Pond, visit: Visit) -> None:
    page = form_of(visit, pond)
    page.fill("#job-text", "# mine\ngpus: 1.5  # too many\ncommand: a\n")
    fault = page.locator("#job-problems button")
    fault.wait_for()
    assert fault.inner_text().startswith("line 2, column 7 · gpus: 1.5 GPUs")
    assert page.get_attribute("#f-gpus", "aria-invalid") == "true"
    assert page.get_by_role("button", name="Submit", exact=True).is_disabled()
    fault.click()
    assert page.evaluate("document.getElementById('job-text').selectionStart") == len("# mine\ngpus: ")
    page.fill("#f-gpus", "2")
    follows(page, "# mine\ngpus: 2  # too many\ncommand: a\n")
    page.get_by_text("Nothing is wrong with this job file.").wait_for()
    page.fill("#job-text", "gpus: [\n")
    page.get_by_text("The form follows once the job file can be read.").wait_for()
    assert page.input_value("#f-gpus") == "2"
    page.fill("#job-text", "command: b\nenv: {A: c}\n")
    expect(page.locator("#f-env")).to_have_value("A: c")
    page.fill("#f-env", "A: [")
    page.locator("#job-problems button").wait_for()
    page.fill("#f-name", "kept")
    follows(page, "command: b\nenv: {A: c}\nname: kept\n")
    assert page.input_value("#f-env") == "A: [", "what cannot be read stays where it was written"


def test_submit_cannot_be_pressed_again_while_the_page_of_the_new_job_is_on_its_way(pond: Pond, visit: Visit) -> None:
    page = form_of(visit, pond)
    page.fill("#f-command", "sleep 600")
    page.fill("#f-name", "once")
    follows(page, "name: once\n")
    page.evaluate("""
        const button = document.getElementById("submit-job");
        addEventListener("pagehide", () => sessionStorage.setItem("was", button.disabled));
    """)
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url("**/portal/jobs/once-*")
    assert page.evaluate("sessionStorage.getItem('was')") == "true"
    pond.printed("stop", page.url.rpartition("/")[2])


def test_what_was_written_outlives_the_server_and_the_page(pond: Pond, visit: Visit) -> None:
    page = form_of(visit, pond)
    page.fill("#f-command", "sleep 600")
    follows(page, "command: sleep 600\n")
    port = str(urlsplit(page.url).port)
    os.kill(pond.server_pid, signal.SIGKILL)
    page.fill("#f-name", "outlives")
    page.get_by_text("What you wrote is kept").wait_for()
    until(lambda: pond("up", "--detach", "--port", port).returncode == 0)
    follows(page, "command: sleep 600\nname: outlives\n")
    page.reload()
    assert page.input_value("#job-text") == "command: sleep 600\nname: outlives\n"
    page.goto(f"{base_of(page)}/portal/jobs")
    page.go_back()
    expect(page.locator("#f-name")).to_have_value("outlives")
    page.set_viewport_size(PHONE)
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url("**/portal/jobs/outlives-*")
    pond.printed("stop", page.url.rpartition("/")[2])
    visit.forgive_refusals()


def test_what_was_written_outlives_the_login(pond: Pond, visit: Visit) -> None:
    with Client(state_dir=pond.state_dir) as client:
        client.accounts.change_password("", PASSWORD)
        user = client.accounts.whoami().user
    page = form_of(visit, pond)

    def log_in_again() -> None:
        page.get_by_role("link", name="Log in").click()
        page.fill("[name=user]", user)
        page.fill("[name=password]", PASSWORD)
        page.get_by_role("button", name="Log in").click()

    page.fill("#f-command", "sleep 600")
    follows(page, "command: sleep 600\n")
    visit.context.clear_cookies()
    page.fill("#f-name", "outlives")
    log_in_again()
    follows(page, "command: sleep 600\nname: outlives\n")
    page.goto(f"{base_of(page)}/portal/reservations")
    page.fill("[name=name]", "<b>demo</b>")
    page.fill("[name=until]", "2099-01-02T06:00")
    page.get_by_label("whole nodes").check()
    visit.context.clear_cookies()
    page.get_by_role("button", name="Reserve").click()
    page.locator("[data-trouble]").get_by_text("You are not logged in any more.").wait_for()
    log_in_again()
    expect(page.locator("[name=name]")).to_have_value("<b>demo</b>")
    assert page.input_value("[name=until]") == "2099-01-02T06:00"
    assert page.get_by_label("whole nodes").is_checked()
    page.goto(page.url + "?days=1")
    assert page.input_value("[name=name]") == "", "it is put back where it was written"
    visit.forgive_refusals()


def test_what_was_written_into_a_form_is_there_when_one_comes_back_to_it_and_not_once_it_is_sent(
    pond: Pond, visit: Visit
) -> None:
    page = visit.enter(pond)
    page.goto(f"{base_of(page)}/portal/jobs")
    page.get_by_label("User").fill("nobody")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**user=nobody**")
    page.go_back()
    expect(page.get_by_label("User")).to_have_value("")
    page.goto(f"{base_of(page)}/portal/admin/users")
    add = page.locator("form[data-send]")
    add.locator("[name=name]").press_sequentially("grace")
    add.get_by_label("Role").select_option("viewer")
    page.get_by_role("link", name="Queues").click()
    page.wait_for_url("**/portal/queues")
    page.go_back()
    expect(add.locator("[name=name]")).to_have_value("grace")
    page.get_by_role("link", name="简体中文").click()
    page.locator("html[lang^=zh]").wait_for()
    expect(add.locator("[name=name]")).to_have_value("grace")
    page.get_by_role("link", name="English").click()
    page.locator("html[lang=en]").wait_for()
    assert add.get_by_label("Role").input_value() == "viewer"
    add.get_by_role("button", name="Add").click()
    page.locator("#user-grace").wait_for()
    page.reload()
    expect(add.locator("[name=name]")).to_be_visible()
    assert add.locator("[name=name]").input_value() == ""


def test_what_would_help_a_waiting_job_is_shown_and_done(pond: Pond, visit: Visit) -> None:
    until(pond.is_idle)
    holders = [submit(pond, "sleep 600", "--gpus", "3", "--name", f"holder{number}") for number in range(2)]
    waits = submit(pond, "sleep 600", "--gpus", "2", "--name", "waits")
    page = visit.enter(pond, waits)
    page.get_by_role("link", name="Change it so").click()
    page.get_by_text("Submitting it stops the waiting job:").wait_for()
    follows(page, "gpus: 1\n")
    assert page.locator(".reason del").inner_text() == "2"
    page.get_by_role("button", name="Submit it and stop the waiting one").click()
    page.wait_for_url("**/portal/jobs/waits-*")
    page.locator("#job .s-running").first.wait_for()
    started = page.url.rpartition("/")[2]
    assert started != waits
    page.goto(f"{base_of(page)}/portal/jobs/{waits}")
    page.locator("#job .s-cancelled").first.wait_for()
    page.goto(f"{base_of(page)}/portal/submit")
    page.fill("#job-text", "command: 'true'\ngpus: 2\n")
    page.get_by_role("button", name="Show the plan").click()
    page.locator("#plan").get_by_role("button", name="Change it so").click()
    follows(page, "gpus: 1\n")
    page.get_by_text("starts now").wait_for()
    pond.printed("stop", started, *holders)
