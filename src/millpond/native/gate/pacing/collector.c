// A thread that waits for batches to complete, measures them, and gives the turn away when there is no more work.
//
// It runs only while there is something in flight; a program that computes nothing costs nothing. It is gone before the
// driver is, when the process ends.
#include "collector.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "budget.h"
#include "demand.h"
#include "hooks.h"
#include "measure.h"
#include "turns.h"

#define IDLE_NS 300000ull      // without work for so long, the turn goes to whoever waits for it
#define TAIL_NS 300000ull      // a batch that nobody fills for so long is ended
#define SHORTEST_NAP_NS 50000ull
#define LONGEST_NAP_NS 500000ull
#define MARK_NS 150000ull      // well within what lower classes take for silence
#define LATE_NS 4000000ull     // for each who wants the card, and several times what it should take: a batch is late
#define LATE_TIMES 4
#define STUCK_NS 100000000ull  // and then as long as several times what it should take: it is stuck
#define MOST_STUCK_TIMES 5     // each of which a launch that goes by all the same was of no use
#define PLACE_NS 100000000ull  // after which the process's place in its slice is looked after again
#define AGAIN_NS 20000000ull   // after which a thread that could not be made is tried for again
#define STOP_NS 300000000ull   // at the end of the process, for a collector that the driver keeps

struct batches batches = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void collector_reset(void) {
    memset(&batches, 0, sizeof batches);
    pthread_mutex_init(&batches.mutex, NULL);
    lanes_reset();
}

void collector_charge(uint64_t busy_ns, const struct batch *batch, uint64_t now) {
    uint64_t counted = budget_count(busy_ns, now);
    gate.slot->busy_ns += counted;
    demand_count(batch->began_ns, batch->began_ns + batch->host_ns, counted, batch->delayed);
    turn_charge(counted, now);
    budget_charge(counted, now);
    if (batch->floor) budget_charge_floor(counted, now);
}

static void put_on(struct lane *lane, uint32_t size, uint64_t expected_ns) {
    if (!gate.slot->in_flight) batches.progress_ns = gate_now();
    lane->batch.size += size;
    lane->batch.expected_ns += expected_ns;
    lane->unlaunched += (int32_t)size;
    gate.slot->in_flight += size;
    gate.slot->outstanding_ns += expected_ns;
    budget_expect(gate_now());
}

static void take_off(uint32_t size, uint64_t expected_ns) {
    gate.slot->in_flight -= size;
    gate.slot->outstanding_ns -= expected_ns;
}

uint64_t collector_left_ns(uint64_t now) {
    uint64_t outstanding = gate.slot->outstanding_ns, done = now - batches.progress_ns;
    return outstanding > done ? outstanding - done : 0;
}

// The oldest pending batch that counts as in flight; NULL when there is none.
static const struct batch *oldest(void) {
    for (unsigned index = 0; index < batches.pending_count; index++)
        if (!batches.pending[index].stuck) return &batches.pending[index];
    return NULL;
}

bool collector_waits(void) { return oldest() != NULL; }

bool collector_is_late(uint64_t now) {
    uint64_t since_ns = now - batches.progress_ns;
    const struct batch *batch = oldest();
    if (!batch) return false;
    uint64_t expected_ns = LATE_TIMES * batch->expected_ns;
    return since_ns > LATE_NS + expected_ns && since_ns > (1 + turn_others(now)) * LATE_NS + expected_ns;
}

static void set_stuck(struct batch *batch, bool stuck) {
    if (batch->stuck == stuck) return;
    batch->stuck = stuck;
    batches.stuck += stuck ? batch->size : -batch->size;
    batch->lane->stuck += stuck ? 1 : -1;
    if (stuck) {
        take_off(batch->size, batch->expected_ns);
    } else {
        gate.slot->in_flight += batch->size;
        gate.slot->outstanding_ns += batch->expected_ns;
        budget_expect(gate_now());
    }
}

