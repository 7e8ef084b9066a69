"""The jobs that answer requests to an address: one job, or the revisions of a service during a rollout."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, TypeAlias

SEED: Final = 20_240_229
_HUNDRED: Final = 100.0

Ways: TypeAlias = tuple[tuple[str, ...], ...]
"""Groups of jobs whose replicas may answer a request, each for when the one before has none that is ready."""


@dataclass(frozen=True, slots=True)
class Split:
    """How the requests for a service are divided.

    Attributes:
        jobs: whose ready replicas share what the canary does not get.
        canary: the job that gets ``percent`` of the requests; empty when none.
    """

    jobs: tuple[str, ...]
    canary: str = ""
    percent: float = 0.0


class Routes:
    """Looked up by the proxy, changed by rollouts. Any thread.

    Each request is decided by itself, by a generator with a seed: a client may get the canary once and not again.
    """

    def __init__(self, seed: int = SEED) -> None:
        self._random = random.Random(seed)
        self._by_address: dict[str, Split] = {}

    def put(self, address: str, split: Split) -> None:
        """From now on an address is answered so."""
        self._by_address[address] = split

    def ways(self, address: str) -> Ways:
        """Who is to answer one request."""
        split = self._by_address.get(address)
        if split is None:
            return ((address,),)
        if not split.canary:
            return (split.jobs,)
        mine = ((split.canary,), split.jobs)
        return mine if self._random.random() * _HUNDRED < split.percent else mine[::-1]

    def present(self, address: str) -> str:
        """The job that stands for an address: the first that answers there."""
        split = self._by_address.get(address)
        return address if split is None else split.jobs[0]
