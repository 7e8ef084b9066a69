// Graphs: the sum of their kernels, launched as one.
#include <pthread.h>
#include <stdlib.h>

#include "driver_api.h"

#define MEM_ALLOC_NODE 10
#define GRAPHS_USED 0
#define GRAPHS_RESERVED 2

struct kernel_node { CUfunction function; unsigned shape[7]; unsigned padding; void **parameters; };
struct node_parameters {
    int type, reserved[3];
    struct alloc_node_parameters allocation;
};

uint64_t kernel_ns(CUfunction function, void **parameters);

// Of all graphs of this process. Assumed: what a graph takes with its first launch or upload is in use until the end of
// what was launched, and kept then.
static struct { int context; uint64_t reserved, used; } kept;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // of it

bool graph_memory_take(CUgraphExec exec) {
    if (!exec->bytes || exec->taken) return true;
    pthread_mutex_lock(&mutex);
    uint64_t wanted = kept.used + exec->bytes;
    if (!kept.reserved) kept.context = exec->context;
    bool fits = wanted <= kept.reserved || memory_take(kept.context, wanted - kept.reserved);
    if (fits && wanted > kept.reserved) kept.reserved = wanted;
    if (fits) kept.used = wanted;
    pthread_mutex_unlock(&mutex);
    return exec->taken = fits;
}

CUresult graph_add_allocation(CUgraph graph, struct alloc_node_parameters *about, void **node) {
    struct graph_node *made = calloc(1, sizeof *made);
    about->pointer = memory_map(about->bytes);
    made->type = MEM_ALLOC_NODE, made->about = *about, made->next = graph->allocations;
    graph->allocations = made;
    graph->bytes += memory_rounded(about->bytes, GRANULE);
    graph->nodes++;
    if (node) *node = made;
    return SUCCESS;
}

API cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, uint64_t *value) {
    ENTER("cuDeviceGetGraphMemAttribute");
    if (visible_device(device) < 0) return INVALID_DEVICE;
    pthread_mutex_lock(&mutex);
    if (!fake->contexts[kept.context].used) kept.reserved = kept.used = 0;
    *value = attribute == GRAPHS_RESERVED ? kept.reserved : kept.used;
    pthread_mutex_unlock(&mutex);
    return attribute == GRAPHS_RESERVED || attribute == GRAPHS_USED ? SUCCESS : INVALID_VALUE;
}

API cuDeviceGraphMemTrim(CUdevice device) {
    ENTER("cuDeviceGraphMemTrim");
    if (visible_device(device) < 0) return INVALID_DEVICE;
    pthread_mutex_lock(&mutex);
    memory_give(kept.context, kept.reserved - kept.used);
    kept.reserved = kept.used;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

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
    return graph_add_allocation(graph, about, node);
}

API cuGraphAddNode_v2(void **node, CUgraph graph, const void *after, const void *edges, size_t count, struct node_parameters *about) {
    ENTER("cuGraphAddNode_v2");
    (void)edges;
    return about->type == MEM_ALLOC_NODE ? cuGraphAddMemAllocNode(node, graph, after, count, &about->allocation) : NOT_SUPPORTED;
}

API cuGraphAddNode_v3(void **node, CUgraph graph, const void *after, const void *edges, size_t count, struct node_parameters *about) {
    return cuGraphAddNode_v2(node, graph, after, edges, count, about);
}

API cuGraphAddNode(void **node, CUgraph graph, const void *after, size_t count, struct node_parameters *about) {
    return cuGraphAddNode_v2(node, graph, after, NULL, count, about);
}

static struct graph_node any_other;

// Those that allocate first, and all others alike.
API cuGraphGetNodes(CUgraph graph, void **nodes, size_t *count) {
    ENTER("cuGraphGetNodes");
    struct graph_node *allocation = graph->allocations;
    for (size_t index = 0; nodes && index < *count; index++) {
        nodes[index] = allocation ? allocation : &any_other;
        if (allocation) allocation = allocation->next;
    }
    *count = graph->nodes;
    return SUCCESS;
}

API cuGraphNodeGetType(struct graph_node *node, int *type) {
    ENTER("cuGraphNodeGetType");
    *type = node->type;
    return SUCCESS;
}

API cuGraphMemAllocNodeGetParams(struct graph_node *node, struct alloc_node_parameters *about) {
    ENTER("cuGraphMemAllocNodeGetParams");
    *about = node->about;
    return SUCCESS;
}

API cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    ENTER("cuGraphInstantiateWithFlags");
    (void)flags;
    *exec = malloc(sizeof **exec);
    **exec = *graph;
    (*exec)->instantiated = true;
    (*exec)->taken = false;
    return SUCCESS;
}

API cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, void **node, char *log, size_t size) {
    (void)node, (void)log, (void)size;
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

API cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, void **node, char *log, size_t size) {
    return cuGraphInstantiate(exec, graph, node, log, size);
}

API cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, const unsigned long long *about) {
    return cuGraphInstantiateWithFlags(exec, graph, *about);
}

API cuGraphUpload(CUgraphExec exec, CUstream stream) {
    ENTER("cuGraphUpload");
    if (stream_context(stream) < 0 || !exec->instantiated) return INVALID_VALUE;
    return graph_memory_take(exec) ? SUCCESS : OUT_OF_MEMORY;
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
    if (!graph_memory_take(exec)) return OUT_OF_MEMORY;
    fake_spend(fake->launch_ns);
    fake_submit(stream_queue(stream), exec->kernels_ns, -1);
    return SUCCESS;
}

API cuGraphExecDestroy(CUgraphExec exec) {
    ENTER("cuGraphExecDestroy");
    pthread_mutex_lock(&mutex);
    if (exec->taken) kept.used -= exec->bytes;
    pthread_mutex_unlock(&mutex);
    free(exec);
    return SUCCESS;
}

API cuGraphDestroy(CUgraph graph) {
    ENTER("cuGraphDestroy");
    free(graph);
    return SUCCESS;
}

PER_THREAD(cuGraphLaunch);
PER_THREAD(cuGraphUpload);
PER_THREAD(cuGraphInstantiateWithParams);
