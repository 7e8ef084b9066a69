"""The server's configuration file as a whole; its sections have files of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from millpond.model.energy import EnergyRates
from millpond.model.hardware.card_layouts import LayoutRule
from millpond.model.hardware.nodes import DEFAULT_POOL, Node, Pool
from millpond.model.hardware.power import PowerRule
from millpond.model.sharing import MigLayout, SliceRules
from millpond.model.tenancy.tenants import DEFAULT_QUEUE, ROOT_QUEUE, USAGE_HALF_LIFE_S, Queue
from millpond.specs.config.adapting import AdaptFile
from millpond.specs.config.energy import EnergyFile
from millpond.specs.config.files import secret_in, text_of
from millpond.specs.config.kubernetes import KubernetesFile
from millpond.specs.config.listen import ListenFile, SshFile
from millpond.specs.config.notifications import NotificationRules, NotificationsFile
from millpond.specs.config.oidc import CALLBACK_PATH, OidcFile, OidcRules
from millpond.specs.config.pools import MigFile, NodeFile, PoolFile
from millpond.specs.config.power_saving import PowerSaving
from millpond.specs.config.prices import PriceList
from millpond.specs.config.provisioning import ContainersFile, ProvisioningRules, SourceFile
from millpond.specs.config.queues import QueueFile, broken_promises, parents_first
from millpond.specs.config.tasks import DevFile, RunAsFile, TasksFile
from millpond.specs.config.webhooks import Webhook, WebhookFile
from millpond.specs.errors import Problem, SpecError, suggest
from millpond.specs.job.fields import Duration, Memory
from millpond.specs.job.mounts import HostPath
from millpond.specs.source_positions import Located, read_documents
from millpond.specs.validation import Strict, validate


class SecretsFile(Strict):
    """How secrets are kept from now on; older ones stay as they are.

    Attributes:
        cipher: for secrets that are written from now on.
    """

    cipher: Literal["aes-256-gcm", "sm4-gcm"] = "aes-256-gcm"


class ClusterFile(Strict):
    """The whole file.

    Attributes:
        dev: rules for dev jobs.
        listen: how requests come in.
        ssh: the SSH gateway; left out: none.
        pools: sets of machines with one sharing policy.
        queues: the tenant tree below ``root``.
        usage_half_life: after so long past usage of queues and users counts half.
        nodes: pretended machines, for trying things out.
        oidc: signing on with an OpenID Connect provider.
        prices: what an hour of a card costs, for usage reports.
        energy: what energy costs and emits, for usage reports.
        adapt: the server chooses among policies by replays of its own past; left out: it keeps those it has.
        webhooks: receivers of what happens to jobs.
        notifications: how users are told of what happens to their jobs.
        run_as: as which users of the machine tasks run.
        tasks: what tasks are kept to besides what they ask for.
        secrets: how secrets are kept.
        containers: what runs containers.
        sources: slow places whose data is copied to a near disk first.
        cache: folder for these copies; left out: in the state directory.
        mig: what empty cards in MIG mode are divided into.
        kubernetes: the cluster or clusters whose pods jobs are; left out: jobs are processes of this machine.
        swap_memory: host memory of the machine for work that was swapped off its devices; left out: a part of all.
    """

    dev: DevFile = DevFile()
    listen: ListenFile = ListenFile()
    ssh: SshFile | None = None
    pools: list[PoolFile] = Field(default=[])
    queues: list[QueueFile] = Field(default=[])
    usage_half_life: Annotated[Duration, Field(ge=60)] = USAGE_HALF_LIFE_S
    nodes: list[NodeFile] = Field(default=[])
    oidc: OidcFile | None = None
    prices: PriceList = PriceList()
    energy: EnergyFile = EnergyFile()
    adapt: AdaptFile | None = None
    webhooks: list[WebhookFile] = Field(default=[])
    notifications: NotificationsFile = NotificationsFile()
    run_as: RunAsFile = RunAsFile()
    tasks: TasksFile = TasksFile()
    secrets: SecretsFile = SecretsFile()
    containers: ContainersFile = ContainersFile()
    sources: list[SourceFile] = Field(default=[])
    cache: HostPath | None = None
    swap_memory: Memory | None = None
    mig: MigFile | None = None
    kubernetes: KubernetesFile | None = None


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """A checked configuration; queues come after their parents, ``queue_documents`` (as they are written, without
    names) are by queue, ``slices``, ``power``, ``savings`` and ``layouts`` by pool."""

    pools: tuple[Pool, ...] = ()
    queues: tuple[Queue, ...] = ()
    usage_half_life_s: float = USAGE_HALF_LIFE_S
    nodes: tuple[Node, ...] = ()
    prices: PriceList = PriceList()
    webhooks: tuple[Webhook, ...] = ()
    queue_documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dev: DevFile = DevFile()
    provisioning: ProvisioningRules = ProvisioningRules()
    listening: ListenFile = ListenFile()
    ssh: SshFile | None = None
    run_as: RunAsFile = RunAsFile()
    tasks: TasksFile = TasksFile()
    cipher: str = "aes-256-gcm"
    oidc: OidcRules | None = None
    slices: Mapping[str, SliceRules] = field(default_factory=dict)
    power: Mapping[str, PowerRule] = field(default_factory=dict)
    swap_mib: int | None = None
    mig: MigLayout | None = None
    kubernetes: KubernetesFile | None = None
    energy: EnergyRates = EnergyRates()
    notifications: NotificationRules = NotificationRules()
    savings: Mapping[str, PowerSaving] = field(default_factory=dict)
    layouts: Mapping[str, LayoutRule] = field(default_factory=dict)
    adapt: AdaptFile | None = None
    located: Located = field(default_factory=lambda: Located({}))
    """What was read, and where each part of it stands in the file."""

    @property
    def document(self) -> Mapping[str, Any]:
        """What was read, as it stands in the file."""
        found: Mapping[str, Any] = self.located.value
        return found


def load_cluster(path: Path) -> ClusterConfig:
    """The configuration in a file.

    Raises:
        UnavailableError: the file cannot be read.
        SpecError: it is wrong, with every fault found.
    """
    return read_cluster(text_of(path), str(path))


def read_cluster(text: str, source: str = "") -> ClusterConfig:
    """The configuration in a text.

    Raises:
        SpecError: it is wrong, with every fault found.
    """
    documents = read_documents(text, source)
    if len(documents) > 1:
        raise SpecError([documents[1].problem((), "a second document", "keep the configuration in one")])
    return check_cluster(documents[0])


def check_cluster(located: Located, *, is_simulated: bool = False) -> ClusterConfig:
    """The configuration in a document that was read already.

    Args:
        is_simulated: it is for a simulated cluster, all of whose nodes can be switched off.

    Raises:
        SpecError: it is wrong, with every fault found.
    """
    try:
        file = validate(ClusterFile, located)
    except SpecError as error:
        raise SpecError(_in_order([*error.problems, *_promises_alone(located)])) from None
    names = [*_repeated_names(file, located), *_unknown_names(file, located)]
    problems = [
        *names,
        *_nested_sources(file, located),
        *_unknown_models(file, located),
        *_misplaced(file, located, is_simulated),
    ]
    queues = _tree(file, names)
    problems += _broken_promises(file, queues, located)
    config = ClusterConfig(
        queues=queues,
        webhooks=_webhooks(file, located, problems),
        oidc=_oidc(file, located, problems),
        energy=file.energy.rates(located, problems),
        notifications=_notifications(file, located, problems),
        located=located,
    )
    if problems:
        raise SpecError(_in_order(problems))
    return _completed(config, file)


def _completed(config: ClusterConfig, file: ClusterFile) -> ClusterConfig:
    """The configuration with all of the file that needs no check of its own."""
    return replace(
        config,
        pools=tuple(pool.pool() for pool in file.pools),
        slices={pool.name: pool.slices.rules() for pool in file.pools},
        power={pool.name: pool.power.rule() for pool in file.pools if pool.power is not None},
        savings={pool.name: pool.save_energy.saving() for pool in file.pools if pool.save_energy is not None},
        layouts={pool.name: pool.mig.rule() for pool in file.pools if pool.mig is not None},
        queue_documents=_queue_documents(config.located),
        usage_half_life_s=file.usage_half_life,
        nodes=tuple(node.node() for node in file.nodes),
        prices=file.prices,
        dev=file.dev,
        provisioning=_provisioning(file),
        listening=file.listen,
        ssh=file.ssh,
        run_as=file.run_as,
        tasks=file.tasks,
        cipher=file.secrets.cipher,
        swap_mib=file.swap_memory,
        mig=None if file.mig is None else file.mig.layout(),
        kubernetes=file.kubernetes,
        adapt=file.adapt,
    )


def _in_order(problems: Sequence[Problem]) -> list[Problem]:
    """As they stand in the file, those without a line last."""
    return sorted(problems, key=lambda each: (not each.line, each.source, each.line))


def _queue_documents(located: Located) -> dict[str, dict[str, Any]]:
    return {
        queue["name"]: {name: value for name, value in queue.items() if name != "name"}
        for queue in located.value.get("queues") or ()
    }


def _provisioning(file: ClusterFile) -> ProvisioningRules:
    cache = None if file.cache is None else Path(file.cache)
    images = {pool.name: tuple(pool.images) for pool in file.pools if pool.images is not None}
    return ProvisioningRules(file.containers.runtime, tuple(source.source() for source in file.sources), cache, images)


def _webhooks(file: ClusterFile, located: Located, problems: list[Problem]) -> tuple[Webhook, ...]:
    return tuple(
        Webhook(
            hook.name,
            hook.url,
            tuple(hook.on),
            tuple(hook.queues),
            hook.format,
            secret_in(hook.secret_file, located, ("webhooks", index, "secret_file"), problems),
            hook.secret or "",
        )
        for index, hook in enumerate(file.webhooks)
    )


def _oidc(file: ClusterFile, located: Located, problems: list[Problem]) -> OidcRules | None:
    if file.oidc is None:
        return None
    if not file.listen.public_url:
        hint = f"set listen.public_url: the provider sends people back to it, at {CALLBACK_PATH}"
        problems.append(located.problem(("oidc",), "no address to come back to", hint, at_key=True))
    secret = secret_in(file.oidc.client_secret_file, located, ("oidc", "client_secret_file"), problems)
    own = {"client_secret": secret, "public_url": file.listen.public_url or ""}
    return OidcRules.model_validate(file.oidc.model_dump() | own)


def _notifications(file: ClusterFile, located: Located, problems: list[Problem]) -> NotificationRules:
    mail = file.notifications.mail
    if mail is None:
        return NotificationRules(None, tuple(file.notifications.chat))
    at = ("notifications", "mail", "password_file")
    password = secret_in(mail.password_file, located, at, problems)
    if mail.password_file is not None and password and Path(mail.password_file).expanduser().stat().st_mode & 0o077:
        message = f"other users of this machine can read the password in {mail.password_file}"
        problems.append(located.problem(at, message, f"chmod 600 {mail.password_file}"))
    return NotificationRules(mail.rules(password), tuple(file.notifications.chat))


def _repeated_names(file: ClusterFile, located: Located) -> list[Problem]:
    problems = []
    names = {
        "pools": [pool.name for pool in file.pools],
        "queues": [queue.name for queue in file.queues],
        "nodes": [node.name for node in file.nodes],
        "webhooks": [hook.name for hook in file.webhooks],
        "sources": [source.name for source in file.sources],
    }
    for section, entries in names.items():
        seen: set[str] = {ROOT_QUEUE} if section == "queues" else set()
        for index, name in enumerate(entries):
            if name in seen:
                problems.append(located.problem((section, index, "name"), *_taken(file, section, index, name)))
            seen.add(name)
    return problems


def _taken(file: ClusterFile, section: str, index: int, name: str) -> tuple[str, str]:
    """What is wrong with a name that an earlier entry has, and the remedy."""
    if section == "nodes":
        pool = next(node.pool for node in file.nodes if node.name == name)
        if pool != file.nodes[index].pool:
            return f"node {name!r} is in pool {pool!r} already", "a node belongs to one pool: leave one of the two out"
    return f"the name {name!r} is taken", "choose another name"


def _misplaced(file: ClusterFile, located: Located, is_simulated: bool) -> Iterator[Problem]:
    """Settings of pools that could do nothing there."""
    for index, pool in enumerate(file.pools):
        is_machine = file.kubernetes is None or file.kubernetes.machine == pool.name
        for setting, is_idle, message, hint in (
            (
                "memory_overcommit",
                pool.memory_overcommit is not None and not pool.suspends,
                "no work is swapped off the cards of this pool",
                "add suspends: true, or leave it out",
            ),
            (
                "packs",
                pool.packs and pool.suspends,
                "cards of this pool are shared in turns",
                "leave out one of packs and suspends",
            ),
            (
                "packs",
                pool.packs and not is_machine,
                "a kubelet gives a whole card to one pod only",
                "leave it out, or hand out parts of cards",
            ),
            (
                "save_energy",
                pool.save_energy is not None and is_machine and not is_simulated,
                "the nodes of one machine are never switched off",
                "leave it out; it is for nodes of Kubernetes",
            ),
            (
                "mig",
                pool.mig is not None and file.kubernetes is not None,
                "the cards of a cluster's nodes are not divided by this server",
                "leave it out; divide them there",
            ),
        ):
            if is_idle:
                yield located.problem(("pools", index, setting), message, hint, at_key=True)


def _nested_sources(file: ClusterFile, located: Located) -> list[Problem]:
    problems = []
    paths = [Path(source.path) for source in file.sources]
    for index, path in enumerate(paths):
        outer = next((other for other in paths[:index] + paths[index + 1 :] if path.is_relative_to(other)), None)
        if outer is not None:
            message = f"the source {path} lies within the source {outer}"
            problems.append(located.problem(("sources", index, "path"), message, "leave one of them out"))
    return problems


def _unknown_names(file: ClusterFile, located: Located) -> list[Problem]:
    problems = []
    pools = {DEFAULT_POOL, *(pool.name for pool in file.pools)}
    for index, node in enumerate(file.nodes):
        if node.pool not in pools:
            message = f"unknown pool {node.pool!r}"
            problems.append(located.problem(("nodes", index, "pool"), message, suggest(node.pool, sorted(pools))))
    parents = {queue.name: queue.parent for queue in file.queues}
    for index, queue in enumerate(file.queues):
        at = ("queues", index, "parent")
        if queue.parent not in (ROOT_QUEUE, DEFAULT_QUEUE, *parents):
            possible = [name for name in parents if queue.name not in (name, *_above(name, parents))]
            hint = suggest(queue.parent, [ROOT_QUEUE, *possible])
            problems.append(located.problem(at, f"unknown queue {queue.parent!r}", hint))
        elif queue.name in _above(queue.name, parents):
            problems.append(located.problem(at, f"queue {queue.name!r} is below itself", f"end at {ROOT_QUEUE!r}"))
    return problems


def _above(queue: str, parents: Mapping[str, str]) -> list[str]:
    """The queues above one, the nearest first; more than there are where they lead round in a circle."""
    above: list[str] = []
    while queue in parents and len(above) <= len(parents):
        queue = parents[queue]
        above.append(queue)
    return above


def _unknown_models(file: ClusterFile, located: Located) -> list[Problem]:
    """Guarantees and limits of models that no machine has, where the file itself says what there is."""
    known = sorted({node.model for node in file.nodes if node.devices})
    return [
        located.problem(("queues", index, field, "models", model), f"unknown model {model!r}", suggest(model, known))
        for index, queue in enumerate(file.queues)
        for field, amount in (("guarantee", queue.guarantee), ("limit", queue.limit))
        for model in (amount.models if amount is not None and known else ())
        if model not in known
    ]


def _tree(file: ClusterFile, names: Sequence[Problem]) -> tuple[Queue, ...]:
    """The queues, each after its parent; none where their names make no tree."""
    if any(problem.loc.startswith("queues.") for problem in names):
        return ()
    return tuple(parents_first([queue.queue() for queue in file.queues]))


def _promises_alone(located: Located) -> list[Problem]:
    """The promises among queues that are broken in a document with other faults, if these leave the queues a tree."""
    value = located.value
    if not isinstance(value, dict) or not value.get("queues"):
        return []
    alone = replace(located, value={"queues": value["queues"]})
    try:
        file = validate(ClusterFile, alone)
    except SpecError:
        return []
    names = [*_repeated_names(file, alone), *_unknown_names(file, alone)]
    return [*names, *_broken_promises(file, _tree(file, names), alone)]


def _broken_promises(file: ClusterFile, queues: Sequence[Queue], located: Located) -> list[Problem]:
    index = {queue.name: index for index, queue in enumerate(file.queues)}
    return [
        located.problem(("queues", index[name], field), message, remedy)
        for name, field, message, remedy in broken_promises(queues)
    ]
