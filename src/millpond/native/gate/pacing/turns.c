// Slices of one class that want the card at the same time take turns on it: whose device time, divided by its guarantee,
// is least goes next (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM 1996). In its turn a slice is alone, so what
// it measures as its own time is its own.
//
// Nothing in the card file is trusted: a wait has an end, and when turns do not come round the slice goes on without them
// for a while, on the driver's time slicing, and counts that.
#include "turns.h"

#include "budget.h"

#define ACTIVE_NS 20000000ull         // how long after its last work a slice still counts as wanting the card
#define STALE_NS 50000000ull          // a holder or waiter that has said nothing for so long is gone
#define LONGEST_WORK_NS 2000000000ull // beyond which nobody's announcement is believed
#define LONGEST_NAP_NS 2000000ull
#define LONGEST_AWAY_NS 1000000000ull // said again well before it is over
#define PLAIN_NS 10000000000ull       // how long to go on without turns when they do not come round

static uint64_t plain_until_ns;     // without turns up to then
static uint64_t waiting_since_ns;   // this process; 0 when it does not wait
static uint32_t held_turn;          // whether this process has seen that the turn is its slice's

static uint32_t own_class(void) {
    uint32_t class = gate.control->share_class;
    return class < GATE_CLASSES ? class : GATE_BACKFILL;
}

static struct gate_turn *own_turn(void) { return &gate.card->turn[own_class()]; }
static struct gate_member *self(void) { return &gate.card->member[gate.member]; }
static uint64_t quantum_ns(void) { return (uint64_t)gate.control->quantum_us * 1000; }

static uint64_t weighted(uint64_t busy_ns) {
    uint64_t guarantee = gate.control->guarantee_milli;
    return busy_ns * 1000 / (guarantee ? guarantee : 1);
}

static bool is_peer(unsigned index) { return index != gate.member && gate.card->member[index].present == own_class() + 1; }

static bool is_active(const struct gate_member *member, uint64_t now) {
    uint64_t until = member->active_until_ns;
    return until > now && until < now + LONGEST_WORK_NS + ACTIVE_NS;
}

static bool is_waiting(const struct gate_member *member, uint64_t now) {
    uint64_t since = member->waiting_ns;
    return since && since <= now + STALE_NS && since + STALE_NS > now;
}

bool turn_contended(uint64_t now) {
    if (now < plain_until_ns) return false;
    for (unsigned index = 0; index < GATE_MEMBERS; index++)
        if (is_peer(index) && is_active(&gate.card->member[index], now)) return true;
    return false;
}

// A slice that comes back from idleness starts level with those that are there: it neither owes nor is owed.
static void join(uint64_t now) {
    uint64_t least = UINT64_MAX;
    for (unsigned index = 0; index < GATE_MEMBERS; index++)
        if (is_peer(index) && is_active(&gate.card->member[index], now) && gate.card->member[index].virtual_ns < least)
            least = gate.card->member[index].virtual_ns;
    if (least != UINT64_MAX && self()->virtual_ns < least) self()->virtual_ns = least;
}

void turn_active(uint64_t now, uint64_t outstanding_ns) {
    struct gate_member *member = self();
    if (member->active_until_ns < now) join(now);
    uint64_t work = outstanding_ns < LONGEST_WORK_NS ? outstanding_ns : LONGEST_WORK_NS;
    member->active_until_ns = now + ACTIVE_NS + work;
    member->active_ns = now;
    member->returns_ns = 0;
}

// With nothing on the card, and kept off it by its own limit for so long: until then lower classes may have it. Peers go
// on reckoning with it.
void turn_away(uint64_t now, uint64_t for_ns) {
    struct gate_member *member = self();
    member->active_until_ns = now + ACTIVE_NS;
    member->returns_ns = now + (for_ns < LONGEST_AWAY_NS ? for_ns : LONGEST_AWAY_NS);
}

void turn_charge(uint64_t busy_ns) { self()->virtual_ns += weighted(busy_ns); }

// The peer that waits and has had least; GATE_MEMBERS when none waits.
static unsigned next_peer(uint64_t now) {
    unsigned best = GATE_MEMBERS;
    for (unsigned index = 0; index < GATE_MEMBERS; index++) {
        const struct gate_member *member = &gate.card->member[index];
        if (!is_peer(index) || !is_waiting(member, now)) continue;
        if (best == GATE_MEMBERS || member->virtual_ns < gate.card->member[best].virtual_ns) best = index;
    }
    return best;
}

static bool goes_before(unsigned peer, uint64_t outstanding_ns) {
    return peer == GATE_MEMBERS || self()->virtual_ns + weighted(outstanding_ns) <= gate.card->member[peer].virtual_ns;
}

