"""What a process was charged for, entry by entry: the ledger agrees with a plain dictionary and does not grow old."""

from __future__ import annotations

import ctypes
import subprocess
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_driver.building import what_is_missing

HARNESS = r"""
#include <sys/mman.h>
static int maps;
static void *counted(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    maps++;
    return mmap(at, size, protection, flags, file, offset);
}
#define mmap counted
#include "ledger.c"
struct gate gate;
static uint64_t refunded;
void quota_refund(uint64_t bytes) { refunded += bytes; }
#define EXPORT __attribute__((visibility("default")))
EXPORT uint64_t refunds(void) { return refunded; }
EXPORT int map_count(void) { return maps; }
EXPORT void add(uint64_t key, uint64_t bytes, uint64_t context) {
    ledger_add((struct charge){.key = key, .bytes = bytes, .context = (CUcontext)context});
}
EXPORT int64_t take(uint64_t key) {
    struct charge found;
    return ledger_take(key, &found) ? (int64_t)found.bytes : -1;
}
EXPORT void drop_context(uint64_t context) { ledger_drop_context((CUcontext)context); }
EXPORT void forget_all(void) { ledger_reset(); refunded = 0; maps = 0; }
EXPORT uint64_t farthest(void) {
    uint64_t most = 0;
    for (size_t at = 0; at < capacity; at++) {
        uint64_t distance = (at - place_of(table[at].key)) & (capacity - 1);
        if (table[at].key && distance > most) most = distance;
    }
    return most;
}
EXPORT int pairs(uint64_t count, uint64_t live) {
    struct charge found;
    for (uint64_t number = 1; number <= count; number++) {
        ledger_add((struct charge){.key = number << 9, .bytes = 512});
        if (number > live && !ledger_take((number - live) << 9, &found)) return 0;
    }
    return 1;
}
"""


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if missing := what_is_missing():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("ledger")
    headers = Path(str(resources.files("millpond"))) / "native" / "gate"
    (folder / "harness.c").write_text(HARNESS)
    flags = ("-shared", "-fPIC", "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-pthread", f"-I{headers}")
    subprocess.run(["gcc", *flags, "-o", folder / "harness.so", folder / "harness.c"], check=True)
    library = ctypes.CDLL(str(folder / "harness.so"))
    library.take.restype = ctypes.c_int64
    library.refunds.restype = library.farthest.restype = ctypes.c_uint64
    for name, parameters in {"add": 3, "take": 1, "drop_context": 1, "pairs": 2}.items():
        getattr(library, name).argtypes = [ctypes.c_uint64] * parameters
    return library


def test_a_million_allocations_freed_again_need_no_more_room_than_are_live_at_once(ledger: ctypes.CDLL) -> None:
    ledger.forget_all()
    assert ledger.pairs(1_000_000, 1000) == 1
    assert ledger.map_count() <= 1


@pytest.mark.parametrize("spread", [1, 256, 512, 4096, 2**21, 2**25])
def test_entries_lie_near_the_places_where_they_are_looked_for(ledger: ctypes.CDLL, spread: int) -> None:
    ledger.forget_all()
    for number in range(1, 20_000):
        ledger.add(0x7F00_0000_0000 + number * spread, 1, 1)
    assert ledger.farthest() < 64


OPERATIONS = st.tuples(st.sampled_from(["add", "take", "drop"]), st.integers(1, 20), st.integers(1, 3))


@given(operations=st.lists(OPERATIONS, min_size=20, max_size=60), spread=st.sampled_from([1, 512, 2**21, 2**31]))
def test_entries_are_found_whatever_was_taken_out_before(
    ledger: ctypes.CDLL, operations: list[tuple[str, int, int]], spread: int
) -> None:
    ledger.forget_all()
    held: dict[int, dict[int, int]] = {}  # of each key the sizes by context, the latest last
    for operation, number, context in operations:
        key, size = number * spread, 100 * number + context
        if operation == "add" and context not in held.get(key, {}):
            held.setdefault(key, {})[context] = size
            ledger.add(key, size, context)
        elif operation == "take":
            assert ledger.take(key) == take_latest(held, key)
        elif operation == "drop":
            before = ledger.refunds()
            ledger.drop_context(context)
            assert ledger.refunds() - before == sum(sizes.pop(context, 0) for sizes in held.values())
    for key in held:
        assert ledger.take(key) == take_latest(held, key)


def take_latest(held: dict[int, dict[int, int]], key: int) -> int:
    sizes = held.get(key)
    return sizes.popitem()[1] if sizes else -1


def test_memory_handed_out_again_before_its_former_context_is_known_to_be_gone_is_found_before_what_was_there(
    ledger: ctypes.CDLL,
) -> None:
    ledger.forget_all()
    gone, other, keys = 1, 2, range(512, 512 * 10_000, 512)
    for key in keys:
        ledger.add(key, 3, gone)
        ledger.add(key, 5, other)
    assert {ledger.take(key) for key in keys} == {5}
    ledger.drop_context(gone)
    assert ledger.refunds() == 3 * len(keys)
