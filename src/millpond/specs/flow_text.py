"""Plain data on one line, as people write it in YAML."""

from __future__ import annotations

from typing import Any


def flow_text(value: Any) -> str:
    """``{gpus: 12, memory: 64GiB}``, ``[a, b]``, ``true``; a dash for none.

    Texts stand without quotes: it is for reading, not for being read back.
    """
    if value is None:
        return "-"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {flow_text(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow_text, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)
