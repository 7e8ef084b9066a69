// What the parts of the pretended management library share.
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include "knobs.h"
#include "state.h"

typedef int nvmlReturn;
typedef void *nvmlDevice;

enum {
    NVML_SUCCESS = 0, NVML_UNINITIALIZED = 1, NVML_INVALID_ARGUMENT = 2, NVML_NOT_SUPPORTED = 3, NVML_NO_PERMISSION = 4,
    NVML_NOT_FOUND = 6, NVML_INSUFFICIENT_SIZE = 7, NVML_DRIVER_NOT_LOADED = 9, NVML_TIMEOUT = 10, NVML_GPU_IS_LOST = 15,
    NVML_IN_USE = 19, NVML_INSUFFICIENT_RESOURCES = 23,
};

#define API __attribute__((visibility("default"))) nvmlReturn

// Handles are small numbers: a card, a GPU instance, or the MIG device in it.
#define DEVICE_HANDLES 0x1000
#define INSTANCE_HANDLES 0x2000
#define MIG_HANDLES 0x3000

nvmlDevice nvml_handle(int device);
// The card behind a handle, of a MIG device its parent; -1 for none.
int nvml_device(nvmlDevice handle);
// The number of the instance behind a MIG device's or an instance's handle; -1 for a whole card.
int nvml_instance(const void *handle);
struct nvml_instance_about { char name[32]; unsigned long long memory_mb; };
struct nvml_instance_about nvml_instance_about(int device, int instance);

// At the head of each call about a card: finds it, strikes as the fault plan says, and refuses for one that is lost.
#define ON_DEVICE(call, handle, index)                                          \
    int index, result_;                                                         \
    if ((result_ = nvml_enter(call, handle, &index))) return result_
nvmlReturn nvml_enter(const char *call, nvmlDevice handle, int *device);

struct fake_device *nvml_at(int device);
// Takes a new sample of how busy a card and its processes are, if the last is old enough.
void nvml_sample(int device);

#endif
