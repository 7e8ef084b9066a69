"""An API server that stands in for a cluster's, and kubelets that do what a test says.

It has what the engine uses, and is as strict about it as a real one: versions and watches that go on from them, 410 for
versions it no longer has, 409 for what exists, bindings that are made once, deletion with grace. What it is believed to
do right is tried against a real one by ``tests/engines/kubernetes/real``.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import json
import secrets
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from standin_streams import serve_command, serve_port
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from millpond.engines.kubernetes.pods.pod_marks import INPUT_FOLDER
from own_address import own_address

Plain = dict[str, Any]
NAMESPACE = "team"
KEPT_OPEN_S = 90
"""Connections that nobody uses; as long as the API server keeps them."""
WITHIN_S = 60.0
PATIENCE_S = 5.0
"""For commands to end that have seen the end of their input."""
_KINDS = {"pods": "Pod", "nodes": "Node", "secrets": "Secret", "services": "Service", "events": "Event"}
_KINDS |= {"persistentvolumeclaims": "PersistentVolumeClaim", "persistentvolumes": "PersistentVolume"}


def refusal(code: int, reason: str, message: str) -> JSONResponse:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return JSONResponse(status, code)


def _containers(pod: Plain | None) -> list[Plain]:
    return (pod or {}).get("status", {}).get("containerStatuses") or []


def selected(plain: Plain, request: Request) -> bool:
    """Whether an object is asked for: by the value of a field, and by labels that it must have, or must not."""
    path, is_selected, value = request.query_params.get("fieldSelector", "").partition("=")
    there: Any = plain
    for word in path.split("."):
        there = there.get(word, "") if isinstance(there, dict) else ""
    names = [name for name in request.query_params.get("labelSelector", "").split(",") if name]
    labels = plain["metadata"].get("labels", {})
    has_labels = all((name.removeprefix("!") in labels) is not name.startswith("!") for name in names)
    return has_labels and (not is_selected or there == value)


def merged(plain: Any, patch: Any) -> Any:
    """What a patch makes of an object."""
    if not isinstance(plain, dict) or not isinstance(patch, dict):
        return patch
    result = {name: value for name, value in plain.items() if patch.get(name, "") is not None}
    for name, value in patch.items():
        if name == "conditions":
            changed = {each["type"] for each in value}
            result[name] = [each for each in plain.get(name, []) if each["type"] not in changed] + value
        elif value is not None:
            result[name] = merged(plain.get(name, {}), value)
    return result


def wrong_in_claim(before: Plain, after: Plain) -> str:
    """Why the status of a claim cannot become another, as Kubernetes has it; empty of all else."""
    had, has = before.get("allocation"), after.get("allocation")
    if had and has and had != has:
        return "status.allocation: Invalid value: field is immutable"
    if after.get("reservedFor") and not has:
        return "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"
    if len(after.get("reservedFor") or ()) > 256:
        return "status.reservedFor: Too many: must have at most 256 items"
    return ""


def wrong_in_pod(pod: Plain) -> str:
    """Why what a pod's status says of its claim for extended resources cannot be, as Kubernetes has it."""
    said = pod.get("status", {}).get("extendedResourceClaimStatus")
    if said is None:
        return ""
    spec = pod["spec"]
    asked = {
        each["name"]: each["resources"]["requests"] for each in [*spec.get("initContainers", []), *spec["containers"]]
    }
    mappings = [(each["containerName"], each["resourceName"], each["requestName"]) for each in said["requestMappings"]]
    if not mappings or len(set(mappings)) < len(mappings):
        return "status.extendedResourceClaimStatus.requestMappings: Required value, each once"
    if any(resource not in asked.get(container, {}) for container, resource, _ in mappings):
        return "resourceName: must match the extended resource name of an entry in spec.containers.resources.requests"
    return "" if said["resourceClaimName"] else "resourceClaimName: Required value"


