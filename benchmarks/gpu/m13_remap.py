"""Bringing a program back by a map of cards: the right one, one that names no card of this machine, one too short, and
where there are two cards one that leads to the other."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu import guard
from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.children import Child
from benchmarks.gpu.results import Verdict, held
from benchmarks.gpu.swapping import OUT, STEP_S, helper, move, state
from millpond.model.hardware.devices import DeviceHealth
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.devices.nvml.library import text
from millpond.node.sharing.helper import CheckpointHelper, DriverError, ProcessState
from millpond.node.sharing.helper_process import restore_arguments

_INVALID = "CUDA_ERROR_INVALID_VALUE"
_HELD_MIB = 64


def measure(bench: Bench) -> dict[str, Any]:
    """Wrong maps first: the program has to be on the host afterwards as before."""
    cards = _cards(bench)
    wrong = {**cards, next(iter(cards)): uuid.uuid4()}
    with helper(bench) as driver:
        child = bench.child()
        child.ask("hold", mib=_HELD_MIB)
        before = child.ask("checksum")
        move(driver, child.pid, *OUT)
        figures: dict[str, Any] = {"cards": len(cards), "partial": None}
        figures["wrong"] = _restore(child.pid, wrong), state(driver, child.pid)
        if len(cards) > 1:
            short = dict(list(cards.items())[:-1])
            figures["partial"] = _restore(child.pid, short), state(driver, child.pid)
        figures["identity"] = _restore(child.pid, cards), state(driver, child.pid)
        if figures["identity"][0] == "ok":
            move(driver, child.pid, "unlock")
            figures["equal"] = child.ask("checksum") == before
            figures["elsewhere"] = _elsewhere(bench, driver, child, before)
    return figures


def _elsewhere(bench: Bench, driver: CheckpointHelper, child: Child, before: Any) -> str | None:
    """As a live migration does it: onto another idle card of the model; None where there is none."""
    own = bench.device
    others = [each for each in NvidiaVendor().discover() if each.uuid != own.uuid and each.health is DeviceHealth.OK]
    other = next((each for each in others if each.model == own.model and not each.parent), None)
    if other is None:
        return None
    move(driver, child.pid, *OUT)
    try:
        driver.restore(child.pid, STEP_S, {own.uuid: other.uuid})
    except DriverError as error:
        return error.name
    move(driver, child.pid, "unlock")
    return "ok" if child.ask("checksum") == before else "memory did not come along"


def judge(figures: Mapping[str, Any]) -> Verdict:
    """With one card a map cannot be too short."""
    refused = (_INVALID, ProcessState.CHECKPOINTED)
    partial = figures["partial"]
    return held(
        (tuple(figures["identity"]) == ("ok", ProcessState.LOCKED), f"by the right map: {figures['identity'][0]}"),
        (figures.get("elsewhere") in (None, "ok"), f"onto another card: {figures.get('elsewhere')}"),
        (figures.get("equal", False), "memory did not come back as it was"),
        (tuple(figures["wrong"]) == refused, f"by a wrong map: {', '.join(figures['wrong'])}"),
        (partial is None or tuple(partial) == refused, f"by a map too short: {partial}"),
    )


def _cards(bench: Bench) -> dict[uuid.UUID, uuid.UUID]:
    """Every card that the driver has, onto itself."""
    found = {}
    for index in range(bench.nvml.module.nvmlDeviceGetCount()):
        handle = bench.nvml.module.nvmlDeviceGetHandleByIndex(index)
        card = uuid.UUID(text(bench.nvml.ask("nvmlDeviceGetUUID", handle)).removeprefix("GPU-"))
        found[card] = card
    return found


def _restore(pid: int, onto: Mapping[uuid.UUID, uuid.UUID]) -> str:
    binding = guard.cuda()
    (error,) = binding.cuInit(0)
    if not error.value:
        (error,) = binding.cuCheckpointProcessRestore(pid, restore_arguments(binding, onto))
    return "ok" if not error.value else str(error.name)


MEASUREMENT = Measurement(
    "m13_remap",
    "what maps of cards do when a program is brought back",
    "the right one works, onto another card too; wrong ones are refused and the program stays on the host",
    10,
    measure,
    judge,
)
