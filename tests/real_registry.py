"""Real registries on this machine, for tests: Debian's docker-registry, one open and one that asks for a login."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from own_address import free_port, own_address

LOGIN = "ann:hush"
_ANN = "ann:$2y$05$aVOf3dguy4Z5HM7h8sSSo.oD30ToCePaAJPjC6TGT3QUJwf73BdN."
"""``LOGIN`` as ``htpasswd -B`` writes it."""
_ANSWERS_WITHIN_S = 120.0


class RealRegistry:
    """One registry; it can be stopped and started again, and has what it had.

    Attributes:
        address: host and port, as in references.
    """

    def __init__(self, program: str, folder: Path, asks: bool) -> None:
        self.address = f"{own_address()}:{free_port(own_address())}"
        folder.mkdir()
        (folder / "htpasswd").write_text(f"{_ANN}\n")
        auth = f"auth: {{htpasswd: {{realm: private, path: {folder}/htpasswd}}}}\n" if asks else ""
        self._config = folder / "config.yml"
        self._config.write_text(
            f"version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n{auth}"
            f"storage: {{filesystem: {{rootdirectory: {folder}/store}}}}\nhttp: {{addr: '{self.address}'}}\n"
        )
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Run it, until it answers."""
        devnull = subprocess.DEVNULL
        self._process = subprocess.Popen([self._program, "serve", self._config], stdout=devnull, stderr=devnull)
        give_up_at = time.monotonic() + _ANSWERS_WITHIN_S
        while not self._answers():
            assert time.monotonic() < give_up_at, "docker-registry does not answer"
            time.sleep(0.05)

    def stop(self) -> None:
        """Nobody listens there any more."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://{self.address}/v2/", timeout=5).close()
        except urllib.error.HTTPError:
            return True  # it asks who we are
        except OSError:
            return False
        return True


def registry_program() -> str:
    """The path of docker-registry; empty where it is not installed."""
    return shutil.which("docker-registry") or ""
