"""However a program finds the driver's functions, it finds the gate before them; and what it does without one."""

from __future__ import annotations

import itertools
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from entry_names import BASES, HOOKS, meant
from gated import GatedCard

from fake_driver.driver import MIB
from fake_driver.program import Program
from millpond.node.sharing.gate import layout

OLDEST_GLIBC = (2, 17)
"""As `glibc_versions.h` has it."""

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


INTERPOSER = """
#include <dlfcn.h>
typedef int call(unsigned long long *, unsigned long);
int interposed;
int cudaMalloc(unsigned long long *pointer, unsigned long size) {
    interposed++;
    return ((call *)dlsym(RTLD_NEXT, "cudaMalloc"))(pointer, size);
}
int cuMemAlloc_v2(unsigned long long *pointer, unsigned long size) {
    interposed++;
    return ((call *)dlsym(RTLD_NEXT, "cuMemAlloc_v2"))(pointer, size);
}
"""
DLSYM_INTERPOSER = """
#include <dlfcn.h>
int interposed;
void *dlsym(void *handle, const char *name) {
    static void *(*next)(void *, const char *);
    interposed++;
    if (!next) next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", VERSION);
    return next(handle, name);
}
"""
# As the libraries of sanitizers do: before functions of the C library, whose own it looks up when it is made ready.
STANDS_BEFORE_THE_C_LIBRARY = """
#include <dlfcn.h>
#include <stddef.h>
#define BEFORE(result, name, parameters, arguments) \\
    static result (*real_##name) parameters; \\
    result name parameters { return real_##name arguments; }
BEFORE(int, strcmp, (const char *one, const char *other), (one, other))
BEFORE(int, strncmp, (const char *one, const char *other, size_t size), (one, other, size))
BEFORE(char *, strrchr, (const char *text, int letter), (text, letter))
BEFORE(size_t, strlen, (const char *text), (text))
BEFORE(int, dl_iterate_phdr, (int (*each)(void *, size_t, void *), void *given), (each, given))
BEFORE(void *, dlopen, (const char *path, int flags), (path, flags))
__attribute__((constructor)) static void look_up(void) {
    real_strncmp = dlsym(RTLD_NEXT, "strncmp"), real_strrchr = dlvsym(RTLD_NEXT, "strrchr", VERSION);
    real_strlen = dlsym(RTLD_NEXT, "strlen"), real_dl_iterate_phdr = dlsym(RTLD_NEXT, "dl_iterate_phdr");
    real_dlopen = dlsym(RTLD_NEXT, "dlopen"), real_strcmp = dlsym(RTLD_NEXT, "strcmp");
}
"""
RUNTIME = """
int cuInit(unsigned); int cuDevicePrimaryCtxRetain(void **, int); int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, unsigned long);
int cudaMalloc(unsigned long long *pointer, unsigned long size) {
    static void *context;
    if (!context) cuInit(0), cuDevicePrimaryCtxRetain(&context, 0), cuCtxSetCurrent(context);
    return cuMemAlloc_v2(pointer, size);
}
"""
USES_RUNTIME = """
#include <dlfcn.h>
#include <stdio.h>
int cudaMalloc(unsigned long long *, unsigned long);
int main(void) {
    unsigned long long pointer;
    int *interposed = dlsym(RTLD_DEFAULT, "interposed"), refused = cudaMalloc(&pointer, 11ul << 20);
    printf("%d %d ", refused, cudaMalloc(&pointer, 10ul << 20));
    int (*found)(unsigned long long *, unsigned long) = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuMemAlloc_v2");
    printf("%d %d\\n", found(&pointer, 1), *interposed > 0);
    return 0;
}
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


@pytest.mark.long
@pytest.mark.parametrize("order", ["the gate first", "the gate last"])
@pytest.mark.parametrize("source", [INTERPOSER, DLSYM_INTERPOSER], ids=["of calls", "of dlsym"])
def test_another_interposer_works_beside_the_gate_and_neither_calls_the_other_for_ever(
    card: GatedCard, tmp_path: Path, source: str, order: str
) -> None:
    library, driver = ("-shared", "-fPIC", "-D_GNU_SOURCE"), (f"-L{card.driver.libraries}", "-lcuda")
    version = "GLIBC_2.2.5" if platform.machine() == "x86_64" else "GLIBC_2.17"
    other = compile_c(source, tmp_path / "libother.so", *library, f'-DVERSION="{version}"')
    compile_c(RUNTIME, tmp_path / "libruntime.so", *library, *driver)
    found_by = f"-Wl,--allow-shlib-undefined,-rpath,{tmp_path}"
    program = compile_c(USES_RUNTIME, tmp_path / "uses", "-D_GNU_SOURCE", f"-L{tmp_path}", "-lruntime", found_by)
    preloaded = [card.gate_library, other] if order == "the gate first" else [other, card.gate_library]
    env = os.environ | card.slice(cap_mib=10).env | {"LD_PRELOAD": ":".join(map(str, preloaded))}
    done = subprocess.run([program], env=env, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("2 0 2 1\n", 0)


def test_a_library_that_stands_before_the_c_library_may_ask_the_gate_before_any_other_is_ready(
    card: GatedCard, tmp_path: Path
) -> None:
    version = "GLIBC_2.2.5" if platform.machine() == "x86_64" else "GLIBC_2.17"
    flags = ("-shared", "-fPIC", "-fno-builtin", "-D_GNU_SOURCE", f'-DVERSION="{version}"', "-Wl,-z,initfirst")
    other = compile_c(STANDS_BEFORE_THE_C_LIBRARY, tmp_path / "libbefore.so", *flags)
    driver = (f"-L{card.driver.libraries}", "-lcuda", "-Wl,--allow-shlib-undefined")
    program = compile_c(LINKED, tmp_path / "linked", *driver)
    env = os.environ | card.slice(cap_mib=10).env | {"LD_PRELOAD": f"{other}:{card.gate_library}"}
    done = subprocess.run([program], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "2 0\n")


@pytest.mark.parametrize("ask", ["dlsym(RTLD_NEXT, name)", "dlvsym(library, name, VERSION)"])
def test_the_driver_is_found_through_the_gate_by_every_call_of_the_linker(
    card: GatedCard, tmp_path: Path, ask: str
) -> None:
    source = """
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    const char *name = "cuMemAlloc_v2";
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *found = ASK;
    Dl_info about;
    printf("%s", library && found && dladdr(found, &about) ? about.dli_fname : "nothing");
    return 0;
}
"""
    # Versions bind names of libraries that have them; the driver has none, so any will do.
    asked = ["-D_GNU_SOURCE", f"-DASK={ask}", '-DVERSION="any"', "-ldl"]
    program = compile_c(source, tmp_path / "asks", *asked)
    done = subprocess.run([program], env=os.environ | card.slice().env, capture_output=True, text=True)
    assert done.stdout == str(card.gate_library)


ASKS = """
import ctypes, json, sys
class Found(ctypes.Structure):
    _fields_ = [(name, kind) for each in ("file", "symbol") for name, kind in
                ((each, ctypes.c_char_p), (each + "_at", ctypes.c_void_p))]
