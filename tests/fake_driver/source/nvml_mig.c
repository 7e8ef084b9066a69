// Partitions of a card: the profiles and placements of an H200, memory in eighths of the card.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nvml.h"

struct placement { unsigned start, size; };
struct profile_info {
    unsigned id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
    unsigned long long memory_mb;
};
struct profile_info_v2 {
    unsigned version, id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
    unsigned long long memory_mb;
    char name[96];
};
struct instance_info { nvmlDevice device; unsigned id, profile; struct placement placement; };
struct compute_info { nvmlDevice device; void *instance; unsigned id, profile; struct placement placement; };
struct compute_profile_info {
    unsigned version, id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
    char name[96];
};
struct attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    unsigned long long memory_mb;
};

// Which number of NVML's list of profiles it is, its id on the card, and where it may lie.
static const struct profile { unsigned number, id, slices, size, count; unsigned starts[7]; } PROFILES[] = {
    {0, 19, 1, 1, 7, {0, 1, 2, 3, 4, 5, 6}},
    {9, 15, 1, 2, 4, {0, 2, 4, 6}},
    {1, 14, 2, 2, 3, {0, 2, 4}},
    {2, 9, 3, 4, 2, {0, 4}},
    {3, 5, 4, 4, 1, {0}},
    {4, 0, 7, 8, 1, {0}},
};
#define EIGHTHS 8
#define COUNT (sizeof PROFILES / sizeof *PROFILES)

static const struct profile *by_number(unsigned number) {
    for (size_t index = 0; index < COUNT; index++)
        if (PROFILES[index].number == number) return &PROFILES[index];
    return NULL;
}

static const struct profile *by_id(unsigned id) {
    for (size_t index = 0; index < COUNT; index++)
        if (PROFILES[index].id == id) return &PROFILES[index];
    return NULL;
}

static unsigned long long memory_mb(int device, const struct profile *profile) {
    return (nvml_at(device)->memory_bytes >> 20) * profile->size / EIGHTHS;
}

static void name_of(char *text, size_t size, const struct profile *profile, unsigned long long mb) {
    snprintf(text, size, "MIG %ug.%llugb", profile->slices, (mb + 512) / 1024);
}

struct nvml_instance_about nvml_instance_about(int device, int instance) {
    const struct profile *profile = by_id((unsigned)nvml_at(device)->instances[instance].profile);
    struct nvml_instance_about about = {.memory_mb = memory_mb(device, profile)};
    name_of(about.name, sizeof about.name, profile, about.memory_mb);
    return about;
}

API nvmlDeviceGetMigMode(nvmlDevice handle, unsigned *current, unsigned *pending) {
    ON_DEVICE("nvmlDeviceGetMigMode", handle, index);
    *current = (unsigned)nvml_at(index)->mig_mode;
    *pending = (unsigned)nvml_at(index)->mig_pending;
    return NVML_SUCCESS;
}

static bool in_use(int index) {
    fake_lock();
    fake_refresh_all();
    bool busy = fake_device_used(index) > 0;
    fake_unlock();
    return busy;
}

// From Hopper on the mode changes at once; before, only a reset brings it into force.
API nvmlDeviceSetMigMode(nvmlDevice handle, unsigned mode, nvmlReturn *activation) {
    ON_DEVICE("nvmlDeviceSetMigMode", handle, index);
    struct fake_device *device = nvml_at(index);
    if (geteuid() != 0) return NVML_NO_PERMISSION;
    if (in_use(index)) return NVML_IN_USE;
    device->mig_pending = (int32_t)mode;
    if (!device->knobs[KNOB_NEEDS_RESET_FOR_MIG]) device->mig_mode = (int32_t)mode;
    *activation = NVML_SUCCESS;
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice handle, unsigned number, struct profile_info *info) {
    ON_DEVICE("nvmlDeviceGetGpuInstanceProfileInfo", handle, index);
    const struct profile *profile = by_number(number);
    if (!profile || !nvml_at(index)->mig_mode) return NVML_NOT_SUPPORTED;
    unsigned processors = (unsigned)nvml_at(index)->knobs[KNOB_MULTIPROCESSORS] / EIGHTHS;
    *info = (struct profile_info){.id = profile->id, .slices = profile->slices, .instances = profile->count,
                                  .multiprocessors = processors * profile->slices, .memory_mb = memory_mb(index, profile)};
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice handle, unsigned number, struct profile_info_v2 *info) {
    struct profile_info plain;
    nvmlReturn result = nvmlDeviceGetGpuInstanceProfileInfo(handle, number, &plain);
    if (result) return result;
    unsigned version = info->version;
    *info = (struct profile_info_v2){.version = version, .id = plain.id, .slices = plain.slices, .instances = plain.instances,
                                     .multiprocessors = plain.multiprocessors, .memory_mb = plain.memory_mb};
    name_of(info->name, sizeof info->name, by_number(number), plain.memory_mb);
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice handle, unsigned id, struct placement *placements, unsigned *count) {
    ON_DEVICE("nvmlDeviceGetGpuInstancePossiblePlacements_v2", handle, index);
    const struct profile *profile = by_id(id);
    if (!profile || !nvml_at(index)->mig_mode) return NVML_NOT_SUPPORTED;
    for (unsigned row = 0; placements && row < profile->count; row++)
        placements[row] = (struct placement){profile->starts[row], profile->size};
    *count = profile->count;
    return NVML_SUCCESS;
}

