"""The configuration while a server runs: what it says at this moment, and reading it again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from millpond.model import events
from millpond.model.errors import MillpondError
from millpond.model.sharing import DEFAULT_SLICE_RULES, SliceRules
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.host.machine import Machine
from millpond.server.notifications.webhook_receivers import WebhookReceivers
from millpond.server.runtime.loop import Loop
from millpond.server.runtime.queue_settings.service import QueueSettings
from millpond.server.storage.provisioning.components import ProvisioningDependencies
from millpond.specs.config.cluster import ClusterConfig, load_cluster
from millpond.specs.config.kubernetes import KubernetesFile
from millpond.specs.config.queues import QueueRules
from millpond.specs.config.webhooks import Webhook

log = logging.getLogger(__name__)

_AT_ONCE_OF_CLUSTER: Final = ("image", "helper_image", "volumes")
AT_THE_NEXT_START: Final = (
    *("nodes", "ssh", "listen", "dev", "run_as", "mig", "swap_memory", "pools.mig", "tasks.cards"),
    *(f"kubernetes.{name}" for name in KubernetesFile.model_fields if name not in _AT_ONCE_OF_CLUSTER),
)
"""The settings that are read when a server starts; all others count from when the configuration is read again."""


@dataclass(slots=True)
class Current:
    """The configuration as it was read last.

    Attributes:
        reading: held while it is read again, so that what was written last also counts last.
        started: the document that the server was started with.
    """

    config: ClusterConfig
    reading: threading.Lock = field(default_factory=threading.Lock)
    started: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.config.document

    def pending(self) -> list[str]:
        """The settings that have changed since the start, and count from the next one on."""
        now = self.config.document
        return [name for name in AT_THE_NEXT_START if _said(self.started, name) != _said(now, name)]

    def webhooks(self) -> dict[str, Webhook]:
        """Receivers by name."""
        return {hook.name: hook for hook in self.config.webhooks}

    def slice_rules(self, pool: str) -> SliceRules:
        """How a pool holds tasks to their parts of devices."""
        return self.config.slices.get(pool, DEFAULT_SLICE_RULES)

    def provisioning_on(
        self, machine: Machine, wake: Callable[[], None], paths: Callable[[], Mapping[str, QueueRules]]
    ) -> ProvisioningDependencies:
        """What provides for jobs on a machine.

        Args:
            paths: gives what queues' jobs may use.
        """
        has_cards = any(device.vendor == NvidiaVendor.name for node in machine.nodes for device in node.devices)
        return ProvisioningDependencies(
            paths,
            lambda: self.config.provisioning,
            wake,
            has_cards,
            tuple(node.name for node in machine.nodes),
        )


def reload(
    config: Path | None, loop: Loop, current: Current, queues: QueueSettings, webhooks: WebhookReceivers
) -> None:
    """Read the configuration again; ``AT_THE_NEXT_START`` counts from the next start on, all else at once.

    One that is wrong, or whose queues do not go together with what runs, changes nothing; the log says what is wrong.
    """
    if config is None:
        log.info("asked to read the configuration again, and there is none (--config)")
        return
    with current.reading:
        try:
            fresh = load_cluster(config)
            queues.apply_file(fresh.queue_documents, fresh.located)
        except MillpondError as error:
            log.error("the configuration stays as it was: %s", error)
            return
        loop.notify(setting_events(fresh, current.config.usage_half_life_s))
        current.config = fresh
        webhooks.take_file()
    later = ", ".join(current.pending())
    log.info("read %s again%s", config, f"; {later}: from the next start on" if later else "")


def _said(document: Mapping[str, Any], setting: str) -> Any:
    """What a document says of a setting, in a section or in each entry of a list; an empty list says nothing."""
    section, _, name = setting.partition(".")
    value = document.get(section)
    if isinstance(value, Mapping):
        return value.get(name) if name else value
    if name:
        value = {each["name"]: each[name] for each in value or () if name in each}
    return value or None


def setting_events(config: ClusterConfig, half_life_s: float) -> list[events.Event]:
    """The pools of the configuration as events, of which the same ones again change nothing, and the half-life of usage
    where it is another one than that which holds."""
    now = time.time()
    found: list[events.Event] = [events.PoolChanged(now, pool) for pool in config.pools]
    if config.usage_half_life_s != half_life_s:
        found.append(events.UsageHalfLifeChanged(now, config.usage_half_life_s))
    return found
