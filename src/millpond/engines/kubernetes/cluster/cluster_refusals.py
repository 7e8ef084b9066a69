"""What it means that the cluster refuses something: whether time may mend that, and in which words it is told."""

from __future__ import annotations

import re
from typing import Final

from millpond.engines.kubernetes.cluster.objects import StatusObject
from millpond.engines.kubernetes.cluster.resource_amounts import quantity
from millpond.engines.task_ends import Refusal

_UNAUTHORIZED, _ERROR = 401, 500
_LESS_THAN_LIMIT: Final = "must be less than or equal to cpu limit"
# ``k8s.io/kubernetes/pkg/apis/core/validation/validation.go``, ``ValidateResourceRequirements``.
_EXCEEDED: Final = re.compile(r"exceeded quota: [^,]+, requested: (.*), used: .*, limited: (.*)")
# ``k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go``, ``forbiddenMessage``; what an admission forbids
# has the same code.
# Of namespaces: ``k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle/admission.go``.
_MAY_COME: Final = re.compile(
    r'User "[^"]*" cannot \w+ resource "|^namespaces "[^"]*" not found|because it is being terminated'
)


class ClusterRefusedError(Exception):
    """The cluster does not do it, and asking again at once would not help."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class StatusError(Exception):
    """The cluster's answer is an error that time does not mend."""

    def __init__(self, status: StatusObject) -> None:
        super().__init__(status.message or status.reason)
        self.code = status.code


def may_be_mended(error: StatusError) -> bool:
    """Whether the API server or a webhook fails, or it is of a token, a right or a namespace that may come yet."""
    return error.code in (_ERROR, _UNAUTHORIZED) or _MAY_COME.search(str(error)) is not None


def by_limit_range(error: StatusError) -> str:
    """Where a limit that no pod of a job has comes from: validation names neither it nor its amount."""
    return ", as a LimitRange of its namespace has a limit of CPUs" if _LESS_THAN_LIMIT in str(error) else ""


def refused(what: str, error: StatusError, alike: int = 1) -> ClusterRefusedError:
    """With the cluster's own words, which name quotas, rights and wrong fields."""
    passes = may_be_mended(error) or _may_free_up(str(error), alike)
    return ClusterRefusedError(Refusal(f"{what}: {error}", passes))


def _may_free_up(message: str, alike: int) -> bool:
    """Whether a refusal is that of a quota which has room for so many alike when nothing else uses it.

    Args:
        alike: how many objects that ask for the same are needed at once.

    Source: ``k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go``, ``checkRequest``.
    """
    found = _EXCEEDED.search(message)
    if found is None:
        return False
    requested, limited = (dict(_pairs(text)) for text in found.groups())
    return all(amount * alike <= limited.get(name, amount * alike) for name, amount in requested.items())


def _pairs(text: str) -> list[tuple[str, float]]:
    return [(name, quantity(amount)) for name, _, amount in (each.strip().partition("=") for each in text.split(","))]
