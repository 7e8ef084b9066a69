"""The options of a server on a command line: of ``pond up``, its process in the background, and its systemd unit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from millpond.node.host.controllers import GroupMode
from millpond.node.sandbox.detection import SandboxMode
from millpond.server.operations.server_log import LogFormat
from millpond.server.startup.options import DEFAULT_HOST, DEFAULT_PORT, ServerOptions
from millpond.specs.base_directories import STATE_DIR_HELP, default_state_dir
from millpond.specs.option_types import FiniteNumber, OrderingChoice, PlacementChoice

_MOST_GIB: Final = 2**40
"""More than any file system holds, and a number that can be counted in bytes."""

OPTIONS: Final[tuple[click.Option, ...]] = (
    click.Option(["--host"], default=DEFAULT_HOST, show_default=True, help="Address to listen on."),
    click.Option(
        ["--port"],
        type=click.IntRange(0, 65535),
        default=DEFAULT_PORT,
        show_default=True,
        envvar="MILLPOND_PORT",
        help="Port to listen on; 0 takes a free one.",
    ),
    click.Option(
        ["--state-dir"],
        type=click.Path(path_type=Path),
        help=STATE_DIR_HELP,
    ),
    click.Option(
        ["--fake-gpus"],
        metavar="SPEC",
        help="Pretend cards, such as 8:A100-80GB or 4x8:V100-32GB (nodes x cards : model); none: the machine's own "
        "[default: as at the last start].",
    ),
    click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        help="Pools and queues (YAML); none: without [default: as at the last start].",
    ),
    click.Option(["--ordering"], type=OrderingChoice(), help="Who is next [default: as before, at first 'default']."),
    click.Option(
        ["--placement"], type=PlacementChoice(), help="Where it goes [default: as before, at first 'default']."
    ),
    click.Option(
        ["--preempt/--no-preempt"],
        default=None,
        help="Whether running work ends for work that the ordering puts first [default: as before, at first no].",
    ),
    click.Option(
        ["--reserve/--no-reserve"],
        default=None,
        help="Whether room is kept for the first job that does not fit [default: as before, at first yes].",
    ),
    click.Option(
        ["--store"],
        metavar="URL",
        help="PostgreSQL database to remember in; none: SQLite [default: as at the last start, at first SQLite].",
    ),
    click.Option(
        ["--standby"], is_flag=True, help="Wait while another server leads on the same --store, then take over."
    ),
    click.Option(
        ["--take-over"],
        is_flag=True,
        help="With a copied or restored state: go on in place of the original, which is gone.",
    ),
    click.Option(
        ["--sandbox"],
        type=click.Choice([mode.value for mode in SandboxMode]),
        default="auto",
        show_default=True,
        help="Keep jobs apart from each other and from the server's state, by bubblewrap; auto: required from the "
        "second person on.",
    ),
    click.Option(
        ["--control-groups"],
        type=click.Choice([mode.value for mode in GroupMode]),
        default="auto",
        show_default=True,
        help="Keep all processes of a task to its CPUs and memory; auto: where the server was given its control group.",
    ),
    click.Option(["--keep-jobs"], type=FiniteNumber(min=0), metavar="DAYS", help="Forget jobs that ended longer ago."),
    click.Option(
        ["--keep-logs-gib"],
        type=FiniteNumber(min=0, max=_MOST_GIB),
        metavar="GIB",
        help="Remove the oldest output when there is more.",
    ),
    click.Option(
        ["--keep-free-gib"],
        type=FiniteNumber(min=0, max=_MOST_GIB),
        metavar="GIB",
        help="Start nothing while less disk is free [default: 1, on small disks 2 % of them].",
    ),
    click.Option(
        ["--log-format"],
        type=click.Choice([form.value for form in LogFormat]),
        default="text",
        show_default=True,
        help="Form of the server's log.",
    ),
)


def parse_options(arguments: Sequence[str]) -> ServerOptions:
    """Options from a command line.

    Raises:
        click.UsageError: it cannot be understood.
        click.exceptions.Exit: it asked for help, which was printed.
    """
    program = click.Command(
        "millpond.server",
        params=list(OPTIONS),
        help="Serve a pool of GPU machines.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    with program.make_context("python -m millpond.server", list(arguments)) as context:
        return options_of(context.params)


def options_of(given: dict[str, Any]) -> ServerOptions:
    """What click has read; what was left out is as ``ServerOptions`` says.

    Args:
        given: by the names of ``OPTIONS``.
    """
    said = {name: value for name, value in given.items() if value is not None}
    if "state_dir" not in said:
        said["state_dir"] = default_state_dir()
    return ServerOptions(**said)


def words_of(options: ServerOptions) -> Iterator[str]:
    """A command line that says the same."""
    for option in OPTIONS:
        match getattr(options, str(option.name)):
            case None | "":
                pass
            case True:
                yield option.opts[0]
            case False:
                yield from option.secondary_opts
            case value:
                yield from (option.opts[0], str(value))
