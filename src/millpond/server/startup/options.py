"""The options of a server, and those that its state directory remembers from its last start: which machines and which
database there are hangs on them, so that a start that leaves one out would lose the jobs that run there.

``none`` in place of such a value forgets it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.model.policies import orderings_of, placements_of
from millpond.model.policy_trials import PolicyOverrides
from millpond.node.host.controllers import GroupMode
from millpond.node.host.files import read_json, write_json
from millpond.node.sandbox.detection import SandboxMode
from millpond.server.operations.server_log import LogFormat

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7433
FORGET: Final = "none"
"""In place of the value of an option that a state directory remembers: it is to be forgotten."""
SANDBOX_MODES: Final = tuple(mode.value for mode in SandboxMode)
LOG_FORMATS: Final = tuple(form.value for form in LogFormat)
GROUP_MODES: Final = tuple(mode.value for mode in GroupMode)
OPTIONS_FILE: Final = "options.json"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How to serve.

    Attributes:
        state_dir: where everything is remembered; one server at a time.
        port: 0 takes a free one.
        fake_gpus: pretended devices, such as ``4x8:V100-32GB``; empty: as at the last start of this state directory, at
            first this machine's own; ``none``: this machine's own.
        config: file with pools, queues and pretended nodes; None: as at the last start; ``none``: none.
        ordering, placement, preempt, reserve: policies; empty or None: those this state directory has, at first the
            defaults of ``scheduling.settings``.
        store: URL of a PostgreSQL database; empty: as at the last start, at first SQLite in the state directory;
            ``none``: the latter.
        sandbox: whether tasks are kept apart: ``auto``, ``off``, ``preferred`` or ``required``.
        control_groups: whether tasks get control groups: ``auto``, ``always`` or ``off``.
        keep_jobs, keep_logs_gib: what is kept of ended jobs, see ``server.operations.retention``; None: everything.
        standby: wait while another server leads on the same database and state directory, and take over from it.
        take_over: go on in place of the server whose state this is a copy of (``startup.identity``).
        keep_free_gib: nothing new starts while less is free on the server's disk; None: see
            ``server.operations.disk_watch``.
        log_format: of the server's log: ``text`` or ``json``.
        stop_jobs_on_exit: end all jobs when the server ends; otherwise they go on and the next server finds them.
    """

    state_dir: Path
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    fake_gpus: str = ""
    config: Path | None = None
    ordering: str = ""
    placement: str = ""
    preempt: bool | None = None
    reserve: bool | None = None
    store: str = ""
    sandbox: str = SandboxMode.AUTO.value
    control_groups: str = GroupMode.AUTO.value
    standby: bool = False
    take_over: bool = False
    stop_jobs_on_exit: bool = False
    keep_jobs: float | None = None
    keep_logs_gib: float | None = None
    keep_free_gib: float | None = None
    log_format: str = LogFormat.TEXT.value

    @property
    def policies(self) -> PolicyOverrides:
        """What was asked for of the scheduler."""
        return PolicyOverrides(self.ordering, self.placement, self.preempt, self.reserve)


