"""Slices of the card, held by the gate as the node's agent would hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu.bench import Bench
from millpond.node.sharing.gate.building import library
from millpond.node.sharing.gate.region import GateRegion, GateSettings


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice.

    Attributes:
        env: what programs in it are started with.
    """

    region: GateRegion
    env: dict[str, str]


def cut(bench: Bench, name: str, **settings: Any) -> Slice:
    """A slice with these ``GateSettings``, without a cap on memory unless they name one.

    Raises:
        UnavailableError: the gate cannot be built here.
    """
    built = library(bench.folder / "library")
    folder = bench.folder / name
    wanted = GateSettings(**{"cap_mib": 0, "uuid": bench.device.uuid, **settings})
    env = {"LD_PRELOAD": str(built), "MILLPOND_GATE": str(folder)}
    return Slice(GateRegion.create(folder, bench.folder / "card", wanted), env)
