// Device time of the whole slice.
#ifndef GATE_BUDGET_H
#define GATE_BUDGET_H

#include "region.h"

uint64_t budget_count(uint64_t busy_ns, uint64_t now);  // what of it may be counted: no more than time has passed
void budget_begin(uint64_t now);
uint64_t budget_limit_wait(uint64_t now, uint64_t outstanding_ns);
uint64_t budget_fill_wait(uint64_t now, uint64_t outstanding_ns, uint32_t room_milli);
void budget_charge_fill(uint64_t busy_ns, uint64_t now, uint32_t room_milli);
void budget_charge(uint64_t busy_ns, uint64_t now);
bool budget_floor_allows(uint64_t now);
void budget_charge_floor(uint64_t busy_ns, uint64_t now);
void budget_meet_floor(uint64_t expected_ns, uint64_t now);  // it had so much without the floor
void budget_expect(uint64_t now);  // this process is there, and says what it has in flight
uint64_t budget_in_flight(uint64_t now);  // launches of all processes
uint64_t budget_outstanding(uint64_t now);  // and the time that they are expected to take

#endif