static bool overlaps(const struct fake_device *device, unsigned start, unsigned size) {
    for (int slot = 0; slot < FAKE_INSTANCES; slot++) {
        const struct fake_instance *other = &device->instances[slot];
        if (other->used && start < (unsigned)(other->start + other->size) && (unsigned)other->start < start + size) return true;
    }
    return false;
}

static nvmlReturn create(int index, const struct profile *profile, unsigned start, void **handle) {
    struct fake_device *device = nvml_at(index);
    if (overlaps(device, start, profile->size)) return NVML_INSUFFICIENT_RESOURCES;
    for (int slot = 0; slot < FAKE_INSTANCES; slot++) {
        if (device->instances[slot].used) continue;
        device->instances[slot] = (struct fake_instance){true, slot + 1, (int)profile->id, (int)start, (int)profile->size, false};
        *handle = (void *)(uintptr_t)(INSTANCE_HANDLES + index * FAKE_INSTANCES + slot);
        return NVML_SUCCESS;
    }
    return NVML_INSUFFICIENT_RESOURCES;
}

API nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice handle, unsigned id, const struct placement *placement, void **instance) {
    ON_DEVICE("nvmlDeviceCreateGpuInstanceWithPlacement", handle, index);
    const struct profile *profile = by_id(id);
    if (!nvml_at(index)->mig_mode || !profile) return NVML_NOT_SUPPORTED;
    if (geteuid() != 0) return NVML_NO_PERMISSION;
    for (unsigned row = 0; row < profile->count; row++)
        if (profile->starts[row] == placement->start && profile->size == placement->size)
            return create(index, profile, placement->start, instance);
    return NVML_INVALID_ARGUMENT;
}

API nvmlDeviceCreateGpuInstance(nvmlDevice handle, unsigned id, void **instance) {
    const struct profile *profile = by_id(id);
    nvmlReturn result = NVML_NOT_SUPPORTED;
    for (unsigned row = 0; profile && row < profile->count; row++) {
        struct placement placement = {profile->starts[row], profile->size};
        result = nvmlDeviceCreateGpuInstanceWithPlacement(handle, id, &placement, instance);
        if (result != NVML_INSUFFICIENT_RESOURCES) break;
    }
    return result;
}

static struct fake_instance *instance_at(void *handle) {
    if (nvml_device(handle) < 0 || nvml_instance(handle) < 0) return NULL;
    struct fake_instance *instance = &nvml_at(nvml_device(handle))->instances[nvml_instance(handle)];
    return instance->used ? instance : NULL;
}

