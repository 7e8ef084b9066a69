"""The rows of a scenario as plain data: what ``pond replay --scenario --json`` writes and its table shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from millpond.scheduling.settings import Settings
from millpond.simulation.kernel import World
from millpond.simulation.results.summaries import finite
from millpond.simulation.scenarios.rows import RowFigures
from millpond.simulation.scenarios.scenario_file import CalendarScenario


def scenario_summary(
    scenario: CalendarScenario, worlds: Sequence[World], played: Sequence[RowFigures], settings: Settings
) -> dict[str, Any]:
    """What each row came to, and under which parameters."""
    file = scenario.file
    policy = asdict(settings)
    del policy["typical_mix"]
    rows = []
    for row, world, figures in zip(scenario.rows, worlds, played, strict=True):
        plain = asdict(figures)
        cards, energy = plain.pop("cards"), plain.pop("energy")
        named = {"row": row.file.name, "about": row.file.about}
        rows.append(finite({**named, **plain, **cards, **energy, "costs": asdict(world.costs)}))
    return {
        "scenario": file.name,
        "rows": rows,
        "parameters": {
            "begin": file.begin, "warm_up_weeks": file.warm_up, "weeks": file.weeks,
            "users": sum(file.groups.values()), "groups": len(file.groups), "durations": file.durations, **policy,
        },
    }  # fmt: skip
