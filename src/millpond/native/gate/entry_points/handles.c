// Memory by handle that others refer to as well: other processes, sparse arrays, multicast objects. What is imported is
// the exporter's charge.
#include "hooks.h"
#include "ledger.h"

// Nobody says when the last who was handed it lets go: it stays charged until the process ends.
HOOK CUresult cuMemExportToShareableHandle(void *shared, CUhandle handle, int type, unsigned long long flags) {
    CUresult result = REAL(cuMemExportToShareableHandle)(shared, handle, type, flags);
    if (!result && gate_ready()) ledger_count(handle, 1, 0);
    return result;
}

// What is taken out of an array again the call does not name, so it stays charged as well.
static void count_mapped(const struct array_map *maps, unsigned count) {
    for (unsigned index = 0; index < count; index++)
        if (maps[index].operation == CUDA_OPERATION_MAP) ledger_count(maps[index].handle, 0, 1);
}

#define MAP_ARRAY(name)                                                                     \
    HOOK CUresult name(const struct array_map *maps, unsigned count, CUstream stream) {     \
        CUresult result = REAL(name)(maps, count, stream);                                  \
        if (!result && gate_ready()) count_mapped(maps, count);                             \
        return result;                                                                      \
    }
MAP_ARRAY(cuMemMapArrayAsync)
MAP_ARRAY(cuMemMapArrayAsync_ptsz)

// No handle is odd, and no mapping begins at an odd address.
static uint64_t binding(CUhandle multicast, size_t offset) { return (multicast + offset) | 1; }

static CUresult bound(CUresult result, CUhandle multicast, size_t offset, CUhandle memory) {
    if (result || !gate_ready() || !memory) return result;
    ledger_count(memory, 0, 1);
    ledger_add((struct charge){.key = binding(multicast, offset), .owner = memory});
    return result;
}

static CUhandle mapped_at(CUdeviceptr pointer) {
    struct charge mapping;
    if (!gate_ready() || !ledger_take(pointer, &mapping)) return 0;
    ledger_add(mapping);
    return mapping.owner;
}

HOOK CUresult cuMulticastBindMem(CUhandle multicast, size_t offset, CUhandle memory, size_t from, size_t bytes, unsigned long long flags) {
    return bound(REAL(cuMulticastBindMem)(multicast, offset, memory, from, bytes, flags), multicast, offset, memory);
}

HOOK CUresult cuMulticastBindMem_v2(CUhandle multicast, CUdevice device, size_t offset, CUhandle memory, size_t from, size_t bytes, unsigned long long flags) {
    return bound(REAL(cuMulticastBindMem_v2)(multicast, device, offset, memory, from, bytes, flags), multicast, offset, memory);
}

HOOK CUresult cuMulticastBindAddr(CUhandle multicast, size_t offset, CUdeviceptr pointer, size_t bytes, unsigned long long flags) {
    return bound(REAL(cuMulticastBindAddr)(multicast, offset, pointer, bytes, flags), multicast, offset, mapped_at(pointer));
}

HOOK CUresult cuMulticastBindAddr_v2(CUhandle multicast, CUdevice device, size_t offset, CUdeviceptr pointer, size_t bytes, unsigned long long flags) {
    return bound(REAL(cuMulticastBindAddr_v2)(multicast, device, offset, pointer, bytes, flags), multicast, offset, mapped_at(pointer));
}

HOOK CUresult cuMulticastUnbind(CUhandle multicast, CUdevice device, size_t offset, size_t bytes) {
    struct charge charge;
    CUresult result = REAL(cuMulticastUnbind)(multicast, device, offset, bytes);
    if (!result && gate_ready() && ledger_take(binding(multicast, offset), &charge)) ledger_count(charge.owner, 0, -1);
    return result;
}