// Work that should have been done long ago waits for something, and that may be what this process launches next: so it is
// no reason to hold anything back. But it may be a long kernel of which nothing is known yet. Each time that it was of no
// use, several times as many launches may go by, after twice as long; of a stream that was seen to wait so, all. So it is
// with a launch from which the driver does not return.
static bool give_up_stuck(uint64_t now) {
    const struct batch *batch = oldest();
    if (!batch && !(batches.open && batches.admitting)) return false;
    struct lane *waits = batch && batch->lane->waits ? batch->lane : NULL;
    uint64_t expected_ns = batch ? batch->expected_ns : gate.slot->outstanding_ns;
    uint64_t since_ns = batches.stuck_ns > batches.progress_ns ? batches.stuck_ns : batches.progress_ns;
    uint64_t patience_ns = waits ? LATE_NS : STUCK_NS << (batches.stuck_times < 3 ? batches.stuck_times : 3);
    if (now < since_ns + patience_ns + LATE_TIMES * expected_ns * (1 + turn_others(now))) return false;
    batches.stuck_ns = now;
    if (!waits) batches.stuck_times += batches.stuck_times < MOST_STUCK_TIMES;
    if (!waits) batches.allowed = 1u << 2 * batches.stuck_times;
    for (unsigned index = 0; index < batches.pending_count; index++)
        if (!waits || batches.pending[index].lane == waits) set_stuck(&batches.pending[index], true);
    return true;
}

void collector_open(struct lane *lane, struct batch batch) {
    uint32_t size = batch.size;
    uint64_t expected_ns = batch.expected_ns;
    lane->batch = batch;
    lane->batch.size = 0, lane->batch.expected_ns = 0;
    lane->batch.began_ns = gate_now();
    lane->batch.behind = gate.slot->in_flight > 0;
    lane->batch.shared = turn_shared(lane->batch.began_ns);
    lane->batch.others = turn_others(lane->batch.began_ns);
    lane->batch.beside = measure_has_others(lane);
    lane->unlaunched = 0;
    lane->gap = false;
    lane->launches_of = batch.graph;
    lane->open = true;
    batches.open++;
    budget_begin(gate_now());
    put_on(lane, size, expected_ns);
    lane->remaining = (int32_t)size - 1;
    batches.submitted++;
}

void collector_join(struct lane *lane, uint64_t expected_ns) { put_on(lane, 1, expected_ns); }

// Counts the open batch by what was expected of it.
static void discard(struct lane *lane) {
    const struct batch *batch = &lane->batch;
    take_off(batch->size, batch->expected_ns);
    gate.slot->launches += batch->size;
    gate.slot->unmeasured += batch->size;
    collector_charge(batch->expected_ns, batch, gate_now());
    lane_give_pair(lane, batch->pair);
    lane->open = false;
    batches.open--;
}

// Whether the end of the open batch is recorded.
static bool end_batch(struct lane *lane) {
    struct batch *batch = &lane->batch;
    if (lane_captures(lane->stream)) return false;
    batch->host_ns = gate_now() - batch->began_ns;
    lane->host_ns = batch->host_ns / batch->size;
    batch->gap = lane->gap;
    int mode = exchange_capture_mode(CUDA_CAPTURE_RELAXED);
    batch->delayed = !lane_reached(lane, lane->start[batch->pair]);
    bool recorded = lane_record(lane, lane->end[batch->pair]);
    exchange_capture_mode(mode);
    return recorded;
}

void collector_close(struct lane *lane) {
    const struct batch *batch = &lane->batch;
    if (!lane->open || lane->unlaunched > 0 || lane->held) return;
    if (end_batch(lane)) {
        struct batch *pending = &batches.pending[batches.pending_count++];
        *pending = *batch;
        set_stuck(pending, lane->waits && lane->stuck);
        gate.slot->launches += batch->size;
        lane->pending++;
        lane->last_pair = batch->pair;
        lane->open = false;
        batches.open--;
    } else {
        discard(lane);
    }
    batches.submitted++;
}

