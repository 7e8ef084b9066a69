"""The job files that come with Millpond, for pages: read once, as they do not change while the server runs.

A user's own lie on the user's machine, where ``pond`` finds them.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

from millpond.model.errors import NotFoundError
from millpond.specs.errors import suggest
from millpond.specs.job.template_needs import missing_needs
from millpond.specs.job.templates import Template, TemplateNeed, all_templates

_LOOKED_FOR_AGAIN_S: Final = 60.0


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


def missing_lately(template: Template, path: str, now: float) -> tuple[TemplateNeed, ...]:
    """What one of them needs and was not found with a ``PATH``; looked for once a minute, as it takes a second."""
    return _missing(template.name, path, now // _LOOKED_FOR_AGAIN_S)


@lru_cache(100)
def _missing(name: str, path: str, _minute: float) -> tuple[TemplateNeed, ...]:
    return tuple(missing_needs(ready_template(name), path))
