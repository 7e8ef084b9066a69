"""The series of public traces that forecasts are judged on, with their known holes as gaps.

- *nodes*: nodes of Philly in use, each minute of October and November 2017 (`philly_nodes_2017-10_2017-11.csv.gz`).
  Gaps are the hole of 25 October, the zeros behind it, and the hour of 5 November in which a part of the nodes was
  counted.
- *cards*: running GPUs of eight virtual clusters of Earth together, mean of each hour of May 2020
  (`earth_vcs_2020-05.csv.gz`).
- *replicas*: replicas that image requests keep busy, mean of each hour (`lora_request_trace_first16d.csv.gz`): the
  first 16 days of a trace of 23.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.traces.cases import find
from millpond.forecasting.series import LoadSeries

MINUTE_S, HOUR_S = 60.0, 3_600.0


def philly_nodes(folder: Path) -> LoadSeries:
    """Nodes in use, each minute."""
    begin, end = instant("2017-10-03"), instant("2017-12-01")
    values = np.full(int((end - begin) / MINUTE_S), np.nan)
    for row in rows_of(folder, "philly_nodes_2017-10_2017-11.csv.gz"):
        if row["total"] != "174":
            values[int((instant(row["time"]) - begin) / MINUTE_S)] = float(row["active"])
    values[values == 0.0] = np.nan
    return LoadSeries(begin, MINUTE_S, values)


def earth_cards(folder: Path) -> LoadSeries:
    """Running GPUs, each hour."""
    begin = instant("2020-05-01")
    values = np.zeros(31 * 24 * 60)
    for row in rows_of(folder, "earth_vcs_2020-05.csv.gz"):
        values[int((instant(row["time"]) - begin) / MINUTE_S)] += float(row["running_gpu_num"])
    return hourly(LoadSeries(begin, MINUTE_S, values))


def genai_requests(folder: Path) -> list[tuple[float, float]]:
    """Begin and length of each request, in seconds."""
    rows = rows_of(folder, "lora_request_trace_first16d.csv.gz")
    return [(instant(row["gmt_create"]), float(row["exec_time_seconds"] or 0.0)) for row in rows]


def genai_replicas(folder: Path) -> LoadSeries:
    """Busy replicas, each hour from 16 November to 1 December 2024, 16:00."""
    begin = instant("2024-11-16")
    values = np.zeros(15 * 24 + 16)
    for at, length_s in genai_requests(folder):
        position, end = at - begin, at - begin + length_s
        while position < end:
            hour = int(position // HOUR_S)
            until = min(end, (hour + 1) * HOUR_S)
            if 0 <= hour < len(values):
                values[hour] += (until - position) / HOUR_S
            position = until
    return LoadSeries(begin, HOUR_S, values)


def hourly(series: LoadSeries) -> LoadSeries:
    """Means of hours; of what is known of an hour."""
    steps = series.steps_in(HOUR_S)
    hours = series.values.reshape(-1, steps)
    known = (~np.isnan(hours)).sum(axis=1)
    sums = np.nansum(hours, axis=1)
    return LoadSeries(series.begin, HOUR_S, np.where(known > 0, sums / np.maximum(known, 1), np.nan))


def instant(text: str) -> float:
    """A time without a zone, as if it were UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def rows_of(folder: Path, name: str) -> Iterator[dict[str, str]]:
    """The rows of a table of a trace, by the names of its columns."""
    with gzip.open(find(folder, name), "rt", encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)
