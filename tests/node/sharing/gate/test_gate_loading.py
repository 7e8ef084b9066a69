"""However a program finds the driver's functions, it finds the gate before them; and what it does without one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from gated import GatedCard

from fake_driver.driver import MIB
from fake_driver.program import Program

LINKED = """
#include <stdio.h>
int cuInit(unsigned); int cuDevicePrimaryCtxRetain(void **, int); int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, unsigned long);
int main(void) {
    void *context; unsigned long long pointer;
    cuInit(0); cuDevicePrimaryCtxRetain(&context, 0); cuCtxSetCurrent(context);
    printf("%d %d\\n", cuMemAlloc_v2(&pointer, 11ul << 20), cuMemAlloc_v2(&pointer, 10ul << 20));
    return 0;
}
"""
NEXT = """
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
static int calls;
int getpagesize(void) { calls++; return ((int (*)(void))dlsym(RTLD_NEXT, "getpagesize"))() + 1; }
"""


def compile_c(source: str, target: Path, *flags: str) -> Path:
    subprocess.run(["gcc", "-x", "c", "-", "-o", str(target), *flags], input=source, text=True, check=True)
    return target


def test_a_program_linked_against_the_driver_is_gated(card: GatedCard, tmp_path: Path) -> None:
    libraries = card.driver.libraries
    program = compile_c(LINKED, tmp_path / "linked", f"-L{libraries}", "-lcuda", "-Wl,--allow-shlib-undefined")
    env = os.environ | card.slice(cap_mib=10).env
    assert subprocess.run([program], env=env, capture_output=True, text=True).stdout == "2 0\n"


@pytest.mark.parametrize(
    "load",
    [
        "driver.cuMemAlloc",
        "lambda size: by_address('cuMemAlloc', size)",
        "lambda size: ctypes.CDLL(os.environ['REAL']).cuMemAlloc_v2(ctypes.byref(pointer), size_t(size))",
        "lambda size: ctypes.CDLL('libcuda.so.1').cuMemAllocAsync_ptsz(ctypes.byref(pointer), size_t(size), None)",
    ],
    ids=["cuGetProcAddress by the bindings", "cuGetProcAddress of cuGetProcAddress", "real path", "per-thread stream"],
)
def test_every_way_to_the_driver_leads_through_the_gate(card: GatedCard, load: str) -> None:
    source = f"""
import ctypes, os
from cuda.bindings import driver
pointer, size_t = ctypes.c_uint64(), ctypes.c_size_t
def by_address(name, size):
    library, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    library.cuGetProcAddress_v2(b"cuGetProcAddress", ctypes.byref(found), 12000, ctypes.c_uint64(0), None)
    call, address = ctypes.CFUNCTYPE, ctypes.c_void_p
    ask = call(ctypes.c_int, ctypes.c_char_p, address, ctypes.c_int, ctypes.c_uint64, address)(found.value)
    ask(name.encode(), ctypes.byref(found), 12000, 2, None)
    return call(ctypes.c_int, address, size_t)(found.value)(ctypes.byref(pointer), size)
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
alloc = {load}
answers = [alloc(size << 20) for size in (11, 10)]
print(*(int(each[0] if isinstance(each, tuple) else each) for each in answers))
"""
    real = str((card.driver.libraries / "libcuda.so.1").resolve())
    assert card.python(card.slice(cap_mib=10), source, REAL=real) == "2 0\n"


def test_whoever_asks_for_the_next_library_still_gets_it(card: GatedCard, tmp_path: Path) -> None:
    other = compile_c(NEXT, tmp_path / "libnext.so", "-shared", "-fPIC", "-D_GNU_SOURCE")
    task = card.slice()
    source = "import ctypes, os; print(ctypes.CDLL(None).getpagesize() - os.sysconf('SC_PAGESIZE'))"
    assert card.python(task, source, LD_PRELOAD=f"{card.gate_library}:{other}") == "1\n"


def test_every_hook_stands_before_a_function_of_the_same_name(gate_library: Path) -> None:
    hooks = (Path(str(resources.files("millpond"))) / "native" / "gate" / "hooks.h").read_text()
    names = set(re.findall(r"HOOK\((cu\w+|nvml\w+)\)", hooks))
    listed = subprocess.run(["nm", "-D", "--defined-only", gate_library], capture_output=True, text=True, check=True)
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert exported == names | {"dlsym"}


def test_a_program_without_the_driver_is_left_alone(card: GatedCard) -> None:
    task = card.slice()
    env = {name: value for name, value in task.env.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run([sys.executable, "-c", "print(1)"], env=os.environ | env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_program_whose_gate_is_missing_runs_without_limits_and_says_so(card: GatedCard) -> None:
    task = card.slice(cap_mib=10)
    (task.region.folder / "control").unlink()
    source = """
from cuda.bindings import driver
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
print(int(driver.cuMemAlloc(20 << 20)[0]))
"""
    done = subprocess.run([sys.executable, "-c", source], env=os.environ | task.env, capture_output=True, text=True)
    assert done.stdout == "0\n"
    assert "shares its card without limits" in done.stderr


def test_a_program_whose_gate_is_missing_finds_no_driver_where_it_must_have_one(card: GatedCard) -> None:
    task = card.slice(cap_mib=10)
    (task.region.folder / "control").unlink()
    with Program(task.env | {"MILLPOND_GATE_REQUIRED": "1"}) as program:
        assert program("start") == [802]


@pytest.mark.parametrize("dropped", [("LD_PRELOAD",), ("LD_PRELOAD", "MILLPOND_GATE"), ("MILLPOND_GATE",)])
def test_who_sheds_the_gate_is_seen_on_the_card_and_in_no_slice(card: GatedCard, dropped: tuple[str, ...]) -> None:
    task = card.slice(cap_mib=10)
    env = {name: value for name, value in task.env.items() if name not in dropped}
    with Program(env) as escaped:
        assert escaped("start") == [0]
        assert escaped("alloc", 100 * MIB)[0] == 0
        assert card.driver.bytes_of(escaped.pid, card.driver.cards[0]) == 100 * MIB
        assert task.region.usage().processes == {}
