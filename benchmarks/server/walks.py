"""Which source files a reader has to open: on the way from ``pond run`` to the process, and from a grant to the gate.

    python -m benchmarks.server.walks

The first walk runs a real server and a real ``pond run``. Client, server, forkserver and supervisor note each file of
Millpond in which a function is called, from the start of the command to the first action of the job. The job before it
warms up. What the server does at regular intervals counts if it falls into that time; imports do not count.

The second walk starts one task on a part of a pretended card and notes the files in the engine's process, from the
question for room (``DeviceSharing.admit``) to the files of the slice (``GateRegion.create``). The C files of the gate,
which the task's program runs, do not count. It needs gcc.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import millpond
from benchmarks.reporting import Table, command_line, emit, program, verdict
from benchmarks.server.served import ServedPond
from millpond.engines.local.engine import LocalEngine
from millpond.engines.local.options import EngineOptions
from millpond.model.decisions import Grant, Placement, Start
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.reasons import Cause
from millpond.node.devices.fake import FakeVendor
from millpond.node.host.machine import Machine
from millpond.node.sharing.agent_lock import AgentLock
from millpond.node.sharing.gate_enforcer import GateEnforcer
from millpond.node.task.launch import LaunchSpec

TARGETS = {"run to process": 40, "run to process, engines and node": 40, "grant to gate": 15}

_SOURCE = f"{Path(millpond.__file__).parent}/"
_CARD_MIB = 4096
_PATIENCE_S = 60.0
_HOOK = '''\
"""Loaded by each interpreter: notes the files of Millpond whose functions are called while the switch is on."""

import mmap, os, sys, threading

_source, _folder = os.environ["WALK_SOURCE"], os.environ["WALK_FOLDER"]
with open(f"{_folder}/switch", "r+b") as _file:
    _switch = mmap.mmap(_file.fileno(), 1)
_seen = set()
os.register_at_fork(after_in_child=_seen.clear)


def _is_import(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
            return True
        frame = frame.f_back
    return False


def _visit(frame, event, _):
    if event != "call" or _switch[0] != 49:
        return
    path = frame.f_code.co_filename
    if path in _seen or not path.startswith(_source) or _is_import(frame):
        return
    _seen.add(path)
    with open("/proc/self/comm") as name:
        supervises = name.read().strip() == "pond-supervisor"
    process = "supervisor" if supervises else os.path.basename(sys.argv[0])
    file = os.open(f"{_folder}/visits", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, f"{os.getpid()}\\t{process}\\t{path[len(_source):]}\\n".encode())
    os.close(file)


sys.setprofile(_visit)
threading.setprofile(_visit)
'''


def run_to_process(folder: Path) -> dict[str, list[str]]:
    """The files of each process, from ``pond run`` to the process that it starts."""
    switch, work = folder / "work" / "switch", folder / "work"
    work.mkdir()
    switch.write_text("0")
    (folder / "sitecustomize.py").write_text(_HOOK)
    # Compiled kernels would call no hook.
    traced = {"PYTHONPATH": str(folder), "WALK_SOURCE": _SOURCE, "WALK_FOLDER": str(work), "NUMBA_DISABLE_JIT": "1"}
    with _environment(traced), ServedPond(folder / "state", ["--fake-gpus", "1x1:V100-32GB"]) as pond:
        pond.up()
        for on in (b"0", b"1"):
            with switch.open("r+b") as mapped:  # in place: a file that is cut short ends who has mapped it
                mapped.write(on)
            subprocess.run(
                [Path(sys.executable).with_name("pond"), "run", "--", "sh", "-c", "printf 0 1<> switch; echo runs"],
                env=os.environ | {"MILLPOND_STATE": str(pond.state_dir)},
                cwd=work,
                check=True,
                stdout=subprocess.DEVNULL,
                timeout=_PATIENCE_S,
            )
            assert switch.read_text() == "0"
        server = pond.pid
    visits = [line.split("\t") for line in (work / "visits").read_text().splitlines()]
    found: dict[str, set[str]] = {}
    for pid, process, path in visits:
        found.setdefault("server" if int(pid) == server else process.removesuffix(".py"), set()).add(path)
    return {process: sorted(paths) for process, paths in found.items()}


@contextlib.contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class _SliceWalk:
    """Notes the files between the question for room and the files of the slice, in all threads."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.done = threading.Event()
        self._on = False

    def visit(self, frame: FrameType, event: str, _: object) -> None:
        """As ``sys.setprofile`` calls it."""
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(_SOURCE) or self.done.is_set():
            return
        path = code.co_filename[len(_SOURCE) :]
        if event == "return":
            if code.co_qualname == "GateRegion.create":
                self.done.set()
            return
        self._on = self._on or code.co_qualname == "DeviceSharing.admit"
        if self._on:
            self.files.add(path)


def grant_to_gate(folder: Path) -> list[str]:
    """The files from the grant of a slice to the gate."""
    device = Device("GPU-0", 0, "nvidia", "H200", _CARD_MIB)
    node = Node("node", 8000, 8192, (device,))
    walk = _SliceWalk()
    threading.setprofile(walk.visit)
    options = EngineOptions(
        holds={"nvidia": [GateEnforcer(folder / "cache", folder / "cards")]},
        agent_lock=AgentLock(folder / "devices.lock"),
    )
    launch = LaunchSpec(("true",), folder)
    engine = LocalEngine(Machine((node,), {"nvidia": FakeVendor((node,))}), folder / "state", lambda _: launch, options)
    try:
        grant = Grant(device.uuid, 250, 1000, _CARD_MIB // 4)
        engine.apply([Start(1, "job", 1, Cause.FITS, (Placement(0, "worker", node.name, (grant,)),))])
        assert walk.done.wait(_PATIENCE_S), "no slice was made"
    finally:
        threading.setprofile(None)
        engine.close()
    return sorted(walk.files)


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Walk both ways and print the files."""
    options = command_line(__doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="millpond-walk-") as name:
        by_process = run_to_process(Path(name))
        slice_files = grant_to_gate(Path(name, "slice"))
    below = {
        process: [path for path in paths if path.startswith(("engines/", "node/"))]
        for process, paths in by_process.items()
    }
    ways = {
        "run to process": by_process,
        "run to process, engines and node": below,
        "grant to gate": {"engine": slice_files},
    }
    result = {}
    lines: list[Table | str] = []
    counts = Table("way", "files", "target", "met", texts=1)
    for way, files in ways.items():
        paths = sorted({path for part in files.values() for path in part})
        parts = Counter(path.split("/")[0] for path in paths)
        result[way] = {"files": len(paths), "target": TARGETS[way], "parts": parts, "processes": files}
        counts.add(way, str(len(paths)), f"<= {TARGETS[way]}", verdict(len(paths) <= TARGETS[way]))
        lines.append(f"{way}: {', '.join(f'{part} {count}' for part, count in parts.most_common())}")
        for process, visited in files.items() if files is not below else ():
            lines += ["", f"{way}, {process}: {len(visited)}", *(f"  {path}" for path in visited)]
        lines.append("")
    emit(result, options.json, [*lines, counts])


if __name__ == "__main__":
    main()
