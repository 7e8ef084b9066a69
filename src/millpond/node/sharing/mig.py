"""Cards divided by their own hardware (MIG): where instances go, and making them where the configuration says so.

Each profile may lie at some places of the card only, which the driver lists; instances must not overlap. So a layout
can be impossible although its sum fits, and the order of making decides: places are chosen for all instances at once.

At a start, instances are made on cards in MIG mode that have none at all, and nothing is removed. Whether cards are
divided otherwise while the server runs is another matter (``devices.nvml.layouts``). No card's mode is changed.

Source: NVIDIA, Multi-Instance GPU User Guide, "Supported MIG Profiles"; NVML API, "Multi Instance GPU Management".
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.sharing import MigLayout
from millpond.node.devices.nvml.library import Nvml, instances_of, text

MOST_PLACES = 32
NO_INSTANCES = (
    "MIG is on and nothing is cut out of the card; have the server divide it (mig, of its pool), create instances "
    "(nvidia-smi mig -cgi PROFILE -C), or switch MIG off"
)


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of instance that a card offers.

    Attributes:
        id: the driver's number for it.
        size: in the card's memory slices.
        starts: where it may begin.
        memory_mib: what an instance has.
    """

    name: str
    id: int
    size: int
    starts: tuple[int, ...]
    memory_mib: int = 0

    def device_of(self, card: Device) -> Device:
        """An instance of a card, of which the driver has not said yet what it is called."""
        model, health = f"{card.model}-MIG-{self.name}", DeviceHealth.OK
        return replace(
            card, uuid="", model=model, memory_mib=self.memory_mib, parent=card.uuid, health=health, health_detail=""
        )


@dataclass(frozen=True, slots=True)
class Placed:
    """An instance at its place."""

    profile: Profile
    start: int

    def overlaps(self, other: Placed) -> bool:
        """Whether both want some slice."""
        return self.start < other.start + other.profile.size and other.start < self.start + self.profile.size


def plan(wanted: Sequence[str], offered: Sequence[Profile]) -> tuple[Placed, ...]:
    """Places for all wanted instances on an empty card, the largest first.

    Raises:
        InvalidInputError: the card offers no such profile, or they do not fit together.
    """
    by_name = {profile.name: profile for profile in offered}
    for name in wanted:
        if name not in by_name:
            raise InvalidInputError(f"the card offers no MIG profile {name!r}", f"it offers {', '.join(by_name)}")
    profiles = sorted((by_name[name] for name in wanted), key=lambda profile: (-profile.size, profile.name))
    found = _places(profiles, ())
    if found is None:
        raise InvalidInputError(
            f"the MIG profiles {', '.join(wanted)} do not fit together on the card", "ask for fewer or smaller ones"
        )
    return found


def divide(layout: MigLayout, nvml: Nvml) -> tuple[str, ...]:
    """Divide all cards that are in MIG mode and empty, if the layout says so; returns what was done, or would be."""
    cards = (nvml.ask("nvmlDeviceGetHandleByIndex", index) for index in range(nvml.ask("nvmlDeviceGetCount") or 0))
    notes = [_divide(layout, nvml, card) for card in cards if card is not None and instances_of(nvml, card) == []]
    return tuple(notes)


def _places(profiles: Sequence[Profile], placed: tuple[Placed, ...]) -> tuple[Placed, ...] | None:
    """Places for these beside those that have one; None when there are none."""
    if not profiles:
        return placed
    first, *others = profiles
    for start in first.starts:
        here = Placed(first, start)
        if not any(here.overlaps(other) for other in placed):
            found = _places(others, (*placed, here))
            if found is not None:
                return found
    return None


def _divide(layout: MigLayout, nvml: Nvml, card: Any) -> str:
    name = f"card {nvml.ask('nvmlDeviceGetIndex', card)}"
    try:
        placed = plan(layout.instances, tuple(offered(nvml, card)))
    except InvalidInputError as error:
        return f"{name} cannot be divided: {error}"
    listed = ", ".join(f"{each.profile.name} at {each.start}" for each in placed)
    if not layout.create:
        return f"{name} would be divided into {listed} (mig: create: true)"
    try:
        create(nvml, card, placed)
    except UnavailableError as error:
        return f"{name} cannot be divided: {error}"
    return f"{name} was divided into {listed}"


def offered(nvml: Nvml, card: Any) -> Iterator[Profile]:
    """The profiles of a card in MIG mode, each with all its places, taken or free."""
    for number in range(nvml.module.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = nvml.ask("nvmlDeviceGetGpuInstanceProfileInfo", card, number)
        count = ctypes.c_uint(MOST_PLACES)
        places = (nvml.module.c_nvmlGpuInstancePlacement_t * MOST_PLACES)()
        if info is None:
            continue
        if nvml.ask("nvmlDeviceGetGpuInstancePossiblePlacements", card, info.id, places, ctypes.byref(count)) is None:
            continue
        starts = tuple(places[index].start for index in range(count.value))
        if starts:
            name = text(info.name).removeprefix("MIG ")
            yield Profile(name, info.id, places[0].size, starts, int(info.memorySizeMB))


def create(nvml: Nvml, card: Any, placed: Sequence[Placed]) -> None:
    """Make them all, or none.

    Raises:
        UnavailableError: the driver refuses.
    """
    made, computing = [], []
    try:
        for each in placed:
            place = nvml.module.c_nvmlGpuInstancePlacement_t(each.start, each.profile.size)
            instance = nvml.module.nvmlDeviceCreateGpuInstanceWithPlacement(card, each.profile.id, ctypes.byref(place))
            made.append(instance)
            computing.append(fill(nvml, instance))
    except nvml.error as error:
        for compute in computing:  # made here a moment ago: nothing can run on them yet
            nvml.ask("nvmlComputeInstanceDestroy", compute)
        for instance in made:
            nvml.ask("nvmlGpuInstanceDestroy", instance)
        raise UnavailableError(
            f"the driver refuses ({error})", "run the server as root, or divide it by hand"
        ) from error


def fill(nvml: Nvml, instance: Any) -> Any:
    """Make the compute instance that takes all of a GPU instance; returns it.

    That is the one with the most multiprocessors: a GPU instance with one slice and the memory of two (``1g.35gb``) has
    more of them than the usual compute instance of one slice, and a kind of its own that takes them all.

    Raises:
        NVMLError: the driver refuses.
    """
    module = nvml.module
    shared = module.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    asked = (
        nvml.ask("nvmlGpuInstanceGetComputeInstanceProfileInfo", instance, number, shared)
        for number in range(module.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
    )
    sizes = {info.id: info.multiprocessorCount for info in asked if info is not None}
    return module.nvmlGpuInstanceCreateComputeInstance(instance, max(sizes, key=sizes.__getitem__, default=0))
