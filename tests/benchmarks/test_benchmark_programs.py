"""Every benchmark runs from its command line to its JSON, here on traces of a few lines."""

from __future__ import annotations

import gzip
import importlib
import json
import pkgutil
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from benchmarks.cycles import bounded_cycles, core_speed, cycle_scenes, restoring
from benchmarks.server import chaos, hostile_clients, platform_speed, twin
from benchmarks.server.own_postgresql import what_is_missing
from benchmarks.sharing import gate_overhead, gate_shares
from benchmarks.tenancy import cells, evictions, tenancy
from benchmarks.traces import locality, ordering_quality, placement_quality, simulator_speed
from millpond.simulation import packing, queueing

pytestmark = pytest.mark.long

DATA = Path(__file__).resolve().parents[1] / "data"
REPOSITORY = Path(__file__).resolve().parents[2]
COPIES = {
    "trace1.csv": "muri.csv",
    "trace3.csv": "muri.csv",
    "trace4.csv": "muri.csv",
    "case_3d48h_30x8.csv": "case.csv",
    "openb_node_list_gpu_node.csv": "openb_nodes.csv",
    "openb_pod_list_default.csv": "openb_pods.csv",
}


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """A folder in which the published names stand for tiny traces, one level down."""
    folder = tmp_path / "published"
    folder.mkdir()
    for name, source in COPIES.items():
        shutil.copy(DATA / source, folder / name)
    log = gzip.compress((DATA / "reduced.csv").read_bytes())
    (folder / "philly_2017-09_2017-10.csv.gz").write_bytes(log)
    return tmp_path


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured does not matter here, so no replay warms up first."""
    for module in (queueing, packing, cycle_scenes):
        monkeypatch.setattr(module, "warm_up", lambda settings: None)


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The JSON on standard output."""
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("module", [found.name for found in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")])
def test_every_module_of_the_benchmarks_can_be_imported(module):
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "torch":  # which only machines with a card have
            raise


def test_ordering_quality_holds_each_row_against_its_peer(traces, capsys):
    ordering_quality.main(["--traces", str(traces), "--quick", "--robust", "1", "--json", "-"])
    result = printed(capsys)
    assert {row["case"] for row in result["rows"]} == {"muri-1", "muri-3", "muri-4", "philly"}
    assert {row["jobs"] for row in result["rows"]} == {3}
    assert all(row["met"] for row in result["rows"] if row["ordering"] == "default" and row["target_s"])
    assert result["muri_mean"]["met"]
    assert all(len(line["ratios"]) == 2 for line in result["robust"])


def test_ordering_quality_prints_a_table_for_people(traces, capsys):
    ordering_quality.main(["--traces", str(traces), "--only", "philly"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("case")
    assert len(lines) == 2 + 4 + 8


def test_simulator_speed_counts_jobs_and_pods(traces, capsys):
    simulator_speed.main(["--traces", str(traces), "--runs", "1", "--json", "-"])
    rows = printed(capsys)["rows"]
    assert [row["case"] for row in rows] == ["philly"] * 5 + ["muri-4"] * 5 + ["openb"] + ["philly-log"] * 2
    assert all(row["jobs_per_cpu_s"] > 0 for row in rows)


def test_placement_quality_never_exceeds_the_bound(traces, capsys):
    placement_quality.main(["--traces", str(traces), "--lists", "default", "--seeds", "3", "--json", "-"])
    rows = printed(capsys)["rows"]
    assert [row["placement"] for row in rows] == ["default", "fgd", "best-fit"]
    for row in rows:
        for mark, allocated in row["allocated_gpu_percent"].items():
            assert allocated <= row["bound"][mark] + 1e-9


def test_core_speed_places_and_releases(traces, capsys):
    pods = traces / "any_model.csv"
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\nhalf,2000,1024,1,500\npair,2000,1024,2,1000\n")
    core_speed.main(["--pods", str(pods), "--nodes", "4", "--steps", "50", "--json", "-"])
    rows = printed(capsys)["steady_state"]
    assert [row["queues"] for row in rows] == [1, 50]
    assert all(row["decisions_per_cpu_s"] > 0 for row in rows)
    core_speed.main(["--pods", str(pods), "--nodes", "4", "--steps", "50", "--contents", "--json", "-"])
    assert all(row["decisions_per_cpu_s"] > 0 for row in printed(capsys)["steady_state"])


def test_evictions_walks_through_worlds_and_finds_nothing_wrong(capsys):
    evictions.main(["--steps", "40", "--json", "-"])
    result = printed(capsys)
    assert result["steps"] >= 40
    assert result["evictions"] > 0
    assert result["wrong"] == []


def test_cells_counts_decisions_of_an_allocator_and_of_a_scheduler(capsys):
    small = ["--nodes", "16", "--clusters", "2", "--decisions", "6", "--json", "-"]
    for arguments in ([], ["--lent"], ["--live", "--lent"], ["--live", "--together", "3"]):
        cells.main([*small, *arguments])
        row = printed(capsys)
        assert row["live"] is ("--live" in arguments)
        assert row["gangs_running"] > 0
        assert row["decisions_per_s"] > 0


def test_tenancy_measures_what_it_says(monkeypatch, capsys):
    monkeypatch.setattr(tenancy, "RECLAIMS", tenancy.RECLAIMS[-1:])
    tenancy.main(["--steps", "60", "--scale", "0.01", "--json", "-"])
    result = printed(capsys)
    rows = {(row["part"], row["what"]): row for row in result["rows"]}
    assert result["wrong"] == []
    assert rows["guarantee", "steps"]["value"] >= 60
    assert len([row for part, row in rows if part == "never"]) == 6
    assert len([row for part, row in rows if part == "reclaim"]) == 3
    assert all(row["value"] > 0 for (part, _), row in rows.items() if part != "guarantee")


def test_restoring_compares_runs_under_other_hash_seeds_and_kernels(capsys):
    restoring.main(["--points", "1", "--json", "-"])
    result = printed(capsys)
    assert [len(run["digests"]) for run in result["runs"].values()] == [1, 1, 1]
    assert result["divergences"] == 0


def test_bounded_cycles_measures_what_it_says(monkeypatch, capsys):
    scenes = {
        "fork": lambda: cycle_scenes.forks(4, 1.0),
        "swap": lambda: cycle_scenes.swaps(4),
        "plan": lambda: cycle_scenes.plans(16, 4, 1.0),
    }
    monkeypatch.setattr(bounded_cycles, "SCENES", scenes)
    bounded_cycles.main(["--json", "-"])
    rows = printed(capsys)["rows"]
    assert [row["scene"] for row in rows] == ["fork"] * 2 + ["swap"] * 8 + ["plan"] * 2
    assert all(row["seconds"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("program", "arguments", "said"),
    [
        (ordering_quality, ["--traces", "."], "holds no file trace1.csv"),
        (ordering_quality, ["--traces", "nowhere"], "no folder nowhere"),
        (simulator_speed, ["--traces", "nowhere"], "no folder nowhere"),
        (placement_quality, ["--traces", "nowhere"], "no folder nowhere"),
        (locality, ["--traces", "nowhere"], "no folder nowhere"),
        (core_speed, ["--pods", "nowhere.csv"], "nowhere.csv"),
        (core_speed, ["--pods", "nowhere.csv", "--json", "nowhere/result.json"], "no file can be written there"),
        (platform_speed, ["--json", "nowhere/result.json"], "no file can be written there"),
        (chaos, ["--json", "."], "no file can be written there"),
        (twin, ["--json", "."], "no file can be written there"),
        (cells, ["--json", "."], "no file can be written there"),
    ],
)
def test_a_path_that_is_not_there_is_named_in_one_line(tmp_path, monkeypatch, capsys, program, arguments, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        program.main(arguments)
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert ended.value.code == 2


def test_a_benchmark_that_is_asked_to_end_ends_what_it_has_started():
    body = "try:\n  print('up', flush=True)\n  time.sleep(60)\n finally:\n  print('down')"
    code = f"import time\nfrom benchmarks import reporting\n@reporting.program\ndef main(_):\n {body}\nmain()"
    with subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "up\n"
        running.terminate()
        assert (running.stdout.read(), running.wait()) == ("down\n", 128 + signal.SIGTERM)


def test_platform_speed_measures_a_real_server(capsys):
    platform_speed.main(["--only", "latency", "--only", "throughput", "--scale", "0.02", "--json", "-"])
    rows = {row["what"]: row["value"] for row in printed(capsys)["rows"]}
    assert 0 < rows["submit to first line, p50"] <= rows["submit to first line, p99"]
    assert rows["short jobs, submit to all done"] > 0


def test_platform_speed_measures_how_soon_a_standby_takes_over(monkeypatch, capsys):
    if missing := what_is_missing():
        pytest.skip(missing)
    monkeypatch.setattr(platform_speed, "SWITCHES", 2)
    platform_speed.main(["--only", "switch-over", "--scale", "0.02", "--json", "-"])
    (median, worst) = printed(capsys)["rows"]
    assert 0 < median["value"] <= worst["value"]


def test_the_twin_compares_what_was_with_what_is_simulated(capsys):
    twin.main(["--jobs", "12", "--before", "4", "--mean-length", "0.3", "--json", "-"])
    result = printed(capsys)
    rows = {row["what"]: row for row in result["rows"]}
    assert rows["makespan"]["live_s"] > 0
    assert rows["makespan"]["difference"] == pytest.approx(
        rows["makespan"]["simulated_s"] / rows["makespan"]["live_s"] - 1
    )
    assert result["overhead_s"]["measured"] > 0


@pytest.mark.usefixtures("_fake_driver_libraries")
def test_the_gate_is_measured_on_a_pretended_card(capsys, monkeypatch):
    gate_overhead.main(["--blocks", "4", "--launches", "200", "--pairs", "1600000", "--json", "-"])
    overhead = printed(capsys)
    assert [row["case"] for row in overhead["rows"]] == ["one stream", "an idle neighbour", "two streams"]
    assert overhead["allocations"]["last_ns"] > 0
    assert overhead["pause_ms"]["worst"] >= overhead["pause_ms"]["median"] >= 0
    monkeypatch.setattr(gate_shares, "CASES", [gate_shares.CASES[1], gate_shares.CASES[-1]])
    gate_shares.main(["--seconds", "0.2", "--requests", "3", "--json", "-"])
    shares = printed(capsys)
    assert [row["wanted"] for row in shares["rows"]] == [[10, 90], [25] * 4]
    assert [row["beside_ns"] for row in shares["answered"]] == [0, *gate_shares.BACKFILL_KERNELS_NS]


def test_hostile_clients_attacks_a_server_in_each_way_and_every_probe_is_answered(capsys):
    hostile_clients.main(["--seconds", "1", "--half-open", "100", "--json", "-"])
    rows = printed(capsys)["rows"]
    assert [row["attack"] for row in rows] == ["100 half-open connections", "bodies of 400 MB", "both"]
    assert all(row["probes"] and not row["failed"] for row in rows)
