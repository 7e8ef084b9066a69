// Before and after a launch. Launches go by in batches; the first of a batch is where a launch may be held back, because
// the slice is paused, a higher class is active, the limit is reached, or it is another slice's turn. Within a batch a
// launch costs a few atomic operations and a look at the clock.
#include "pacing.h"

#include <time.h>

#include "budget.h"
#include "collector.h"
#include "demand.h"
#include "hooks.h"
#include "turns.h"

#define BATCH_NS 1000000ull           // work of a batch, or of its thread
#define BATCH_LAUNCHES 240            // and at the most so many
#define CONTENDED_LAUNCHES 32         // while others wait for the end of a turn
#define GAP_NS 100000ull              // between two launches of a batch, beyond which its span means nothing
#define UNKNOWN_NS 5000000ull         // for a launch of which nothing is known yet
#define DEEPEST 770                   // launches and events before a batch: a driver's full queue holds whoever calls it
#define ALONE_NS 8000000ull           // work in flight where no turns are taken: whoever joins has to wait for it
#define QUIET_NS 4000000ull           // and while a higher class has been silent for some seconds
#define LONGEST_WORK_NS 100000000ull  // beyond which what seems to be in flight may be a dead process's
#define UNSURE_LAUNCHES 4             // in flight beside others while it is unsure what they take
#define DRAIN_NAPS 2
#define DRAIN_NAP_NS 1000ull
#define PAUSE_NAP_NS 1000000ull
#define YIELD_NAP_NS 250000ull
#define LONGEST_NAP_NS 2000000ull

// The lane of the launch that this thread is at. A thread that is cancelled in the driver never leaves it.
static __thread __attribute__((tls_model("initial-exec"))) struct { struct lane *lane; bool is_watched; } launching;
static pthread_key_t ending;

// As a thread ends. What it was about counts as launched, and the collecting thread ends its batch as one that nobody fills.
static void give_up_launch(void *nothing) {
    (void)nothing;
    if (launching.lane) atomic_fetch_sub(&launching.lane->unlaunched, 1);
    launching.lane = NULL;
}

__attribute__((constructor)) static void begin(void) { pthread_key_create(&ending, give_up_launch); }

static APART void watch_thread(void) {
    launching.is_watched = true;
    pthread_setspecific(ending, &launching);
}

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
    uint64_t nap_ns;  // when it waits for time; and the longest that it waits for work or its turn
    uint32_t size;    // of the batch that is let by
    bool floor;       // goes on the account of the floor
    bool unmeasured;  // there is no room for its events, and none will be before work that waits for it is done
};

// Work that may be in flight for the sake of higher classes. Two launches, where they are not much longer than that: with
// one at a time the card would rest between them.
static uint64_t in_flight_ns(uint64_t each_ns, uint64_t now) {
    uint64_t most = (uint64_t)gate.control->in_flight_us * 1000;
    if (!most || !turn_has_superiors()) return UINT64_MAX;
    bool about = turn_superiors_about(now);
    if (!about) most = QUIET_NS;
    uint64_t longest = about ? most + most / 4 : 2 * most + most / 2;
    return each_ns <= longest && 2 * each_ns > most ? 2 * each_ns : most;
}

// Whether what launches take may have changed while the slice was idle, which is others' loss.
static bool is_unsure(uint64_t now) { return batches.unsure && turn_others(now); }

// What a launch is expected to take: a graph of which nothing is known yet, as others on its stream do.
static uint64_t expected_of(struct lane *lane, const void *graph) {
    uint64_t estimate = lane_estimate(lane, graph)->ns;
    if (!estimate && graph) estimate = lane->graphs_ns;
    return estimate ? estimate : UNKNOWN_NS;
}

static struct verdict wait_for(enum wait wait, uint64_t nap_ns) { return (struct verdict){.wait = wait, .nap_ns = nap_ns}; }

