"""The portal of a server with much going on, in a real Chromium: idle cards, compared runs, the keyboard, Chinese."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright import sync_api
from portal_scene import CHROMIUM, OPTIONS, READY, address, enter, pages, scene
from portal_visit import DESKTOP, PATIENCE_MS, expect
from real_pond import until

from millpond.client.sdk import Client

if CHROMIUM is None:
    pytest.skip("chromium is not installed (apt-get install chromium)", allow_module_level=True)


pytestmark = pytest.mark.long

REACHED: str = """() => {
  const at = document.activeElement, box = at.getBoundingClientRect(), look = getComputedStyle(at);
  return {
    mark: at === document.body ? "" : at.dataset.reach ?? "", name: at.outerHTML.slice(0, 120),
    outlined: (look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 2)
      || (at.closest("svg") && parseFloat(getComputedStyle(at.querySelector("path")).strokeWidth) >= 3),
    seen: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0
      && box.left < innerWidth,
  };
}"""
"""What has the keyboard now, whether that is shown (a line of a drawing by its width), and whether it is in view."""
MARK: str = """() => {
  const acts = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  const shown = [...document.querySelectorAll(acts)].filter((each) => each.checkVisibility({ visibilityProperty: true })
    && !each.disabled && each.type !== "hidden" && each.tabIndex >= 0);
  shown.forEach((each, number) => { each.dataset.reach = number; });
  return shown.length;
}"""
"""Gives a number to whatever can be used on the page; returns how many there are."""
WORDS: str = """() => {
  const left = [], skip = "code, pre, script, style, bdi, option, .log, .twin, .brand, [lang]:not(html)";
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const { parentElement: at, data } = walk.currentNode;
    if (!at.closest(skip) && at.checkVisibility()) left.push(data);
  }
  for (const each of document.querySelectorAll("[title], [aria-label], [placeholder], [hx-confirm]")) {
    if (each.closest(skip)) continue;
    for (const name of ["title", "aria-label", "placeholder", "hx-confirm"]) left.push(each.getAttribute(name) ?? "");
  }
  return left.map((text) => text.replace(/\\s+/g, " ").trim()).filter(Boolean);
}"""
"""What the page says to eyes and to readers of screens, but for code and names."""


class Filled:
    """The server, a window that has come in, and what stands in addresses for which name."""

    def __init__(self, pond: Any, page: Any, names: dict[str, str]) -> None:
        self.pond, self.page, self.names = pond, page, names
        self.base = page.url.partition("/portal")[0]

    def go(self, path: str) -> None:
        self.page.goto(self.base + address(path, self.names))
        if path in READY:
            self.page.locator(READY[path]).first.wait_for()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with scene(tmp_path_factory.mktemp("filled")) as (pond, names), sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        context = browser.new_context(locale="en-US", viewport=DESKTOP)
        context.set_default_timeout(PATIENCE_MS)
        yield Filled(pond, enter(context, pond), names)
        browser.close()


def test_the_runs_of_a_sweep_are_compared_by_parameters_by_curves_and_by_the_best_so_far(filled: Filled) -> None:
    page, sweep = filled.page, filled.names["sweep"]
    filled.go("/portal/curves")
    page.locator("#best-so-far canvas").wait_for()
    parallel = page.locator("svg.parallel[role=group]")
    assert parallel.locator("text.name").all_text_contents() == ["lr", "depth", "smooth", "loss"]
    expect(parallel.locator("a")).to_have_count(8)
    best = page.locator("#best-so-far-plot").evaluate("({ plot }) => plot.data[1].filter((each) => each !== null)")
    assert best == sorted(best, reverse=True)
    assert len(set(best)) > 1
    lowest = page.locator("table tbody tr").first
    assert float(lowest.locator("b").inner_text()) == pytest.approx(best[-1], abs=1e-4)
    first = page.locator("table tbody tr a.job").first.get_attribute("href")
    line = parallel.locator(f"a[href='{first}']")
    assert re.search(r"lr 0\.\d+, depth \d, smooth 0\.\d+, loss 0\.\d+$", line.get_attribute("aria-label"))
    ends = {each.get_attribute("d").rpartition(",")[2] for each in parallel.locator("a path.line").all()}
    assert len(ends) > 4, "runs with other results end at other places of the last axis"
    page.select_option("[name=goal]", "maximize")
    page.select_option("[name=metric]", ["accuracy"])
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**goal=maximize**")
    page.locator("#best-so-far canvas").wait_for()
    best = page.locator("#best-so-far-plot").evaluate("({ plot }) => plot.data[1].filter((each) => each !== null)")
    assert best == sorted(best)
    assert parallel.locator("text.name").all_text_contents()[-1] == "accuracy"
    line.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(rf"/portal/jobs/{sweep}\."))


@pytest.mark.parametrize("path", pages())
def test_all_that_can_be_used_is_reached_by_the_tab_key_and_shows_that_it_is(filled: Filled, path: str) -> None:
    page = filled.page
    filled.go(path)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    page.evaluate("scrollTo(0, 0)")
    count = page.evaluate(MARK)
    assert count > 3
    reached: set[str] = set()
    unmarked, unseen = [], []
    for _ in range(count + 40):
        page.keyboard.press("Tab")
        now = page.evaluate(REACHED)
        if now["mark"] in reached and len(reached) >= count - 40 and now["mark"] == "0":
            break
        reached.add(now["mark"])
        if now["mark"] and not now["outlined"]:
            unmarked.append(now["name"])
        if now["mark"] and not now["seen"]:
            unseen.append(now["name"])
    missed = page.evaluate(
        "(reached) => [...document.querySelectorAll('[data-reach]')]"
        ".filter((each) => !reached.includes(each.dataset.reach)).map((each) => each.outerHTML.slice(0, 160))",
        sorted(reached),
    )
    assert (missed, unmarked, unseen) == ([], [], [])


@pytest.mark.parametrize("path", pages())
def test_in_chinese_no_page_has_an_english_sentence(filled: Filled, path: str) -> None:
    page = filled.page
    page.context.add_cookies([{"name": "millpond_language", "value": "zh-CN", "url": filled.base}])
    try:
        filled.go(path)
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        english = [text for text in page.evaluate(WORDS) if _has_sentence(text)]
        assert page.locator("html").get_attribute("lang") == "zh-CN"
    finally:
        page.context.add_cookies([{"name": "millpond_language", "value": "en", "url": filled.base}])
    assert english == []


def test_an_idle_job_is_suspended_by_one_click_on_the_overview_and_its_card_is_free(filled: Filled) -> None:
    page = filled.page
    row = page.locator("tr[id^=idle-]", has_text="debug-shell")
    until(lambda: filled.go("/portal/") or row.is_visible())  # that time passes changes no job: no page hears of it
    asked: list[str] = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    row.get_by_role("button", name="Suspend").click()
    row.wait_for(state="detached")
    assert "debug-shell" in asked[0]
    with Client(state_dir=filled.pond.state_dir) as client:
        (job,) = (each for each in client.jobs().jobs if each.name == "debug-shell")
        until(lambda: client.job(job.id).suspension.startswith("swapped"))
        assert client.job(job.id).state == "suspended"


_NAMES = re.compile(r"\S*/\S*|it runs hot|driver 580|new power supply")
"""What people have written, and paths."""


_ENGLISH = re.compile(
    r"\b(a|added|and|are|at|by|for|from|in|is|jobs?|no|not|of|on|removed|such|the|to|until|was|with|without)\b"
    r"|\b[A-Za-z]+[,;:]? [a-z]+[,;:]? [a-z]+\b"
)


def _has_sentence(text: str) -> bool:
    """Whether a word stands there that English sentences are made of, or three words in a row."""
    return _ENGLISH.search(_NAMES.sub("", text)) is not None
