"""How the cluster is asked to let a pod go: an eviction keeps to disruption budgets, which a deletion would not."""

from __future__ import annotations

import math
from typing import Any, Final

from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_refusals import StatusError

TOO_MANY: Final = 429
"""The code of a refusal by a disruption budget."""
_POLICIES: Final = ("policy/v1", "policy/v1beta1")
"""The versions of the API that take evictions: older clusters know the second alone."""
_GONE: Final = frozenset({404, 409})


async def refusal_to_evict(
    api: ClusterApi, namespace: str, name: str, uid: str, grace_s: float | None = None
) -> StatusError | None:
    """Ask once that a pod end; None: that is on its way, or it is gone, also if another of its name is there.

    Args:
        grace_s: what its programs have from their notice on; None: what the pod says.
    """
    options: dict[str, Any] = {"preconditions": {"uid": uid}}
    if grace_s is not None:
        options["gracePeriodSeconds"] = math.ceil(grace_s)
    refused = None
    for policy in _POLICIES:
        meta = {"namespace": namespace, "name": name}
        body = {"apiVersion": policy, "kind": "Eviction", "metadata": meta, "deleteOptions": options}
        try:
            await api.ask("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)
        except StatusError as error:
            if error.code in _GONE:
                return None
            refused = error
            if error.code == TOO_MANY:
                break
        else:
            return None
    return refused
