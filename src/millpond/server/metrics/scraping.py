"""The page that a Prometheus reads, made when it asks."""

from __future__ import annotations

import asyncio

from millpond.server.audience import EVERYBODY
from millpond.server.board import Board
from millpond.server.inbox import wall_clock
from millpond.server.machines import Machines
from millpond.server.metrics.exposition import Standing, page
from millpond.server.metrics.instruments import Instruments


class Scrape:
    """Makes the page of what was counted and what stands now.

    Args:
        version: the server's.
    """

    def __init__(self, version: str, instruments: Instruments, machines: Machines, board: Board) -> None:
        self._version = version
        self._instruments = instruments
        self._machines = machines
        self._board = board

    async def page(self) -> bytes:
        """Everything, in the text format of Prometheus."""
        nodes, devices = await self._machines.all(EVERYBODY), await self._machines.devices(EVERYBODY, 0)
        standing = Standing(wall_clock(), self._version, self._board.newest_first(), nodes, devices)
        return await asyncio.to_thread(page, self._instruments.registry, standing)
