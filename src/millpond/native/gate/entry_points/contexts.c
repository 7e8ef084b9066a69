// A context takes device memory too; its own is charged as what the agent says that one takes, and what was allocated in
// it goes with it.
#include "hooks.h"
#include "ledger.h"
#include "pacing/collector.h"

#define DEVICES 64

static CUcontext primary[DEVICES];

static bool charge_context(void) { return gate_charge(gate.control->context_bytes); }

static void note_context(CUresult result, CUcontext *context) {
    uint64_t bytes = gate.control->context_bytes;
    if (result) gate_release_quota(bytes);
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
CREATE(cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device), (context, flags, device))
CREATE(cuCtxCreate_v3, (CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device),
       (context, affinity, count, flags, device))
CREATE(cuCtxCreate_v4, (CUcontext *context, void *parameters, unsigned flags, CUdevice device),
       (context, parameters, flags, device))

HOOK CUresult cuCtxDestroy_v2(CUcontext context) {
    if (gate_ready()) gate_forget_context(context);
    CUresult result = REAL(cuCtxDestroy_v2)(context);
    if (!result && gate_ready()) ledger_drop_context(context);
    return result;
}

// Programs retain a device's primary context again and again; the first time makes it.
HOOK CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    if (!gate_ready() || device < 0 || device >= DEVICES || primary[device])
        return REAL(cuDevicePrimaryCtxRetain)(context, device);
    if (!charge_context()) return CUDA_OUT_OF_MEMORY;
    CUresult result = REAL(cuDevicePrimaryCtxRetain)(context, device);
    note_context(result, context);
    if (!result) primary[device] = *context;
    return result;
}

static void forget_primary(CUdevice device) {
    unsigned flags;
    int active = 0;
    if (device < 0 || device >= DEVICES || !primary[device]) return;
    REAL_AS(cuDevicePrimaryCtxGetState, CUresult(CUdevice, unsigned *, int *))(device, &flags, &active);
    if (active) return;
    ledger_drop_context(primary[device]);
    primary[device] = NULL;
}

// Whether this release is the last is for the driver to know: the gate lets go of the context's streams in any case, and
// finds those of one that lives on again.
#define END(name)                                                                                   \
    HOOK CUresult name(CUdevice device) {                                                           \
        bool known = gate_ready() && device >= 0 && device < DEVICES && primary[device];            \
        if (known) gate_forget_context(primary[device]);                                            \
        CUresult result = REAL(name)(device);                                                       \
        if (known) forget_primary(device);                                                          \
        return result;                                                                              \
    }
END(cuDevicePrimaryCtxRelease_v2)
END(cuDevicePrimaryCtxReset_v2)
