// A thread that waits for batches to complete, measures them, and gives the turn away when there is no more work.
//
// It runs only while there is something in flight; a program that computes nothing costs nothing.
#include "collector.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "budget.h"
#include "hooks.h"
#include "turns.h"

#define IDLE_NS 300000ull      // without work for so long, the turn goes to whoever waits for it
#define TAIL_NS 2000000ull     // a batch that nobody fills for so long is given up
#define SHORTEST_NAP_NS 50000ull
#define LONGEST_NAP_NS 500000ull
#define FORGET_NS 1000000000ull

struct batches batches = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void collector_reset(void) {
    memset(&batches, 0, sizeof batches);
    pthread_mutex_init(&batches.mutex, NULL);
    lanes_reset();
}

// The estimate follows the last launches, down faster than up: a thread that is put to sleep between event and launch
// makes a span longer, nothing makes it shorter.
static void learn(struct lane *lane, bool graph, uint64_t each) {
    uint64_t *estimate = &lane->estimate_ns[graph], before = *estimate;
    if (!before) *estimate = each;
    else *estimate = each < before ? (before + each) / 2 : before + (each - before) / 8;
    if (!*estimate) *estimate = 1;
}

static void count(uint64_t busy_ns, bool floor, uint64_t now) {
    uint64_t counted = budget_count(busy_ns, now);
    gate.slot->busy_ns += counted;
    turn_charge(counted);
    budget_charge(counted, now);
    if (floor) budget_charge_floor(counted, now);
}

static void take_off(uint32_t size, uint64_t expected_ns) {
    gate.slot->in_flight -= size;
    gate.slot->outstanding_ns -= expected_ns;
}

void collector_discard(struct lane *lane) {
    int32_t left = atomic_exchange(&lane->remaining, 0);
    uint32_t launched = lane->size - (left > 0 ? (uint32_t)left : 0);
    take_off(lane->size, lane->expected_ns);
    gate.slot->launches += launched;
    gate.slot->unmeasured += launched;
    count(lane->expected_ns * launched / lane->size, lane->floor, gate_now());
    lane_give_pair(lane, lane->pair);
    lane->open = false;
    batches.open--;
}

static bool is_complete(const struct batch *batch) {
    return REAL_AS(cuEventQuery, CUresult(CUevent))(batch->lane->end[batch->pair]) != CUDA_NOT_READY;
}

static void finish(const struct batch *batch, uint64_t now) {
    struct lane *lane = batch->lane;
    float milliseconds = 0;
    CUresult result = REAL_AS(cuEventElapsedTime, CUresult(float *, CUevent, CUevent))(
        &milliseconds, lane->start[batch->pair], lane->end[batch->pair]);
    uint64_t span = result || milliseconds < 0 ? 0 : (uint64_t)((double)milliseconds * 1e6);
    bool measured = !result && !batch->gap;
    // Beside an active higher class, part of the span is that class's: it teaches nothing, unless nothing is known yet, or
    // what was taken for known was longer.
    uint64_t known = lane->estimate_ns[batch->graph];
    bool alone = !batch->floor || !known || span / batch->size < known;
    if (measured && alone) learn(lane, batch->graph, span / batch->size);
    if (!measured) gate.slot->unmeasured += batch->size;
    take_off(batch->size, batch->expected_ns);
    count((measured && alone) || span < batch->expected_ns ? span : batch->expected_ns, batch->floor, now);
    lane_give_pair(lane, batch->pair);
    if (--lane->pending == 0 && lane->state == LANE_DYING) lane_bury(lane);
}

// Of each stream, batches complete in order; what is behind one that runs need not be asked.
static bool sweep(uint64_t now) {
    struct lane *running[8];
    unsigned running_count = 0, kept = 0, before = batches.pending_count;
    for (unsigned index = 0; index < before; index++) {
        struct batch batch = batches.pending[index];
        bool waits = false;
        for (unsigned other = 0; other < running_count; other++) waits |= running[other] == batch.lane;
        if (!waits && is_complete(&batch)) {
            finish(&batch, now);
            continue;
        }
        if (!waits && running_count < 8) running[running_count++] = batch.lane;
        batches.pending[kept++] = batch;
    }
    batches.pending_count = kept;
    return kept != before;
}

static void give_up_tails(uint64_t now) {
    struct lane *lane;
    for (int index = 0; batches.open && (lane = lane_at(index)); index++)
        if (lane->state == LANE_LIVE && lane->open && lane->last_ns + TAIL_NS < now) collector_discard(lane);
}

