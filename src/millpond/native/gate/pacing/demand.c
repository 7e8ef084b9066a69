// A program that launches one short kernel after the other uses a part of the card only, and what it leaves should not go
// to waste while it has its turn. What it would use by itself is seen while nobody is in its way: alone in a turn of its
// own, or while all together leave room. It counts for two seconds, unless more comes of it beside others; whoever comes
// back within them is taken to do what it did before. A program that waits for each launch does not queue up meanwhile what
// others beside it hold up: if much less comes of it there, it counts as using the whole card, and has its turns alone.
#include "demand.h"

#include "budget.h"

#define SHORTEST_NS 1000000ull      // that says anything
#define WINDOW_NS 30000000ull
#define FIRST_WINDOW_NS 5000000ull  // while nothing is known, or what is seen differs from that
#define KNOWN_NS 2000000000ull
#define NEARLY_MILLI 800u           // whoever uses so much uses it all: turns begin and end with a pause

uint32_t demand_of(const struct gate_member *member, uint64_t now) {
    uint64_t until = member->demand_until_ns, demand = member->demand_milli;
    return until > now && until - now <= KNOWN_NS && demand < WHOLE_CARD ? (uint32_t)demand : WHOLE_CARD;
}

bool demand_is_known(uint64_t now) { return gate.card->member[gate.member].demand_until_ns > now; }

// Of the window, by this process:
static _Atomic uint64_t excused_ns;       // for which its threads were held up by the gate itself
static _Atomic uint64_t delayed_busy_ns;  // of work that had to wait for earlier work
static unsigned windows;

bool demand_is_sure(uint64_t now) { return demand_is_known(now) && (windows > 1 || now < gate.usage->alone_until_ns); }

// Much less came of it than it would use by itself, even with what is under way.
static bool is_slowed(uint64_t busy_ns, uint64_t span, uint64_t known, uint64_t now) {
    return busy_ns + budget_outstanding(now) < span * known / WHOLE_CARD / 4 * 3;
}

// What was launched over a span, of the card's time and of its thread's.
static void say(uint64_t busy_ns, uint64_t span, uint64_t now, bool beside) {
    struct gate_member *member = &gate.card->member[gate.member];
    uint64_t delayed_ns = atomic_exchange(&delayed_busy_ns, 0);
    uint64_t found = busy_ns < span ? busy_ns * WHOLE_CARD / span : WHOLE_CARD, known = demand_of(member, now);
    uint64_t said = found > NEARLY_MILLI || delayed_ns > busy_ns / 2 ? WHOLE_CARD : found;
    if (now < gate.usage->alone_until_ns && gate.usage->beside_milli * 4 < found * 3) return;
    bool was_beside = beside && known < WHOLE_CARD, slowed = was_beside && is_slowed(busy_ns, span, known, now);
    if (was_beside && !slowed && found * 8 <= known * 9) return;
    if (slowed) said = WHOLE_CARD, gate.usage->beside_milli = found;
    gate.usage->alone_until_ns = slowed ? now + KNOWN_NS : 0;
    // The first may have had work of others in it, and guesses of how long launches take: it says no more than it must.
    member->demand_milli = windows++ || said > known ? said : known;
    member->demand_until_ns = now + KNOWN_NS;
}

void demand_begin(uint64_t now) {
    uint64_t none = 0;
    if (gate.usage->demand_from_ns) return;
    gate.usage->demand_busy_ns = delayed_busy_ns = excused_ns = 0;
    atomic_compare_exchange_strong(&gate.usage->demand_from_ns, &none, now);
}

static void take(uint64_t now, uint64_t at_least, uint64_t next, bool beside) {
    uint64_t from = gate.usage->demand_from_ns;
    if (!from || now < from + at_least) return;
    if (!atomic_compare_exchange_strong(&gate.usage->demand_from_ns, &from, next)) return;
    uint64_t busy_ns = atomic_exchange(&gate.usage->demand_busy_ns, 0), launched_ns = gate.usage->demand_launched_ns;
    uint64_t span = launched_ns > from && launched_ns <= now ? launched_ns - from : 0;
    uint64_t excused = atomic_exchange(&excused_ns, 0);
    if (excused < span) span -= excused;
    if (!busy_ns) busy_ns = budget_outstanding(now);  // of launches longer than the window
    if (span >= SHORTEST_NS || busy_ns >= SHORTEST_NS) say(busy_ns, span, now, beside);
}

void demand_excuse(uint64_t nanoseconds) { excused_ns += nanoseconds; }

void demand_drop(void) { gate.usage->demand_from_ns = 0; }

void demand_resume(void) {
    demand_drop();
    windows = 0;
}

void demand_end(uint64_t now, bool beside) { take(now, 0, 0, beside); }

// Sooner where more comes of it than was known, or much less beside others.
void demand_look(uint64_t now, bool beside) {
    uint64_t from = gate.usage->demand_from_ns, known = demand_of(&gate.card->member[gate.member], now);
    uint64_t busy_ns = gate.usage->demand_busy_ns;
    bool more = known == WHOLE_CARD || busy_ns * WHOLE_CARD > (now - from) * known / 4 * 5;
    bool differs = more || (beside && is_slowed(busy_ns, now - from, known, now));
    take(now, differs ? FIRST_WINDOW_NS : WINDOW_NS, now, beside);
}

void demand_count(uint64_t began_ns, uint64_t launched_ns, uint64_t busy_ns, bool delayed) {
    uint64_t from = gate.usage->demand_from_ns;
    if (!from || began_ns < from) return;
    // Not from the middle of a batch.
    if (!gate.usage->demand_busy_ns) atomic_compare_exchange_strong(&gate.usage->demand_from_ns, &from, began_ns);
    gate.usage->demand_busy_ns += busy_ns;
    if (delayed) delayed_busy_ns += busy_ns;
    if (launched_ns > gate.usage->demand_launched_ns) gate.usage->demand_launched_ns = launched_ns;
}
