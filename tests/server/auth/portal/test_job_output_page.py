"""The output files of a job in the portal: what is listed, who downloads what, and names made to deceive."""

from __future__ import annotations

import html
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from auth_world import AuthWorld
from fastapi.testclient import TestClient
from portal_browser import HOSTILE, browser_of

from millpond.node.task.records import attempt_dir, note_of_removal
from millpond.node.task.workspace import OUTPUT
from millpond.server.storage.files import outputs
from millpond.server.web.jobs.output_page import file_row


def folder_of(world: AuthWorld, job: str, attempt: int = 1) -> Path:
    folder = attempt_dir(world.service.state_dir, job, attempt) / OUTPUT
    folder.mkdir(parents=True)
    return folder


def put(folder: Path, name: str | bytes, at: float = 1_000.0, content: bytes = b"x") -> None:
    place = folder / os.fsdecode(name)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    os.utime(place, (at, at))


def listed(browser: TestClient, job: str, query: str = "") -> str:
    answer = browser.get(f"/portal/jobs/{job}/output{query}")
    assert answer.status_code == 200
    return answer.text


def addresses(page: str) -> list[str]:
    return [html.unescape(each) for each in re.findall(r'href="(/portal/jobs/[^"]+/output/[^"]+)"', page)]


def names(page: str) -> list[str]:
    return re.findall(r'class="path">(?:<a [^>]*>)?<bdi>(.*?)</bdi>', page, re.DOTALL)


def test_files_are_listed_the_newest_first_and_each_is_downloaded_whole_or_in_part(world: AuthWorld) -> None:
    job = world.submit("max")
    folder = folder_of(world, job)
    put(folder, "log.txt", 1_000)
    put(folder, "ckpt/model 1%.pt", 3_000, b"0123456789")
    put(folder, "old.bin", 500, b"y" * 2_048)
    browser = browser_of(world, "max")
    page = listed(browser, job)
    assert names(page) == ["ckpt/model 1%.pt", "log.txt", "old.bin"]
    assert "2.0 KiB" in page
    answer = browser.get(addresses(page)[0])
    assert (answer.status_code, answer.content) == (200, b"0123456789")
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''model%201%25.pt"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == "application/octet-stream"
    rest = browser.get(addresses(page)[0], headers={"Range": "bytes=4-", "If-Range": answer.headers["etag"]})
    assert (rest.status_code, rest.content) == (206, b"456789")
    assert f'data-load="/portal/jobs/{job}/output"' in browser.get(f"/portal/jobs/{job}").text


def test_a_page_that_a_job_wrote_is_saved_and_never_shown(world: AuthWorld) -> None:
    job = world.submit("max")
    put(folder_of(world, job), "index.html", content=HOSTILE.encode())
    browser = browser_of(world, "max")
    answer = browser.get(addresses(listed(browser, job))[0], headers={"Accept": "text/html"})
    assert answer.content == HOSTILE.encode()
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)<",
        "\u202egpj.exe",
        "a\tb",
        "a?b#c",
        "%2e%2e",
        "..…",
        "quote\"'&amp;",
        "\\..\\x",
        "模型.pt",
    ],
)
def test_a_name_that_is_text_is_shown_as_text_and_downloaded_under_a_name_that_all_see(
    world: AuthWorld, name: str
) -> None:
    job = world.submit("max")
    put(folder_of(world, job), name, content=b"mine")
    browser = browser_of(world, "max")
    page = listed(browser, job)
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    assert [html.unescape(each) for each in names(page)] == [shown]
    assert "<script>alert" not in page
    assert "\u202e" not in page
    (address,) = addresses(page)
    answer = browser.get(address)
    assert (answer.status_code, answer.content) == (200, b"mine")
    assert "%09" not in answer.headers["content-disposition"]
    assert "%E2%80%AE" not in answer.headers["content-disposition"]


def test_a_name_that_is_no_text_and_a_link_are_shown_and_cannot_be_downloaded(world: AuthWorld) -> None:
    job = world.submit("max")
    folder = folder_of(world, job)
    put(folder, b"odd-\xff\xfe", 9_000)
    put(folder, "two\nlines", 8_000)
    (folder / "out").symlink_to("/etc/passwd")
    (folder / "up").symlink_to("../../../..")
    os.mkfifo(folder / "pipe")
    browser = browser_of(world, "max")
    page = listed(browser, job)
    assert sorted(names(page)) == ["odd-??", "out", "two?lines", "up"]
    assert addresses(page) == []
    assert page.count("no address can have its name") == 2
    assert page.count("a link, which is not followed") == 2
    for path in ("out", "up/etc/passwd", "pipe", "odd-%FF%FE", "two%0Alines"):
        answer = browser.get(f"/portal/jobs/{job}/output/{path}")
        assert answer.status_code == 404
        assert "root:" not in answer.text


