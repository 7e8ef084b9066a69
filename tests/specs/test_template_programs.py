"""What the commands of our templates start, by stand-ins for the programs that tell how they were started.

What is asked of them is what the real ones turned out to need: JupyterLab 4.6.6, Elyra 4.1.1, MLflow 3.17.2, Label
Studio 1.23.2.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.specs.job.templates import find_template

SERVING = {
    "MILLPOND_PORT": "7001",
    "MILLPOND_BASE_PATH": "/proxy/j/",
    "MILLPOND_ACCESS_KEY": "hush",
    "MILLPOND_SOCKET": "/sockets/program.sock",
}
STAND_IN = f"""#!{sys.executable} -IS
import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ)]))
"""


def started(folder: Path, template: str, program: str, **variables: str) -> tuple[list[str], dict[str, str]]:
    """With which arguments and variables the command of a template starts its program."""
    (folder / "bin").mkdir()
    stand_in = folder / "bin" / program
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    file = find_template(template).job(folder).file
    assert isinstance(file.command, str)
    env = SERVING | file.env | {"PATH": f"{folder}/bin:{os.environ['PATH']}", "TMPDIR": str(folder)} | variables
    done = subprocess.run(["/bin/sh", "-c", file.command], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    arguments, seen = json.loads(done.stdout)
    return arguments, seen


@pytest.mark.parametrize("template", ["jupyterlab", "elyra"])
def test_nothing_of_a_notebook_is_open_to_the_machine(tmp_path: Path, template: str) -> None:
    arguments, variables = started(tmp_path, template, "jupyter-lab")
    assert variables["JUPYTER_TOKEN"] == "hush"
    assert "hush" not in " ".join(arguments), "command lines can be read by everybody"
    assert {"--ip=127.0.0.1", "--port=7001", "--ServerApp.base_url=/proxy/j/"} <= set(arguments)
    assert "--KernelManager.transport=ipc" in arguments, "at ports, what kernels print could be read"
    kept = Path(variables["JUPYTER_RUNTIME_DIR"])
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700


def test_mlflow_answers_under_whatever_name_the_server_has(tmp_path: Path) -> None:
    arguments, variables = started(tmp_path, "mlflow", "mlflow")
    assert (variables["MLFLOW_SERVER_ALLOWED_HOSTS"], variables["MLFLOW_SERVER_CORS_ALLOWED_ORIGINS"]) == ("*", "*")
    assert arguments[:5] == ["server", "--host", "127.0.0.1", "--port", "7001"]
    assert (tmp_path / "mlflow").is_dir()


@pytest.mark.parametrize(
    ("origin", "host"),
    [({}, "http://127.0.0.1:7433"), ({"MILLPOND_ORIGIN": "https://j.pool.test"}, "https://j.pool.test")],
)
def test_label_studio_is_told_its_whole_address(tmp_path: Path, origin: dict[str, str], host: str) -> None:
    _, variables = started(tmp_path, "label-studio", "label-studio", **origin)
    assert variables["LABEL_STUDIO_HOST"] == f"{host}/proxy/j"


@pytest.mark.parametrize(("template", "option"), [("code-server", "--socket"), ("vllm", "--uds")])
def test_what_asks_not_everybody_who_they_are_listens_where_the_proxy_alone_gets_to(
    tmp_path: Path, template: str, option: str
) -> None:
    arguments, _ = started(tmp_path, template, template)
    assert arguments[arguments.index(option) + 1] == "/sockets/program.sock"
    assert "--port" not in arguments
    serve = find_template(template).job(tmp_path).file.serve
    assert serve is not None
    assert serve.listen == "socket"
