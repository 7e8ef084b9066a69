// Device memory: charged before each allocation, refunded when it fails or is freed.
#include <string.h>

#include "hooks.h"
#include "ledger.h"

#define PITCH 512  // the widest alignment of rows that cards ask for; put right after the call

static CUcontext current_context(void) {
    CUcontext context = NULL;
    CUresult (*get)(CUcontext *) = REAL_AS(cuCtxGetCurrent, CUresult(CUcontext *));
    return get(&context) ? NULL : context;
}

static void note(uint64_t key, uint64_t bytes, uint64_t owner) {
    ledger_add((struct charge){.key = key, .bytes = bytes, .context = current_context(), .owner = owner});
}

// The body of hooks that free: the entry goes first, as the pointer may be handed out again as soon as it is free.
#define REFUNDED(key_, call_)                                                  \
    struct charge charge_;                                                     \
    bool known_ = gate_ready() && ledger_take((uint64_t)(key_), &charge_);     \
    CUresult result_ = (call_);                                                \
    if (known_ && result_) ledger_add(charge_);                                \
    if (known_ && !result_) gate_release_quota(charge_.bytes);                        \
    return result_

// The body of most hooks: charge, call, and note or refund.
#define CHARGED(bytes_, key_, owner_, call_)                 \
    uint64_t charged_ = (bytes_);                            \
    if (!gate_charge(charged_)) return CUDA_OUT_OF_MEMORY;   \
    CUresult result_ = (call_);                              \
    if (result_) gate_release_quota(charged_);                      \
    else note((uint64_t)(key_), charged_, (uint64_t)(owner_)); \
    return result_

HOOK CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    if (!gate_ready()) return REAL(cuMemAlloc_v2)(pointer, bytes);
    CHARGED(bytes, *pointer, 0, REAL(cuMemAlloc_v2)(pointer, bytes));
}

HOOK CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags) {
    if (!gate_ready()) return REAL(cuMemAllocManaged)(pointer, bytes, flags);
    if (gate.control->refuse_managed) return CUDA_NOT_SUPPORTED;
    CHARGED(bytes, *pointer, 0, REAL(cuMemAllocManaged)(pointer, bytes, flags));
}

#define ALLOC_ASYNC(name)                                                                   \
    HOOK CUresult name(CUdeviceptr *pointer, size_t bytes, CUstream stream) {               \
        if (!gate_ready()) return REAL(name)(pointer, bytes, stream);                       \
        CHARGED(bytes, *pointer, 0, REAL(name)(pointer, bytes, stream));                    \
    }
ALLOC_ASYNC(cuMemAllocAsync)
ALLOC_ASYNC(cuMemAllocAsync_ptsz)

#define ALLOC_FROM_POOL(name)                                                               \
    HOOK CUresult name(CUdeviceptr *pointer, size_t bytes, void *pool, CUstream stream) {   \
        if (!gate_ready()) return REAL(name)(pointer, bytes, pool, stream);                 \
        CHARGED(bytes, *pointer, 0, REAL(name)(pointer, bytes, pool, stream));              \
    }
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz)

// How wide a row gets is known after the call only.
HOOK CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned element) {
    if (!gate_ready()) return REAL(cuMemAllocPitch_v2)(pointer, pitch, width, height, element);
    uint64_t guess = (width + PITCH - 1) / PITCH * PITCH * height;
    if (!gate_charge(guess)) return CUDA_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemAllocPitch_v2)(pointer, pitch, width, height, element);
    uint64_t bytes = result ? 0 : *pitch * height;
    if (bytes > guess && !gate_charge(bytes - guess)) {
        REAL_AS(cuMemFree_v2, CUresult(CUdeviceptr))(*pointer);
        gate_release_quota(guess);
        return CUDA_OUT_OF_MEMORY;
    }
    if (bytes < guess) gate_release_quota(guess - bytes);
    if (!result) note(*pointer, bytes, 0);
    return result;
}

HOOK CUresult cuMemFree_v2(CUdeviceptr pointer) { REFUNDED(pointer, REAL(cuMemFree_v2)(pointer)); }

#define FREE_ASYNC(name) \
    HOOK CUresult name(CUdeviceptr pointer, CUstream stream) { REFUNDED(pointer, REAL(name)(pointer, stream)); }