cuda, libc, answers = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None), []
for name, version, flags in json.loads(sys.stdin.read()):
    at, found = ctypes.c_void_p(), Found()
    cuda.cuGetProcAddress(name.encode(), ctypes.byref(at), version, ctypes.c_uint64(flags))
    libc.dladdr(at, ctypes.byref(found))
    answers.append([found.file.decode(), found.symbol.decode() if found.symbol else ""])
print(json.dumps(answers))
"""


@pytest.mark.parametrize("own_addresses", [0, 1])
def test_callers_of_each_cuda_get_the_hooks_of_the_variants_they_were_built_for(
    card: GatedCard, own_addresses: int
) -> None:
    card.driver.set("own_addresses", own_addresses)
    asked, expected = [], []
    versions = (2000, 7000, 11000, 11030, 11040, 11080, 12000, 12020, 12030, 12050, 12080, 13000, 13010, 13040)
    for base, version, thread in itertools.product(BASES, versions, (False, True)):
        if (symbol := meant(base, version, thread)) in HOOKS:
            asked.append((base, version, 2 if thread else 0))
            expected.append([str(card.gate_library), symbol])
    env = os.environ | card.slice().env
    done = subprocess.run(
        [sys.executable, "-c", ASKS], input=json.dumps(asked), env=env, capture_output=True, text=True, check=True
    )
    answers = zip(asked, json.loads(done.stdout), expected, strict=True)
    assert [each for each in answers if each[1] != each[2]] == []


def test_every_hook_stands_before_a_function_of_the_same_name(gate_library: Path) -> None:
    listed = subprocess.run(["nm", "-D", "--defined-only", gate_library], capture_output=True, text=True, check=True)
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert exported == HOOKS | {"dlsym", "dlvsym"}


WORKS_OR_TAKES_MEMORY = re.compile(
    r"cu(\w*Launch|Memcpy(?!.*(toH|HtoA|HtoD))|MemsetD|GraphInstantiate|GraphUpload"
    r"|Mem(Alloc|Create|PoolCreate)|\w*(Array(3D)?|Ctx)Create|MulticastBind|GraphAdd(MemAlloc)?Node)"
)
NOT_OF_THE_CARD = {"cuLaunchHostFunc", "cuMemAllocHost"}
NOT_COUNTED = {
    *("cuMemcpy3DBatchAsync", "cuMemcpy3DPeer", "cuMemcpy3DPeerAsync", "cuMemcpy3DWithAttributesAsync"),
    *("cuMemcpyAtoA", "cuMemcpyAtoD", "cuMemcpyDtoA"),
}
"""As the limits of `docs/gate.md` have them."""


def test_the_gate_stands_before_all_that_works_on_the_card_or_takes_its_memory_in_the_newest_bindings() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    found = {re.sub(r"_v\d+$", "", name) for name in vars(bindings) if WORKS_OR_TAKES_MEMORY.match(name)}
    held = {re.sub(r"(_v\d+)?(_pts[zd])?$", "", name) for name in HOOKS}
    assert found - held <= NOT_OF_THE_CARD | NOT_COUNTED


def test_the_library_loads_with_old_c_libraries_and_cannot_be_written_over(gate_library: Path) -> None:
    command = ["readelf", "--wide", "--dynamic", "--segments", "--dyn-syms", gate_library]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"@GLIBC_([\d.]+)", said)}
    assert max(versions) <= OLDEST_GLIBC
    assert {"libdl.so.2", "libpthread.so.0"} <= set(re.findall(r"NEEDED.*\[(.*)\]", said))
    assert "GNU_RELRO" in said
    assert re.search(r"FLAGS.*\bBIND_NOW\b", said)
    assert re.search(r"GNU_STACK.* RW ", said)
    assert {"__stack_chk_fail", "__snprintf_chk"} <= set(re.findall(r"(\w+)@GLIBC", said))


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


def test_a_program_for_which_its_slice_has_no_place_is_refused_the_card_until_there_is_one(card: GatedCard) -> None:
    task = card.slice(cap_mib=10)
    source = f"""
