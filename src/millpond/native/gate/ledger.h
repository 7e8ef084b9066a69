// What this process has been charged for, by pointer or handle.
#ifndef GATE_LEDGER_H
#define GATE_LEDGER_H

#include "region.h"

struct charge {
    uint64_t key;        // 0 for an empty place
    uint64_t bytes;
    CUcontext context;   // whose end frees it
    uint64_t owner;      // the handle behind a mapping; 0 otherwise
    int32_t references;  // to a handle of cuMemCreate
    int32_t mappings;    // of it
};

void ledger_add(struct charge charge);
// Takes an entry out; false when there is none.
bool ledger_take(uint64_t key, struct charge *charge);
// Changes how often a handle is referred to and mapped; its memory is refunded when neither is left.
void ledger_count(uint64_t handle, int references, int mappings);
// Refunds all that belonged to a context which is gone.
void ledger_drop_context(CUcontext context);
// In a child after fork.
void ledger_reset(void);

#endif
