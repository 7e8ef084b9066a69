"""A real podman with a store of its own and an image made of busybox, as no registry can be reached from tests."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

IMAGE = "localhost/busy:1"
_APPLETS = (
    "cat",
    "chmod",
    "echo",
    "env",
    "false",
    "id",
    "ls",
    "mkdir",
    "ps",
    "pwd",
    "sh",
    "sleep",
    "test",
    "touch",
    "true",
)


@dataclass(frozen=True)
class RealPodman:
    """The program, and the variables by which it uses the tests' store."""

    program: str
    env: dict[str, str]

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            [self.program, *arguments], env=os.environ | self.env, capture_output=True, text=True, timeout=300
        )

    def become_ours(self, patch: pytest.MonkeyPatch) -> None:
        """Be the podman of this process and of those that it starts."""
        for name, value in self.env.items():
            patch.setenv(name, value)

    def printed(self, *arguments: str) -> str:
        """What it prints where it succeeds."""
        done = self(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def containers(self, *which: str) -> list[str]:
        """The names of the containers that run; with ``--all`` also of those that do not."""
        return self.printed("ps", *which, "--format", "{{.Names}}").split()

    def remove_everything(self) -> None:
        """Leave nothing that runs or is mounted."""
        self("rm", "--all", "--force")
        self("rmi", "--all", "--force")


def make_real_podman(folder: Path) -> RealPodman | str:
    """Podman on this machine, or why it cannot be used."""
    program, busybox = shutil.which("podman"), shutil.which("busybox")
    if program is None or busybox is None:
        return "podman or busybox is not installed"
    if b"ld-linux" in Path(busybox).read_bytes()[:4096]:
        return "busybox is not linked statically (Debian: busybox-static)"
    podman = RealPodman(program, _settings(folder))
    _pack(folder / "busy.tar", Path(busybox))
    for arguments in (
        ("import", str(folder / "busy.tar"), IMAGE),
        ("run", "--rm", "--init", "--network", "host", "--ipc", "host", IMAGE, "true"),
    ):
        try:
            done = podman(*arguments)
        except subprocess.TimeoutExpired:
            return f"podman does not work here: `podman {arguments[0]}` does not end"
        if done.returncode != 0:
            return f"podman does not work here: {(done.stderr.strip() or 'no reason').splitlines()[-1]}"
    return podman


def _settings(folder: Path) -> dict[str, str]:
    """What this machine's account may set is the most that a container can be given."""
    (_, files), (_, processes) = (resource.getrlimit(what) for what in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    processes = most if processes == resource.RLIM_INFINITY else min(processes, most)
    files = 2**20 if files == resource.RLIM_INFINITY else min(files, 2**20)
    runtime = "runc" if shutil.which("runc") or Path("/usr/sbin/runc").exists() else "crun"
    (folder / "containers.conf").write_text(
        f'[engine]\nruntime = "{runtime}"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        # Of its own: other processes of the tests have a podman with another store at the same time.
        f'tmp_dir = "{folder}/tmp"\nlock_type = "file"\n'
        f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]\n'
    )
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/store"\nrunroot = "{folder}/run"\n'
    )
    return {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }


def _pack(place: Path, busybox: Path) -> None:
    with tarfile.open(place, "w") as archive:
        archive.add(busybox, "bin/busybox")
        for name in _APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        for name in ("tmp", "etc", "proc"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(directory)
