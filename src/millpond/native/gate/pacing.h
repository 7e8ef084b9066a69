// What launching threads and the collecting thread of a process share.
#ifndef GATE_PACING_H
#define GATE_PACING_H

#include "lanes.h"

#define PENDING 512

struct pacing {
    pthread_mutex_t mutex;
    struct batch pending[PENDING];  // in the order of launching
    unsigned pending_count;
    unsigned open_batches;
    _Atomic uint32_t submitted, completed;  // futexes: count batches
    _Atomic uint32_t admitting, resting;    // threads that wait to launch, and of those the ones that wait for time
    bool collecting, asleep;                // whether the thread runs, and whether it waits for work
};
extern struct pacing pacing;

// Starts the collecting thread, once; with the lock held.
void collector_start(void);
// Takes a batch out of the books without having measured it; with the lock held.
void collector_discard(struct lane *lane);

#endif
