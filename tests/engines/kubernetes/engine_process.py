"""An engine in a process of its own, to be paused and killed: starts a job for each line on standard input.

python engine_process.py HOST:PORT FOLDER LASTS_S HOLDS_S
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
from pod_bench import PodBench, start
from standin_cluster import StandinCluster

from millpond.engines.kubernetes.cluster.cluster_lease import LeaseTimes
from millpond.engines.kubernetes.engine import KubernetesOptions
from millpond.model.errors import LeadershipLostError


def main(address: str, folder: Path, lasts_s: float, holds_s: float) -> None:
    options = KubernetesOptions(servers=("this-server",), lease=LeaseTimes(lasts_s, holds_s, holds_s / 4))
    host, _, port = address.partition(":")
    bench = PodBench(StandinCluster(host=host, port=int(port)), folder, options=options)
    bench.open()
    print("open", flush=True)
    threading.Thread(target=report, args=(bench,), daemon=True).start()
    for number, line in enumerate(sys.stdin, 1):
        bench.engine.apply([start(number, job=line.strip())])


def report(bench: PodBench) -> None:
    """Say what the engine says, until it fails."""
    pause = threading.Event()
    while not pause.wait(0.01):
        try:
            for event in bench.engine.events():
                print(type(event).__name__, flush=True)
        except LeadershipLostError as error:
            print(f"failed: {error}", flush=True)
            return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
