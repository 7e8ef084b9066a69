// The slice's device time against its limit and its floor, as clocks that run ahead when time is used: a slice that may
// use a tenth moves its clock ten times as far as it was busy, and waits until time has caught up.
#include "budget.h"

#define BURST_NS 5000000ull          // ahead of its limit, so that the card need not wait for the next launch
#define LIMIT_WINDOW_NS 50000000ull  // over which a limit holds
#define SLACK_NS 50000000ull         // within which overlapping spans are told from late ones
#define LONGEST_WORK_NS 2000000000ull // that is believed to be in flight
#define SILENCE_NS 100000000ull       // of a process that lives
#define WHOLE 1000

// Moves a clock by a span from no earlier than a given instant.
static void advance(_Atomic uint64_t *clock, uint64_t earliest, uint64_t span) {
    uint64_t before = *clock, after;
    do after = (before > earliest ? before : earliest) + span;
    while (!atomic_compare_exchange_weak(clock, &before, after));
}

// Spans of two streams, or of two processes that the driver lets take turns, overlap; together they cannot be more than
// the time that has passed.
uint64_t budget_count(uint64_t busy_ns, uint64_t now) {
    _Atomic uint64_t *clock = &gate.usage->busy_clock_ns;
    uint64_t reach = busy_ns > SLACK_NS ? busy_ns : SLACK_NS, before = *clock, from, counted;
    do {
        from = before > now - reach ? before : now - reach;
        counted = from >= now ? 0 : now - from < busy_ns ? now - from : busy_ns;
    } while (!atomic_compare_exchange_weak(clock, &before, from + counted));
    return counted;
}

// Work that begins while nothing is in flight: what lies before is not the slice's.
void budget_begin(uint64_t now) {
    uint64_t before = gate.usage->busy_clock_ns;
    if (before < now && !budget_in_flight(now)) atomic_compare_exchange_strong(&gate.usage->busy_clock_ns, &before, now);
}

// What was used by another limit than holds now comes to another time.
static _Atomic uint64_t *limit_clock(uint64_t now, uint32_t limit) {
    _Atomic uint64_t *clock = &gate.usage->limit_clock_ns;
    uint64_t ahead = *clock, other = atomic_exchange(&gate.usage->clocked_milli, limit);
    if (!other || other == limit) return clock;
    while (ahead > now && !atomic_compare_exchange_weak(clock, &ahead, now + (ahead - now) * other / limit)) continue;
    return clock;
}

uint64_t budget_limit_wait(uint64_t now, uint64_t outstanding_ns) {
    uint32_t limit = gate.control->limit_milli;
    if (limit >= WHOLE || !limit) return 0;
    uint64_t clock = *limit_clock(now, limit), earliest = now - LIMIT_WINDOW_NS;
    uint64_t start = clock > earliest ? clock : earliest;
    uint64_t ahead = start + outstanding_ns * WHOLE / limit;
    return ahead > now + BURST_NS ? ahead - now - BURST_NS : 0;
}

// The room that others leave on the card, beside whom the slice goes.
uint64_t budget_fill_wait(uint64_t now, uint64_t outstanding_ns, uint32_t room_milli) {
    uint64_t clock = gate.usage->fill_clock_ns, earliest = now - BURST_NS;
    uint64_t ahead = (clock > earliest ? clock : earliest) + outstanding_ns * WHOLE / room_milli;
    return ahead > now + BURST_NS ? ahead - now - BURST_NS : 0;
}

void budget_charge_fill(uint64_t busy_ns, uint64_t now, uint32_t room_milli) {
    advance(&gate.usage->fill_clock_ns, now - BURST_NS, busy_ns * WHOLE / room_milli);
}

// What a slice could not use within the window, as it was another's turn, it may use later.
void budget_charge(uint64_t busy_ns, uint64_t now) {
    uint32_t limit = gate.control->limit_milli;
    if (limit && limit < WHOLE) advance(limit_clock(now, limit), now - LIMIT_WINDOW_NS, busy_ns * WHOLE / limit);
}

bool budget_floor_allows(uint64_t now) {
    uint64_t floor = gate.control->floor_milli;
    return floor >= WHOLE || (floor && gate.usage->floor_clock_ns <= now && !budget_in_flight(now));
}

void budget_charge_floor(uint64_t busy_ns, uint64_t now) {
    uint64_t floor = gate.control->floor_milli;
    if (!floor || floor >= WHOLE) return;
    uint64_t span = busy_ns * WHOLE / floor;
    // A floor is a promise: what comes late, behind the work of the higher class, is made up for, but once only.
    advance(&gate.usage->floor_clock_ns, now - span, span);
}

// What it has beside a higher class that is away is not in anybody's way, and is no less than the floor would have given.
void budget_meet_floor(uint64_t expected_ns, uint64_t now) {
    uint64_t floor = gate.control->floor_milli;
    if (!floor || floor >= WHOLE) return;
    uint64_t met = now + expected_ns * WHOLE / floor, before = gate.usage->floor_clock_ns;
    while (before < met && !atomic_compare_exchange_weak(&gate.usage->floor_clock_ns, &before, met)) continue;
}

// What a process says it has in flight, unless it has said nothing since long after that should have been done: then it is
// stopped or dead.
static bool is_believable(const struct gate_slot *slot, uint64_t now) {
    uint64_t due = slot->due_ns;
    return due > now && due - now < 2 * LONGEST_WORK_NS;
}

void budget_expect(uint64_t now) {
    uint64_t work = gate.slot->outstanding_ns;
    gate.slot->due_ns = now + SILENCE_NS + (work < LONGEST_WORK_NS ? work : LONGEST_WORK_NS);
}

uint64_t budget_outstanding(uint64_t now) {
    uint64_t expected = 0;
    for (int index = 0; index < GATE_SLOTS; index++) {
        const struct gate_slot *slot = &gate.usage->slot[index];
        if (slot->outstanding_ns && is_believable(slot, now)) expected += slot->outstanding_ns;
    }
    return expected;
}

uint64_t budget_in_flight(uint64_t now) {
    uint64_t launches = 0;
    for (int index = 0; index < GATE_SLOTS; index++) {
        const struct gate_slot *slot = &gate.usage->slot[index];
        if (slot->in_flight && is_believable(slot, now)) launches += slot->in_flight;
    }
    return launches;
}
