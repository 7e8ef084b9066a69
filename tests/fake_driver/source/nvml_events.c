// Event sets: XID errors, as a test injects them.
#include <stdlib.h>

#include "nvml.h"

#define XID_CRITICAL_ERROR 8ull
#define NAP_NS 2000000ull

struct event_set { unsigned long long types[FAKE_DEVICES]; int seen[FAKE_DEVICES]; };
struct event_data { nvmlDevice device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };

API nvmlEventSetCreate(struct event_set **set) {
    *set = calloc(1, sizeof **set);
    return *set ? NVML_SUCCESS : NVML_INSUFFICIENT_RESOURCES;
}

API nvmlEventSetFree(struct event_set *set) {
    free(set);
    return NVML_SUCCESS;
}

API nvmlDeviceGetSupportedEventTypes(nvmlDevice handle, unsigned long long *types) {
    ON_DEVICE("nvmlDeviceGetSupportedEventTypes", handle, index);
    *types = XID_CRITICAL_ERROR;
    return NVML_SUCCESS;
}

API nvmlDeviceRegisterEvents(nvmlDevice handle, unsigned long long types, struct event_set *set) {
    ON_DEVICE("nvmlDeviceRegisterEvents", handle, index);
    if (types & ~XID_CRITICAL_ERROR) return NVML_NOT_SUPPORTED;
    set->types[index] |= types;
    set->seen[index] = nvml_at(index)->xid_count;
    return NVML_SUCCESS;
}

static bool next(struct event_set *set, struct event_data *event) {
    for (int index = 0; index < fake->device_count; index++) {
        struct fake_device *device = nvml_at(index);
        if (!(set->types[index] & XID_CRITICAL_ERROR) || set->seen[index] >= device->xid_count) continue;
        event->device = nvml_handle(index);
        event->type = XID_CRITICAL_ERROR;
        event->data = (unsigned long long)device->xids[set->seen[index]++ % FAKE_XIDS];
        event->gpu_instance = event->compute_instance = 0xffffffffu;
        return true;
    }
    return false;
}

API nvmlEventSetWait_v2(struct event_set *set, struct event_data *event, unsigned timeout_ms) {
    int result;
    if (fake_fault("nvmlEventSetWait_v2", 0, -1, &result)) return result;
    for (uint64_t end = fake_now() + timeout_ms * 1000000ull;;) {
        if (next(set, event)) return NVML_SUCCESS;
        if (fake_now() >= end) return NVML_TIMEOUT;
        fake_sleep(NAP_NS);
    }
}
