"""The cards of a job on its page: which they are, and what they did."""

from __future__ import annotations

import re

import pytest
from auth_world import AuthWorld
from portal_browser import browser_of

from millpond.server.monitoring.telemetry.job_cards import FIGURES
from millpond.server.web.charts import history_pages
from millpond.server.web.jobs import job_pages
from millpond.specs.api.reports.time_series import NamedSeries, TimeSeriesInfo


def test_cards_of_one_model_are_named_together_and_those_whose_charts_are_left_out_are_counted(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: dict[str, list[float | None]] = {name: [None, None] for name in FIGURES}
    figures["engine"] = [1.0, 1.0]
    series = [NamedSeries(name=f"n1 #{number}", figures=figures) for number in range(2)]
    measured = TimeSeriesInfo(subject="cards", begin=0.0, end=120.0, step_s=60, at=[0.0, 60.0], series=series)
    monkeypatch.setattr(job_pages, "cards_of", lambda *_: measured)
    whole, part = world.submit("max", gpus=2), world.submit("max", gpus=0.25)
    world.settled()

    def told(job: str) -> str:
        page = browser_of(world, "max").get(f"/portal/jobs/{job}").text
        return " ".join(re.sub(r"<[^>]+>", " ", page[page.index("Tasks") :]).split())

    assert re.search(r"\bV100 #\d, #\d", told(whole)), told(whole)
    assert re.search(r"\bV100 #\d \(0\.25\)", told(part)), told(part)
    assert "cards, the first" not in told(whole)
    monkeypatch.setattr(history_pages, "MOST_CARDS", 1)
    assert "Of 2 cards, the first 1 are drawn." in told(whole)
