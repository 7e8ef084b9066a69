"""Cells as the API shows them, by kind of hardware. Queues that the reader may not see have no names."""

from __future__ import annotations

from collections.abc import Callable

from millpond.scheduling.tenancy.cells.cell_map import CellChain
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.roles import Caller, Verb
from millpond.server.runtime.loop import Loop
from millpond.server.views.queues import VEILED_QUEUES
from millpond.specs.api.pool.cells import CellCardsInfo, CellChainInfo, CellMapInfo, CellNodeInfo, CellOwedInfo


async def cells_seen_by(loop: Loop, accounts: Accounts, caller: Caller) -> CellMapInfo:
    """All hardware; queues that are not for the caller stand together under one word."""
    chains = await loop.ask(lambda core: core.scheduler.cell_map())
    own = accounts.queues_for(caller, Verb.READ_JOBS)

    def named(queue: str) -> str:
        return queue if not queue or caller.admin or queue in own else VEILED_QUEUES

    return CellMapInfo(chains=[_chain(chain, named) for chain in chains])


def _chain(chain: CellChain, named: Callable[[str], str]) -> CellChainInfo:
    return CellChainInfo(
        name=chain.name,
        model=chain.model,
        levels=list(chain.levels),
        sizes=list(chain.sizes),
        node_level=chain.node_level,
        nodes=[
            CellNodeInfo(
                name=node.name,
                cards=list(node.cards),
                parts=[
                    CellCardsInfo(
                        cards=part.cards,
                        state=part.state.value,
                        queue=named(part.queue),
                        level=part.level,
                        pinned=part.pinned,
                    )
                    for part in node.parts
                ],
            )
            for node in chain.nodes
        ],
        owed=[
            CellOwedInfo(
                queue=named(owed.queue), level=owed.level, pinned=owed.pinned, owed=owed.owed, bound=owed.bound
            )
            for owed in chain.owed
        ],
    )
