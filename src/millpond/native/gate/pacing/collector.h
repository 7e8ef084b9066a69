// The batches of this process, which launching threads and the collecting thread share, and that thread.
#ifndef GATE_COLLECTOR_H
#define GATE_COLLECTOR_H

#include "lanes.h"

#define PENDING 512

struct batches {
    pthread_mutex_t mutex;
    struct batch pending[PENDING];  // in the order of launching
    unsigned pending_count;
    unsigned open;
    _Atomic uint32_t submitted, completed;  // futexes: count batches
    _Atomic uint32_t admitting, resting;    // threads that wait to launch, and of those the ones that wait for time
    bool collecting, asleep;                // whether the thread runs, and whether it waits for work
};
extern struct batches batches;

// Starts the collecting thread, once; with the lock held.
void collector_start(void);
// Takes a batch out of the books without having measured it; with the lock held.
void collector_discard(struct lane *lane);
// In a child after fork: none of the parent's batches and streams.
void collector_reset(void);

// A stream or a context is about to go.
void gate_forget_stream(CUstream stream);
void gate_forget_context(CUcontext context);

#endif
