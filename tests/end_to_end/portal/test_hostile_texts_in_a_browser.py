"""What people and programs write, however long and whatever it looks like, is text on a phone, in a real Chromium."""

from __future__ import annotations

import json
from typing import Any

import pytest
from portal_visit import PHONE, Visit, base_of, chromium, expect, pond, visit
from real_pond import Pond, until

from millpond.client.sdk import Client

pytestmark = pytest.mark.long

__all__ = ["chromium", "pond", "visit"]
"""Fixtures."""

MARKUP = "<script>window.struck=1</script><img src=x onerror=window.struck=2>\"'"
LONG = "x" * 10_000
WRITES = r"""
cat > "$MILLPOND_OUTPUT/read.py" <<'END'
import json, os
markup, long = json.loads(os.environ["TEXTS"])
with open(os.environ["MILLPOND_METRICS"], "a") as file:
    for step in range(3):
        values = {markup[:100]: step, "m" * 150: 2 * step}
        file.write(json.dumps({"at": 1.0 + step, "step": step, "values": values}) + "\n")
for name in (markup.replace("/", "")[:60], "n" * 200):
    open(os.path.join(os.environ["MILLPOND_OUTPUT"], name), "w").close()
print(markup, long, sep="\n", flush=True)
END
python3 "$MILLPOND_OUTPUT/read.py"; sleep 3600
"""


@pytest.fixture(scope="module")
def hostile(pond: Pond) -> dict[str, str]:
    """A server with such texts wherever it takes them; what stands in addresses for which name."""
    with Client(state_dir=pond.state_dir) as client:
        reason, name = (MARKUP + LONG)[:200], "n" * 100  # the longest that are taken
        client.close_node("fake-2", reason=reason)
        client.close_node("fake-1", card=3, reason=reason)
        client.saved_views.save(MARKUP[:60], "state=queued")
        env = {"TEXTS": json.dumps([MARKUP, LONG]), "LONG": LONG}
        job = client.submit({"name": name, "gpus": 1, "command": WRITES, "env": env, "memory": "64MiB"})
        waits = client.submit({"name": name, "gpus": 4, "command": ["sleep", "9", MARKUP, LONG], "memory": "64MiB"})
        until(lambda: LONG in pond.output(job.id))
    return {"job": job.id, "waits": waits.id}


@pytest.mark.parametrize(
    "path",
    [
        *("", "?colour=owner", "?colour=health", "jobs?all=true", "jobs/{job}", "jobs/{waits}", "curves?job={job}"),
        *("nodes", "nodes/fake-1", "nodes/fake-2", "queues/default", "submit?from={job}", "admin/audit", "history"),
        *("reports?by=job", "reports/mine", "jobs?name={long}", "jobs?queue={markup}", "nodes?name={long}"),
        *("nodes/{markup}", "curves?job={long}", "queues/{long}", "admin/audit?by={markup}", "reservations", "cells"),
    ],
)
def test_texts_of_any_length_and_look_are_shown_as_text_within_the_width_of_a_phone(
    pond: Pond, visit: Visit, hostile: dict[str, str], path: str
) -> None:
    page = visit.enter(pond)
    visit.forgive_refusals()
    page.set_viewport_size(PHONE)
    page.goto(f"{base_of(page)}/portal/{path.format(**hostile, long='y' * 3_000, markup='<script>window.struck=1')}")
    expect(page.locator("h1").first).to_be_visible()
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate("window.struck") is None
    assert page.locator("main img[src=x], main script:not([nonce])").count() == 0


def test_long_lines_and_markup_of_a_program_stand_in_its_output_as_they_were_written(
    pond: Pond, visit: Visit, hostile: dict[str, str]
) -> None:
    page = visit.enter(pond, hostile["job"])
    page.set_viewport_size(PHONE)
    lines = page.locator("#log-lines div")
    expect(lines.filter(has_text="window.struck=2").first).to_have_text(MARKUP)
    expect(lines.filter(has_text="xxx").first).to_have_text(LONG)
    files: Any = page.locator("#output-files")
    expect(files.get_by_role("link", name="n" * 200)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_a_name_of_ten_thousand_letters_is_refused_beside_the_form_which_stays_as_wide_as_a_phone(
    pond: Pond, visit: Visit
) -> None:
    page = visit.enter(pond)
    visit.forgive_refusals()
    page.set_viewport_size(PHONE)
    page.goto(f"{base_of(page)}/portal/submit")
    page.fill("textarea.yaml", f"name: {LONG}\ncommand: '{MARKUP.replace(chr(39), '')}'\n")
    problem = page.locator(".problems button").first
    expect(problem).to_contain_text("name")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate("window.struck") is None
