"""The server's configuration file: pools, the tenant tree, and pretended nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from millpond.model.devices import Device
from millpond.model.errors import UnavailableError
from millpond.model.nodes import DEFAULT_POOL, Node, Pool, SharingPolicy
from millpond.model.resources import Amount
from millpond.model.tenants import DEFAULT_QUEUE, ROOT_QUEUE, Queue
from millpond.model.topology import LINK_MAPS
from millpond.specs.confining import RunAs, RunAsFile, TaskRules, TasksFile
from millpond.specs.errors import BadValueError, Problem, SpecError, suggest
from millpond.specs.fields import Cpus, Duration, Extras, Memory, Name, SecretName
from millpond.specs.gateway import SshFile, SshRules
from millpond.specs.listening import ListenFile, Listening
from millpond.specs.locate import Located, read_documents
from millpond.specs.mounts import HostPath
from millpond.specs.oidc import CALLBACK_PATH, OidcFile, OidcRules
from millpond.specs.provisioning import ContainersFile, Provisioning, SourceFile
from millpond.specs.secret_files import secret_in
from millpond.specs.validation import Strict, validate

ANY_MODEL = "default"
"""In a price list: all models that it does not name."""

_UNLIMITED = 2**50


class AmountFile(Strict):
    """A sum of resources; what is left out is nothing in a guarantee and no bound in a limit."""

    gpus: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    cpus: Cpus | None = None
    memory: Memory | None = None

    def amount(self, unwritten: int) -> Amount:
        """The model's form."""
        return Amount(
            unwritten if self.gpus is None else round(self.gpus * 1000),
            unwritten if self.cpus is None else self.cpus,
            unwritten if self.memory is None else self.memory,
        )


class PoolFile(Strict):
    """A set of nodes with one sharing policy.

    Attributes:
        cpu_overcommit: the CPUs asked for on one node may add up to so many times its CPUs.
    """

    name: Name = DEFAULT_POOL
    sharing: Literal["exclusive", "sliced", "overcommitted"] = "sliced"
    limit_factor: Annotated[float, Field(ge=1, le=100)] = 1.0
    suspends: bool = False
    cpu_overcommit: Annotated[float, Field(ge=1, le=100)] = 1.0

    def pool(self) -> Pool:
        """The model's form."""
        return Pool(
            self.name,
            SharingPolicy(self.sharing),
            round(self.limit_factor * 1000),
            self.suspends,
            round(self.cpu_overcommit * 1000),
        )


class QueueFile(Strict):
    """A node of the tenant tree.

    Attributes:
        data, output: folders of the machines below which its jobs may read (``data:``) and write (``output:``); left
            out: what its parent may, and at the top, anything.
        images: registries and repositories that its jobs' images may come from, beside the catalogue; left out: as
            above.
    """

    name: Name
    parent: Name = ROOT_QUEUE
    guarantee: AmountFile = AmountFile()
    limit: AmountFile | None = None
    weight: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    borrows: bool = True
    data: list[HostPath] | None = None
    output: list[HostPath] | None = None
    images: list[Annotated[str, Field(min_length=1, max_length=300)]] | None = None


def _link_map(value: Any) -> Any:
    if isinstance(value, str) and value not in LINK_MAPS:
        raise BadValueError(f"unknown link map {value!r}", suggest(value, LINK_MAPS))
    return value


class NodeFile(Strict):
    """A pretended machine with ``devices`` pretended cards of one model.

    Attributes:
        device_memory: of each card; left out: unknown.
    """

    name: Name
    devices: Annotated[int, Field(ge=0, le=62)] = 0
    model: Annotated[str, Field(min_length=1, max_length=60)] = "V100"
    device_memory: Memory = 0
    cpus: Cpus = 64_000
    memory: Memory = 512 * 1024
    pool: Name = DEFAULT_POOL
    rack: str = ""
    zone: str = ""
    link_map: Annotated[str, BeforeValidator(_link_map)] = ""
    extras: Extras = Field(default={})

    def node(self) -> Node:
        """The model's form, every device marked as pretended."""
        cards = tuple(
            Device(f"FAKE-{self.name}-{index}", index, "fake", self.model, self.device_memory, fake=True)
            for index in range(self.devices)
        )
        return Node(
            self.name,
            self.cpus,
            self.memory,
            cards,
            pool=self.pool,
            rack_name=self.rack,
            zone_name=self.zone,
            link_map=self.link_map,
            extras=tuple(sorted(self.extras.items())),
        )


class PricesFile(Strict):
    """What an hour of a whole card costs.

    Attributes:
        gpu_hour: by model; ``default`` is for all others.
    """

    currency: Annotated[str, Field(min_length=1, max_length=10)] = "EUR"
    gpu_hour: dict[str, Annotated[float, Field(ge=0, le=1_000_000)]] = Field(default={})


