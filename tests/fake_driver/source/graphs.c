// Graphs: the sum of their kernels, launched as one.
#include <stdlib.h>

#include "driver_api.h"
#include "execution.h"

#define MEM_ALLOC_NODE 10

struct kernel_node { CUfunction function; unsigned shape[7]; unsigned padding; void **parameters; };
struct node_parameters {
    int type, reserved[3];
    struct alloc_node_parameters allocation;
};

uint64_t kernel_ns(CUfunction function, void **parameters);

API cuGraphCreate(CUgraph *graph, unsigned flags) {
    ENTER("cuGraphCreate");
    if (flags) return INVALID_VALUE;
    *graph = calloc(1, sizeof **graph);
    (*graph)->context = current_context();
    return SUCCESS;
}

API cuGraphAddKernelNode_v2(void **node, CUgraph graph, const void *after, size_t count, const struct kernel_node *kernel) {
    ENTER("cuGraphAddKernelNode_v2");
    (void)after, (void)count;
    graph->kernels_ns += kernel_ns(kernel->function, kernel->parameters);
    graph->nodes++;
    *node = graph;
    return SUCCESS;
}

API cuGraphAddMemAllocNode(void **node, CUgraph graph, const void *after, size_t count, struct alloc_node_parameters *about) {
    ENTER("cuGraphAddMemAllocNode");
    (void)after, (void)count;
    if (!memory_take(current_context(), about->bytes)) return OUT_OF_MEMORY;
    about->pointer = memory_map(about->bytes);
    graph->bytes += about->bytes;
    graph->nodes++;
    *node = graph;
    return SUCCESS;
}

API cuGraphAddNode_v2(void **node, CUgraph graph, const void *after, const void *edges, size_t count, struct node_parameters *about) {
    ENTER("cuGraphAddNode_v2");
    (void)edges;
    return about->type == MEM_ALLOC_NODE ? cuGraphAddMemAllocNode(node, graph, after, count, &about->allocation) : NOT_SUPPORTED;
}

API cuGraphAddNode(void **node, CUgraph graph, const void *after, size_t count, struct node_parameters *about) {
    return cuGraphAddNode_v2(node, graph, after, NULL, count, about);
}

API cuGraphGetNodes(CUgraph graph, void **nodes, size_t *count) {
    ENTER("cuGraphGetNodes");
    (void)nodes;
    *count = graph->nodes;
    return SUCCESS;
}

API cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    ENTER("cuGraphInstantiateWithFlags");
    (void)flags;
    *exec = malloc(sizeof **exec);
    **exec = *graph;
    (*exec)->bytes = 0;
    (*exec)->instantiated = true;
    return SUCCESS;
}

API cuGraphUpload(CUgraphExec exec, CUstream stream) {
    ENTER("cuGraphUpload");
    return stream_context(stream) < 0 || !exec->instantiated ? INVALID_VALUE : SUCCESS;
}

API cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    ENTER("cuGraphLaunch");
    if (!exec->instantiated) return INVALID_VALUE;
    if (stream_context(stream) < 0) return INVALID_CONTEXT;
    if (stream_capture(stream)) {
        stream_capture(stream)->kernels_ns += exec->kernels_ns;
        stream_capture(stream)->nodes++;
        return SUCCESS;
    }
    fake_submit(stream_context(stream), exec->kernels_ns, -1);
    return SUCCESS;
}

API cuGraphExecDestroy(CUgraphExec exec) {
    ENTER("cuGraphExecDestroy");
    free(exec);
    return SUCCESS;
}

API cuGraphDestroy(CUgraph graph) {
    ENTER("cuGraphDestroy");
    if (graph->bytes) memory_give(graph->context, graph->bytes);
    free(graph);
    return SUCCESS;
}

PER_THREAD(cuGraphLaunch);
PER_THREAD(cuGraphUpload);