class _Server(uvicorn.Server):
    """One that is gone as soon as it is told to; uvicorn looks for that ten times a second, and is polite for another
    tenth."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.runs = threading.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self.runs.set()
        await self._ended.wait()

    async def shutdown(self, sockets: object = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def call(self, act: Callable[[], object]) -> None:
        """Have something done in its thread."""
        self._loop.call_soon_threadsafe(act)

    def end(self) -> None:
        self.call(self._ended.set)


@dataclass
class StandinCluster:
    """The state of a cluster, and its server.

    Attributes:
        requests: what was asked, as ``METHOD path``.
        refuses: called with each request; an answer stands for the server's own.
        logs: of pods, by name: lines with their times.
        policies: versions of the API that take evictions.
        guarded: pods that a disruption budget protects.
        unwatched: kinds of objects that may not be watched.
        keeps_logs_open: whoever follows a log waits for more of it until watches are cut.
        token: what requests must carry; empty: anything.
        version: of Kubernetes, as it says.
        input_folder: what pods have at ``INPUT_FOLDER``.
        ports: of this machine, at which the programs of pods listen: by pod and their own port.
        serves_claims: it has ``resource.k8s.io/v1``.
        keeps_extended: its feature DRAExtendedResource is on.
        accounts_for_shares: its feature DRAConsumableCapacity is on.
        told_in_short: objects of which who made them was told the metadata alone, as it had asked.
    """

    requests: list[str] = field(default_factory=list)
    refuses: Callable[[str, Plain], Response | None] = lambda _request, _body: None
    logs: dict[str, list[str]] = field(default_factory=dict)
    policies: set[str] = field(default_factory=lambda: {"policy/v1"})
    guarded: set[str] = field(default_factory=set)
    unwatched: set[str] = field(default_factory=set)
    keeps_logs_open: bool = False
    token: str = ""
    version: str = "v1.20-standin"
    input_folder: str = ""
    ports: dict[tuple[str, int], int] = field(default_factory=dict)
    serves_claims: bool = False
    keeps_extended: bool = True
    accounts_for_shares: bool = True
    told_in_short: list[str] = field(default_factory=list)
    _objects: dict[tuple[str, str, str], Plain] = field(default_factory=dict)
    _history: list[tuple[int, str, str, Plain]] = field(default_factory=list)
    _oldest: int = 0
    _versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _marks: str = field(default_factory=lambda: secrets.token_hex(4))
    """Of this cluster, in the identities of its objects."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _cut: int = 0
    _commands: dict[subprocess.Popen[bytes], bool] = field(default_factory=dict)
    _watchers: set[asyncio.Event] = field(default_factory=set)
    _silent: set[asyncio.Event] = field(default_factory=set)
    _server: _Server | None = None
    _thread: threading.Thread | None = None
    host: str = field(default_factory=own_address)
    """Where its port stays free while it is stopped."""
    port: int = 0

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"{self.host}:{self.port}"

    # ---- the server -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        routes = [
            Route("/{path:path}", self._answer, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]),
            WebSocketRoute("/{path:path}", self._stream),
        ]
        app = Starlette(routes=routes)
        config = uvicorn.Config(
            app, host=self.host, port=self.port, log_config=None, access_log=False, lifespan="off",
            timeout_keep_alive=KEPT_OPEN_S,
        )  # fmt: skip
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        assert self._server.runs.wait(WITHIN_S)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        if self._server is None or self._thread is None:
            return
        self.cut_watches()
        for command in [each for each, terminal in list(self._commands.items()) if terminal]:
            command.kill()  # such as a shell whose client has gone; others go on, and see the end of their input
        self._server.end()
        self._thread.join(PATIENCE_S)
        for command in list(self._commands):
            command.kill()
        self._thread.join()
        self._server = None

    def kubeconfig(self, folder: Path) -> Path:
        path = folder / "kubeconfig"
        path.write_text(
            yaml.safe_dump(
                {
                    "current-context": "here",
                    "clusters": [{"name": "here", "cluster": {"server": f"http://{self.address}"}}],
                    "contexts": [
                        {"name": "here", "context": {"cluster": "here", "user": "me", "namespace": NAMESPACE}}
                    ],
                    "users": [{"name": "me", "user": {"token": "secret"}}],
                }
            )
        )
        return path

    def cut_watches(self) -> None:
        """All watches end, as when a load balancer tires of them."""
        self._cut += 1
        self._tell_watchers()

    def silence_watches(self) -> None:
        """Those that are open say nothing more, and stay open."""
        assert self._server is not None
        self._server.call(lambda: self._silent.update(self._watchers))

    def forget_history(self) -> None:
        """What came before now can be asked for no longer."""
        with self._lock:
            self._oldest = next(self._versions)

    def restore(self) -> None:
        """It has a backup of its etcd of a moment ago: its history goes on from a version that many had seen passed."""
        with self._lock:
            self._history.clear()
            self._versions = itertools.count(next(self._versions) // 2)
        self._cut += 1
        self._tell_watchers()

    # ---- what a test does -----------------------------------------------------------------------------------------

    def put(self, kind: str, name: str, plain: Plain, namespace: str = "") -> None:
        """Make an object, or replace it."""
        with self._lock:
            key = (kind, namespace, name)
            before = self._objects.get(key)
            meta = {
                "uid": f"uid-{self._marks}-{next(self._versions)}",
                **(before or {}).get("metadata", {}),
                **plain.get("metadata", {}),
            }
            self._store(key, {**plain, "metadata": {**meta, "name": name, "namespace": namespace}}, before is None)

    def get(self, kind: str, name: str, namespace: str = NAMESPACE) -> Plain | None:
        with self._lock:
            return copy.deepcopy(self._objects.get((kind, namespace, name)))

    def names(self, kind: str) -> list[str]:
        with self._lock:
            return [name for each, _, name in self._objects if each == kind]

    def remove(self, kind: str, name: str, namespace: str = NAMESPACE) -> None:
        with self._lock:
            plain = self._objects.pop((kind, namespace, name))
            self._note("DELETED", kind, plain)

    def add_node(
        self,
        name: str,
        cards: int = 8,
        labels: Plain | None = None,
        *,
        ready: bool = True,
        others: Plain | None = None,
        images: Sequence[Plain] = (),
        **spec: Any,
    ) -> None:
        """A node, or another description of it.

        Args:
            others: what else it has, by the resource's name.
            images: that it holds.
        """
        amounts = {"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": str(cards), **(others or {})}
        labels = (
            {"millpond.io/pool": "default", "nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"}
            if labels is None
            else labels
        )
        ready_condition = {"type": "Ready", "status": str(ready)}
        status = {"allocatable": amounts, "conditions": [ready_condition], "images": list(images)}
        self.put("nodes", name, {"metadata": {"labels": labels}, "spec": spec, "status": status})

    def set_state(self, pod: str, phase: str, state: Plain, reason: str = "", message: str = "") -> None:
        """What the kubelet says of a pod."""
        with self._lock:
            plain = self._objects["pods", NAMESPACE, pod]
            statuses = [{"name": "task", "state": state}] if state else []
            status = {"phase": phase, "reason": reason, "message": message, "containerStatuses": statuses}
            status["podIP"] = "127.0.0.1"
            self._store(("pods", NAMESPACE, pod), {**plain, "status": {**plain.get("status", {}), **status}}, False)

    def run(self, pod: str) -> None:
        self.set_state(pod, "Running", {"running": {"startedAt": "2026-11-24T10:00:00Z"}})

    def finish(self, pod: str, code: int = 0, reason: str = "Completed") -> None:
        end = {"exitCode": code, "reason": reason, "startedAt": "2026-11-24T10:00:00Z"}
        self.set_state(pod, "Failed" if code else "Succeeded", {"terminated": end})

    # ---- answers --------------------------------------------------------------------------------------------------

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        self.requests.append(f"{request.method} {path}")
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return refusal(401, "Unauthorized", "Unauthorized")
        raw = await request.body()
        body = json.loads(raw) if raw else {}
        told = self.refuses(self.requests[-1], body)
        if told is not None:
            return told
        if path.endswith("/selfsubjectaccessreviews"):
            return JSONResponse({"status": {"allowed": False}}, 201)
        if path == "/apis/resource.k8s.io/v1" and self.serves_claims:
            return JSONResponse({"kind": "APIResourceList"})
        if path == "/version":
            return JSONResponse({"gitVersion": self.version})
        words = path.removeprefix("/api/v1/").split("/")
        namespace = group = ""
        if words[:2] == ["", "apis"]:
            group, words = f".{words[2]}", words[4:] or [""]
        if words[0] == "namespaces":
            namespace, words = words[1], words[2:]
        kind, name, part = (*words, "", "")[:3]
        if request.query_params.get("dryRun") == "All":
            return JSONResponse(body)
        kind += group
        is_hidden = group == ".resource.k8s.io" and not self.serves_claims
        if (kind not in _KINDS and not group) or is_hidden:
            return refusal(404, "NotFound", f"no {kind}")
        if part == "binding":
            return self._bind(namespace, name, body)
        if part == "eviction":
            return self._evict((kind, namespace, name), body)
        if part == "log":
            return self._log(name, request)
        match request.method, name:
            case "POST", "":
                return self._create(kind, namespace, body, "as=PartialObjectMetadata" in request.headers["Accept"])
            case "PATCH", _:
                return self._patch((kind, namespace, name), body)
            case "PUT", _:
                return self._replace((kind, namespace, name), body)
            case "DELETE", _:
                return self._delete((kind, namespace, name), body)
            case "GET", "" if request.query_params.get("watch"):
                return self._watch(kind, request)
            case "GET", "":
                return self._list(kind, request)
        plain = self.get(kind, name, namespace)
        return refusal(404, "NotFound", f'{kind} "{name}" not found') if plain is None else JSONResponse(plain)

    async def _stream(self, client: WebSocket) -> None:
        """A stream into a container, which has to run."""
        self.requests.append(f"GET {client.url.path}")
        *_, pod, part = client.url.path.split("/")
        told = self.refuses(self.requests[-1], {})
        plain = self.get("pods", pod)
        if told is None and plain is None:
            told = refusal(404, "NotFound", f'pods "{pod}" not found')
        if told is None and not any(each["state"].get("running") for each in _containers(plain)):
            told = refusal(400, "BadRequest", f"pod {pod} does not run")
        if told is not None:
            await client.send_denial_response(told)
            return
        if part == "portforward":
            port = int(client.query_params["ports"])
            await serve_port(client, port, self.ports.get((pod, port)))
            return
        words = [word.replace(INPUT_FOLDER, self.input_folder) for word in client.query_params.getlist("command")]
        await serve_command(client, words, client.query_params["tty"] == "true", self._commands)

    def _create(self, kind: str, namespace: str, plain: Plain, in_short: bool) -> Response:
        for each in plain.get("spec", {}).get("devices") or () if kind.startswith("resourceslices") else ():
            each["allowMultipleAllocations"] = each.get("allowMultipleAllocations") and self.accounts_for_shares
        name = plain["metadata"].get("name") or f"{plain['metadata']['generateName']}{next(self._versions)}"
        with self._lock:
            if (kind, namespace, name) in self._objects:
                return refusal(409, "AlreadyExists", f'{kind} "{name}" already exists')
            self.put(kind, name, {"status": {"phase": "Pending"}, **plain}, namespace)
            made = self._objects[kind, namespace, name]
            if in_short:
                self.told_in_short.append(name)
                made = {"kind": "PartialObjectMetadata", "metadata": made["metadata"]}
            return JSONResponse(made, 201)

    def _bind(self, namespace: str, name: str, body: Plain) -> Response:
        with self._lock:
            plain = self._objects.get(("pods", namespace, name))
            if plain is None:
                return refusal(404, "NotFound", f'pods "{name}" not found')
            if plain["spec"].get("nodeName"):
                return refusal(409, "Conflict", f"pod {name} is already assigned to node {plain['spec']['nodeName']}")
            if body["metadata"].get("resourceVersion") not in (None, plain["metadata"]["resourceVersion"]):
                return refusal(409, "Conflict", "the object has been modified")
            spec, meta = {**plain["spec"], "nodeName": body["target"]["name"]}, plain["metadata"]
            added = {**meta.get("annotations", {}), **body["metadata"].get("annotations", {})}
            bound = {**plain, "spec": spec, "metadata": {**meta, "annotations": added}}
            self._store(("pods", namespace, name), bound, False)
        return JSONResponse({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}, 201)

    def _patch(self, key: tuple[str, str, str], body: Plain) -> Response:
        """A merge; conditions are merged by their types, as a strategic one does."""
        with self._lock:
            plain = self._objects.get(key)
            if plain is None:
                return refusal(404, "NotFound", f'{key[0]} "{key[2]}" not found')
            wanted = body.get("metadata", {}).get("resourceVersion")
            if wanted not in (None, plain["metadata"]["resourceVersion"]):
                return refusal(409, "Conflict", "the object has been modified")
            patched = merged(plain, body)
            if not self.keeps_extended:
                patched.get("status", {}).pop("extendedResourceClaimStatus", None)
            if wrong := wrong_in_claim(plain.get("status", {}), patched.get("status", {})) or wrong_in_pod(patched):
                return refusal(422, "Invalid", wrong)
            self._store(key, patched, False)
            if patched["metadata"].get("deletionTimestamp") and patched["metadata"].get("finalizers") == []:
                self.remove(key[0], key[2], key[1])
            return JSONResponse(self._objects.get(key, patched))

    def _replace(self, key: tuple[str, str, str], body: Plain) -> Response:
        with self._lock:
            plain = self._objects.get(key)
            if plain is None:
                return refusal(404, "NotFound", f'{key[0]} "{key[2]}" not found')
            if body["metadata"].get("resourceVersion") not in (None, plain["metadata"]["resourceVersion"]):
                return refusal(
                    409, "Conflict", "the object has been modified; apply your changes to the latest version"
                )
            self._store(key, {**body, "metadata": {**plain["metadata"], **body["metadata"]}}, False)
            return JSONResponse(self._objects[key])

    def _evict(self, key: tuple[str, str, str], body: Plain) -> Response:
        if body["apiVersion"] not in self.policies:
            return refusal(400, "BadRequest", f"no kind Eviction in {body['apiVersion']}")
        if key[2] in self.guarded:
            return refusal(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
        return self._delete(key, body["deleteOptions"])

    def _delete(self, key: tuple[str, str, str], options: Plain) -> Response:
        grace, uid = options.get("gracePeriodSeconds", 30), options.get("preconditions", {}).get("uid")
        with self._lock:
            plain = self._objects.get(key)
            if plain is None:
                return refusal(404, "NotFound", f'{key[0]} "{key[2]}" not found')
            if uid not in (None, plain["metadata"]["uid"]):
                return refusal(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
            is_over = plain.get("status", {}).get("phase") in ("Succeeded", "Failed")
            grace = min(grace, plain["metadata"].get("deletionGracePeriodSeconds", grace))
            if key[0] == "pods" and grace and plain["spec"].get("nodeName") and not is_over:
                meta = {
                    **plain["metadata"],
                    "deletionTimestamp": "2026-11-24T10:00:30Z",
                    "deletionGracePeriodSeconds": grace,
                }
                self._store(key, {**plain, "metadata": meta}, False)
            elif plain["metadata"].get("finalizers"):
                meta = {**plain["metadata"], "deletionTimestamp": "2026-11-24T10:00:30Z"}
                meta["deletionGracePeriodSeconds"] = 0
                self._store(key, {**plain, "metadata": meta}, False)
            else:
                self.remove(key[0], key[2], key[1])
        return JSONResponse({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _list(self, kind: str, request: Request) -> Response:
        with self._lock:
            objects = self._objects.items()
            found = [plain for (each, _, _), plain in objects if each == kind and selected(plain, request)]
            begin, most = int(request.query_params.get("continue", 0)), int(request.query_params.get("limit", 500))
            page = found[begin : begin + most]
            meta = {"resourceVersion": str(next(self._versions))}
            if begin + most < len(found):
                meta["continue"] = str(begin + most)
            return JSONResponse({"kind": f"{_KINDS.get(kind, kind)}List", "metadata": meta, "items": page})

    def _watch(self, kind: str, request: Request) -> Response:
        since = int(request.query_params["resourceVersion"])
        if kind in self.unwatched:
            return refusal(403, "Forbidden", f'{kind} is forbidden: User "me" cannot watch resource "{kind}"')
        if since < self._oldest:
            return refusal(410, "Expired", "too old resource version")
        return StreamingResponse(self._changes(kind, since, request), media_type="application/json")

    async def _changes(self, kind: str, since: int, request: Request) -> AsyncIterator[bytes]:
        cut, sent = self._cut, 0
        with self._told() as told:
            while self._cut == cut:
                told.clear()
                if told in self._silent:
                    await told.wait()
                    continue
                with self._lock:
                    news = [each for each in self._history[sent:] if each[0] > since and each[2] == kind]
                    news = [each for each in news if selected(each[3], request)]
                    sent = len(self._history)
                for _, change, _, plain in news:
                    yield json.dumps({"type": change, "object": plain}).encode() + b"\n"
                await told.wait()
        if sent > len(self._history):
            return  # its etcd was restored meanwhile
        version = {"metadata": {"resourceVersion": str(max(since, self._history[-1][0] if self._history else 0))}}
        yield json.dumps({"type": "BOOKMARK", "object": version}).encode() + b"\n"

    def _log(self, pod: str, request: Request) -> Response:
        plain = self.get("pods", pod)
        if plain is None or not plain["status"].get("containerStatuses"):
            return refusal(400, "BadRequest", "the container is waiting to start")
        since = request.query_params.get("sinceTime", "")[:19]
        lines = [line for line in self.logs.get(pod, []) if line[:19] >= since]
        if self.keeps_logs_open and request.query_params.get("follow"):
            return StreamingResponse(self._held_open("".join(lines).encode()))
        return Response("".join(lines))

    async def _held_open(self, lines: bytes) -> AsyncIterator[bytes]:
        cut = self._cut
        yield lines
        with self._told() as told:
            while self._cut == cut:
                told.clear()
                await told.wait()

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _store(self, key: tuple[str, str, str], plain: Plain, is_new: bool) -> None:
        version = next(self._versions)
        plain = copy.deepcopy(plain)
        plain["metadata"]["resourceVersion"] = str(version)
        self._objects[key] = plain
        self._note("ADDED" if is_new else "MODIFIED", key[0], plain, version)

    def _note(self, change: str, kind: str, plain: Plain, version: int | None = None) -> None:
        version = next(self._versions) if version is None else version
        plain = copy.deepcopy(plain)
        plain["metadata"]["resourceVersion"] = str(version)
        self._history.append((version, change, kind, plain))
        self._tell_watchers()

    @contextlib.contextmanager
    def _told(self) -> Iterator[asyncio.Event]:
        """Set whenever something has changed, or watches are cut."""
        told = asyncio.Event()
        self._watchers.add(told)
        try:
            yield told
        finally:
            self._watchers.discard(told)

    def _tell_watchers(self) -> None:
        def tell() -> None:
            for told in self._watchers:
                told.set()

        if self._server is not None:
            self._server.call(tell)
