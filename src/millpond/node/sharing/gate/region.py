"""The files of one slice, from the agent's side.

Tasks can write two of the three, and cut them short: nothing here maps them, and whatever is read is held against its
size. What a process is, and whether it lives, the kernel says: each holds locks on bytes of the usage file.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from millpond.model.errors import UnavailableError
from millpond.model.sharing import ShareClass
from millpond.model.units import MIB
from millpond.node.sharing.gate import layout

CONTROL, USAGE, CARD = "control", "usage", "card"
SHARED = "shared"
"""Folder of a slice that has the card file in it: a sandbox shows what is put there later, but no other file."""
WHOLE_MILLI = 1000

_MEMBERS = "members"
_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux
_NEW_CARD = layout.Card(magic=layout.MAGIC, version=layout.VERSION, members=layout.MEMBERS)
_S = TypeVar("_S", bound=ctypes.Structure)


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What the gate holds a slice to. All of it can be changed while the task runs.

    Attributes:
        cap_mib: device memory; 0 for no cap.
        guarantee_milli: share of the device's time when others of its class want it too.
        limit_milli: the most when they do not; 1000 for no limit.
        context_mib: what a context counts for, as the driver takes memory for it that no call asks for.
        in_flight_us: work in flight while a higher class is about, in microseconds of the device; 0 for any amount.
        floor_milli: the share that an active higher class leaves all the same.
        refuse_managed: whether managed memory is refused; with it a process cannot be moved off its device.
        uuid: the device, as NVML spells it; only of this one NVML then shows the slice. Empty: of all.
        paused: launches are held back; what is queued on the device goes on, and memory stays.
        uncounted_bytes: device memory of the slice's processes that no call asked for, as code and the driver's own
            tables; counts against the cap. See ``GateRegion.match_driver``.
    """

    cap_mib: int
    guarantee_milli: int = WHOLE_MILLI
    limit_milli: int = WHOLE_MILLI
    share_class: ShareClass = ShareClass.NORMAL
    context_mib: int = 0
    in_flight_us: int = 0
    floor_milli: int = 0
    refuse_managed: bool = False
    uuid: str = ""
    paused: bool = False
    uncounted_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GateUsage:
    """What a slice uses, by its own count: nothing may rest on it alone.

    Attributes:
        processes: those that live, by their pids as the agent sees them. One that closed the gate's files is missing
            until it looks after them, a tenth of a second later if it has work on the device.
        used_bytes: of all that live.
        launches, busy_ns, denials: since the slice was made, with those of processes that ended.
        unmeasured: launches whose time was estimated.
        turn_timeouts: turns that were taken because they were not passed on, or that never came.
        waited_ns: for which launches were held back.
    """

    processes: Mapping[int, layout.Slot]
    used_bytes: int
    launches: int
    busy_ns: int
    denials: int
    unmeasured: int
    turn_timeouts: int
    waited_ns: int


