"""Whether a Kubernetes cluster has what jobs of Millpond need, and lets the server do what it has to do there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millpond.engines.kubernetes.cluster.access import read_json, sync_client
from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess, find_config
from millpond.model.errors import UnavailableError
from millpond.server.operations.findings import Finding, Grade
from millpond.server.operations.small_pod import check_pods, words_of
from millpond.specs.config.kubernetes import ALL_NAMESPACES, AdoptFile, KubernetesFile

if TYPE_CHECKING:
    import httpx2

_NOT_FOUND: Final = 404
_WAY: Final = "way to the cluster"
_Right: TypeAlias = tuple[str, str, str]
"""A verb, a resource, and whether in the namespace or, if empty, in the whole cluster."""
RIGHTS: Final = (
    ("list", "nodes", ""),
    ("watch", "nodes", ""),
    ("patch", "nodes/status", ""),
    ("list", "pods", ""),
    ("watch", "pods", ""),
    ("get", "pods", "namespace"),
    ("create", "pods", "namespace"),
    ("delete", "pods", "namespace"),
    ("patch", "pods", "namespace"),
    ("create", "pods/binding", "namespace"),
    ("list", "events", "namespace"),
    ("get", "pods/log", "namespace"),
    ("get", "pods/exec", "namespace"),
    ("create", "pods/exec", "namespace"),
    ("get", "pods/portforward", "namespace"),
    ("create", "pods/portforward", "namespace"),
    ("create", "secrets", "namespace"),
    ("delete", "secrets", "namespace"),
    ("create", "services", "namespace"),
    ("delete", "services", "namespace"),
    ("get", "leases.coordination.k8s.io", "namespace"),
    ("create", "leases.coordination.k8s.io", "namespace"),
    ("update", "leases.coordination.k8s.io", "namespace"),
)
"""What the engine does: verb, resource, and whether in its namespace or in the whole cluster."""

ADOPTING: Final = (
    ("get", "pods"),
    ("create", "pods/binding"),
    ("patch", "pods/status"),
    ("create", "pods/eviction"),
    ("create", "events"),
    ("get", "persistentvolumeclaims"),
    ("get", "jobs.batch"),
    ("patch", "jobs.batch"),
)
"""What it does to pods of others, in each namespace whose pods it adopts: verb and resource."""

CLAIMS: Final = "resourceclaims.resource.k8s.io"
SEEING_CLAIMS: Final = tuple(
    (verb, f"{kind}.resource.k8s.io", "")
    for verb in ("list", "watch")
    for kind in ("resourceslices", "deviceclasses", "resourceclaims")
)
SEEING_TAINTS: Final = tuple((verb, "devicetaintrules.resource.k8s.io", "") for verb in ("list", "watch"))
MAKING_CLAIMS: Final = (
    ("get", CLAIMS, "namespace"),
    ("create", CLAIMS, "namespace"),
    ("patch", f"{CLAIMS}/status", "namespace"),
    ("patch", f"{CLAIMS}/binding", "namespace"),
)
"""What the engine does where the cluster serves resource claims, as in ``RIGHTS``."""
ADOPTING_CLAIMS: Final = (
    ("get", CLAIMS),
    ("create", CLAIMS),
    ("delete", CLAIMS),
    ("patch", CLAIMS),
    ("patch", f"{CLAIMS}/status"),
    ("patch", f"{CLAIMS}/binding"),
)
"""And for pods of others, as in ``ADOPTING``."""

GATED: Final = (*ADOPTING, ("patch", "pods"))
"""And where it releases pods that other schedulers bind."""


def access_of(settings: KubernetesFile) -> ClusterAccess:
    """The way to the cluster that the configuration names."""
    return ClusterAccess(settings.kubeconfig or "", settings.context or "", settings.namespace or "")


def check_clusters(settings: KubernetesFile) -> list[Finding]:
    """Look at the cluster, or at each of several. Nothing is changed there."""
    return [
        replace(finding, what=f"{name}: {finding.what}" if name else finding.what)
        for name, own in settings.each.items()
        for finding in check_cluster(own)
    ]


def check_cluster(settings: KubernetesFile) -> list[Finding]:
    """Look at one cluster. Nothing is changed there."""
    import httpx2

    try:
        access = access_of(settings)
        config = find_config(access)
        client = sync_client(config)
    except UnavailableError as error:
        return [Finding(_WAY, Grade.BROKEN, error.cause, error.remedy)]
    with client:
        try:
            version = read_json(client, "/version").get("gitVersion", "of an unknown version")
            namespace = access.namespace or config.namespace
            found = [Finding(_WAY, Grade.OK, f"{config.cluster.server}, Kubernetes {version}")]
            serves_claims = client.get("/apis/resource.k8s.io/v1").is_success
            adopting = () if settings.adopt is None else _adopting(client, settings.adopt, serves_claims)
            found += [_rights(client, namespace, RIGHTS), *check_pods(client, namespace, settings)]
            found += _claims(client, namespace, settings)
            if serves_claims:
                found.append(_resource_claims(client, namespace))
            return [*found, *adopting, *_nodes(client, settings, serves_claims)]
        except httpx2.HTTPStatusError as error:
            code = error.response.status_code
            of_user = code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
            remedy = "check the credentials in the kubeconfig" if of_user else "its own log says more"
            said = f"{config.cluster.server} answers {code}: {words_of(error.response)}"
            return [Finding(_WAY, Grade.BROKEN, said, remedy)]
        except UnavailableError as error:
            return [Finding(_WAY, Grade.BROKEN, error.cause, error.remedy)]
        except (httpx2.HTTPError, OSError) as error:
            what = f"{config.cluster.server} does not answer: {error}"
            return [Finding(_WAY, Grade.BROKEN, what, "check the address in the kubeconfig")]


def _rights(client: httpx2.Client, namespace: str, wanted: Sequence[_Right]) -> Finding:
    missing = _missing(client, namespace, wanted)
    if not missing:
        return Finding("rights", Grade.OK, f"pods may be made and bound in namespace {namespace}")
    said = f"this user may not {_listed(missing)} ({namespace})"
    if all(right in missing for right in wanted if right[-1]):
        said += "; that is all of the rights in that namespace, so it may be gone, with its roles"
    return Finding("rights", Grade.BROKEN, said, "grant them: deploy/kubernetes/roles.yaml")


def _missing(client: httpx2.Client, namespace: str, wanted: Sequence[_Right]) -> list[_Right]:
    return [each for each in wanted if not _may(client, each[0], each[1], namespace if each[2] else "")]


def _listed(rights: Iterable[_Right]) -> str:
    return ", ".join(f"{verb} {what}" + ("" if where else " of all namespaces") for verb, what, where in rights)


def _resource_claims(client: httpx2.Client, namespace: str) -> Finding:
    """Whether cards can be given out by claims, where the cluster serves these."""
    from millpond.engines.kubernetes.claims.claim_objects import CLASSES
    from millpond.engines.kubernetes.cluster.cluster_nodes import DRIVER

    if missing := _missing(client, namespace, (*SEEING_CLAIMS, *MAKING_CLAIMS)):
        remedy = "grant them: deploy/kubernetes/roles.yaml; until then cards of DRA drivers are not given out"
        return Finding("resource claims", Grade.LIMITED, f"this user may not {_listed(missing)} ({namespace})", remedy)
    if missing := _missing(client, namespace, SEEING_TAINTS):
        remedy = "grant them: deploy/kubernetes/roles.yaml; until then tainted cards may be given out"
        return Finding("resource claims", Grade.LIMITED, f"this user may not {_listed(missing)}", remedy)
    if not any(each["metadata"]["name"] == DRIVER for each in read_json(client, CLASSES.path)["items"]):
        said = f"there is no device class {DRIVER}, so jobs get no cards by claims"
        return Finding("resource claims", Grade.LIMITED, said, "install NVIDIA's DRA driver, if you mean to use it")
    return Finding("resource claims", Grade.OK, f"cards of {DRIVER} are given out by claims")


def _claims(client: httpx2.Client, namespace: str, settings: KubernetesFile) -> Iterator[Finding]:
    """Claims of the configuration that are not there, as far as this user may look for them."""
    for name, volume in settings.volumes.items():
        place = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{volume.claim}"
        if volume.claim and client.get(place).status_code == _NOT_FOUND:
            said = f"there is no claim {volume.claim} in namespace {namespace}"
            yield Finding(f"volume {name}", Grade.BROKEN, said, "make it, or correct kubernetes.volumes")


def _adopting(client: httpx2.Client, adopt: AdoptFile, serves_claims: bool) -> Iterator[Finding]:
    """Whether pods of others can be scheduled where they are to be."""
    lacking = {}
    for name in adopt.namespaces:
        space = "" if name == ALL_NAMESPACES else name
        wanted = (*(GATED if adopt.gated else ADOPTING), *(ADOPTING_CLAIMS if serves_claims else ()))
        lacking[name] = [f"{verb} {what}" for verb, what in wanted if not _may(client, verb, what, space)]
    missing = {name: rights for name, rights in lacking.items() if rights}
    if not missing:
        where = ", ".join("all namespaces" if name == ALL_NAMESPACES else name for name in lacking)
        gated = ", and those that the gate millpond.io/gate holds are released" if adopt.gated else ""
        said = f"those with schedulerName: millpond are scheduled{gated}, of {where}"
        yield Finding("pods of others", Grade.OK, said)
        return
    name, rights = next(iter(missing.items()))
    where = "all namespaces" if name == ALL_NAMESPACES else f"namespace {name}"
    remedy = f"grant them: deploy/kubernetes/{'gate' if rights == ['patch pods'] else 'adopt'}-roles.yaml"
    yield Finding("pods of others", Grade.BROKEN, f"this user may not {', '.join(rights)} in {where}", remedy)


def _may(client: httpx2.Client, verb: str, resource: str, namespace: str) -> bool:
    whole, _, part = resource.partition("/")
    name, _, group = whole.partition(".")
    asked = {"verb": verb, "resource": name, "group": group, "subresource": part, "namespace": namespace}
    review = {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": asked},
    }
    answer = client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json=review)
    answer.raise_for_status()
    return bool(answer.json().get("status", {}).get("allowed"))


def _nodes(client: httpx2.Client, settings: KubernetesFile, serves_claims: bool) -> Iterator[Finding]:
    import msgspec

    from millpond.engines.kubernetes.cluster.cluster_nodes import AGENT_DRIVER, POOL_LABEL, TOLERATED, NodeRules
    from millpond.engines.kubernetes.cluster.objects import NodeObject

    listed = _items(client, "/api/v1/nodes")
    if listed is None:
        return
    nodes = [msgspec.convert(each, NodeObject) for each in listed]
    rules = NodeRules(settings.nodes == "all", tolerated=(*TOLERATED, *settings.tolerate))
    ours = [node for node in nodes if rules.pool_of(node)]
    if not ours:
        label = f"label those that are Millpond's: kubectl label node NAME {POOL_LABEL}=default"
        yield Finding("nodes", Grade.LIMITED, f"none of {len(nodes)} is Millpond's", label)
        return
    pools = ", ".join(f"{count} in pool {pool}" for pool, count in sorted(Counter(map(rules.pool_of, ours)).items()))
    text = f"{len(ours)} of {len(nodes)} are Millpond's: {pools}"
    closed = [(node.metadata.name, why) for node in ours if (why := rules.why_closed(node))]
    if closed:
        name, why = closed[0]
        text += f"; {len(closed)} of them closed, such as {name}: {why}"
    if len(closed) == len(ours):
        remedy = "open one, or name the keys of its taints in kubernetes.tolerate"
        yield Finding("nodes", Grade.LIMITED, text, remedy)
    else:
        yield Finding("nodes", Grade.OK, text)
    published = _published(client) if serves_claims else Counter[tuple[str, str]]()
    yield _cards(ours, published)
    yield from _agents(client, ours, {node for node, driver in published if driver == AGENT_DRIVER})


def _published(client: httpx2.Client) -> Counter[tuple[str, str]]:
    """How many cards the DRA driver, and Millpond's agents, publish for claims, by node and driver."""
    import msgspec

    from millpond.engines.kubernetes.claims.claim_objects import SLICES, SliceObject
    from millpond.engines.kubernetes.claims.node_cards import cards_of
    from millpond.engines.kubernetes.cluster.cluster_nodes import AGENT_DRIVER, DRIVER

    slices = [msgspec.convert(each, SliceObject) for each in _items(client, SLICES.path) or ()]
    found: Counter[tuple[str, str]] = Counter()
    for each in slices:
        if each.spec.driver == DRIVER:
            found[each.spec.node_name, DRIVER] += len(cards_of([each]).cards)
        elif each.spec.driver == AGENT_DRIVER:
            found[each.spec.node_name, AGENT_DRIVER] += len(each.spec.devices)
    return found


