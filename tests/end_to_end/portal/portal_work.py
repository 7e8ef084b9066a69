"""Several people's work on one server, so that each page of the portal has something to show."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from real_pond import until

from millpond.client.sdk import Client
from millpond.specs.api.accounts.accounts import NewToken, NewUser

_HOUR_S: Final = 3_600.0
_PEOPLE: Final = {"ada": ("vision", "lead"), "carla": ("vision", "member"), "bob": ("speech", "member")}
_TRAINS: Final = r"""
[ "$MILLPOND_ATTEMPT" -gt 1 ] || { echo 'RuntimeError: CUDA error: an illegal memory access' >&2; exit 3; }
cd "$MILLPOND_OUTPUT" && mkdir ckpt && echo epoch 1 | tee ckpt/epoch-1.pt ckpt/epoch-2.pt log.csv
awk -v at="$(date +%s)" 'BEGIN { for (step = 1; step <= 80; step++) {
  loss = 2.1 / (1 + step / 9) + 0.05 * sin(step); printf "step %d loss %.4f\n", step, loss
  printf "{\"at\": %d, \"step\": %d, \"values\": {\"loss\": %.4f, \"accuracy\": %.4f}}\n",
    at - 600 + step * 7, step, loss, 0.92 - 0.8 / (1 + step / 8) > ENVIRON["MILLPOND_METRICS"]
} }'; sleep 3600
"""
"""Fails once, and then learns."""
_TUNES: Final = r"""
awk -v at="$(date +%s)" -v lr={lr} -v depth={depth} -v smooth={smooth} 'BEGIN { for (step = 1; step <= 60; step++)
  printf "{\"at\": %d, \"step\": %d, \"values\": {\"loss\": %.4f, \"accuracy\": %.4f}}\n", at + step * depth * 9, step,
    1.9 / (1 + step * lr * 2) + 0.4 * smooth + 0.02 * sin(step * depth) + lr * lr,
    0.95 - 0.7 / (1 + step * lr * depth) - smooth
}' > "$MILLPOND_METRICS"; [ "$MILLPOND_PARAM_DEPTH" -lt 3 ] || sleep 3600
"""
_SERVES: Final = 'exec python3 -m http.server --bind 127.0.0.1 "$MILLPOND_PORT"'


def fill(state_dir: Path) -> dict[str, str]:
    """Begin the work; returns what stands in addresses of pages for which name."""
    with ExitStack() as people:
        root = people.enter_context(Client(state_dir=state_dir))
        _arrange(root)
        url, theirs = root.address.url, {}
        for name in _PEOPLE:
            secret = root.accounts.create_token(NewToken(name="own", user=name)).secret
            theirs[name] = people.enter_context(Client(url=url, token=secret))
        root.submit(_job("notebook", 0.25, _SERVES, kind="dev", gpu_models=["A100-80GB"], serve={"path": "rest"}))
        _wait_for(root, "notebook")
        train, _ = theirs["ada"].submit_together([
            _job("train-resnet", 2, _TRAINS, retries=1),
            _job("debug-shell", 1, gpu_models=["A100-80GB"], time_limit="1d"),
        ])  # fmt: skip
        _wait_for(root, "debug-shell")
        sweep = theirs["ada"].submit(_job("tune-resnet", 0.25, _TUNES, time_limit="1h", sweep=_SWEEP))
        service = theirs["ada"].submit(_job("caption-model", 1, _SERVES, **_SERVICE))
        align = theirs["bob"].submit_together([
            _job("align", 2, time_limit="3h"),
            _job("distill", 1, time_limit="1d"),
            _job("align-large", 8, time_limit="3h"),
        ])  # fmt: skip
        theirs["bob"].submit(_job("score", 1, "true", after=[align[0].id]))
        theirs["carla"].submit_together([
            _job("evaluate", 0.5, time_limit="1h", array={"count": 12, "parallel": 2}),
            _job("typo", 1, "echo 'ModuleNotFoundError: torhc' >&2; exit 1"),
            _job("pretrain", 8, time_limit="1d"),
            _job("w" * 60, 8, time_limit=None),
        ])  # fmt: skip
        _wait_for(root, "distill")
        root.suspend(align[1].id)
        until(lambda: root.job(train.id).attempt == 2)
    names = {"name": "dgx-1", "node": "dgx-1", "queue": "vision"}
    return names | {"job": train.id, "sweep": sweep.id, "service": service.id}


_SWEEP: Final = {
    "parameters": {"lr": [0.3, 0.1, 0.03], "depth": [2, 3], "smooth": {"uniform": [0, 0.2]}},
    "method": "random",
    "samples": 8,
    "parallel": 8,
    "metric": "loss",
}
_SERVICE: Final[Mapping[str, Any]] = {
    "kind": "service",
    "gpu_models": ["V100-32GB"],
    "time_limit": None,
    "tasks": {"desired": 2, "min": 1, "max": 4},
    "serve": {"path": "rest", "ready": "/", "scale": {"requests_per_s": 20}},
}


def _arrange(root: Client) -> None:
    """People in groups, nodes and cards that are closed, a reservation, a token, a saved view."""
    now = time.time()
    for group in ("vision", "speech"):
        root.accounts.add_group(group)
    for name, (group, role) in _PEOPLE.items():
        root.accounts.add_user(NewUser(name=name, group=group, role=role))  # type: ignore[arg-type]
    root.close_node("dgx-1", card=7, reason="it runs hot")
    root.close_node("box-2", reason="new power supply")
    root.close_node("dgx-1", begin=now + 48 * _HOUR_S, until=now + 72 * _HOUR_S, reason="driver 580")
    root.reserve("demo", "vision", 4, now + 5 * _HOUR_S, begin=now + _HOUR_S)
    root.accounts.create_token(NewToken(name="ci"))
    root.saved_views.save("speech waits", "state=queued&queue=speech")


def _job(name: str, gpus: float, command: str = "sleep 3600", **fields: Any) -> dict[str, Any]:
    made = {"name": name, "gpus": gpus, "memory": "64MiB", "time_limit": "2h", "command": command} | fields
    return {key: value for key, value in made.items() if value is not None}


def _wait_for(client: Client, name: str) -> None:
    """Wait until a job of this name runs."""
    until(lambda: any(job.name == name and job.state == "running" for job in client.jobs().jobs))
