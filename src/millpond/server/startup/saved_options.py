"""Options that a state directory remembers from its last start: which machines there are hangs on them, so that a start
that leaves one out would lose the jobs that run there.

``none`` in place of a value forgets it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from millpond.model.errors import UnavailableError
from millpond.node.host.files import read_json, write_json
from millpond.server.options import FORGET, ServerOptions

OPTIONS_FILE: Final = "options.json"


def with_remembered(options: ServerOptions) -> tuple[ServerOptions, str]:
    """The options with what the last start of this state directory said and this one leaves out; and a note of that.

    Raises:
        UnavailableError: the configuration of the last start is gone.
    """
    kept = read_json(options.state_dir.expanduser() / OPTIONS_FILE) or {}
    fake_gpus, said = options.fake_gpus, []
    if not fake_gpus and (fake_gpus := str(kept.get("fake_gpus", ""))):
        said.append(f"--fake-gpus {fake_gpus}")
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
    )
    names = " and ".join(text.split()[0] for text in said)
    return resolved, f"as at the last start: {' '.join(said)} (`{FORGET}` forgets {names})" if said else ""


def remember(options: ServerOptions) -> None:
    """Note the options for the next start.

    Args:
        options: as ``with_remembered`` gave them.

    Raises:
        OSError: the state directory cannot be written.
    """
    kept = {"fake_gpus": options.fake_gpus, "config": str(options.config or "")}
    path = options.state_dir.expanduser() / OPTIONS_FILE
    if (read_json(path) or {"fake_gpus": "", "config": ""}) != kept:
        write_json(path, kept)
