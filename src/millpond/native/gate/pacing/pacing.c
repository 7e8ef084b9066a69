// Before and after a launch. Launches go by in batches; the first of a batch is where a launch may be held back, because
// the slice is paused, a higher class is active, the limit is reached, or it is another slice's turn. Within a batch a
// launch costs a few atomic operations and a look at the clock.
#include "pacing.h"

#include <time.h>

#include "budget.h"
#include "collector.h"
#include "hooks.h"
#include "turns.h"

#define BATCH_NS 1000000ull           // work of a batch
#define BATCH_LAUNCHES 256            // and at the most so many
#define GAP_NS 100000ull              // between two launches of a batch, beyond which its span means nothing
#define UNKNOWN_NS 5000000ull         // for a launch of which nothing is known yet
#define ALONE_NS 20000000ull          // work in flight while nobody else wants the card
#define LONGEST_WORK_NS 100000000ull  // beyond which what seems to be in flight may be a dead process's
#define PAUSE_NAP_NS 1000000ull
#define YIELD_NAP_NS 250000ull
#define LONGEST_NAP_NS 2000000ull

static void nap(uint64_t nanoseconds) {
    struct timespec span = {0, (long)(nanoseconds < LONGEST_NAP_NS ? nanoseconds : LONGEST_NAP_NS)};
    nanosleep(&span, NULL);
}

// Without wanting the card meanwhile.
static void rest(uint64_t nanoseconds) {
    batches.resting++;
    nap(nanoseconds);
    batches.resting--;
}

static bool is_paused(void) { return atomic_load_explicit(&gate.control->paused, memory_order_relaxed); }

enum wait { GO, FOR_TIME, FOR_WORK, FOR_TURN };

struct verdict {
    enum wait wait;
    uint64_t nap_ns;  // when it waits for time
    bool floor;       // goes on the account of the floor
};

static struct verdict wait_for(enum wait wait, uint64_t nap_ns) { return (struct verdict){wait, nap_ns, false}; }

// What keeps a launch of so much work back now; with the lock held.
static struct verdict judge(const struct lane *lane, uint64_t expected_ns, uint64_t now) {
    struct gate_slot *slot = gate.slot;
    uint64_t outstanding = slot->outstanding_ns;
    struct verdict verdict = {GO, 0, false};
    if (is_paused()) return wait_for(FOR_TIME, PAUSE_NAP_NS);
    if (gate.control->cards != gate.cards && gate_follow()) turn_forget();
    if (lane_is_full(lane) || batches.pending_count + batches.open >= PENDING) return wait_for(FOR_WORK, 0);
    uint64_t ahead = budget_limit_wait(now, outstanding), gap = UINT64_MAX;
    if (ahead && !budget_in_flight()) turn_away(now, ahead);
    else turn_active(now, outstanding);
    if (ahead) return wait_for(FOR_TIME, ahead);
    if (turn_has_superiors()) {
        uint32_t most = gate.control->in_flight_maximum;
        gap = turn_gap(now);
        verdict.floor = budget_outstanding() + expected_ns > gap;
        if (verdict.floor && !budget_floor_allows(now)) return wait_for(FOR_TIME, YIELD_NAP_NS);
        if (most && budget_in_flight() >= most) return wait_for(FOR_WORK, 0);
    }
    if (turn_contended(now)) {
        enum admission admission = turn_admits(now, outstanding, expected_ns);
        if (admission != ADMITTED) return wait_for(admission == AWAIT_TURN ? FOR_TURN : FOR_WORK, 0);
    } else if (slot->in_flight > 1 && outstanding >= ALONE_NS) {
        return wait_for(FOR_WORK, 0);
    }
    if (gap != UINT64_MAX && !verdict.floor) budget_meet_floor(expected_ns, now);
    return verdict;
}

// Waits until a launch may be made; returns with the lock held, and says whether it is on the floor's account.
static bool admit(const struct lane *lane, uint64_t expected_ns) {
    uint64_t from = gate_now();
    batches.admitting++;
    for (;;) {
        pthread_mutex_lock(&batches.mutex);
        uint64_t now = gate_now();
        uint32_t completed = batches.completed;
        struct verdict verdict = judge(lane, expected_ns, now);
        if (verdict.wait == GO) {
            gate.slot->waited_ns += now - from;
            batches.admitting--;
            return verdict.floor;
        }
        if (verdict.wait == FOR_TIME && !budget_in_flight()) turn_release(now);
        pthread_mutex_unlock(&batches.mutex);
        if (verdict.wait == FOR_WORK && now - from > LONGEST_WORK_NS) gate_reap_dead();
        if (verdict.wait == FOR_WORK) gate_wait(&batches.completed, completed, LONGEST_NAP_NS, false);
        else if (verdict.wait == FOR_TURN) turn_await();
        else rest(verdict.nap_ns);
    }
}

