"""Options that ``pond replay`` and ``pond compare`` share, and how they become a scenario."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.specs.option_types import FiniteNumber

if TYPE_CHECKING:
    from millpond.scheduling.settings import Settings
    from millpond.simulation.scenario import Scenario

FORMATS = ("openb", "muri", "philly", "chronus", "gavel", "native", "synthetic")
KNOWLEDGE = ("none", "predicted", "exact")

Function = TypeVar("Function", bound=Callable[..., Any])

_FILE = click.Path(exists=True, dir_okay=False)
_AMOUNT = FiniteNumber(min=0)
_PART = FiniteNumber(0, 1, min_open=True)
_FACTOR = FiniteNumber(min=0, min_open=True)
_OPTIONS = (
    click.option("--format", "trace_format", type=click.Choice(FORMATS), help="Form of the trace."),
    click.option("--jobs", help="The trace file; for synthetic, how many jobs to make."),
    click.option("--cluster", default="", metavar="NxG[:MODEL]", help="N nodes of G cards each, such as 30x8."),
    click.option("--nodes", type=_FILE, help="A node list (openb form) instead of --cluster."),
    click.option("--arrivals", type=click.Choice(["inflate"]), help="openb: all pods once, then clones (default)."),
    click.option(
        "--until",
        type=_FACTOR,
        metavar="TIMES",
        help="openb: pods arrive until they ask for so many times the GPUs.  [default: 1.3]",
    ),
    click.option("--order", type=_FILE, help="openb: an arrival order (seq,source_pod) instead of --arrivals."),
    click.option(
        "--durations", type=click.Choice(KNOWLEDGE), help="What the policy knows of durations.  [default: none]"
    ),
    click.option("--preempt/--no-preempt", default=None, help="May running jobs be preempted?  [default: as ordering]"),
    click.option("--preemption-cost", type=_AMOUNT, metavar="S", help="Extra work of a preempted or moved job."),
    click.option("--start-cost", type=_AMOUNT, metavar="S", help="From decision to work.  [default: 0]"),
    click.option("--restore-cost", type=_AMOUNT, metavar="S", help="The same again after a preemption.  [default: 0]"),
    click.option("--lost-work", type=_AMOUNT, metavar="S", help="Work repeated after a preemption.  [default: 0]"),
    click.option("--sharing-speed", type=_PART, metavar="X", help="Speed of jobs that share a card.  [default: 1]"),
    click.option("--speeds", type=_FILE, help="How fast jobs are on which cards, alone and in pairs (Gavel's form)."),
    click.option("--suspends", is_flag=True, default=None, help="Work may leave its cards without ending."),
    click.option("--suspend-cost", type=_AMOUNT, metavar="S", help="To suspend, and to resume.  [default: 0]"),
    click.option("--swap-rate", type=_AMOUNT, metavar="GIB/S", help="Device memory moved.  [default: at once]"),
    click.option("--consolidates", is_flag=True, default=None, help="Work is moved so that whole nodes come free."),
    click.option("--packs", is_flag=True, default=None, help="Jobs share cards where that was measured to pay."),
    click.option("--replan-period", type=_AMOUNT, metavar="S", help="How often published preemptive orderings look."),
    click.option("--load", type=_FACTOR, help="synthetic: offered load.  [default: 0.9]"),
    click.option("--skip-bad-rows", is_flag=True, help="Leave wrong rows out, and count them."),
)  # fmt: skip
_QUEUEING_ONLY = (
    "ordering", "durations", "preempt", "preemption_cost", "start_cost", "restore_cost", "lost_work", "sharing_speed",
    "replan_period", "suspends", "suspend_cost", "swap_rate", "speeds", "consolidates", "packs",
)  # fmt: skip
_PACKING_ONLY = ("arrivals", "until", "order")


workers_option = click.option(
    "--workers", type=click.IntRange(1, 256), help="Processes at a time.  [default: one for each CPU]"
)


def simulation_options(function: Function) -> Function:
    """Add the shared options to a command; they arrive as keyword arguments."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def require_simulator() -> None:
    """Say what to install where the simulator's libraries are missing.

    Raises:
        UnavailableError: they are.
    """
    try:
        import jinja2  # noqa: F401
        import numpy  # noqa: F401
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"the simulator needs {error.name}, which is not installed", "run: pip install 'millpond[sim]'"
        ) from error


def write_text(file: str, text: str) -> None:
    """Write to a file, or to standard output if it is ``-``. A file is replaced as a whole, or stays as it was.

    Raises:
        UnavailableError: the file cannot be written.
    """
    if file == "-":
        click.echo(text, nl=False)
        return
    try:
        _replace(Path(file).resolve(), text)
    except OSError as error:
        raise UnavailableError(f"{file} cannot be written ({error.strerror})", "name another file") from error