static bool cut(struct lane *lane) {
    int32_t left = atomic_exchange(&lane->remaining, 0);
    if (!lane->open || left < 1) return lane->open && lane->unlaunched < 1;
    uint64_t unused_ns = lane->batch.expected_ns / lane->batch.size * (uint32_t)left;
    take_off((uint32_t)left, unused_ns);
    lane->batch.size -= (uint32_t)left;
    lane->batch.expected_ns -= unused_ns;
    return atomic_fetch_sub(&lane->unlaunched, left) == left;
}

void collector_cut(struct lane *lane) {
    if (cut(lane)) collector_close(lane);
}

void collector_wake(void) {
    if (batches.asleep) gate_wake(&batches.submitted, false);
}

// Of the context whose events are asked for next.
static CUcontext worked_in;
static uint64_t looked_ns;  // when batches were last asked for

static void work_in_context(CUcontext context) {
    if (worked_in != context) REAL_AS(cuCtxSetCurrent, CUresult(CUcontext))(worked_in = context);
}

static bool is_complete(const struct batch *batch) {
    const struct lane *lane = batch->lane;
    if (lane->held) return false;
    work_in_context(lane->context);
    return REAL_AS(cuEventQuery, CUresult(CUevent))(lane->end[batch->pair]) != CUDA_NOT_READY;
}

// What was queued began as the work before it ended. It was not done yet when last looked at.
static void see_progress(const struct batch *batch, uint64_t span, uint64_t now) {
    uint64_t ended_ns = measure_is_queued(batch) ? batches.progress_ns + span : now;
    batches.progress_ns = ended_ns < looked_ns ? looked_ns : ended_ns > now ? now : ended_ns;
    batches.stuck_times = batches.allowed = 0;
}

// Between the events of a batch; false, and none, where the driver does not say.
static bool take_span(const struct batch *batch, uint64_t *span) {
    const struct lane *lane = batch->lane;
    float milliseconds = 0;
    CUresult result = REAL_AS(cuEventElapsedTime, CUresult(float *, CUevent, CUevent))(
        &milliseconds, lane->start[batch->pair], lane->end[batch->pair]);
    *span = result || milliseconds < 0 ? 0 : (uint64_t)((double)milliseconds * 1e6);
    return !result;
}

// Whether what should have been done long ago was waiting, or was on the card all the time.
static void see_waiting(const struct batch *batch, uint64_t span, uint64_t now) {
    struct lane *lane = batch->lane;
    uint64_t since_ns = batch->began_ns > lane->ended_ns ? batch->began_ns : lane->ended_ns;
    if (batch->stuck && now - since_ns > LATE_NS) lane->waits = span < (now - since_ns) / 4;
    lane->ended_ns = now;
}

static void finish(struct batch *batch, uint64_t now) {
    struct lane *lane = batch->lane;
    uint64_t span;
    bool said = take_span(batch, &span);
    if (said) see_waiting(batch, span, now);
    uint64_t busy_ns = measure_batch(batch, span, now);
    set_stuck(batch, false);
    lane->probe |= measure_wants_probe(batch, now);
    take_off(batch->size, batch->expected_ns);
    see_progress(batch, span, now);
    collector_charge(said && span < busy_ns ? span : busy_ns, batch, now);
    lane_give_pair(lane, batch->pair);
    if (--lane->pending == 0 && lane->state == LANE_DYING) lane_bury(lane);
}

// Of each stream, batches complete in order; what is behind one that runs need not be asked.
static bool sweep(uint64_t now) {
    struct lane *running[8];
    unsigned running_count = 0, kept = 0, before = batches.pending_count;
    for (unsigned index = 0; index < before; index++) {
        struct batch *batch = &batches.pending[index];
        bool waits = false;
        for (unsigned other = 0; other < running_count; other++) waits |= running[other] == batch->lane;
        if (!waits && is_complete(batch)) {
            for (unsigned behind = index + 1; batch->stuck && behind < before; behind++)
                if (batches.pending[behind].lane == batch->lane) set_stuck(&batches.pending[behind], false);
            finish(batch, now);
            batch->lane = NULL;
            continue;
        }
        if (!waits && running_count < 8) running[running_count++] = batch->lane;
    }
    for (unsigned index = 0; index < before; index++)
        if (batches.pending[index].lane) batches.pending[kept++] = batches.pending[index];
    batches.pending_count = kept;
    looked_ns = now;
    return kept != before;
}

