#ifndef FAKE_EXECUTION_H
#define FAKE_EXECUTION_H

#include "state.h"

// Executes what is queued on a device up to the given time; with the lock held.
void fake_execute(int device, uint64_t now);

// Queues an operation on a context of the caller: a kernel of so many nanoseconds, or an event (its index, else -1).
// Waits while the queue is full. Returns the operation's sequence number.
uint64_t fake_submit(int context, uint64_t duration_ns, int event);

// Waits until the context has completed so many operations.
void fake_await(int context, uint64_t sequence);

#endif