// Launches that lie apart are measured one by one.
static uint32_t batch_size(const struct lane *lane, bool graph, bool apart) {
    uint64_t estimate = lane->estimate_ns[graph];
    if (graph || !estimate || apart || (gate.control->in_flight_maximum && turn_has_superiors())) return 1;
    uint64_t size = BATCH_NS / estimate;
    return size < 1 ? 1 : size > BATCH_LAUNCHES ? BATCH_LAUNCHES : (uint32_t)size;
}

// The lane with an open batch that ends with this launch, or NULL.
static struct lane *open_batch(struct lane *lane, bool graph, bool apart) {
    int relaxed = CUDA_CAPTURE_RELAXED;
    if (lane_captures(lane->stream)) return NULL;  // nothing runs yet
    uint32_t size = batch_size(lane, graph, apart);
    uint64_t each = lane->estimate_ns[graph] ? lane->estimate_ns[graph] : UNKNOWN_NS;
    bool floor = admit(lane, each * size);
    collector_start();
    REAL_AS(cuThreadExchangeStreamCaptureMode, CUresult(int *))(&relaxed);
    // A batch of another thread on the same stream is left as it is, and this launch goes with it unmeasured.
    int pair = batches.collecting && !lane->open ? lane_take_pair(lane) : -1;
    if (pair >= 0 && !lane_record(lane, lane->start[pair])) {
        lane_give_pair(lane, pair);
        pair = -1;
    }
    REAL_AS(cuThreadExchangeStreamCaptureMode, CUresult(int *))(&relaxed);
    if (pair >= 0) {
        lane->pair = pair, lane->size = size, lane->graph = graph, lane->floor = floor, lane->gap = false;
        lane->expected_ns = each * size;
        lane->open = true;
        batches.open++;
        budget_begin(gate_now());
        gate.slot->in_flight += size;
        gate.slot->outstanding_ns += lane->expected_ns;
        lane->remaining = (int32_t)size - 1;
    } else {
        gate.slot->launches++;
        gate.slot->unmeasured++;
    }
    lane->last_ns = gate_now();  // the wait is no gap between launches
    pthread_mutex_unlock(&batches.mutex);
    return pair >= 0 && size == 1 ? lane : NULL;
}

static void close_batch(struct lane *lane) {
    pthread_mutex_lock(&batches.mutex);
    if (lane->open) {
        if (lane_captures(lane->stream) || !lane_record(lane, lane->end[lane->pair])) {
            collector_discard(lane);
        } else {
            batches.pending[batches.pending_count++] = (struct batch){
                lane, lane->pair, lane->size, lane->expected_ns, gate_now(), lane->gap, lane->graph, lane->floor};
            gate.slot->launches += lane->size - (lane->remaining > 0 ? (uint32_t)lane->remaining : 0);
            lane->remaining = 0;
            lane->pending++;
            lane->open = false;
            batches.open--;
        }
        batches.submitted++;
    }
    bool asleep = batches.asleep;
    pthread_mutex_unlock(&batches.mutex);
    if (asleep) gate_wake(&batches.submitted, false);
}

struct lane *gate_enter(CUstream stream, bool graph) {
    struct gate_slot *slot = gate.slot;
    uint64_t now = gate_now();
    atomic_store_explicit(&slot->last_launch_ns, now, memory_order_relaxed);
    uint32_t class = atomic_load_explicit(&gate.control->share_class, memory_order_relaxed);
    if (class < GATE_BACKFILL)
        atomic_store_explicit(&gate.card->member[gate.member].active_ns, now, memory_order_relaxed);
    struct lane *lane = lane_find(stream);
    if (!lane) {
        slot->launches++;
        slot->unmeasured++;
        while (is_paused()) nap(PAUSE_NAP_NS);
        return NULL;
    }
    uint64_t before = atomic_load_explicit(&lane->last_ns, memory_order_relaxed);
    atomic_store_explicit(&lane->last_ns, now, memory_order_relaxed);
    bool apart = now - before > GAP_NS;
    if (graph && lane->open) {  // a graph is measured by itself
        lane->gap |= apart;
        close_batch(lane);
    }
    int32_t left = graph ? 0 : atomic_fetch_sub_explicit(&lane->remaining, 1, memory_order_acq_rel);
    if (left < 1) return open_batch(lane, graph, apart);
    if (apart) lane->gap = true;
    if (is_paused() && !lane_captures(stream))
        while (is_paused()) nap(PAUSE_NAP_NS);
    return left == 1 ? lane : NULL;
}

void gate_leave(struct lane *lane) {
    if (lane) close_batch(lane);
}
