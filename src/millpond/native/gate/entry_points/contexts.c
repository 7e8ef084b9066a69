// A context takes device memory too; its own is charged as what the agent says that one takes, and what was allocated in
// it goes with it.
#include "contexts.h"

#include <string.h>

#include "hooks.h"
#include "ledger.h"
#include "pacing/collector.h"
#include "quota.h"

#define DEVICES 64

static CUcontext primary[DEVICES];
static pthread_mutex_t primaries = PTHREAD_MUTEX_INITIALIZER;  // held while the driver makes or releases one of them

// A context that the driver may be ending. As soon as it has, another may be made that is called the same; who makes that
// notes that this one is gone.
struct ending { CUcontext context; bool gone; int cancellation; struct ending *next; };
static struct ending *endings;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // never held while the driver makes or ends a context

void contexts_reset(void) {
    pthread_mutex_init(&primaries, NULL);
    pthread_mutex_init(&mutex, NULL);
    endings = NULL;
    memset(primary, 0, sizeof primary);
}

static bool charge_context(void) { return quota_charge(gate.control->context_bytes); }

static void forget(struct ending *ending) {
    ending->gone = true;
    gate_context_gone(ending->context), ledger_drop_context(ending->context);
}

// That was made, with a handle of its own or the context's.
static void note_made(uint64_t handle, CUcontext context) {
    pthread_mutex_lock(&mutex);
    for (struct ending *ending = endings; ending; ending = ending->next)
        if (ending->context == context && !ending->gone) forget(ending);
    ledger_add((struct charge){.key = handle, .bytes = gate.control->context_bytes, .context = context});
    pthread_mutex_unlock(&mutex);
}

static CUresult note_context(CUresult result, CUcontext *context) {
    if (result) quota_refund(gate.control->context_bytes);
    else note_made((uint64_t)*context, *context);
    return result;
}

#define CREATE(name, parameters, arguments)             \
    HOOK CUresult name parameters {                     \
        if (!gate_ready()) return REAL(name) arguments; \
        if (!charge_context()) return CUDA_OUT_OF_MEMORY; \
        return note_context(REAL(name) arguments, context); \
    }
CREATE(cuCtxCreate, (CUcontext *context, unsigned flags, CUdevice device), (context, flags, device))  // before CUDA 3.2
CREATE(cuGLCtxCreate, (CUcontext *context, unsigned flags, CUdevice device), (context, flags, device))
CREATE(cuGLCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device), (context, flags, device))
CREATE(cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device), (context, flags, device))
CREATE(cuCtxCreate_v3, (CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device),
       (context, affinity, count, flags, device))
CREATE(cuCtxCreate_v4, (CUcontext *context, void *parameters, unsigned flags, CUdevice device),
       (context, parameters, flags, device))
CREATE(cuVDPAUCtxCreate, (CUcontext *context, unsigned flags, CUdevice device, unsigned there, void *find),
       (context, flags, device, there, find))
CREATE(cuVDPAUCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device, unsigned there, void *find),
       (context, flags, device, there, find))

// While it is not known whether a context is gone, none of its events is used.
static void begin_ending(struct ending *ending) {
    ending->cancellation = hold_cancellation();
    gate_hold_context(ending->context);
    pthread_mutex_lock(&mutex);
    ending->next = endings;
    endings = ending;
    pthread_mutex_unlock(&mutex);
}

static void finish_ending(struct ending *ending, bool stays) {
    struct ending **place = &endings;
    pthread_mutex_lock(&mutex);
    while (*place != ending) place = &(*place)->next;
    *place = ending->next;
    if (!ending->gone && stays) gate_context_stays(ending->context);
    else if (!ending->gone) forget(ending);
    pthread_mutex_unlock(&mutex);
    allow_cancellation(ending->cancellation);
}

static CUresult destroy(CUcontext context, void *handle, CUresult (*end)(void *)) {
    struct ending ending = {.context = context};
    begin_ending(&ending);
    CUresult result = end(handle);
    finish_ending(&ending, result);
    return result;
}