def _cards(nodes: Sequence[Any], published: Mapping[tuple[str, str], int]) -> Finding:
    from millpond.engines.kubernetes.cluster.cluster_nodes import AGENT_DRIVER, CARD_SOURCES, DRIVER, MILLI
    from millpond.engines.kubernetes.cluster.resource_amounts import amounts_in, quantity

    count: Counter[str] = Counter()
    for node in nodes:
        count.update(amounts_in(node.status.allocatable, round_up=False).cards)
        milli = int(quantity(node.status.allocatable.get(MILLI, "0")))
        count[MILLI] += milli
        for driver in (DRIVER, AGENT_DRIVER):
            count[driver] += published.get((node.metadata.name, driver), 0)
    found = ", ".join(f"{count[name]} x {name}" for name in (*CARD_SOURCES, AGENT_DRIVER) if count[name])
    if found:
        return Finding("cards", Grade.OK, found)
    return Finding(
        "cards",
        Grade.LIMITED,
        "no node offers any",
        "install the vendor's device plugin, or NVIDIA's DRA driver, there",
    )


def _agents(client: httpx2.Client, nodes: Sequence[Any], by_claims: set[str]) -> Iterator[Finding]:
    """Whether agents answer that give out parts of cards, some of them by claims; nothing where there are none."""
    import msgspec

    from millpond.engines.kubernetes.cluster.agent_report import AGENT_NAMESPACE, AgentReport, is_agent
    from millpond.engines.kubernetes.cluster.cluster_nodes import MILLI
    from millpond.engines.kubernetes.cluster.objects import PodObject

    listed = _items(client, f"/api/v1/namespaces/{AGENT_NAMESPACE}/pods")
    if listed is None:
        return
    served = {node.metadata.name for node in nodes if node.status.allocatable.get(MILLI, "0") != "0"} | by_claims
    pods = [pod for each in listed if is_agent(pod := msgspec.convert(each, PodObject))]
    of_ours = {pod.spec.node_name: pod for pod in pods if pod.spec.node_name in {each.metadata.name for each in nodes}}
    silent = sorted(of_ours.keys() - served)
    reports = {name: AgentReport.of(pod.metadata.annotations) for name, pod in of_ours.items()}
    without = sorted(name for name, report in reports.items() if report is not None and report.unsliced)
    if silent:
        logs = f"kubectl -n {AGENT_NAMESPACE} logs {of_ours[silent[0]].metadata.name}"
        told = reports[silent[0]]
        no_card = "finds no card" if told is not None and not told.devices else "does not serve its kubelet"
        yield Finding("agents", Grade.LIMITED, f"that of {_named(silent)} {no_card}", logs)
    elif without:
        report = reports[without[0]]
        assert report is not None
        yield Finding("agents", Grade.LIMITED, f"no parts of cards on {_named(without)}: {report.unsliced}")
    elif of_ours:
        yield Finding("agents", Grade.OK, f"on {len(of_ours)} of {len(nodes)} nodes, cards are given out in parts")


def _named(names: Sequence[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more nodes" if len(names) > 1 else f"node {names[0]}"


def _items(client: httpx2.Client, path: str) -> list[Any] | None:
    """What a cluster lists there; None without the right to it, which is said above."""
    import httpx2

    try:
        found: list[Any] = read_json(client, path)["items"]
    except httpx2.HTTPStatusError as error:
        if error.response.status_code != HTTPStatus.FORBIDDEN:
            raise
        return None
    return found