// What keeps a launch of so much work back now; with the lock held. Where nothing is known of it, it is tried in the first
// gap that a higher class leaves: else nothing ever would be known.
static struct verdict judge(const struct lane *lane, uint64_t expected_ns, bool known, uint64_t now) {
    struct gate_slot *slot = gate.slot;
    uint64_t outstanding = slot->outstanding_ns;
    struct verdict verdict = {.wait = GO};
    if (is_paused()) return wait_for(FOR_TIME, PAUSE_NAP_NS);
    if (gate.control->cards != gate.cards && gate_follow()) turn_forget();
    turn_look();
    unsigned measured = batches.pending_count + batches.open;
    bool deep = slot->in_flight + batches.stuck && slot->in_flight + batches.stuck + 2 * measured > DEEPEST;
    verdict.unmeasured = batches.stuck && !lane->held && (lane_is_full(lane) || measured >= PENDING || deep);
    if (lane->held || (!verdict.unmeasured && (lane_is_full(lane) || measured >= PENDING || deep))) return wait_for(FOR_WORK, 0);
    if (!batches.allowed && collector_is_late(now)) return wait_for(FOR_WORK, 0);
    if (!batches.allowed && is_unsure(now) && slot->in_flight >= UNSURE_LAUNCHES) return wait_for(FOR_WORK, 0);
    uint64_t ahead = budget_limit_wait(now, outstanding), gap = UINT64_MAX;
    if (ahead && !budget_in_flight(now)) turn_away(now, ahead);
    else turn_active(now, outstanding);
    if (ahead) return wait_for(FOR_TIME, ahead);
    if (turn_has_superiors()) {
        uint64_t in_flight = budget_outstanding(now);
        gap = turn_gap(now);
        if (!known && !in_flight && gap) expected_ns = expected_ns < gap ? expected_ns : gap;
        verdict.floor = in_flight + expected_ns > gap;
        if (verdict.floor && !budget_floor_allows(now)) return wait_for(FOR_TIME, YIELD_NAP_NS);
        if (!batches.allowed && in_flight && in_flight + expected_ns > in_flight_ns(expected_ns, now)) return wait_for(FOR_WORK, 0);
    }
    if (turn_contended(now)) {
        struct work work = {outstanding, collector_left_ns(now), expected_ns};
        switch (turn_admits(now, &work)) {
            case AWAIT_TURN: return wait_for(FOR_TURN, 0);
            case AWAIT_ROOM: return wait_for(FOR_TURN, YIELD_NAP_NS);
            case AWAIT_WORK:
                if (!batches.allowed) return wait_for(FOR_WORK, turn_overlap_in(work.left_ns));
                break;
            case ADMITTED: break;
        }
    } else {
        turn_unneeded(now);
        uint64_t most = turn_crowded(now) ? ALONE_NS / (1 + turn_others(now)) : ALONE_NS;
        if (!batches.allowed && slot->in_flight > 1 && outstanding >= most) return wait_for(FOR_WORK, 0);
    }
    if (gap != UINT64_MAX && !verdict.floor) budget_meet_floor(expected_ns, now);
    return verdict;
}

// Of launches of a lane, so many as make a batch.
static uint32_t fill_of_batch(struct lane *lane, const void *graph, uint64_t now) {
    uint64_t estimate = lane_estimate(lane, graph)->ns, most = turn_contended(now) ? CONTENDED_LAUNCHES : BATCH_LAUNCHES;
    uint64_t in_flight = in_flight_ns(estimate, now), each = estimate > lane->host_ns ? estimate : lane->host_ns;
    uint64_t size = each ? (in_flight < 4 * BATCH_NS ? in_flight / 4 : BATCH_NS) / each : 1;
    return size < 1 ? 1 : size > most ? (uint32_t)most : (uint32_t)size;
}

