"""Slices of the card, held by the gate as the node's agent would hold them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from benchmarks.gpu.bench import Bench
from millpond.model.decisions import Grant
from millpond.model.sharing import ShareClass
from millpond.node.sharing.backend import EnforcementRequest
from millpond.node.sharing.gate.building import library
from millpond.node.sharing.gate.region import GateRegion, GateSettings
from millpond.node.sharing.gate_enforcer import settings_of
from millpond.node.task.records import TaskId

_WHOLE_MILLI = 1000


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
    return _made(bench, name, GateSettings(**{"cap_mib": 0, "uuid": bench.device.uuid, **settings}))


def granted(bench: Bench, name: str, share_class: ShareClass) -> Slice:
    """A slice with the settings that the agent gives a task of this class; all of the card, without a cap on memory.

    Raises:
        UnavailableError: the gate cannot be built here.
    """
    grant = Grant(bench.device.uuid, _WHOLE_MILLI, _WHOLE_MILLI, 0)
    request = EnforcementRequest(TaskId("measurement", 1, 0), bench.folder / name, (grant,), share_class)
    return _made(bench, name, replace(settings_of(grant, request), context_mib=0))


def _made(bench: Bench, name: str, settings: GateSettings) -> Slice:
    built = library(bench.folder / "library")
    folder = bench.folder / name
    env = {"LD_PRELOAD": str(built), "MILLPOND_GATE": str(folder), "MILLPOND_GATE_REQUIRED": "1"}
    return Slice(GateRegion.create(folder, bench.folder / "card", settings), env)