TOPICS = ("job.started", "job.preempted", "job.succeeded", "job.failed", "job.cancelled")
"""What a webhook can be told of."""

Topic = Literal["job.started", "job.preempted", "job.succeeded", "job.failed", "job.cancelled"]


class WebhookFile(Strict):
    """Somebody to be told what happens to jobs.

    Attributes:
        on: what of; default: every end.
        queues: only of jobs of these; default: of all.
        secret: name of the server's secret that deliveries are signed with (``pond secret set --server``).
        secret_file: holds it, instead.
    """

    name: Name
    url: Annotated[str, Field(pattern=r"^https?://[^\s]+$", max_length=2_000)]
    on: list[Topic] = Field(default=["job.succeeded", "job.failed", "job.cancelled"], min_length=1)
    queues: list[Name] = Field(default=[])
    format: Literal["millpond", "slack", "feishu"] = "millpond"
    secret: SecretName | None = None
    secret_file: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_secret(self) -> WebhookFile:
        if self.secret is not None and self.secret_file is not None:
            raise BadValueError("both secret and secret_file", "leave one of them out")
        return self


class DevFile(Strict):
    """Rules for places to work (kind ``dev``).

    Attributes:
        idle_after: unused for this long, one is suspended or stopped; left out: never.
        warn_before: so long before, its user is warned.
        longest: how far a time limit can be extended; left out: as far as one likes.
    """

    idle_after: Annotated[Duration, Field(ge=60)] | None = None
    warn_before: Annotated[Duration, Field(ge=0)] = 600.0
    on_idle: Literal["suspend", "stop"] = "suspend"
    longest: Annotated[Duration, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _in_order(self) -> DevFile:
        if self.idle_after is not None and self.warn_before > self.idle_after:
            raise BadValueError("a warning earlier than the idle time itself", "lower warn_before")
        return self


@dataclass(frozen=True, slots=True)
class DevRules:
    """Rules for places to work; None: no such rule. ``on_idle`` is ``suspend`` or ``stop``."""

    idle_after_s: float | None = None
    warn_before_s: float = 600.0
    on_idle: str = "suspend"
    longest_s: float | None = None


class SecretsFile(Strict):
    """How secrets are kept from now on; older ones stay as they are."""

    cipher: Literal["aes-256-gcm", "sm4-gcm"] = "aes-256-gcm"


class ClusterFile(Strict):
    """The whole file."""

    dev: DevFile = DevFile()
    listen: ListenFile = ListenFile()
    ssh: SshFile | None = None
    pools: list[PoolFile] = Field(default=[])
    queues: list[QueueFile] = Field(default=[])
    nodes: list[NodeFile] = Field(default=[])
    oidc: OidcFile | None = None
    prices: PricesFile = PricesFile()
    webhooks: list[WebhookFile] = Field(default=[])
    run_as: RunAsFile = RunAsFile()
    tasks: TasksFile = TasksFile()
    secrets: SecretsFile = SecretsFile()
    containers: ContainersFile = ContainersFile()
    sources: list[SourceFile] = Field(default=[])
    cache: HostPath | None = None


@dataclass(frozen=True, slots=True)
class PriceList:
    """What an hour of a whole card costs, by model."""

    currency: str = ""
    gpu_hour: Mapping[str, float] = field(default_factory=dict)

    def cost(self, model: str, gpu_hours: float) -> float | None:
        """What so many hours cost; None where the list does not say."""
        price = self.gpu_hour.get(model, self.gpu_hour.get(ANY_MODEL))
        return None if price is None or not model else price * gpu_hours


@dataclass(frozen=True, slots=True)
class Webhook:
    """A checked receiver.

    Attributes:
        queues: empty for all.
        secret_name: of the server's secret that deliveries are signed with; empty: there is none.
        secret: the same from a file; empty: there is none.
    """

    name: str
    url: str
    on: tuple[str, ...]
    queues: tuple[str, ...] = ()
    format: str = "millpond"
    secret: str = field(default="", repr=False)
    secret_name: str = ""


@dataclass(frozen=True, slots=True)
class QueuePaths:
    """Where jobs of a queue may read and write on the machines, and take images from; None: what its parent's jobs
    may."""

    parent: str
    data: tuple[FilePath, ...] | None = None
    output: tuple[FilePath, ...] | None = None
    images: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """A checked configuration; queues come after their parents, ``paths`` are by queue."""

    pools: tuple[Pool, ...] = ()
    queues: tuple[Queue, ...] = ()
    nodes: tuple[Node, ...] = ()
    prices: PriceList = PriceList()
    webhooks: tuple[Webhook, ...] = ()
    paths: Mapping[str, QueuePaths] = field(default_factory=dict)
    dev: DevRules = DevRules()
    provisioning: Provisioning = Provisioning()
    listening: Listening = Listening()
    ssh: SshRules | None = None
    run_as: RunAs = RunAs()
    tasks: TaskRules = TaskRules()
    cipher: str = "aes-256-gcm"
    oidc: OidcRules | None = None


def load_cluster(path: FilePath) -> ClusterConfig:
    """The configuration in a file.

    Raises:
        UnavailableError: the file cannot be read.
        SpecError: it is wrong, with every fault found.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UnavailableError(f"cannot read {path} ({reason})", "name a readable configuration file") from error
    return read_cluster(text, str(path))


def read_cluster(text: str, source: str = "") -> ClusterConfig:
    """The configuration in a text.

    Raises:
        SpecError: it is wrong, with every fault found.
    """
    documents = read_documents(text, source)
    if len(documents) > 1:
        raise SpecError([documents[1].problem((), "a second document", "keep the configuration in one")])
    located = documents[0]
    file = validate(ClusterFile, located)
    problems = [
        *_repeated_names(file, located),
        *_unknown_names(file, located),
        *_nested_sources(file, located),
    ]
    webhooks, oidc = _webhooks(file, located, problems), _oidc(file, located, problems)
    if problems:
        raise SpecError(problems)
    return ClusterConfig(
        tuple(pool.pool() for pool in file.pools),
        tuple(_parents_first([_queue(queue) for queue in file.queues])),
        tuple(node.node() for node in file.nodes),
        PriceList(file.prices.currency, file.prices.gpu_hour) if file.prices.gpu_hour else PriceList(),
        webhooks,
        {queue.name: _queue_paths(queue) for queue in file.queues},
        DevRules(file.dev.idle_after, file.dev.warn_before, file.dev.on_idle, file.dev.longest),
        _provisioning(file),
        file.listen.listening(),
        SshRules(file.ssh.host, file.ssh.port) if file.ssh else None,
        file.run_as.rule(),
        file.tasks.rules(),
        file.secrets.cipher,
        oidc,
    )


def _queue_paths(queue: QueueFile) -> QueuePaths:
    images = None if queue.images is None else tuple(prefix.rstrip("/") for prefix in queue.images)
    return QueuePaths(queue.parent, _paths(queue.data), _paths(queue.output), images)


def _provisioning(file: ClusterFile) -> Provisioning:
    cache = None if file.cache is None else FilePath(file.cache)
    return Provisioning(file.containers.runtime, tuple(source.source() for source in file.sources), cache)


def _paths(written: list[str] | None) -> tuple[FilePath, ...] | None:
    return None if written is None else tuple(map(FilePath, written))


def _queue(queue: QueueFile) -> Queue:
    return Queue(
        queue.name,
        queue.parent,
        queue.guarantee.amount(0),
        queue.limit.amount(_UNLIMITED) if queue.limit else None,
        queue.weight,
        queue.borrows,
    )


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
    public_url = file.listen.listening().public_url
    if not public_url:
        hint = f"set listen.public_url: the provider sends people back to it, at {CALLBACK_PATH}"
        problems.append(located.problem(("oidc",), "no address to come back to", hint, at_key=True))
    secret = secret_in(file.oidc.client_secret_file, located, ("oidc", "client_secret_file"), problems)
    return file.oidc.rules(secret, public_url)


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
                message = f"the name {name!r} is taken"
                problems.append(located.problem((section, index, "name"), message, "choose another name"))
            seen.add(name)
    return problems


def _nested_sources(file: ClusterFile, located: Located) -> list[Problem]:
    problems = []
    paths = [FilePath(source.path) for source in file.sources]
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
            hint = suggest(queue.parent, [ROOT_QUEUE, *parents])
            problems.append(located.problem(at, f"unknown queue {queue.parent!r}", hint))
            continue
        above, steps = queue.parent, 0
        while above in parents and steps <= len(parents):
            above, steps = parents[above], steps + 1
        if steps > len(parents):
            problems.append(located.problem(at, f"queue {queue.name!r} is below itself", f"end at {ROOT_QUEUE!r}"))
    return problems


def _parents_first(queues: list[Queue]) -> list[Queue]:
    """The same queues in an order in which each parent comes before its children."""
    by_name = {queue.name: queue for queue in queues}
    ordered: dict[str, Queue] = {}

    def add(queue: Queue) -> None:
        if queue.name not in ordered:
            if queue.parent in by_name:
                add(by_name[queue.parent])
            ordered[queue.name] = queue

    for queue in queues:
        add(queue)
    return list(ordered.values())
