"""How a new machine becomes a node of a cluster of k3s: one line for its shell, and what is seen of it then.

The line is made here and run there, so that nothing of Millpond has to be installed on the machine first. The agent of
Millpond comes by its DaemonSet, to all nodes with the label of a pool.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec

from millpond.engines.kubernetes.claims.claim_objects import SHARES, SLICES, SliceObject
from millpond.engines.kubernetes.claims.node_cards import cards_of, whole_pool
from millpond.engines.kubernetes.cluster.access import read_json, sync_client
from millpond.engines.kubernetes.cluster.api_channel import PASSING
from millpond.engines.kubernetes.cluster.cluster_nodes import AGENT_DRIVER, DRIVER, MILLI, POOL_LABEL, VENDORS, is_ready
from millpond.engines.kubernetes.cluster.kubeconfig import find_config
from millpond.engines.kubernetes.cluster.objects import NodeObject
from millpond.engines.kubernetes.cluster.reflector import ObjectKind
from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.node.host.clocks import MonotonicClock
from millpond.server.operations.cluster_check import access_of
from millpond.specs.config.kubernetes import KubernetesFile
from millpond.specs.config.listen import is_loopback

TOKEN_PLACE: Final = Path("/var/lib/rancher/k3s/server/node-token")
JOINS_WITHIN_S: Final = 300.0
LOOK_EVERY_S: Final = 1.0
_ASKED_TIMES: Final = 10
"""An API server that has too much to do, or is not ready yet, is asked so often."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9:._-]{8,1000}")
_POOL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PORT: Final = 6443
_CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What is to join.

    Attributes:
        pool: in which the machine is to be.
        token_file: with what the cluster knows it by.
        server: address of the cluster as the machine reaches it; empty: it is found out.
    """

    pool: str = "default"
    token_file: Path = TOKEN_PLACE
    server: str = ""


class JoiningCluster:
    """A cluster, as far as it is needed to let a machine in.

    Raises:
        UnavailableError: it cannot be reached.
    """

    def __init__(self, settings: KubernetesFile, sleep: Callable[[float], None] = time.sleep) -> None:
        self._access = access_of(settings)
        self._sleep = sleep
        self._connect()

    def _connect(self) -> None:
        """With what the kubeconfig says by now."""
        config = find_config(self._access)
        self._address = config.cluster.server
        self._client = sync_client(config)

    def line(self, request: JoinRequest) -> str:
        """The line for the shell of the new machine, to be run as root there. It has the cluster's token in it.

        Raises:
            InvalidInputError: the pool or the token cannot be one.
            UnavailableError: the cluster is none of k3s, or does not answer, or its token cannot be read.
        """
        if not _POOL.fullmatch(request.pool):
            raise InvalidInputError(f"{request.pool!r} is no name of a pool", "use letters, digits, . _ and -")
        version = str(self._get("/version").get("gitVersion", ""))
        label = f"{POOL_LABEL}={request.pool}"
        if "+k3s" not in version:
            raise UnavailableError(
                f"the cluster runs Kubernetes {version or 'of an unknown version'}, which is not k3s",
                f"let its own installer join the machine, then: kubectl label node NAME {label}",
            )
        token, server = _token_in(request.token_file), request.server or self._server_address()
        given = {"INSTALL_K3S_VERSION": version, "K3S_URL": server, "K3S_TOKEN": token}
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in given.items())
        # k3s takes NVIDIA's runtime as the default one where it is told to, and it is there.
        runtime = "$(command -v nvidia-container-runtime >/dev/null && echo --default-runtime nvidia)"
        return f"curl -sfL https://get.k3s.io | {variables} sh -s - agent --node-label {shlex.quote(label)} {runtime}"

    def nodes(self) -> dict[str, NodeObject]:
        """All nodes by their names.

        Raises:
            UnavailableError: the cluster does not answer.
        """
        found = (msgspec.convert(each, NodeObject) for each in self._get("/api/v1/nodes")["items"])
        return {node.metadata.name: node for node in found}

    def joined(self, before: dict[str, NodeObject], clock: MonotonicClock = time.monotonic) -> Iterator[str]:
        """What is seen of a machine that joins, in words, until its cards are.

        Args:
            before: the nodes from before.

        Raises:
            UnavailableError: it does not come, or nothing offers cards there.
        """
        began, named, trouble = clock(), "", ""
        while clock() - began < JOINS_WITHIN_S:
            try:
                there, trouble = self.nodes(), ""
            except UnavailableError as error:  # such as while the API server starts anew
                there, trouble = {}, error.cause
                with suppress(UnavailableError):
                    self._connect()
            ready = {name: node for name, node in there.items() if name not in before and is_ready(node)}
            for name, node in ready.items():
                if not named:
                    named = name
                    yield f"node {name} is ready after {clock() - began:.0f} s"
                if name == named and (cards := self._cards_of(node)):
                    yield f"it offers {cards} after {clock() - began:.0f} s"
                    return
            self._sleep(LOOK_EVERY_S)
        if trouble:
            raise UnavailableError(f"what became of the machine is not known: {trouble}", "see `pond kube check`")
        if not named:
            raise UnavailableError("no new node has become ready", "on the machine: journalctl -u k3s-agent")
        raise UnavailableError(
            f"node {named} is there, and offers no cards",
            "install Millpond's agents (kubectl apply -k deploy/kubernetes-agent), and see their logs",
        )

    def _server_address(self) -> str:
        """The address of the cluster as other machines reach it."""
        parts = urlsplit(self._address)
        is_proxy = bool(parts.path.strip("/"))  # such as Rancher's: machines join no cluster through it
        if not is_proxy and not is_loopback(parts.hostname or ""):
            return self._address
        port = _PORT if is_proxy else parts.port or _PORT
        for node in self._get("/api/v1/nodes")["items"]:
            if any(label in node["metadata"].get("labels", {}) for label in _CONTROL_PLANE):
                for each in node.get("status", {}).get("addresses", []):
                    if each["type"] == "InternalIP":
                        address = f"[{each['address']}]" if ":" in each["address"] else each["address"]
                        return f"https://{address}:{port}"
        raise UnavailableError(
            f"the kubeconfig reaches the cluster at {self._address}, by which other machines do not join",
            "say how they do: --server https://ADDRESS:6443",
        )

    def _cards_of(self, node: NodeObject) -> str:
        """What gives out cards there, in words; empty: nothing yet."""
        counts = {name: node.status.allocatable.get(name, "0") for name in (MILLI, *VENDORS)}
        counts[DRIVER] = str(len(cards_of(whole_pool(self._slices_of(node.metadata.name))).cards))
        shared = self._slices_of(node.metadata.name, SHARES)
        counts[AGENT_DRIVER] = str(sum(len(each.spec.devices) for each in shared))
        return ", ".join(f"{count} x {name}" for name, count in counts.items() if count != "0")

    def _slices_of(self, node: str, kind: ObjectKind[SliceObject] = SLICES) -> list[SliceObject]:
        """What a driver of resource claims publishes of a node; nothing in a cluster that knows none."""
        try:
            answer = self._client.get(kind.path, params=dict(kind.selectors))
        except (httpx2.HTTPError, OSError):
            return []
        if answer.status_code != HTTPStatus.OK:
            return []
        found = (msgspec.convert(each, SliceObject) for each in answer.json()["items"])
        return [each for each in found if each.spec.node_name == node]

    def _get(self, path: str) -> Any:
        asked = 0
        while True:
            try:
                return read_json(self._client, path)
            except httpx2.HTTPStatusError as error:
                asked += 1
                if asked == _ASKED_TIMES or error.response.status_code not in PASSING:
                    cause = f"{self._address} does not answer as it should: {error}"
                    raise UnavailableError(cause, "see `pond kube check`") from error
            self._sleep(LOOK_EVERY_S)


def _token_in(place: Path) -> str:
    try:
        token = place.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(
            f"the cluster's token cannot be read: {error}",
            "run this as root on the machine of the k3s server, or name a copy of that file: --token-file",
        ) from error
    if not _TOKEN.fullmatch(token):
        raise InvalidInputError(f"{place} has no token of k3s in it", f"copy {TOKEN_PLACE} of the k3s server")
    return token
