// What a test does to the cards from outside, through ctypes: make them, set their numbers, plan faults, look at them.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "knobs.h"
#include "state.h"

#define EXPORT __attribute__((visibility("default")))

static const struct { const char *name; int64_t value; } KNOBS[] = {
#define KNOB(name, value) {#name, value},
    FOR_EACH_KNOB(KNOB)
#undef KNOB
};

static int knob(const char *name) {
    for (int index = 0; index < KNOB_COUNT; index++)
        if (!strcasecmp(KNOBS[index].name, name)) return index;
    return -1;
}

static void initialise(struct fake_state *state) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&state->mutex, &kind);
    state->size = sizeof *state;
    state->driver_version = 13000;
    snprintf(state->driver_name, sizeof state->driver_name, "580.95.05");
    state->time_slice_ns = 2000000;
    state->context_bytes = 0;
    state->host_bytes = 1ull << 40;
    state->checkpoint_fixed_ns = 1000000;
    state->bytes_per_second = 1ull << 42;
    state->magic = FAKE_MAGIC;
}

// A fresh state file without any card; 0, or errno.
EXPORT int fake_create(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) return errno;
    if (ftruncate(file, sizeof(struct fake_state)) != 0) return errno;
    struct fake_state *state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (state == MAP_FAILED) return errno;
    initialise(state);
    munmap(state, sizeof *state);
    close(file);
    return fake_attach_file(path) ? 0 : EINVAL;
}

// This library serves one state file at a time: gives it up for the next one.
EXPORT void fake_detach(void) {
    fake_detach_file();
}

EXPORT int fake_add_device(const char *name, const char *uuid, const char *pci, uint64_t memory_bytes) {
    fake_lock();
    int index = fake->device_count < FAKE_DEVICES ? fake->device_count : -1;
    if (index >= 0) {
        struct fake_device *device = &fake->devices[index];
        snprintf(device->name, sizeof device->name, "%s", name);
        snprintf(device->uuid, sizeof device->uuid, "%s", uuid);
        snprintf(device->pci, sizeof device->pci, "%s", pci);
        device->memory_bytes = memory_bytes;
        device->current = device->loaded = -1;
        device->advanced_ns = device->sampled_ns = device->energy_ns = fake_now();
        for (int link = 0; link < FAKE_LINKS; link++) device->link_kind[link] = device->link_peer[link] = -1;
        for (int number = 0; number < KNOB_COUNT; number++) device->knobs[number] = KNOBS[number].value;
        fake->device_count++;
    }
    fake_unlock();
    return index;
}

EXPORT int fake_set_knob(int device, const char *name, int64_t value) {
    int index = knob(name);
    if (index < 0) return -1;
    fake->devices[device].knobs[index] = value;
    return 0;
}

EXPORT int64_t fake_knob(int device, const char *name) { return fake->devices[device].knobs[knob(name)]; }

EXPORT int fake_set(const char *name, uint64_t value) {
    fake_lock();
    int result = 0;
    if (!strcmp(name, "driver_version")) fake->driver_version = (int32_t)value;
    else if (!strcmp(name, "time_slice_ns")) fake->time_slice_ns = value;
    else if (!strcmp(name, "switch_ns")) fake->switch_ns = value;
    else if (!strcmp(name, "launch_ns")) fake->launch_ns = value;
    else if (!strcmp(name, "context_bytes")) fake->context_bytes = value;
    else if (!strcmp(name, "host_bytes")) fake->host_bytes = value;
    else if (!strcmp(name, "checkpoint_fixed_ns")) fake->checkpoint_fixed_ns = value;
    else if (!strcmp(name, "bytes_per_second")) fake->bytes_per_second = value;
    else if (!strcmp(name, "module_bytes")) fake->module_bytes = value;
    else if (!strcmp(name, "copy_bytes_per_ms")) fake->copy_bytes_per_ms = value;
    else if (!strcmp(name, "pool_piece_bytes")) fake->pool_piece_bytes = value;
    else if (!strcmp(name, "own_addresses")) fake->own_addresses = value;
    else if (!strcmp(name, "seed")) fake->seed = value;
    else result = -1;
    fake_unlock();
    return result;
}

static int own_sleeper;

// From now on time passes only by fake_pass_time, for the cards and for all programs that have preloaded.c.
EXPORT void fake_take_time(void) {
    fake->clock.now_ns = fake_now();
    fake->clock.on = true;
    own_sleeper = fake_clock_join();
}