// Nobody waits for what completes while the slice has the card to itself, so there is no haste.
static uint64_t next_nap(uint64_t now) {
    uint64_t part = gate.slot->outstanding_ns / 8;
    if (!batches.admitting && !turn_contended(now)) return LONGEST_NAP_NS;
    return part < SHORTEST_NAP_NS ? SHORTEST_NAP_NS : part > LONGEST_NAP_NS ? LONGEST_NAP_NS : part;
}

// Nothing of the slice is on the card, and what its limit keeps off it for a while is in nobody's way.
static void leave_card(uint64_t now) {
    uint64_t ahead = budget_limit_wait(now, 0);
    bool idle = !batches.admitting && gate.slot->last_launch_ns + IDLE_NS < now;
    if (ahead) turn_away(now, ahead);
    if (turn_held() && (idle || batches.resting)) turn_release(now);
}

// One look at everything; how long to wait before the next, 0 for until there is work again.
static uint64_t collect(void) {
    uint64_t now = gate_now(), wait = 0;
    pthread_mutex_lock(&batches.mutex);
    bool any = sweep(now);
    give_up_tails(now);
    if (batches.pending_count || batches.open) {
        turn_active(now, gate.slot->outstanding_ns);
        wait = next_nap(now);
    } else {
        wait = turn_held() ? IDLE_NS : 0;
        if (!budget_in_flight()) leave_card(now);
    }
    if (any) batches.completed++;
    batches.asleep = !wait || wait == IDLE_NS;
    pthread_mutex_unlock(&batches.mutex);
    if (any) gate_wake(&batches.completed, false);
    return wait;
}

#define FOR_EVER_NS 3600000000000ull

static void *run(void *nothing) {
    sigset_t signals;
    int relaxed = CUDA_CAPTURE_RELAXED;
    sigfillset(&signals);
    sigdelset(&signals, SIGBUS);  // see region.c
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    prctl(PR_SET_NAME, "millpond-gate");
    prctl(PR_SET_TIMERSLACK, 1000);
    CUcontext context = nothing;
    REAL_AS(cuCtxSetCurrent, CUresult(CUcontext))(context);
    REAL_AS(cuThreadExchangeStreamCaptureMode, CUresult(int *))(&relaxed);
    for (;;) {
        uint32_t submitted = batches.submitted;
        uint64_t wait = collect();
        if (!wait || wait == IDLE_NS) {
            gate_wait(&batches.submitted, submitted, wait ? wait : FOR_EVER_NS, false);
        } else {
            struct timespec span = {0, (long)wait};
            nanosleep(&span, NULL);
        }
    }
    return NULL;
}

void collector_start(void) {
    static bool failed;
    pthread_t thread;
    CUcontext context = NULL;
    if (batches.collecting || failed) return;
    REAL_AS(cuCtxGetCurrent, CUresult(CUcontext *))(&context);
    if (pthread_create(&thread, NULL, run, context)) {
        failed = true;
        return;
    }
    pthread_detach(thread);
    batches.collecting = true;
}

static void let_go(struct lane *lane) {
    if (lane->open) collector_discard(lane);
    lane->state = LANE_DYING;
    if (!lane->pending) lane_bury(lane);
}

void gate_forget_stream(CUstream stream) {
    struct lane *lane;
    pthread_mutex_lock(&batches.mutex);
    for (int index = 0; (lane = lane_at(index)); index++)
        if (lane->state == LANE_LIVE && lane->stream == stream && stream) let_go(lane);
    pthread_mutex_unlock(&batches.mutex);
}

static bool is_pending(CUcontext context) {
    for (unsigned index = 0; index < batches.pending_count; index++)
        if (batches.pending[index].lane->context == context) return true;
    return false;
}

// The events of a context go with it, so what is pending is waited for; what takes too long is dropped.
void gate_forget_context(CUcontext context) {
    struct lane *lane;
    pthread_mutex_lock(&batches.mutex);
    for (uint64_t end = gate_now() + FORGET_NS; is_pending(context) && gate_now() < end;) {
        uint32_t completed = batches.completed;
        pthread_mutex_unlock(&batches.mutex);
        gate_wait(&batches.completed, completed, LONGEST_NAP_NS, false);
        pthread_mutex_lock(&batches.mutex);
    }
    unsigned kept = 0;
    for (unsigned index = 0; index < batches.pending_count; index++) {
        struct batch batch = batches.pending[index];
        if (batch.lane->context != context) batches.pending[kept++] = batch;
        else take_off(batch.size, batch.expected_ns), batch.lane->pending--, lane_give_pair(batch.lane, batch.pair);
    }
    batches.pending_count = kept;
    for (int index = 0; (lane = lane_at(index)); index++)
        if (lane->state == LANE_LIVE && lane->context == context) let_go(lane);
    pthread_mutex_unlock(&batches.mutex);
}
