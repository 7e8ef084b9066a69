"""Who holds the devices that suspended work would go back to: looked up once for all that ask in one cycle."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State


class DeviceHolders:
    """Running work by device, from the running work as it is now.

    Work that is suspended, or goes on, before the next question is left out, or counted, then.

    Args:
        wanted: the suspended work that is asked about.
    """

    def __init__(self, state: State, wanted: Sequence[JobRecord]) -> None:
        self._state = state
        self._found: dict[int, list[tuple[int, JobRecord]]] = {
            device: [] for record in wanted for device in devices_of(record)
        }
        for place, other in enumerate(state.running.values()):
            for task in other.tasks:
                for device in () if task.holding is None else task.holding.devices:
                    if device in self._found:
                        self._found[device].append((place, other))

    def of(self, record: JobRecord) -> list[JobRecord]:
        """Who holds devices of a suspended job now, in order of their start."""
        found = {place: other for device in devices_of(record) for place, other in self._found[device]}
        holders = [found[place] for place in sorted(found)]
        return [other for other in holders if other is not record and other.id not in self._state.suspended]


def devices_of(record: JobRecord) -> set[int]:
    """The devices that a job's tasks hold, or would go back to."""
    return {device for task in record.tasks if task.holding is not None for device in task.holding.devices}
