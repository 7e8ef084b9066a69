"""A server from start to end; the steps of its start are in ``server.startup``."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Final

from sqlalchemy.exc import DBAPIError

from millpond.model.errors import InconsistentStateError, LeadershipLostError, MillpondError, UnavailableError
from millpond.node.host import open_files
from millpond.server.auth.oidc.id_tokens import jose
from millpond.server.operations.server_log import LogFormat, set_up_log
from millpond.server.startup.background_workers import attended
from millpond.server.startup.components import open_components
from millpond.server.startup.configuration import Current
from millpond.server.startup.garbage_collection import keep_what_is_loaded
from millpond.server.startup.http_stack import make_http_server, make_service, start_warnings
from millpond.server.startup.leadership import take_lead
from millpond.server.startup.options import ServerOptions, with_remembered
from millpond.server.storage.files.blobs import NO_ROOM
from millpond.server.store.connection.database import remedy
from millpond.specs.config.cluster import ClusterConfig, load_cluster

log = logging.getLogger(__name__)

_INTERRUPTED: Final = 130


def run(options: ServerOptions) -> int:
    """Serve; returns the exit code. Errors are one line on standard error."""
    set_up_log(LogFormat(options.log_format))
    try:
        options, note = with_remembered(options)
        serve(options, note)
    except MillpondError as error:
        if isinstance(error, InconsistentStateError):
            log.critical("a defect", exc_info=error)
        further = "\n      "
        print(f"pond: {further.join(str(error).splitlines())}", file=sys.stderr)
        return error.exit_code
    except DBAPIError as error:
        log.critical("the database fails", exc_info=error)
        helps = remedy(options.store, error.orig)
        print(f"pond: the database cannot be read or written ({error.orig}); {helps}", file=sys.stderr)
        return UnavailableError.exit_code
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        log.critical("the disk is full", exc_info=error)
        where = options.state_dir
        print(f"pond: the disk is full beside {where}; make room there, then start again; jobs go on", file=sys.stderr)
        return UnavailableError.exit_code
    except KeyboardInterrupt:  # before the server itself listens to signals
        return _INTERRUPTED
    return 0


def serve(options: ServerOptions, note: str) -> None:
    """Serve until SIGINT or SIGTERM, perhaps after standing by.

    Args:
        options, note: as ``with_remembered`` gives them.

    Raises:
        LeadershipLostError: another server has taken over.
        UnavailableError: the state directory, the port or the database cannot be used.
        InvalidInputError: the options or the configuration file are wrong.
        InconsistentStateError: the scheduler stopped by a defect; its jobs go on.
    """
    open_files.raise_limit()
    current = Current(load_cluster(options.config) if options.config else ClusterConfig())
    if current.config.oidc is not None:
        jose()
    with contextlib.ExitStack() as held:
        lead = take_lead(options, current.config.listening, held)
        if lead is None:
            return
        with open_components(options, current, lead) as base:
            loop = base.components.loop
            warnings = [*base.warnings, *start_warnings(options, current, lead, base)]
            notes = [*filter(None, [note, base.components.queue_settings.trouble]), *warnings]
            service = make_service(current, lead, base, notes)
            http = make_http_server(options, current, lead, base, service)
            try:
                with attended(options, current, base, service):
                    keep_what_is_loaded()
                    http.run(lead.post.listener)
            finally:
                lead.post.deadline.begin()
                lead.state.withdraw()
    if lead.is_lost:
        raise LeadershipLostError("another server has taken over", "start this one again with --standby")
    if isinstance(loop.failure, LeadershipLostError):
        raise loop.failure
    if loop.failure is not None:
        raise InconsistentStateError(
            f"the scheduler stopped by a defect ({loop.failure})",
            "its log says more; jobs go on; start the server again",
        ) from loop.failure
