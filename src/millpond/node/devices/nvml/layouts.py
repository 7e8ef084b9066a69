"""NVIDIA cards in MIG mode, divided otherwise while the server runs: what is there goes, what is wanted is made.

Both are the driver's, which refuses to remove an instance that anybody uses; the mode of a card is never changed. What
was there before is made again if the driver refuses half-way. Needs root.

Source: NVIDIA, NVML API Reference, "Multi Instance GPU Management".
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from millpond.model.errors import UnavailableError
from millpond.model.hardware.card_layouts import CardLayout
from millpond.model.hardware.devices import Device
from millpond.node.devices.nvml.library import Nvml, instances_of
from millpond.node.sharing.mig import MOST_PLACES, Placed, Profile, create, fill, offered, plan


class NvidiaDivider:
    """Divides cards (``vendor.CardDivider``).

    Args:
        cards: handles of the cards by UUID, as they are now.
        describe: the card as a whole, by its handle; None where the driver does not tell.
    """

    def __init__(
        self, nvml: Nvml, cards: Callable[[], Mapping[str, Any]], describe: Callable[[Any], Device | None]
    ) -> None:
        self._nvml = nvml
        self._cards = cards
        self._describe = describe

    def layout(self, card: str, instances: Sequence[str]) -> CardLayout | None:
        """What the card would become; None when it is not in MIG mode, or gone.

        Raises:
            InvalidInputError: it offers no such profile, or they do not fit together.
        """
        handle = self._cards().get(card)
        whole = None if handle is None else self._describe(handle)
        if whole is None or instances_of(self._nvml, handle) is None:
            return None
        placed = plan(instances, tuple(offered(self._nvml, handle)))
        return CardLayout(tuple(instances), tuple(each.profile.device_of(whole) for each in placed))

    def divide(self, card: str, instances: Sequence[str]) -> None:
        """Remove what the card is divided into, and make these.

        Raises:
            UnavailableError: it is used, or gone, or the driver refuses; then it is as it was, as far as the driver
                lets it.
            InvalidInputError: as ``layout``.
        """
        handle = self._cards().get(card)
        if handle is None:
            raise UnavailableError("the driver does not list it any more")
        self._require_unused(handle)
        profiles = tuple(offered(self._nvml, handle))
        placed = plan(instances, profiles)
        before: list[Placed] = []
        try:
            before += [each for _, each in self._present(handle, profiles)]
            self._clear(handle, profiles)
            create(self._nvml, handle, placed)
        except UnavailableError:
            self._restore(handle, profiles, before)
            raise
        except self._nvml.error as error:
            self._restore(handle, profiles, before)
            raise UnavailableError(f"the driver refuses ({error})", "run the server as root") from error

    def _require_unused(self, card: Any) -> None:
        for handle in (card, *(instances_of(self._nvml, card) or ())):
            running = self._nvml.ask("nvmlDeviceGetComputeRunningProcesses", handle)
            if running:
                raise UnavailableError(f"it is used by process {running[0].pid}", "wait until that has ended")

    def _present(self, card: Any, profiles: Sequence[Profile]) -> Iterator[tuple[Any, Placed]]:
        """The instances of a card, with their places."""
        nvml = self._nvml
        for profile in profiles:
            count = ctypes.c_uint(0)
            found = (nvml.module.c_nvmlGpuInstance_t * MOST_PLACES)()
            nvml.module.nvmlDeviceGetGpuInstances(card, profile.id, found, ctypes.byref(count))
            for instance in found[: count.value]:
                yield instance, Placed(profile, nvml.module.nvmlGpuInstanceGetInfo(instance).placement.start)

    def _clear(self, card: Any, profiles: Sequence[Profile]) -> None:
        """Remove all instances: an instance goes once the compute instances in it are gone."""
        module = self._nvml.module
        for handle in instances_of(self._nvml, card) or ():
            instance = module.nvmlDeviceGetGpuInstanceById(card, module.nvmlDeviceGetGpuInstanceId(handle))
            number = module.nvmlDeviceGetComputeInstanceId(handle)
            module.nvmlComputeInstanceDestroy(module.nvmlGpuInstanceGetComputeInstanceById(instance, number))
        for instance, _ in list(self._present(card, profiles)):
            module.nvmlGpuInstanceDestroy(instance)

    def _restore(self, card: Any, profiles: Sequence[Profile], before: Sequence[Placed]) -> None:
        """Make again what is missing of what there was; what the driver refuses of that is left out."""
        nvml = self._nvml
        there: dict[int, Any] = {}
        for profile in profiles:
            try:
                there |= {placed.start: instance for instance, placed in self._present(card, (profile,))}
            except nvml.error:
                continue
        for each in before:
            place = nvml.module.c_nvmlGpuInstancePlacement_t(each.start, each.profile.size)
            arguments = (card, each.profile.id, ctypes.byref(place))
            instance = there.get(each.start) or nvml.ask("nvmlDeviceCreateGpuInstanceWithPlacement", *arguments)
            if instance is not None:
                with contextlib.suppress(nvml.error):  # one that has its compute instance still takes no second
                    fill(nvml, instance)
