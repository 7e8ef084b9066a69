// Copies and fills within the card's memory, as far as they take time worth counting. To and from the host engines of their
// own copy.
#include "gated.h"

#define LARGE_BYTES (1ull << 20)
#define HUGE_BYTES (1ull << 26)  // from here on of a kind by size: nothing like the kernels of the stream
#define MEMORY_TYPE 2            // of a pointer, as the driver's attributes are numbered

enum memory { MEMORY_HOST = 1, MEMORY_DEVICE, MEMORY_ARRAY, MEMORY_UNIFIED };

static const void *kind_of(uint64_t bytes) {
    return bytes < HUGE_BYTES ? NULL : (const void *)(uintptr_t)(64 - __builtin_clzll(bytes));
}

static bool is_on_card(CUdeviceptr pointer) {
    unsigned type = 0;
    return !REAL_AS(cuPointerGetAttribute, CUresult(void *, int, CUdeviceptr))(&type, MEMORY_TYPE, pointer) && type == MEMORY_DEVICE;
}

static bool is_within(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
    return bytes >= LARGE_BYTES && is_on_card(to) && is_on_card(from);
}

#define WHERE(is_counted_, bytes_, name, own_stream, parameters, arguments)        \
    HOOK CUresult name parameters {                                                \
        if (!(is_counted_)) return REAL(name) arguments;                           \
        GATED(own_stream, kind_of(bytes_), REAL(name) arguments);                  \
    }

// Variants of an entry point, for callers whose default stream is the legacy one, and for those with one for each thread.
#define AT_ONCE(is_counted_, bytes_, name, parameters, arguments)                                         \
    WHERE(is_counted_, bytes_, name, NULL, parameters, arguments)                                         \
    WHERE(is_counted_, bytes_, name##_ptds, CUDA_STREAM_PER_THREAD, parameters, arguments)
#define IN_ORDER(is_counted_, bytes_, name, parameters, arguments)                                        \
    WHERE(is_counted_, bytes_, name, stream, parameters, arguments)                                       \
    WHERE(is_counted_, bytes_, name##_ptsz, OF_THREAD, parameters, arguments)

#define P(...) (__VA_ARGS__)

#define IS_LARGE (bytes >= LARGE_BYTES)
AT_ONCE(IS_LARGE, bytes, cuMemcpyDtoD_v2, P(CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
IN_ORDER(IS_LARGE, bytes, cuMemcpyDtoDAsync_v2, P(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))
AT_ONCE(is_within(to, from, bytes), bytes, cuMemcpy, P(CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
IN_ORDER(is_within(to, from, bytes), bytes, cuMemcpyAsync, P(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))
IN_ORDER(is_within(to, from, bytes), bytes, cuMemcpyWithAttributesAsync,
         P(CUdeviceptr to, CUdeviceptr from, size_t bytes, void *attributes, CUstream stream), (to, from, bytes, attributes, stream))
// A slice is on one card, and so are both contexts.
AT_ONCE(IS_LARGE, bytes, cuMemcpyPeer, P(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes),
        (to, there, from, here, bytes))
IN_ORDER(IS_LARGE, bytes, cuMemcpyPeerAsync,
         P(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes, CUstream stream),
         (to, there, from, here, bytes, stream))

static bool has_end_on_card(int type, CUdeviceptr pointer) {
    return type == MEMORY_DEVICE || type == MEMORY_ARRAY || (type == MEMORY_UNIFIED && is_on_card(pointer));
}

static bool has_rows_within(const struct copy2d *copy) {
    return copy->width * copy->height >= LARGE_BYTES && has_end_on_card(copy->from.type, copy->from.device) &&
           has_end_on_card(copy->to.type, copy->to.device);
}

static bool has_layers_within(const struct copy3d *copy) {
    return copy->width * copy->height * copy->depth >= LARGE_BYTES && has_end_on_card(copy->from.type, copy->from.device) &&
           has_end_on_card(copy->to.type, copy->to.device);
}

#define ROWS copy->width * copy->height
#define LAYERS copy->width * copy->height * copy->depth
AT_ONCE(copy && has_rows_within(copy), ROWS, cuMemcpy2D_v2, P(const struct copy2d *copy), (copy))
AT_ONCE(copy && has_rows_within(copy), ROWS, cuMemcpy2DUnaligned_v2, P(const struct copy2d *copy), (copy))
IN_ORDER(copy && has_rows_within(copy), ROWS, cuMemcpy2DAsync_v2, P(const struct copy2d *copy, CUstream stream), (copy, stream))
AT_ONCE(copy && has_layers_within(copy), LAYERS, cuMemcpy3D_v2, P(const struct copy3d *copy), (copy))
IN_ORDER(copy && has_layers_within(copy), LAYERS, cuMemcpy3DAsync_v2, P(const struct copy3d *copy, CUstream stream), (copy, stream))

// Of many copies at once, those within the card.
static uint64_t bytes_within(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes, size_t count) {
    uint64_t bytes = 0;
    bool named = to && from && sizes && gate_ready();
    for (size_t index = 0; named && index < count; index++)
        if (is_within(to[index], from[index], sizes[index])) bytes += sizes[index];
    return bytes;
}

#define BATCH CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *attributes, size_t *which, size_t many
#define BATCH_VALUES to, from, sizes, count, attributes, which, many
#define BATCH_BYTES bytes_within(to, from, sizes, count)
IN_ORDER(BATCH_BYTES, BATCH_BYTES, cuMemcpyBatchAsync, P(BATCH, size_t *failed, CUstream stream), (BATCH_VALUES, failed, stream))
IN_ORDER(BATCH_BYTES, BATCH_BYTES, cuMemcpyBatchAsync_v2, P(BATCH, CUstream stream), (BATCH_VALUES, stream))

#define FILL(name, type) \
    AT_ONCE(count * sizeof(type) >= LARGE_BYTES, count * sizeof(type), name##_v2, P(CUdeviceptr to, type value, size_t count), (to, value, count)) \
    IN_ORDER(count * sizeof(type) >= LARGE_BYTES, count * sizeof(type), name##Async, P(CUdeviceptr to, type value, size_t count, CUstream stream), (to, value, count, stream))
FILL(cuMemsetD8, unsigned char)
FILL(cuMemsetD16, unsigned short)
FILL(cuMemsetD32, unsigned)

#define FILL_ROWS(name, type) \
    AT_ONCE(width * height * sizeof(type) >= LARGE_BYTES, width * height * sizeof(type), name##_v2, \
            P(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height), (to, pitch, value, width, height)) \
    IN_ORDER(width * height * sizeof(type) >= LARGE_BYTES, width * height * sizeof(type), name##Async, \
             P(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream), \
             (to, pitch, value, width, height, stream))
FILL_ROWS(cuMemsetD2D8, unsigned char)
FILL_ROWS(cuMemsetD2D16, unsigned short)
FILL_ROWS(cuMemsetD2D32, unsigned)
