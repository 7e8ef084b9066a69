// Memory of the slice as the driver takes it from the card: every charge and refund of device memory goes through here.
#ifndef GATE_QUOTA_H
#define GATE_QUOTA_H

#include "region.h"

#define GRANULE (2ull << 20)  // what the driver takes from the card at a time

uint64_t quota_rounded(uint64_t bytes, uint64_t unit);
// Charges an allocation: false when the cap does not allow it, even after idle reserves were given back.
bool quota_charge(uint64_t bytes);
void quota_refund(uint64_t bytes);
// Of whole granules, for what is known to the byte.
bool quota_charge_exactly(uint64_t bytes);
// In a child after fork.
void quota_reset(void);

#endif
