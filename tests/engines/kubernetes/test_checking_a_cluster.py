"""``pond kube check``: what keeps a server from running jobs in a cluster is said with its remedy, whatever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from standin_cluster import StandinCluster, refusal
from starlette.responses import HTMLResponse, JSONResponse

from millpond.model.errors import UnavailableError
from millpond.server.operations.cluster_check import check_cluster
from millpond.server.operations.cluster_join import JoiningCluster
from millpond.server.operations.findings import Finding, Grade
from millpond.specs.config.kubernetes import KubernetesFile

V1 = "client.authentication.k8s.io/v1"


@pytest.fixture
def settings(cluster: StandinCluster, tmp_path: Path) -> KubernetesFile:
    return KubernetesFile(kubeconfig=str(cluster.kubeconfig(tmp_path)))


def first_broken(settings: KubernetesFile, what: str) -> Finding:
    found = {finding.what: finding for finding in check_cluster(settings)}
    assert found[what].grade is Grade.BROKEN
    return found[what]


def rewritten(settings: KubernetesFile, part: str, changes: dict[str, Any]) -> None:
    """The cluster or the user of the kubeconfig is described anew."""
    path = Path(str(settings.kubeconfig))
    plain = yaml.safe_load(path.read_text())
    plain[f"{part}s"][0][part] = changes
    path.write_text(yaml.safe_dump(plain))


def test_a_namespace_that_is_not_there_is_said_with_the_command_that_makes_it(
    cluster: StandinCluster, settings: KubernetesFile
) -> None:
    words = 'namespaces "team" not found'
    cluster.refuses = lambda request, _: (
        refusal(404, "NotFound", words) if "POST" in request and "pods" in request else None
    )
    assert first_broken(settings, "namespace").remedy == "kubectl create namespace team"


def test_a_namespace_that_is_being_deleted_is_said(cluster: StandinCluster, settings: KubernetesFile) -> None:
    words = "unable to create new content in namespace team because it is being terminated"
    cluster.refuses = lambda request, _: (
        refusal(403, "Forbidden", words) if "POST" in request and "pods" in request else None
    )
    assert "is being deleted" in first_broken(settings, "namespace").found


def test_a_namespace_that_is_there_is_not_spoken_of_and_nothing_is_made_in_it(
    cluster: StandinCluster, settings: KubernetesFile
) -> None:
    assert {"namespace", "pods"}.isdisjoint(finding.what for finding in check_cluster(settings))
    assert cluster.names("pods") == []


@pytest.mark.parametrize(
    ("code", "words", "told"),
    [
        (403, 'pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=9, limited: pods=9', True),
        (400, 'admission webhook "guard.example" denied the request', True),
        (400, 'admission webhook "guard.example" does not support dry run', False),
        (403, 'pods is forbidden: User "me" cannot create resource "pods" in API group ""', False),
    ],
)
def test_a_small_pod_that_the_namespace_does_not_take_is_told_in_the_words_of_the_cluster(
    cluster: StandinCluster, settings: KubernetesFile, code: int, words: str, told: bool
) -> None:
    cluster.refuses = lambda request, _: refusal(code, "No", words) if request.endswith("team/pods") else None
    said = [finding.found for finding in check_cluster(settings) if finding.what == "pods"]
    assert said == ([f"namespace team does not take a small pod: {words}"] if told else [])


@pytest.mark.parametrize(
    ("part", "field", "value", "words"),
    [
        ("metadata", "labels", {}, "takes the label millpond.io/server"),
        ("metadata", "annotations", {}, "takes the label millpond.io/server or the annotation"),
        ("spec", "containers", [{"name": "proxy"}], "no container called task"),
        ("spec", "nodeName", "n2", "to node n2, whichever node is chosen"),
    ],
)
def test_a_cluster_that_changes_pods_so_that_they_are_no_tasks_any_more_is_said_to(
    cluster: StandinCluster, settings: KubernetesFile, part: str, field: str, value: Any, words: str
) -> None:
    cluster.refuses = lambda request, body: (
        JSONResponse({**body, part: {**body[part], field: value}}, 201) if request.endswith("team/pods") else None
    )
    assert words in first_broken(settings, "pods").found


def test_rights_that_cannot_be_asked_for_are_not_said_to_be_missing(
    cluster: StandinCluster, settings: KubernetesFile
) -> None:
    cluster.refuses = lambda request, _: (
        refusal(429, "TooManyRequests", "please try again later") if "accessreviews" in request else None
    )
    (found,) = check_cluster(settings)
    assert (found.what, found.grade) == ("way to the cluster", Grade.BROKEN)
    assert found.found.endswith(" answers 429: please try again later")


@pytest.mark.parametrize(
    ("part", "changes", "words"),
    [
        ("user", {"exec": {"apiVersion": V1, "command": "false"}}, "the credentials cannot be had"),
        ("user", {"exec": {"apiVersion": V1, "command": "true"}}, "the credentials cannot be had"),
        ("user", {"exec": {"apiVersion": V1, "command": "no-such-plugin"}}, "no-such-plugin"),
        ("user", {"exec": {"apiVersion": V1, "command": "echo", "args": ['{"status": {}}']}}, "neither a token"),
        ("cluster", {"server": "https://127.0.0.1:1"}, "https://127.0.0.1:1 does not answer"),
        (
            "cluster",
            {"server": "https://127.0.0.1:1", "certificate-authority": "/nowhere/ca.crt"},
            "there is no file /nowhere/ca.crt",
        ),
    ],
)
def test_a_kubeconfig_that_leads_nowhere_is_said_by_the_check_and_where_a_machine_is_to_join(
    settings: KubernetesFile, part: str, changes: dict[str, Any], words: str
) -> None:
    rewritten(settings, part, changes)
    assert words in first_broken(settings, "way to the cluster").found
    with pytest.raises(UnavailableError) as raised:
        JoiningCluster(settings).nodes()
    assert words in raised.value.cause


def test_a_page_of_a_proxy_is_no_cluster(cluster: StandinCluster, settings: KubernetesFile) -> None:
    cluster.refuses = lambda _request, _body: HTMLResponse("<html>please log in</html>")
    assert "is answered with no JSON, but: <html>please" in first_broken(settings, "way to the cluster").found


@pytest.mark.parametrize(("code", "remedy"), [(401, "credentials in the kubeconfig"), (503, "its own log")])
def test_an_answer_that_is_an_error_has_the_remedy_of_that_error(
    cluster: StandinCluster, settings: KubernetesFile, code: int, remedy: str
) -> None:
    cluster.refuses = lambda _request, _body: refusal(code, "No", "no")
    assert remedy in first_broken(settings, "way to the cluster").remedy
