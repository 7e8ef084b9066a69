"""The vendor's own runtime, of two versions of CUDA, finds the gate wherever it looks for the driver's functions."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from entry_names import HOOKS, meant
from gated import GatedCard

RUNTIMES = {
    "nvidia-cuda-runtime-cu12": "nvidia/cuda_runtime/lib/libcudart.so.12",
    "nvidia-cuda-runtime": "nvidia/cu13/lib/libcudart.so.13",
}
# The runtime asks cuGetProcAddress for cuGetProcAddress and goes on with what it is given.
SPY = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
typedef int look_up(const char *, void **, int, unsigned long long, int *);
static look_up *real;
static int spy(const char *name, void **function, int version, unsigned long long flags, int *status) {
    Dl_info about = {0};
    int result = real(name, function, version, flags, status);
    if (!result && dladdr(*function, &about))
        printf("%s %d %llu %s %s\n", name, version, flags, about.dli_fname, about.dli_sname ? about.dli_sname : "");
    if (!result && !strcmp(name, "cuGetProcAddress") && version >= 12000) *function = (void *)spy;
    return result;
}
void *dlsym(void *handle, const char *name) {
    static void *(*next)(void *, const char *);
    if (!next) next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", VERSION);
    void *found = next(handle, name);
    if (!found || strcmp(name, "cuGetProcAddress_v2")) return found;
    real = (look_up *)found;
    return (void *)spy;
}
"""


@pytest.mark.parametrize("own_addresses", [0, 1])
@pytest.mark.parametrize("wheel", RUNTIMES)
def test_the_runtime_finds_the_gate_wherever_it_looks_for_what_the_gate_holds(
    card: GatedCard, tmp_path: Path, wheel: str, own_addresses: int
) -> None:
    runtime = Path(sysconfig.get_path("platlib")) / RUNTIMES[wheel]
    if not runtime.exists():
        pytest.skip(f"the wheel {wheel} is not installed")
    card.driver.set("own_addresses", own_addresses)
    version = "GLIBC_2.2.5" if platform.machine() == "x86_64" else "GLIBC_2.17"
    spy = [
        "gcc",
        "-x",
        "c",
        "-",
        "-o",
        tmp_path / "spy.so",
        "-shared",
        "-fPIC",
        "-D_GNU_SOURCE",
        f'-DVERSION="{version}"',
    ]
    subprocess.run(spy, input=SPY, text=True, check=True)
    source = f"import ctypes; ctypes.CDLL({str(runtime)!r}).cudaFree(None)"
    env = os.environ | card.slice().env | {"LD_PRELOAD": f"{tmp_path / 'spy.so'}:{card.gate_library}"}
    done = subprocess.run([sys.executable, "-c", source], env=env, capture_output=True, text=True, check=True)
    found = [line.split(" ") for line in done.stdout.splitlines()]
    wanted = [(*each, meant(each[0], int(each[1]), each[2] == "2")) for each in found]
    held = [each for each in wanted if each[5] in HOOKS]
    assert len({each[5] for each in held}) >= 40
    assert [each for each in held if each[3:5] != (str(card.gate_library), each[5])] == []
