"""The page of a job in a real Chromium, before a real server: the files that it wrote, and its earlier attempts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from portal_visit import DESKTOP, PHONE, Visit, chromium, expect, pond, submit, visit
from real_pond import Pond

pytestmark = pytest.mark.long

__all__ = ["chromium", "pond", "visit"]
"""Fixtures."""

WRITES = r"""
mkdir "$MILLPOND_OUTPUT/ckpt"; cd "$MILLPOND_OUTPUT"
echo weights > 'ckpt/<i>model.pt'; ln -s /etc/passwd out; touch -d 2020-01-01 "$(printf 'gpj\342\200\256.exe')"
trap 'echo more > late.txt; exit 0' TERM
echo written; while sleep 0.1; do :; done
"""


def test_files_that_a_job_wrote_are_downloaded_and_do_not_move_under_the_hand(pond: Pond, visit: Visit) -> None:
    job = submit(pond, WRITES, "--gpus", "0")
    page = visit.enter(pond, job)
    page.locator("#log-lines").get_by_text("written").wait_for()
    page.reload()  # what a program writes tells nobody
    files = page.locator("#output-files")
    expect(files.locator("tbody tr")).to_have_count(3)
    assert "\u202e" not in files.inner_html()
    link = files.get_by_role("link", name="ckpt/<i>model.pt")
    with page.expect_download() as download:
        link.click()
    assert Path(download.value.path()).read_text() == "weights\n"
    link.focus()
    with page.expect_download():
        page.keyboard.press("Enter")
    expect(files.get_by_role("link", name="out")).to_have_count(0)
    expect(files.locator("tr", has_text="a link, which is not followed")).to_be_visible()
    link.hover()
    place = link.bounding_box()
    pond.printed("stop", job)
    page.locator("#job .s-cancelled").first.wait_for()
    page.locator("button.waiting:visible").wait_for()
    expect(files.get_by_text("late.txt")).to_have_count(0)
    assert link.bounding_box() == pytest.approx(place, abs=2)
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(5, 5)
    expect(files.locator("tbody tr").first).to_contain_text("late.txt")


def test_the_files_of_a_job_are_read_on_a_phone_and_in_chinese(pond: Pond, visit: Visit) -> None:
    job = submit(pond, 'touch "$MILLPOND_OUTPUT/' + "long" * 40 + '"', "--gpus", "0")
    empty = submit(pond, "true", "--gpus", "0")
    pond("wait", job, empty)
    page = visit.enter(pond, job)
    for size in (PHONE, DESKTOP):
        page.set_viewport_size(size)
        page.locator("#output-files").get_by_role("link", name="long").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    page.get_by_role("link", name="简体中文").click()
    page.get_by_role("heading", name="输出文件").wait_for()
    page.goto(page.url.replace(job, empty))
    page.get_by_text("没有留下文件。").wait_for()


def test_earlier_attempts_stay_under_the_hand_and_lead_to_their_output_and_files(pond: Pond, visit: Visit) -> None:
    command = 'at=$MILLPOND_ATTEMPT; echo "run $at" | tee "$MILLPOND_OUTPUT/of-$at"; [ $at = 1 ] && exit 3; sleep 600'
    job = submit(pond, command, "--gpus", "1", "--retries", "1")
    page = visit.enter(pond, job)
    row = page.locator("#attempt-1")
    expect(row).to_contain_text("task 0 ended (user-error, exit code 3)")
    expect(page.locator("#attempt-2")).to_contain_text("running")
    page.locator("#attempt-2").hover()
    place = row.bounding_box()
    page.locator("#log-attempt").select_option("1")
    pond.printed("requeue", job)
    page.locator("button.waiting:visible").wait_for()
    expect(page.locator("#attempt-2")).to_contain_text("requeued")
    expect(page.locator("#attempt-3")).to_have_count(0)
    assert row.bounding_box() == pytest.approx(place, abs=2)
    page.mouse.move(5, 5)
    page.locator("#attempt-3").wait_for()
    expect(page.locator("#log-attempt option")).to_have_text(["latest", "1", "2", "3"])
    assert page.locator("#log-attempt").input_value() == "1"
    row.get_by_role("link", name="of attempt 1").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**?attempt=1#log")
    expect(page.locator("#log-lines")).to_contain_text("run 1")
    assert page.locator("#log-attempt").input_value() == "1"
    page.locator("#output-files").get_by_role("link", name="of-1").wait_for()
    page.locator("#log-attempt").select_option("2")
    page.locator("#output-files").get_by_role("link", name="of-2").wait_for()
    page.set_viewport_size(PHONE)
    page.get_by_role("link", name="简体中文").click()
    expect(page.locator("#attempt-1")).to_contain_text("退出码 3")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    pond.printed("stop", job)


def test_a_slow_disk_holds_no_page_and_what_is_not_wanted_any_more_is_not_waited_for(pond: Pond, visit: Visit) -> None:
    job = submit(pond, 'touch "$MILLPOND_OUTPUT/weights"', "--gpus", "0")
    pond("wait", job)
    held: list[Any] = []
    visit.page.route(re.compile("/output(\\?.*)?$"), lambda route: held.append(route))
    page = visit.enter(pond, job)
    page.locator("#log-lines").get_by_text("The output ends here.").wait_for()
    expect(page.locator("#output-files")).to_have_text("The folder is being read …")
    page.locator("#log-attempt").select_option("1")
    while len(held) < 2:
        page.wait_for_timeout(50)
    assert [urlsplit(each.request.url).query for each in held] == ["", "attempt=1"]
    held[1].continue_()
    page.locator("#output-files").get_by_role("link", name="weights").wait_for()
    assert held[0].request.failure is not None
    visit.forgive_refusals()
