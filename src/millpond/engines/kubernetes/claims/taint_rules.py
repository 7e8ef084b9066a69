"""Taints that admins give devices by rules (DeviceTaintRule), beside those that their drivers publish.

https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/5055-dra-device-taints-and-tolerations
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from millpond.engines.kubernetes.claims.claim_objects import TAINT_RULES, TaintRuleObject
from millpond.engines.kubernetes.cluster.api_channel import ApiChannel, ErrorAnswerError
from millpond.engines.kubernetes.cluster.cluster_nodes import DRIVER
from millpond.engines.kubernetes.cluster.objects import Taint
from millpond.engines.kubernetes.cluster.reflector import Reflector

log = logging.getLogger(__name__)

_FORBIDDEN, _NOT_FOUND = 403, 404
NO_RIGHT: Final = "taints of devices by rules are not seen: this server may not look at devicetaintrules"


class TaintRules:
    """All of them, in the newest version that the cluster serves. Lives on the engine's loop.

    Args:
        changed: called when there are others.
    """

    def __init__(self, channel: ApiChannel, changed: Callable[[], None]) -> None:
        self._channel, self._changed = channel, changed
        self._rules: Reflector[TaintRuleObject] | None = None

    async def list_all(self) -> None:
        """Look at them once; where the cluster has none, or does not let them be looked at, there are none.

        Raises:
            ErrorAnswerError: the cluster does not answer for now.
            httpx2.HTTPError: it does not answer at all.
        """
        for kind in TAINT_RULES:
            rules = Reflector(self._channel, kind, self._told, self._told)
            self._rules = rules
            try:
                await rules.list_once()
            except ErrorAnswerError as error:
                self._rules = None
                if error.status_code == _NOT_FOUND:
                    continue
                if error.status_code != _FORBIDDEN:
                    raise
                log.warning("%s: %s", NO_RIGHT, error)
            return

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run from then on."""
        return [] if self._rules is None else [self._rules.run()]

    def on(self, pool: str, device: str) -> Iterator[tuple[str, Taint]]:
        """The taints of a device of the driver by rules, each with the name of its rule."""
        for rule in () if self._rules is None else self._rules.objects.values():
            if rule.is_about(DRIVER, pool, device):
                yield f"the DeviceTaintRule {rule.metadata.name}", rule.spec.taint

    def _told(self, _: TaintRuleObject) -> None:
        self._changed()
