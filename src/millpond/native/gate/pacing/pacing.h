// Before and after each launch. What the first returns the second wants.
#ifndef GATE_PACING_H
#define GATE_PACING_H

#include "lanes.h"

struct lane *gate_enter(CUstream stream, const void *graph);  // NULL for what is no graph
void gate_leave(struct lane *lane);

#endif
