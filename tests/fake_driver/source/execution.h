#ifndef FAKE_EXECUTION_H
#define FAKE_EXECUTION_H

#include "state.h"

// Executes what is queued on a device up to the given time; with the lock held.
void fake_execute(int device, uint64_t now);

struct fake_queue {
    int context;    // below 0 for none
    uint8_t stream;
    bool blocking;  // the legacy stream waits for it, and it for that
};

// Queues an operation of the caller: a kernel of so many nanoseconds, or an event (its index, else -1). Waits while the
// context's queue is full. Returns the operation's sequence number.
uint64_t fake_submit(struct fake_queue queue, uint64_t duration_ns, int event);

// What is queued from now on waits for an operation of any context.
void fake_hold(struct fake_queue queue, int context, uint64_t sequence);

// What is queued from now on waits until a word of memory has so large a value at least; or it gets that value.
void fake_use_word(struct fake_queue queue, enum fake_word_use use, uint64_t address, uint32_t value);

// It gets a value at once.
void fake_write_word(int context, uint64_t address, uint32_t value);

// Waits until one operation of the context is done; all before it, too, where `all`.
void fake_await(int context, uint64_t sequence, bool all);

// The last operation that whoever waits for a stream waits for; 0 where none is to be done. With the lock held.
uint64_t fake_last(struct fake_queue queue);

#endif
