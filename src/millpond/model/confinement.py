"""How well the tasks of a run are kept apart from others, and kept to what they asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from millpond.model.sharing import SliceHold


class LimitKind(StrEnum):
    """What keeps a task to the CPUs and the memory that it asked for."""

    UNKNOWN = ""
    """The engine does not report it."""
    CONTROL_GROUP = "control-group"
    """The kernel, for all its processes together."""
    PROCESS = "process"
    """The kernel, for each of its processes by itself."""


class NetworkScope(StrEnum):
    """Whose network a task is in; ``network`` of job files has the same words."""

    UNKNOWN = ""
    """The engine does not report it."""
    HOST = "host"
    """The machine's."""
    PRIVATE = "private"
    """One that only the tasks of its run share."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What one run may reach beyond itself.

    Attributes:
        sandboxed: its tasks see no files and processes of others; true too where nothing runs that could.
        limits: what keeps them to their amounts.
        slices: what keeps them to their parts of devices.
        slices_reason: why nothing does.
        network: whose network they are in.
        memory_by_kernel: the kernel bounds their device memory by control group, beside what ``slices`` says.
    """

    sandboxed: bool = True
    limits: LimitKind = LimitKind.UNKNOWN
    slices: SliceHold = SliceHold.UNKNOWN
    slices_reason: str = ""
    network: NetworkScope = NetworkScope.UNKNOWN
    memory_by_kernel: bool = False


UNTOLD = Confinement()
"""Of what is no start, or of an engine that does not report it."""


def loosest(of: Sequence[Confinement]) -> Confinement:
    """What holds for all of these."""
    kinds = {each.limits for each in of}
    order = (LimitKind.PROCESS, LimitKind.CONTROL_GROUP)
    limits = next((kind for kind in order if kind in kinds), LimitKind.UNKNOWN)
    firmness = (SliceHold.NOTHING, SliceHold.DMEM, SliceHold.GATE, SliceHold.MPS, SliceHold.MIG, SliceHold.UNKNOWN)
    slices = min((each.slices for each in of), key=firmness.index, default=SliceHold.UNKNOWN)
    reason = next((each.slices_reason for each in of if each.slices is slices), "")
    scopes = (NetworkScope.HOST, NetworkScope.PRIVATE, NetworkScope.UNKNOWN)
    network = min((each.network for each in of), key=scopes.index, default=NetworkScope.UNKNOWN)
    by_kernel = bool(of) and all(each.memory_by_kernel for each in of)
    return Confinement(all(each.sandboxed for each in of), limits, slices, reason, network, by_kernel)
