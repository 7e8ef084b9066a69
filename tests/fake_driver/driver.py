"""One set of pretended cards for one test: their numbers, faults, and what programs did to them."""

from __future__ import annotations

import ctypes
import os
import time
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path

from fake_driver.building import build
from fake_driver.program import Program

MIB = 1024 * 1024
PATIENCE_S = 120


class ProcessState(IntEnum):
    """As ``cuCheckpointProcessGetState`` numbers them."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3
    CHECKPOINTING = 4
    RESTORING = 5


class Action(IntEnum):
    """What a planned fault does to the call that it strikes."""

    RETURN = 0
    HANG = 1
    KILL_CALLER = 2
    KILL_TARGET = 3
    FAIL_TARGET = 4


class Use(IntFlag):
    """What keeps a process from being checkpointed."""

    MANAGED = 1
    MPS = 2
    MIG = 4
    IPC = 8
    GRAPHICS = 16


@dataclass(frozen=True, slots=True)
class Card:
    """One pretended card."""

    index: int
    uuid: str
    memory_mib: int


class FakeDriver:
    """Cards in a state file; see README.md beside this file.

    Args:
        folder: where the state file goes.
        cards: how many.
        model: their name, as the driver says it.
    """

    def __init__(self, folder: Path, cards: int = 1, memory_mib: int = 4096, model: str = "NVIDIA H200") -> None:
        self.libraries = build()
        self.path = folder / "fake-driver-state"
        self._control = _control(self.libraries)
        self._control.fake_detach()
        if error := self._control.fake_create(os.fsencode(self.path)):
            raise OSError(error, os.strerror(error), str(self.path))
        self.cards: list[Card] = []
        for _ in range(cards):
            self.add_card(memory_mib, model)

    def add_card(self, memory_mib: int, model: str = "NVIDIA H200", uuid: str = "") -> Card:
        """One more card; the UUID is made of its number when none is given."""
        number = len(self.cards)
        uuid = uuid or f"GPU-{number + 1:08x}-0000-4000-8000-{number + 1:012x}"
        pci = f"00000000:{number + 1:02X}:00.0"
        index = self._control.fake_add_device(model.encode(), uuid.encode(), pci.encode(), memory_mib * MIB)
        if index < 0:
            raise ValueError("the pretended driver holds no more cards")
        card = Card(index, uuid, memory_mib)
        self.cards.append(card)
        return card

    def env(self, *visible: Card) -> dict[str, str]:
        """What a program needs in its environment to meet these cards, and only those named if any are."""
        found = {"LD_LIBRARY_PATH": str(self.libraries), "MILLPOND_FAKE_DRIVER": str(self.path)}
        if visible:
            found["CUDA_VISIBLE_DEVICES"] = ",".join(card.uuid for card in visible)
        return found

    def set(self, name: str, value: int) -> None:
        """A number of the whole driver: ``time_slice_ns``, ``switch_ns`` (from one context to another), ``launch_ns``
        (of the thread that launches), ``context_bytes``, ``host_bytes``, ``bytes_per_second``,
        ``checkpoint_fixed_ns``, ``driver_version``, ``seed``, ``module_bytes``, ``pool_piece_bytes``,
        ``copy_bytes_per_ms`` (of copies and fills within a card's memory; 0 for in no time), or ``own_addresses`` (1:
        ``cuGetProcAddress`` hands out other addresses than the library exports).
        """
        if self._control.fake_set(name.encode(), value) != 0:
            raise KeyError(name)

    def take_time(self) -> None:
        """From now on time passes only by ``pass_time``: for the cards, and for all programs with ``clock`` loaded
        before the C library. Whoever computes takes none, so a busy machine makes nothing late."""
        self._control.fake_take_time()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, from when programs that waited for an order have begun with what they were sent; it stands
        still again as soon as it has, and what anybody does at that instant is done."""
        end = time.monotonic() + PATIENCE_S
        while any(program.has_unread_orders() and self.waits_for_orders(program) for program in Program.living):
            if time.monotonic() > end:
                raise TimeoutError(f"a program has not begun with what it was sent for {PATIENCE_S} s")
            os.sched_yield()
        if self._control.fake_pass_time(round(seconds * 1e9), PATIENCE_S) != 0:
            raise TimeoutError(f"a program that shares this time has not rested for {PATIENCE_S} s")

    def kill(self, program: Program) -> None:
        """Ends a program by SIGKILL. Those who share its time go on, which they do not where it ends in another way."""
        program.__exit__()
        self._control.fake_drop(program.pid)

    def waits_for_orders(self, program: Program) -> bool:
        """Whether it takes no part in the time that a test lets pass until it has read its next order."""
        return bool(self._control.fake_reads(program.pid))

    @property
    def clock(self) -> Path:
        """To be named in ``LD_PRELOAD`` of whatever is to live in the time that a test lets pass."""
        return self.libraries / "libfakeclock.so"

    def set_driver_name(self, name: str) -> None:
        """The driver's version as NVML says it, such as ``580.95.05``."""
        self._control.fake_set_driver_name(name.encode())

    def set_card(self, card: Card, **numbers: int) -> None:
        """Numbers of one card, by their names in ``source/knobs.h`` in small letters: ``lost=1``."""
        for name, value in numbers.items():
            if self._control.fake_set_knob(card.index, name.encode(), value) != 0:
                raise KeyError(name)

    def number_of(self, card: Card, name: str) -> int:
        """What a number of the card is now."""
        return int(self._control.fake_knob(card.index, name.encode()))

    def link(self, card: Card, link: int, peer: Card | None = None, kind: int = 0) -> None:
        """Joins a card's NVLink to another card, or with kind 2 to a switch."""
        self._control.fake_link(card.index, link, kind, -1 if peer is None else peer.index)

    def inject_xid(self, card: Card, xid: int) -> None:
        """An XID event, seen by whoever waits for events of this card."""
        self._control.fake_inject_xid(card.index, xid)

    def plan(
        self,
        call: str,
        action: Action = Action.RETURN,
        result: int = 0,
        pid: int = 0,
        card: Card | None = None,
        *,
        skip: int = 0,
        times: int = 0,
        one_in: int = 0,
    ) -> None:
        """A fault for a call by its exported name.

        ``during checkpoint`` and ``during restore`` are calls too: the middle of the transition; ``device map`` is any
        restore by a map of cards.

        Args:
            result: what the call returns.
            pid: only for calls by, or about, this process.
            skip: calls let through first.
            times: how often it strikes; 0 for ever.
            one_in: strikes one call in so many, drawn from the driver's ``seed``.
        """
        device = -1 if card is None else card.index
        self._control.fake_plan(call.encode(), pid, device, int(action), result, skip, times, one_in)

    def clear_plan(self) -> None:
        """Forgets all planned faults; a call that hangs already goes on hanging."""
        self._control.fake_clear_plan()

    def mark(self, pid: int, uses: Use) -> None:
        """Makes a process one that cannot be checkpointed."""
        if self._control.fake_mark(pid, int(uses)) != 0:
            raise ProcessLookupError(pid)

    def break_mps(self) -> None:
        """One client of MPS faults, and so they all do."""
        self._control.fake_break_mps()

    def state_of(self, pid: int) -> ProcessState | None:
        """None for a process that has not called ``cuInit``, or is gone."""
        state = self._control.fake_state_of(pid)
        return None if state < 0 else ProcessState(state)

    def used_bytes(self, card: Card) -> int:
        """Memory taken on the card, contexts included."""
        return int(self._control.fake_used_bytes(card.index))

    def used_host_bytes(self) -> int:
        """Host memory that holds what was checkpointed."""
        return int(self._control.fake_used_host_bytes())

    def bytes_of(self, pid: int, card: Card) -> int:
        """What a process has on the card, its contexts included."""
        return int(self._control.fake_bytes_of(pid, card.index))

    def busy_ns_of(self, pid: int, card: Card) -> int:
        """Time for which the card has executed a process's kernels."""
        return int(self._control.fake_busy_ns_of(pid, card.index))

    def launches_of(self, pid: int) -> int:
        """Launches that reached the driver."""
        return int(self._control.fake_launches_of(pid))

    def pending_ns_of(self, pid: int) -> int:
        """Device time of what a process has queued and the card has not executed."""
        return int(self._control.fake_pending_ns_of(pid))


def _control(libraries: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(libraries / "libfakecontrol.so"))
    for name in ("used_bytes", "used_host_bytes", "bytes_of", "busy_ns_of", "launches_of", "pending_ns_of"):
        getattr(library, f"fake_{name}").restype = ctypes.c_uint64
    library.fake_knob.restype = ctypes.c_int64
    library.fake_add_device.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64]
    library.fake_pass_time.argtypes = [ctypes.c_uint64, ctypes.c_int]
    library.fake_set.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
    library.fake_set_knob.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int64]
    return library
