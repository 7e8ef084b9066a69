"""The job files that come with Millpond, for pages: read once, as they do not change while the server runs.

A user's own lie on the user's machine, where ``pond`` finds them.
"""

from __future__ import annotations

from functools import cache

from millpond.model.errors import NotFoundError
from millpond.specs.errors import suggest
from millpond.specs.job.templates import Template, all_templates


@cache
def ready_templates() -> tuple[Template, ...]:
    """All of them by name."""
    return tuple(all_templates(own=False))


def ready_template(name: str) -> Template:
    """One of them.

    Raises:
        NotFoundError: there is none of this name.
    """
    known = {each.name: each for each in ready_templates()}
    if name not in known:
        raise NotFoundError(f"no template {name[:100]!r}", suggest(name, known))
    return known[name]