def _replace(path: Path, text: str) -> None:
    """Write beside a file and rename, so that a full disk leaves neither an empty file nor half of one."""
    if path.exists() and not path.is_file():  # a pipe, or /dev/null
        path.write_text(text, encoding="utf-8")
        return
    fresh = path.parent / f".{os.getpid()}.millpond.tmp"  # short, as the name itself may be as long as names can be
    try:
        fresh.write_text(text, encoding="utf-8")
        if path.exists():
            shutil.copymode(path, fresh)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def require_writable(*files: str | None) -> None:
    """Find out before the work, not after it, that a result could not be written.

    Raises:
        UnavailableError: a file's folder is not there, or may not be written to.
    """
    for file in files:
        if file is None or file == "-":
            continue
        folder = Path(file).absolute().parent
        if not folder.is_dir() or not os.access(folder, os.W_OK) or Path(file).is_dir():
            raise UnavailableError(f"{file} cannot be written", "name a file in a folder that you may write to")


def scenario_of(
    *,
    trace_format: str | None,
    jobs: str | None,
    placement: str | None = None,
    ordering: str | None = None,
    seed: int = 0,
    **given: Any,
) -> Scenario:
    """The scenario that the options describe; what was not given takes the format's defaults.

    Raises:
        InvalidInputError: an option is missing or does not belong to the format, or a value is out of range.
    """
    if trace_format is None or jobs is None:
        missing = "--format" if trace_format is None else "--jobs"
        raise InvalidInputError(f"{missing} is missing", "give a trace: --format FORM --jobs FILE --cluster NxG")
    from millpond.simulation.scenario import SYNTHETIC_FORMAT, Scenario
    from millpond.simulation.world.costs import Costs

    _refuse_unused(trace_format, {**given, "ordering": ordering})
    if trace_format != SYNTHETIC_FORMAT and not Path(jobs).exists():
        raise InvalidInputError(f"there is no trace file {jobs!r}", "check the path given to --jobs")
    settings = _settings_of(trace_format, placement, ordering or "default", given)
    costs = Costs(preemption=settings.preemption_cost, **_named(given, start_s="start_cost", restore_s="restore_cost",
                                                  lost_work_s="lost_work", sharing_speed="sharing_speed",
                                                  suspend_s="suspend_cost"),
                  swap_mib_per_s=1024 * (given["swap_rate"] or 0.0))  # fmt: skip
    return Scenario(
        trace_format=trace_format,
        jobs=jobs,
        seed=seed,
        settings=settings,
        costs=costs,
        cluster=given["cluster"],
        nodes=given["nodes"] or "",
        order=given["order"] or "",
        skip_bad_rows=given["skip_bad_rows"],
        speeds=given["speeds"] or "",
        **_named(given, until="until", durations="durations", load="load", suspends="suspends",
                 consolidates="consolidates", packs_jobs="packs"),
    )  # fmt: skip


def scenario_settings(
    *,
    placement: str | None = None,
    ordering: str | None = None,
    seed: int = 0,
    preempt: bool | None = None,
    **given: Any,
) -> Settings:
    """The policy under which the rows of a scenario file are played: as a server has it, but for what was given.

    Raises:
        InvalidInputError: an option is about a trace.
    """
    from millpond.scheduling.settings import Settings

    unused = [name for name, value in given.items() if value]
    if unused:
        option = "--" + {"trace_format": "format"}.get(unused[0], unused[0]).replace("_", "-")
        raise InvalidInputError(f"{option} has no meaning for --scenario", f"leave {option} out; the scenario says it")
    return Settings(ordering=ordering or "default", placement=placement or "default", preempt=bool(preempt), seed=seed)


def _replan_period(given: dict[str, Any], ordering: str, tiresias_s: float) -> float:
    if given["replan_period"] is not None:
        return float(given["replan_period"])
    return tiresias_s if ordering == "tiresias" else 0.0


def _settings_of(trace_format: str, placement: str | None, ordering: str, given: dict[str, Any]) -> Settings:
    from millpond.model.policies import orderings_of, without_weights
    from millpond.scheduling.settings import PreemptionCost, Settings
    from millpond.simulation.conventions import conventions_of, default_placement
    from millpond.simulation.scenario import PREEMPTIVE_ORDERINGS

    base, _ = orderings_of(ordering)
    cost, preempt = given["preemption_cost"], given["preempt"]
    conventions = conventions_of(trace_format)
    return Settings(
        ordering=ordering,
        placement=placement or default_placement(trace_format, base),
        preempt=without_weights(base) in PREEMPTIVE_ORDERINGS if preempt is None else preempt,
        preemption_cost=conventions.preemption if cost is None else PreemptionCost(cost, cost),
        tiresias_thresholds_gpu_s=conventions.tiresias_thresholds_gpu_s,
        replan_period_s=_replan_period(given, base, conventions.tiresias_period_s),
    )


def _named(given: dict[str, Any], **names: str) -> dict[str, Any]:
    """The options that were given, under the names that the model uses."""
    return {field: given[option] for field, option in names.items() if given[option] is not None}


def _refuse_unused(trace_format: str, given: dict[str, Any]) -> None:
    packs = trace_format == "openb"
    unused = [name for name in (_QUEUEING_ONLY if packs else _PACKING_ONLY) if given.get(name) is not None]
    if given["load"] is not None and trace_format != "synthetic":
        unused.append("load")
    if unused:
        option = "--" + unused[0].replace("_", "-")
        raise InvalidInputError(f"{option} has no meaning for --format {trace_format}", f"leave {option} out")
