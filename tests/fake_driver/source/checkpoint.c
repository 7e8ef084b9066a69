// cuCheckpointProcess*: states and errors as the driver documents them (section 6.37 of its API), and as driver 580 was
// seen to answer on an H200 (benchmarks/gpu/results). Where neither says anything the choice is marked "assumed".
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "driver_api.h"

struct lock_arguments { unsigned timeout_ms, reserved; uint64_t more[7]; };
struct gpu_pair { CUuuid from, to; };
struct restore_arguments {
    struct gpu_pair *pairs;
    unsigned count;
    char reserved[52 - sizeof(struct gpu_pair *)];
    uint64_t more;
};

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);

#define NAP_NS 300000ull

// Whose number it is; a process without a context has nothing that could be checkpointed. Of another user's the driver
// says nothing unless root asks (assumed code).
static CUresult find(int pid, int *process) {
    if (pid <= 0) return INVALID_VALUE;
    if (kill(pid, 0) != 0 && errno == EPERM) return NOT_PERMITTED;
    *process = fake_process_by_pid(pid);
    if (*process < 0) return kill(pid, 0) == 0 ? NOT_INITIALIZED : OPERATING_SYSTEM;
    if (fake->processes[*process].uses & FAKE_USES_GRAPHICS) return NOT_INITIALIZED;
    return SUCCESS;
}

static bool is_stopped(int pid) {
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    size_t got = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[got] = '\0';
    char *state = strrchr(line, ')');
    return state && state[1] && state[2] == 'T';
}

static uint64_t pending(int process) {
    uint64_t most = 0;
    for (int slot = 0; slot < fake->context_top; slot++) {
        struct fake_context *context = &fake->contexts[slot];
        if (context->used && context->process == process && context->submitted != context->completed)
            most += context->pending_ns + 1;
    }
    return most;
}

static uint64_t device_bytes(int process) {
    uint64_t sum = 0;
    for (int slot = 0; slot < fake->context_top; slot++) {
        struct fake_context *context = &fake->contexts[slot];
        if (context->used && context->process == process) sum += context->overhead_bytes + context->bytes;
    }
    return sum;
}

// Sleeps until the test in the middle holds, with the shared lock taken around it; leaves with the lock held.
#define WAIT_UNTIL(condition, gone)          \
    for (;;) {                               \
        fake_lock();                         \
        fake_refresh();                      \
        if ((condition) || (gone)) break;    \
        fake_unlock();                       \
        fake_sleep(NAP_NS);                  \
    }

// A thread of the driver within a process answers for it: of one that is stopped nothing is heard until it goes on, whatever
// time the caller gave. Leaves with the lock held.
static CUresult await_answer(int pid, int *index) {
    int result;
    WAIT_UNTIL((result = find(pid, index)) || !is_stopped(pid), false);
    return result;
}

API cuCheckpointProcessGetState(int pid, int *state) {
    int result, process;
    if (!process_ready()) return NOT_INITIALIZED;
    if (fake_fault("cuCheckpointProcessGetState", pid, -1, &result)) return result;
    if ((result = process_await_unlocked())) return result;
    result = await_answer(pid, &process);
    if (!result) *state = fake->processes[process].state;
    fake_unlock();
    return result;
}

API cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) {
    ENTER("cuCheckpointProcessGetRestoreThreadId");
    int process;
    fake_lock();
    CUresult result = find(pid, &process);
    fake_unlock();
    *thread = pid;
    return result;
}

API cuCheckpointProcessLock(int pid, struct lock_arguments *arguments) {
    int result, index = -1;
    if (!process_ready()) return NOT_INITIALIZED;
    if (fake_fault("cuCheckpointProcessLock", pid, -1, &result)) return result;
    result = await_answer(pid, &index);
    if (!result && fake->processes[index].state != FAKE_RUNNING) result = ILLEGAL_STATE;
    if (!result && (fake->processes[index].uses & FAKE_USES_MPS)) result = NOT_SUPPORTED;
    if (!result) fake->processes[index].state = FAKE_LOCKED;  // no call gets in from here on
    fake_unlock();
    if (result) return result;
    uint64_t end = arguments && arguments->timeout_ms ? fake_now() + arguments->timeout_ms * 1000000ull : UINT64_MAX;
    struct fake_process *process = &fake->processes[index];
    WAIT_UNTIL(!is_stopped(pid) && (!pending(index) || fake_now() >= end), !process->used);
    if (!process->used) result = OPERATING_SYSTEM;  // it ended meanwhile
    else if (pending(index)) result = NOT_READY;
    if (result == NOT_READY) process->state = FAKE_RUNNING;
    fake_unlock();
    return result;
}

// Sets a transition going and waits for its end. A caller that dies meanwhile does not keep it from ending: a thread
// inside the target does the work.
static CUresult travel(int index, int pid, enum fake_process_state through, enum fake_process_state to, uint64_t bytes) {
    struct fake_process *process = &fake->processes[index];
    uint64_t rate = fake->bytes_per_second ? fake->bytes_per_second : 1;
    process->state = through;
    process->next_state = to;
    process->transition_ns = fake_now() + fake->checkpoint_fixed_ns + (uint64_t)((double)bytes * 1e9 / (double)rate);
    fake_unlock();
    int result = SUCCESS;
    const char *middle = through == FAKE_CHECKPOINTING ? "during checkpoint" : "during restore";
    bool struck = fake_fault(middle, pid, -1, &result);
    WAIT_UNTIL(!process->transition_ns, !process->used || process->state == FAKE_FAILED);
    if (!process->used) result = OPERATING_SYSTEM;
    else if (process->state == FAKE_FAILED) process->transition_ns = 0, result = struck ? result : DEINITIALIZED;
    fake_unlock();
    return result;
}

