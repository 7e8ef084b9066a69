"""Vendors whose devices are looked at through the vendor's command-line tool.

Each of them only says which commands to run and how to read what they print (``ToolVendor.read``). A tool that is not
there, hangs, fails or prints what cannot be read is a reason in words.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millpond.model.errors import UnavailableError
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.devices.vendor import NO_PROCESSES, Availability, DeviceVendor, OwnProcesses, used_by

Run = Callable[[Sequence[str]], str]
"""Runs a command and gives what it prints.

Raises:
    ToolMissingError: it is not installed.
    UnavailableError: it failed or took too long.
"""

_ANSWERS_WITHIN_S = 15.0
_STAYS_TRUE_S = 1.0


class ToolMissingError(UnavailableError):
    """The vendor's tool is not on this machine."""


@dataclass(frozen=True, slots=True)
class ToolReading:
    """What a tool reports of one device.

    Attributes:
        sample: how it fares; its ``device`` is the UUID.
        trouble: what the tool has against it; empty when it is well.
    """

    index: int
    model: str
    sample: DeviceSample
    trouble: str = ""


def run_tool(argv: Sequence[str]) -> str:
    """Run a vendor's tool; see ``Run``."""
    tool = argv[0]
    if shutil.which(tool) is None:
        raise ToolMissingError(f"{tool} is not installed")
    remedy = f"look what `{' '.join(argv)}` says"
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=_ANSWERS_WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{tool} does not answer within {_ANSWERS_WITHIN_S:g} s", remedy) from error
    except OSError as error:
        raise UnavailableError(f"{tool} cannot be run ({error.strerror})", remedy) from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[0]
        raise UnavailableError(f"{tool} ended with code {done.returncode} and said: {said}", remedy)
    return done.stdout


class ToolVendor(DeviceVendor, ABC):
    """What all vendors with a tool have in common.

    Attributes:
        tool: the command.
        variable: of the environment; lists the devices that a program sees, by index.
    """

    name: str
    title: str
    tool: str
    variable: str
    experimental = True
    sample_every_s = 10.0

    def __init__(self, run: Run = run_tool, clock: Callable[[], float] = time.monotonic) -> None:
        self.run = run
        self._clock = clock
        self._readings: tuple[ToolReading, ...] = ()
        self._read_at: float | None = None

    @abstractmethod
    def read(self) -> list[ToolReading]:
        """Run the tool and read what it prints.

        Raises:
            UnavailableError: the tool fails.
            ValueError, KeyError, IndexError, TypeError, AttributeError: it prints what cannot be read.
        """

    def available(self) -> Availability:
        """Whether the tool is there, answers, and lists a device."""
        try:
            found = self._look()
        except ToolMissingError as error:
            return Availability(False, error.cause, installed=False)
        except UnavailableError as error:
            return Availability(False, error.cause)
        return Availability(bool(found), f"{len(found)} found by {self.tool}")

    def discover(self, own: OwnProcesses = NO_PROCESSES) -> tuple[Device, ...]:
        """What the tool lists.

        Raises:
            UnavailableError: it fails.
        """
        return tuple(self._device(reading, own) for reading in self._look())

    def sample(self) -> tuple[DeviceSample, ...]:
        """What the tool reports of each.

        Raises:
            UnavailableError: it fails.
        """
        return tuple(reading.sample for reading in self._look())

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """By index, as the tool counts."""
        return {self.variable: ",".join(str(device.index) for device in devices)}

    def _look(self) -> tuple[ToolReading, ...]:
        now = self._clock()
        if self._read_at is None or now - self._read_at > _STAYS_TRUE_S:
            try:
                self._readings = tuple(self.read())
            except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
                raise UnavailableError(
                    f"{self.tool} prints what cannot be read ({type(error).__name__}: {error})",
                    "report its output and version",
                ) from error
            self._read_at = now
        return self._readings

    def _device(self, reading: ToolReading, own: OwnProcesses) -> Device:
        sample = reading.sample
        device = Device(
            sample.device, reading.index, self.name, reading.model, sample.memory_mib or 0, experimental=True
        )
        if reading.trouble:
            return replace(device, health=DeviceHealth.FAULTY, health_detail=f"{self.tool} says: {reading.trouble}")
        health, detail = used_by(device.uuid, [process.pid for process in sample.processes or ()], own)
        return replace(device, health=health, health_detail=detail)


def local_uuid(vendor: str, place: str | int) -> str:
    """A name for a device whose tool gives it none: unique among machines with names of their own."""
    return f"{vendor}-{socket.gethostname()}-{place}"


def parse_json(text: str) -> Any:
    """What a tool printed as JSON; some print warnings before it."""
    begin = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=0)
    return json.loads(text[begin:])


def figure(text: str | None) -> float | None:
    """The number in a cell, with its unit or bare; None for ``N/A``, ``-`` and the like."""
    try:
        return None if text is None else float(text.rstrip("CW%"))
    except ValueError:
        return None


def cells_of(line: str) -> list[str]:
    """The cells of a line of a table drawn with ``|``; none when it is a rule or no table."""
    stripped = line.strip()
    return (
        [cell.strip() for cell in stripped[1:-1].split("|")]
        if stripped.startswith("|") and stripped.endswith("|")
        else []
    )
