// Time that passes only while everybody rests, in place of the machine's; see clock.c.
#ifndef FAKE_CLOCK_H
#define FAKE_CLOCK_H

#include "state.h"

uint64_t fake_clock_now(void);

// A thread begins to take part, awake, and ceases to. The caller's, or that of one which it is about to start.
int fake_clock_join(void);
void fake_clock_leave(int sleeper);
// All threads of a process that was killed.
void fake_clock_drop(int32_t process);
// Whether a process takes no part because it waits for an order, or has yet to see that it is there.
void fake_clock_set_reading(int32_t process, bool reads);
bool fake_clock_reads(int32_t process);

// Rests for a time; while the word has the value, if there is one, and until somebody wakes somebody. False if so much
// real time has gone by that those who are awake will hardly ever rest; 0 for any patience.
bool fake_clock_rest(int sleeper, uint64_t nanoseconds, const volatile uint32_t *word, uint32_t value, int patience_s);
void fake_clock_wake(void);
// Waits until nobody but the caller is awake, so that what others do at this instant is done; false as above.
bool fake_clock_settle(int patience_s);
// Computes for so long: to the point, as nobody has to wake up.
void fake_clock_spend(int sleeper, uint64_t nanoseconds);

#endif
