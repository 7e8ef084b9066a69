// What the parts of the gate share.
#ifndef GATE_H
#define GATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "cuda.h"
#include "layout.h"

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define HOOK __attribute__((visibility("default")))

// One process's place in its slice; region.c.
struct gate {
    const struct gate_control *control;
    struct gate_usage *usage;
    struct gate_card *card;
    struct gate_slot *slot;  // NULL until the process has one, and again in a child after fork
    unsigned member;
    uint32_t cards;          // moves to other cards that it has followed
    bool missing;            // the files are not there: this process runs without its limits
};
extern struct gate gate;

// Whether this process is gated. Takes a slot at the first call, so any hook begins with it.
bool gate_attach(void);
// The slice has moved to another card: its neighbours are others from now on. region.c
void gate_follow(void);
static inline bool gate_ready(void) { return LIKELY(gate.slot != NULL) || gate_attach(); }

// Charges memory to the slice: false when the cap does not allow it. region.c
bool gate_charge(uint64_t bytes);
void gate_release_quota(uint64_t bytes);
uint64_t gate_charged(void);  // by all processes of the slice
// Empties the slots of processes that died without giving them back.
void gate_reap_dead(void);

uint64_t gate_now(void);
// Waits for a word to change, or for a time; shared between processes or not.
void gate_wait(_Atomic uint32_t *word, uint32_t value, uint64_t nanoseconds, bool shared);
void gate_wake(_Atomic uint32_t *word, bool shared);

// Before and after each launch; pacing.c. What the first returns the second wants.
struct lane;
struct lane *gate_enter(CUstream stream, bool graph);
void gate_leave(struct lane *lane);
// A stream or a context is about to go.
void gate_forget_stream(CUstream stream);
void gate_forget_context(CUcontext context);

// Whether the slice may put more work on its card now, and if not, what to wait for; turns.c.
enum admission { ADMITTED, AWAIT_TURN, AWAIT_WORK };
bool turn_contended(uint64_t now);
enum admission turn_admits(uint64_t now, uint64_t outstanding_ns, uint64_t expected_ns);
void turn_await(void);
void turn_active(uint64_t now, uint64_t outstanding_ns);
void turn_away(uint64_t now, uint64_t for_ns);
void turn_charge(uint64_t busy_ns);
void turn_release(uint64_t now);
void turn_forget(void);  // what was to be waited for on another card
bool turn_held(void);
// Whether a higher class is on the card at all, and for how long none will want it: 0 while one is active.
bool turn_has_superiors(void);
uint64_t turn_gap(uint64_t now);

// Device time of the whole slice; budget.c.
uint64_t budget_count(uint64_t busy_ns, uint64_t now);  // what of it may be counted: no more than time has passed
void budget_begin(uint64_t now);
uint64_t budget_limit_wait(uint64_t now, uint64_t outstanding_ns);
void budget_charge(uint64_t busy_ns, uint64_t now);
bool budget_floor_allows(uint64_t now);
void budget_charge_floor(uint64_t busy_ns, uint64_t now);
void budget_meet_floor(uint64_t expected_ns, uint64_t now);  // it had so much without the floor
uint64_t budget_in_flight(void);  // launches of all processes
uint64_t budget_outstanding(void);  // and the time that they are expected to take

// In a child after fork.
void pacing_reset(void);
void ledger_reset(void);

// The driver's own function behind a hook; resolve.c.
void *gate_resolve(int hook);

#endif
