"""Quantities with units."""

from __future__ import annotations

import pytest

from millpond.specs import quantities
from millpond.specs.errors import BadValueError


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("32GiB", 32 * 1024),
        ("512MiB", 512),
        ("512Mi", 512),
        ("1.5 GiB", 1536),
        ("1GB", 954),
        ("1KiB", 1),
        ("2TiB", 2 * 1024 * 1024),
    ],
)
def test_memory_is_read_with_its_unit_and_rounded_up_to_mib(text: str, mib: int) -> None:
    assert quantities.memory_mib(text) == mib


@pytest.mark.parametrize("value", ["32", 32, "-1GiB", "GiB", "", None, True, "1e3GiB", "9999999PiB", [1]])
def test_memory_without_a_unit_or_a_sensible_amount_is_refused(value: object) -> None:
    with pytest.raises(BadValueError) as caught:
        quantities.memory_mib(value)
    assert "GiB" in caught.value.hint


@pytest.mark.parametrize(("value", "milli"), [(8, 8000), (0.5, 500), ("500m", 500), ("2", 2000), (0, 0), (0.1, 100)])
def test_cpus_are_cores_or_milli_cores(value: object, milli: int) -> None:
    assert quantities.cpu_milli(value) == milli


@pytest.mark.parametrize("value", [-1, 0.0001, "half", float("nan"), float("inf"), True, None, 10**12])
def test_cpus_that_are_negative_or_too_fine_are_refused(value: object) -> None:
    with pytest.raises(BadValueError):
        quantities.cpu_milli(value)


@pytest.mark.parametrize(
    ("value", "milli"), [("25%", 250), (0.25, 250), ("250m", 250), (1, 1000), (0, 0), ("0.1", 100)]
)
def test_a_part_of_a_card_is_a_percentage_a_fraction_or_milli(value: object, milli: int) -> None:
    assert quantities.compute_milli(value) == milli


@pytest.mark.parametrize("value", ["101%", 1.5, 0.255, "5m", -0.1, "", float("nan")])
def test_a_part_of_a_card_beyond_it_or_finer_than_a_percent_is_refused(value: object) -> None:
    with pytest.raises(BadValueError):
        quantities.compute_milli(value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("60s", 60),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1d 12h", 129600),
        ("1:30:00", 5400),
        (90, 90),
        (0.5, 0.5),
        ("2 weeks", 1209600),
    ],
)
def test_lengths_of_time_are_spans_clocks_or_seconds(value: object, seconds: float) -> None:
    assert quantities.seconds(value) == seconds


@pytest.mark.parametrize("value", ["soon", "1:70:00", -1, "", None, True, float("inf"), "5 parsecs", "200000d", "90"])
def test_what_is_no_length_of_time_is_refused(value: object) -> None:
    with pytest.raises(BadValueError):
        quantities.seconds(value)
