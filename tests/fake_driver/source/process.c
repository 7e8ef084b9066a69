// The library's start, devices and contexts.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "driver_api.h"
#include "knobs.h"

#define STACK 32
#define THREADS_OF_A_MULTIPROCESSOR 2048
#define TEAR_DOWN_NS 2000000

static pid_t ready_in;
static int visible[FAKE_DEVICES], visible_number;
static uint64_t mps_limit;
static bool faulted, torn_down;
static int primary[FAKE_DEVICES], primary_uses[FAKE_DEVICES];
static __thread int stack[STACK], depth;

// A thread that is still in the driver as it is torn down finds its memory gone, as in the real one. The one that ends the
// process is answered. That takes a while, of the machine's own time, so that such a thread is met.
static void tear_down(void) {
    struct timespec span = {0, TEAR_DOWN_NS};
    torn_down = true;
    syscall(SYS_nanosleep, &span, NULL);
}

bool process_ready(void) {
    if (torn_down && gettid() != getpid()) __builtin_trap();
    return ready_in && ready_in == getpid() && !torn_down;
}

static __thread bool in_host_function;

void process_call_host(void (*function)(void *), void *argument) {
    in_host_function = true;
    function(argument);
    in_host_function = false;
}

int process_await_unlocked(void) {
    struct fake_process *process = fake_self();
    if (in_host_function) return NOT_PERMITTED;
    while (process->state != FAKE_RUNNING) {
        if (process->state == FAKE_FAILED) return DEINITIALIZED;
        fake_sleep(500000);
        fake_lock();
        fake_refresh();
        fake_unlock();
    }
    return faulted ? ILLEGAL_ADDRESS : process->mps_failed ? MPS_CLIENT_TERMINATED : SUCCESS;
}

#define XID_MEMORY_PAGE_FAULT 31

void process_fault(int device) {
    faulted = true;
    fake_lock();
    struct fake_device *at = &fake->devices[device];
    at->xids[at->xid_count++ % FAKE_XIDS] = XID_MEMORY_PAGE_FAULT;
    for (int index = 0; fake_self()->uses & FAKE_USES_MPS && index < fake->process_top; index++)
        if (fake->processes[index].uses & FAKE_USES_MPS) fake->processes[index].mps_failed = true;
    fake_unlock();
}

int visible_count(void) { return visible_number; }
int visible_device(CUdevice ordinal) { return ordinal >= 0 && ordinal < visible_number ? visible[ordinal] : -1; }

CUdevice ordinal_of(int device) {
    for (int ordinal = 0; ordinal < visible_number; ordinal++)
        if (visible[ordinal] == device) return ordinal;
    return -1;
}

static int named_device(const char *name) {
    if (isdigit((unsigned char)*name)) return atoi(name) < fake->device_count ? atoi(name) : -1;
    for (int device = 0; device < fake->device_count; device++)
        if (strlen(name) > 4 && !strncmp(fake->devices[device].uuid, name, strlen(name))) return device;
    return -1;
}

static void read_visible_devices(void) {
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    visible_number = 0;
    if (!wanted) {
        for (int device = 0; device < fake->device_count; device++) visible[visible_number++] = device;
        return;
    }
    char *list = strdup(wanted), *rest = list;
    for (char *name; (name = strsep(&rest, ",")) && visible_number < FAKE_DEVICES;) {
        int device = named_device(name);
        if (device < 0) break;  // the driver ignores whatever follows the first name it does not know
        visible[visible_number++] = device;
    }
    free(list);
}

// Clients of MPS read their limits once, at their start.
static CUresult join_mps(struct fake_process *process) {
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY"), *limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    char path[512];
    if (!pipe || (size_t)snprintf(path, sizeof path, "%s/control", pipe) >= sizeof path || access(path, F_OK) != 0)
        return SUCCESS;
    bool broken = false;
    for (int index = 0; index < fake->process_top; index++) broken |= fake->processes[index].used && fake->processes[index].mps_failed;
    if (broken) return MPS_SERVER_NOT_READY;
    process->uses |= FAKE_USES_MPS;
    const char *value = limit ? strchr(limit, '=') : NULL;
    if (value) {
        char *unit;
        mps_limit = strtoull(value + 1, &unit, 10) << (toupper((unsigned char)*unit) == 'G' ? 30 : 20);
    }
    return SUCCESS;
}

