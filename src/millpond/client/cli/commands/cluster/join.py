"""``pond nodes join``: a new machine for a cluster of k3s."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

from millpond.client.cli.path_parameter import PathParameter
from millpond.model.errors import InvalidInputError, UnavailableError


@click.command("join")
@click.option("--config", type=PathParameter(), help="The server's configuration file.")
@click.option("--cluster", default="", metavar="NAME", help="Which of several clusters of the configuration.")
@click.option("--pool", default="default", show_default=True, metavar="POOL", help="The pool of the machine.")
@click.option("--ssh", metavar="HOST", help="Run the line there, such as root@gpu-3, and wait for its cards.")
@click.option("--server", default="", metavar="URL", help="The cluster as the machine reaches it.")
@click.option("--token-file", type=PathParameter(), help="A copy of the node-token of k3s.")
def join(config: Path | None, cluster: str, pool: str, ssh: str | None, server: str, token_file: Path | None) -> None:
    """Print the line by which a new machine joins a cluster of k3s.

    It is for a shell of root on that machine, x86-64 or arm64, and has the
    cluster's token in it. With --ssh it is run there. Without --config, the
    cluster is the one that kubectl would talk to.
    """
    from millpond.engines.kubernetes.libraries import require_client

    require_client()
    from millpond.server.operations.cluster_join import TOKEN_PLACE, JoiningCluster, JoinRequest
    from millpond.specs.config.cluster import ClusterConfig, load_cluster
    from millpond.specs.config.kubernetes import KubernetesFile

    loaded = ClusterConfig() if config is None else load_cluster(config)
    settings = (loaded.kubernetes or KubernetesFile()).each
    if cluster not in settings:
        named = ", ".join(name for name in settings if name)
        trouble = (
            f"the configuration names no cluster {cluster}" if cluster else "the configuration names several clusters"
        )
        raise InvalidInputError(trouble, f"say --cluster with one of {named}" if named else "leave --cluster out")
    joining = JoiningCluster(settings[cluster])
    line = joining.line(JoinRequest(pool, token_file or TOKEN_PLACE, server))
    if ssh is None:
        click.echo(line)
        return
    before = joining.nodes()
    _run_on(ssh, line)
    for told in joining.joined(before):
        click.echo(told)


def _run_on(host: str, line: str) -> None:
    """The line goes by the input of the shell there, so that no list of processes shows the token."""
    try:
        done = subprocess.run(["ssh", "--", host, "sh", "-s"], input=f"{line}\n".encode(), check=False)
    except OSError as error:
        raise UnavailableError(f"ssh cannot be run: {error}", "install it, or run the line there yourself") from error
    if done.returncode:
        raise UnavailableError(f"the line has failed on {host} (exit code {done.returncode})", "see what it said above")
