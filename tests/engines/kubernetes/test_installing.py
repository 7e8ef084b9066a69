"""The files of ``deploy/``: what is installed with them, and with which rights."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import manifests
import pytest
import yaml
from lightkube import codecs
from manifests import DEPLOY, rendered, server_of

from millpond.client.cli.commands.server.kube import agent
from millpond.engines.kubernetes.agent.agent_context import AgentPlaces
from millpond.engines.kubernetes.agent.metrics_listener import PATH, MetricsAddress
from millpond.engines.kubernetes.cluster.agent_report import AGENT_LABEL, AGENT_NAMESPACE
from millpond.node.sharing.gate import building
from millpond.server.operations.cluster_check import (
    ADOPTING,
    ADOPTING_CLAIMS,
    GATED,
    MAKING_CLAIMS,
    RIGHTS,
    SEEING_CLAIMS,
    SEEING_TAINTS,
)
from millpond.specs.config.cluster import load_cluster

pytestmark = pytest.mark.skipif(bool(manifests.missing()), reason=manifests.missing())
FOLDERS = ("kubernetes", "kubernetes-postgresql")


def _unknown(given: Any, known: Any, where: str = "") -> Iterator[str]:
    """Fields of an object that its typed model does not have."""
    if isinstance(given, dict):
        for name, value in given.items():
            if name not in known:
                yield f"{where}.{name}"
            else:
                yield from _unknown(value, known[name], f"{where}.{name}")
    elif isinstance(given, list):
        for value, kept in zip(given, known, strict=True):
            yield from _unknown(value, kept, f"{where}[]")


@pytest.mark.parametrize("folder", [*FOLDERS, "kubernetes-agent", "kubernetes-agent-metrics"])
def test_the_newest_kubernetes_knows_every_field(folder: str) -> None:
    for given in rendered(folder):
        assert list(_unknown(given, codecs.from_dict(given).to_dict())) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_pod_keeps_to_the_restricted_standard_and_writes_to_its_volumes_alone(folder: str) -> None:
    pod = server_of(rendered(folder))
    (server,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert server["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_configuration_is_good_and_mounted_where_the_server_reads_it() -> None:
    objects = rendered("kubernetes")
    (config,) = [each for each in objects if each["kind"] == "ConfigMap"]
    pod = server_of(objects)
    (server,) = pod["containers"]
    mounted = {each["name"]: each["mountPath"] for each in server["volumeMounts"]}
    (volume,) = [each for each in pod["volumes"] if each.get("configMap", {}).get("name") == config["metadata"]["name"]]
    assert f"{mounted[volume['name']]}/pond.yaml" in server["args"]
    assert load_cluster(DEPLOY / "kubernetes" / "pond.yaml").kubernetes is not None


def test_the_database_of_the_other_installation_is_named_by_its_secret_alone() -> None:
    (server,) = server_of(rendered("kubernetes-postgresql"))["containers"]
    (before,) = server_of(rendered("kubernetes"))["containers"]
    assert server["args"] == [*before["args"], "--store", "postgresql+psycopg:///millpond"]
    assert server["envFrom"] == [{"secretRef": {"name": "millpond-postgresql"}}]


def _overlay(folder: Path, **fields: object) -> list[dict[str, Any]]:
    base = os.path.relpath(DEPLOY / "kubernetes", folder)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [base], **fields}))
    return rendered(folder)


@pytest.mark.parametrize("name", ["team-b", "a" * 50])
def test_a_second_installation_with_a_prefix_takes_nothing_from_the_first_and_has_all_rights(
    tmp_path: Path, name: str
) -> None:
    first, second = rendered("kubernetes"), _overlay(tmp_path, namespace=name, namePrefix=f"{name}-")
    places = [
        {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in of}
        for of in (first, second)
    ]
    assert places[0].isdisjoint(places[1])
    account = server_of(second)["serviceAccountName"]
    bindings = [each for each in second if each["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    for binding in bindings:
        assert {"kind": "ServiceAccount", "name": account, "namespace": name} in binding["subjects"]
        role = binding["roleRef"]
        space = binding["metadata"].get("namespace") if role["kind"] == "Role" else None
        assert (role["kind"], space, role["name"]) in places[1]
    assert len(bindings) == 2


def test_what_is_said_of_a_server_in_a_namespace_leaves_its_jobs_in_that_namespace(tmp_path: Path) -> None:
    (config,) = [each for each in _overlay(tmp_path, namespace="team-b") if each["kind"] == "ConfigMap"]
    (tmp_path / "pond.yaml").write_text(config["data"]["pond.yaml"])
    settings = load_cluster(tmp_path / "pond.yaml").kubernetes
    assert settings is not None
    assert settings.namespace is None, "that of the pod's own account"


def test_the_roles_grant_what_the_check_asks_for_and_nothing_else() -> None:
    granted = {
        (verb, _named(resource, group), "" if role["kind"] == "ClusterRole" else "namespace")
        for role in yaml.safe_load_all((DEPLOY / "kubernetes" / "roles.yaml").read_text())
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    assert granted == {*RIGHTS, *SEEING_CLAIMS, *SEEING_TAINTS, *MAKING_CLAIMS}


def test_the_roles_for_adoption_grant_what_the_check_asks_for() -> None:
    role, _ = yaml.safe_load_all((DEPLOY / "kubernetes" / "adopt-roles.yaml").read_text())
    granted = {
        (verb, _named(resource, group))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    assert {*ADOPTING, *ADOPTING_CLAIMS} < granted


def _named(resource: str, group: str) -> str:
    """A resource as the check has it: ``KIND.GROUP/PART``."""
    kind, slash, part = resource.partition("/")
    return f"{kind}.{group}".rstrip(".") + slash + part


def test_the_roles_for_gates_grant_what_the_check_asks_for_beside_adoption() -> None:
    role, _ = yaml.safe_load_all((DEPLOY / "kubernetes" / "gate-roles.yaml").read_text())
    granted = {(verb, resource) for rule in role["rules"] for verb in rule["verbs"] for resource in rule["resources"]}
    assert granted == set(GATED) - set(ADOPTING)


def test_agents_are_where_the_server_believes_them_and_may_do_no_more_than_they_ask_for() -> None:
    objects = rendered("kubernetes-agent")
    (agents,) = [each for each in objects if each["kind"] == "DaemonSet"]
    template = agents["spec"]["template"]
    assert agents["metadata"]["namespace"] == AGENT_NAMESPACE
    assert template["metadata"]["labels"] == dict([AGENT_LABEL])
    granted = {
        (role["kind"], verb, resource)
        for role in objects
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    assert granted == {
        ("ClusterRole", "list", "pods"),
        ("ClusterRole", "watch", "pods"),
        ("ClusterRole", "create", "pods/eviction"),
        *(("ClusterRole", verb, "resourceslices") for verb in ("list", "watch", "create", "patch", "delete")),
        ("ClusterRole", "get", "resourceclaims"),
        ("Role", "patch", "pods"),
    }
    (container,) = template["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["KILL"]}
    variables = {each["name"] for each in container["env"]}
    assert {"MILLPOND_AGENT_NODE", "MILLPOND_AGENT_NAMESPACE", "MILLPOND_AGENT_POD"} <= variables


def test_the_image_is_built_with_every_file_that_the_package_takes() -> None:
    root = DEPLOY.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {"pyproject.toml", project["project"]["readme"]}
    within = (*project["project"]["license-files"], *wheel["packages"], *wheel["force-include"])
    needed |= {each.split("/")[0] for each in within}
    steps = [line.split() for line in (DEPLOY / "Containerfile").read_text().splitlines()]
    copied = {name for step in steps if step[:1] == ["COPY"] and "--" not in step[1] for name in step[1:-1]}
    sent = {line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == sent == needed


def test_the_images_have_all_that_is_optional_and_that_of_the_agent_what_the_gate_is_built_with() -> None:
    """The gate is compiled on each node, by the agent there."""
    text = (DEPLOY / "Containerfile").read_text()
    extras = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    def needs(name: str) -> set[str]:
        own, parts = set(extras[name]), {each for each in extras[name] if each.startswith("millpond[")}
        return own.difference(parts).union(*(needs(part) for each in parts for part in each[9:-1].split(",")))

    installed = set[str]().union(*(needs(name) for name in text.partition("/source[")[2].partition("]")[0].split(",")))
    named = {each.partition(">")[0] for each in installed}
    left_out = {name for name in extras if not {each.partition(">")[0] for each in needs(name)} <= named}
    assert left_out == {"dev", "mcp"}
    stage = text.partition("FROM runtime AS agent")[2].partition("FROM ")[0].split()
    assert {"libc6-dev"} < set(stage)
    assert not set(building._COMPILERS).isdisjoint(stage)


def test_the_agent_has_all_places_that_it_uses_of_its_node_under_the_nodes_own_paths() -> None:
    (agents,) = [each for each in rendered("kubernetes-agent") if each["kind"] == "DaemonSet"]
    pod = agents["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    on_node = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
    mounted = {each["mountPath"]: on_node.get(each["name"]) for each in container["volumeMounts"]}
    folder = next(each.default for each in agent.params if each.name == "folder")
    places = AgentPlaces(Path(str(folder)))
    of_kubelet = (places.plugins, places.resources, places.registry, places.drivers)
    for place in (places.folder, *of_kubelet, places.cdi, Path("/sys/fs/cgroup")):
        (mount,) = [each for each in mounted if place.is_relative_to(each)]
        assert mounted[mount] == mount


def test_agents_that_are_scraped_listen_where_annotations_policy_and_monitor_say() -> None:
    objects = {each["kind"]: each for each in rendered("kubernetes-agent-metrics")}
    (plain,) = [each for each in rendered("kubernetes-agent") if each["kind"] == "DaemonSet"]
    template = objects["DaemonSet"]["spec"]["template"]
    (container,), (before,) = template["spec"]["containers"], plain["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert container["args"] == [*before["args"], "--metrics-listen", f"0.0.0.0:{port['containerPort']}"]
    assert "ports" not in before
    assert MetricsAddress.of(container["args"][-1]).port == port["containerPort"]
    marks = template["metadata"]["annotations"]
    assert (marks["prometheus.io/port"], marks["prometheus.io/path"]) == (str(port["containerPort"]), PATH)
    labels = template["metadata"]["labels"]
    policy = objects["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    (rule,) = policy["ingress"]
    assert [each["port"] for each in rule["ports"]] == [port["name"]]
    monitor = yaml.safe_load((DEPLOY / "kubernetes-agent-metrics" / "pod-monitor.yaml").read_text())
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert monitor["spec"]["selector"]["matchLabels"] == labels
    assert (endpoint["port"], endpoint["path"]) == (port["name"], PATH)
