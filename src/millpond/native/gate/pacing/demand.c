// A program that launches one short kernel after the other uses a part of the card only, and what it leaves should not go
// to waste while it has its turn. What it would use by itself is seen while nobody is in its way: alone in a turn of its
// own, or while all together leave room. It counts for two seconds, unless more comes of it beside others; whoever comes
// back within them is taken to do what it did before.
#include "demand.h"

#define SHORTEST_NS 1000000ull    // that says anything
#define WINDOW_NS 30000000ull
#define FIRST_WINDOW_NS 5000000ull // while nothing is known, or more is used than that
#define KNOWN_NS 2000000000ull
#define QUEUE_NS 15000000ull      // without a launch that did not have to wait: then more is wanted of the card than there is
#define MOST_CORRECTIONS 4
#define DOUBT_NS 100000000ull
#define NEARLY_MILLI 800u         // whoever uses so much uses it all: turns begin and end with a pause

uint32_t demand_of(const struct gate_member *member, uint64_t now) {
    uint64_t until = member->demand_until_ns, demand = member->demand_milli;
    return until > now && until - now <= KNOWN_NS && demand < WHOLE_CARD ? (uint32_t)demand : WHOLE_CARD;
}

bool demand_is_known(uint64_t now) { return gate.card->member[gate.member].demand_until_ns > now; }

static _Atomic uint64_t excused_ns;       // of the window, for which this process's threads were held up by the gate itself
static _Atomic uint64_t delayed_busy_ns;  // of the window, by this process, that had to wait for earlier work
static unsigned windows;
static bool corrected;         // what was counted in the window is not what it was
static uint64_t doubted_ns;    // when what was known was last given up for that
static unsigned corrections;   // windows in a row of which that is so
static uint64_t alone_milli;  // what it would use, as seen when nobody was in its way
static bool hindered;
static uint64_t queued_from_ns;  // since when all work of this process had to wait for earlier work; 0 when the last did not
static bool remembered;          // what is known is from before the slice was idle, and was not in doubt since

bool demand_is_hindered(void) { return hindered; }
bool demand_is_doubted(uint64_t now) { return now - doubted_ns < DOUBT_NS; }

// What is remembered is seen not to hold: the next turn is the slice's alone, and says.
static void forget(void) {
    remembered = false;
    gate.card->member[gate.member].demand_until_ns = 0;
    demand_drop();
}

// What was launched over a span, of the card's time and of its thread's.
static void say(uint64_t busy_ns, uint64_t span, uint64_t now, bool beside) {
    struct gate_member *member = &gate.card->member[gate.member];
    uint64_t delayed_ns = atomic_exchange(&delayed_busy_ns, 0);
    uint64_t found = busy_ns < span ? busy_ns * WHOLE_CARD / span : WHOLE_CARD, known = demand_of(member, now);
    uint64_t said = found > NEARLY_MILLI || delayed_ns > busy_ns / 2 ? WHOLE_CARD : found;
    hindered = beside && known < WHOLE_CARD && found * 4 < known * 3;
    if (hindered && remembered && windows++) {
        forget();
        return;
    }
    // Beside others work waits for theirs, and it could use more than comes of it; but they may have some of what it leaves.
    if (hindered) member->demand_milli = (alone_milli + found) / 2;
    if (beside && known < WHOLE_CARD && found * 8 <= known * 9) return;
    // The first may have had work of others in it, and guesses of how long launches take: it says no more than it must.
    member->demand_milli = windows++ || said > known ? said : known;
    member->demand_until_ns = now + KNOWN_NS;
    alone_milli = member->demand_milli;
}

void demand_question(uint64_t now) {
    if (remembered && queued_from_ns && now - queued_from_ns > QUEUE_NS) forget();
}

void demand_begin(uint64_t now) {
    uint64_t none = 0;
    if (gate.usage->demand_from_ns) return;
    gate.usage->demand_busy_ns = delayed_busy_ns = excused_ns = 0;
    corrected = false;
    atomic_compare_exchange_strong(&gate.usage->demand_from_ns, &none, now);
}

// Whether launches took something else than what they were counted for. With kernels of many lengths that is always so.
static bool is_miscounted(void) {
    bool miscounted = corrected && corrections < MOST_CORRECTIONS;
    corrections = corrected ? corrections + 1 : 0;
    corrected = false;
    return miscounted;
}

static void take(uint64_t now, uint64_t at_least, uint64_t next, bool beside) {
    uint64_t from = gate.usage->demand_from_ns;
    if (!from || now < from + at_least || !atomic_compare_exchange_strong(&gate.usage->demand_from_ns, &from, next)) return;
    uint64_t busy_ns = atomic_exchange(&gate.usage->demand_busy_ns, 0), launched_ns = gate.usage->demand_launched_ns;
    uint64_t span = launched_ns > from && launched_ns <= now ? launched_ns - from : 0, excused = atomic_exchange(&excused_ns, 0);
    if (excused < span) span -= excused;
    if (is_miscounted()) return;
    if (span >= SHORTEST_NS || busy_ns >= SHORTEST_NS) say(busy_ns, span, now, beside);
}

void demand_correct(uint64_t now) {
    corrected = true;
    if (demand_is_doubted(now) || !demand_is_known(now)) return;
    doubted_ns = now;
    forget();
}

void demand_excuse(uint64_t nanoseconds) { excused_ns += nanoseconds; }

void demand_drop(void) { gate.usage->demand_from_ns = 0; }

void demand_resume(void) {
    demand_drop();
    windows = 0;
    queued_from_ns = 0;
    remembered = true;
}

void demand_end(uint64_t now, bool beside) { take(now, 0, 0, beside); }

void demand_look(uint64_t now, bool beside) {
    uint64_t from = gate.usage->demand_from_ns, known = demand_of(&gate.card->member[gate.member], now);
    bool more = known == WHOLE_CARD || gate.usage->demand_busy_ns * WHOLE_CARD > (now - from) * known / 4 * 5;
    take(now, more ? FIRST_WINDOW_NS : WINDOW_NS, now, beside);
}

void demand_count(uint64_t began_ns, uint64_t launched_ns, uint64_t busy_ns, bool delayed) {
    if (!delayed) queued_from_ns = 0;
    else if (!queued_from_ns) queued_from_ns = began_ns;
    uint64_t from = gate.usage->demand_from_ns;
    if (!from || began_ns < from) return;
    // Not from the middle of a batch.
    if (!gate.usage->demand_busy_ns) atomic_compare_exchange_strong(&gate.usage->demand_from_ns, &from, began_ns);
    gate.usage->demand_busy_ns += busy_ns;
    if (delayed) delayed_busy_ns += busy_ns;
    if (launched_ns > gate.usage->demand_launched_ns) gate.usage->demand_launched_ns = launched_ns;
}
