"""Ports of nodes that lead to pods: a kubelet turns away a pod that names one which another pod on its node has.

So a pod with such a port keeps off others with the same, as if they had a label in common. Addresses of the node that
a pod names with a port are not looked at: the same port at two addresses is kept apart, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from millpond.engines.kubernetes.cluster.objects import ContainerSpec, InitContainer


class PortSpec(Protocol):
    """What is wanted of a pod, as far as its ports go."""

    @property
    def containers(self) -> Sequence[ContainerSpec]:
        """Those that run together."""

    @property
    def init_containers(self) -> Sequence[InitContainer]:
        """Those that start before them."""


def host_ports(spec: PortSpec) -> tuple[str, ...]:
    """The ports of its node that a pod has, as labels: no label of Kubernetes has a space."""
    lasting = (*spec.containers, *(each for each in spec.init_containers if each.is_sidecar))
    ports = {each for container in lasting for each in container.ports if each.host_port}
    return tuple(sorted(f"with host port {each.host_port}/{each.protocol}" for each in ports))


def with_ports(labels: Mapping[str, str], ports: Sequence[str]) -> Mapping[str, str]:
    """The labels of a pod, by which others may ask for it, and its ports."""
    return {**labels, **dict.fromkeys(ports, "")} if ports else labels
