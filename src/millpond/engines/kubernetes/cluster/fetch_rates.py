"""How fast the nodes of a cluster fetch images: as their kubelets told of the pulls for pods of this server.

A kubelet says in an event how long a pull took, and in the status of its node how large the image is. When a node holds
images that it did not hold before, those of our pods there that name one are asked about. A pull of less than a second
says nothing: nearly all layers of that image were there.
"""

from __future__ import annotations

import re
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_nodes import FETCH_RATE, images_of
from millpond.engines.kubernetes.cluster.objects import PodObject
from millpond.engines.kubernetes.loop_work import LoopWork
from millpond.engines.outbox import Outbox
from millpond.specs.job.images import image_content

PULLS_KEPT: Final = 5
"""So many of a node's last pulls count, by their median."""
SHORTEST_PULL_S: Final = 1.0
LONGEST_PULL_S: Final = 86_400.0
"""What is said to have taken longer is not believed."""
MOST_ASKED: Final = 8
"""So many of the pods that came to one node together are asked about."""
OTHER_RATE: Final = 1.5
"""A node without a pull of its own is told of anew when others' rate has changed by this factor."""
_PULLED: Final = re.compile(r'Successfully pulled image "([^"]+)" in (\S+)')
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s|us|µs|ns)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class FetchRates:
    """The rates of all nodes. Lives on the engine's loop.

    Args:
        changed: called with the name of a node of which another rate is to be told.
    """

    def __init__(self, api: ClusterApi, outbox: Outbox, changed: Callable[[str], None]) -> None:
        self._api = api
        self._changed = changed
        self._work = LoopWork(outbox)
        self._pulls: dict[str, deque[float]] = {}
        """By node, bytes per second of its last pulls."""
        self._medians: dict[str, float] = {}
        """By node, the median of those."""
        self._usual: float = FETCH_RATE
        """The rate of nodes without any."""
        self._told: dict[str, int] = {}

    def tell(self, node: str) -> int:
        """Bytes per second at which a node fetches; what is said of it until another is to be told."""
        self._told[node] = rate = round(self._medians.get(node, self._usual))
        return rate

    def forget(self, node: str) -> None:
        """A node is gone."""
        if self._pulls.pop(node, None) is not None:
            del self._medians[node]
        self._told.pop(node, None)

    def images_came(self, node: str, sizes: Mapping[str, int], pods: Iterable[PodObject]) -> None:
        """A node holds images that it did not hold before.

        Args:
            sizes: bytes by the name of the content.
            pods: those of this server there.
        """
        specs = ((pod.metadata.name, pod.spec) for pod in pods)
        needs = ((name, images_of((*spec.init_containers, *spec.containers))) for name, spec in specs)
        asked = [name for name, needed in needs if not sizes.keys().isdisjoint(needed)]
        for name in asked[:MOST_ASKED]:
            self._work.begin(self._ask(node, name, sizes))

    async def _ask(self, node: str, pod: str, sizes: Mapping[str, int]) -> None:
        pulls = (found for said in await self._api.said_of_pulls(pod) if (found := _PULLED.search(said)) is not None)
        took_s = {image_content(image): _seconds(text) for image, text in (found.groups() for found in pulls)}
        believed = {name: each for name, each in took_s.items() if SHORTEST_PULL_S <= each <= LONGEST_PULL_S}
        rates = [sizes[name] / seconds for name, seconds in believed.items() if name in sizes]
        if not rates or node not in self._told:
            return
        own = self._pulls.setdefault(node, deque(maxlen=PULLS_KEPT))
        own.extend(rates)
        self._medians[node] = statistics.median(own)
        self._usual = statistics.median(self._medians.values())
        if round(self._medians[node]) != self._told[node]:
            self._changed(node)
        for other, told in list(self._told.items()):
            if other not in self._medians and not told / OTHER_RATE <= self._usual <= told * OTHER_RATE:
                self._changed(other)


def _seconds(text: str) -> float:
    """A duration as Go writes it, such as ``1m2.5s``; 0 for anything else."""
    parts = _PART.findall(text)
    is_whole = "".join(map("".join, parts)) == text
    return sum(float(number) * _SECONDS[unit] for number, unit in parts) if is_whole else 0.0
