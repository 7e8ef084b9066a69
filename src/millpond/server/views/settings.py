"""The configuration as an admin sees it: what was read last, without anything that opens something.

Secrets are in files of their own, which the configuration only names. What is left are addresses: those of chat
services let anybody write to a room who knows all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.specs.config.webhooks import as_far_as_host


def shown_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document, with each address as far as its host."""
    return {name: _shown(value) for name, value in document.items()}


def _shown(value: Any) -> Any:
    match value:
        case Mapping():
            return shown_settings(value)
        case list():
            return [_shown(each) for each in value]
        case str() if "://" in value:
            return as_far_as_host(value)
        case _:
            return value
