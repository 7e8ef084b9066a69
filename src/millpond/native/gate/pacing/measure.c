// What the launches of a batch took, by the time between its events, and what that says of the next ones.
#include "measure.h"

#include "budget.h"
#include "collector.h"
#include "demand.h"
#include "turns.h"

#define PROBE_NS 20000000ull          // after which the length of launches that never queue is looked at again
#define MOST_OF_STUCK_NS 25000000ull  // that is learnt of it beside others: the gate itself may have kept back what it waited for
#define MOST_UNSURE 16                // batches of one that comes back, after which what its launches take is known in any case

void measure_return(void) { batches.unsure = MOST_UNSURE; }

bool measure_has_others(const struct lane *lane) {
    for (unsigned index = 0; index < batches.pending_count; index++)
        if (batches.pending[index].lane && batches.pending[index].lane != lane) return true;
    return batches.open > (lane->open ? 1 : 0);
}

bool measure_is_queued(const struct batch *batch) { return batch->delayed && batch->behind; }

// Of the span of a batch, what its launches took; 0 where it does not say. That of a single one that found the stream idle
// begins as its thread begins to launch it; that of several such has all that their thread did in it.
static uint64_t work_in(const struct batch *batch, uint64_t span) {
    if (batch->mixed || (batch->gap && batch->size > 1)) return 0;
    if (measure_is_queued(batch)) return span;
    if (batch->size > 1 || !batch->from_idle || batch->host_ns >= span) return 0;
    return span - batch->host_ns > span / 8 ? span - batch->host_ns : span / 8;
}

// Whether launches take something else than before the slice was idle: longer than others' turns on the card make it.
static bool has_changed(uint64_t work, uint64_t known, uint64_t now) {
    if (!batches.unsure || !work) return false;
    bool changed = work > (2 + turn_others(now)) * known;
    batches.unsure = changed ? batches.unsure - 1 : 0;
    return changed;
}

// Of the driver's equal turns, of which one at least was the batch's, while others were on the card; 0 where more than
// those may have been in its way.
static unsigned parts_of(const struct batch *batch, bool changed, uint64_t now) {
    if (batch->floor) return 0;
    if (changed || !turn_crowded(now)) return 1;
    if (turn_has_superiors() || batch->mixed || batch->beside || measure_has_others(batch->lane)) return 0;
    unsigned others = turn_others(now);
    return 1 + (others > batch->others ? others : batch->others);
}

// What is in flight is expected to take what launches like it are known to take now.
static void expect_anew(struct lane *lane, const void *graph, uint64_t each) {
    for (unsigned index = 0; index < batches.pending_count; index++) {
        struct batch *batch = &batches.pending[index];
        if (batch->lane != lane || batch->graph != graph || batch->mixed) continue;
        if (!batch->stuck) gate.slot->outstanding_ns += each * batch->size - batch->expected_ns;
        batch->expected_ns = each * batch->size;
    }
    budget_expect(gate_now());
}

static void learn_of_graphs(struct lane *lane, uint64_t nanoseconds) {
    int64_t before = (int64_t)lane->graphs_ns;
    lane->graphs_ns = (uint64_t)(before + ((int64_t)nanoseconds - before) / (before ? 8 : 1));
}

uint64_t measure_batch(const struct batch *batch, uint64_t span, uint64_t now) {
    struct lane *lane = batch->lane;
    struct estimate *estimate = lane_estimate(lane, batch->graph);
    uint64_t known = estimate->ns, work = work_in(batch, span);
    bool guess = !work && !known, queued = measure_is_queued(batch);
    bool shared = batch->floor || batch->shared || turn_shared(now) || (!queued && turn_settles(batch->began_ns));
    bool alone = !shared || !known;
    unsigned parts = parts_of(batch, has_changed(work, known * batch->size, now), now);
    if (batch->stuck && shared && parts > 1 && span > MOST_OF_STUCK_NS) span = MOST_OF_STUCK_NS, work = work_in(batch, span);
    struct reading reading = {guess ? span : work, batch->size, queued, shared, parts};
    if (work && lane->guessed && !shared) {
        *estimate = (struct estimate){0};
        alone = true;
    }
    if (work || guess) {
        lane->guessed = guess || (lane->guessed && shared);
        estimate_learn(estimate, &reading);
    } else if (span > batch->host_ns) {
        reading.span_ns = span - batch->host_ns;
        estimate_learn_longer(estimate, &reading);
    }
    if (batch->graph) learn_of_graphs(lane, estimate->ns);
    if (!work) gate.slot->unmeasured += batch->size;
    if (estimate_strays(estimate)) {
        expect_anew(lane, batch->graph, estimate->ns);
        if (!turn_together(now)) demand_correct(now);
    }
    return (work || guess) && alone ? reading.span_ns : estimate->ns * batch->size;
}

bool measure_wants_probe(const struct batch *batch, uint64_t now) {
    const struct lane *lane = batch->lane;
    if (batch->size == 1 || measure_is_queued(batch)) return false;
    return !estimate_is_sure(lane_estimate(batch->lane, batch->graph)) || now - lane->probed_ns >= PROBE_NS;
}
