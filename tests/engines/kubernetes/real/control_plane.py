"""A real control plane of Kubernetes on loopback: etcd, the API server and, where asked for, the controller manager.

The programs are built once from Debian's source package (``tests/kubernetes/build``) and lie outside the tree.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import secrets
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

PROGRAMS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millpond" / "kubernetes-1.20.2"
ADMIN = "admin-token"


_MOST_AT_ONCE = 128
"""Changes that etcd takes in one request."""


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def missing() -> str:
    """Why there can be no control plane here; empty when there can."""
    if shutil.which("etcd") is None:
        return "etcd is not installed (apt install etcd-server)"
    absent = [name for name in ("kube-apiserver", "kube-controller-manager") if not (PROGRAMS / name).exists()]
    return f"{', '.join(absent)} not built (make kubernetes)" if absent else ""


def free_port() -> int:
    """A port on which no program listens, below those of which the kernel takes one for each connection: it stays free
    until it is used, and while a program that has it is started anew."""
    while True:
        with socket.socket() as taken, contextlib.suppress(OSError):
            port = 20_000 + secrets.randbelow(10_000)
            taken.bind(("", port))
            return port


@dataclass
class ControlPlane:
    """The programs of one cluster, which end with it.

    Attributes:
        folder: where it keeps everything.
        tokens: further users: a line each of ``token,name,uid,"groups"``.
        admission_off: what the API server does not do with objects that are made.
    """

    folder: Path
    tokens: Sequence[str] = ()
    admission_off: Sequence[str] = ("ServiceAccount",)
    port: int = field(default_factory=free_port)
    _etcd_port: int = field(default_factory=free_port)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        key = self.folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (self.folder / "tokens.csv").write_text("\n".join([f'{ADMIN},admin,1,"system:masters"', *self.tokens]) + "\n")
        self.start_etcd()
        self.start_api_server()

    def start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{free_port()}"
        self._run(
            "etcd",
            ["etcd", "--data-dir", self.folder / "etcd", "--unsafe-no-fsync", "--listen-client-urls", client],
            ["--advertise-client-urls", client, "--listen-peer-urls", peer],
            ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
        )

    def start_api_server(self) -> None:
        key = self.folder / "accounts.key"
        self._run(
            "kube-apiserver",
            [PROGRAMS / "kube-apiserver", "--etcd-servers", f"http://127.0.0.1:{self._etcd_port}"],
            ["--secure-port", self.port, "--bind-address", "127.0.0.1", "--cert-dir", self.folder / "certificates"],
            ["--service-account-issuer", self.url, "--service-account-signing-key-file", key],
            ["--service-account-key-file", key, "--token-auth-file", self.folder / "tokens.csv"],
            ["--authorization-mode", "RBAC", "--disable-admission-plugins", ",".join(self.admission_off)],
            ["--service-cluster-ip-range", "10.96.0.0/16", "--allow-privileged=true"],
            ["--kubelet-preferred-address-types", "Hostname"],  # nodes are called by addresses of loopback,
        )
        self._wait()

    def start_controllers(self) -> None:
        self._run(
            "kube-controller-manager",
            [PROGRAMS / "kube-controller-manager", "--kubeconfig", self.kubeconfig(), "--port", 0],
            ["--secure-port", free_port(), "--bind-address", "127.0.0.1", "--leader-elect=false"],
            ["--cert-dir", self.folder / "controllers", "--node-monitor-grace-period", "60s"],
        )

    def start_scheduler(self) -> None:
        self._run(
            "kube-scheduler",
            [PROGRAMS / "kube-scheduler", "--kubeconfig", self.kubeconfig(), "--leader-elect=false", "--port", 0],
            ["--secure-port", free_port(), "--bind-address", "127.0.0.1", "--cert-dir", self.folder / "scheduler"],
            ["--kube-api-qps", 5000, "--kube-api-burst", 5000],  # else it is held to 50 a second
        )

    def pid(self, name: str) -> int:
        """The process of one of its programs."""
        return self._processes[name].pid

    def kubeconfig_place(self, token: str = ADMIN, namespace: str = "default") -> Path:
        """Where that file lies, once it is written."""
        return self.folder / f"{token}-{namespace}.kubeconfig"

    def kubeconfig(self, token: str = ADMIN, namespace: str = "default") -> Path:
        """A file by which clients reach it as somebody."""
        path = self.kubeconfig_place(token, namespace)
        authority = self.folder / "certificates" / "apiserver.crt"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "clusters": [
                        {"name": "test", "cluster": {"server": self.url, "certificate-authority": str(authority)}}
                    ],
                    "contexts": [
                        {"name": "test", "context": {"cluster": "test", "user": token, "namespace": namespace}}
                    ],
                    "users": [{"name": token, "user": {"token": token}}],
                }
            )
        )
        return path

    def kill(self, name: str) -> None:
        """One of its programs dies."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def forget_history(self) -> None:
        """What came before now can be asked for no longer."""
        revision = self._ask_etcd("maintenance/status", {})["header"]["revision"]
        self._ask_etcd("kv/compaction", {"revision": revision})

    def store(self, objects: Iterable[tuple[str, str]]) -> None:
        """Put objects into etcd, past the API server, which would take a hundred times as long.

        Args:
            objects: where each belongs, such as ``/registry/pods/NAMESPACE/NAME``, and what it is, as JSON.
        """
        left = iter(objects)
        while some := list(itertools.islice(left, _MOST_AT_ONCE)):
            puts = [{"requestPut": {"key": _base64(key), "value": _base64(text)}} for key, text in some]
            self._ask_etcd("kv/txn", {"success": puts})

    def _ask_etcd(self, what: str, body: object) -> Any:
        url = f"http://127.0.0.1:{self._etcd_port}/v3/{what}"
        with urllib.request.urlopen(url, json.dumps(body).encode()) as answer:
            return json.load(answer)

    def stop(self) -> None:
        for name in reversed(list(self._processes)):
            self.kill(name)

    def _run(self, name: str, *arguments: Sequence[object]) -> None:
        command = [str(word) for part in arguments for word in part]
        log = (self.folder / f"{name}.log").open("ab")
        self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _wait(self, within_s: float = 300.0) -> None:
        import ssl

        context = ssl._create_unverified_context()
        request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {ADMIN}"})
        give_up_at = time.monotonic() + within_s
        while True:
            try:
                with urllib.request.urlopen(request, context=context, timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                if time.monotonic() > give_up_at or self._processes["kube-apiserver"].poll() is not None:
                    raise
            time.sleep(0.1)
