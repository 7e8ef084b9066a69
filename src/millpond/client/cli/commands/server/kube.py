"""``pond kube``: a Kubernetes cluster, before a server runs its jobs there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.path_parameter import PathParameter
from millpond.client.cli.printing.findings import print_findings


@click.group("kube", cls=SuggestingGroup)
def command() -> None:
    """A Kubernetes cluster whose pods jobs are to be."""


@command.command("check")
@click.option("--config", type=PathParameter(), help="The server's configuration file.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="For people or programs.")
def check(config: Path | None, output: str) -> int:
    """Check what a cluster lacks for jobs of Millpond; nothing is changed there.

    Without --config, the cluster that kubectl would talk to. Exits with 1 when no server could run its jobs there.
    """
    from millpond.server.operations.cluster_check import check_clusters
    from millpond.server.operations.pod_address import check_way
    from millpond.specs.config.cluster import ClusterConfig, load_cluster
    from millpond.specs.config.kubernetes import KubernetesFile

    loaded = ClusterConfig() if config is None else load_cluster(config)
    settings = loaded.kubernetes or KubernetesFile()
    found = [*check_clusters(settings), check_way(replace(loaded, kubernetes=settings))]
    return print_findings(found, output)


@command.command("agent")
@click.option(
    "--folder",
    type=PathParameter(),
    default="/var/lib/millpond",
    show_default=True,
    help="For its files, at the same path on the node.",
)
@click.option(
    "--swap-memory",
    metavar="AMOUNT",
    default="0MiB",
    show_default=True,
    help="Host memory of the node for the device memory of suspended pods, such as 64GiB.",
)
@click.option(
    "--metrics-listen",
    metavar="ADDRESS",
    help="Serve what the cards and their slices do to a Prometheus: a port of the loopback interface, or such as "
    "0.0.0.0:7435. Without it nothing is opened.",
)
def agent(folder: Path, swap_memory: str, metrics_listen: str | None) -> int:
    """Hand out the NVIDIA cards of a node by UUID, and parts of them; runs in the pods of a DaemonSet.

    See deploy/kubernetes-agent.
    """
    import logging

    from millpond.engines.kubernetes.libraries import require_agent_libraries
    from millpond.specs.quantities import memory_mib

    require_agent_libraries()
    from millpond.engines.kubernetes.agent.metrics_listener import MetricsAddress
    from millpond.engines.kubernetes.agent.program import AgentOptions, run_agent

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    metrics = None if metrics_listen is None else MetricsAddress.of(metrics_listen)
    run_agent(AgentOptions(folder.absolute(), memory_mib(swap_memory), metrics))
    return 0
