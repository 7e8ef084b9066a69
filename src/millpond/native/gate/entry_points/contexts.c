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
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // held while the driver makes or ends one of them

void contexts_reset(void) {
    pthread_mutex_init(&mutex, NULL);
    memset(primary, 0, sizeof primary);
}

static bool charge_context(void) { return quota_charge(gate.control->context_bytes); }

static void note_context(CUresult result, CUcontext *context) {
    uint64_t bytes = gate.control->context_bytes;
    if (result) quota_refund(bytes);
    else ledger_add((struct charge){.key = (uint64_t)*context, .bytes = bytes, .context = *context});
}

#define CREATE(name, parameters, arguments)             \
    HOOK CUresult name parameters {                     \
        if (!gate_ready()) return REAL(name) arguments; \
        if (!charge_context()) return CUDA_OUT_OF_MEMORY; \
        CUresult result = REAL(name) arguments;         \
        note_context(result, context);                  \
        return result;                                  \
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
static CUresult destroy(CUcontext context, void *handle, CUresult (*end)(void *)) {
    gate_hold_context(context);
    CUresult result = end(handle);
    if (result) gate_context_stays(context);
    else gate_context_gone(context), ledger_drop_context(context);
    return result;
}

#define DESTROY(name)                                                    \
    HOOK CUresult name(void *context) {                                  \
        if (!gate_ready()) return REAL(name)(context);                   \
        pthread_mutex_lock(&mutex);                                      \
        CUresult result = destroy(context, context, REAL(name));         \
        pthread_mutex_unlock(&mutex);                                    \
        return result;                                                   \
    }
DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)

// It counts how often the context was attached to; with the last, the context is current no longer, and gone.
HOOK CUresult cuCtxDetach(CUcontext context) {
    if (!gate_ready()) return REAL(cuCtxDetach)(context);
    pthread_mutex_lock(&mutex);
    gate_hold_context(context);
    CUresult result = REAL(cuCtxDetach)(context);
    if (result || current_context() == context) gate_context_stays(context);
    else gate_context_gone(context), ledger_drop_context(context);
    pthread_mutex_unlock(&mutex);
    return result;
}

// Of the multiprocessors that a green context has, a context like any other is made.
static CUcontext context_of(void *green) {
    CUcontext context = NULL;
    return REAL_AS(cuCtxFromGreenCtx, CUresult(CUcontext *, void *))(&context, green) ? NULL : context;
}

HOOK CUresult cuGreenCtxCreate(void **green, void *resources, CUdevice device, unsigned flags) {
    uint64_t bytes = gate_ready() ? gate.control->context_bytes : 0;
    if (!gate_ready()) return REAL(cuGreenCtxCreate)(green, resources, device, flags);
    if (!quota_charge(bytes)) return CUDA_OUT_OF_MEMORY;
    CUresult result = REAL(cuGreenCtxCreate)(green, resources, device, flags);
    if (result) quota_refund(bytes);
    else ledger_add((struct charge){.key = (uint64_t)*green, .bytes = bytes, .context = context_of(*green)});
    return result;
}

HOOK CUresult cuGreenCtxDestroy(void *green) {
    CUcontext context = gate_ready() ? context_of(green) : NULL;
    if (!context) return REAL(cuGreenCtxDestroy)(green);
    pthread_mutex_lock(&mutex);
    CUresult result = destroy(context, green, REAL(cuGreenCtxDestroy));
    pthread_mutex_unlock(&mutex);
    return result;
}

static CUresult retain(CUcontext *context, CUdevice device) {
    return REAL_AS(cuDevicePrimaryCtxRetain, CUresult(CUcontext *, CUdevice))(context, device);
}

static CUresult make_primary(CUcontext *context, CUdevice device) {
    if (!charge_context()) return CUDA_OUT_OF_MEMORY;
    CUresult result = retain(context, device);
    note_context(result, context);
    if (!result) primary[device] = *context;
    return result;
}

// Programs retain a device's primary context again and again, from all their threads; the first time makes it.
HOOK CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    if (!gate_ready() || device < 0 || device >= DEVICES) return retain(context, device);
    pthread_mutex_lock(&mutex);
    CUresult result = primary[device] ? retain(context, device) : make_primary(context, device);
    pthread_mutex_unlock(&mutex);
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
    CUcontext context = primary[device];
    gate_hold_context(context);
    CUresult result = end(device);
    if (is_active(device)) {
        gate_context_stays(context);
    } else {
        gate_context_gone(context), ledger_drop_context(context);
        primary[device] = NULL;
    }
    return result;
}

#define END(name)                                                                                   \
    HOOK CUresult name(CUdevice device) {                                                           \
        if (!gate_ready()) return REAL(name)(device);                                               \
        pthread_mutex_lock(&mutex);                                                                 \
        bool known = device >= 0 && device < DEVICES && primary[device];                            \
        CUresult result = known ? end_primary(device, REAL(name)) : REAL(name)(device);             \
        pthread_mutex_unlock(&mutex);                                                               \
        return result;                                                                              \
    }
END(cuDevicePrimaryCtxRelease)
END(cuDevicePrimaryCtxRelease_v2)
END(cuDevicePrimaryCtxReset)
END(cuDevicePrimaryCtxReset_v2)