@pytest.mark.parametrize(
    "path", ["../record.json", "%2e%2e/record.json", "a/%2e%2e/%2e%2e/record.json", "/etc/passwd", "", "%00"]
)
def test_nothing_outside_of_the_folder_is_reached(world: AuthWorld, path: str) -> None:
    job = world.submit("max")
    folder = folder_of(world, job)
    put(folder, "a/b")
    (folder.parent / "record.json").write_text("secret")
    answer = browser_of(world, "max").get(f"/portal/jobs/{job}/output/{path}")
    assert answer.status_code == 404
    assert "secret" not in answer.text


def test_those_alone_who_may_read_the_job_see_and_get_its_files(world: AuthWorld) -> None:
    job = world.submit("max")
    put(folder_of(world, job), "mine")
    address = f"/portal/jobs/{job}/output"
    for user, status in (("mia", 200), ("vic", 200), ("olga", 200), ("sam", 404)):
        browser = browser_of(world, user)
        assert [browser.get(each).status_code for each in (address, f"{address}/mine")] == [status, status], user
    stranger = browser_of(world, "max").get(
        f"{address}/mine", headers={"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, follow_redirects=False
    )
    assert stranger.status_code in (303, 403)


def test_why_there_are_no_files_is_said(world: AuthWorld) -> None:
    job = world.submit("max")
    browser = browser_of(world, "max")
    assert "No file is here yet" in listed(browser, job)
    assert "尚无文件" in listed(browser_of(world, "max", **{"accept-language": "zh-CN"}), job)
    place = attempt_dir(world.service.state_dir, job, 1) / OUTPUT
    place.parent.mkdir(parents=True)
    place.symlink_to("/data/<b>results")
    page = listed(browser, job)
    assert "the job writes its output to /data/&lt;b&gt;results" in page
    assert "copy it from there" in page
    place.unlink()
    world.client("max").post(f"/api/v1/jobs/{job}/stop")
    world.settled()
    assert "It left no files." in listed(browser, job)
    note_of_removal(world.service.state_dir, job).touch()
    assert "was removed to make room" in listed(browser, job)
    assert "已被删除以腾出空间" in listed(browser_of(world, "max", **{"accept-language": "zh-CN"}), job)
    assert browser.get(f"/portal/jobs/{job}/output/mine").status_code == 404


def test_of_a_folder_with_very_many_files_a_bounded_part_is_looked_at_and_that_is_said(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.submit("max")
    folder = folder_of(world, job)
    for number in range(30):
        put(folder, f"file-{number}", number)
    browser = browser_of(world, "max")
    assert len(names(listed(browser, job))) == 30
    monkeypatch.setattr(outputs, "MOST_GLIMPSED", 10)
    page = listed(browser, job)
    assert names(page) == [f"file-{number}" for number in range(29, 19, -1)]
    assert "The newest 10 of 30 files." in page
    monkeypatch.setattr(outputs, "MOST_SEEN", 29)
    page = listed(browser, job)
    assert len(names(page)) == 10
    assert "There are more" in page


def test_files_with_times_that_no_calendar_has_are_shown_too(world: AuthWorld) -> None:
    job = world.submit("max")
    folder = folder_of(world, job)
    put(folder, "old", -1e9)
    put(folder, "late", 2**33)
    found = outputs.LeftFile("later", 1, 1e15, is_link=False)
    assert file_row(job, 1, found).modified_at == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
    assert names(listed(browser_of(world, "max"), job)) == ["late", "old"]


def test_the_attempt_in_the_address_is_the_one_whose_output_is_shown(world: AuthWorld) -> None:
    job = world.submit("max")
    browser = browser_of(world, "max")
    world.settled()
    assert '<option id="log-attempt-1" selected>1</option>' in browser.get(f"/portal/jobs/{job}?attempt=1").text
    assert "selected>1<" not in browser.get(f"/portal/jobs/{job}").text
    absent = browser.get(f"/portal/jobs/{job}?attempt=7")
    assert absent.status_code == 404
    assert "no attempt 7" in absent.text
    assert "no attempt 7" in listed(browser, job, "?attempt=7")
    assert browser.get(f"/portal/jobs/{job}?attempt=0").status_code == 422
