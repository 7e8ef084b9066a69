"""Other places for running work, in exchange for its own: found as if it were not where it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from millpond.model.amounts import card_memory_text, gpus_text
from millpond.model.errors import ConflictError
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.job_placement import Placed, Placer
from millpond.scheduling.elastic.gang_sizes import tasks_of_next_run
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.migration import device_moves
from millpond.scheduling.migration.targets import MigrationTarget, devices_of
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.placement.filters import FilterStep
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.bounds import Beyond


class PlaceExchange:
    """Finds other places within one state."""

    def __init__(self, state: State, placer: Placer, claims: Claims) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims

    def given(self, record: JobRecord, devices: Sequence[int]) -> Placed:
        """Named devices dealt out to the tasks in their order.

        Raises:
            ConflictError: a task's devices would lie on several nodes, or are of a model that it does not take.
        """
        cluster, left, placed = self._state.cluster, list(devices), []
        shapes = cluster.words.shapes_of(record.demand)
        for task in tasks_of_next_run(record):
            shape = shapes[task.role_index]
            own, left = left[: shape.devices], left[shape.devices :]
            if len({cluster.node_of(device) for device in own}) != 1:
                raise ConflictError("the cards named for one task lie on several nodes", "name cards of one node")
            models = record.job.roles[task.role_index].request.models
            for pair in map(cluster.device, own):
                if models and pair is not None and pair[1].model not in models:
                    raise ConflictError(
                        f"card {pair[0].name}/{pair[1].index} is a {pair[1].model}, which job {record.id!r} does not "
                        "take",
                        f"it asks for {', '.join(models)}",
                    )
            placed.append((task, cluster.holding(cluster.node_of(own[0]), shape, own)))
        return placed

    def find(self, record: JobRecord, target: MigrationTarget) -> Placed:
        """A place for all tasks, found as if they were not there. Nothing is taken."""
        state, cluster = self._state, self._state.cluster
        mask = self._claims.mask(record)
        if target.node is not None:
            only = np.zeros(cluster.arrays.node_count, dtype=np.uint8)
            only[target.node] = 1
            mask = only if mask is None else mask & only
        self._placer.refresh()
        given = self.given(record, target.devices) if target.devices else []
        own = devices_of(record)

        def place(tasks: list[TaskRecord]) -> Placed | None:
            device_moves.bar(cluster, own)
            return self._taken(given) if given else self._placer.place(record, mask, tasks=tasks)

        mark = state.journal.begin()
        placed, in_the_way = self._take_anew(record, place)
        state.journal.rollback(mark)
        if in_the_way is not None:
            queue, beyond = in_the_way
            text = gpus_text if beyond.model else card_memory_text
            raise ConflictError(
                f"queue {queue!r} may hold {text(beyond.most)}{beyond.of_model}, and has {text(beyond.held)} of these "
                f"beside job {record.id!r}",
                "name cards of another model, or wait until other work of the queue has ended",
            )
        if placed is None and target.devices:
            raise taken_by_others(state, target.devices)
        if placed is None:
            where = "" if target.node is None else f" on node {cluster.node_name(target.node)}"
            raise ConflictError(
                f"job {record.id!r} finds no room on other cards{where} now", "wait until some are free; see `pond top`"
            )
        return placed

    def on_card(self, record: JobRecord, device: int, mask: NodeMask | None) -> Holding | None:
        """A place of the only task of a running job on another card, in exchange for its own; None if there is none.

        Nothing is taken.

        Args:
            mask: (nodes,), 0 keeps a node out.
        """
        state, cluster = self._state, self._state.cluster
        node, allowed = cluster.node_of(device), self._placer.within_allowed(record, record.tasks, mask)
        if allowed is not None and allowed[node] == 0:
            return None
        (shape,) = cluster.words.shapes_of(record.demand)

        def place(tasks: list[TaskRecord]) -> Placed | None:
            if self._placer.selector.fit(node, shape) is not FilterStep.FITS or not cluster.card_fits(device, shape):
                return None
            return self._taken([(tasks[0], cluster.holding(node, shape, [device]))])

        mark = state.journal.begin()
        placed, in_the_way = self._take_anew(record, place)
        state.journal.rollback(mark)
        return None if placed is None or in_the_way is not None else placed[0][1]

    def take(self, record: JobRecord, mask: NodeMask | None) -> Placed | None:
        """Take another place for a running job in the open transaction, in exchange for its own; None if there is none.

        Args:
            mask: (nodes,), 0 keeps a node out.
        """
        placed, in_the_way = self._take_anew(record, lambda tasks: self._placer.place(record, mask, tasks=tasks))
        if placed is None or in_the_way is not None:
            return None
        self._state.charge(record, self._state.amounts.of_placed(record, placed), 1)
        return placed

    def _take_anew(
        self, record: JobRecord, place: Callable[[list[TaskRecord]], Placed | None]
    ) -> tuple[Placed | None, tuple[str, Beyond] | None]:
        """Give a job's place back in the open transaction and take the one found then; and a limit in its way."""
        state = self._state
        tasks = tasks_of_next_run(record)
        state.charge(record, state.amounts.held(record, record.holding_tasks()), -1)
        for task in tasks:
            if task.holding is not None:
                state.cluster.change(task.holding, HoldState.NOTHING)
        placed = place(tasks)
        in_the_way = state.queues.cards_limit(record.queue, state.amounts.of_placed(record, placed)) if placed else None
        if placed is not None and not state.settle(record, [holding for _, holding in placed]):
            placed = None
        return placed, in_the_way

    def _taken(self, placed: Placed) -> Placed | None:
        """The same places, taken in the open transaction; None if they are not free."""
        for _, holding in placed:
            self._state.cluster.change(holding, HoldState.RUNNING)
            if self._state.cluster.is_overdrawn(holding):
                return None
        return placed


def taken_by_others(state: State, devices: Sequence[int]) -> ConflictError:
    """The refusal of a move onto cards that are not free."""
    cards = device_moves.names_of(state.cluster, devices)
    return ConflictError(f"there is no room for it on {cards}", "`pond top` shows what is free; or name no card")
