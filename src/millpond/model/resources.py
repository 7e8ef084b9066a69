"""What a task asks for, and amounts that quotas count.

Units everywhere: GPU share in milli (1000 = one card), CPU in milli-cores, memory in MiB.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.model.errors import InvalidInputError

CARD_MILLI = 1000
"""The compute of one whole card."""

SHARE_OF_CARD = -1
"""``SliceRequest.memory_mib``: take the same part of the chosen card's memory as of its compute."""


@dataclass(frozen=True, slots=True)
class SliceRequest:
    """What a task wants of each of its devices.

    Attributes:
        compute_milli: guaranteed compute, 0..1000; 0 is a slice by memory alone, 1000 a whole card.
        memory_mib: device memory, or ``SHARE_OF_CARD``.
        limit_milli: the most compute it may use when others are idle, ``compute_milli``..1000.
    """

    compute_milli: int = CARD_MILLI
    memory_mib: int = SHARE_OF_CARD
    limit_milli: int = CARD_MILLI

    def __post_init__(self) -> None:
        if not 0 <= self.compute_milli <= CARD_MILLI:
            raise InvalidInputError(
                f"a slice of {self.compute_milli} milli of a card", "ask for 0 to 1000 milli of each card"
            )
        if not self.compute_milli <= self.limit_milli <= CARD_MILLI:
            raise InvalidInputError(
                f"a compute limit of {self.limit_milli} milli beside a guarantee of {self.compute_milli}",
                "the limit lies between the guarantee and 1000",
            )
        if self.memory_mib < SHARE_OF_CARD or (self.compute_milli == 0 and self.memory_mib <= 0):
            raise InvalidInputError(
                f"a slice of {self.memory_mib} MiB with {self.compute_milli} milli of compute",
                "a slice without compute names its memory",
            )


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """What one task needs on its node.

    Attributes:
        devices: number of devices, 0 for CPU work. More than one means whole cards.
        slice: what it takes of each device.
        models: allowed device models; empty means any.
        extras: named extra resources (RDMA cards, local disk, licences) as sorted (name, amount) pairs.
    """

    cpu_milli: int = 1000
    memory_mib: int = 1024
    devices: int = 0
    slice: SliceRequest = SliceRequest()
    models: tuple[str, ...] = ()
    extras: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        for name, value in (
            ("CPU", self.cpu_milli),
            ("memory", self.memory_mib),
            ("device count", self.devices),
        ):
            if value < 0:
                raise InvalidInputError(f"a negative {name} ({value})", "ask for zero or more")
        if self.devices > 1 and self.slice.compute_milli != CARD_MILLI:
            raise InvalidInputError(
                f"{self.slice.compute_milli} milli of each of {self.devices} cards",
                "a fraction is taken of one card; ask for one card or for whole cards",
            )
        if any(amount < 0 for _, amount in self.extras):
            raise InvalidInputError(f"a negative extra resource {self.extras}", "ask for zero or more")

    @property
    def gpu_milli(self) -> int:
        """Guaranteed compute over all devices."""
        return self.devices * self.slice.compute_milli

    @property
    def card_mib(self) -> int:
        """Device memory that it names, over all devices; a whole card has all of its own, whatever that is."""
        part = self.slice
        is_by_share = part.memory_mib == SHARE_OF_CARD or part.compute_milli == CARD_MILLI
        return 0 if is_by_share else self.devices * part.memory_mib

    @property
    def card_share_milli(self) -> int:
        """The part of its devices of which it takes the memory by share, in milli of cards."""
        part = self.slice
        is_by_share = part.memory_mib == SHARE_OF_CARD or part.compute_milli == CARD_MILLI
        return self.gpu_milli if is_by_share else 0


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum of resources, as quotas and usage count them.

    Attributes:
        models: how much of ``gpu_milli`` is of cards of each model, by name, where limits or guarantees are about
            cards by what they are; in a limit, the most of each.
        card_mib: memory of cards. Of what is on no card yet that which it names alone;
        card_share_milli: beside it, of how many milli of cards it takes the memory, whatever that is.
    """

    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    models: tuple[tuple[str, int], ...] = ()
    card_mib: int = 0
    card_share_milli: int = 0

    @property
    def has_cards(self) -> bool:
        """Whether it is about cards, or memory of them."""
        return bool(self.gpu_milli or self.card_mib)

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.gpu_milli + other.gpu_milli,
            self.cpu_milli + other.cpu_milli,
            self.memory_mib + other.memory_mib,
            _together(self.models, other.models, 1) if self.models or other.models else (),
            self.card_mib + other.card_mib,
            self.card_share_milli + other.card_share_milli,
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            self.gpu_milli - other.gpu_milli,
            self.cpu_milli - other.cpu_milli,
            self.memory_mib - other.memory_mib,
            _together(self.models, other.models, -1) if self.models or other.models else (),
            self.card_mib - other.card_mib,
            self.card_share_milli - other.card_share_milli,
        )


def _together(
    some: tuple[tuple[str, int], ...], others: tuple[tuple[str, int], ...], sign: int
) -> tuple[tuple[str, int], ...]:
    """Amounts by name, with (``sign`` -1: without) others; those of nothing are left out."""
    sums = dict(some)
    for name, milli in others:
        sums[name] = sums.get(name, 0) + sign * milli
    return tuple(sorted((name, milli) for name, milli in sums.items() if milli))
