"""A server with something on each page of the portal, and the addresses of all its pages.

``make screenshots`` takes a picture of each page, at the width of a desk and of a phone.

The pages are found among the server's own routes, so that none is forgotten.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from portal_past import write_past
from portal_work import fill
from real_pond import Pond

from millpond.server.web.portal import portal_routes

CHROMIUM: Final = shutil.which("chromium")
OPTIONS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
SIZES: Final = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
NO_PAGES: Final = (
    "/portal/stream", "/portal/enter", "/portal/static/", "/portal/language/", "/portal/{path", "/portal/views/",
    "/portal/what-if/answer", "/portal/jobs/{job}/output", "/portal/job-ids",
)  # fmt: skip
"""Routes that answer with something else than a page, or with a part of one, or lead on to one."""
DRAW_ALL: Final = """
for (const line of document.querySelectorAll(".log div")) line.style.contentVisibility = "visible";
"""
"""Lines of output that are out of view are else not drawn, and a picture of a whole page is made at its top."""
TROUBLED: Final = Path(__file__).with_name("troubled_cards")
QUESTIONS: Final = {
    "/portal/curves": "?job={sweep}",
    "/portal/what-if": "?past_days=0&add_nodes=1x8:V100-32GB",
    "/portal/queues/{queue}/play": "?preview=1&parent=research&guarantee.gpus=6&cells=4 cards: 1",
    "/portal/queues/{queue}/edit": "?preview=1&parent=research&guarantee.gpus=6&cells=4 cards: 1",
}
"""What pages are asked that else are forms and nothing more."""
READY: Final = {"/portal/what-if": "#answer h2"}
"""What is waited for on pages that are not whole at once."""
CONFIGURATION: Final = """
pools: [{name: default, suspends: true}]
queues:
- {name: research, guarantee: {gpus: 12}}
- {name: vision, parent: research, guarantee: {gpus: 8}, cells: {4 cards: 2}}
- {name: speech, parent: research, guarantee: {gpus: 4}, limit: {gpus: 8}}
- {name: interns, weight: 0.5}
nodes:
- {name: dgx-1, devices: 8, model: V100-32GB, device_memory: 32GiB, link_map: v100-cube-mesh, rack: r1, zone: z1}
- {name: dgx-2, devices: 8, model: V100-32GB, device_memory: 32GiB, link_map: v100-cube-mesh, rack: r2, zone: z1}
- {name: box-1, devices: 2, model: A100-80GB, device_memory: 80GiB}
- {name: box-2, devices: 2, model: A100-80GB, device_memory: 80GiB}
prices: {currency: EUR, gpu_hour: {V100-32GB: 0.6, A100-80GB: 1.8}}
energy: {price: 0.31, carbon: 380}
notifications:
  mail: {host: 127.0.0.1, port: 9, encryption: none, sender: pond@example.org}
  chat: ["http://127.0.0.1:9"]
webhooks: [{name: room, url: "http://127.0.0.1:9/services/T0/B0", format: slack}]
"""


@contextmanager
def scene(folder: Path) -> Iterator[tuple[Pond, dict[str, str]]]:
    """A server with some days behind it, jobs of several people and cards in trouble; with it, what stands in addresses
    for which name.
    """
    config = folder / "cluster.yaml"
    config.write_text(CONFIGURATION)
    write_past(folder / "state", time.time())
    pond = Pond(folder / "state")
    pond.env["PYTHONPATH"] = str(TROUBLED)
    pond.up("--fake-gpus", "none", "--config", str(config))
    del pond.env["PYTHONPATH"]
    try:
        yield pond, fill(pond.state_dir)
    finally:
        pond.printed("down")


def pages() -> list[str]:
    """The paths of all pages, with names in curly brackets where each job or node has one of its own."""
    paths = (route.path for route in portal_routes() if "GET" in getattr(route, "methods", ()))
    return sorted({path for path in paths if not path.startswith(NO_PAGES) and not path.endswith(".csv")})


def address(path: str, names: dict[str, str]) -> str:
    """The path of one page, with what it is asked.

    Args:
        names: what stands for each name in curly brackets.

    Raises:
        KeyError: the page needs a name that is not there.
    """
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda name: names[name[1]], path + QUESTIONS.get(path, ""))


def enter(context: Any, pond: Pond) -> Any:
    """A window of a browser that has come in by a link."""
    page = context.new_page()
    page.goto(pond.printed("open", "--print"))
    page.wait_for_url(re.compile(r"/portal/$"))
    return page


def main(folder: Path) -> None:
    """Write the pictures."""
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, scene(Path(home)) as (pond, names), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        context = browser.new_context(locale="en-US", timezone_id="UTC")
        page = enter(context, pond)
        base = page.url.partition("/portal")[0]
        for path in pages():
            for size, viewport in SIZES.items():
                page.set_viewport_size(viewport)
                page.goto(base + address(path, names))
                if path in READY:
                    page.locator(READY[path]).first.wait_for()
                page.wait_for_timeout(500)  # charts draw themselves
                page.evaluate(DRAW_ALL)
                picture = folder / f"{re.sub('[^a-z0-9]+', '-', path.lower()).strip('-')}-{size}.png"
                page.screenshot(path=picture, full_page=size == "phone")
                print(picture)
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A picture of each page of the portal.")
    parser.add_argument("folder", type=Path, help="where the pictures are put")
    main(parser.parse_args().folder)
