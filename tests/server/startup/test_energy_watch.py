"""Files of prices that others write while the server runs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from millpond.server.startup.configuration import Current
from millpond.server.startup.energy_watch import EnergyWatch
from millpond.specs.config.cluster import load_cluster

BEGIN, END = 1_795_651_200.0, 1_795_654_800.0
"""26 November 2026, 0 to 1 o'clock."""


class Place:
    """A configuration that names a file of prices, and who looks at it."""

    def __init__(self, folder: Path) -> None:
        self.prices, self.config = folder / "prices.csv", folder / "pond.yaml"
        self.write("0.2")
        self.config.write_text(f"energy: {{price_file: {self.prices}}}\n")
        self.current = Current(load_cluster(self.config))
        self.watch = EnergyWatch(self.config, self.current)

    def write(self, value: str) -> None:
        """Another file in place of the one that is there; it counts as new however fast that was."""
        fresh = self.prices.with_suffix(".new")
        fresh.write_text(f"at,value\n2026-11-26T00:00Z,{value}\n2026-11-26T01:00Z,{value}\n")
        fresh.replace(self.prices)

    @property
    def price(self) -> float:
        price = self.current.config.energy.price
        assert price is not None
        return price.mean(BEGIN, END)[0]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_prices_are_read_again_when_their_file_has_changed(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    before = place.current.config
    place.watch.look()
    assert place.current.config is before
    place.write("0.4")
    place.watch.look()
    assert place.price == 0.4
    assert place.current.config.document == before.document
    assert f"read {place.prices} again" in caplog.text


def test_a_file_that_is_wrong_or_gone_leaves_prices_as_they_were_and_is_named_once(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.write("cheap")
    for _ in range(2):
        place.watch.look()
    assert place.price == 0.2
    assert caplog.text.count("'cheap' is no number") == 1
    place.prices.unlink()
    place.watch.look()
    assert (place.price, "cannot be read" in caplog.text) == (0.2, True)
    place.write("0.3")
    place.watch.look()
    assert place.price == 0.3


def test_prices_that_came_while_the_configuration_was_wrong_are_read_once_it_is_not(place: Place) -> None:
    right = place.config.read_text()
    place.config.write_text("energy: [\n")
    place.write("0.4")
    place.watch.look()
    assert place.price == 0.2
    place.config.write_text(right)
    place.watch.look()
    assert place.price == 0.4
