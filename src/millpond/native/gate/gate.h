// What all parts of the gate are written with.
#ifndef GATE_H
#define GATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

#include "cuda.h"
#include "layout.h"

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define APART __attribute__((noinline))  // so that what calls it saves no registers for its sake
#define HOOK __attribute__((visibility("default")))

// Pages of zeros of the gate's own, as the program's malloc may be one that allocates device memory; NULL where there are none.
static inline void *fresh_pages(size_t size) {
    void *found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return found == MAP_FAILED ? NULL : found;
}

// A thread that is cancelled while the gate holds it back would leave with locks and counts.
static inline int hold_cancellation(void) {
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}
static inline void allow_cancellation(int before) { pthread_setcancelstate(before, &before); }

#endif