class GateRegion:
    """One task's slice of one device: ``folder`` has its three files, ``card_folder`` what its neighbours share.

    Use ``create`` or ``open``.
    """

    def __init__(self, folder: Path, card_folder: Path, member: int, settings: GateSettings) -> None:
        self.folder = folder
        self.settings = settings
        self._card_folder = card_folder
        self._control = _control(member, settings)
        self._files = {name: os.open(folder / name, os.O_RDWR | os.O_CLOEXEC) for name in (CONTROL, USAGE)}

    @classmethod
    def create(cls, folder: Path, card_folder: Path, settings: GateSettings) -> GateRegion:
        """Make the files. Made again for the same folder, the slice keeps its place on the card and what it counted.

        Whoever the task's programs become may write what they count: only the agent and who gets it by a mount enters
        the folder, so it has to lie where nobody else does.

        Raises:
            UnavailableError: the card has no more places.
        """
        folder.mkdir(parents=True, exist_ok=True)
        card = _make_card(card_folder)
        member = _take_place(card_folder, folder)
        usage = layout.TaskUsage(magic=layout.MAGIC, version=layout.VERSION)
        if not _is_whole(folder / USAGE, bytes(usage)):
            _write(folder / USAGE, bytes(usage), 0o666)
        if not (folder / SHARED / CARD).exists():
            _link(card, folder)
        _write(folder / CONTROL, bytes(_control(member, settings)), 0o644)
        region = cls(folder, card_folder, member, settings)
        region._announce()
        return region

    @classmethod
    def open(cls, folder: Path, cards: Path) -> GateRegion | None:
        """The slice as an agent before this one left it; None when there is none, or its files are damaged.

        Args:
            cards: with the folders of all cards, by their UUIDs.
        """
        try:
            control = _read(layout.SliceControl, (folder / CONTROL).read_bytes())
        except OSError:
            return None
        if control.magic != layout.MAGIC or control.version != layout.VERSION:
            return None
        settings = _settings(control)
        # Two while it moves; the control words may have been changed by a task and decide nothing but which of them.
        places = [(each, place) for each in cards.iterdir() if (place := _place_of(each, folder)) is not None]
        if not places:
            return None
        card_folder, member = next((each for each in places if each[0].name == settings.uuid), places[0])
        for other in places:
            if other[0] != card_folder:
                _leave(*other)
        region = cls(folder, card_folder, member, settings)
        region._control.cards = control.cards
        return region

    def move(self, card_folder: Path, uuid: str) -> None:
        """Give the slice a place on another card and give up its own; its processes follow with their next launch.

        Raises:
            UnavailableError: that card has no more places.
        """
        card, left = _make_card(card_folder), (self._card_folder, int(self._control.member))
        member = _take_place(card_folder, self.folder)
        _link(card, self.folder)
        self._card_folder, self.settings = card_folder, replace(self.settings, uuid=uuid)
        self._control = _control(member, self.settings, self._control.cards + 1)
        self._write_control()
        self._announce()
        _leave(*left)

    def set(self, **changes: int | bool | ShareClass) -> None:
        """Change settings by name; in force from the next launch or allocation on."""
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        self._control = _control(self._control.member, self.settings, self._control.cards)
        self._write_control()
        self._announce()

    def match_driver(self, driver_bytes: int, charged_bytes: int) -> None:
        """Count against the cap what the driver holds for the slice beyond what its processes were charged.

        Args:
            driver_bytes: of all its processes on the device, as NVML says.
            charged_bytes: ``usage().used_bytes`` as read right before ``driver_bytes``. If it has changed since, the
                two cannot be compared, and what was set before stays.
        """
        uncounted = max(driver_bytes - charged_bytes, 0)
        if uncounted != self.settings.uncounted_bytes and self.usage().used_bytes == charged_bytes:
            self.set(uncounted_bytes=uncounted)

    def usage(self) -> GateUsage:
        """What the task's processes count, with their pids as the kernel shows them here."""
        usage = self._usage()
        alive = [(self._holder(index), slot) for index, slot in enumerate(usage.slot) if slot.pid]
        return GateUsage(
            processes={pid: slot for pid, slot in alive if pid},
            used_bytes=sum(slot.used_bytes for index, slot in enumerate(usage.slot) if slot.pid and self._lives(index)),
            launches=usage.past_launches + sum(slot.launches for _, slot in alive),
            busy_ns=usage.past_busy_ns + sum(slot.busy_ns for _, slot in alive),
            denials=usage.past_denials + sum(slot.denials for _, slot in alive),
            unmeasured=usage.past_unmeasured + sum(slot.unmeasured for _, slot in alive),
            turn_timeouts=usage.past_turn_timeouts + sum(slot.turn_timeouts for _, slot in alive),
            waited_ns=usage.past_waited_ns + sum(slot.waited_ns for _, slot in alive),
        )

    def reap(self) -> int:
        """Free what processes held that died; says how many. The gate does so too, when memory runs out."""
        usage, reaped = self._usage(), 0
        for index, slot in enumerate(usage.slot):
            if (slot.used_bytes or slot.in_flight) and self._lock(index):
                for name in ("used_bytes", "claimed_bytes", "in_flight", "outstanding_ns"):
                    at = (
                        layout.TaskUsage.slot.offset
                        + index * ctypes.sizeof(layout.Slot)
                        + getattr(layout.Slot, name).offset
                    )
                    os.pwrite(self._files[USAGE], bytes(8), at)
                self._unlock(index)
                reaped += 1
        return reaped

    def verify(self) -> bool:
        """Whether the control words are what the agent wrote; they are written anew where they are not."""
        wanted = bytes(self._control)
        if os.pread(self._files[CONTROL], len(wanted) + 1, 0) == wanted:
            return True
        self._write_control()
        return False

    def verify_card(self) -> bool:
        """Whether the card's file names its slices and their classes as the agents wrote it; put right where not.

        Any task on the card can write there: a slice that does not exist would have the others yield to it.
        """
        own, present = int(self._control.member), self.settings.share_class.rank + 1
        header = bytes(_NEW_CARD)[: layout.Card.reserved.offset]
        listed = {int(name) for name in os.listdir(self._card_folder / _MEMBERS)}  # noqa: PTH208 - names alone
        file = os.open(self._card_folder / CARD, os.O_RDWR | os.O_CLOEXEC)
        try:
            card = _read(layout.Card, os.pread(file, ctypes.sizeof(layout.Card), 0))
            damaged = bytes(card)[: len(header)] != header
            if damaged:
                os.pwrite(file, header, 0)
            wrong = {number for number in range(layout.MEMBERS) if number not in listed and card.member[number].present}
            for number in wrong:
                os.pwrite(file, bytes(ctypes.sizeof(layout.CardMember)), _member_at(number))
        finally:
            os.close(file)
        if card.member[own].present != present:
            wrong.add(own)
            self._announce()
        return not wrong and not damaged

    def close(self) -> None:
        """The slice is over: its place on the card is free, its files stay."""
        _leave(self._card_folder, self._control.member)
        self.detach()

    def detach(self) -> None:
        """Forget the slice without ending it."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _write_control(self) -> None:
        wanted = bytes(self._control)
        os.pwrite(self._files[CONTROL], wanted, 0)
        os.ftruncate(self._files[CONTROL], len(wanted))

    def _announce(self) -> None:
        """Show the neighbours that the slice is there, and its class."""
        card = os.open(self._card_folder / CARD, os.O_RDWR | os.O_CLOEXEC)
        present = self.settings.share_class.rank + 1
        os.pwrite(card, struct.pack("<I", present), _member_at(self._control.member))
        os.close(card)

    def _usage(self) -> layout.TaskUsage:
        return _read(layout.TaskUsage, os.pread(self._files[USAGE], ctypes.sizeof(layout.TaskUsage), 0))

    def _holder(self, slot: int) -> int:
        """The process that lives in a slot; 0 for none."""
        kind, pid = self._ask(fcntl.F_GETLK, slot)
        return 0 if kind == fcntl.F_UNLCK else pid

    def _lives(self, slot: int) -> bool:
        return bool(self._holder(slot)) or self._ask(fcntl.F_OFD_GETLK, layout.LIVE_LOCK + slot)[0] != fcntl.F_UNLCK

    def _ask(self, command: int, byte: int, kind: int = fcntl.F_WRLCK) -> tuple[int, int]:
        """Kind and process of a lock on a byte, after a command about it."""
        asked = _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0)
        answer, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(self._files[USAGE], command, asked))
        return int(answer), int(pid)

    def _lock(self, slot: int) -> bool:
        """Whether nobody lives in a slot, which is then kept free."""
        try:
            self._ask(fcntl.F_SETLK, slot)
            self._ask(fcntl.F_OFD_SETLK, layout.LIVE_LOCK + slot)
        except OSError:
            self._unlock(slot)
            return False
        return True

    def _unlock(self, slot: int) -> None:
        self._ask(fcntl.F_SETLK, slot, fcntl.F_UNLCK)
        self._ask(fcntl.F_OFD_SETLK, layout.LIVE_LOCK + slot, fcntl.F_UNLCK)


def _control(member: int, settings: GateSettings, cards: int = 0) -> layout.SliceControl:
    return layout.SliceControl(
        magic=layout.MAGIC,
        version=layout.VERSION,
        member=member,
        cap_bytes=settings.cap_mib * MIB,
        context_bytes=settings.context_mib * MIB,
        guarantee_milli=settings.guarantee_milli,
        limit_milli=settings.limit_milli,
        share_class=settings.share_class.rank,
        paused=settings.paused,
        in_flight_us=settings.in_flight_us,
        floor_milli=settings.floor_milli,
        refuse_managed=settings.refuse_managed,
        cards=cards,
        uuid=settings.uuid.encode(),
        uncounted_bytes=settings.uncounted_bytes,
    )


def _settings(control: layout.SliceControl) -> GateSettings:
    return GateSettings(
        cap_mib=control.cap_bytes // MIB,
        guarantee_milli=control.guarantee_milli,
        limit_milli=control.limit_milli,
        share_class=tuple(ShareClass)[min(control.share_class, len(ShareClass) - 1)],
        context_mib=control.context_bytes // MIB,
        in_flight_us=control.in_flight_us,
        floor_milli=control.floor_milli,
        refuse_managed=bool(control.refuse_managed),
        uuid=control.uuid.decode(errors="replace"),
        paused=bool(control.paused),
        uncounted_bytes=control.uncounted_bytes,
    )


def _read(kind: type[_S], data: bytes) -> _S:
    """A structure from a file that may have been cut short."""
    return kind.from_buffer_copy(data[: ctypes.sizeof(kind)].ljust(ctypes.sizeof(kind), b"\0"))


def _write(path: Path, data: bytes, mode: int) -> None:
    """Writes in place, so that who has the file mapped goes on seeing it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)  # whatever the umask takes away
        file.write(data)


