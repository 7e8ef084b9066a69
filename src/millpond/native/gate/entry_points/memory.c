// Device memory: charged before each allocation, refunded when it fails or is freed.
#include <string.h>

#include "hooks.h"
#include "ledger.h"
#include "quota.h"
#include "reserves.h"

#define PITCH 512  // the widest alignment of rows that cards ask for; put right after the call

static void note(uint64_t key, uint64_t bytes) {
    ledger_add((struct charge){.key = key, .bytes = bytes, .context = current_context()});
}

// The body of hooks that free: the entry goes first, as the pointer may be handed out again as soon as it is free.
#define REFUNDED(key_, call_)                                                  \
    struct charge charge_;                                                     \
    bool known_ = gate_ready() && ledger_take((uint64_t)(key_), &charge_);     \
    CUresult result_ = (call_);                                                \
    if (known_ && result_) ledger_add(charge_);                                \
    if (known_ && !result_) quota_refund(charge_.bytes);                       \
    return result_

// The body of most hooks: charge, call, and note or refund.
#define CHARGED(bytes_, key_, call_)                        \
    uint64_t charged_ = (bytes_);                            \
    if (!quota_charge(charged_)) return CUDA_OUT_OF_MEMORY;  \
    CUresult result_ = (call_);                              \
    if (result_) quota_refund(charged_);                     \
    else note((uint64_t)(key_), charged_);                   \
    return result_

HOOK CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    if (!gate_ready()) return REAL(cuMemAlloc_v2)(pointer, bytes);
    CHARGED(bytes, *pointer, REAL(cuMemAlloc_v2)(pointer, bytes));
}

HOOK CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags) {
    if (!gate_ready()) return REAL(cuMemAllocManaged)(pointer, bytes, flags);
    if (gate.control->refuse_managed) return CUDA_NOT_SUPPORTED;
    CHARGED(bytes, *pointer, REAL(cuMemAllocManaged)(pointer, bytes, flags));
}

// How wide a row gets is known after the call only.
HOOK CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned element) {
    if (!gate_ready()) return REAL(cuMemAllocPitch_v2)(pointer, pitch, width, height, element);
    uint64_t guess = (width + PITCH - 1) / PITCH * PITCH * height;
    if (!quota_charge(guess)) return CUDA_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemAllocPitch_v2)(pointer, pitch, width, height, element);
    uint64_t bytes = result ? 0 : *pitch * height;
    if (bytes != guess) quota_refund(guess);
    if (result) return result;
    if (bytes != guess && !quota_charge(bytes)) {
        REAL_AS(cuMemFree_v2, CUresult(CUdeviceptr))(*pointer);
        return CUDA_OUT_OF_MEMORY;
    }
    note(*pointer, bytes);
    return result;
}

// Memory of a pool is free at once, and may leave the pool's reserve.
HOOK CUresult cuMemFree_v2(CUdeviceptr pointer) {
    struct charge charge;
    bool known = gate_ready() && ledger_take(pointer, &charge);
    CUresult result = REAL(cuMemFree_v2)(pointer);
    if (known && result) ledger_add(charge);
    else if (known) reserve_refund(&charge);
    if (gate_ready() && (!known || charge.owner)) reserves_settle();
    return result;
}

// Memory by handle is in use while anybody refers to the handle or it is mapped anywhere.
HOOK CUresult cuMemCreate(CUhandle *handle, size_t bytes, const struct allocation_properties *properties, unsigned long long flags) {
    bool of_host = properties && cuda_location_is_host(properties->location.type);
    if (!gate_ready() || of_host) return REAL(cuMemCreate)(handle, bytes, properties, flags);
    if (!quota_charge(bytes)) return CUDA_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemCreate)(handle, bytes, properties, flags);
    // Not the context's: such memory outlives it.
    if (result) quota_refund(bytes);
    else ledger_add((struct charge){.key = *handle, .bytes = bytes, .references = 1});
    return result;
}

HOOK CUresult cuMemRelease(CUhandle handle) {
    CUresult result = REAL(cuMemRelease)(handle);
    if (!result && gate_ready()) ledger_count(handle, -1, 0);
    return result;
}

