// Streams as the gate sees them, and the batches of launches it measures on them.
#ifndef GATE_LANES_H
#define GATE_LANES_H

#include "estimate.h"
#include "region.h"

#define LANE_PAIRS 32

// How long a lane lives. It is LIVE from the first launch on its stream on, DYING once the stream is destroyed and while
// batches of it are pending, and FREE afterwards, to be taken for another stream; its memory never goes. Its events are its
// context's: they outlive the stream, and are gone with the context. So nobody calls the driver about an event of a lane
// that is FREE, or that is held because its context may be about to go. The state changes, and events are used, with the
// lock of the batches held.
enum lane_state { LANE_FREE, LANE_LIVE, LANE_DYING };

struct batch {
    struct lane *lane;
    int pair;
    uint32_t size;
    uint64_t expected_ns;
    uint64_t began_ns, host_ns;  // when the batch was begun, and how long its thread was about launching it
    bool delayed;  // its launches had to wait for earlier work, the slice's own or that of others
    bool behind;   // work of this process was in flight when it began
    bool from_idle;  // the stream had nothing to do then
    bool gap, floor;
    bool shared;  // others may have been on the card meanwhile
    unsigned others;  // how many wanted it as it began
    bool beside;  // work of other streams of the process was in flight then
    bool mixed;  // of kernels and graphs: its span says nothing of either
    bool stuck;  // not done long after it should have been, and not counted as in flight
    const void *graph;
};

// A stream: launches on it are counted off in batches, and each batch lies between two events.
struct lane {
    // Threads look at these without a lock, for a lane that may be another's by now: the others hold while it is LIVE.
    _Atomic int state;
    _Atomic(CUstream) stream;
    _Atomic(CUcontext) context;
    _Atomic uint64_t thread;      // of a stream that is the thread's own
    _Atomic int32_t remaining;    // launches that the open batch still takes; below 1 when none is open
    _Atomic int32_t unlaunched;   // of the open batch, with those that are under way: who makes the last closes it
    _Atomic uint64_t last_ns;
    _Atomic bool gap;             // launches of the batch lie apart: the span between its events says nothing
    _Atomic bool open;
    const void *_Atomic launches_of;  // the graph whose launches the open batch takes; NULL: kernels
    bool held;
    struct batch batch;           // the open one
    struct estimate estimate;     // of one kernel
    uint64_t graphs_ns;           // what graphs take, on the average of late; 0 while unknown
    uint64_t host_ns;             // for which its thread is about a launch
    bool guessed;                 // the estimate is from a span that had more in it
    bool probe;                   // what its launches take is to be seen from a single one
    uint64_t probed_ns;
    int last_pair;                // of the batch closed last
    uint32_t pending;             // batches not known to be complete
    uint32_t stuck;               // of these
    uint64_t ended_ns;            // when one was last seen to be complete
    bool waits;                   // its work was seen to wait for other work, or for the program
    uint32_t free_pairs, made_pairs;  // bits
    CUevent start[LANE_PAIRS], end[LANE_PAIRS];
};

// All of these with the lock of the batches held, but for lane_find.
struct lane *lane_find(CUstream stream);  // makes it where there is none; NULL without a context, or without memory
struct lane *lane_of(CUstream stream);    // NULL where there is none; not for the default streams
struct estimate *lane_estimate(struct lane *lane, const void *graph);
bool lane_is_full(const struct lane *lane);  // all its events are in use
int lane_take_pair(struct lane *lane);    // two of them; -1 when none are to be had
void lane_give_pair(struct lane *lane, int pair);
void lane_retire(struct lane *lane);      // its stream is gone: no launch finds it again
void lane_bury(struct lane *lane);        // when nothing of it is pending
void lane_drop(struct lane *lane);        // its context is gone, and its events
struct lane *lane_at(unsigned index);     // NULL beyond the last
void lanes_reset(void);

// These while the thread's capture mode is relaxed:
bool lane_record(struct lane *lane, CUevent event);
bool lane_reached(struct lane *lane, CUevent event);
bool lane_is_idle(struct lane *lane);

bool lane_captures(CUstream stream);

#endif
