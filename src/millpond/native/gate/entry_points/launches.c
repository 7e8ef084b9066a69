// Every way to put work on the card passes here: before it the gate may hold it back, after it the work is counted.
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
        GATED(own_stream, false, REAL(name)(function, SHAPE_VALUES, stream, parameters, extra));            \
    }
#define LAUNCH_EX(name, own_stream)                                                                         \
    HOOK CUresult name(const struct launch_config *config, CUfunction function, void **parameters, void **extra) { \
        CUstream stream = config ? config->stream : NULL;                                                   \
        GATED(own_stream, false, REAL(name)(config, function, parameters, extra));                          \
    }
#define LAUNCH_COOPERATIVE(name, own_stream)                                                                \
    HOOK CUresult name(CUfunction function, SHAPE, CUstream stream, void **parameters) {                    \
        GATED(own_stream, false, REAL(name)(function, SHAPE_VALUES, stream, parameters));                   \
    }
#define LAUNCH_GRAPH(name, own_stream)                                                                      \
    HOOK CUresult name(CUgraphExec graph, CUstream stream) {                                                \
        GATED(own_stream, true, REAL(name)(graph, stream));                                                 \
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
    GATED(launches && count ? launches[0].stream : NULL, false, REAL(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags));
}

HOOK CUresult cuLaunch(CUfunction function) { GATED(NULL, false, REAL(cuLaunch)(function)); }

HOOK CUresult cuLaunchGrid(CUfunction function, int width, int height) {
    GATED(NULL, false, REAL(cuLaunchGrid)(function, width, height));
}

HOOK CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    GATED(stream, false, REAL(cuLaunchGridAsync)(function, width, height, stream));
}

HOOK CUresult cuStreamDestroy_v2(CUstream stream) {
    if (gate_ready()) gate_forget_stream(stream);
    return REAL(cuStreamDestroy_v2)(stream);
}
