"""``pond compare``: the right runs, and a page that needs nothing but itself."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from millpond.client.cli.commands.simulation.compare import command
from millpond.model.errors import MillpondError
from millpond.simulation.comparison import Replay, compare
from millpond.simulation.report.axes import elapsed, linear, log_ratio, log_time, within
from millpond.simulation.report.figures import Figures, GanttNode, Lane
from millpond.simulation.report.page import render
from millpond.simulation.report.table import LESS, MORE, MetricRow, table_rows
from millpond.simulation.scenario import Scenario
from millpond.simulation.worker_pool import worker_pool

DATA = Path(__file__).parent.parent / "data"
CASE = ("--format", "philly", "--jobs", str(DATA / "case.csv"), "--cluster", "2x8")


def pond(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


@pytest.mark.long
def test_a_comparison_writes_one_page_that_loads_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = pond(*CASE, "--policies", "fifo,srtf", "--workers", "2", "--html", str(page))
    assert result.exception is None, result.output
    text = page.read_text()
    heading, *rows, last = result.stdout.splitlines()
    assert heading.split() == ["POLICY", "COMPLETION", "P99", "WAIT", "ALLOCATED"]
    assert [row.split()[0] for row in rows] == ["fifo", "srtf"]
    assert all(figure in text for row in rows for figure in re.split("  +", row)[1:])
    assert last.startswith("2 runs compared")
    assert all(label in text for label in ("fifo", "srtf", "Mean completion time"))
    assert text.count("<svg") == 6
    assert not re.search(r"https?://|<link|src=|@import|url\(", text)


@pytest.mark.long
def test_a_policy_that_no_seed_can_change_runs_once_and_others_with_every_seed() -> None:
    fixed = Scenario("philly", str(DATA / "case.csv"), cluster="2x8")
    drawn = Scenario("synthetic", "10", cluster="2x8")
    runs = compare([("fixed", fixed), ("drawn", drawn)], [3, 4], workers=2)
    assert [(run.label, run.seed) for run in runs] == [("fixed", 3), ("drawn", 3), ("drawn", 4)]
    assert runs[1].summary["avg_jct_s"] != runs[2].summary["avg_jct_s"]


@pytest.mark.filterwarnings("error")
def test_workers_run_no_module_of_the_present_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "types.py").write_text("raise SystemExit('not of Python')\n")
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    with worker_pool(1) as pool:
        assert pool.submit(math.sqrt, 4.0).result() == 2.0
    assert dict(os.environ) == before


@pytest.mark.long
def test_a_packing_comparison_draws_both_kinds_of_mix(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    openb = ("--format", "openb", "--jobs", str(DATA / "openb_pods.csv"), "--nodes", str(DATA / "openb_nodes.csv"))
    result = pond(*openb, "--policies", "fgd,best-fit", "--seeds", "0-1", "--html", str(page))
    assert result.exception is None, result.output
    assert "4 runs compared" in result.stdout
    assert page.read_text().count("<svg") == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--policies", "fifo,nonsense"), "unknown ordering 'nonsense'"),
        (("--policies", "fifo/nowhere"), "unknown placement 'nowhere'"),
        (("--policies", ","), "no policy to compare"),
        (("--seeds", "1,x"), "seeds '1,x'"),
        (("--seeds", "5-3"), "no seed in '5-3'"),
        (("--seeds", "1,0-999999999999999999999"), "seeds '1,0-999999999999999999999'"),
        (("--policies", "fifo", "--html", "/nowhere/page.html"), "cannot be written"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], complaint: str) -> None:
    error = pond(*CASE, *arguments).exception
    assert isinstance(error, MillpondError)
    assert complaint in error.cause


def test_names_from_a_trace_cannot_break_the_page() -> None:
    nasty = "</script><b>&"
    figures = Figures(
        10.0,
        [(0, 1), (5, 2)],
        [(0, 50), (5, 60)],
        [(1, 0), (9, 100)],
        ((nasty, 1.0),),
        (GanttNode(nasty, (Lane(((0, 3, 1),)),)),),
        1,
    )
    summary = {"parameters": {"format": nasty}}
    text = render("title", [Replay(nasty, 0, _zeros() | summary, figures)], nasty)
    assert nasty not in text
    assert text.count("</script>") == 4


def _zeros() -> dict[str, float]:
    from millpond.simulation.report.table import QUEUEING_METRICS

    return {metric.path[0]: 0.0 for metric in QUEUEING_METRICS}


def test_the_table_shows_means_spreads_and_the_best() -> None:
    metrics = (MetricRow("Time", ("time",), "time", LESS), MetricRow("Share", ("in", "share"), "percent", MORE))
    runs = [
        [{"time": 90.0, "in": {"share": 50.0}}, {"time": 110.0, "in": {"share": 50.0}}],
        [{"time": 80.0, "in": {"share": None}}],
    ]
    time, share = table_rows(metrics, runs)
    assert [(cell.text, cell.spread, cell.best) for cell in time.cells] == [
        ("100 s", "14.1 s", False),
        ("80.0 s", "", True),
    ]
    assert [(cell.text, cell.best) for cell in share.cells] == [("50.00 %", True), ("n/a", False)]


def test_axes_end_at_round_numbers_or_where_the_data_ends() -> None:
    assert [label for _, label in linear([0, 730]).ticks] == ["0", "200", "400", "600", "800"]
    assert [label for _, label in elapsed(200_000).ticks] == ["0 h", "20 h", "40 h"]
    assert [label for _, label in within(76.4, 100, " %").ticks] == ["80 %", "85 %", "90 %", "95 %", "100 %"]
    assert [label for _, label in log_time([2, 4000]).ticks] == ["10 s", "1 min", "10 min", "1 h"]
    assert "1" in [label for _, label in log_ratio([3, 40]).ticks]


def test_a_logarithmic_axis_gives_equal_factors_equal_lengths() -> None:
    axis = log_time([1, 10_000])
    assert axis.part(100) == pytest.approx(0.5)
    assert axis.part(0.001) == 0
