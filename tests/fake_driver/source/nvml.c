// Start, inventory, memory, utilisation, clocks and errors of cards.
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_NS 50000000ull

static bool ready;

struct memory { unsigned long long total, available, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, available, used; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char name[32]; };
struct utilization { unsigned gpu, memory; };
struct temperature { unsigned version, sensor; int celsius; };

nvmlDevice nvml_handle(int device) { return (nvmlDevice)(uintptr_t)(DEVICE_HANDLES + device); }

int nvml_device(nvmlDevice handle) {
    uintptr_t number = (uintptr_t)handle;
    int device = -1;
    if (number >= MIG_HANDLES) device = (int)(number - MIG_HANDLES) / FAKE_INSTANCES;
    else if (number >= INSTANCE_HANDLES) device = (int)(number - INSTANCE_HANDLES) / FAKE_INSTANCES;
    else if (number >= DEVICE_HANDLES) device = (int)(number - DEVICE_HANDLES);
    return device < fake->device_count ? device : -1;
}

int nvml_instance(const void *handle) {
    uintptr_t number = (uintptr_t)handle;
    if (number < INSTANCE_HANDLES) return -1;
    return (int)(number - (number >= MIG_HANDLES ? MIG_HANDLES : INSTANCE_HANDLES)) % FAKE_INSTANCES;
}

struct fake_device *nvml_at(int device) { return &fake->devices[device]; }

nvmlReturn nvml_enter(const char *call, nvmlDevice handle, int *device) {
    int result;
    if (!ready) return NVML_UNINITIALIZED;
    *device = nvml_device(handle);
    if (*device < 0) return NVML_INVALID_ARGUMENT;
    if (nvml_at(*device)->knobs[KNOB_LOST]) return NVML_GPU_IS_LOST;
    return fake_fault(call, 0, *device, &result) ? result : NVML_SUCCESS;
}

void nvml_sample(int index) {
    struct fake_device *device = nvml_at(index);
    fake_lock();
    fake_refresh();
    uint64_t now = device->advanced_ns, span = now - device->sampled_ns;
    if (span >= SAMPLE_NS && !device->knobs[KNOB_STALE_PROCESSES]) {
        device->utilization = (uint32_t)((device->busy_ns - device->sampled_busy_ns) * 100 / span);
        for (int process = 0; process < fake->process_top; process++) {
            struct fake_process *one = &fake->processes[process];
            one->utilization[index] = (uint32_t)((one->busy_ns[index] - one->sampled_busy_ns[index]) * 100 / span);
            one->sampled_busy_ns[index] = one->busy_ns[index];
        }
        device->sampled_ns = now;
        device->sampled_busy_ns = device->busy_ns;
    }
    fake_unlock();
}

API nvmlInitWithFlags(unsigned flags) {
    int result;
    (void)flags;
    if (!fake_attach()) return NVML_DRIVER_NOT_LOADED;
    if (fake_fault("nvmlInit_v2", 0, -1, &result)) return result;
    ready = true;
    return NVML_SUCCESS;
}

API nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

API nvmlShutdown(void) {
    ready = false;
    return NVML_SUCCESS;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn result) {
    switch (result) {
        case NVML_SUCCESS: return "Success";
        case NVML_UNINITIALIZED: return "Uninitialized";
        case NVML_INVALID_ARGUMENT: return "Invalid Argument";
        case NVML_NOT_SUPPORTED: return "Not Supported";
        case NVML_NO_PERMISSION: return "Insufficient Permissions";
        case NVML_NOT_FOUND: return "Not Found";
        case NVML_DRIVER_NOT_LOADED: return "Driver Not Loaded";
        case NVML_GPU_IS_LOST: return "GPU is lost";
        case NVML_TIMEOUT: return "Timeout";
        default: return "Unknown Error";
    }
}

static nvmlReturn say(char *text, unsigned length, const char *value) {
    if (strlen(value) >= length) return NVML_INSUFFICIENT_SIZE;
    strcpy(text, value);
    return NVML_SUCCESS;
}

API nvmlSystemGetDriverVersion(char *text, unsigned length) {
    return ready ? say(text, length, fake->driver_name) : NVML_UNINITIALIZED;
}

API nvmlSystemGetNVMLVersion(char *text, unsigned length) { return say(text, length, "13.580.95.05"); }

API nvmlSystemGetCudaDriverVersion_v2(int *version) {
    if (!ready) return NVML_UNINITIALIZED;
    *version = fake->driver_version;
    return NVML_SUCCESS;
}

API nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

API nvmlDeviceGetCount_v2(unsigned *count) {
    int result;
    if (!ready) return NVML_UNINITIALIZED;
    if (fake_fault("nvmlDeviceGetCount_v2", 0, -1, &result)) return result;
    *count = (unsigned)fake->device_count;
    return NVML_SUCCESS;
}

API nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice *handle) {
    int device;
    nvmlReturn result = nvml_enter("nvmlDeviceGetHandleByIndex_v2", nvml_handle((int)index), &device);
    *handle = nvml_handle((int)index);
    return result;
}

API nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice *handle) {
    if (!ready) return NVML_UNINITIALIZED;
    for (int device = 0; device < fake->device_count; device++)
        if (!strcmp(nvml_at(device)->uuid, uuid)) return nvmlDeviceGetHandleByIndex_v2((unsigned)device, handle);
    return NVML_NOT_FOUND;
}

API nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvmlDevice *handle) {
    if (!ready) return NVML_UNINITIALIZED;
    for (int device = 0; device < fake->device_count; device++)
        if (!strcmp(nvml_at(device)->pci, pci)) return nvmlDeviceGetHandleByIndex_v2((unsigned)device, handle);
    return NVML_NOT_FOUND;
}

API nvmlDeviceGetIndex(nvmlDevice handle, unsigned *number) {
    ON_DEVICE("nvmlDeviceGetIndex", handle, index);
    *number = (unsigned)index;
    return NVML_SUCCESS;
}

API nvmlDeviceGetMinorNumber(nvmlDevice handle, unsigned *number) {
    ON_DEVICE("nvmlDeviceGetMinorNumber", handle, index);
    *number = (unsigned)index;
    return NVML_SUCCESS;
}

API nvmlDeviceGetUUID(nvmlDevice handle, char *text, unsigned length) {
    ON_DEVICE("nvmlDeviceGetUUID", handle, index);
    char uuid[64];
    snprintf(uuid, sizeof uuid, "%s", nvml_at(index)->uuid);
    if ((uintptr_t)handle >= MIG_HANDLES)  // its own, made of the card's and the instance's number
        snprintf(uuid, sizeof uuid, "MIG-%.30s%06d", nvml_at(index)->uuid + 4, nvml_instance(handle));
    return say(text, length, uuid);
}

API nvmlDeviceGetName(nvmlDevice handle, char *text, unsigned length) {
    ON_DEVICE("nvmlDeviceGetName", handle, index);
    char full[160];
    if (nvml_instance(handle) < 0) return say(text, length, nvml_at(index)->name);
    snprintf(full, sizeof full, "%s %s", nvml_at(index)->name, nvml_instance_about(index, nvml_instance(handle)).name);
    return say(text, length, full);
}

static uint64_t total(nvmlDevice handle, int index) {
    if (nvml_instance(handle) < 0) return nvml_at(index)->memory_bytes;
    return nvml_instance_about(index, nvml_instance(handle)).memory_mb << 20;
}

static uint64_t used(int index) {
    fake_lock();
    fake_refresh_all();
    uint64_t bytes = fake_device_used(index);
    fake_unlock();
    return bytes;
}

API nvmlDeviceGetMemoryInfo(nvmlDevice handle, struct memory *memory) {
    ON_DEVICE("nvmlDeviceGetMemoryInfo", handle, index);
    memory->total = total(handle, index);
    memory->used = used(index);
    memory->available = memory->total - memory->used;
    return NVML_SUCCESS;
}

API nvmlDeviceGetMemoryInfo_v2(nvmlDevice handle, struct memory_v2 *memory) {
    ON_DEVICE("nvmlDeviceGetMemoryInfo_v2", handle, index);
    memory->total = total(handle, index);
    memory->reserved = 0;
    memory->used = used(index);
    memory->available = memory->total - memory->used;
    return NVML_SUCCESS;
}

API nvmlDeviceGetPciInfo_v3(nvmlDevice handle, struct pci *pci) {
    ON_DEVICE("nvmlDeviceGetPciInfo_v3", handle, index);
    memset(pci, 0, sizeof *pci);
    snprintf(pci->name, sizeof pci->name, "%s", nvml_at(index)->pci);
    sscanf(pci->name, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff, pci->device & 0xff);
    return NVML_SUCCESS;
}