def parse_options(arguments: Sequence[str]) -> ServerOptions:
    """Options from a command line; exits with code 2 when it cannot be understood."""
    parser = argparse.ArgumentParser("millpond-server", description="Serve a pool of GPU machines.", allow_abbrev=False)
    parser.add_argument("--host", default=DEFAULT_HOST, help="address to listen on")
    parser.add_argument("--port", type=_port, default=DEFAULT_PORT, help="port to listen on; 0 takes a free one")
    parser.add_argument("--state-dir", type=Path, help="where everything is remembered")
    parser.add_argument("--fake-gpus", default="", help="pretended devices, such as 4x8:V100-32GB")
    parser.add_argument("--config", type=Path, help="file with pools, queues and pretended nodes")
    parser.add_argument("--ordering", default="", type=_ordering, help="who is next, for all kinds or KIND=NAME,…")
    parser.add_argument("--placement", default="", type=_placement, help="where it goes, for all kinds or KIND=NAME,…")
    switch = argparse.BooleanOptionalAction
    parser.add_argument("--preempt", action=switch, help="the ordering may end running work for work that goes first")
    parser.add_argument("--reserve", action=switch, help="keep room for the first job that does not fit")
    parser.add_argument("--store", default="", help="URL of a PostgreSQL database instead of SQLite")
    parser.add_argument("--standby", action="store_true", help="wait while another server leads, then take over")
    parser.add_argument("--take-over", action="store_true", help="go on in place of the original of a copied state")
    parser.add_argument("--sandbox", default="auto", choices=SANDBOX_MODES, help="whether tasks are kept apart")
    parser.add_argument("--control-groups", default="auto", choices=GROUP_MODES, help="whether they get control groups")
    parser.add_argument("--stop-jobs-on-exit", action="store_true", help="end all jobs when the server ends")
    parser.add_argument("--keep-jobs", type=_amount, metavar="DAYS", help="forget jobs that ended longer ago")
    parser.add_argument("--keep-logs-gib", type=_amount, metavar="GIB", help="remove the oldest output above this")
    parser.add_argument("--keep-free-gib", type=_amount, metavar="GIB", help="start nothing while less disk is free")
    parser.add_argument("--log-format", default="text", choices=LOG_FORMATS, help="form of the server's log")
    found = parser.parse_args(arguments)
    if found.state_dir is None:
        from millpond.client.sdk.transport.discovery import default_state_dir

        found.state_dir = default_state_dir()
    return ServerOptions(**vars(found))


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount; use a number from 0")
    return amount


def _placement(text: str) -> str:
    try:
        if text:
            placements_of(text)
    except InvalidInputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _ordering(text: str) -> str:
    try:
        orderings_of(text)
    except InvalidInputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use 0 to 65535")
    return int(text)


def with_remembered(options: ServerOptions) -> tuple[ServerOptions, str]:
    """The options with what the last start of this state directory said and this one leaves out; and a note of that.

    Raises:
        UnavailableError: the configuration of the last start is gone, or what it said cannot be read.
    """
    kept = _remembered(options)
    fake_gpus, said = options.fake_gpus, []
    if not fake_gpus and (fake_gpus := str(kept.get("fake_gpus", ""))):
        said.append(f"--fake-gpus {fake_gpus}")
    store = options.store
    if not store and (store := str(kept.get("store", ""))):
        said.append(f"--store {store}")
    config = options.config
    if config is None and kept.get("config"):
        config = Path(str(kept["config"]))
        said.append(f"--config {config}")
        if not config.is_file():
            raise UnavailableError(
                f"the configuration of the last start, {config}, is gone",
                f"name another with --config; --config {FORGET} goes on without one",
            )
    resolved = replace(
        options,
        fake_gpus="" if fake_gpus == FORGET else fake_gpus,
        config=None if config is None or config == Path(FORGET) else config.absolute(),
        store="" if store == FORGET else store,
    )
    names = " and ".join(text.split()[0] for text in said)
    return resolved, f"as at the last start: {' '.join(said)} (`{FORGET}` forgets {names})" if said else ""


def remember(options: ServerOptions) -> None:
    """Note the options for the next start; a password in the URL of the database is not kept.

    Args:
        options: as ``with_remembered`` gave them.

    Raises:
        OSError: the state directory cannot be written.
    """
    from millpond.server.store.connection.database import without_password  # not for who only reads options

    store = without_password(options.store) if options.store else ""
    kept = {"fake_gpus": options.fake_gpus, "config": str(options.config or ""), "store": store}
    path = options.state_dir.expanduser() / OPTIONS_FILE
    if read_json(path) != kept and (path.exists() or any(kept.values())):
        write_json(path, kept, durable=True)


def _remembered(options: ServerOptions) -> dict[str, Any]:
    path = options.state_dir.expanduser() / OPTIONS_FILE
    kept = read_json(path)
    if kept is None and path.exists() and not (options.fake_gpus and options.config):
        raise UnavailableError(
            f"{path} is damaged: it had the options of the last start",
            f"name them once more: --config and --fake-gpus, with {FORGET} for one that there was not",
        )
    return kept or {}