HOOK CUresult cuMemRetainAllocationHandle(CUhandle *handle, void *address) {
    CUresult result = REAL(cuMemRetainAllocationHandle)(handle, address);
    if (!result && gate_ready()) ledger_count(*handle, 1, 0);
    return result;
}

HOOK CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUhandle handle, unsigned long long flags) {
    CUresult result = REAL(cuMemMap)(pointer, bytes, offset, handle, flags);
    if (!result && gate_ready()) {
        ledger_count(handle, 0, 1);
        ledger_add((struct charge){.key = pointer, .bytes = bytes, .owner = handle});
    }
    return result;
}

// May take down several mappings that lie side by side.
HOOK CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
    struct charge mapping;
    CUresult result = REAL(cuMemUnmap)(pointer, bytes);
    if (result || !gate_ready()) return result;
    for (CUdeviceptr at = pointer; at < pointer + bytes && ledger_take(at, &mapping) && mapping.bytes; at += mapping.bytes)
        ledger_count(mapping.owner, 0, -1);
    return result;
}

// Of the formats with channels; what is packed or compressed takes less than the four bytes assumed for it.
static uint64_t element_bytes(unsigned format, unsigned channels) {
    bool byte = format == 0x01 || format == 0x08, pair = format == 0x02 || format == 0x09 || format == 0x10;
    return (byte ? 1 : pair ? 2 : 4) * (uint64_t)channels;
}

static uint64_t at_least_one(size_t size) { return size ? size : 1; }

HOOK CUresult cuArrayCreate_v2(CUarray *array, const struct array_descriptor *about) {
    if (!gate_ready() || !about) return REAL(cuArrayCreate_v2)(array, about);
    uint64_t bytes = about->width * at_least_one(about->height) * element_bytes(about->format, about->channels);
    CHARGED(bytes, *array, REAL(cuArrayCreate_v2)(array, about));
}

// Of layers there are as many on each level; what is mapped later has its memory from elsewhere.
static uint64_t level_bytes(const struct array3d_descriptor *about, unsigned level) {
    if (about->flags & (CUDA_ARRAY_SPARSE | CUDA_ARRAY_DEFERRED)) return 0;
    size_t depth = about->flags & (CUDA_ARRAY_LAYERED | CUDA_ARRAY_CUBEMAP) ? about->depth : about->depth >> level;
    return at_least_one(about->width >> level) * at_least_one(about->height >> level) * at_least_one(depth) *
           element_bytes(about->format, about->channels);
}

HOOK CUresult cuArray3DCreate_v2(CUarray *array, const struct array3d_descriptor *about) {
    if (!gate_ready() || !about) return REAL(cuArray3DCreate_v2)(array, about);
    CHARGED(level_bytes(about, 0), *array, REAL(cuArray3DCreate_v2)(array, about));
}

HOOK CUresult cuMipmappedArrayCreate(CUarray *array, const struct array3d_descriptor *about, unsigned levels) {
    if (!gate_ready() || !about) return REAL(cuMipmappedArrayCreate)(array, about, levels);
    uint64_t bytes = 0;
    for (unsigned level = 0; level < levels && level < 64; level++) bytes += level_bytes(about, level);
    CHARGED(bytes, *array, REAL(cuMipmappedArrayCreate)(array, about, levels));
}

#define DESTROY_ARRAY(name) \
    HOOK CUresult name(CUarray array) { REFUNDED(array, REAL(name)(array)); }
DESTROY_ARRAY(cuArrayDestroy)
DESTROY_ARRAY(cuMipmappedArrayDestroy)

// The entry points of CUDA before 3.2, with 32-bit sizes: nothing in use calls them, and they would lead past the cap.
#define REFUSED(name) HOOK CUresult name(void) { return CUDA_NOT_SUPPORTED; }
REFUSED(cuMemAlloc)
REFUSED(cuMemAllocPitch)
REFUSED(cuArrayCreate)
REFUSED(cuArray3DCreate)
