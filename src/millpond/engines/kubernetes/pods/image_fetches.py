"""Images that nodes pull before a job starts there: by a pod that names the image and ends at once.

Such a pod asks for nothing, so that it takes no room from tasks, and says so: a LimitRange would put its own amounts
where none are, and a quota would refuse it. Only a quota of the number of pods counts it. It is deleted once the image
is there, as its container has been made then, or once it is not to be had; what the container itself does is of no
interest. A pull that fails is not tried again: the start of the job does that. The kubelet keeps the images of all
containers that it runs.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterable
from typing import Final

from lightkube.models.core_v1 import Container, LocalObjectReference, PodSpec, ResourceRequirements, Toleration
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Pod

from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_refusals import ClusterRefusedError
from millpond.engines.kubernetes.cluster.objects import PodObject
from millpond.engines.kubernetes.loop_work import LoopWork
from millpond.engines.kubernetes.pods.pod_marks import CONTAINER, SERVER_LABEL
from millpond.engines.kubernetes.pods.pod_states import PodPhase, passing_trouble, phase_of, start_trouble
from millpond.engines.kubernetes.pods.pod_template import PodLaunch, PodRules
from millpond.engines.outbox import Outbox
from millpond.engines.task_ends import Refusal
from millpond.model.contents import Content
from millpond.model.decisions import Decision, Prefetch
from millpond.model.errors import MillpondError
from millpond.specs.job.images import image_content, is_reference

FETCH_LABEL: Final = "millpond.io/fetch"
LONGEST_S: Final = 1_800
"""A pull that takes longer is given up."""
NO_IMAGE: Final = "what it needs is no image, and a cluster fetches images alone"
_GONE: Final = "the pod that pulled its image was deleted"
_TOO_LONG: Final = "its image was not there in time"
_NOTHING: Final = {"cpu": "0", "memory": "0"}
"""As a limit it is none."""
_FULL: Final = "the node takes no pod beside those that it has and is to have"


def is_fetch(pod: PodObject) -> bool:
    """Whether a pod only pulls an image."""
    return FETCH_LABEL in pod.metadata.labels


class ImageFetches:
    """Those of one server. Lives on the engine's loop.

    Args:
        launch_of: how the tasks of a job are made into pods; called on threads of its own.
        places_left: how many more pods the kubelet of a node takes; 0 of one that is not there.
    """

    def __init__(
        self,
        api: ClusterApi,
        rules: PodRules,
        outbox: Outbox,
        launch_of: Callable[[str], PodLaunch],
        places_left: Callable[[str], float],
    ) -> None:
        self._api = api
        self._rules = rules
        self._outbox = outbox
        self._launch_of = launch_of
        self._places_left = places_left
        self._work = LoopWork(outbox)
        self._by_pod: dict[str, Prefetch] = {}

    def carry_out(self, decision: Prefetch) -> None:
        """Have a node pull the image of a job, or pull it no more."""
        if not decision.contents:
            for name, begun in list(self._by_pod.items()):
                if (begun.node, begun.job) == (decision.node, decision.job):
                    self._drop(name)
            self._outbox.confirm(decision)
        elif self._places_left(decision.node) <= 1:
            self._outbox.refuse(decision, Refusal(_FULL, False))
        else:
            name = self._name(decision)
            self._by_pod[name] = decision
            self._work.begin(self._make(name, decision))

    def adopt(self, unanswered: Iterable[Decision], pods: Iterable[PodObject]) -> None:
        """Delete what an earlier engine began and nobody waits for."""
        wanted = {self._name(each) for each in unanswered if isinstance(each, Prefetch) and each.contents}
        for pod in pods:
            if is_fetch(pod) and pod.metadata.name not in wanted:
                self._delete(pod.metadata.name)

    def pod_changed(self, pod: PodObject) -> None:
        """One of these pods is there, or has changed."""
        decision = self._by_pod.get(pod.metadata.name)
        if decision is None:
            return
        if _is_made(pod):
            self._outbox.confirm(decision)
            self._drop(pod.metadata.name)
        elif (refusal := passing_trouble(pod) or start_trouble(pod)) is not None:
            self._refuse(pod.metadata.name, refusal)

    def pod_deleted(self, pod: PodObject) -> None:
        """One of these pods is gone from the cluster."""
        if (decision := self._by_pod.pop(pod.metadata.name, None)) is not None:
            self._outbox.refuse(decision, Refusal(_GONE, True))

    async def _make(self, name: str, decision: Prefetch) -> None:
        try:
            launch = await asyncio.to_thread(self._launch_of, decision.job)
            if not _has_image(launch.image, decision.contents):
                raise ClusterRefusedError(Refusal(NO_IMAGE, False))
            if name in self._by_pod:
                await self._api.make_fetch(self._pod(name, decision.node, launch.image))
        except ClusterRefusedError as error:
            self._refuse(name, error.refusal)
        except MillpondError as error:
            self._refuse(name, Refusal(str(error), False))
        else:
            if name in self._by_pod:
                asyncio.get_running_loop().call_later(LONGEST_S, self._refuse, name, Refusal(_TOO_LONG, True))
            else:  # it was given up meanwhile
                self._delete(name)

    def _pod(self, name: str, node: str, image: str) -> Pod:
        rules = self._rules
        asks = ResourceRequirements(requests=_NOTHING, limits=_NOTHING)
        pulls = Container(CONTAINER, image=image, command=["true"], imagePullPolicy="IfNotPresent", resources=asks)
        spec = PodSpec(
            containers=[pulls],
            nodeName=node,
            restartPolicy="Never",
            activeDeadlineSeconds=LONGEST_S,
            terminationGracePeriodSeconds=0,
            serviceAccountName=rules.service_account or None,
            automountServiceAccountToken=False,
            imagePullSecrets=[LocalObjectReference(name=each) for each in rules.pull_secrets] or None,
            enableServiceLinks=False,
            tolerations=[Toleration(key=key, operator="Exists") for key in rules.tolerated],
        )
        labels = {"app.kubernetes.io/managed-by": "millpond", SERVER_LABEL: rules.server, FETCH_LABEL: "image"}
        return Pod(metadata=ObjectMeta(name=name, namespace=rules.namespace, labels=labels), spec=spec)

    def _name(self, decision: Prefetch) -> str:
        """The same each time, so that an engine that begins anew finds what was made."""
        digest = hashlib.sha256(f"{self._rules.server}/{decision.job}/{decision.node}".encode()).hexdigest()[:12]
        return f"millpond-fetch-{digest}-{decision.id}"

    def _refuse(self, name: str, refusal: Refusal) -> None:
        if (decision := self._by_pod.get(name)) is not None:
            self._outbox.refuse(decision, refusal)
            self._drop(name)

    def _drop(self, name: str) -> None:
        del self._by_pod[name]
        self._delete(name)

    def _delete(self, name: str) -> None:
        self._work.begin(self._end(name))

    async def _end(self, name: str) -> None:
        await self._api.delete_pod(name, 0.0)


def _is_made(pod: PodObject) -> bool:
    """Whether the container of a pod was made, so that its image is there."""
    ended = [each.state.terminated for each in pod.status.container_statuses if each.state.terminated is not None]
    return bool(ended) or phase_of(pod) is PodPhase.RUNNING


def _has_image(image: str, contents: Collection[Content]) -> bool:
    return is_reference(image) and image_content(image) in {content.name for content in contents}
