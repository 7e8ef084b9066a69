"""The sections ``pools``, ``nodes`` and ``mig`` of the configuration: which machines there are, how they are shared."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from millpond.model.amounts import seconds_text
from millpond.model.hardware.card_layouts import LayoutRule
from millpond.model.hardware.devices import SWAP_SHARE, Device
from millpond.model.hardware.nodes import DEFAULT_POOL, Node, Pool, SharingPolicy
from millpond.model.hardware.power import PowerRule, PowerSetting
from millpond.model.hardware.topology import LINK_MAPS
from millpond.model.sharing import EscapePolicy, MigLayout, ShareClass, SliceHold, SliceRules
from millpond.specs.config.power_saving import PowerSavingFile
from millpond.specs.errors import BadValueError, as_written, suggest
from millpond.specs.job.fields import Cpus, Duration, Extras, Memory, Name
from millpond.specs.job.windows import Windows, model_of
from millpond.specs.validation import Strict

Registries = list[Annotated[str, Field(min_length=1, max_length=300), AfterValidator(lambda text: text.rstrip("/"))]]
"""Registries and repositories, such as ``nvcr.io`` and ``docker.io/pytorch``."""


class SlicesFile(Strict):
    """Rules for tasks with less than a whole device.

    Attributes:
        escapes: what becomes of a task that uses a device beyond its part.
        enforce: with ``required``, a task whose part nothing would enforce does not start; with ``preferred`` it starts
            and its history says so.
        hold: ``mps`` has the tasks of one user on one card run at the same time, under NVIDIA's service.
        floor: the part of a device's time that lower classes have though a higher one never rests.
    """

    escapes: Literal["report", "suspend", "kill"] = "report"
    enforce: Literal["preferred", "required"] = "required"
    hold: Literal["gate", "mps"] = "gate"
    floor: float = Field(default=0.0, ge=0.0, le=0.5)

    def rules(self) -> SliceRules:
        """The model's form."""
        floor_milli = round(self.floor * 1000)
        return SliceRules(EscapePolicy(self.escapes), self.enforce == "required", SliceHold(self.hold), floor_milli)


Profile = Annotated[str, Field(min_length=1, max_length=40)]
"""The name of a profile of NVIDIA's MIG."""


class MigFile(Strict):
    """What empty cards in MIG mode are divided into when the server starts.

    Attributes:
        instances: names of profiles, such as ``3g.71gb``; the same for each card.
        create: it is done; left out: the server only says what it would do.
    """

    instances: list[Profile] = Field(min_length=1, max_length=16)
    create: bool = False

    def layout(self) -> MigLayout:
        """The model's form."""
        return MigLayout(tuple(self.instances), self.create)


class LayoutsFile(Strict):
    """How idle cards in MIG mode may be divided while the server runs, for jobs that wait.

    Attributes:
        layouts: each a list of profiles, such as ``[3g.71gb, 3g.71gb]``; the profile of the whole card joins it again.
        cards: numbers of the cards on each node; left out: all that are in MIG mode.
        stay: after a change a card stays as it is for so long.
    """

    layouts: list[Annotated[list[Profile], Field(min_length=1, max_length=16)]] = Field(min_length=1, max_length=16)
    cards: list[Annotated[int, Field(ge=0, le=1_000)]] | None = None
    stay: Annotated[Duration, Field(ge=0)] = 600.0

    def rule(self) -> LayoutRule:
        """The model's form."""
        cards = None if self.cards is None else tuple(self.cards)
        return LayoutRule(tuple(map(tuple, self.layouts)), cards, self.stay)


class PowerSettingFile(Strict):
    """What devices are kept to; what is left out stays as the driver has it.

    Attributes:
        cap_w: the most power of each, in watts.
        clock_mhz: the most that what computes is clocked at.
    """

    cap_w: Annotated[float, Field(ge=1, le=10_000)] | None = None
    clock_mhz: Annotated[int, Field(ge=1, le=10_000)] | None = None

    def setting(self) -> PowerSetting:
        """The model's form."""
        return PowerSetting(self.cap_w, self.clock_mhz)


class PowerFile(PowerSettingFile):
    """What the devices of a pool are kept to.

    Attributes:
        classes: instead, while work of this class is on a device and none that goes before it.
    """

    classes: dict[Literal["online", "normal", "backfill"], PowerSettingFile] = Field(default={})

    def rule(self) -> PowerRule:
        """The model's form."""
        return PowerRule(self.setting(), {ShareClass(name): each.setting() for name, each in self.classes.items()})


def _turn(value: float) -> float:
    if 0 < value < 1:
        raise BadValueError(f"turns of {seconds_text(value)}", "a turn takes 1s or more; 0 for none")
    return value


