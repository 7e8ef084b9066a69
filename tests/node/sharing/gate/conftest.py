"""The gate's library, built once, and a pretended card whose slices it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gated import GatedCard

from fake_driver.driver import FakeDriver
from millpond.node.sharing.gate.building import library


@pytest.fixture(scope="session")
def gate_library(_fake_driver_libraries: Path) -> Path:
    """Skipped with the driver, where there is no compiler; kept beside it from one run of the tests to the next."""
    return library(_fake_driver_libraries.parent)


@pytest.fixture
def card(fake_driver: FakeDriver, gate_library: Path, tmp_path: Path) -> Iterator[GatedCard]:
    """One card of 4 GiB."""
    card = GatedCard(fake_driver, gate_library, tmp_path)
    yield card
    card.close()


@pytest.fixture
def timed_card(fake_driver: FakeDriver, gate_library: Path, tmp_path: Path) -> Iterator[GatedCard]:
    """The same in time of the test's own."""
    card = GatedCard(fake_driver, gate_library, tmp_path, timed=True)
    yield card
    card.close()