API cuInit(unsigned flags) {
    int result;
    if (flags) return INVALID_VALUE;
    if (!fake_attach()) return NO_DEVICE;
    if (ready_in && ready_in != getpid()) return NOT_INITIALIZED;  // forked after cuInit
    if (fake_fault("cuInit", 0, -1, &result)) return result;
    fake_lock();
    fake_refresh_all();
    struct fake_process *process = fake_self();
    if (process && !ready_in) {
        read_visible_devices();
        for (int device = 0; device < FAKE_DEVICES; device++) primary[device] = -1;
        result = join_mps(process);
        if (!result) ready_in = getpid(), atexit(tear_down);
    } else {
        result = process ? SUCCESS : OUT_OF_MEMORY;
    }
    fake_unlock();
    return result ? result : visible_number ? SUCCESS : NO_DEVICE;
}

API cuDriverGetVersion(int *version) {
    if (!fake_attach()) return NOT_INITIALIZED;
    *version = fake->driver_version;
    return SUCCESS;
}

API cuDeviceGetCount(int *count) {
    ENTER("cuDeviceGetCount");
    *count = visible_number;
    return SUCCESS;
}

API cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER("cuDeviceGet");
    if (visible_device(ordinal) < 0) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

API cuDeviceGetName(char *name, int length, CUdevice device) {
    ENTER("cuDeviceGetName");
    if (visible_device(device) < 0) return INVALID_DEVICE;
    snprintf(name, (size_t)length, "%s", fake->devices[visible_device(device)].name);
    return SUCCESS;
}

API cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    ENTER("cuDeviceGetUuid_v2");
    if (visible_device(device) < 0) return INVALID_DEVICE;
    const char *text = fake->devices[visible_device(device)].uuid + 4;  // behind "GPU-"
    for (int byte = 0; byte < 16; byte++) {
        if (*text == '-') text++;
        char pair[3] = {text[0], text[1], 0};
        uuid->bytes[byte] = (unsigned char)strtoul(pair, NULL, 16);
        text += 2;
    }
    return SUCCESS;
}

API cuDeviceGetUuid(CUuuid *uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

API cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER("cuDeviceTotalMem_v2");
    if (visible_device(device) < 0) return INVALID_DEVICE;
    *bytes = fake->devices[visible_device(device)].memory_bytes;
    return SUCCESS;
}

API cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    ENTER("cuDeviceGetAttribute");
    int index = visible_device(device);
    if (index < 0) return INVALID_DEVICE;
    switch (attribute) {
        case 1: *value = 1024; break;  // threads of a block
        case 10: *value = 32; break;   // warp size
        case 13: *value = 1980000; break;
        case 16: *value = (int)fake->devices[index].knobs[KNOB_MULTIPROCESSORS]; break;
        case 39: *value = THREADS_OF_A_MULTIPROCESSOR; break;
        case 75: *value = (int)fake->devices[index].knobs[KNOB_COMPUTE_MAJOR]; break;
        case 76: *value = (int)fake->devices[index].knobs[KNOB_COMPUTE_MINOR]; break;
        case 41: case 83: case 95: case 102: case 115: *value = 1; break;  // addressing, managed, cooperative, VMM, pools
        default: *value = 0;
    }
    return SUCCESS;
}

API cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    ENTER("cuDeviceGetPCIBusId");
    if (visible_device(device) < 0) return INVALID_DEVICE;
    snprintf(text, (size_t)length, "%s", fake->devices[visible_device(device)].pci);
    return SUCCESS;
}

static int open_context(int device, bool is_primary) {
    fake_lock();
    fake_refresh_all();
    int found = -1;
    for (int slot = 0; slot < FAKE_CONTEXTS && found < 0; slot++)
        if (!fake->contexts[slot].used) found = slot;
    uint64_t bytes = fake->context_bytes;
    if (found < 0 || fake_device_used(device) + bytes > fake->devices[device].memory_bytes) {
        found = -1;
    } else {
        struct fake_context *context = &fake->contexts[found];
        *context = (struct fake_context){.used = true, .primary = is_primary, .device = device, .overhead_bytes = bytes};
        context->process = (int)(fake_self() - fake->processes);
        context->number = ++fake->contexts_made;
        if (found >= fake->context_top) fake->context_top = found + 1;
    }
    fake_unlock();
    return found;
}

