"""A task as a pod: complete, and the same each time it is made, so that making it twice is noticed by its name."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from lightkube.models.core_v1 import (
    Container,
    EmptyDirVolumeSource,
    EnvFromSource,
    EnvVar,
    ExecAction,
    Lifecycle,
    LifecycleHandler,
    LocalObjectReference,
    PodResourceClaim,
    PodSpec,
    ResourceClaim,
    ResourceRequirements,
    SecretEnvSource,
    ServiceSpec,
    Toleration,
    Volume,
    VolumeMount,
)
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Pod, Secret, Service

from millpond.engines.kubernetes.cluster.cluster_nodes import AGENT_DRIVER, DRIVER, MILLI, TOLERATED
from millpond.engines.kubernetes.pods.pod_files import (
    CARRY_GRACE_S,
    CarriedFiles,
    carriers,
    file_mounts,
    file_variables,
    file_volumes,
    followed_command,
    program_secret,
    secret_of,
    working_folder,
)
from millpond.engines.kubernetes.pods.pod_marks import (
    CARDS_CLAIM,
    CONTAINER,
    INPUT_FOLDER,
    RUN_LABEL,
    SCHEDULER,
    TASK_ANNOTATION,
    TaskMark,
    claim_name,
    labels_of,
    pod_name,
    run_name,
)
from millpond.engines.kubernetes.pods.pod_volumes import PodMount, volume_mounts_of, volumes_of
from millpond.engines.kubernetes.pods.slice_order import SliceOrder, milli_of, of_agent
from millpond.model.confinement import NetworkScope
from millpond.model.decisions import Grant, Placement, Start
from millpond.model.errors import InvalidInputError
from millpond.model.sharing import (
    DEFAULT_SLICE_RULES,
    NO_CARDS,
    VISIBLE_TO_RUNTIME,
    EscapePolicy,
    ShareClass,
    SliceRules,
)
from millpond.node.task.launch import Command
from millpond.node.task.records import TaskId

MASTER_PORT = 29_500
"""Every pod has a network address of its own, so that gangs need not agree on a free port."""
SERVICE_PORT = 8_080
"""For the same reason all that serves listens on one port."""
_INPUT_VOLUME = "millpond-input"
_READ_BY_KUBELETS = re.compile(r"\$(?=[$(])")
# What holds the pipe open while it is empty, and lets go of it at the end. It has the pipe (8) before the program does,
# else the first script that fills it would end it by leaving. Until then a reader (9) lets both ends be opened.
_WITH_INPUT = """mkfifo "$0/in" "$0/end.new" && {
  exec 9<>"$0/in" 8>"$0/in"
  mv "$0/end.new" "$0/end"
  (: <"$0/end") 9>&- &
  exec "$@" <"$0/in" 8>&- 9>&-
}"""


@dataclass(frozen=True, slots=True)
class RoleNeeds:
    """What a task of a role is given besides its devices.

    Attributes:
        memory_is_bound: it said how much memory it needs, and is kept to that.
        extras: other extended resources, by their names in the cluster.
    """

    command: Command
    cpu_milli: int
    memory_mib: int
    memory_is_bound: bool = False
    extras: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodLaunch:
    """How the tasks of a job are made into pods.

    Attributes:
        secrets: variables whose values are kept out of the pods' own text.
        notice_signal: what asks its programs to end, beside SIGTERM; empty: that alone.
        grace_s: seconds between notice and the end by force, where Kubernetes itself ends a pod.
        mounts: storage of the cluster, each place once, the outer before the inner.
        workdir: where its programs start; empty: where the image says.
        serves: its tasks get a port.
        files: what is carried into its pods, and out of them; None: nothing.
        reads_input: its first task has standard input.
        share_class, slice_rules: of its parts of cards.
        swappable: it says that it leaves its cards by swap.
    """

    image: str
    roles: Mapping[str, RoleNeeds]
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    notice_signal: str = ""
    grace_s: float = 30.0
    mounts: tuple[PodMount, ...] = ()
    workdir: str = ""
    serves: bool = False
    files: CarriedFiles | None = None
    reads_input: bool = False
    share_class: ShareClass = ShareClass.NORMAL
    slice_rules: SliceRules = DEFAULT_SLICE_RULES
    swappable: bool = False

    def order_of(self, grants: Iterable[Grant]) -> SliceOrder:
        """What the agent of a node is to carry out."""
        rules = self.slice_rules
        evicts = rules.escapes is EscapePolicy.KILL
        return SliceOrder(of_agent(grants), self.share_class, evicts, rules.floor_milli, self.swappable)


@dataclass(frozen=True, slots=True)
class PodRules:
    """What is the same for all pods of a server.

    Attributes:
        server: its identity.
        service_account: empty: the namespace's default.
        pull_secrets: names of secrets with the logins of registries.
        tolerated: keys of taints.
    """

    namespace: str
    server: str
    service_account: str = ""
    pull_secrets: tuple[str, ...] = ()
    tolerated: Collection[str] = TOLERATED


@dataclass(frozen=True, slots=True)
class RunObjects:
    """Everything that a start makes in the cluster.

    Attributes:
        shared: secrets with the values of its secret variables, and for carrying files, of which one stays; and a
            service by which a gang finds its first task.
        pods: in the order of the placements.
    """

    pods: tuple[Pod, ...]
    shared: tuple[Secret | Service, ...] = ()


def run_objects(
    start: Start, launch: PodLaunch, rules: PodRules, world_size: int, resources: Mapping[str, str]
) -> RunObjects:
    """What is made for one start.

    Args:
        world_size: tasks of the gang, those that started earlier too.
        resources: the extended resource of each device, by its UUID.

    Raises:
        InvalidInputError: a device is given that no pod can ask for.
    """
    run, labels = run_name(start.job, start.attempt), labels_of(start.job, start.attempt, rules.server)
    shared: list[Secret | Service] = []
    if launch.secrets:
        shared.append(
            Secret(
                metadata=ObjectMeta(name=run, namespace=rules.namespace, labels=labels), stringData=dict(launch.secrets)
            )
        )
    if launch.files is not None:
        order = launch.files.order_of(start.attempt)
        shared += (program_secret(rules.namespace), secret_of(run, rules.namespace, labels, order))
    if world_size > 1:
        spec = ServiceSpec(clusterIP="None", selector={RUN_LABEL: run}, publishNotReadyAddresses=True)
        shared.append(Service(metadata=ObjectMeta(name=run, namespace=rules.namespace, labels=labels), spec=spec))
    maker = _PodMaker(start, launch, rules, world_size, resources)
    return RunObjects(tuple(maker.pod(placed) for placed in start.placements), tuple(shared))


@dataclass(frozen=True, slots=True)
class _PodMaker:
    """Makes the pods of one start; see ``run_objects``."""

    start: Start
    launch: PodLaunch
    rules: PodRules
    world_size: int
    resources: Mapping[str, str]

    def pod(self, placed: Placement) -> Pod:
        start, launch, rules = self.start, self.launch, self.rules
        task = TaskId(start.job, start.attempt, placed.task)
        order, mark = launch.order_of(placed.grants), self._mark(placed)
        container, volumes = self._container(task, placed)
        spec = PodSpec(
            containers=[container],
            volumes=volumes,
            schedulerName=SCHEDULER,
            restartPolicy="Never",
            terminationGracePeriodSeconds=math.ceil(launch.grace_s),
            serviceAccountName=rules.service_account or None,
            automountServiceAccountToken=bool(rules.service_account),
            imagePullSecrets=[LocalObjectReference(name=name) for name in rules.pull_secrets] or None,
            enableServiceLinks=False,
            tolerations=[Toleration(key=key, operator="Exists") for key in rules.tolerated],
            hostname=pod_name(task) if self.world_size > 1 else None,
            subdomain=run_name(start.job, start.attempt) if self.world_size > 1 else None,
        )
        if container.resources is not None and container.resources.claims:
            spec.resourceClaims = [PodResourceClaim(name=CARDS_CLAIM, resourceClaimName=claim_name(task, start.id))]
        if launch.files is not None:
            _add_files(spec, container, launch.files, task)
        meta = ObjectMeta(
            name=mark.pod,
            namespace=rules.namespace,
            labels=labels_of(start.job, start.attempt, rules.server),
            annotations={TASK_ANNOTATION: mark.text, **(order.annotation() if order.grants else {})},
        )
        return Pod(metadata=meta, spec=spec)

    def _mark(self, placed: Placement) -> TaskMark:
        start, launch = self.start, self.launch
        return TaskMark(
            start.job,
            start.attempt,
            placed.task,
            start.id,
            placed.role,
            tuple(grant.device for grant in placed.grants),
            saves=bool(launch.notice_signal),
            port=SERVICE_PORT if launch.serves else None,
            reads_input=self._reads_input(placed),
            joins=start.joins,
            server=self.rules.server,
        )

    def _reads_input(self, placed: Placement) -> bool:
        return self.launch.reads_input and placed.task == 0

    def _container(self, task: TaskId, placed: Placement) -> tuple[Container, list[Volume]]:
        """What runs the program, and the volumes that it mounts."""
        launch, needs = self.launch, self.launch.roles[placed.role]
        command = ["/bin/sh", "-c", needs.command] if isinstance(needs.command, str) else list(needs.command)
        mounts, volumes = volume_mounts_of(launch.mounts), volumes_of(launch.mounts)
        if self._reads_input(placed):
            command = ["/bin/sh", "-c", _WITH_INPUT, INPUT_FOLDER, *command]
            mounts.append(VolumeMount(name=_INPUT_VOLUME, mountPath=INPUT_FOLDER))
            volumes.append(Volume(name=_INPUT_VOLUME, emptyDir=EmptyDirVolumeSource()))
        secrets = SecretEnvSource(name=run_name(task.job, task.attempt))
        container = Container(
            name=CONTAINER,
            image=launch.image,
            command=[literal(word) for word in command],
            env=[EnvVar(name, literal(value)) for name, value in sorted(self._environment(task, placed).items())],
            envFrom=[EnvFromSource(secretRef=secrets)] if launch.secrets else None,
            workingDir=launch.workdir or None,
            volumeMounts=mounts,
            resources=_resources(needs, placed.grants, self.resources),
            lifecycle=_notice(launch.notice_signal),
        )
        return container, volumes

    def _environment(self, task: TaskId, placed: Placement) -> dict[str, str]:
        launch, run = self.launch, run_name(task.job, task.attempt)
        first = pod_name(TaskId(task.job, task.attempt, 0))
        return {
            "PYTHONUNBUFFERED": "1",
            **launch.env,
            "MASTER_ADDR": "127.0.0.1" if self.world_size == 1 else f"{first}.{run}.{self.rules.namespace}.svc",
            "MASTER_PORT": str(MASTER_PORT),
            "WORLD_SIZE": str(self.world_size),
            "RANK": str(task.task),
            "NODE_RANK": str(task.task),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MILLPOND_JOB_ID": task.job,
            "MILLPOND_TASK": str(task.task),
            "MILLPOND_NOTICE_SIGNAL": launch.notice_signal or "SIGTERM",
            "MILLPOND_ATTEMPT": str(task.attempt),
            "MILLPOND_ROLE": placed.role,
            "MILLPOND_NODE": placed.node,
            "MILLPOND_NETWORK": NetworkScope.PRIVATE.value,
            **({"MILLPOND_PORT": str(SERVICE_PORT)} if launch.serves else {}),
            **({VISIBLE_TO_RUNTIME: NO_CARDS} if self._sees_none(placed) else {}),
        }

    def _sees_none(self, placed: Placement) -> bool:
        """Whether a pod itself names no cards: shares by claims replace that, where the runtime knows CDI."""
        return all(self.resources.get(grant.device) == AGENT_DRIVER for grant in placed.grants)


def literal(text: str) -> str:
    """A word of a command, or the value of a variable, that comes to a text.

    Kubelets put variables in place of ``$(NAME)`` there, and one dollar in place of two.
    Source: ``k8s.io/kubernetes/third_party/forked/golang/expansion``.
    """
    return _READ_BY_KUBELETS.sub("$$", text)


def _add_files(spec: PodSpec, container: Container, files: CarriedFiles, task: TaskId) -> None:
    """Have files be carried into a pod, and out of it."""
    order = files.order_of(task.attempt)
    before, beside = carriers(files.image, order, task.task)
    own = {each.name for each in container.env or ()}
    container.command = followed_command(container.command or ())
    container.workingDir = working_folder(order) or container.workingDir
    container.volumeMounts = [*file_mounts(order), *(container.volumeMounts or ())]
    container.env = [
        *(EnvVar(name=name, value=value) for name, value in file_variables(order).items() if name not in own),
        *(container.env or ()),
    ]
    spec.initContainers, spec.containers = [before], [container, beside]
    spec.volumes = [*file_volumes(run_name(task.job, task.attempt)), *(spec.volumes or ())]
    spec.terminationGracePeriodSeconds = math.ceil((spec.terminationGracePeriodSeconds or 0) + CARRY_GRACE_S)


def _resources(needs: RoleNeeds, grants: tuple[Grant, ...], resources: Mapping[str, str]) -> ResourceRequirements:
    unknown = [grant.device for grant in grants if grant.device not in resources]
    if unknown:
        raise InvalidInputError(f"no pod can ask for the device {unknown[0]}", "see `pond top`")
    asked: dict[str, int] = {}
    for grant in grants:
        resource = resources[grant.device]
        asked[resource] = asked.get(resource, 0) + (milli_of((grant,)) if resource == MILLI else 1)
    claims = [ResourceClaim(name=CARDS_CLAIM)] if asked.pop(DRIVER, 0) + asked.pop(AGENT_DRIVER, 0) else None
    extended = {name: str(count) for name, count in (*asked.items(), *needs.extras.items()) if count}
    memory = {"memory": f"{needs.memory_mib}Mi"} if needs.memory_mib else {}
    requests = {"cpu": f"{needs.cpu_milli}m", **memory, **extended}
    limits = {**(memory if needs.memory_is_bound else {}), **extended}
    return ResourceRequirements(requests=requests, limits=limits, claims=claims)


def _notice(signal: str) -> Lifecycle:
    """The signal that asks a job to end, to all its processes; they have the whole grace for it.

    Kubernetes sends SIGTERM to the first process alone. Where that is the shell of a line, the kernel keeps the signal
    from it, and the program below it would not hear of its end.
    """
    name = (signal or "SIGTERM").removeprefix("SIG")
    line = f"kill -{name} 1; kill -{name} -1; while kill -0 1 2>/dev/null; do sleep 0.2; done"
    return Lifecycle(preStop=LifecycleHandler(exec=ExecAction(command=["/bin/sh", "-c", line])))
