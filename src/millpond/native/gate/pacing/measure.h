// What the launches of a batch took. With the lock of the batches held.
#ifndef GATE_MEASURE_H
#define GATE_MEASURE_H

#include "lanes.h"

void measure_return(void);  // the slice comes back from idleness: what its launches take may have changed

bool measure_has_others(const struct lane *lane);   // work of other streams is in flight, and may be in a batch's span
bool measure_is_queued(const struct batch *batch);  // behind other work: nothing but work is in its span
// Learns from a batch's span, and says how long its launches had the card: as measured while the slice was alone, else as
// launches like these are known to take.
uint64_t measure_batch(const struct batch *batch, uint64_t span, uint64_t now);
// Whether what launches of the lane take should be seen from a single one next.
bool measure_wants_probe(const struct batch *batch, uint64_t now);

#endif
