"""A kubelet for pods of the stand-in cluster that runs their containers as plain processes, with what they mount."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from standin_cluster import NAMESPACE, StandinCluster

MESSAGE = "/dev/termination-log"


@dataclass
class ProcessKubelet:
    """Runs one pod.

    Attributes:
        folder: in which everything of it lies.
        env: of all its processes, beside what the pod says.
    """

    cluster: StandinCluster
    pod: str
    folder: Path
    env: dict[str, str] = field(default_factory=lambda: {"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _ended: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plain = self.cluster.get("pods", self.pod)
        assert plain is not None
        self.spec: dict[str, Any] = plain["spec"]
        for volume in self.spec.get("volumes", ()):
            place = self.folder / volume["name"]
            place.mkdir(parents=True)
            for source in volume.get("projected", {}).get("sources", ()):
                secret = self.cluster.get("secrets", source["secret"]["name"])
                assert secret is not None
                for name, text in secret.get("stringData", {}).items():
                    (place / name).write_text(text)
                for name, text in secret.get("data", {}).items():
                    (place / name).write_bytes(base64.b64decode(text))

    @property
    def files(self) -> Path:
        """What lies at ``/millpond`` in the pod."""
        return self.folder / "files"

    def bring_in(self) -> int:
        """Run what comes before the task; returns its exit code, and reports it."""
        (container,) = self.spec["initContainers"]
        code = self._start(container).wait()
        self._ended[container["name"]] = code
        self._report("Failed" if code else "Pending")
        return code

    def start(self) -> None:
        """Run the task, and what is beside it."""
        for container in self.spec["containers"]:
            self._running[container["name"]] = self._start(container)
        self._report("Running")

    def end_of(self, name: str, *, tells: bool = True) -> int:
        """Wait for the end of one container, and report it.

        Args:
            tells: as a kubelet does unless the pod is being deleted.
        """
        self._ended[name] = code = self._running.pop(name).wait(timeout=180)
        if tells or not self._running:
            failed = any(self._ended[each["name"]] for each in self.spec["containers"] if each["name"] in self._ended)
            self._report("Running" if self._running else "Failed" if failed else "Succeeded")
        return code

    def terminate(self) -> None:
        """All containers are asked to end."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """All containers are ended at once."""
        for process in self._running.values():
            process.kill()
            process.wait()

    def _start(self, container: dict[str, Any]) -> subprocess.Popen[bytes]:
        message = self.folder / f"{container['name']}.message"
        message.touch()
        places = {each["mountPath"]: str(self.folder / each["name"]) for each in container.get("volumeMounts", ())}
        places = {path: place for path, place in places.items() if "/data" not in path}
        places[MESSAGE] = str(message)

        def here(text: str) -> str:
            for path in sorted(places, key=len, reverse=True):
                text = text.replace(path, places[path])
            return text

        env = self.env | {each["name"]: here(each["value"]) for each in container.get("env", ())}
        workdir = here(container.get("workingDir") or str(self.folder))
        log = (self.folder / f"{container['name']}.log").open("ab")
        command = [here(word) for word in container["command"]]
        return subprocess.Popen(command, env=env, cwd=workdir, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _report(self, phase: str) -> None:
        def state_of(container: dict[str, Any]) -> dict[str, Any]:
            name = container["name"]
            if name in self._ended:
                code, said = self._ended[name], (self.folder / f"{name}.message").read_text()
                code = 128 - code if code < 0 else code
                end = {"exitCode": code, "reason": "Error" if code else "Completed", "message": said}
                return {"name": name, "state": {"terminated": {**end, "startedAt": "2026-11-24T10:00:00Z"}}}
            if name in self._running:
                return {"name": name, "state": {"running": {"startedAt": "2026-11-24T10:00:00Z"}}}
            return {"name": name, "state": {"waiting": {"reason": "PodInitializing"}}}

        status = {
            "phase": phase,
            "containerStatuses": [state_of(each) for each in self.spec["containers"]],
            "initContainerStatuses": [state_of(each) for each in self.spec.get("initContainers", ())],
        }
        plain = self.cluster.get("pods", self.pod)
        assert plain is not None
        self.cluster.put("pods", self.pod, {**plain, "status": status}, NAMESPACE)