API nvmlGpuInstanceDestroy(void *handle) {
    struct fake_instance *instance = instance_at(handle);
    if (!instance) return NVML_INVALID_ARGUMENT;
    if (geteuid() != 0) return NVML_NO_PERMISSION;
    if (instance->has_compute || in_use(nvml_device(handle))) return NVML_IN_USE;
    instance->used = false;
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuInstances(nvmlDevice handle, unsigned id, void **found, unsigned *count) {
    ON_DEVICE("nvmlDeviceGetGpuInstances", handle, index);
    *count = 0;
    for (int slot = 0; slot < FAKE_INSTANCES; slot++) {
        const struct fake_instance *instance = &nvml_at(index)->instances[slot];
        if (instance->used && instance->profile == (int)id)
            found[(*count)++] = (void *)(uintptr_t)(INSTANCE_HANDLES + index * FAKE_INSTANCES + slot);
    }
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuInstanceById(nvmlDevice handle, unsigned id, void **found) {
    ON_DEVICE("nvmlDeviceGetGpuInstanceById", handle, index);
    *found = (void *)(uintptr_t)(INSTANCE_HANDLES + index * FAKE_INSTANCES + (int)id - 1);
    return id && id <= FAKE_INSTANCES && instance_at(*found) ? NVML_SUCCESS : NVML_NOT_FOUND;
}

API nvmlGpuInstanceGetInfo(void *handle, struct instance_info *info) {
    const struct fake_instance *instance = instance_at(handle);
    if (!instance) return NVML_INVALID_ARGUMENT;
    *info = (struct instance_info){nvml_handle(nvml_device(handle)), (unsigned)instance->id, (unsigned)instance->profile,
                                   {(unsigned)instance->start, (unsigned)instance->size}};
    return NVML_SUCCESS;
}

// The number, and the id, of the compute profile that takes all of a GPU instance. As on a real card that is another one
// than that of one slice where a slice has the memory of two.
static unsigned whole_of(const struct profile *profile) {
    return profile->slices == 7 ? 4 : profile->slices == 1 && profile->size == 2 ? 7 : profile->slices - 1;
}

API nvmlGpuInstanceGetComputeInstanceProfileInfoV(void *handle, unsigned number, unsigned engine,
                                                  struct compute_profile_info *info) {
    const struct fake_instance *instance = instance_at(handle);
    if (!instance) return NVML_INVALID_ARGUMENT;
    const struct profile *profile = by_id((unsigned)instance->profile);
    bool whole = number == whole_of(profile);
    if (engine || (!whole && number)) return NVML_NOT_SUPPORTED;
    unsigned processors = (unsigned)nvml_at(nvml_device(handle))->knobs[KNOB_MULTIPROCESSORS] / EIGHTHS;
    *info = (struct compute_profile_info){.version = info->version, .id = number, .slices = whole ? profile->slices : 1,
                                          .multiprocessors = processors * (whole ? profile->size : 1)};
    return NVML_SUCCESS;
}

// One compute instance, as large as its GPU instance, is all that is pretended.
API nvmlGpuInstanceCreateComputeInstance(void *handle, unsigned profile, void **compute) {
    struct fake_instance *instance = instance_at(handle);
    if (!instance) return NVML_INVALID_ARGUMENT;
    if (profile != whole_of(by_id((unsigned)instance->profile))) return NVML_NOT_SUPPORTED;
    if (geteuid() != 0) return NVML_NO_PERMISSION;
    if (instance->has_compute) return NVML_INSUFFICIENT_RESOURCES;
    instance->has_compute = true;
    *compute = handle;
    return NVML_SUCCESS;
}

API nvmlComputeInstanceDestroy(void *compute) {
    struct fake_instance *instance = instance_at(compute);
    if (!instance) return NVML_INVALID_ARGUMENT;
    if (in_use(nvml_device(compute))) return NVML_IN_USE;
    instance->has_compute = false;
    return NVML_SUCCESS;
}

API nvmlGpuInstanceGetComputeInstances(void *handle, unsigned profile, void **found, unsigned *count) {
    const struct fake_instance *instance = instance_at(handle);
    (void)profile;
    if (!instance) return NVML_INVALID_ARGUMENT;
    *count = instance->has_compute;
    if (*count) found[0] = handle;
    return NVML_SUCCESS;
}

API nvmlGpuInstanceGetComputeInstanceById(void *handle, unsigned id, void **compute) {
    const struct fake_instance *instance = instance_at(handle);
    if (!instance) return NVML_INVALID_ARGUMENT;
    if (!instance->has_compute || id) return NVML_NOT_FOUND;
    *compute = handle;
    return NVML_SUCCESS;
}

API nvmlComputeInstanceGetInfo_v2(void *compute, struct compute_info *info) {
    const struct fake_instance *instance = instance_at(compute);
    if (!instance) return NVML_INVALID_ARGUMENT;
    *info = (struct compute_info){nvml_handle(nvml_device(compute)), compute, 0, 0, {0, (unsigned)instance->size}};
    return NVML_SUCCESS;
}

API nvmlDeviceGetMaxMigDeviceCount(nvmlDevice handle, unsigned *count) {
    ON_DEVICE("nvmlDeviceGetMaxMigDeviceCount", handle, index);
    *count = nvml_at(index)->mig_mode ? FAKE_INSTANCES : 0;
    return NVML_SUCCESS;
}

API nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice handle, unsigned number, nvmlDevice *found) {
    ON_DEVICE("nvmlDeviceGetMigDeviceHandleByIndex", handle, index);
    if (number >= FAKE_INSTANCES || !nvml_at(index)->instances[number].has_compute) return NVML_NOT_FOUND;
    *found = (nvmlDevice)(uintptr_t)(MIG_HANDLES + index * FAKE_INSTANCES + (int)number);
    return NVML_SUCCESS;
}

API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice handle, nvmlDevice *found) {
    ON_DEVICE("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle, index);
    *found = nvml_handle(index);
    return NVML_SUCCESS;
}

API nvmlDeviceIsMigDeviceHandle(nvmlDevice handle, unsigned *is) {
    *is = (uintptr_t)handle >= MIG_HANDLES;
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuInstanceId(nvmlDevice handle, unsigned *id) {
    ON_DEVICE("nvmlDeviceGetGpuInstanceId", handle, index);
    if (nvml_instance(handle) < 0) return NVML_NOT_SUPPORTED;
    *id = (unsigned)nvml_at(index)->instances[nvml_instance(handle)].id;
    return NVML_SUCCESS;
}

API nvmlDeviceGetComputeInstanceId(nvmlDevice handle, unsigned *id) {
    ON_DEVICE("nvmlDeviceGetComputeInstanceId", handle, index);
    if (nvml_instance(handle) < 0) return NVML_NOT_SUPPORTED;
    *id = 0;
    return NVML_SUCCESS;
}

API nvmlDeviceGetAttributes_v2(nvmlDevice handle, struct attributes *about) {
    ON_DEVICE("nvmlDeviceGetAttributes_v2", handle, index);
    if (nvml_instance(handle) < 0) return NVML_NOT_SUPPORTED;
    const struct profile *profile = by_id((unsigned)nvml_at(index)->instances[nvml_instance(handle)].profile);
    *about = (struct attributes){.gpu_slices = profile->slices, .compute_slices = profile->slices, .memory_mb = memory_mb(index, profile)};
    return NVML_SUCCESS;
}