static void close_context(int slot) {
    fake_lock();
    fake_refresh();
    fake->contexts[slot].used = false;
    fake_unlock();
}

int current_context(void) { return depth && fake->contexts[stack[depth - 1]].used ? stack[depth - 1] : -1; }

static int slot_of(CUcontext context) {
    long slot = context - fake->contexts;
    return context && slot >= 0 && slot < FAKE_CONTEXTS && context->used ? (int)slot : -1;
}

static pthread_mutex_t primary_mutex = PTHREAD_MUTEX_INITIALIZER;

API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER("cuDevicePrimaryCtxRetain");
    int index = visible_device(device);
    if (index < 0) return INVALID_DEVICE;
    pthread_mutex_lock(&primary_mutex);
    if (primary[index] < 0) primary[index] = open_context(index, true);
    bool open = primary[index] >= 0;
    if (open) primary_uses[index]++, *context = &fake->contexts[primary[index]];
    pthread_mutex_unlock(&primary_mutex);
    return open ? SUCCESS : OUT_OF_MEMORY;
}

// A reset ends the context whoever retains it; it is made anew by the next to retain it.
static CUresult let_go(int index, bool reset) {
    pthread_mutex_lock(&primary_mutex);
    CUresult result = reset || primary_uses[index] ? SUCCESS : INVALID_CONTEXT;
    if (!result && (reset || !--primary_uses[index])) {
        if (primary[index] >= 0) close_context(primary[index]);
        primary[index] = -1;
    }
    pthread_mutex_unlock(&primary_mutex);
    return result;
}

API cuDevicePrimaryCtxReset_v2(CUdevice device) {
    ENTER("cuDevicePrimaryCtxReset_v2");
    int index = visible_device(device);
    return index < 0 ? INVALID_DEVICE : let_go(index, true);
}

API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER("cuDevicePrimaryCtxRelease_v2");
    int index = visible_device(device);
    return index < 0 ? INVALID_CONTEXT : let_go(index, false);
}

API cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }
API cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }

API cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    ENTER("cuDevicePrimaryCtxGetState");
    int index = visible_device(device);
    if (index < 0) return INVALID_DEVICE;
    *flags = 0;
    *active = primary[index] >= 0;
    return SUCCESS;
}

API cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    ENTER("cuCtxCreate_v2");
    (void)flags;
    int index = visible_device(device);
    if (index < 0) return INVALID_DEVICE;
    int slot = open_context(index, false);
    if (slot < 0) return OUT_OF_MEMORY;
    if (depth < STACK) stack[depth++] = slot;
    *context = &fake->contexts[slot];
    return SUCCESS;
}

API cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device) { return cuCtxCreate_v2(context, flags, device); }
API cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) { return cuCtxCreate_v2(context, flags, device); }

API cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice device) {
    (void)parameters;
    return cuCtxCreate_v2(context, flags, device);
}

API cuCtxCreate_v3(CUcontext *context, void *parameters, int count, unsigned flags, CUdevice device) {
    (void)parameters, (void)count;
    return cuCtxCreate_v2(context, flags, device);
}

API cuCtxDestroy_v2(CUcontext context) {
    ENTER("cuCtxDestroy_v2");
    int slot = slot_of(context);
    if (slot < 0 || context->primary) return INVALID_CONTEXT;
    if (depth && stack[depth - 1] == slot) depth--;
    close_context(slot);
    return SUCCESS;
}

API cuCtxAttach(CUcontext *context, unsigned flags) {
    ENTER("cuCtxAttach");
    if (flags || current_context() < 0) return INVALID_VALUE;
    *context = &fake->contexts[current_context()];
    (*context)->attached++;
    return SUCCESS;
}

API cuCtxDetach(CUcontext context) {
    ENTER("cuCtxDetach");
    if (slot_of(context) < 0 || slot_of(context) != current_context() || context->primary) return INVALID_CONTEXT;
    return context->attached-- ? SUCCESS : cuCtxDestroy_v2(context);
}

API cuVDPAUCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device, unsigned there, void *find) {
    (void)there, (void)find;
    return cuCtxCreate_v2(context, flags, device);
}

API cuCtxDestroy(CUcontext context) { return cuCtxDestroy_v2(context); }

