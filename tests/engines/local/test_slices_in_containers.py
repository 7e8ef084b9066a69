"""Slices in containers of a real podman: the gate goes in with the task, as far as its programs load it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from local_bench import Bench, eventually
from test_local_slices import CARD_MIB, OneCard

from fake_driver.driver import FakeDriver
from millpond.model.decisions import Grant, Placement, Start
from millpond.model.events import Confirmed, Event, Noted, Refused
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.reasons import Cause
from millpond.model.sharing import DEFAULT_SLICE_RULES, SliceHold, SliceRules
from millpond.node.containers.container_launch import ContainerLaunch, default_owner
from millpond.node.containers.detection import RuntimeChoice, find_containers
from millpond.node.host.machine import Machine
from millpond.node.sharing.gate.building import library
from millpond.node.sharing.gate_enforcer import GateEnforcer
from real_containers import IMAGE as STATIC_IMAGE
from real_containers import RealPodman

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]

IMAGE = "localhost/with-a-c-library:1"
TAKES_ALL_IT_GETS = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int cuInit(unsigned); int cuDevicePrimaryCtxRetain(void **, int); int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t);
int main(void) {
    void *context; unsigned long long pointer; char control[4096]; int got = 0;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    while (got < 3000 && !cuMemAlloc_v2(&pointer, 64 << 20)) got += 64;
    const char *gate = getenv("MILLPOND_GATE");
    snprintf(control, sizeof control, "%s/control", gate ? gate : "");
    printf("got %d, reads %d, writes %d\n", got, open(control, O_RDONLY) >= 0, open(control, O_RDWR) >= 0);
    fflush(stdout);
    sleep(600);
}
"""


class Yard:
    """An engine with one card, whose tasks run in containers of an image with this machine's C library."""

    def __init__(self, bench: Bench, podman: RealPodman, gate_cache: Path) -> None:
        self.bench = bench
        self.folder = bench.workdir / "one"
        self.folder.mkdir()
        self.driver = FakeDriver(self.folder, cards=0)
        self.card = self.driver.add_card(CARD_MIB, uuid="FAKE-of-the-driver")  # no runtime knows how to hand it in
        self._make_image(podman, library(gate_cache))
        self.driver.libraries = Path(shutil.copytree(self.driver.libraries, self.folder / "driver"))
        node = Node("real", 8000, 8192, (Device(self.card.uuid, 0, "nvidia", "H200", CARD_MIB),))
        bench.machine = Machine((node,), {"nvidia": OneCard(self.driver, (node,))})
        bench.holds = {"nvidia": [GateEnforcer(gate_cache, bench.state_dir / "cards")]}
        bench.restart()
        containers = find_containers(RuntimeChoice.PODMAN, bench.state_dir)
        image = containers.images.find(IMAGE)
        assert image is not None
        self.launch = ContainerLaunch(containers, image, bench.state_dir.resolve(), owner=default_owner(containers))

    def start(self, *command: str) -> SliceHold:
        """Start the program in a slice of 1536 MiB; what is said to hold it."""
        [confirmed] = self.begin(*command)
        assert isinstance(confirmed, Confirmed), confirmed
        return confirmed.confinement.slices

    def begin(self, *command: str, rules: SliceRules = DEFAULT_SLICE_RULES) -> list[Event]:
        """What is answered to the start."""
        self.bench.define("one", command, workdir=self.folder, container=self.launch, slice_rules=rules)
        grant = Grant(self.card.uuid, 250, 1000, 1536)
        self.bench.apply(Start(self.bench.next_id(), "one", 1, Cause.FITS, (Placement(0, "worker", "real", (grant,)),)))
        return self.bench.events(1)

    def _make_image(self, podman: RealPodman, gate: Path) -> None:
        """An image of the program and of the whole C library, also of those parts that the gate alone uses."""
        program, archive = self.folder / "takes-all", self.folder / "image.tar"
        arguments = (
            "-x",
            "c",
            "-",
            "-o",
            program,
            f"-L{self.driver.libraries}",
            "-lcuda",
            "-Wl,--allow-shlib-undefined",
        )
        subprocess.run(["gcc", "-D_GNU_SOURCE", *arguments], input=TAKES_ALL_IT_GETS, text=True, check=True)
        needed = subprocess.run(["ldd", program, gate], capture_output=True, text=True, check=True).stdout
        busybox = shutil.which("busybox")
        assert busybox is not None
        with tarfile.open(archive, "w", dereference=True) as image:
            image.add(busybox, "bin/env")
            image.add(program, "bin/takes-all")
            for needs in sorted(set(re.findall(r"(/\S*/(?:ld-linux\S*|lib\S+\.so\S*)) \(0x", needed))):
                if "libcuda" not in needs:
                    image.add(needs, needs.lstrip("/"))
            for name in ("tmp", "etc", "proc"):
                place = tarfile.TarInfo(name)
                place.type, place.mode = tarfile.DIRTYPE, 0o755
                image.addfile(place)
        done = podman("import", str(archive), IMAGE)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def yard(bench: Bench, real_podman: RealPodman, gate_cache: Path) -> Yard:
    return Yard(bench, real_podman, gate_cache)


def test_a_container_has_the_gate_whose_words_it_can_read_and_not_change(yard: Yard) -> None:
    assert yard.start("takes-all") is SliceHold.GATE
    assert eventually(lambda: b"\n" in yard.bench.log("one"))
    assert yard.bench.log("one") == b"got 1024, reads 1, writes 0\n"
    [reading] = yard.bench.engine.slice_readings()
    assert reading.memory_mib == 1536


@pytest.mark.parametrize("required", [True, False])
def test_a_slice_in_an_image_that_cannot_load_the_gate_is_refused_or_starts_without_it(
    required: bool, yard: Yard
) -> None:
    containers = yard.launch.containers
    image = containers.images.find(STATIC_IMAGE)
    assert image is not None
    yard.launch = replace(yard.launch, image=image)
    [answer] = yard.begin("env", rules=SliceRules(required=required))
    if required:
        assert isinstance(answer, Refused)
        assert "nothing would keep it to its slice: its image has no GNU C library" in answer.reason
    else:
        assert isinstance(answer, Confirmed)
        assert answer.confinement.slices is SliceHold.NOTHING
        assert eventually(lambda: b"MILLPOND_JOB_ID" in yard.bench.log("one"))
        assert b"LD_PRELOAD" not in yard.bench.log("one")


def test_a_program_of_a_container_that_does_without_the_gate_is_found_out(yard: Yard) -> None:
    assert yard.start("env", "-u", "LD_PRELOAD", "takes-all") is SliceHold.GATE
    seen = [noted.text for noted in yard.bench.events(2) if isinstance(noted, Noted)]
    assert any("without the gate that its slice stands for" in text for text in seen)
    assert any("and its slice is 1536 MiB" in text for text in seen)