// Waits until so many launches may be made, or fewer, where they turn out to take longer meanwhile; returns with the lock
// held, and says on which terms.
static struct verdict admit(struct lane *lane, const void *graph, uint32_t size) {
    uint64_t from = gate_now();
    batches.admitting++;
    for (;;) {
        pthread_mutex_lock(&batches.mutex);
        uint64_t now = gate_now();
        uint32_t completed = batches.completed;
        bool known = lane_estimate(lane, graph)->ns;
        uint32_t most = size > 1 ? fill_of_batch(lane, graph, now) : 1;
        if (size > most) size = most;
        struct verdict verdict = judge(lane, expected_of(lane, graph) * size, known, now);
        verdict.size = size;
        if (verdict.wait == GO || batches.stops) {
            gate.slot->waited_ns += now - from;
            batches.allowed -= batches.allowed > 0;
            batches.admitting--;
            return verdict;
        }
        if (verdict.wait == FOR_TIME && !budget_in_flight(now)) turn_release(now);
        pthread_mutex_unlock(&batches.mutex);
        if (verdict.wait == FOR_WORK && now - from > LONGEST_WORK_NS) gate_reap_dead();
        uint64_t within = verdict.nap_ns && verdict.nap_ns < LONGEST_NAP_NS ? verdict.nap_ns : LONGEST_NAP_NS;
        if (verdict.wait == FOR_WORK) gate_wait(&batches.completed, completed, within, false);
        else if (verdict.wait == FOR_TURN) turn_await(within);
        else rest(verdict.nap_ns);
    }
}

// Launches that lie apart are measured one by one, and those of so many streams that their batches would fill the books.
// Those of one batch are of kernels, or of one graph.
static uint32_t batch_size(struct lane *lane, const void *graph, bool apart, bool *probe) {
    pthread_mutex_lock(&batches.mutex);
    turn_look();
    uint64_t now = gate_now();
    bool known = lane_estimate(lane, graph)->ns;
    bool single = is_unsure(now) || !known || apart || lane->probe || batches.open > PENDING / 2;
    uint32_t size = single ? 1 : fill_of_batch(lane, graph, now);
    *probe = lane->probe;
    pthread_mutex_unlock(&batches.mutex);
    return size;
}

// Counts a launch by what is expected of it, where the driver gives no events.
static void count_unmeasured(uint64_t expected_ns, bool floor) {
    gate.slot->launches++;
    gate.slot->unmeasured++;
    uint64_t now = gate_now();
    collector_charge(expected_ns, &(struct batch){.floor = floor, .delayed = true, .began_ns = now}, now);
}

// The launch begins a batch, or goes with the one that another thread has open.
static struct lane *begin_batch(struct lane *lane, const void *graph, uint64_t each, struct verdict terms) {
    if (lane->open) {
        lane->batch.mixed |= lane->batch.graph != graph;
        collector_join(lane, each);
        return lane;
    }
    int mode = exchange_capture_mode(CUDA_CAPTURE_RELAXED);
    bool was_idle = lane_is_idle(lane);
    int pair = batches.collecting && !terms.unmeasured ? lane_take_pair(lane) : -1;
    if (pair >= 0 && !lane_record(lane, lane->start[pair])) {
        lane_give_pair(lane, pair);
        pair = -1;
    }
    exchange_capture_mode(mode);
    if (pair < 0) {
        count_unmeasured(each, terms.floor);
        return NULL;
    }
    collector_open(lane, (struct batch){.lane = lane, .pair = pair, .size = terms.size, .expected_ns = each * terms.size,
                                        .floor = terms.floor, .graph = graph, .from_idle = terms.size == 1 && was_idle});
    return lane;
}

