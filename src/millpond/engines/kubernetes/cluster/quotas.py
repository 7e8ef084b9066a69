"""What the API server says when a ResourceQuota is used up, and whether that passes when other work has ended.

Source: ``k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go``, ``checkRequest``.
"""

from __future__ import annotations

import re
from typing import Final

from millpond.engines.kubernetes.cluster.resource_amounts import quantity

_EXCEEDED: Final = re.compile(r"exceeded quota: [^,]+, requested: (.*), used: .*, limited: (.*)")


def may_free_up(message: str, alike: int) -> bool:
    """Whether a refusal is that of a quota which has room for so many alike when nothing else uses it.

    Args:
        alike: how many objects that ask for the same are needed at once.
    """
    found = _EXCEEDED.search(message)
    if found is None:
        return False
    requested, limited = (dict(_pairs(text)) for text in found.groups())
    return all(amount * alike <= limited.get(name, amount * alike) for name, amount in requested.items())


def _pairs(text: str) -> list[tuple[str, float]]:
    return [(name, quantity(amount)) for name, _, amount in (each.strip().partition("=") for each in text.split(","))]
