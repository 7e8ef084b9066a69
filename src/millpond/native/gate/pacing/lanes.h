// Streams as the gate sees them, and the batches of launches it measures on them.
#ifndef GATE_LANES_H
#define GATE_LANES_H

#include "region.h"

#define LANE_PAIRS 32

enum lane_state { LANE_FREE, LANE_LIVE, LANE_DYING };

// A stream: launches on it are counted off in batches, and each batch lies between two events.
struct lane {
    _Atomic int state;
    CUstream stream;
    CUcontext context;
    uint64_t thread;             // of a stream that is the thread's own
    _Atomic int32_t remaining;   // launches until the batch is full; below 1 when none is open
    _Atomic uint64_t last_ns;
    _Atomic bool gap;            // launches of the batch lie apart: the span between its events says nothing
    bool open, graph, floor;
    int pair;                    // of the open batch
    uint32_t size;
    uint64_t expected_ns;        // of the whole batch
    uint64_t estimate_ns[2];     // of one launch: kernels, graphs; 0 while unknown
    uint32_t pending;            // batches not known to be complete
    uint32_t free_pairs, made_pairs;  // bits
    CUevent start[LANE_PAIRS], end[LANE_PAIRS];
};

struct batch {
    struct lane *lane;
    int pair;
    uint32_t size;
    uint64_t expected_ns, launched_ns;
    bool gap, graph, floor;
};

// All of these with the lock of the batches held, but for lane_find.
struct lane *lane_find(CUstream stream);  // makes it where there is none; NULL when there are too many
bool lane_is_full(const struct lane *lane);  // all its events are in use
int lane_take_pair(struct lane *lane);    // two of them; -1 when none are to be had
void lane_give_pair(struct lane *lane, int pair);
void lane_bury(struct lane *lane);        // when nothing of it is pending
struct lane *lane_at(int index);          // NULL beyond the last
void lanes_reset(void);

bool lane_record(struct lane *lane, CUevent event);
bool lane_captures(CUstream stream);

#endif
