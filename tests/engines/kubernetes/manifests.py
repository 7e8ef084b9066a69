"""What `kubectl apply -k` makes of the folders of ``deploy/``."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"


def missing() -> str:
    """Why nothing can be rendered here; empty when it can."""
    if shutil.which("kubectl") is None:
        return "kubectl is not installed"
    said = subprocess.run(["kubectl", "version", "--client"], capture_output=True, text=True, check=False).stdout
    return "" if re.search(r"Kustomize Version", said) else "this kubectl is older than 1.21"


def rendered(folder: str | Path) -> list[dict[str, Any]]:
    """The objects of a folder of ``deploy/``, or of an overlay elsewhere, in the order in which they are made."""
    done = subprocess.run(["kubectl", "kustomize", DEPLOY / folder], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.safe_load_all(done.stdout))


def server_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The pod of the server, as its StatefulSet makes it."""
    (found,) = [each for each in objects if each["kind"] == "StatefulSet"]
    pod: dict[str, Any] = found["spec"]["template"]["spec"]
    return pod
