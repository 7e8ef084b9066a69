// Whether the slice may put more work on its card now, and if not, what to wait for.
#ifndef GATE_TURNS_H
#define GATE_TURNS_H

#include "region.h"

enum admission { ADMITTED, AWAIT_TURN, AWAIT_WORK, AWAIT_ROOM };

// In nanoseconds of the card's time, as far as is known.
struct work {
    uint64_t outstanding_ns;  // of this process, in flight
    uint64_t left_ns;         // of that, what is not done yet
    uint64_t expected_ns;     // that is asked for
};

void turn_look(void);               // who is on the card: all that is asked here is about them
bool turn_crowded(uint64_t now);    // together, those who want the card want more than all of it
bool turn_together(uint64_t now);   // and the driver lets each have what it should
bool turn_contended(uint64_t now);  // and it would not
void turn_unneeded(uint64_t now);   // while that is not so
bool turn_shared(uint64_t now);     // others may be on the card meanwhile
unsigned turn_others(uint64_t now); // how many of the class want the card
bool turn_settles(uint64_t now);    // the turn has just begun: what others had on the card may not be done yet
enum admission turn_admits(uint64_t now, const struct work *work);
uint64_t turn_overlap_in(uint64_t left_ns);  // when the turn may be passed on though so much work is left
void turn_await(uint64_t longest_ns);
void turn_active(uint64_t now, uint64_t outstanding_ns);
void turn_away(uint64_t now, uint64_t for_ns);
void turn_charge(uint64_t busy_ns, uint64_t now);
void turn_release(uint64_t now);
void turn_forget(void);  // what was to be waited for on another card
bool turn_held(void);
// Whether a higher class is on the card at all, and for how long none will want it: 0 while one is active.
bool turn_has_superiors(void);
bool turn_awaited_below(uint64_t now);     // lower classes have work, and wait for this one to rest
bool turn_superiors_about(uint64_t now);  // one of them was active in the last seconds
uint64_t turn_gap(uint64_t now);

#endif
