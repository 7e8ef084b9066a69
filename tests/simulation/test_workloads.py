"""Arrivals that are drawn, workloads that are made up, clusters in a word, and jobs that can never run."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from millpond.model.errors import InvalidInputError
from millpond.model.hardware.nodes import SharingPolicy
from millpond.model.reasons import Cause, Reason
from millpond.model.workloads import Job
from millpond.simulation.clusters import capacity_milli, cards_per_node, uniform_cluster
from millpond.simulation.packing import inflate
from millpond.simulation.readers import native, read_workload
from millpond.simulation.synthetic import SyntheticOptions, synthesise
from millpond.simulation.trace import TraceJob, Workload, admissible, gang_roles

DATA = Path(__file__).parent.parent / "data"


def test_inflation_brings_every_pod_once_and_clones_until_enough_is_asked_for() -> None:
    gpu_milli = [1000, 500, 0, 2000]
    order = inflate(gpu_milli, 10_000, 1.3, seed=3)
    assert set(order) == {0, 1, 2, 3}
    asked = sum(gpu_milli[index] for index in order)
    assert 13_000 <= asked < 15_000


def test_inflation_is_the_same_for_a_seed_and_another_for_another() -> None:
    gpu_milli = [1000, 500, 250, 2000]
    first = inflate(gpu_milli, 40_000, 1.0, seed=1)
    assert first == inflate(gpu_milli, 40_000, 1.0, seed=1)
    assert first != inflate(gpu_milli, 40_000, 1.0, seed=2)


def test_inflation_without_gpu_work_is_refused_instead_of_running_for_ever() -> None:
    with pytest.raises(InvalidInputError, match="no pod asks for a GPU"):
        inflate([0, 0], 1000, 1.3, seed=0)


def test_a_synthetic_workload_offers_the_load_that_was_asked_for() -> None:
    workload = synthesise(SyntheticOptions(jobs=3000, load=0.8), 64, 8, seed=5)
    asked = sum(entry.duration_s * entry.job.gpu_milli / 1000 for entry in workload.jobs)
    assert asked / (64 * workload.jobs[-1].submit_at) == pytest.approx(0.8, rel=0.05)


def test_a_synthetic_workload_has_a_day_cycle_a_heavy_tail_and_mostly_small_jobs() -> None:
    workload = synthesise(SyntheticOptions(jobs=6000), 64, 8, seed=1)
    by_night = sum(1 for entry in workload.jobs if not 21600 <= entry.submit_at % 86400 < 64800)
    durations = np.array([entry.duration_s for entry in workload.jobs])
    assert by_night < 0.4 * len(workload.jobs)
    assert durations.mean() > 2 * np.median(durations)
    assert np.median([entry.job.gpu_milli for entry in workload.jobs]) <= 4000


def test_a_synthetic_workload_is_the_same_for_a_seed() -> None:
    options = SyntheticOptions(jobs=50)
    assert synthesise(options, 64, 8, seed=1) == synthesise(options, 64, 8, seed=1)
    assert synthesise(options, 64, 8, seed=1) != synthesise(options, 64, 8, seed=2)


def test_a_workload_written_as_a_native_trace_reads_back_the_same(tmp_path: Path) -> None:
    workload = synthesise(SyntheticOptions(jobs=40), 32, 8, seed=1)
    text = io.StringIO()
    native.write(workload, text)
    path = tmp_path / "jobs.csv"
    path.write_text(text.getvalue())
    again = read_workload("native", path, 8)
    assert [entry.job for entry in again.jobs] == [entry.job for entry in workload.jobs]
    assert [entry.submit_at for entry in again.jobs] == pytest.approx(
        [entry.submit_at for entry in workload.jobs], abs=0.001
    )


def test_a_cluster_in_a_word() -> None:
    nodes = uniform_cluster("3x8:V100")
    assert (len(nodes), cards_per_node(nodes), capacity_milli(nodes)) == (3, 8, 24_000)
    assert {device.model for node in nodes for device in node.devices} == {"V100"}


@pytest.mark.parametrize("text", ["8", "x8", "3x", "0x8", "3x0", "3x8x2", "-1x8", "3x8:", "three", "3x9999"])
def test_a_cluster_that_makes_no_sense_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInputError, match="cluster of"):
        uniform_cluster(text)


def test_a_job_of_any_size_becomes_full_nodes_and_a_remainder() -> None:
    def shape(gpus: int, cards: int) -> Counter[int]:
        return Counter({role.request.devices: role.desired for role in gang_roles(gpus, cards)})

    assert shape(3, 8) == {3: 1}
    assert shape(8, 8) == {8: 1}
    assert shape(20, 8) == {8: 2, 4: 1}
    assert shape(5, 1) == {1: 5}


def test_cpu_of_a_gang_is_spread_by_cards() -> None:
    full, rest = gang_roles(12, 8, 24_000, 1200)
    assert (full.request.cpu_milli, rest.request.cpu_milli) == (16_000, 8000)


def test_cards_are_exclusive_unless_a_job_asks_for_a_part_of_one() -> None:
    assert read_workload("philly", DATA / "case.csv", 8).pool().sharing is SharingPolicy.EXCLUSIVE
    assert read_workload("native", DATA / "native.csv", 8).pool().sharing is SharingPolicy.SLICED


def test_jobs_that_can_never_run_are_refused_by_name_and_place() -> None:
    def check(job: Job) -> Reason | None:
        too_large = job.gpu_milli > 4000
        return Reason(Cause.IMPOSSIBLE, "asks for 8 cards, the cluster has 4") if too_large else None

    workload = Workload(
        (TraceJob(Job("small", gang_roles(2, 4)), 0, 1, "f:2"), TraceJob(Job("big", gang_roles(8, 4)), 0, 1, "f:3")),
        "f",
    )
    with pytest.raises(InvalidInputError, match="f:3: job 'big' can never run here: asks for 8 cards"):
        admissible(workload, check, skip_bad_rows=False)
    kept = admissible(workload, check, skip_bad_rows=True)
    assert [entry.job.id for entry in kept.jobs] == ["small"]
    assert len(kept.skipped) == 1


@pytest.mark.parametrize("options", [{"jobs": 0}, {"load": 0.0}, {"day_swing": 1.5}, {"users": 0}])
def test_a_synthetic_workload_that_makes_no_sense_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError):
        SyntheticOptions(**options)  # type: ignore[arg-type]