API nvmlDeviceGetCudaComputeCapability(nvmlDevice handle, int *major, int *minor) {
    ON_DEVICE("nvmlDeviceGetCudaComputeCapability", handle, index);
    *major = (int)nvml_at(index)->knobs[KNOB_COMPUTE_MAJOR];
    *minor = (int)nvml_at(index)->knobs[KNOB_COMPUTE_MINOR];
    return NVML_SUCCESS;
}

API nvmlDeviceGetUtilizationRates(nvmlDevice handle, struct utilization *rates) {
    ON_DEVICE("nvmlDeviceGetUtilizationRates", handle, index);
    nvml_sample(index);
    int64_t said = nvml_at(index)->knobs[KNOB_UTILIZATION_PERCENT];
    rates->gpu = said >= 0 ? (unsigned)said : nvml_at(index)->utilization;
    rates->memory = (unsigned)nvml_at(index)->knobs[KNOB_MEMORY_UTILIZATION_PERCENT];
    return NVML_SUCCESS;
}

// Calls that tell one number of the card.
#define TELLS(call, type, knob)                       \
    API call(nvmlDevice handle, type *value) {        \
        ON_DEVICE(#call, handle, index);              \
        *value = (type)nvml_at(index)->knobs[knob];   \
        return NVML_SUCCESS;                          \
    }

TELLS(nvmlDeviceGetPersistenceMode, unsigned, KNOB_PERSISTENCE)
TELLS(nvmlDeviceGetComputeMode, unsigned, KNOB_COMPUTE_MODE)
TELLS(nvmlDeviceGetNumaNodeId, unsigned, KNOB_NUMA)
TELLS(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, KNOB_CLOCK_REASONS)
TELLS(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, KNOB_CLOCK_REASONS)

API nvmlDeviceGetTemperature(nvmlDevice handle, unsigned sensor, unsigned *celsius) {
    ON_DEVICE("nvmlDeviceGetTemperature", handle, index);
    if (sensor) return NVML_INVALID_ARGUMENT;
    *celsius = (unsigned)nvml_at(index)->knobs[KNOB_TEMPERATURE_C];
    return NVML_SUCCESS;
}

// The newer way to ask; pynvml prefers it.
API nvmlDeviceGetTemperatureV(nvmlDevice handle, struct temperature *about) {
    ON_DEVICE("nvmlDeviceGetTemperatureV", handle, index);
    about->celsius = (int)nvml_at(index)->knobs[KNOB_TEMPERATURE_C];
    return NVML_SUCCESS;
}

API nvmlDeviceGetPcieThroughput(nvmlDevice handle, unsigned counter, unsigned *kilobytes) {
    ON_DEVICE("nvmlDeviceGetPcieThroughput", handle, index);
    (void)counter;
    *kilobytes = (unsigned)nvml_at(index)->knobs[KNOB_PCIE_KBS];
    return NVML_SUCCESS;
}

API nvmlDeviceGetEccMode(nvmlDevice handle, unsigned *current, unsigned *pending) {
    ON_DEVICE("nvmlDeviceGetEccMode", handle, index);
    *current = *pending = 1;
    return NVML_SUCCESS;
}

API nvmlDeviceGetTotalEccErrors(nvmlDevice handle, unsigned type, unsigned counter, unsigned long long *count) {
    ON_DEVICE("nvmlDeviceGetTotalEccErrors", handle, index);
    (void)counter;
    *count = (unsigned long long)nvml_at(index)->knobs[type ? KNOB_ECC_UNCORRECTED : KNOB_ECC_CORRECTED];
    return NVML_SUCCESS;
}

API nvmlDeviceGetMemoryErrorCounter(nvmlDevice handle, unsigned type, unsigned counter, unsigned location, unsigned long long *count) {
    (void)location;
    return nvmlDeviceGetTotalEccErrors(handle, type, counter, count);
}

API nvmlDeviceGetRemappedRows(nvmlDevice handle, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed) {
    ON_DEVICE("nvmlDeviceGetRemappedRows", handle, index);
    int64_t *knobs = nvml_at(index)->knobs;
    *correctable = (unsigned)knobs[KNOB_REMAPPED_CORRECTABLE];
    *uncorrectable = (unsigned)knobs[KNOB_REMAPPED_UNCORRECTABLE];
    *pending = (unsigned)knobs[KNOB_REMAPPING_PENDING];
    *failed = (unsigned)knobs[KNOB_REMAPPING_FAILED];
    return NVML_SUCCESS;
}