FREE_ASYNC(cuMemFreeAsync)
FREE_ASYNC(cuMemFreeAsync_ptsz)

// Memory by handle is in use while anybody refers to the handle or it is mapped anywhere.
HOOK CUresult cuMemCreate(CUhandle *handle, size_t bytes, const void *properties, unsigned long long flags) {
    if (!gate_ready()) return REAL(cuMemCreate)(handle, bytes, properties, flags);
    if (!gate_charge(bytes)) return CUDA_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemCreate)(handle, bytes, properties, flags);
    // Not the context's: such memory outlives it.
    if (result) gate_release_quota(bytes);
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
    CHARGED(bytes, *array, 0, REAL(cuArrayCreate_v2)(array, about));
}

static uint64_t level_bytes(const struct array3d_descriptor *about, unsigned level) {
    return at_least_one(about->width >> level) * at_least_one(about->height >> level) *
           at_least_one(about->depth >> level) * element_bytes(about->format, about->channels);
}

HOOK CUresult cuArray3DCreate_v2(CUarray *array, const struct array3d_descriptor *about) {
    if (!gate_ready() || !about) return REAL(cuArray3DCreate_v2)(array, about);
    CHARGED(level_bytes(about, 0), *array, 0, REAL(cuArray3DCreate_v2)(array, about));
}

HOOK CUresult cuMipmappedArrayCreate(CUarray *array, const struct array3d_descriptor *about, unsigned levels) {
    if (!gate_ready() || !about) return REAL(cuMipmappedArrayCreate)(array, about, levels);
    uint64_t bytes = 0;
    for (unsigned level = 0; level < levels && level < 64; level++) bytes += level_bytes(about, level);
    CHARGED(bytes, *array, 0, REAL(cuMipmappedArrayCreate)(array, about, levels));
}

#define DESTROY_ARRAY(name) \
    HOOK CUresult name(CUarray array) { REFUNDED(array, REAL(name)(array)); }
DESTROY_ARRAY(cuArrayDestroy)
DESTROY_ARRAY(cuMipmappedArrayDestroy)

// Memory of allocation nodes is held from the node's making to the end of its graph; where in between the graph really
// has it is the driver's business.
HOOK CUresult cuGraphAddMemAllocNode(void **node, CUgraph graph, const void *after, size_t count, struct alloc_node *about) {
    if (!gate_ready() || !about) return REAL(cuGraphAddMemAllocNode)(node, graph, after, count, about);
    CHARGED(about->bytes, about->pointer, graph, REAL(cuGraphAddMemAllocNode)(node, graph, after, count, about));
}

HOOK CUresult cuGraphAddNode_v2(void **node, CUgraph graph, const void *after, const void *edges, size_t count, struct graph_node *about) {
    if (!gate_ready() || !about || about->type != CUDA_MEM_ALLOC_NODE)
        return REAL(cuGraphAddNode_v2)(node, graph, after, edges, count, about);
    CHARGED(about->allocation.bytes, about->allocation.pointer, graph, REAL(cuGraphAddNode_v2)(node, graph, after, edges, count, about));
}

HOOK CUresult cuGraphAddNode(void **node, CUgraph graph, const void *after, size_t count, struct graph_node *about) {
    if (!gate_ready() || !about || about->type != CUDA_MEM_ALLOC_NODE)
        return REAL(cuGraphAddNode)(node, graph, after, count, about);
    CHARGED(about->allocation.bytes, about->allocation.pointer, graph, REAL(cuGraphAddNode)(node, graph, after, count, about));
}

HOOK CUresult cuGraphDestroy(CUgraph graph) {
    CUresult result = REAL(cuGraphDestroy)(graph);
    if (!result && gate_ready()) ledger_drop_owner((uint64_t)graph);
    return result;
}

// The entry points of CUDA before 3.2, with 32-bit sizes: nothing in use calls them, and they would lead past the cap.
#define REFUSED(name) HOOK CUresult name(void) { return CUDA_NOT_SUPPORTED; }
REFUSED(cuMemAlloc)
REFUSED(cuMemAllocPitch)
REFUSED(cuArrayCreate)
REFUSED(cuArray3DCreate)
