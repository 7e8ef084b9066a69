"""The page of a job in a real Chromium, before a real server: the files that it wrote, and its earlier attempts."""

from __future__ import annotations

from pathlib import Path

import pytest
from portal_visit import DESKTOP, PHONE, Visit, chromium, expect, pond, submit, visit
from real_pond import Pond

pytestmark = pytest.mark.end_to_end

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
    pond("stop", job)
    page.locator("#job .s-cancelled").first.wait_for()
    page.locator("button.waiting", has_text="Changes wait").wait_for()
    expect(files.get_by_text("late.txt")).to_have_count(0)
    assert link.bounding_box()["x"] == place["x"]
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
