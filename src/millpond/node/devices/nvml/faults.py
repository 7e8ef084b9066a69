"""What NVIDIA's driver says has gone wrong: XIDs and double-bit errors as they happen, and what it still complains of.

How far an XID reaches follows the immediate action in NVIDIA's catalogue for Ampere and newer ("Analyzing Xid Errors
with the Xid Catalog", docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html): restarting the program makes it
the task's, a reset of the card or of the machine the device's, none a note. Its remarks are heeded for three: 43 and
137 are faults of programs, 45 is the driver clearing up after a program, which happens at every kill. What the
catalogue does not have is taken to be the device's. Two are for a person: 54, as its action is to look at the cables,
and 64, as a row that could not be remapped is what NVIDIA takes cards back for ("RMA Policy Thresholds for
Row-Remapping", docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from millpond.model.errors import UnavailableError
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.telemetry import FaultScope, HealthEvent
from millpond.node.devices.nvml.library import Nvml, identity, text

_NAMES: Final = {
    8: "the card stopped processing",
    11: "invalid or corrupted push buffer stream",
    13: "graphics engine exception, such as an access out of bounds",
    31: "memory page fault: an access to an illegal address",
    32: "invalid or corrupted push buffer stream",
    43: "the card stopped processing a program that had failed",
    45: "clearing up after a program that was killed",
    46: "the card stopped processing",
    48: "double-bit memory error",
    54: "its auxiliary power is not connected",
    62: "its internal controller halted",
    63: "memory row remapped",
    64: "memory row could not be remapped",
    69: "graphics engine class error",
    74: "NVLink error",
    79: "it has fallen off the bus",
    92: "many single-bit memory errors",
    94: "contained memory error: one program was hit",
    95: "uncontained memory error: any program may have been hit",
    109: "context switch timed out",
    110: "security fault",
    119: "its system processor does not answer",
    120: "its system processor failed",
    136: "link training failed",
    137: "illegal access over NVLink",
    140: "memory error that could not be recovered",
    143: "it could not be initialised",
    154: "what it takes to recover has changed",
}
_TASK: Final = frozenset(
    (8, 11, 13, 31, 32, 39, 40, 41, 43, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, *range(82, 87), 88, 89, 94)
).union(range(96, 106), range(126, 136), (137, 139))
_PERSON: Final = frozenset((54, 64))
_NOTE: Final = frozenset((37, 38, 44, 45, 63, 66, 67, 92, 93, 106, 107, 108, 121, 141, 154))

_DOUBLE_BIT: Final = 2
_XID: Final = 8
_RECOVERY_FIELD: Final = 230
RECOVERY_ACTIONS: Final = {
    1: (DeviceHealth.FAULTY, "the driver wants it reset"),
    2: (DeviceHealth.FAULTY, "the driver wants the machine rebooted"),
    3: (DeviceHealth.BUSY_ELSEWHERE, "the driver wants work between cards to end here"),
    4: (DeviceHealth.BUSY_ELSEWHERE, "the driver wants it drained, then reset"),
    6: (DeviceHealth.FAULTY, "the driver wants its bus reset"),
    7: (DeviceHealth.FAULTY, "the driver wants the system rebooted"),
}
"""``nvmlDeviceGpuRecoveryAction_t`` of nvml.h; 5 is about a domain of several machines."""


def scope_of(xid: int) -> FaultScope:
    """How far an XID reaches."""
    if xid in _TASK:
        return FaultScope.TASK
    if xid in _PERSON:
        return FaultScope.PERSON
    return FaultScope.NOTE if xid in _NOTE else FaultScope.DEVICE


def xid_text(xid: int) -> str:
    """An XID for people."""
    name = _NAMES.get(xid)
    return f"XID {xid} ({name})" if name else f"XID {xid}"


def driver_complaint(nvml: Nvml, handle: Any) -> tuple[DeviceHealth, str]:
    """What the driver has against work on a card, besides events: OK and nothing when it has no complaint."""
    fields = nvml.ask("nvmlDeviceGetFieldValues", handle, [_RECOVERY_FIELD])
    if fields is not None and fields[0].nvmlReturn == 0:
        complaint = RECOVERY_ACTIONS.get(int(fields[0].value.uiVal))
        if complaint is not None:
            return complaint
    rows = nvml.ask("nvmlDeviceGetRemappedRows", handle)
    if rows is not None and rows[3]:
        return DeviceHealth.FAULTY, "a memory row could not be remapped"
    return DeviceHealth.OK, ""


class NvmlEvents:
    """The driver's events of some cards.

    Args:
        event_set: the driver's, with the cards registered.
        uuids: of these cards, by ``identity`` of their handles: a card that is lost does not even report its name.
    """

    def __init__(self, nvml: Nvml, event_set: Any, uuids: Mapping[object, str]) -> None:
        self._nvml = nvml
        self._set = event_set
        self._uuids = uuids
        self._timeout = nvml.constant("NVML_ERROR_TIMEOUT", 10)

    @staticmethod
    def open(nvml: Nvml, cards: Sequence[Any]) -> NvmlEvents | None:
        """Listen to these cards; None when none of them reports anything."""
        event_set = nvml.ask("nvmlEventSetCreate")
        if event_set is None:
            return None
        heard = False
        for card in cards:
            kinds = (nvml.ask("nvmlDeviceGetSupportedEventTypes", card) or 0) & (_XID | _DOUBLE_BIT)
            try:
                if kinds:
                    nvml.module.nvmlDeviceRegisterEvents(card, kinds, event_set)
                    heard = True
            except nvml.error:
                continue  # this one reports nothing; the regular looks at it remain
        uuids = {identity(card): text(nvml.ask("nvmlDeviceGetUUID", card)) for card in cards}
        return NvmlEvents(nvml, event_set, uuids) if heard else None

    def wait(self, timeout_s: float) -> tuple[HealthEvent, ...]:
        """The next event, if there is one in time.

        Raises:
            UnavailableError: the driver will report no more.
        """
        try:
            event = self._nvml.module.nvmlEventSetWait_v2(self._set, round(timeout_s * 1000))
        except self._nvml.error as error:
            if getattr(error, "value", None) == self._timeout:
                return ()
            raise UnavailableError(
                f"the NVIDIA driver reports no more faults ({error})", "start the server again"
            ) from error
        uuid = self._uuids.get(identity(event.device), "")
        if event.eventType == _DOUBLE_BIT:
            return (HealthEvent(uuid, FaultScope.DEVICE, "double-bit memory error"),)
        return (HealthEvent(uuid, scope_of(event.eventData), xid_text(event.eventData)),)
