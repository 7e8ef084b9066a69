// What a program sets a context's stack, printf and heap to is device memory, beyond what is in each context anyway.
#include "hooks.h"
#include "ledger.h"
#include "quota.h"

enum limit { STACK_OF_A_THREAD, PRINTF_BUFFER, HEAP };

#define MULTIPROCESSORS 16
#define THREADS_OF_A_MULTIPROCESSOR 39

static uint64_t device_attribute(int attribute) {
    CUdevice device;
    int value = 0;
    if (REAL_AS(cuCtxGetDevice, CUresult(CUdevice *))(&device)) return 0;
    REAL_AS(cuDeviceGetAttribute, CUresult(int *, int, CUdevice))(&value, attribute, device);
    return (uint64_t)value;
}

// The driver has a stack for each thread that may run at once.
static uint64_t bytes_of(enum limit limit, uint64_t value) {
    if (limit != STACK_OF_A_THREAD) return value;
    return value * device_attribute(MULTIPROCESSORS) * device_attribute(THREADS_OF_A_MULTIPROCESSOR);
}

static bool get(enum limit limit, size_t *value) {
    return !REAL_AS(cuCtxGetLimit, CUresult(size_t *, int))(value, (int)limit);
}

// An entry's owner is the limit's value as the context was made with it.
static bool adjust(struct charge *charge, enum limit limit, uint64_t value) {
    uint64_t included = bytes_of(limit, charge->owner), all = bytes_of(limit, value);
    uint64_t more = all > included ? all - included : 0;
    quota_refund(charge->bytes);
    bool fits = quota_charge(more);
    if (fits) charge->bytes = more;
    else if (!quota_charge(charge->bytes)) charge->bytes = 0;
    return fits;
}

HOOK CUresult cuCtxSetLimit(int limit, size_t value) {
    size_t before, after;
    bool ours = limit >= STACK_OF_A_THREAD && limit <= HEAP && gate_ready() && get((enum limit)limit, &before);
    if (!ours) return REAL(cuCtxSetLimit)(limit, value);
    CUcontext context = current_context();
    struct charge charge = {.key = (uint64_t)context + 1 + (uint64_t)limit, .context = context, .owner = before};
    ledger_take(charge.key, &charge);
    bool fits = adjust(&charge, (enum limit)limit, value);
    CUresult result = fits ? REAL(cuCtxSetLimit)(limit, value) : CUDA_OUT_OF_MEMORY;
    if (fits && get((enum limit)limit, &after) && after != value) adjust(&charge, (enum limit)limit, after);
    ledger_add(charge);
    return result;
}
