"""A real kubelet on containerd, with one small image, as a node of a control plane on this machine."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from control_plane import PROGRAMS

IMAGE = "docker.io/library/busybox:1"
PYTHON_IMAGE = "docker.io/library/python:3"
PYTHON = "/usr/bin/python3"
HOST = "10.88.77.1"
"""The node, as its pods reach it."""
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
_PAUSE = "localhost/pause:1"
_CONTAINERD = """version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""
_NETWORK = {
    "cniVersion": "0.3.1",
    "name": "millpond-test",
    "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.88.77.0/24"}}],
}


def missing() -> str:
    """Why no kubelet can run here; empty when one can."""
    if os.geteuid() != 0:
        return "a kubelet takes root"
    for program, package in (("containerd", "containerd"), ("runc", "runc"), ("busybox", "busybox-static")):
        if shutil.which(program) is None:
            return f"{program} is not installed (apt install {package})"
    if subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, check=False).returncode:
        return "no namespaces can be made here"
    if not any(os.access(each, os.W_OK) for each in Path("/sys/fs/cgroup").glob("**/cgroup.procs")):
        return "no control groups can be made here"
    if not Path("/usr/lib/cni/ptp").exists():
        return "the network plugins are not installed (apt install containernetworking-plugins)"
    return "" if (PROGRAMS / "kubelet").exists() else "kubelet is not built (make kubernetes)"


@dataclass
class Kubelet:
    """One node. Its name is the address that it listens on, by which the API server reaches it.

    There is one at a time on a machine, as a kubelet ends pods that it does not know, and deletes their logs.
    """

    folder: Path
    kubeconfig: Path
    name: str = "127.0.0.2"
    _lock: IO[bytes] | None = None
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        self._lock = (PROGRAMS / "kubelet.lock").open("ab")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.folder / "cni").mkdir(parents=True)
        (self.folder / "cni" / "10.conflist").write_text(json.dumps(_NETWORK))
        (self.folder / "containerd.toml").write_text(_CONTAINERD.format(folder=self.folder))
        self._run("containerd", "containerd", "-c", self.folder / "containerd.toml")
        socket = self.folder / "containerd.sock"
        _make_image(self.folder / "image.tar", [_PAUSE, IMAGE])
        self._import(self.folder / "image.tar")
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.name,
            "healthzPort": 0,
            "readOnlyPort": 0,
            "cgroupDriver": "cgroupfs",
            "failSwapOn": False,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "nodeStatusUpdateFrequency": "4s",
            "evictionHard": {"memory.available": "1Mi"},
        }
        (self.folder / "kubelet.json").write_text(json.dumps(settings))
        self._run(
            "kubelet",
            *(PROGRAMS / "kubelet", "--config", self.folder / "kubelet.json", "--kubeconfig", self.kubeconfig),
            *("--root-dir", self.folder / "kubelet", "--cert-dir", self.folder / "certificates"),
            *("--container-runtime=remote", f"--container-runtime-endpoint=unix://{socket}"),
            *("--hostname-override", self.name, "--node-labels", "millpond.io/pool=default"),
        )

    def add_python_image(self) -> None:
        """From now on there is an image with Python, too."""
        _make_image(self.folder / "python.tar", [PYTHON_IMAGE], has_python=True)
        self._import(self.folder / "python.tar")

    def _import(self, image: Path) -> None:
        socket = self.folder / "containerd.sock"
        ctr = ["ctr", "-a", socket, "-n", "k8s.io", "images", "import", image]
        give_up_at = time.monotonic() + 180
        while subprocess.run(ctr, capture_output=True, check=False).returncode:
            assert time.monotonic() < give_up_at, "containerd does not answer"
            time.sleep(0.1)

    def lives(self) -> bool:
        """Whether its programs run; fails with what one that has ended said last."""
        for process in self._processes:
            log = self.folder / f"{Path(str(process.args[0])).name}.log"
            assert process.poll() is None, f"{log.stem} has ended: {log.read_text()[-2_000:]}"
        return True

    def stop(self) -> None:
        for process in reversed(self._processes):  # the kubelet first, which would start again what ends
            process.terminate()
            process.wait()
            self._end_containers()
        for line in Path("/proc/mounts").read_text().splitlines():
            place = line.split()[1]
            if place.startswith(str(self.folder)):
                subprocess.run(["umount", "-l", place], check=False, capture_output=True)
        for name in ("kubelet_internal_checkpoint", "millpond.sock"):  # in a folder that all kubelets share
            (DEVICE_PLUGINS / name).unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()

    def _end_containers(self) -> None:
        """They do not end with their runtime. Of one that is gone already nothing is asked."""
        ctr = ["ctr", "-a", self.folder / "containerd.sock", "-n", "k8s.io", "--connect-timeout", "5s", "tasks"]
        running = subprocess.run([*ctr, "ls", "-q"], capture_output=True, text=True, check=False).stdout.split()
        for task in running:
            subprocess.run([*ctr, "rm", "--force", task], check=False, capture_output=True)

    def _run(self, name: str, *command: object) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        words = [str(word) for word in command]
        self._processes.append(subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL))


def _make_image(path: Path, tags: Sequence[str], *, has_python: bool = False) -> None:
    """An image of busybox, and this machine's Python where asked for, as an archive of docker's form."""
    busybox = shutil.which("busybox")
    assert busybox is not None
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for folder in ("bin", "tmp", "etc", "dev", "proc", "sys"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        _add(archive, "bin/busybox", Path(busybox).read_bytes(), 0o755)
        for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
            if name != "busybox":
                entry = tarfile.TarInfo(f"bin/{name}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(entry)
        if has_python:
            _add_python(archive)
    content = layer.getvalue()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/bin/sleep", "2147483"], "Env": ["PATH=/bin:/usr/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": list(tags), "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        _add(archive, "config.json", json.dumps(config).encode())
        _add(archive, "layer.tar", content)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _add_python(archive: tarfile.TarFile) -> None:
    """The system's Python, its library, and what both are linked to, each at its own path."""
    asked = [PYTHON, "-c", "import sys, sysconfig; print(sysconfig.get_path('stdlib'), sys.version_info.minor)"]
    library, minor = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    program = Path(PYTHON).resolve()
    modules = sorted(Path(library).glob("lib-dynload/*.so"))
    told = subprocess.run(["ldd", program, *modules], capture_output=True, text=True, check=True).stdout
    linked = {word for word in told.replace(":", " ").split() if word.startswith("/") and ".so" in word}
    for place in sorted({str(program), *linked} - {str(each) for each in modules}):
        _add(archive, place.lstrip("/"), Path(place).read_bytes(), 0o755)
    entry = tarfile.TarInfo("usr/bin/python3")
    entry.type, entry.linkname = tarfile.SYMTYPE, f"python3.{minor}"
    archive.addfile(entry)
    left_out = {"test", "dist-packages", "__pycache__", "idlelib", "tkinter"}
    archive.add(
        library, library.lstrip("/"), filter=lambda each: None if left_out & set(each.name.split("/")) else each
    )


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
