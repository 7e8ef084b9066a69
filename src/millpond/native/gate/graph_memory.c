#include "graph_memory.h"

#include "hooks.h"
#include "ledger.h"
#include "quota.h"
#include "reserves.h"

#define DEEPEST 8

struct live { CUdeviceptr pointer; uint64_t bytes; };

static uint64_t most_of(CUgraph graph, int depth);

// What a node adds to what is live; one that frees takes it off again.
static int64_t added_by(void *node, struct live *live, size_t *count, int depth) {
    struct alloc_node about;
    CUdeviceptr pointer = 0;
    CUgraph child = NULL;
    int type = -1;
    REAL_AS(cuGraphNodeGetType, CUresult(void *, int *))(node, &type);
    if (type == CUDA_GRAPH_NODE && !REAL_AS(cuGraphChildGraphNodeGetGraph, CUresult(void *, CUgraph *))(node, &child))
        return (int64_t)most_of(child, depth + 1);
    if (type == CUDA_MEM_ALLOC_NODE &&
        !REAL_AS(cuGraphMemAllocNodeGetParams, CUresult(void *, struct alloc_node *))(node, &about)) {
        uint64_t bytes = quota_rounded(about.bytes, GRANULE);
        live[(*count)++] = (struct live){about.pointer, bytes};
        return (int64_t)bytes;
    }
    if (type != CUDA_MEM_FREE_NODE || REAL_AS(cuGraphMemFreeNodeGetParams, CUresult(void *, CUdeviceptr *))(node, &pointer))
        return 0;
    for (size_t index = 0; index < *count; index++) {
        if (live[index].pointer != pointer) continue;
        uint64_t bytes = live[index].bytes;
        live[index] = live[--*count];
        return -(int64_t)bytes;
    }
    return 0;
}

// The most that a graph's nodes have at once when they run in the order in which they were made.
static uint64_t most_of(CUgraph graph, int depth) {
    int (*get)(CUgraph, void **, size_t *) = REAL_AS(cuGraphGetNodes, CUresult(CUgraph, void **, size_t *));
    size_t count = 0, live_count = 0;
    if (depth > DEEPEST || get(graph, NULL, &count) || !count) return 0;
    void **nodes = fresh_pages(count * sizeof *nodes);
    struct live *live = fresh_pages(count * sizeof *live);
    int64_t now = 0, most = 0;
    if (nodes && live && !get(graph, nodes, &count)) {
        for (size_t index = 0; index < count; index++) {
            now += added_by(nodes[index], live, &live_count, depth);
            if (now > most) most = now;
        }
    }
    if (nodes) munmap(nodes, count * sizeof *nodes);
    if (live) munmap(live, count * sizeof *live);
    return (uint64_t)most;
}

// An entry without a charge of its own, as that is the reserve's: its owner is what it may take, its references whether it
// has.
void graph_memory_note(CUgraphExec exec, CUgraph graph) {
    uint64_t bytes = reserve_of_graphs() ? most_of(graph, 0) : 0;
    if (bytes) ledger_add((struct charge){.key = (uint64_t)exec, .owner = bytes});
}

void graph_memory_forget(CUgraphExec exec) {
    struct charge about;
    if (reserve_of_graphs()) ledger_take((uint64_t)exec, &about);
}

// What was trimmed in between it takes again: that is charged afterwards.
CUresult graph_memory_call(graph_function *call, CUgraphExec exec, CUstream stream) {
    struct reserve *reserve = reserve_of_graphs();
    struct charge about;
    uint64_t claimed = 0;
    if (LIKELY(!reserve) || !ledger_take((uint64_t)exec, &about)) return call(exec, stream);
    bool fits = about.references || reserve_claim(reserve, about.owner, &claimed);
    CUresult result = fits ? call(exec, stream) : CUDA_OUT_OF_MEMORY;
    if (fits) reserve_settle(reserve, claimed);
    about.references |= !result;
    ledger_add(about);
    return result;
}