#define DESTROY(name)                                                    \
    HOOK CUresult name(void *context) {                                  \
        return gate_ready() ? destroy(context, context, REAL(name)) : REAL(name)(context); \
    }
DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)

// It counts how often the context was attached to; with the last, the context is current no longer, and gone.
HOOK CUresult cuCtxDetach(CUcontext context) {
    if (!gate_ready()) return REAL(cuCtxDetach)(context);
    struct ending ending = {.context = context};
    begin_ending(&ending);
    CUresult result = REAL(cuCtxDetach)(context);
    finish_ending(&ending, result || current_context() == context);
    return result;
}

// Of the multiprocessors that a green context has, a context like any other is made.
static CUcontext context_of(void *green) {
    CUcontext context = NULL;
    return REAL_AS(cuCtxFromGreenCtx, CUresult(CUcontext *, void *))(&context, green) ? NULL : context;
}

HOOK CUresult cuGreenCtxCreate(void **green, void *resources, CUdevice device, unsigned flags) {
    if (!gate_ready()) return REAL(cuGreenCtxCreate)(green, resources, device, flags);
    if (!charge_context()) return CUDA_OUT_OF_MEMORY;
    CUresult result = REAL(cuGreenCtxCreate)(green, resources, device, flags);
    if (result) quota_refund(gate.control->context_bytes);
    else note_made((uint64_t)*green, context_of(*green));
    return result;
}

HOOK CUresult cuGreenCtxDestroy(void *green) {
    CUcontext context = gate_ready() ? context_of(green) : NULL;
    return context ? destroy(context, green, REAL(cuGreenCtxDestroy)) : REAL(cuGreenCtxDestroy)(green);
}

static CUresult retain(CUcontext *context, CUdevice device) {
    return REAL_AS(cuDevicePrimaryCtxRetain, CUresult(CUcontext *, CUdevice))(context, device);
}

static CUresult make_primary(CUcontext *context, CUdevice device) {
    if (!charge_context()) return CUDA_OUT_OF_MEMORY;
    CUresult result = note_context(retain(context, device), context);
    if (!result) primary[device] = *context;
    return result;
}

// Programs retain a device's primary context again and again, from all their threads; the first time makes it.
HOOK CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    if (!gate_ready() || device < 0 || device >= DEVICES) return retain(context, device);
    pthread_mutex_lock(&primaries);
    CUresult result = primary[device] ? retain(context, device) : make_primary(context, device);
    pthread_mutex_unlock(&primaries);
    return result;
}

static bool is_active(CUdevice device) {
    unsigned flags;
    int active = 0;
    REAL_AS(cuDevicePrimaryCtxGetState, CUresult(CUdevice, unsigned *, int *))(device, &flags, &active);
    return active;
}

// Whether this release is the last is for the driver to know.
static CUresult end_primary(CUdevice device, CUresult (*end)(CUdevice)) {
    struct ending ending = {.context = primary[device]};
    begin_ending(&ending);
    CUresult result = end(device);
    bool stays = is_active(device);
    if (!stays) primary[device] = NULL;
    finish_ending(&ending, stays);
    return result;
}

#define END(name)                                                                                   \
    HOOK CUresult name(CUdevice device) {                                                           \
        if (!gate_ready()) return REAL(name)(device);                                               \
        pthread_mutex_lock(&primaries);                                                             \
        bool known = device >= 0 && device < DEVICES && primary[device];                            \
        CUresult result = known ? end_primary(device, REAL(name)) : REAL(name)(device);             \
        pthread_mutex_unlock(&primaries);                                                           \
        return result;                                                                              \
    }
END(cuDevicePrimaryCtxRelease)
END(cuDevicePrimaryCtxRelease_v2)
END(cuDevicePrimaryCtxReset)
END(cuDevicePrimaryCtxReset_v2)
