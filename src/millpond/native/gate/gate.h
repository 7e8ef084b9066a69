// What all parts of the gate are written with.
#ifndef GATE_H
#define GATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "cuda.h"
#include "layout.h"

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define APART __attribute__((noinline))  // so that what calls it saves no registers for its sake
#define HOOK __attribute__((visibility("default")))

// A thread that is cancelled while the gate holds it back would leave with locks and counts.
static inline int hold_cancellation(void) {
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}
static inline void allow_cancellation(int before) { pthread_setcancelstate(before, &before); }

#endif
