"""Keep devices at the power and clocks that their pools set, or at the caps of jobs, and restore both afterwards.

What a device was kept to before is written down before it is first changed, so that a server that was killed leaves
nothing behind that the next one does not put back. Nothing is touched for pools without rules and jobs without caps.

The cap of a job (``scheduling.capping``) holds beside that of its pool: of both the lower one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from millpond.model.amounts import decimal_text
from millpond.model.errors import InvalidInputError, MillpondError
from millpond.model.hardware.power import UNTOUCHED, PowerLimits, PowerRule, PowerSetting
from millpond.model.sharing import ShareClass
from millpond.node.devices.vendor import PowerControl
from millpond.node.host.files import read_json, write_json
from millpond.node.host.machine import Machine
from millpond.node.host.periodic_worker import Periodic, PeriodicWorker

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
FILE: Final = "power.json"
_ROUNDED_W: Final = 1.0
"""A driver may take a cap for the nearest that it knows."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What counts at the moment.

    Attributes:
        rules: gives the rules by pool; a pool without one is left alone.
        present: gives the classes of work on each device, by its UUID.
        caps: gives the caps of jobs, by the UUIDs of the devices that they run on now.
    """

    rules: Callable[[], Mapping[str, PowerRule]]
    present: Callable[[], Mapping[str, Collection[ShareClass]]]
    caps: Callable[[], Mapping[str, float]] = dict


@dataclass(frozen=True, slots=True)
class Before:
    """What there was before a device was first changed.

    Attributes:
        cap_w: what it was kept to; None where it has no cap.
        clocked: its clock was changed too.
    """

    cap_w: float | None
    clocked: bool = False


class PowerEnforcer(Periodic):
    """Looks after all devices whose power can be set, on a thread of its own.

    Args:
        state_dir: where what was before is written down.
    """

    def __init__(self, machine: Machine, policy: Policy, state_dir: Path) -> None:
        controls = {vendor.name: vendor.power() for vendor in machine.vendors.values()}
        self._devices = {
            device.uuid: (node.pool, control)
            for node in machine.nodes
            for device in node.devices
            if (control := controls.get(device.vendor)) is not None
        }
        self._policy = policy
        self._file = state_dir / FILE
        self._before = {name: Before(**plain) for name, plain in (read_json(self._file) or {}).items()}
        self._now = {name: _unknown_setting(before) for name, before in self._before.items()}
        self._trouble: dict[str, str] = {}
        self._job_caps: dict[str, float] = {}
        self._worker = PeriodicWorker("power", self.look, LOOK_EVERY_S, "the power of devices stays as it is")

    def close(self) -> None:
        """No more looks, and everything as it was; a driver that does not answer leaves that to the next server."""
        if not self._worker.close():
            log.warning("the power of devices is not put back: the driver does not answer; the next server does it")
            return
        for device in list(self._before):
            self._try(device, UNTOUCHED)

    def look(self) -> None:
        """Bring every device to what its pool lays down now."""
        rules = self._policy.rules()
        present = self._policy.present() if rules else {}
        caps = self._policy.caps()
        for device, (pool, control) in self._devices.items():
            if self._worker.closing:
                return
            rule = rules.get(pool)
            wanted = UNTOUCHED if rule is None else rule.setting(present.get(device, ()))
            cap_w = caps.get(device, 0.0)
            if cap_w:
                lower_w = cap_w if wanted.cap_w is None else min(cap_w, wanted.cap_w)
                wanted = replace(wanted, cap_w=lower_w)
            if self._has_lost_cap(device, control):
                self._now[device] = _unknown_setting(self._before[device])
            if wanted != self._now.get(device, UNTOUCHED):
                self._try(device, wanted)
            if cap_w and wanted.cap_w is not None and wanted.cap_w < cap_w:
                pool_w, job_w = decimal_text(wanted.cap_w), decimal_text(cap_w)
                self._report(device, f"its pool keeps it at {pool_w} W, below the {job_w} W of its job")
            self._note_cap(device, cap_w, wanted)

    def job_cap_w(self, device: str) -> float:
        """The cap at which a device is kept for a job; 0 where it is at none, or the driver refuses it. Any thread."""
        return self._job_caps.get(device, 0.0)

    def _has_lost_cap(self, device: str, control: PowerControl) -> bool:
        """Whether a device may draw more than it was kept to, as after a reset; a lower cap is left to who set it."""
        cap_w = self._now.get(device, UNTOUCHED).cap_w
        limits = control.limits(device) if cap_w else None
        return bool(cap_w and limits and limits.cap_w and limits.cap_w >= cap_w + _ROUNDED_W)

    def _note_cap(self, device: str, cap_w: float, wanted: PowerSetting) -> None:
        now = self._now.get(device, UNTOUCHED)
        if cap_w and now == wanted and now.cap_w is not None:
            self._job_caps[device] = now.cap_w
        elif now.cap_w == wanted.cap_w:
            self._job_caps.pop(device, None)

    def _try(self, device: str, wanted: PowerSetting) -> None:
        """Change a device; what hinders that is said once, and tried again at the next look."""
        try:
            self._change(device, wanted)
            self._trouble.pop(device, None)
        except (MillpondError, OSError) as error:
            self._report(device, str(error))

    def _report(self, device: str, why: str) -> None:
        if self._trouble.get(device) != why:
            self._trouble[device] = why
            log.warning("the power of %s stays as it is: %s", device, why)

    def _change(self, device: str, wanted: PowerSetting) -> None:
        if device not in self._devices:
            return  # it is gone, and with it what was set
        control = self._devices[device][1]
        limits = control.limits(device)
        if limits is None:
            raise InvalidInputError("it has no power of its own to be set", "leave its pool without `power`")
        _check(wanted, limits)
        before, now = self._before.get(device, Before(limits.cap_w)), self._now.get(device, UNTOUCHED)
        before = Before(before.cap_w, before.clocked or wanted.clock_mhz is not None)
        if wanted.cap_w is not None and before.cap_w is None:
            raise InvalidInputError("its driver does not say what it is kept to now", "leave `cap_w` out for its pool")
        if self._before.get(device) != before:
            self._write_down({**self._before, device: before})
        self._now[device] = _unknown_setting(before)  # until its driver has taken all of it
        if wanted.cap_w != now.cap_w:
            cap_w = before.cap_w if wanted.cap_w is None else wanted.cap_w
            if cap_w is not None and cap_w != limits.cap_w:
                control.cap(device, cap_w)
        if wanted.clock_mhz != now.clock_mhz:
            control.clock(device, wanted.clock_mhz)
        self._now[device] = wanted
        if wanted == UNTOUCHED:
            del self._now[device]
            self._write_down({name: each for name, each in self._before.items() if name != device})

    def _write_down(self, before: dict[str, Before]) -> None:
        write_json(self._file, {name: asdict(each) for name, each in before.items()})
        self._before = before


def _unknown_setting(before: Before) -> PowerSetting:
    """Stands for whatever a killed server had set, or a driver took in part: it differs from all that may be wanted."""
    return PowerSetting(0.0, 0 if before.clocked else None)


def _check(wanted: PowerSetting, limits: PowerLimits) -> None:
    """Whether a device can be kept to that.

    Raises:
        InvalidInputError: its driver does not allow it.
    """
    cap, clock = wanted.cap_w, wanted.clock_mhz
    if cap is not None and limits.least_w is not None and limits.most_w is not None:
        if not limits.least_w <= cap <= limits.most_w:
            span = f"{decimal_text(limits.least_w)} to {decimal_text(limits.most_w)} W"
            raise InvalidInputError(
                f"its driver allows a cap of {span}, not of {decimal_text(cap)} W", "change `cap_w` of its pool"
            )
    elif cap is not None:
        raise InvalidInputError("its driver allows no cap", "leave `cap_w` out for its pool")
    if clock is not None and limits.most_mhz is not None and clock > limits.most_mhz:
        cause = f"it runs at {limits.most_mhz} MHz at the most, not at {clock} MHz"
        raise InvalidInputError(cause, "change `clock_mhz` of its pool")
