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
    uint64_t progress_ns;           // when work in flight was last seen to begin or to end
    uint64_t stuck_ns;              // when pending batches were last found to be stuck
    unsigned stuck_times;           // since there was progress
    unsigned stuck;                 // launches of such batches
    unsigned allowed;               // launches that go by whatever seems to be in flight
    _Atomic uint32_t submitted, completed;  // futexes: count batches
    _Atomic uint32_t admitting, resting;    // threads that wait to launch, and of those the ones that wait for time
    _Atomic uint32_t ended;                 // futex: the collecting thread is gone
    _Atomic bool stops;                     // the process ends: nothing is measured any more
    unsigned unsure;                // batches up to which it is unsure whether launches take what they took before
    bool collecting;                        // whether the thread runs
    _Atomic bool asleep;                    // and whether it waits for work
};
extern struct batches batches;

// With the lock held:
void collector_start(void);  // the collecting thread, unless it runs
void collector_open(struct lane *lane, struct batch batch);
void collector_join(struct lane *lane, uint64_t expected_ns);  // one launch more in the open batch
void collector_close(struct lane *lane);  // the open batch, if all its launches have been made
void collector_cut(struct lane *lane);    // no more launches in the open batch, and it is closed if none is under way
void collector_charge(uint64_t busy_ns, const struct batch *batch, uint64_t now);

bool collector_waits(void);               // batches are pending that are not stuck
bool collector_is_late(uint64_t now);      // the oldest batch, by far
uint64_t collector_left_ns(uint64_t now);  // of the time that work in flight is expected to take

void collector_wake(void);   // without the lock: there is work
// In a child after fork: none of the parent's batches and streams.
void collector_reset(void);

// A stream is about to go.
void gate_forget_stream(CUstream stream);
// A context may be about to go: none of its events is used until it is known which.
void gate_hold_context(CUcontext context);
void gate_context_stays(CUcontext context);
void gate_context_gone(CUcontext context);

#endif
