"""The local engine as this server uses it: which nodes it has, what its jobs execute, what keeps them to it.

Which cards may be divided while the server runs, and into what, is read once, when it starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.model.hardware.card_layouts import CardLayout, DivisibleCard, LayoutRule
from millpond.model.hardware.nodes import Node
from millpond.model.sharing import DEFAULT_SLICE_RULES, MigLayout, SliceRules
from millpond.model.workloads import CheckpointMode, Suspendable
from millpond.node.devices.fake import VENDOR, FakeVendor, Tenant
from millpond.node.devices.fake_layouts import FILE
from millpond.node.devices.nvml.library import Nvml
from millpond.node.devices.vendor import CardDivider
from millpond.node.host.controllers import Amounts, GroupMode, find_controllers, open_for_groups
from millpond.node.host.machine import Machine, describe_machine, fake_machine, with_cap_ranges
from millpond.node.sandbox import namespaces
from millpond.node.sharing.mig import divide
from millpond.node.task.launch import LaunchSpec, ListenMode
from millpond.node.task.limits import REMEDY, Limiter
from millpond.node.task.records import job_dir
from millpond.node.task.runner import running_under
from millpond.server.auth.isolation import Isolation
from millpond.server.auth.vault.secrets import Vault
from millpond.server.storage.files.service import FileService
from millpond.server.storage.job_files import Accepted, JobFiles
from millpond.server.storage.provisioning.admission import Provisions
from millpond.specs.config.cluster import ClusterConfig
from millpond.specs.config.origins import PATHS_ONLY, JobOrigins
from millpond.specs.config.tasks import CardsInSight, TasksFile
from millpond.specs.job.job_file import JobFile, RoleFile
from millpond.specs.job.job_ids import service_of


def describe(fake_gpus: str, config: ClusterConfig, state_dir: Path) -> Machine:
    """This machine, or the pretended nodes that stand in for it, and how its cards may be divided.

    Raises:
        InvalidInputError: two nodes have one name, or ``fake_gpus`` cannot be read.
    """
    return with_layouts(_described(fake_gpus, config, state_dir), config.layouts, state_dir)


def _described(fake_gpus: str, config: ClusterConfig, state_dir: Path) -> Machine:
    if not config.nodes:
        divided = () if config.mig is None or fake_gpus else _divide(config.mig)  # before the cards are discovered
        machine = describe_machine(fake_gpus, running_under(state_dir), swap_mib=config.swap_mib)
        if config.tasks.cards == "own":
            machine = machine.without_remaps()
        return replace(machine, notes=(*machine.notes, *divided))
    nodes = (*config.nodes, *(describe_machine(fake_gpus, swap_mib=config.swap_mib).nodes if fake_gpus else ()))
    twice = [name for name, count in Counter(node.name for node in nodes).items() if count > 1]
    if twice:
        remedy = "rename the one in the configuration, or start without the others (--fake-gpus none)"
        raise InvalidInputError(f"two nodes are called {twice[0]!r}", remedy)
    return fake_machine(nodes)


def _divide(layout: MigLayout) -> tuple[str, ...]:
    try:
        return divide(layout, Nvml())
    except UnavailableError as error:
        return (f"no card is divided: {error}",)


@dataclass(frozen=True, slots=True)
class Rules:
    """The configuration's word on what tasks are kept to.

    Attributes:
        slices: by name of the pool.
    """

    tasks: Callable[[], TasksFile] = TasksFile
    slices: Callable[[str], SliceRules] = lambda pool: DEFAULT_SLICE_RULES


@dataclass(frozen=True, slots=True)
class Launcher:
    """Knows what jobs execute, and under which rules.

    Attributes:
        rules: what tasks are kept to besides what they ask for.
    """

    jobs: JobFiles
    files: FileService
    isolation: Isolation
    vault: Vault
    provisions: Provisions
    state_dir: Path
    rules: Rules = Rules()
    origins: JobOrigins = PATHS_ONLY

    def launch_of(self, job: str) -> LaunchSpec:
        """What a job executes, from the job file it was submitted with.

        Raises:
            NotFoundError: there is no such job, or no more a dataset or a secret of its, or no account it is to run as.
            InvalidInputError: this version no longer understands its file, or it may no longer have the data it names,
                or run where it says.
            UnavailableError: it could not be kept apart from others, or a secret of its cannot be opened, or it runs in
                a container and nothing here runs containers any more.
        """
        accepted = self.jobs.latest(job)
        spec, user = accepted.spec, accepted.user
        checkpoint, roles = spec.job.checkpoint, spec.file.all_roles()
        self.isolation.check(user)
        self.isolation.check_paths(spec.file, user, self.files.is_listed)
        identity = self.isolation.identity_of(user)
        have_said = [role for role in roles if spec.file.names_memory(role.name)]
        return LaunchSpec(
            command=next(iter(spec.commands.values())),
            workdir=self._workdir(job, accepted),
            env={
                **spec.file.env,
                **self.vault.environment(user, accepted.group, spec.file.secrets),
                **self._origin(job, spec.file),
            },
            checkpoint_signal=checkpoint.signal if checkpoint.mode is CheckpointMode.SIGNAL else "",
            grace_s=checkpoint.grace_s,
            role_commands=spec.commands,
            workspace=self.files.workspace(spec.file, identity),
            serves=spec.file.serves,
            listening=_listening(spec.file),
            private_network=self._has_private_network(spec.file),
            role_amounts={role.name: self._amounts(role) for role in roles},
            said_memory=frozenset(role.name for role in have_said if role.gpus is None or not role.gpus.cards),
            is_alone=_is_one_task(roles),
            own_shared_memory=_is_one_task(roles) and bool(have_said),
            identity=identity,
            account=self.isolation.account_of(user),
            container=self.provisions.launch(spec.file, identity),
            slice_rules=self.rules.slices(spec.file.pool),
            share_class=spec.job.share_class,
            swappable=spec.job.suspendable is Suspendable.SWAP,
            reads_input=spec.file.stdin,
            keep_s=spec.file.keep or 0.0,
        )

    def _origin(self, job: str, file: JobFile) -> dict[str, str]:
        """What programs that write whole addresses into their pages have to know."""
        origin = self.origins.url_of(service_of(job)) if file.serves else ""
        return {"MILLPOND_ORIGIN": origin} if origin else {}

    def _has_private_network(self, file: JobFile) -> bool:
        """Whether its tasks share a network with no other task.

        Raises:
            UnavailableError: they have to, and the kernel makes none.
        """
        if file.network_named is not None or file.image is not None:
            return file.network_named == "private"
        rule = self.rules.tasks().network
        if rule == "host" or (rule == "auto" and not self.isolation.is_shared):
            return False
        trouble = namespaces.network_trouble()
        if trouble and rule == "private":
            raise UnavailableError(f"no private networks here: {trouble}", "set tasks.network: auto, or host")
        return not trouble

    def _workdir(self, job: str, accepted: Accepted) -> Path:
        """Where it runs, asked about anew: links may lead elsewhere by now, and what the supervisor gets has none."""
        workdir = accepted.spec.file.workdir
        if not workdir:
            return _own_folder(job, self.state_dir)
        if accepted.spec.file.ship:  # a folder of its sender; it runs in a copy
            return Path(workdir)
        return self.isolation.working_folder(workdir, accepted.user)

    def _amounts(self, role: RoleFile) -> Amounts:
        rules = self.rules.tasks()
        return Amounts(role.cpus or 0, role.memory or 0, rules.processes, rules.cpu == "bound")


def _is_one_task(roles: Sequence[RoleFile]) -> bool:
    return len(roles) == 1 and (roles[0].tasks is None or roles[0].tasks.max == 1)


def _listening(file: JobFile) -> ListenMode:
    return ListenMode.SOCKET if file.serve is not None and file.serve.listen == "socket" else ListenMode.PORT


def _own_folder(job: str, state_dir: Path) -> Path:
    """A folder for a job that named none; all its attempts share it."""
    folder = job_dir(state_dir, job) / "work"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def make_limiter(mode: GroupMode, machine: Machine, cards: CardsInSight) -> Limiter:
    """What keeps tasks to their amounts on this machine; opens the server's control group for theirs where it may.

    Raises:
        UnavailableError: they are asked for, and cannot be had.
    """
    controllers, trouble = find_controllers(mode)
    if controllers is not None:
        try:
            open_for_groups(controllers)
        except OSError as error:
            controllers, trouble = None, f"the server's control group cannot be divided ({error.strerror})"
    if controllers is None and mode is GroupMode.ALWAYS:
        raise UnavailableError(f"tasks cannot have control groups: {trouble}", "use --control-groups auto")
    limiter = Limiter(controllers, trouble, pins=VENDOR not in machine.vendors)
    numbers = {} if cards == "all" else machine.device_numbers()
    if not numbers or (cards == "auto" and machine.remaps):
        return limiter
    open_to_all = trouble if controllers is None else controllers.trouble_with_devices
    if not open_to_all:
        return replace(limiter, cards=numbers)
    # The only card of a workstation is open to tasks without one: no news for whoever starts a server there.
    return limiter if len(numbers) == 1 else replace(limiter, open_to_all=open_to_all)


def pretend(machine: Machine, tenants: Callable[[], Iterable[Tenant]]) -> None:
    """Give pretended cards the tasks that they pretend."""
    vendor = machine.vendors.get(VENDOR)
    if isinstance(vendor, FakeVendor):
        vendor.tenants = tenants


def unlimited_text(limiter: Limiter) -> str:
    """Why all processes of a task together are not kept to its amounts, and what would mend it; empty when they are."""
    return f"{limiter.trouble}; {REMEDY}" if limiter.trouble else ""


def with_layouts(machine: Machine, rules: Mapping[str, LayoutRule], state_dir: Path) -> Machine:
    """A machine whose nodes say which of their cards may be divided, by the rules of their pools.

    Pretended cards that a rule names are put into MIG mode; a real card's mode stays as it is. A layout that a card
    cannot have is left out, with a note.

    Args:
        state_dir: where it is kept what pretended cards are divided into.
    """
    if not rules:
        return machine
    vendor = next((each for each in machine.vendors.values() if isinstance(each, FakeVendor)), None)
    if vendor is not None:
        cards = {card for node in machine.nodes for card in _named(node, rules.get(node.pool))}
        vendor.switch_mig_on(cards, state_dir / FILE)
        described = {node.name: with_cap_ranges(vendor.devices_of(node), vendor.power()) for node in machine.nodes}
        nodes = tuple(replace(node, devices=described[node.name]) for node in machine.nodes)
        machine = replace(machine, nodes=nodes)
    dividers = [each for each in (vendor.divider() for vendor in machine.vendors.values()) if each is not None]
    notes: dict[str, None] = {}
    nodes = tuple(_with_layouts(node, rules.get(node.pool), dividers, notes) for node in machine.nodes)
    if not any(node.divisible for node in nodes):
        notes["no card may be divided while the server runs: none is in MIG mode, or none can have a layout"] = None
    return replace(machine, nodes=nodes, notes=(*machine.notes, *notes))


def _named(node: Node, rule: LayoutRule | None) -> list[str]:
    """UUIDs of the cards of a node that a rule is about."""
    if rule is None:
        return []
    named = (device for device in node.devices if rule.cards is None or device.index in rule.cards)
    return list(dict.fromkeys(device.card for device in named))


def _with_layouts(node: Node, rule: LayoutRule | None, dividers: list[CardDivider], notes: dict[str, None]) -> Node:
    if rule is None:
        return node
    divisible = []
    for card in _named(node, rule):
        layouts: list[CardLayout] = []
        for instances in rule.layouts:
            try:
                found = (divider.layout(card, instances) for divider in dividers)
                layouts += [layout for layout in found if layout is not None]
            except InvalidInputError as error:
                notes[f"a card of {node.name} cannot be divided into {', '.join(instances)}: {error}"] = None
        if layouts:
            divisible.append(DivisibleCard(card, tuple(layouts), rule.stay_s))
    return replace(node, divisible=tuple(divisible))
