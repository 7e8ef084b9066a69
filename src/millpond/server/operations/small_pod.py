"""Whether a namespace takes pods as jobs have them, tried with one that is not made.

Quotas, policies and admission webhooks are not for the server to read, and say what is wrong of a pod alone.
https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from millpond.model.decisions import Placement, Start
from millpond.model.reasons import Cause
from millpond.server.operations.findings import Finding, Grade
from millpond.specs.config.kubernetes import KubernetesFile

if TYPE_CHECKING:
    import httpx2
    from lightkube.models.core_v1 import Pod

_NO_RIGHT: Final = 'cannot create resource "pods"'
"""Which is said of the rights."""
_NO_DRY_RUN: Final = "does not support dry run"
"""In the words of webhooks, which say nothing of the pod then."""


def check_pods(client: httpx2.Client, namespace: str, settings: KubernetesFile) -> Iterator[Finding]:
    """Whether the namespace takes a small pod as jobs have them, and leaves it as it is. None is made for that."""
    import msgspec

    path, pod = f"/api/v1/namespaces/{namespace}/pods", _small_pod(namespace, settings)
    json = {"Content-Type": "application/json"}
    answer = client.post(path, params={"dryRun": "All"}, content=msgspec.json.encode(pod), headers=json)
    said = words_of(answer)
    if answer.is_success:
        if changed := _changed(answer.content, pod):
            yield Finding("pods", Grade.BROKEN, changed, "see the admission webhooks and policies of the cluster")
    elif answer.status_code == HTTPStatus.NOT_FOUND:
        said = f"there is no namespace {namespace}, and a server does not begin without it"
        yield Finding("namespace", Grade.BROKEN, said, f"kubectl create namespace {namespace}")
    elif "because it is being terminated" in said:
        said = f"namespace {namespace} is being deleted, and takes nothing new"
        yield Finding("namespace", Grade.BROKEN, said, "make it anew when it is gone")
    elif _NO_RIGHT not in said and _NO_DRY_RUN not in said:
        remedy = "see what it names: a quota, a LimitRange, a policy or an admission webhook"
        yield Finding("pods", Grade.LIMITED, f"namespace {namespace} does not take a small pod: {said}", remedy)


def _small_pod(namespace: str, settings: KubernetesFile) -> Pod:
    """As that of a job which asks for next to nothing."""
    from millpond.engines.kubernetes.cluster.cluster_nodes import TOLERATED
    from millpond.engines.kubernetes.pods.pod_template import PodLaunch, PodRules, RoleNeeds, run_objects

    tolerated = (*TOLERATED, *settings.tolerate)
    rules = PodRules(namespace, "check", settings.service_account or "", tuple(settings.pull_secrets), tolerated)
    launch = PodLaunch(settings.image or "none", {"worker": RoleNeeds("true", 10, 16)})
    start = Start(1, "millpond-check", 1, Cause.FITS, (Placement(0, "worker", "none"),))
    return run_objects(start, launch, rules, 1, {}).pods[0]


def _changed(taken: bytes, pod: Pod) -> str:
    """What an admission has done to a pod, so that it is no task any more; empty where it has not."""
    import msgspec
    from lightkube.models.meta_v1 import ObjectMeta

    from millpond.engines.kubernetes.cluster.objects import PodObject
    from millpond.engines.kubernetes.pods.pod_marks import SERVER_LABEL, TASK_ANNOTATION, UNMARKED
    from millpond.engines.kubernetes.pods.pod_states import start_trouble

    found, made = msgspec.json.decode(taken, type=PodObject), pod.metadata or ObjectMeta()
    if found.spec.node_name:
        return f"the cluster sends pods that are made to node {found.spec.node_name}, whichever node is chosen for them"
    marks = (
        (made.labels, found.metadata.labels, SERVER_LABEL),
        (made.annotations, found.metadata.annotations, TASK_ANNOTATION),
    )
    if any((given or {}).get(name) != left.get(name) for given, left, name in marks):
        return UNMARKED
    trouble = start_trouble(found)
    return "" if trouble is None else trouble.reason


def words_of(answer: httpx2.Response) -> str:
    """Of an answer that is an error, in the cluster's own words."""
    from millpond.engines.kubernetes.cluster.api_channel import ApiAnswer, status_of

    return status_of(ApiAnswer(answer.status_code, answer.reason_phrase, answer.content)).message
