"""The section ``kubernetes`` of the configuration."""

from __future__ import annotations

import pytest

from millpond.specs.config.cluster import read_cluster
from millpond.specs.errors import SpecError


def test_extended_resources_have_names_for_jobs() -> None:
    settings = read_cluster("kubernetes: {extras: {rdma: rdma/hca_shared_devices_a, fpga: a.io/fpga}}\n").kubernetes
    assert settings is not None
    assert settings.extras == {"rdma": "rdma/hca_shared_devices_a", "fpga": "a.io/fpga"}


@pytest.mark.parametrize(
    ("extras", "words"),
    [
        ("{gpu-slices: a.io/x}", "gpu-slices stands for parts of cards"),
        ("{one: a.io/x, two: a.io/x}", "a.io/x has two names"),
        ("{cards: nvidia.com/gpu}", "nvidia.com/gpu stands for cards"),
        ("{milli: millpond.io/gpu-milli}", "millpond.io/gpu-milli stands for cards"),
        ("{rdma: hca}", "hca"),
        (str({f"n{number}": f"a.io/{number}" for number in range(8)}), "7"),
    ],
)
def test_extended_resources_that_cannot_be_counted_are_refused(extras: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        read_cluster(f"kubernetes: {{extras: {extras}}}\n")


@pytest.mark.parametrize("key", ["dedicated", "example.org/team.a", "nvidia.com/mig_1"])
def test_taints_that_pods_tolerate_are_named_by_their_keys(key: str) -> None:
    settings = read_cluster(f"kubernetes: {{tolerate: [{key}]}}\n").kubernetes
    assert settings is not None
    assert settings.tolerate == [key]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("dedicated=x", "tolerate"),
        ("/a", "tolerate"),
        ("a/b/c", "tolerate"),
        ("node.kubernetes.io/not-ready", "says that a node is not fit for work"),
    ],
)
def test_what_is_no_key_of_a_taint_or_of_one_that_nothing_should_tolerate_is_refused(key: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        read_cluster(f"kubernetes: {{tolerate: ['{key}']}}\n")


def test_each_of_several_clusters_has_its_way_and_what_all_pods_have() -> None:
    settings = read_cluster(
        "kubernetes: {namespace: ml, image: 'train:1', machine: here, "
        "clusters: {east: {kubeconfig: /e}, west: {kubeconfig: /w, context: prod, namespace: other}}}\n"
    ).kubernetes
    assert settings is not None
    assert settings.names == ("east", "west", "here")
    found = {name: (own.kubeconfig, own.context, own.namespace, own.image) for name, own in settings.each.items()}
    assert found == {"east": ("/e", None, "ml", "train:1"), "west": ("/w", "prod", "other", "train:1")}


def test_what_pods_of_one_cluster_have_of_their_own_goes_before_what_all_have() -> None:
    settings = read_cluster(
        "kubernetes: {service_account: all, pull_secrets: [all], server_url: 'http://all', clusters: {east: "
        "{kubeconfig: /e}, west: {kubeconfig: /w, service_account: own, pull_secrets: [], server_url: 'http://own'}}}\n"
    ).kubernetes
    assert settings is not None
    found = {name: (own.service_account, own.pull_secrets, own.server_url) for name, own in settings.each.items()}
    assert found == {"east": ("all", ["all"], "http://all"), "west": ("own", [], "http://own")}


def test_nodes_images_and_extra_resources_of_one_cluster_go_before_those_of_all() -> None:
    settings = read_cluster(
        "kubernetes: {image: 'train:1', extras: {rdma: rdma/hca, nic: a/nic}, tolerate: [all], clusters: {east: "
        "{kubeconfig: /e}, west: {kubeconfig: /w, image: 'own:1', helper_image: 'helper:1', extras: {rdma: b/roce}, "
        "tolerate: [], nodes: all, node_timeout: 2m}}}\n"
    ).kubernetes
    assert settings is not None
    east, west = settings.each["east"], settings.each["west"]
    assert (east.image, east.helper_image, east.tolerate) == ("train:1", None, ["all"])
    assert (east.nodes, east.node_timeout, east.extras) == ("labelled", 60.0, {"rdma": "rdma/hca", "nic": "a/nic"})
    assert (west.image, west.helper_image, west.tolerate) == ("own:1", "helper:1", [])
    assert (west.nodes, west.node_timeout, west.extras) == ("all", 120.0, {"rdma": "b/roce", "nic": "a/nic"})


def test_one_cluster_has_no_name() -> None:
    settings = read_cluster("kubernetes: {kubeconfig: /e}\n").kubernetes
    assert settings is not None
    assert settings.names == ()
    assert settings.each == {"": settings}


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{machine: here}", "the machine is named beside no clusters"),
        ("{kubeconfig: /e, clusters: {east: {kubeconfig: /w}}}", "one way to a cluster beside several"),
        ("{clusters: {east: {kubeconfig: /e}, west: {kubeconfig: /e}}}", "clusters east and west are one"),
        ("{clusters: {any: {kubeconfig: /e}}}", "a cluster cannot be called any"),
        ("{clusters: {here: {kubeconfig: /e}}, machine: here}", "a cluster cannot be called here"),
        ("{clusters: {east: {kubeconfigs: /e}}}", "kubeconfigs"),
        ("{clusters: {east: {claims: {words: there}}}}", "cluster east has a claim for words, which is no volume"),
        (
            "{volumes: {words: {host_path: /w}}, clusters: {east: {claims: {words: there}}}}",
            "which is no volume with a claim",
        ),
        ("{clusters: {east: {extras: {rdma: a/b}}}}", "cluster east has a resource for rdma, which is none of extras"),
        ("{extras: {rdma: a/b, nic: a/c}, clusters: {east: {extras: {rdma: a/c}}}}", "a/c has two names"),
        ("{extras: {rdma: a/b}, clusters: {east: {extras: {rdma: amd.com/gpu}}}}", "amd.com/gpu stands for cards"),
        ("{clusters: {east: {image: 'own:1'}}}", "cluster east has an image for jobs that name none"),
        ("{clusters: {east: {tolerate: [node.kubernetes.io/not-ready]}}}", "a node is not fit for work"),
    ],
)
def test_clusters_that_cannot_be_told_apart_are_refused(section: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        read_cluster(f"kubernetes: {section}\n")


def test_the_nodes_of_the_machine_beside_clusters_are_never_switched_off() -> None:
    with pytest.raises(SpecError, match="never switched off"):
        read_cluster(
            "kubernetes: {clusters: {east: {kubeconfig: /e}}, machine: here}\n"
            "pools: [{name: here, save_energy: {off: 'x', on: 'y'}}]\n"
        )