import ctypes, os, signal
cuda = ctypes.CDLL("libcuda.so.1")
def child():
    read, write = os.pipe()
    if not (pid := os.fork()):
        os.write(write, bytes([cuda.cuInit(0)]))
        signal.pause()
    return pid, os.read(read, 1)
children = [child() for _ in range({layout.SLOTS})]
assert all(result == bytes(1) for _, result in children)
print(cuda.cuInit(0), cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(20 << 20)))
os.kill(children.pop()[0], signal.SIGKILL)
os.wait()
print(cuda.cuInit(0))
for pid, _ in children:
    os.kill(pid, signal.SIGKILL)
"""
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, env=os.environ | task.env, capture_output=True, text=True, timeout=60)
    assert done.stdout == "802 3\n0\n"
    reason = f"millpond: all places are taken in the slice of {task.region.folder}"
    assert done.stderr == f"{reason}; this program is refused the card\n"


@pytest.mark.parametrize("dropped", [("LD_PRELOAD",), ("LD_PRELOAD", "MILLPOND_GATE"), ("MILLPOND_GATE",)])
def test_who_sheds_the_gate_is_seen_on_the_card_and_in_no_slice(card: GatedCard, dropped: tuple[str, ...]) -> None:
    task = card.slice(cap_mib=10)
    env = {name: value for name, value in task.env.items() if name not in dropped}
    with Program(env) as escaped:
        assert escaped("start") == [0]
        assert escaped("alloc", 100 * MIB)[0] == 0
        assert card.driver.bytes_of(escaped.pid, card.driver.cards[0]) == 100 * MIB
        assert task.region.usage().processes == {}
