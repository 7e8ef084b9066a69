// Memory in the order of streams: charged as what its pool has reserved, which grows with allocations and shrinks when
// the driver gives memory back.
#include "hooks.h"
#include "ledger.h"
#include "quota.h"
#include "reserves.h"

static void *current_pool(void) {
    CUdevice device;
    void *pool = NULL;
    if (REAL_AS(cuCtxGetDevice, CUresult(CUdevice *))(&device)) return NULL;
    return REAL_AS(cuDeviceGetMemPool, CUresult(void **, CUdevice))(&pool, device) ? NULL : pool;
}

static bool captures(CUstream stream) {
    int status = 0;
    return !REAL_AS(cuStreamIsCapturing, CUresult(CUstream, int *))(stream, &status) && status;
}

enum verdict { ALLOCATE, ALLOCATE_UNCHARGED, REFUSE };

// While a stream captures, the allocation becomes a node of a graph, which takes no memory yet.
static enum verdict admit(void *pool, CUstream stream, uint64_t bytes, struct reserve **reserve, uint64_t *claimed) {
    bool host = false;
    if (captures(stream)) {
        reserve_begin_graphs();
        return ALLOCATE_UNCHARGED;
    }
    if (!pool) return ALLOCATE_UNCHARGED;  // without a context, so the driver refuses it
    *reserve = reserve_of_pool(pool, &host);
    if (host) return ALLOCATE_UNCHARGED;
    return *reserve && reserve_claim(*reserve, bytes, claimed) ? ALLOCATE : REFUSE;
}

// What a pool has taken beyond the allocation may be more than the cap allows: then the allocation is undone.
static CUresult settle(struct reserve *reserve, uint64_t claimed, CUresult result, const CUdeviceptr *pointer, CUstream stream) {
    bool fits = reserve_settle(reserve, claimed);
    if (fits && !result) reserve_note(reserve, *pointer);
    if (fits || result) return result;
    REAL_AS(cuMemFreeAsync, CUresult(CUdeviceptr, CUstream))(*pointer, stream);
    gate.slot->denials++;
    return CUDA_OUT_OF_MEMORY;
}

#define FROM_POOL(pool_, stream_, call_)                                                            \
    if (!gate_ready()) return call_;                                                                \
    struct reserve *reserve_ = NULL;                                                                \
    uint64_t claimed_ = 0;                                                                          \
    enum verdict verdict_ = admit(pool_, stream_, bytes, &reserve_, &claimed_);                     \
    if (verdict_ == REFUSE) return CUDA_OUT_OF_MEMORY;                                              \
    CUresult result_ = call_;                                                                       \
    return verdict_ == ALLOCATE ? settle(reserve_, claimed_, result_, pointer, stream_) : result_

#define ALLOC_ASYNC(name, own_stream)                                         \
    HOOK CUresult name(CUdeviceptr *pointer, size_t bytes, CUstream stream) { \
        FROM_POOL(current_pool(), own_stream, REAL(name)(pointer, bytes, stream)); \
    }
#define ALLOC_FROM_POOL(name, own_stream)                                                 \
    HOOK CUresult name(CUdeviceptr *pointer, size_t bytes, void *pool, CUstream stream) { \
        FROM_POOL(pool, own_stream, REAL(name)(pointer, bytes, pool, stream));            \
    }
#define OF_THREAD (stream ? stream : CUDA_STREAM_PER_THREAD)
ALLOC_ASYNC(cuMemAllocAsync, stream)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, OF_THREAD)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, stream)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, OF_THREAD)

// What belongs to a pool stays reserved until the driver gives it back; other memory may be freed this way too. While a
// stream captures, the memory is freed whenever the graph runs.
#define FREE_ASYNC(name, own_stream)                                            \
    HOOK CUresult name(CUdeviceptr pointer, CUstream stream) {                  \
        struct charge charge;                                                   \
        bool known = gate_ready() && !captures(own_stream) && ledger_take(pointer, &charge); \
        CUresult result = REAL(name)(pointer, stream);                          \
        if (known && result) ledger_add(charge);                                \
        if (known && !result) reserve_refund(&charge);                          \
        return result;                                                          \
    }
FREE_ASYNC(cuMemFreeAsync, stream)
FREE_ASYNC(cuMemFreeAsync_ptsz, OF_THREAD)

// Since CUDA 13 pools may have managed memory.
static bool is_refused(int allocation_type) {
    return allocation_type == CUDA_MANAGED_ALLOCATION && gate_ready() && gate.control->refuse_managed;
}

// By a driver that does not tell where a pool is.
static CUresult found_at(int location_type, CUresult result, void **pool) {
    if (!result && cuda_location_is_host(location_type) && gate_ready()) reserve_note_host(*pool);
    return result;
}

HOOK CUresult cuMemPoolCreate(void **pool, const struct pool_properties *about) {
    if (about && is_refused(about->type)) return CUDA_NOT_SUPPORTED;
    return found_at(about ? about->location_type : 0, REAL(cuMemPoolCreate)(pool, about), pool);
}

#define POOL_AT(name)                                                                        \
    HOOK CUresult name(void **pool, const struct location *location, int type) {             \
        if (is_refused(type)) return CUDA_NOT_SUPPORTED;                                     \
        return found_at(location ? location->type : 0, REAL(name)(pool, location, type), pool); \
    }
POOL_AT(cuMemGetDefaultMemPool)
POOL_AT(cuMemGetMemPool)

HOOK CUresult cuMemPoolDestroy(void *pool) {
    return gate_ready() ? reserve_end_pool(pool, REAL(cuMemPoolDestroy)) : REAL(cuMemPoolDestroy)(pool);
}

// After these the driver may have given back what pools and graphs had reserved.
#define SETTLED(name, parameters, arguments)          \
    HOOK CUresult name parameters {                   \
        CUresult result = REAL(name) arguments;       \
        if (gate_ready()) reserves_settle();          \
        return result;                                \
    }
SETTLED(cuMemPoolSetAttribute, (void *pool, int attribute, void *value), (pool, attribute, value))
SETTLED(cuMemPoolTrimTo, (void *pool, size_t bytes), (pool, bytes))
SETTLED(cuStreamSynchronize, (CUstream stream), (stream))
SETTLED(cuStreamSynchronize_ptsz, (CUstream stream), (stream))
SETTLED(cuCtxSynchronize, (void), ())
SETTLED(cuCtxSynchronize_v2, (CUcontext context), (context))
SETTLED(cuEventSynchronize, (CUevent event), (event))
