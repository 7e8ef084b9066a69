// Every way to put work on the card passes here, or through copies.c: before it the gate may hold it back, after it the work is counted.
#include "gated.h"
#include "graph_memory.h"
#include "pacing/collector.h"

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

#define DESTROY_STREAM(name)                           \
    HOOK CUresult name(CUstream stream) {              \
        if (gate_ready()) gate_forget_stream(stream);  \
        return REAL(name)(stream);                     \
    }
DESTROY_STREAM(cuStreamDestroy)
DESTROY_STREAM(cuStreamDestroy_v2)
