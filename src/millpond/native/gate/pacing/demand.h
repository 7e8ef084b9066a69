// How much of the card's time each slice would use by itself, and so how much room others leave.
#ifndef GATE_DEMAND_H
#define GATE_DEMAND_H

#include "region.h"

#define WHOLE_CARD 1000u

uint32_t demand_of(const struct gate_member *member, uint64_t now);  // in thousandths; all of it while unknown
bool demand_is_known(uint64_t now);   // one's own
bool demand_is_doubted(uint64_t now); // a moment ago it was seen not to hold, as launches take something else
bool demand_is_hindered(void);        // beside others much less of it came, when last seen

// A slice's use from now on says what it would use by itself; up to `demand_end`, which says it if that was long enough.
void demand_begin(uint64_t now);
void demand_end(uint64_t now, bool beside);
void demand_excuse(uint64_t nanoseconds);  // for which the gate itself kept a thread from launching
void demand_correct(uint64_t now);    // a launch took something else than it was counted for: so is what is known wrong
void demand_drop(void);               // it says nothing: the slice rested, or others were in its way
// Going beside others without turns, it should find the card idle now and then: if not, what is remembered of the time before
// it was idle does not hold, and the next turn is the slice's alone, and says.
void demand_question(uint64_t now);
void demand_resume(void);             // it was idle, and may do something else from now on
// Work that a thread launched from one instant to another. Delayed: by earlier work.
void demand_count(uint64_t began_ns, uint64_t launched_ns, uint64_t busy_ns, bool delayed);
void demand_look(uint64_t now, bool beside);  // what is known so far, while the window goes on beside others or not

#endif
