// Graphs whose nodes allocate memory.
#include "graph_memory.h"
#include "hooks.h"
#include "reserves.h"

static void begin(int type) {
    if (gate_ready() && type == CUDA_MEM_ALLOC_NODE) reserve_begin_graphs();
}

HOOK CUresult cuGraphAddMemAllocNode(void **node, CUgraph graph, const void *after, size_t count, struct alloc_node *about) {
    begin(CUDA_MEM_ALLOC_NODE);
    return REAL(cuGraphAddMemAllocNode)(node, graph, after, count, about);
}

#define ADD_NODE(name)                                                                                          \
    HOOK CUresult name(void **node, CUgraph graph, const void *after, const void *edges, size_t count, struct graph_node *about) { \
        begin(about ? about->type : 0);                                                                         \
        return REAL(name)(node, graph, after, edges, count, about);                                             \
    }
ADD_NODE(cuGraphAddNode_v2)
ADD_NODE(cuGraphAddNode_v3)

HOOK CUresult cuGraphAddNode(void **node, CUgraph graph, const void *after, size_t count, struct graph_node *about) {
    begin(about ? about->type : 0);
    return REAL(cuGraphAddNode)(node, graph, after, count, about);
}

#define INSTANTIATE(name, parameters, arguments)                         \
    HOOK CUresult name parameters {                                      \
        CUresult result = REAL(name) arguments;                          \
        if (!result && gate_ready()) graph_memory_note(*exec, graph);    \
        return result;                                                   \
    }
INSTANTIATE(cuGraphInstantiate, (CUgraphExec *exec, CUgraph graph, void *node, char *log, size_t size), (exec, graph, node, log, size))
INSTANTIATE(cuGraphInstantiate_v2, (CUgraphExec *exec, CUgraph graph, void *node, char *log, size_t size), (exec, graph, node, log, size))
INSTANTIATE(cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags), (exec, graph, flags))
INSTANTIATE(cuGraphInstantiateWithParams, (CUgraphExec *exec, CUgraph graph, void *about), (exec, graph, about))
INSTANTIATE(cuGraphInstantiateWithParams_ptsz, (CUgraphExec *exec, CUgraph graph, void *about), (exec, graph, about))

#define UPLOAD(name)                                                     \
    HOOK CUresult name(CUgraphExec exec, CUstream stream) {              \
        if (!gate_ready()) return REAL(name)(exec, stream);              \
        return graph_memory_call(REAL(name), exec, stream);              \
    }
UPLOAD(cuGraphUpload)
UPLOAD(cuGraphUpload_ptsz)

HOOK CUresult cuGraphExecDestroy(CUgraphExec exec) {
    if (gate_ready()) graph_memory_forget(exec);
    CUresult result = REAL(cuGraphExecDestroy)(exec);
    if (gate_ready()) reserves_settle();
    return result;
}

HOOK CUresult cuDeviceGraphMemTrim(CUdevice device) {
    CUresult result = REAL(cuDeviceGraphMemTrim)(device);
    if (gate_ready()) reserves_settle();
    return result;
}