// What is left of a batch will not be launched soon: its span says nothing, but its end says when its work is done. On a
// stream that is its thread's own nobody else can ask for that.
static void end_tail(struct lane *lane) {
    if (lane->thread) {
        discard(lane);
        return;
    }
    lane->gap = true;
    work_in_context(lane->context);
    collector_close(lane);
}

static bool give_up_tails(uint64_t now) {
    static uint64_t looked_ns;
    unsigned before = batches.open;
    struct lane *lane;
    if (looked_ns + TAIL_NS / 2 > now) return false;
    looked_ns = now;
    for (unsigned index = 0; batches.open && (lane = lane_at(index)); index++)
        if (lane->open && !lane->held && lane->last_ns + TAIL_NS < now && cut(lane)) end_tail(lane);
    return batches.open != before;
}

// Nobody waits for what completes while the slice has the card to itself, so there is no haste. Lower classes go by when it
// last said that it has work there.
static uint64_t next_nap(uint64_t now) {
    uint64_t longest = turn_awaited_below(now) ? MARK_NS : LONGEST_NAP_NS;
    if (!batches.admitting && !turn_contended(now) && !turn_has_superiors()) return longest;
    uint64_t done = now - batches.progress_ns, expected = collector_waits() ? oldest()->expected_ns : 0;
    uint64_t left = expected > done ? expected - done : 0;
    return left < SHORTEST_NAP_NS ? SHORTEST_NAP_NS : left > longest ? longest : left;
}

// Nothing of the slice is on the card, and what its limit keeps off it for a while is in nobody's way.
static void leave_card(uint64_t now) {
    uint64_t ahead = budget_limit_wait(now, 0);
    uint64_t launched_ns = gate.slot->last_launch_ns, ended_ns = batches.progress_ns;
    bool idle = !batches.admitting && (launched_ns > ended_ns ? launched_ns : ended_ns) + IDLE_NS < now;
    if (ahead) turn_away(now, ahead);
    if (idle || batches.resting) turn_release(now);
}

// One look at everything; how long to wait before the next, 0 for until there is work again.
static uint64_t collect(void) {
    uint64_t now = gate_now(), wait = 0;
    pthread_mutex_lock(&batches.mutex);
    turn_look();
    bool any = sweep(now) | give_up_tails(now) | give_up_stuck(now);
    if (collector_waits() || batches.open) {
        turn_active(now, gate.slot->outstanding_ns);
        budget_expect(now);
        wait = next_nap(now);
    } else {
        wait = batches.pending_count ? LONGEST_NAP_NS : turn_held() ? IDLE_NS : 0;
        if (!budget_in_flight(now)) leave_card(now);
    }
    if (any) batches.completed++;
    batches.asleep = !wait || wait == IDLE_NS;
    pthread_mutex_unlock(&batches.mutex);
    if (any) gate_wake(&batches.completed, false);
    return wait;
}

#define FOR_EVER_NS 3600000000000ull