API cuCheckpointProcessCheckpoint(int pid, void *arguments) {
    int result, index = -1;
    (void)arguments;
    if (!process_ready()) return NOT_INITIALIZED;
    if (fake_fault("cuCheckpointProcessCheckpoint", pid, -1, &result)) return result;
    result = await_answer(pid, &index);
    struct fake_process *process = result ? NULL : &fake->processes[index];
    uint64_t bytes = result ? 0 : device_bytes(index);
    if (!result && process->state != FAKE_LOCKED) result = ILLEGAL_STATE;
    if (!result && process->uses & FAKE_USES_MIG) result = OUT_OF_MEMORY;  // as reported of driver 575
    if (!result && process->uses & (FAKE_USES_MANAGED | FAKE_USES_IPC)) result = NOT_SUPPORTED;  // of IPC assumed
    if (!result && fake->host_used + bytes > fake->host_bytes) result = OUT_OF_MEMORY;
    if (result) {
        fake_unlock();
        return result;
    }
    process->host_bytes = bytes;
    fake->host_used += bytes;
    return travel(index, pid, FAKE_CHECKPOINTING, FAKE_CHECKPOINTED, bytes);
}

static int device_by_uuid(const CUuuid *uuid) {
    for (CUdevice ordinal = 0; ordinal < visible_count(); ordinal++) {
        CUuuid candidate;
        cuDeviceGetUuid_v2(&candidate, ordinal);
        if (!memcmp(&candidate, uuid, sizeof candidate)) return visible_device(ordinal);
    }
    return -1;
}

// A map has to name every card that the driver sees, once on each side, and to lead to cards of the same kind.
static CUresult read_map(const struct restore_arguments *arguments, int map[FAKE_DEVICES]) {
    bool taken[FAKE_DEVICES] = {false};
    for (int device = 0; device < FAKE_DEVICES; device++) map[device] = device;
    if (!arguments || !arguments->count) return SUCCESS;
    if ((int)arguments->count != fake->device_count) return INVALID_VALUE;
    for (int device = 0; device < FAKE_DEVICES; device++) map[device] = -1;
    for (unsigned pair = 0; pair < arguments->count; pair++) {
        int from = device_by_uuid(&arguments->pairs[pair].from), to = device_by_uuid(&arguments->pairs[pair].to);
        if (from < 0 || to < 0 || map[from] >= 0 || taken[to]) return INVALID_VALUE;
        if (strcmp(fake->devices[from].name, fake->devices[to].name) != 0) return INVALID_VALUE;
        map[from] = to;
        taken[to] = true;
    }
    return SUCCESS;
}

static bool fits(int index, const int map[FAKE_DEVICES]) {
    uint64_t wanted[FAKE_DEVICES] = {0};
    for (int slot = 0; slot < fake->context_top; slot++) {
        struct fake_context *context = &fake->contexts[slot];
        if (context->used && context->process == index) wanted[map[context->device]] += context->overhead_bytes + context->bytes;
    }
    for (int device = 0; device < fake->device_count; device++)
        if (wanted[device] && fake_device_used(device) + wanted[device] > fake->devices[device].memory_bytes) return false;
    return true;
}

API cuCheckpointProcessRestore(int pid, struct restore_arguments *arguments) {
    int result, index = -1, map[FAKE_DEVICES];
    if (!process_ready()) return NOT_INITIALIZED;
    if (fake_fault("cuCheckpointProcessRestore", pid, -1, &result)) return result;
    if (arguments && arguments->count && fake_fault("device map", pid, -1, &result)) return result;
    if ((result = read_map(arguments, map))) return result;
    result = await_answer(pid, &index);
    fake_refresh_all();
    if (!result && fake->processes[index].state != FAKE_CHECKPOINTED) result = ILLEGAL_STATE;
    if (!result && !fits(index, map)) result = OUT_OF_MEMORY;
    if (result) {
        fake_unlock();
        return result;
    }
    for (int slot = 0; slot < fake->context_top; slot++) {
        struct fake_context *context = &fake->contexts[slot];
        if (context->used && context->process == index) context->device = map[context->device];
    }
    return travel(index, pid, FAKE_RESTORING, FAKE_LOCKED, fake->processes[index].host_bytes);
}

API cuCheckpointProcessUnlock(int pid, void *arguments) {
    int result, index = -1;
    (void)arguments;
    if (!process_ready()) return NOT_INITIALIZED;
    if (fake_fault("cuCheckpointProcessUnlock", pid, -1, &result)) return result;
    result = await_answer(pid, &index);
    if (!result && fake->processes[index].state != FAKE_LOCKED) result = ILLEGAL_STATE;
    if (!result) fake->processes[index].state = FAKE_RUNNING;
    fake_unlock();
    return result;
}