static bool hand_over(uint32_t from, uint32_t to, uint64_t now) {
    struct gate_turn *turn = own_turn();
    if (!atomic_compare_exchange_strong(&turn->holder, &from, to)) return false;
    turn->until_ns = now + quantum_ns();
    gate_wake(&turn->holder, true);
    return true;
}

void turn_forget(void) {
    plain_until_ns = waiting_since_ns = 0;
    held_turn = 0;
}

bool turn_held(void) { return own_turn()->holder == gate.member + 1; }

void turn_release(uint64_t now) {
    self()->waiting_ns = 0;
    if (!turn_held()) return;
    unsigned peer = next_peer(now);
    held_turn = 0;
    hand_over(gate.member + 1, peer == GATE_MEMBERS ? 0 : peer + 1, now);
}

// The turn is ours: as much as ends within it, and one launch at least.
static enum admission admit_in_turn(uint64_t now, uint64_t outstanding_ns, uint64_t expected_ns) {
    struct gate_turn *turn = own_turn();
    self()->waiting_ns = waiting_since_ns = 0;
    if (!held_turn) turn->until_ns = now + quantum_ns();  // from when it is noticed, not from when it was handed over
    held_turn = 1;
    uint64_t until = turn->until_ns;
    if (until > now + quantum_ns()) until = now + quantum_ns();
    if (now < until && (!outstanding_ns || now + outstanding_ns + expected_ns <= until)) return ADMITTED;
    unsigned peer = next_peer(now);
    if (goes_before(peer, outstanding_ns)) {
        if (outstanding_ns >= quantum_ns()) return AWAIT_WORK;
        turn->until_ns = now + quantum_ns();
        return ADMITTED;
    }
    if (budget_in_flight()) return AWAIT_WORK;
    held_turn = 0;
    hand_over(gate.member + 1, peer + 1, now);
    self()->waiting_ns = now;
    return AWAIT_TURN;
}

// Turns that do not come round, whatever the reason: on without them, and no longer fair than the driver is.
static bool gives_up(uint64_t now) {
    if (!waiting_since_ns) waiting_since_ns = now;
    if (now - waiting_since_ns < LONGEST_WORK_NS + 2 * weighted(quantum_ns())) return false;
    waiting_since_ns = 0;
    plain_until_ns = now + PLAIN_NS;
    gate.slot->turn_timeouts++;
    return true;
}

enum admission turn_admits(uint64_t now, uint64_t outstanding_ns, uint64_t expected_ns) {
    struct gate_turn *turn = own_turn();
    uint32_t holder = turn->holder, me = gate.member + 1;
    if (holder == me) return admit_in_turn(now, outstanding_ns, expected_ns);
    held_turn = 0;
    if (gives_up(now)) return ADMITTED;
    self()->waiting_ns = now;
    bool known = holder && holder <= GATE_MEMBERS && is_peer(holder - 1);
    uint64_t silent = known ? gate.card->member[holder - 1].active_until_ns : 0;
    if (known && silent < now + LONGEST_WORK_NS + ACTIVE_NS && silent + STALE_NS > now) return AWAIT_TURN;
    // Nobody has it, or nobody alive.
    unsigned peer = next_peer(now);
    uint32_t next = goes_before(peer, outstanding_ns) ? me : peer + 1;
    if (known) gate.slot->turn_timeouts++;
    hand_over(holder, next, now);
    return turn_held() ? admit_in_turn(now, outstanding_ns, expected_ns) : AWAIT_TURN;
}

void turn_await(void) {
    struct gate_turn *turn = own_turn();
    uint32_t holder = turn->holder;
    if (holder != gate.member + 1) gate_wait(&turn->holder, holder, LONGEST_NAP_NS, true);
}

static bool is_superior(unsigned index) {
    uint32_t present = gate.card->member[index].present;
    return present && present <= own_class();
}

bool turn_has_superiors(void) {
    for (unsigned index = 0; own_class() && index < GATE_MEMBERS; index++)
        if (is_superior(index)) return true;
    return false;
}

// One that is away counts as active again from its return on, though it takes a moment to wake.
uint64_t turn_gap(uint64_t now) {
    uint64_t window = (uint64_t)gate.control->activity_window_us * 1000, gap = UINT64_MAX;
    for (unsigned index = 0; index < GATE_MEMBERS; index++) {
        if (!is_superior(index)) continue;
        const struct gate_member *member = &gate.card->member[index];
        uint64_t active = member->active_ns, returns = member->returns_ns;
        if (returns > now && returns - now <= 2 * LONGEST_AWAY_NS) {
            if (returns - now < gap) gap = returns - now;
            continue;
        }
        if ((active <= now && now - active < window) || (returns <= now && now - returns < window)) return 0;
    }
    return gap;
}
