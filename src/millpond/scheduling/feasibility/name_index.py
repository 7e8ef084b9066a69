"""Numbers for the names of a cluster, and requests put into these numbers (``Shape``), as arrays and kernels want them.

Numbers are given in order of first use and never change, so that two schedulers that heard the same events mean the
same by them.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakValueDictionary

from millpond.model.errors import InconsistentStateError, InvalidInputError
from millpond.model.hardware.nodes import DEFAULT_POOL
from millpond.model.resources import CARD_MILLI, SHARE_OF_CARD, TaskRequest
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.placement.arrays import MODEL_LIMIT
from millpond.scheduling.placement.shapes import ANY_MODEL, MEMORY_BY_SHARE, NO_POOL, Shape

EXTRA_LIMIT = 8
"""How many kinds of named extra resources one cluster can have."""


class Names:
    """Numbers for names, in order of first use."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        for name in names:
            self.number(name)

    def number(self, name: str) -> int:
        """The number of ``name``, a new one if it was never seen."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number

    def known(self, name: str) -> int | None:
        """The number of ``name`` if it was seen."""
        return self._numbers.get(name)


class NameIndex:
    """The names of one cluster.

    Attributes:
        models: of devices; ``model`` gives new ones their numbers.
        extras: named extra resources; ``enter_extras`` gives new ones their numbers.
        shapes_version: rises when requests may mean other shapes than before.
    """

    def __init__(self) -> None:
        self.models = Names()
        self.pools = Names([DEFAULT_POOL])
        self.racks = Names()
        self.zones = Names()
        self.extras = Names()
        self._of_whole_cards: set[str] = set()
        self._shapes: WeakValueDictionary[tuple[TaskRequest, str], Shape] = WeakValueDictionary()
        self.shapes_version = 0

    def plain(self) -> dict[str, list[str]]:
        """All numbers given so far, as plain data: the name at each position."""
        tables = {"models": self.models, "pools": self.pools, "racks": self.racks, "zones": self.zones}
        return {kind: list(table.names) for kind, table in tables.items()} | {"extras": list(self.extras.names)}

    def restore(self, plain: dict[str, list[str]]) -> None:
        """Give the same names the same numbers again, before any node is added."""
        self.models, self.pools = Names(plain["models"]), Names(plain["pools"])
        self.racks, self.zones = Names(plain["racks"]), Names(plain["zones"])
        self.extras = Names(plain["extras"])
        self._forget_shapes()

    def copy_from(self, other: NameIndex) -> None:
        """Give the same names the same numbers, and know of the same pools, before anything is asked."""
        self._of_whole_cards = set(other._of_whole_cards)
        self.restore(other.plain())

    def model(self, name: str) -> int:
        """The number of a device model.

        Raises:
            InconsistentStateError: it is one more than a cluster can have.
        """
        number = self.models.known(name)
        if number is None:
            if len(self.models.names) >= MODEL_LIMIT:
                raise InconsistentStateError(f"more than {MODEL_LIMIT} device models in one cluster")
            number = self.models.number(name)
            self._forget_shapes()  # requests that name it mean it from now on
        return number

    def expect_models(self, models: Iterable[str]) -> None:
        """Give numbers to models that nodes will have, so that shapes made before those join mean them."""
        for model in models:
            self.model(model)

    def enter_extras(self, names: Iterable[str]) -> None:
        """Give numbers to extra resources.

        Raises:
            InvalidInputError: they are more than a cluster can have; none has got a number.
        """
        fresh = [name for name in dict.fromkeys(names) if self.extras.known(name) is None]
        room = EXTRA_LIMIT - len(self.extras.names)
        if len(fresh) > room:
            raise InvalidInputError(
                f"extra resource {fresh[room]!r} is one more than the {EXTRA_LIMIT} a cluster can name",
                "use fewer kinds of extra resources",
            )
        for name in fresh:
            self.extras.number(name)

    def give_whole_cards(self, pool: str, *, alone: bool) -> None:
        """A pool gives out whole cards alone, or also parts of them: no node takes what asks for another."""
        if alone != (pool in self._of_whole_cards):
            self._of_whole_cards ^= {pool}
            self._forget_shapes()

    def shape_of(self, request: TaskRequest, pool: str) -> Shape:
        """The request as kernels want it; equal requests give the same object."""
        key = (request, pool)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._make_shape(request, pool)
        return shape

    def shapes_of(self, demand: RequestClass) -> tuple[Shape, ...]:
        """What one task of each role of a demand asks of a node.

        Raises:
            InvalidInputError: it names more kinds of extra resources than a cluster can have; none has got a number.
        """
        if demand.shapes_at != self.shapes_version:
            self.enter_extras(name for role in demand.roles for name, _ in role.request.extras)
            demand.shapes = tuple(self.shape_of(role.request, demand.pool) for role in demand.roles)
            demand.shapes_at = self.shapes_version
        return demand.shapes

    def _make_shape(self, request: TaskRequest, pool: str) -> Shape:
        mask = ANY_MODEL
        if request.models:
            # Models that no node has yet get no number: requests must not use up what nodes need.
            numbers = {self.models.known(model) for model in request.models}
            mask = sum(1 << number for number in numbers if number is not None)
        wanted = dict(request.extras)
        self.enter_extras(wanted)
        piece = request.slice
        is_part = bool(request.devices) and piece.compute_milli < CARD_MILLI
        return Shape(
            cpu_milli=request.cpu_milli,
            memory_mib=request.memory_mib,
            devices=request.devices,
            compute_milli=piece.compute_milli,
            limit_milli=piece.limit_milli,
            device_memory_mib=MEMORY_BY_SHARE if piece.memory_mib == SHARE_OF_CARD else piece.memory_mib,
            model_mask=mask,
            extras=tuple(wanted.get(name, 0) for name in self.extras.names) if wanted else (),
            pool=NO_POOL if is_part and pool in self._of_whole_cards else self.pools.number(pool),
        )

    def _forget_shapes(self) -> None:
        self._shapes.clear()
        self.shapes_version += 1
