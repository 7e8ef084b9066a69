"""What the first jobs of all lines ask for, as arrays: the same from walk to walk while no other requests wait."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.ordering.line_table import Numbering
from millpond.scheduling.placement.arrays import FloatArray, Int64Array
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placement.shapes_with_room import ShapesWithRoom
from millpond.scheduling.reclaiming.request_bounds import moving_for
from millpond.scheduling.state import State


class WaitingRequests:
    """By the numbers that requests have in the table of lines; of numbers that are free it says nothing."""

    def __init__(self, state: State, placer: Placer) -> None:
        self._words, self._waiting = state.cluster.words, state.waiting
        self._selector = placer.selector
        self._as_of = self._version

    @property
    def _requests(self) -> Numbering[RequestClass]:
        return self._waiting.table.requests

    @property
    def _version(self) -> tuple[int, int]:
        return self._requests.version, self._words.shapes_version

    @property
    def are_current(self) -> bool:
        """Whether no number has been given to another request since, nor does any mean another shape."""
        return self._as_of == self._version

    @cached_property
    def tasks(self) -> tuple[Int64Array, list[Shape], Int64Array, Int64Array]:
        """(requests,) the least compute of each, in milli; the shapes of the fewest tasks that can start.

        And for each of these a request and the number of a shape, (tasks,) each.
        """
        requests = self._requests.items
        least_milli = np.array([0 if demand is None else demand.least_amount.gpu_milli for demand in requests])
        numbers: dict[Shape, int] = {}
        tasks = [
            (request, numbers.setdefault(shape, len(numbers)))
            for request, demand in enumerate(requests)
            if demand is not None
            for role, shape in zip(demand.roles, self._words.shapes_of(demand), strict=True)
            if role.minimum
        ]
        of_requests, of_shapes = np.array(tasks, dtype=np.int64).reshape(-1, 2).T
        return least_milli, list(numbers), of_requests, of_shapes

    @cached_property
    def anywhere(self) -> ShapesWithRoom:
        """Room for the shapes of ``tasks``."""
        return ShapesWithRoom(self._selector, self.tasks[1])

    @cached_property
    def single(self) -> tuple[Int64Array, FloatArray]:
        """(requests, fields) what the only task of a job asks for; (requests,) see ``request_bounds.Asked.moving``."""
        requests = self._requests.items
        used = {number: demand for number, demand in enumerate(requests) if demand is not None}
        roles = [
            next((index for index, role in enumerate(demand.roles) if role.desired), 0) for demand in used.values()
        ]
        vectors = self._selector.vectors(
            [self._words.shapes_of(demand)[role] for demand, role in zip(used.values(), roles, strict=True)]
        )
        shapes, moving = np.zeros((len(requests), vectors.shape[1]), dtype=np.int64), np.zeros(len(requests))
        shapes[list(used)] = vectors
        moving[list(used)] = [moving_for(demand.gpu_milli) for demand in used.values()]
        return shapes, moving