// What a launch takes is seen from one that finds the stream idle: a moment for what was launched before it.
static void let_drain(struct lane *lane) {
    uint64_t from = gate_now();
    for (int times = 0; times < DRAIN_NAPS; times++) {
        pthread_mutex_lock(&batches.mutex);
        int mode = exchange_capture_mode(CUDA_CAPTURE_RELAXED);
        bool idle = lane_is_idle(lane);
        exchange_capture_mode(mode);
        pthread_mutex_unlock(&batches.mutex);
        if (idle) break;
        nap(DRAIN_NAP_NS);
    }
    uint64_t now = gate_now();
    pthread_mutex_lock(&batches.mutex);
    lane->probe = false;
    lane->probed_ns = now;
    pthread_mutex_unlock(&batches.mutex);
    demand_excuse(now - from);
}

// Holds the launch back as long as it must be.
static struct lane *enter_slowly(struct lane *lane, const void *graph, bool apart) {
    if (batches.stops || lane_captures(lane->stream)) return NULL;  // nothing runs yet
    bool probe;
    uint32_t size = batch_size(lane, graph, apart, &probe);
    if (probe) let_drain(lane);
    struct verdict terms = admit(lane, graph, size);
    if (!batches.stops) collector_start();
    lane = batches.stops ? NULL : begin_batch(lane, graph, expected_of(lane, graph), terms);
    if (lane) lane->last_ns = gate_now();  // the wait is no gap between launches
    pthread_mutex_unlock(&batches.mutex);
    collector_wake();
    return lane;
}

static APART struct lane *enter_uncancelled(struct lane *lane, const void *graph, bool apart) {
    int cancellation = hold_cancellation();
    lane = enter_slowly(lane, graph, apart);
    allow_cancellation(cancellation);
    return lane;
}

static APART void outlast_pause(void) {
    int cancellation = hold_cancellation();
    while (is_paused()) nap(PAUSE_NAP_NS);
    allow_cancellation(cancellation);
}

static APART void cut_batch(struct lane *lane) {
    pthread_mutex_lock(&batches.mutex);
    collector_cut(lane);
    pthread_mutex_unlock(&batches.mutex);
}

static struct lane *enter(CUstream stream, const void *graph) {
    struct gate_slot *slot = gate.slot;
    uint64_t now = gate_now();
    atomic_store_explicit(&slot->last_launch_ns, now, memory_order_relaxed);
    uint32_t class = atomic_load_explicit(&gate.control->share_class, memory_order_relaxed);
    if (class < GATE_BACKFILL)
        atomic_store_explicit(&gate.card->member[gate.member].active_ns, now, memory_order_relaxed);
    struct lane *lane = lane_find(stream);
    if (!lane) return NULL;  // without a context, and so without a kernel
    uint64_t before = atomic_load_explicit(&lane->last_ns, memory_order_relaxed);
    atomic_store_explicit(&lane->last_ns, now, memory_order_relaxed);
    bool apart = now - before > GAP_NS;
    bool other = lane->open && atomic_load_explicit(&lane->launches_of, memory_order_relaxed) != graph;
    if (other) {
        lane->gap |= apart;
        cut_batch(lane);
    }
    int32_t left = other ? 0 : atomic_fetch_sub_explicit(&lane->remaining, 1, memory_order_acq_rel);
    if (left < 1) return enter_uncancelled(lane, graph, apart);
    if (apart || atomic_load_explicit(&lane->launches_of, memory_order_relaxed) != graph) lane->gap = true;
    if (is_paused() && !lane_captures(stream)) outlast_pause();
    return lane;
}

struct lane *gate_enter(CUstream stream, const void *graph) {
    if (!LIKELY(launching.is_watched)) watch_thread();
    return launching.lane = enter(stream, graph);
}

static APART void close_batch(struct lane *lane) {
    pthread_mutex_lock(&batches.mutex);
    collector_close(lane);
    pthread_mutex_unlock(&batches.mutex);
    collector_wake();
}

void gate_leave(struct lane *lane) {
    launching.lane = NULL;
    if (lane && atomic_fetch_sub_explicit(&lane->unlaunched, 1, memory_order_acq_rel) == 1) close_batch(lane);
}