// Returns when all have done what they do at the instant up to which it passed. 0, or -1 where somebody is awake for so many
// seconds of the machine's time that it will hardly pass.
EXPORT int fake_pass_time(uint64_t nanoseconds, int patience_s) {
    return fake_clock_rest(own_sleeper, nanoseconds, NULL, 0, patience_s) && fake_clock_settle(patience_s) ? 0 : -1;
}

EXPORT void fake_drop(int process) { fake_clock_drop(process); }

EXPORT int fake_reads(int process) { return fake_clock_reads(process); }

EXPORT void fake_set_driver_name(const char *name) { snprintf(fake->driver_name, sizeof fake->driver_name, "%s", name); }

EXPORT void fake_link(int device, int link, int kind, int peer) {
    fake->devices[device].link_kind[link] = kind;
    fake->devices[device].link_peer[link] = peer;
}

EXPORT void fake_inject_xid(int device, int xid) {
    fake_lock();
    struct fake_device *at = &fake->devices[device];
    at->xids[at->xid_count++ % FAKE_XIDS] = xid;
    fake_unlock();
}

EXPORT int fake_plan(const char *call, int pid, int device, int action, int result, unsigned skip, unsigned times, unsigned one_in) {
    fake_lock();
    int index = 0;
    while (index < FAKE_FAULTS && fake->faults[index].call[0]) index++;
    if (index < FAKE_FAULTS) {
        fake->faults[index] = (struct fake_fault){.pid = pid, .device = device, .action = action, .result = result,
                                                  .skip = skip, .times = times, .one_in = one_in};
        snprintf(fake->faults[index].call, sizeof fake->faults[index].call, "%s", call);
        fake->fault_count++;
    }
    fake_unlock();
    return index < FAKE_FAULTS ? index : -1;
}

EXPORT void fake_clear_plan(void) {
    fake_lock();
    memset(fake->faults, 0, sizeof fake->faults);
    fake->fault_count = 0;
    fake_unlock();
}

static int looked_up(int pid) {
    fake_refresh_all();
    return fake_process_by_pid(pid);
}

EXPORT int fake_mark(int pid, uint32_t uses) {
    fake_lock();
    int index = looked_up(pid);
    if (index >= 0) fake->processes[index].uses |= uses;
    fake_unlock();
    return index < 0 ? -1 : 0;
}

// One client of MPS did something fatal: all of them fail, and new ones are refused until the last is gone.
EXPORT void fake_break_mps(void) {
    fake_lock();
    for (int index = 0; index < fake->process_top; index++)
        if (fake->processes[index].used && fake->processes[index].uses & FAKE_USES_MPS) fake->processes[index].mps_failed = true;
    fake_unlock();
}

EXPORT int fake_state_of(int pid) {
    fake_lock();
    int index = looked_up(pid), state = index < 0 ? -1 : (int)fake->processes[index].state;
    fake_unlock();
    return state;
}

EXPORT uint64_t fake_used_bytes(int device) {
    fake_lock();
    fake_refresh_all();
    uint64_t bytes = fake_device_used(device);
    fake_unlock();
    return bytes;
}

EXPORT uint64_t fake_used_host_bytes(void) {
    fake_lock();
    fake_refresh_all();
    uint64_t bytes = fake->host_used;
    fake_unlock();
    return bytes;
}

EXPORT uint64_t fake_bytes_of(int pid, int device) {
    fake_lock();
    int index = looked_up(pid);
    uint64_t bytes = index < 0 ? 0 : fake_process_bytes(index, device);
    fake_unlock();
    return bytes;
}

EXPORT uint64_t fake_busy_ns_of(int pid, int device) {
    fake_lock();
    int index = looked_up(pid);
    uint64_t busy = index < 0 ? 0 : fake->processes[index].busy_ns[device];
    fake_unlock();
    return busy;
}

EXPORT uint64_t fake_launches_of(int pid) {
    fake_lock();
    int index = looked_up(pid);
    uint64_t launches = index < 0 ? 0 : fake->processes[index].launches;
    fake_unlock();
    return launches;
}

EXPORT uint64_t fake_pending_ns_of(int pid) {
    fake_lock();
    int index = looked_up(pid);
    uint64_t pending = 0;
    for (int slot = 0; slot < fake->context_top; slot++)
        if (fake->contexts[slot].used && fake->contexts[slot].process == index) pending += fake->contexts[slot].pending_ns;
    fake_unlock();
    return pending;
}
