"""Quantities with units."""

from __future__ import annotations

import pytest

from millpond.model.amounts import memory_text, milli_text, pace_text, seconds_text
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


@pytest.mark.parametrize(("value", "shown"), [(True, "true"), (False, "false"), (None, "null"), ("True", "'True'")])
def test_a_fault_shows_a_value_as_files_write_it(value: object, shown: str) -> None:
    with pytest.raises(BadValueError, match=f"^{shown} is not a number of CPUs"):
        quantities.cpu_milli(value)


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


@pytest.mark.parametrize(("value", "part"), [("5%", 0.05), (0.05, 0.05), ("2.5 %", 0.025), ("0.5", 0.5), ("1%", 0.01)])
def test_a_slow_down_is_a_percentage_or_a_fraction(value: object, part: float) -> None:
    assert quantities.slowdown(value) == part


@pytest.mark.parametrize("value", [0, "0.5%", "51%", 5, -0.1, "some", "", True, float("nan")])
def test_a_slow_down_of_next_to_nothing_or_of_more_than_a_half_is_refused(value: object) -> None:
    with pytest.raises(BadValueError):
        quantities.slowdown(value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("60s", 60),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1d 12h", 129600),
        ("1:30:00", 5400),
        ("500ms", 0.5),
        (0, 0),
        ("0", 0),
        ("2 weeks", 1209600),
    ],
)
def test_lengths_of_time_are_spans_or_clocks(value: object, seconds: float) -> None:
    assert quantities.seconds(value) == seconds


@pytest.mark.parametrize(("value", "likely"), [(5, "5s, 5m or 5h"), ("5", "5s, 5m or 5h"), (0.5, "0.5s")])
def test_a_length_of_time_without_a_unit_is_refused_with_the_likely_spellings(value: object, likely: str) -> None:
    with pytest.raises(BadValueError, match="has no unit") as caught:
        quantities.seconds(value)
    assert likely in caught.value.hint


@pytest.mark.parametrize(("value", "likely"), [(12, "12GiB, or 12MiB"), ("4096", "4096MiB, or 4096GiB")])
def test_memory_without_a_unit_is_refused_with_the_likely_spellings(value: object, likely: str) -> None:
    with pytest.raises(BadValueError, match="has no unit") as caught:
        quantities.memory_mib(value)
    assert likely in caught.value.hint


@pytest.mark.parametrize(("milli", "text"), [(250, "0.25"), (1, "0.001"), (100_000_001, "100000.001"), (0, "0")])
def test_milli_units_are_shown_exactly(milli: int, text: str) -> None:
    assert milli_text(milli) == text
    assert quantities.gpu_milli(text) == milli


@pytest.mark.parametrize(
    ("per_s", "text"),
    [(0.0, "0/s"), (12_345.6, "12,346/s"), (3.456, "3.46/s"), (3.0, "3/s"), (0.2, "12/min"), (0.00125, "4.5/h")],
)
def test_a_pace_is_shown_to_three_figures_in_the_unit_in_which_it_is_no_small_part(per_s: float, text: str) -> None:
    assert pace_text(per_s) == text


@pytest.mark.parametrize("mib", [0, 1, 512, 1023, 1024, 1536, 1537, 1_048_576, 1_048_577])
def test_memory_is_shown_exactly_and_can_be_written_back(mib: int) -> None:
    assert quantities.memory_mib(memory_text(mib)) == mib


@pytest.mark.parametrize("amount_s", [0.0, 0.5, 1.0, 60.0, 90.0, 5_400.0, 86_400.0, 90_000.0, 1_048_577.0, 1e-3])
def test_lengths_of_time_are_shown_exactly_and_can_be_written_back(amount_s: float) -> None:
    assert quantities.seconds(seconds_text(amount_s)) == amount_s


@pytest.mark.parametrize("value", [-1, "-1", "half"])
def test_what_is_no_number_of_gpus_is_called_that(value: object) -> None:
    with pytest.raises(BadValueError, match=r"is not a number of GPUs|is negative"):
        quantities.gpu_milli(value)


@pytest.mark.parametrize("value", ["soon", "1:70:00", -1, "", None, True, float("inf"), "5 parsecs", "200000d", "90"])
def test_what_is_no_length_of_time_is_refused(value: object) -> None:
    with pytest.raises(BadValueError):
        quantities.seconds(value)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (512, "512 B"),
        (1536, "1.5 KiB"),
        (20 * 2**30, "20.0 GiB"),
        (2 * 2**40, "2.0 TiB"),
        (2**20 - 1, "1.0 MiB"),
        (2**30 - 1, "1.0 GiB"),
        (1000 * 2**10, "1000.0 KiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_amounts_of_bytes_are_told_in_the_unit_that_fits(count: int, text: str) -> None:
    assert quantities.size_text(count) == text
