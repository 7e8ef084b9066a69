// What a task is told about its card is its slice: a program that sizes itself by free memory fits.
#include <string.h>

#include "hooks.h"
#include "region.h"

static uint64_t least(uint64_t one, uint64_t other) { return one < other ? one : other; }

// Makes total and free the slice's.
static void show_slice(uint64_t *total, uint64_t *available) {
    uint64_t cap = gate.control->cap_bytes, used = gate_charged();
    if (!cap) return;
    *total = least(*total, cap);
    *available = least(*available, *total > used ? *total - used : 0);
}

HOOK CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    CUresult result = REAL(cuMemGetInfo_v2)(available, total);
    if (result || !gate_ready()) return result;
    uint64_t all = *total, free_bytes = *available;
    show_slice(&all, &free_bytes);
    *total = all, *available = free_bytes;
    return result;
}

HOOK CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, device);
    if (!result && gate_ready() && gate.control->cap_bytes) *bytes = least(*bytes, gate.control->cap_bytes);
    return result;
}

// NVML sees all cards of the machine: only the slice's own is shown as a slice.
static bool is_ours(nvmlDevice device) {
    char uuid[96] = "";
    if (!gate.control->uuid[0]) return true;
    int result = REAL_AS(nvmlDeviceGetUUID, int(nvmlDevice, char *, unsigned))(device, uuid, sizeof uuid);
    return !result && !strncmp(uuid, gate.control->uuid, sizeof gate.control->uuid);
}

HOOK int nvmlDeviceGetMemoryInfo(nvmlDevice device, struct nvml_memory *memory) {
    int result = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    if (result || !gate_ready() || !is_ours(device)) return result;
    uint64_t total = memory->total, available = memory->available;
    show_slice(&total, &available);
    *memory = (struct nvml_memory){total, available, total - available};
    return result;
}

HOOK int nvmlDeviceGetMemoryInfo_v2(nvmlDevice device, struct nvml_memory_v2 *memory) {
    int result = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    if (result || !gate_ready() || !is_ours(device)) return result;
    uint64_t total = memory->total, available = memory->available;
    show_slice(&total, &available);
    *memory = (struct nvml_memory_v2){memory->version, total, 0, available, total - available};
    return result;
}