class PoolFile(Strict):
    """A set of nodes with one sharing policy.

    Attributes:
        name: jobs name it as ``pool``.
        sharing: ``exclusive``: whole cards only; ``sliced``: parts of cards, never more than there is;
            ``overcommitted``: compute beyond 100 %.
        limit_factor: the compute limits of the parts of one card may add up to so many times the card.
        cpu_overcommit: the CPUs asked for on one node may add up to so many times its CPUs.
        slices: how tasks are held to their parts of devices.
        power: what its devices are kept to; left out: their power is never touched.
        mig: how its idle cards in MIG mode may be divided while the server runs, for jobs that wait; left out: never.
        save_energy: when its nodes are switched off while nobody needs them; left out: never.
        suspends: work may be asked to leave its cards without ending, and equals share full cards in turns.
        turn: how long a turn lasts, a second or more; 0: there are none.
        memory_overcommit: device memory of work on a card and of work swapped off it may add up to so many times the
            card's, where the pool ``suspends``; left out: to what the host memory set aside takes.
        longest_suspended: work that left for others and finds no room for so long is ended and waits for another run.
        lending_hours: when queues may borrow beyond their guarantees; left out: always.
        measured_growth: elastic jobs whose programs report steps grow where that makes them enough faster, and give
            cards that add least to jobs that wait.
        consolidates: running work that saves itself on notice is moved to other nodes so that whole nodes come free:
            for a job that finds no room although enough cards are free, and to be switched off.
        balances: running work with parts of cards is moved off cards that are busy for long: as it runs to another card
            of its node where the driver can, else by an end and a start if it saves itself on notice.
        packs: two jobs of whole cards that save themselves on notice share these while others wait, where both make
            steps fast enough side by side, as was measured; not where the pool ``suspends``.
        images: registries and repositories that its jobs' images may come from, beside the catalogue; left out: any
            that their queues may have.
    """

    instead = dict.fromkeys(
        ("node", "nodes", "machines", "hosts", "members"),
        "nodes name their pool: pretended ones by `pool` in the section `nodes`, those of Kubernetes by the label"
        " millpond.io/pool; a machine of its own is the pool default",
    )
    name: Name = DEFAULT_POOL
    sharing: Literal["exclusive", "sliced", "overcommitted"] = "sliced"
    limit_factor: Annotated[float, Field(ge=1, le=100)] = 1.0
    suspends: bool = False
    cpu_overcommit: Annotated[float, Field(ge=1, le=100)] = 1.0
    slices: SlicesFile = SlicesFile()
    power: PowerFile | None = None
    mig: LayoutsFile | None = None
    save_energy: PowerSavingFile | None = None
    turn: Annotated[Duration, Field(le=86_400), AfterValidator(_turn)] = 60.0
    memory_overcommit: Annotated[float, Field(ge=1, le=100)] | None = None
    longest_suspended: Annotated[Duration, Field(gt=0)] = 3_600.0
    lending_hours: Windows | None = None
    measured_growth: bool = False
    consolidates: bool = False
    balances: bool = False
    packs: bool = False
    images: Registries | None = None

    def pool(self) -> Pool:
        """The model's form."""
        power = PowerRule() if self.power is None else self.power.rule()
        caps_w = ((each, power.setting((each,)).cap_w) for each in ShareClass)
        return Pool(
            self.name,
            SharingPolicy(self.sharing),
            round(self.limit_factor * 1000),
            self.suspends,
            round(self.cpu_overcommit * 1000),
            self.turn,
            round((self.memory_overcommit or 0) * 1000),
            self.longest_suspended,
            model_of(self.lending_hours),
            self.measured_growth,
            self.consolidates,
            balances=self.balances,
            packs=self.packs,
            longest_boot_s=Pool().longest_boot_s if self.save_energy is None else self.save_energy.longest_boot,
            caps_w=tuple((each, cap_w) for each, cap_w in caps_w if cap_w is not None),
        )


def _link_map(value: Any) -> Any:
    if isinstance(value, str) and value not in LINK_MAPS:
        raise BadValueError(f"unknown link map {as_written(value)}", suggest(value, LINK_MAPS))
    return value


class NodeFile(Strict):
    """A pretended machine with ``devices`` pretended cards of one model.

    Attributes:
        name: of the machine.
        devices: cards.
        model: of all of them.
        cpus: CPU cores.
        memory: host memory.
        pool: that it belongs to.
        rack: where it stands; nodes of one rack are near each other.
        zone: where the rack stands.
        link_map: how its cards hang together, by the name of a known machine.
        extras: named extra resources.
        device_memory: of each card; left out: unknown.
        swap_memory: host memory for work that was swapped off the cards; left out: a part of ``memory``.
        remaps: work that was swapped off a card can come back on another card of the machine.
    """

    name: Name
    devices: Annotated[int, Field(ge=0, le=62)] = 0
    model: Annotated[str, Field(min_length=1, max_length=60)] = "V100"
    device_memory: Memory = 0
    cpus: Cpus = 64_000
    memory: Memory = 512 * 1024
    pool: Name = DEFAULT_POOL
    rack: str = ""
    zone: str = ""
    link_map: Annotated[str, BeforeValidator(_link_map)] = ""
    swap_memory: Memory | None = None
    remaps: bool = False
    extras: Extras = Field(default={})

    def node(self) -> Node:
        """The model's form, every device marked as pretended."""
        cards = tuple(
            Device(
                f"FAKE-{self.name}-{index}",
                index,
                "fake",
                self.model,
                self.device_memory,
                fake=True,
                remaps=self.remaps,
            )
            for index in range(self.devices)
        )
        return Node(
            self.name,
            self.cpus,
            self.memory,
            cards,
            pool=self.pool,
            rack_name=self.rack,
            zone_name=self.zone,
            link_map=self.link_map,
            swap_mib=self.memory // SWAP_SHARE if self.swap_memory is None else self.swap_memory,
            extras=tuple(sorted(self.extras.items())),
        )
