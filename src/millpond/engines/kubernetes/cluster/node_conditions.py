"""How the cards of a node are, as a condition of the node, so that `kubectl describe node` tells it.

The server writes it, as it hears of all agents anyway: so the agents, which are on every node, need no right to change
nodes. What a node says is compared with what is so whenever either changes.
"""

from __future__ import annotations

import logging
import time
from typing import Final, NamedTuple

from millpond.engines.kubernetes.cluster.agent_report import AgentReport
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_nodes import AgentCards, driver_away, is_silent
from millpond.engines.kubernetes.cluster.cluster_refusals import StatusError
from millpond.engines.kubernetes.cluster.objects import NodeObject
from millpond.engines.kubernetes.cluster.request_turns import WORDS
from millpond.engines.kubernetes.loop_work import LoopWork
from millpond.engines.outbox import Outbox
from millpond.model.hardware.devices import DeviceHealth

log = logging.getLogger(__name__)

CONDITION: Final = "MillpondCardsHealthy"
FORBIDDEN_FOR_S: Final = 600.0
"""A right that is missing may be given: it is tried again then."""
_FORBIDDEN: Final = 403


class CardsCondition(NamedTuple):
    """What the condition of a node says."""

    status: str
    reason: str
    message: str


class NodeConditions:
    """The condition of all nodes with an agent. Lives on the engine's loop."""

    def __init__(self, api: ClusterApi, outbox: Outbox) -> None:
        self._api = api
        self._work = LoopWork(outbox)
        self._wanted: dict[str, CardsCondition] = {}
        self._writing: set[str] = set()
        self._forbidden_until = 0.0

    def tell(self, node: NodeObject, cards: AgentCards) -> None:
        """Have a node say how the cards of its agent are, if it says something else."""
        name, wanted = node.metadata.name, condition_of(cards.report, is_silent=is_silent(node, cards))
        self._wanted[name] = wanted
        said = _said_by(node)
        if time.monotonic() >= self._forbidden_until and name not in self._writing and said != wanted:
            self._writing.add(name)
            self._work.begin(self._write(name, said))

    async def _write(self, name: str, said: CardsCondition | None) -> None:
        """Until the node says what is wanted by then."""
        path = f"/api/v1/nodes/{name}/status"
        try:
            while said != (wanted := self._wanted[name]):
                await self._api.ask("PATCH", path, _patch(wanted, said), patch="strategic-merge", turn=WORDS)
                said = wanted
        except StatusError as error:
            if error.code == _FORBIDDEN:
                self._forbidden_until = time.monotonic() + FORBIDDEN_FOR_S
                log.warning("nodes do not say how their cards are: %s", error)
            else:  # it is gone, or was changed at the same moment: it is told when it is heard of next
                log.debug("node %s does not say how its cards are: %s", name, error)
        finally:
            self._writing.discard(name)


def condition_of(report: AgentReport, *, is_silent: bool) -> CardsCondition:
    """What a node says of its cards.

    Args:
        is_silent: the agent does not answer the kubelet.
    """
    if is_silent:
        return CardsCondition("Unknown", "AgentSilent", "Millpond's agent of this node does not answer the kubelet")
    if away := driver_away(report):
        return CardsCondition("Unknown", "DriverAway", away)
    failing = [card for card in report.devices if card.health is DeviceHealth.FAULTY]
    if failing:
        told = "; ".join(f"card {card.index} ({card.uuid}): {card.health_detail or 'it failed'}" for card in failing)
        return CardsCondition("False", "CardsFailing", told)
    count = len(report.devices)
    return CardsCondition("True", "CardsHealthy", f"{count} card{'' if count == 1 else 's'}")


def _said_by(node: NodeObject) -> CardsCondition | None:
    found = (each for each in node.status.conditions if each.type == CONDITION)
    return next((CardsCondition(each.status, each.reason, each.message) for each in found), None)


def _patch(wanted: CardsCondition, said: CardsCondition | None) -> dict[str, object]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    condition = {"type": CONDITION, **wanted._asdict(), "lastHeartbeatTime": now}
    if said is None or said.status != wanted.status:
        condition["lastTransitionTime"] = now
    return {"status": {"conditions": [condition]}}
