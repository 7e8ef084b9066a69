"""Files that are carried into and out of pods: the containers that do it, and how a task's own container has them.

An init container brings in what was sent along. Beside the task a second, ordinary container waits for its end and
carries back what it left: unlike a sidecar by ``restartPolicy``, it may take longer than a pod's grace where the task
ends by itself, and every release of Kubernetes has it. Both run ``node.carrier`` on the Python of their image. All
runs have that program from one secret, as it is much larger than all else that is made of a run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from lightkube.models.core_v1 import (
    Container,
    EmptyDirVolumeSource,
    EnvVar,
    ProjectedVolumeSource,
    SecretProjection,
    Volume,
    VolumeMount,
    VolumeProjection,
)
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Secret

from millpond.model.sharing import NO_CARDS, VISIBLE_TO_RUNTIME
from millpond.node.carrier.archive import carrier_archive
from millpond.node.carrier.order import ALIVE, BEGAN, DATA, METRICS, OUTPUT, PAYLOAD, RESULT, WORK, CarryOrder
from millpond.node.task.workspace import data_variable

CARRIER, CARRIER_INIT = "files", "bring-files"
CARRY_GRACE_S: Final = 300.0
"""So much longer than its task's grace a pod may take to end, for what the task left to be carried back."""
FOLDER: Final = "/millpond"
_CARRIER_FOLDER: Final = "/millpond-carrier"
_ARCHIVE, _ORDER = "carrier.pyz", "order.json"
_FILES_VOLUME, _CARRIER_VOLUME = "files", "carrier"
_MESSAGE: Final = "/dev/termination-log"
WITHOUT_PYTHON: Final = (
    "has no python3, by which files are carried: have an admin name another one in kubernetes.helper_image"
)
NO_PYTHON: Final = 5


@dataclass(frozen=True, slots=True)
class CarriedFiles:
    """What is carried for the runs of a job.

    Attributes:
        image: that the carriers run in.
        order_of: the order of an attempt.
    """

    image: str
    order_of: Callable[[int], CarryOrder]


def secret_name(run: str) -> str:
    """The secret with a run's order."""
    return f"{run}-files"


def secret_of(run: str, namespace: str, labels: Mapping[str, str], order: CarryOrder) -> Secret:
    """The secret itself."""
    meta = ObjectMeta(name=secret_name(run), namespace=namespace, labels=dict(labels))
    return Secret(metadata=meta, stringData={_ORDER: order.text()})


@cache
def program_secret(namespace: str) -> Secret:
    """The secret with the program, which stays; it is no secret, but of these the server has the right to make some.

    Kubelets do not watch what never changes.
    """
    labels = {"app.kubernetes.io/managed-by": "millpond"}
    meta = ObjectMeta(name=_program_name(), namespace=namespace, labels=labels)
    return Secret(metadata=meta, data={_ARCHIVE: base64.b64encode(carrier_archive()).decode()}, immutable=True)


@cache
def _program_name() -> str:
    return f"millpond-carrier-{hashlib.sha256(carrier_archive()).hexdigest()[:12]}"


def carriers(image: str, order: CarryOrder, task: int) -> tuple[Container, Container]:
    """The container before a task, and the one beside it."""
    # An image without Python does not keep a job from running that needs nothing brought: what it leaves is not kept.
    code = NO_PYTHON if order.brings else 0
    return _carrier(image, task, CARRIER_INIT, "in", code), _carrier(image, task, CARRIER, "out", NO_PYTHON)


def _carrier(image: str, task: int, name: str, way: str, code: int) -> Container:
    needs = f"echo 'the image {image} {WITHOUT_PYTHON}' > {_MESSAGE}; exit {code}"
    program = f"{_CARRIER_FOLDER}/{_ARCHIVE}"
    deaf = "trap '' TERM; " if way == "out" else ""  # until Python has a handler for it
    line = f'{deaf}command -v python3 > /dev/null || {{ {needs}; }}; exec python3 {program} "$@"'
    return Container(
        name=name,
        image=image,
        command=["/bin/sh", "-c", line, "carrier", way, f"{_CARRIER_FOLDER}/{_ORDER}", str(task), FOLDER, _MESSAGE],
        env=[EnvVar(name=VISIBLE_TO_RUNTIME, value=NO_CARDS)],
        workingDir="/",
        volumeMounts=[
            VolumeMount(name=_FILES_VOLUME, mountPath=FOLDER),
            VolumeMount(name=_CARRIER_VOLUME, mountPath=_CARRIER_FOLDER, readOnly=True),
        ],
    )


def file_volumes(run: str) -> list[Volume]:
    """The volumes that carried files take."""
    sources = [VolumeProjection(secret=SecretProjection(name=name)) for name in (_program_name(), secret_name(run))]
    return [
        Volume(name=_FILES_VOLUME, emptyDir=EmptyDirVolumeSource()),
        Volume(name=_CARRIER_VOLUME, projected=ProjectedVolumeSource(sources=sources)),
    ]


def file_mounts(order: CarryOrder) -> list[VolumeMount]:
    """Where the task has them; datasets read-only."""
    found = [VolumeMount(name=_FILES_VOLUME, mountPath=FOLDER)]
    if order.data:
        found.append(VolumeMount(name=_FILES_VOLUME, mountPath=f"{FOLDER}/{DATA}", subPath=DATA, readOnly=True))
    return found


def followed_command(command: Sequence[str]) -> list[str]:
    """The same command, whose end the carrier sees: it has the end of a pipe, and need not know of it."""
    line = f'if [ -p {FOLDER}/{ALIVE} ]; then exec 8<>{FOLDER}/{ALIVE}; : > {FOLDER}/{BEGAN}; fi; exec "$@"'
    return ["/bin/sh", "-c", line, "sh", *command]


def file_variables(order: CarryOrder) -> dict[str, str]:
    """By which a task finds its files."""
    folder = Path(FOLDER)
    found = {
        "MILLPOND_OUTPUT": str(folder / OUTPUT),
        "MILLPOND_METRICS": str(folder / METRICS),
        "MILLPOND_RESULT": str(folder / RESULT),
    }
    if order.payload:
        found["MILLPOND_PAYLOAD"] = str(folder / PAYLOAD)
    return found | {data_variable(name): str(folder / DATA / name) for name in order.data}


def working_folder(order: CarryOrder) -> str:
    """Where a task starts; empty: where its image, or its job file, says."""
    return f"{FOLDER}/{WORK}" if order.snapshot else ""
