"""What the page of a service says of its replicas and of the forecast behind them."""

from __future__ import annotations

from typing import Any

import pytest
from auth_world import AuthWorld

from millpond.specs.api.services import ScalingInfo

NOW: dict[str, Any] = {"at": 0.0, "wanted": 2, "why": "with nothing to do, one is enough", "fewest": 1, "most": 5}
FORECAST: dict[str, Any] = {"forecast": 4, "by": "as a day before", "coverage": 0.984, "skill": 0.87, "tested_days": 7}


def page_of(world: AuthWorld, scaling: dict[str, Any] | None, language: str = "en") -> str:
    """The page of a service, as one line of text."""
    tasks = {"desired": 1, "max": 5}
    service = world.submit("max", kind="service", serve={"scale": {"open_requests": 4}}, tasks=tasks)
    found = {} if scaling is None else {service: ScalingInfo(**NOW, **scaling)}
    world.service.services.scaling = found
    answer = world.client("max").get(f"/portal/jobs/{service}", headers={"Accept-Language": language})
    assert answer.status_code == 200
    return " ".join(answer.text.split())


def test_a_forecast_is_shown_with_its_worth(shared: AuthWorld) -> None:
    page = page_of(shared, {"ahead_s": 600.0, **FORECAST})
    assert "Replicas wanted: 2 (1 to 5)" in page
    assert "Forecast in 10 min: 4" in page
    assert "as a day before; enough 98.4 % of the time in 7 days, skill 0.87" in page


def test_it_is_shown_why_nothing_is_forecast_in_the_language_of_the_reader(shared: AuthWorld) -> None:
    told = {"ahead_s": 600.0, "no_forecast": "the history is too short: 2.5 of 8 days"}
    assert 'No forecast</b> <span class="faint">the history is too short: 2.5 of 8 days' in page_of(shared, told)
    assert "2.5 / 8 天" in page_of(shared, told, "zh")


@pytest.mark.parametrize("scaling", [None, {}])
def test_nothing_is_said_of_a_forecast_that_no_rule_asks_for(shared: AuthWorld, scaling: dict[str, Any] | None) -> None:
    page = page_of(shared, scaling)
    assert "Service</h2>" in page
    assert "orecast" not in page
