"""Millpond: one calm pool out of a team's GPU machines.

``millpond.submit(function, *arguments, gpus=1)`` runs a function in the pool, ``millpond.map`` one for each item, and
``millpond.job`` is for programs that run there. Everything is imported when it is first used: ``import millpond`` and
``pond --version`` load nothing of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millpond import job as job
    from millpond.client.sdk.client import Client as Client
    from millpond.client.sdk.functions.handles import JobHandle as Job
    from millpond.client.sdk.functions.outcomes import JobFailedError as JobFailedError
    from millpond.client.sdk.functions.outcomes import JobTimeoutError as JobTimeoutError
    from millpond.client.sdk.functions.submission import attach as attach
    from millpond.client.sdk.functions.submission import submit as submit
    from millpond.client.sdk.functions.submission import submit_each as map  # noqa: A004

_PLACES = {
    "Client": ("millpond.client.sdk.client", "Client"),
    "Job": ("millpond.client.sdk.functions.handles", "JobHandle"),
    "JobFailedError": ("millpond.client.sdk.functions.outcomes", "JobFailedError"),
    "JobTimeoutError": ("millpond.client.sdk.functions.outcomes", "JobTimeoutError"),
    "attach": ("millpond.client.sdk.functions.submission", "attach"),
    "map": ("millpond.client.sdk.functions.submission", "submit_each"),
    "submit": ("millpond.client.sdk.functions.submission", "submit"),
}

# Written out: type checkers read no other form.
__all__ = ["Client", "Job", "JobFailedError", "JobTimeoutError", "attach", "job", "map", "submit"]


def __getattr__(name: str) -> Any:
    if name == "job":
        return importlib.import_module("millpond.job")
    if name not in _PLACES:
        raise AttributeError(f"module 'millpond' has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