// Signals are for the program's own threads, but for those that this one brings upon itself.
static void mask_signals(void) {
    static const int OWN[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t signals;
    sigfillset(&signals);
    for (size_t index = 0; index < sizeof OWN / sizeof *OWN; index++) sigdelset(&signals, OWN[index]);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

static void *run(void *nothing) {
    (void)nothing;
    mask_signals();
    prctl(PR_SET_NAME, "millpond-gate");
    prctl(PR_SET_TIMERSLACK, 1000);
    worked_in = NULL;
    exchange_capture_mode(CUDA_CAPTURE_RELAXED);
    uint64_t kept_ns = 0;
    while (!batches.stops) {
        uint32_t submitted = batches.submitted;
        if (gate_now() - kept_ns > PLACE_NS) gate_keep_place(), kept_ns = gate_now();
        uint64_t wait = collect();
        if (!wait || wait == IDLE_NS) {
            if (!batches.stops) gate_wait(&batches.submitted, submitted, wait ? wait : FOR_EVER_NS, false);
        } else {
            struct timespec span = {0, (long)wait};
            nanosleep(&span, NULL);
        }
    }
    batches.ended = 1;
    gate_wake(&batches.ended, false);
    return NULL;
}

// Registered after the driver's own, so that it is called before that is torn down.
static void stop(void) {
    if (!batches.collecting) return;
    batches.stops = true;
    batches.submitted++;
    gate_wake(&batches.submitted, false);
    for (uint64_t end = gate_now() + STOP_NS; !batches.ended && gate_now() < end;) gate_wait(&batches.ended, 0, 1000000, false);
}

// A program that may have no more threads for now may have them later.
void collector_start(void) {
    static uint64_t failed_ns;
    static bool registered;
    pthread_t thread;
    if (batches.collecting || (failed_ns && gate_now() - failed_ns < AGAIN_NS)) return;
    if (!registered) registered = !atexit(stop);
    failed_ns = pthread_create(&thread, NULL, run, NULL) ? gate_now() : 0;
    if (failed_ns) return;
    pthread_detach(thread);
    batches.collecting = true;
}

void gate_forget_stream(CUstream stream) {
    struct lane *lane = (uintptr_t)stream > 2 ? lane_of(stream) : NULL;
    if (!lane) return;
    pthread_mutex_lock(&batches.mutex);
    if (lane->state == LANE_LIVE && lane->stream == stream) {
        collector_cut(lane);
        if (lane->open) discard(lane);
        lane_retire(lane);
        if (!lane->pending && !lane->held) lane_bury(lane);
    }
    pthread_mutex_unlock(&batches.mutex);
}

// Calls a function for each lane of a context.
static void of_context(CUcontext context, void (*each)(struct lane *)) {
    struct lane *lane;
    for (unsigned index = 0; (lane = lane_at(index)); index++)
        if (lane->state != LANE_FREE && lane->context == context) each(lane);
}

static void hold(struct lane *lane) { lane->held = true; }

static void resume(struct lane *lane) {
    lane->held = false;
    collector_close(lane);
    if (lane->state == LANE_DYING && !lane->pending) lane_bury(lane);
}

// What was pending is counted as expected: nobody can be asked any more.
static void drop(struct lane *lane) {
    unsigned kept = 0;
    for (unsigned index = 0; index < batches.pending_count; index++) {
        struct batch batch = batches.pending[index];
        if (batch.lane != lane) {
            batches.pending[kept++] = batch;
            continue;
        }
        set_stuck(&batch, false);
        take_off(batch.size, batch.expected_ns);
        collector_charge(batch.expected_ns, &batch, gate_now());
        gate.slot->unmeasured += batch.size;
    }
    batches.pending_count = kept;
    lane->pending = 0;
    cut(lane);
    if (lane->open) discard(lane);
    lane_drop(lane);
}

void gate_hold_context(CUcontext context) {
    pthread_mutex_lock(&batches.mutex);
    of_context(context, hold);
    pthread_mutex_unlock(&batches.mutex);
}

void gate_context_stays(CUcontext context) {
    pthread_mutex_lock(&batches.mutex);
    of_context(context, resume);
    batches.completed++;
    pthread_mutex_unlock(&batches.mutex);
    gate_wake(&batches.completed, false);
    collector_wake();
}

void gate_context_gone(CUcontext context) {
    pthread_mutex_lock(&batches.mutex);
    of_context(context, drop);
    worked_in = NULL;
    batches.completed++;
    pthread_mutex_unlock(&batches.mutex);
    gate_wake(&batches.completed, false);
}
