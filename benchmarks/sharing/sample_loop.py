"""What sampling the devices of a node once a second costs of a core.

    python -m benchmarks.sharing.sample_loop --seconds 20
    python -m benchmarks.sharing.sample_loop --real

The server's own loop runs with the real binding of NVML: on eight pretended cards with two programs each (it needs gcc
for the pretended driver of the tests), or with ``--real`` on the cards of this machine. The cost is the CPU time of the
whole process, of which the loop is all it does. On the pretended driver that is our part and the binding's; a real
driver adds its own, which only ``--real`` shows.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.reporting import Table, command_line, emit, program, verdict
from millpond.model.errors import InvalidInputError
from millpond.node.devices.discovery import FoundVendors
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.host.machine import describe_machine
from millpond.server.monitoring.telemetry.sampling import Telemetry

REPOSITORY = Path(__file__).resolve().parents[2]

CARDS = 8
PROGRAMS_A_CARD = 2
MOST_OF_A_CORE = 0.01
"""Target of the issue: 1 Hz, eight devices, at most one part in a hundred of a core."""

_CHILD = "--measure"


def measure(seconds: float) -> dict[str, Any]:
    """Run the server's loop for a while, and tell what it cost."""
    machine = describe_machine(found=FoundVendors((NvidiaVendor(),), {}))
    if not machine.vendors:
        raise InvalidInputError(machine.notes[0], "leave out --real")
    devices = [device.uuid for node in machine.nodes for device in node.devices]
    telemetry = Telemetry(machine, time.time)
    telemetry.look(machine.vendors["nvidia"])  # the first look loads and looks up what later ones have at hand
    before, began = _cpu_s(), time.monotonic()
    telemetry.start()
    time.sleep(seconds)
    used, elapsed = _cpu_s() - before, time.monotonic() - began
    telemetry.close()
    looks = len(telemetry.recent(devices[0])) - 1
    processes = telemetry.recent(devices[0])[-1].sample.processes
    return {
        "devices": len(devices),
        "processes_on_the_first": None if processes is None else len(processes),
        "looks": looks,
        "looks_per_s": looks / elapsed,
        "cpu_ms_per_look": used * 1000 / looks,
        "part_of_a_core": used / elapsed,
    }


def on_pretended_cards(seconds: float) -> dict[str, Any]:
    """The same in a process that finds the pretended driver, with programs on its cards."""
    sys.path.insert(0, str(REPOSITORY / "tests"))
    from fake_driver.building import what_is_missing
    from fake_driver.driver import FakeDriver
    from fake_driver.program import Program

    if missing := what_is_missing():
        raise InvalidInputError(missing, "install it, or use --real")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as held:
        driver = FakeDriver(Path(folder), cards=CARDS)
        for card in driver.cards:
            for _ in range(PROGRAMS_A_CARD):
                running = held.enter_context(Program(driver.env(card)))
                running("start")
                running("alloc", 1024)
        child = [sys.executable, "-m", "benchmarks.sharing.sample_loop", _CHILD, str(seconds)]
        environment = {**os.environ, **driver.env()}
        done = subprocess.run(child, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--real", action="store_true", help="on the cards of this machine")
    options = parser.parse_args(arguments)
    found = measure(options.seconds) if options.real else on_pretended_cards(options.seconds)
    met = found["part_of_a_core"] <= MOST_OF_A_CORE
    load = os.getloadavg()[0]
    table = Table("cards", "looks", "looks/s", "CPU ms a look", "of a core", "met")
    table.add(
        str(found["devices"]),
        str(found["looks"]),
        f"{found['looks_per_s']:.2f}",
        f"{found['cpu_ms_per_look']:.2f}",
        f"{found['part_of_a_core']:.2%}",
        verdict(met),
    )
    setting = "the cards of this machine" if options.real else "pretended cards"
    result = {"on": setting, "machine": platform.machine(), "load": load, "most": MOST_OF_A_CORE, "met": met, **found}
    emit(result, options.json, [table, f"on {setting}, load {load:.1f}"])


if __name__ == "__main__":
    if sys.argv[1:2] == [_CHILD]:
        print(json.dumps(measure(float(sys.argv[2]))))
    else:
        main()