def _is_whole(path: Path, data: bytes) -> bool:
    """Whether a file is as long as what was to be written; an agent that was killed, or a full disk, leaves less."""
    return path.exists() and path.stat().st_size >= len(data)


def _member_at(member: int) -> int:
    return int(layout.Card.member.offset) + member * ctypes.sizeof(layout.CardMember)


def _make_card(card_folder: Path) -> Path:
    """The card file, writable by all who share the card, in a folder that only the agent may list or change."""
    path = card_folder / CARD
    (card_folder / _MEMBERS).mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_whole(path, bytes(_NEW_CARD)):
        _write(path, bytes(_NEW_CARD), 0o666)
    return path


def _link(card: Path, folder: Path) -> None:
    """Puts a card's file where the slice's processes look for it, in place of another card's if there is one."""
    shared = folder / SHARED
    shared.mkdir(mode=0o755, exist_ok=True)
    fresh = shared / f"{CARD}-to-be"
    fresh.unlink(missing_ok=True)
    os.link(card, fresh)
    fresh.replace(shared / CARD)


def _leave(card_folder: Path, member: int) -> None:
    """A place on a card is free again."""
    card = os.open(card_folder / CARD, os.O_RDWR | os.O_CLOEXEC)
    os.pwrite(card, bytes(ctypes.sizeof(layout.CardMember)), _member_at(member))
    os.close(card)
    (card_folder / _MEMBERS / str(member)).unlink(missing_ok=True)


def _places(card_folder: Path) -> dict[int, Path]:
    """Which slice has which place on the card, by the agent's own notes: those in the card file anybody can change."""
    return {int(note.name): Path(note.read_text()) for note in (card_folder / _MEMBERS).iterdir()}


def _place_of(card_folder: Path, folder: Path) -> int | None:
    try:
        places = _places(card_folder)
    except OSError:
        return None
    return next((member for member, taken_by in places.items() if taken_by == folder.absolute()), None)


def _take_place(card_folder: Path, folder: Path) -> int:
    """The slice's own place, or a free one; that of a slice whose files are gone, or were never whole, is free."""
    places = _places(card_folder)
    own = _place_of(card_folder, folder)
    if own is not None:
        return own
    for member in range(layout.MEMBERS):
        if member in places and _is_whole(places[member] / CONTROL, bytes(layout.SliceControl())):
            continue
        (card_folder / _MEMBERS / str(member)).write_text(str(folder.absolute()))
        return member
    raise UnavailableError(
        f"the device is shared by {layout.MEMBERS} tasks already", "wait until one of them ends, or use another device"
    )
