"""Whether programs can listen on this machine as their job files say."""

from __future__ import annotations

import os
from pathlib import Path

from millpond.model.errors import InvalidInputError
from millpond.node.sandbox import namespaces
from millpond.node.sessions.task_socket import LONGEST_NAME, PROGRAM_SOCKET, program_folder, task_socket_name
from millpond.specs.job.job_file import JobFile


def require_listening(file: JobFile, state_dir: Path) -> None:
    """Check that a job can have the network, and its program the place to listen, that its file names.

    Raises:
        InvalidInputError: it cannot, on this machine or in a container.
    """
    listening = "port" if file.serve is None else file.serve.listen
    if file.network_named == "private" and file.image is not None:
        raise InvalidInputError("a container cannot have a private network here", "use serve.listen: socket")
    if file.network_named == "private" and (found := namespaces.network_trouble()):
        raise InvalidInputError(f"there are no private networks here: {found}", "use serve.listen: port or socket")
    if listening == "socket":
        example = program_folder(state_dir, task_socket_name("", 1, 0)) / PROGRAM_SOCKET
        if len(os.fsencode(example)) > LONGEST_NAME:
            cause = f"serve.listen: socket does not work here: {state_dir} is too long for the name of a socket"
            raise InvalidInputError(cause, "use port or private, or a state directory with a shorter path")
