"""The options of a server, and those that its state directory remembers from its last start: which machines and which
database there are hangs on them, so that a start that leaves one out would lose the jobs that run there.

``none`` in place of such a value forgets it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from millpond.model.errors import UnavailableError
from millpond.model.policy_trials import PolicyOverrides
from millpond.node.host.controllers import GroupMode
from millpond.node.host.files import read_json, write_json
from millpond.node.sandbox.detection import SandboxMode
from millpond.server.operations.server_log import LogFormat

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7433
FORGET: Final = "none"
"""In place of the value of an option that a state directory remembers: it is to be forgotten."""
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
    keep_jobs: float | None = None
    keep_logs_gib: float | None = None
    keep_free_gib: float | None = None
    log_format: str = LogFormat.TEXT.value

    @property
    def policies(self) -> PolicyOverrides:
        """What was asked for of the scheduler."""
        return PolicyOverrides(self.ordering, self.placement, self.preempt, self.reserve)

    def absolute(self) -> ServerOptions:
        """The same options, for a process that may start in another directory."""
        config = self.config
        if config is not None and str(config) != FORGET:
            config = config.absolute()
        return replace(self, state_dir=self.state_dir.absolute(), config=config)


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


def store_of(state_dir: Path, given: str) -> str:
    """URL of the database of a server that may be down, as for a start; empty: SQLite in its state directory."""
    options = ServerOptions(state_dir, store=given, fake_gpus=FORGET, config=Path(FORGET))
    return with_remembered(options)[0].store


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
