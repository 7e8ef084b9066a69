"""Pods that run this machine's own programs: busybox with these mounted, the node's network, and a token.

No network leads from pods to an API server on loopback, and no image is built for a test.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from control_plane import ControlPlane
from kubelet import IMAGE

sys.path.insert(0, str(Path(__file__).parents[3] / "end_to_end"))
from real_pond import POND, REPOSITORY

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
AUTHORITY = "ca.crt"


def put_here(pod: dict[str, Any], plane: ControlPlane, node: str, authority: str) -> None:
    """Have the only container of a pod run on this machine's node.

    Args:
        authority: the config map that has the certificate of the API server as ``AUTHORITY``.
    """
    (container,) = pod["containers"]
    container["image"], container["command"] = IMAGE, [str(POND)]
    container["env"] += [
        {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(plane.port)},
    ]
    for place in {Path("/usr"), Path("/lib"), Path("/lib64"), REPOSITORY, POND.parents[1], Path(sys.base_prefix)}:
        mount_here(pod, place)
    token = {"serviceAccountToken": {"path": "token", "audience": plane.url}}
    certificate = {"configMap": {"name": authority, "items": [{"key": AUTHORITY, "path": "ca.crt"}]}}
    namespace = {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}
    pod["volumes"].append({"name": "account", "projected": {"sources": [token, certificate, namespace]}})
    container["volumeMounts"].append({"name": "account", "mountPath": ACCOUNT, "readOnly": True})
    pod["hostNetwork"], pod["nodeName"] = True, node


def mount_here(pod: dict[str, Any], place: Path, *, read_only: bool = True) -> None:
    """Have a folder of this machine at its own path."""
    (container,) = pod["containers"]
    name = f"here-{len(pod['volumes'])}"
    pod["volumes"].append({"name": name, "hostPath": {"path": str(place)}})
    container["volumeMounts"].append({"name": name, "mountPath": str(place), "readOnly": read_only})