// A green context is here the context that is made of it.
API cuGreenCtxCreate(CUcontext *green, void *resources, CUdevice device, unsigned flags) {
    ENTER("cuGreenCtxCreate");
    (void)resources, (void)flags;
    int slot = visible_device(device) < 0 ? -1 : open_context(visible_device(device), false);
    if (slot >= 0) *green = &fake->contexts[slot];
    return slot < 0 ? OUT_OF_MEMORY : SUCCESS;
}

API cuGreenCtxDestroy(CUcontext green) { return cuCtxDestroy_v2(green); }

API cuCtxFromGreenCtx(CUcontext *context, CUcontext green) {
    ENTER("cuCtxFromGreenCtx");
    *context = green;
    return slot_of(green) < 0 ? INVALID_CONTEXT : SUCCESS;
}

enum limit { STACK_OF_A_THREAD, PRINTF_BUFFER, HEAP, LIMITS };
static const uint64_t FIRST_LIMITS[LIMITS] = {1024, 1 << 20, 8 << 20};  // a context's overhead covers these

API cuCtxGetLimit(size_t *value, int limit) {
    ENTER("cuCtxGetLimit");
    if (current_context() < 0) return INVALID_CONTEXT;
    if (limit < 0 || limit >= LIMITS) return INVALID_VALUE;
    uint64_t set = fake->contexts[current_context()].limits[limit];
    *value = set ? set : FIRST_LIMITS[limit];
    return SUCCESS;
}

API cuCtxSetLimit(int limit, size_t value) {
    ENTER("cuCtxSetLimit");
    size_t before;
    CUresult result = cuCtxGetLimit(&before, limit);
    if (result || value < before) return result;  // assumed: what a context has taken it keeps
    struct fake_context *context = &fake->contexts[current_context()];
    int64_t processors = fake->devices[context->device].knobs[KNOB_MULTIPROCESSORS];
    uint64_t threads = limit == STACK_OF_A_THREAD ? (uint64_t)processors * THREADS_OF_A_MULTIPROCESSOR : 1;
    uint64_t more = memory_rounded(value * threads, GRANULE) - memory_rounded(before * threads, GRANULE);
    if (!memory_take(current_context(), more)) return OUT_OF_MEMORY;
    context->limits[limit] = value;
    return SUCCESS;
}

API cuCtxSetCurrent(CUcontext context) {
    ENTER("cuCtxSetCurrent");
    if (!context) {
        depth -= depth > 0;
        return SUCCESS;
    }
    if (slot_of(context) < 0) return INVALID_CONTEXT;
    if (!depth) depth = 1;
    stack[depth - 1] = slot_of(context);
    return SUCCESS;
}

API cuCtxPushCurrent_v2(CUcontext context) {
    ENTER("cuCtxPushCurrent_v2");
    if (slot_of(context) < 0 || depth == STACK) return INVALID_CONTEXT;
    stack[depth++] = slot_of(context);
    return SUCCESS;
}

API cuCtxPopCurrent_v2(CUcontext *context) {
    ENTER("cuCtxPopCurrent_v2");
    if (!depth) return INVALID_CONTEXT;
    depth--;
    if (context) *context = &fake->contexts[stack[depth]];
    return SUCCESS;
}

API cuCtxGetCurrent(CUcontext *context) {
    ENTER("cuCtxGetCurrent");
    int slot = current_context();
    *context = slot < 0 ? NULL : &fake->contexts[slot];
    return SUCCESS;
}

API cuCtxGetDevice(CUdevice *device) {
    ENTER("cuCtxGetDevice");
    int slot = current_context();
    if (slot < 0) return INVALID_CONTEXT;
    *device = ordinal_of(fake->contexts[slot].device);
    return SUCCESS;
}

static const struct { CUresult code; const char *name, *text; } ERRORS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

static CUresult find_error(CUresult code, bool name, const char **text) {
    for (size_t index = 0; index < sizeof ERRORS / sizeof *ERRORS; index++)
        if (ERRORS[index].code == code) {
            *text = name ? ERRORS[index].name : ERRORS[index].text;
            return SUCCESS;
        }
    *text = NULL;
    return INVALID_VALUE;
}

API cuGetErrorName(CUresult code, const char **name) { return find_error(code, true, name); }
API cuGetErrorString(CUresult code, const char **text) { return find_error(code, false, text); }

// Clients of MPS see their limit as the card's size; memory.c asks for it here.
uint64_t process_memory_limit(void) { return mps_limit; }
