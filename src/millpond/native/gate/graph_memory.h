// Graphs with nodes that allocate memory. A graph itself takes none; what can be launched takes its memory with the first
// launch or upload, and the driver keeps that until it is trimmed.
#ifndef GATE_GRAPH_MEMORY_H
#define GATE_GRAPH_MEMORY_H

#include "gate.h"

typedef CUresult graph_function(CUgraphExec, CUstream);
// What was made of a graph, to be launched; and its end.
void graph_memory_note(CUgraphExec exec, CUgraph graph);
void graph_memory_forget(CUgraphExec exec);
// Launches or uploads it; refused when the cap does not allow the memory that it may take now.
CUresult graph_memory_call(graph_function *call, CUgraphExec exec, CUstream stream);

#endif
