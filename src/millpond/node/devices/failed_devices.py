"""Devices that failed while a server used them, noted where the check of the machine finds them.

What a driver reports once, such as an XID, a later look at the device does not show.
"""

from __future__ import annotations

from pathlib import Path

from millpond.node.host.files import read_json, write_json

_NAME = "failed-devices.json"


class FailedDevices:
    """The notes of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / _NAME

    def begin(self) -> None:
        """A server starts: what an earlier one saw has been seen to, or is seen again."""
        self._path.unlink(missing_ok=True)

    def note(self, device: str, text: str) -> None:
        """A device has failed; without text, it is well again."""
        noted = self.noted()
        before = dict(noted)
        noted.pop(device, None)
        if text:
            noted[device] = text
        if noted != before:
            write_json(self._path, noted)

    def noted(self) -> dict[str, str]:
        """What is wrong with each device that failed, by UUID."""
        return dict(read_json(self._path) or {})
