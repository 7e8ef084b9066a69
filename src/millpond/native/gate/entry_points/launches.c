// Every way to put work on the card passes here: before it the gate may hold it back, after it the work is counted.
#include "graph_memory.h"
#include "hooks.h"
#include "pacing/collector.h"
#include "pacing/pacing.h"
#include "region.h"

#define GATED(stream_, graph_, call_)                            \
    if (!gate_ready()) return call_;                             \
    struct lane *lane_ = gate_enter(stream_, graph_);            \
    CUresult result_ = call_;                                    \
    gate_leave(lane_);                                           \
    return result_

#define SHAPE unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
#define SHAPE_VALUES gx, gy, gz, bx, by, bz, shared

#define LAUNCH(name, own_stream)                                                                            \
    HOOK CUresult name(CUfunction function, SHAPE, CUstream stream, void **parameters, void **extra) {      \
        GATED(own_stream, NULL, REAL(name)(function, SHAPE_VALUES, stream, parameters, extra));            \
    }
#define LAUNCH_EX(name, own_stream)                                                                         \
    HOOK CUresult name(const struct launch_config *config, CUfunction function, void **parameters, void **extra) { \
        CUstream stream = config ? config->stream : NULL;                                                   \
        GATED(own_stream, NULL, REAL(name)(config, function, parameters, extra));                          \
    }
#define LAUNCH_COOPERATIVE(name, own_stream)                                                                \
    HOOK CUresult name(CUfunction function, SHAPE, CUstream stream, void **parameters) {                    \
        GATED(own_stream, NULL, REAL(name)(function, SHAPE_VALUES, stream, parameters));                   \
    }
#define LAUNCH_GRAPH(name, own_stream)                                                                      \
    HOOK CUresult name(CUgraphExec graph, CUstream stream) {                                                \
        GATED(own_stream, graph, graph_memory_call(REAL(name), graph, stream));                              \
    }
#define OF_THREAD (stream ? stream : CUDA_STREAM_PER_THREAD)

LAUNCH(cuLaunchKernel, stream)
LAUNCH(cuLaunchKernel_ptsz, OF_THREAD)
LAUNCH_EX(cuLaunchKernelEx, stream)
LAUNCH_EX(cuLaunchKernelEx_ptsz, OF_THREAD)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, stream)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, OF_THREAD)
LAUNCH_GRAPH(cuGraphLaunch, stream)
LAUNCH_GRAPH(cuGraphLaunch_ptsz, OF_THREAD)

// A slice is on one card, so the first of these launches is all of them.
HOOK CUresult cuLaunchCooperativeKernelMultiDevice(struct launch_parameters *launches, unsigned count, unsigned flags) {
    GATED(launches && count ? launches[0].stream : NULL, NULL, REAL(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags));
}

HOOK CUresult cuLaunch(CUfunction function) { GATED(NULL, NULL, REAL(cuLaunch)(function)); }

HOOK CUresult cuLaunchGrid(CUfunction function, int width, int height) {
    GATED(NULL, NULL, REAL(cuLaunchGrid)(function, width, height));
}

HOOK CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    GATED(stream, NULL, REAL(cuLaunchGridAsync)(function, width, height, stream));
}

#define LARGE_BYTES (1u << 20)  // of device memory, from which on copying and setting it takes time worth counting

#define LARGE(name, own_stream, bytes_, parameters, arguments)                      \
    HOOK CUresult name parameters {                                                 \
        if ((uint64_t)(bytes_) < LARGE_BYTES) return REAL(name) arguments;          \
        GATED(own_stream, NULL, REAL(name) arguments);                              \
    }
#define COPY(name, own_stream) \
    LARGE(name, own_stream, bytes, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
#define COPY_ASYNC(name, own_stream) \
    LARGE(name, own_stream, bytes, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))
#define SET(name, own_stream, type) \
    LARGE(name, own_stream, count * sizeof(type), (CUdeviceptr to, type value, size_t count), (to, value, count))
#define SET_ASYNC(name, own_stream, type) \
    LARGE(name, own_stream, count * sizeof(type), (CUdeviceptr to, type value, size_t count, CUstream stream), (to, value, count, stream))
COPY(cuMemcpyDtoD_v2, NULL)
COPY(cuMemcpyDtoD_v2_ptds, CUDA_STREAM_PER_THREAD)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, stream)
COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, OF_THREAD)
SET(cuMemsetD8_v2, NULL, unsigned char)
SET(cuMemsetD8_v2_ptds, CUDA_STREAM_PER_THREAD, unsigned char)
SET_ASYNC(cuMemsetD8Async, stream, unsigned char)
SET_ASYNC(cuMemsetD8Async_ptsz, OF_THREAD, unsigned char)
SET(cuMemsetD16_v2, NULL, unsigned short)
SET(cuMemsetD16_v2_ptds, CUDA_STREAM_PER_THREAD, unsigned short)
SET_ASYNC(cuMemsetD16Async, stream, unsigned short)
SET_ASYNC(cuMemsetD16Async_ptsz, OF_THREAD, unsigned short)
SET(cuMemsetD32_v2, NULL, unsigned)
SET(cuMemsetD32_v2_ptds, CUDA_STREAM_PER_THREAD, unsigned)
SET_ASYNC(cuMemsetD32Async, stream, unsigned)
SET_ASYNC(cuMemsetD32Async_ptsz, OF_THREAD, unsigned)

#define DESTROY_STREAM(name)                           \
    HOOK CUresult name(CUstream stream) {              \
        if (gate_ready()) gate_forget_stream(stream);  \
        return REAL(name)(stream);                     \
    }
DESTROY_STREAM(cuStreamDestroy)
DESTROY_STREAM(cuStreamDestroy_v2)
