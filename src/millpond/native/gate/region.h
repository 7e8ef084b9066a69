// The process's place in its slice, and what the processes of a slice share.
#ifndef GATE_REGION_H
#define GATE_REGION_H

#include "gate.h"

struct gate {
    const struct gate_control *control;
    struct gate_usage *usage;
    struct gate_card *card;
    struct gate_slot *slot;  // NULL until the process has one, and again in a child after fork
    unsigned member;
    uint32_t cards;          // moves to other cards that it has followed; one less while it has to map the card's file anew
    bool open;               // this process is in no slice, or its slice's files are gone: it runs without limits
};
extern struct gate gate;

// Whether this process is gated. Takes a slot at the first call, so any hook begins with it.
bool gate_attach(void);
static inline bool gate_ready(void) { return LIKELY(gate.slot != NULL) || gate_attach(); }
// The slice has moved to another card: its neighbours are others from now on; or its card's file was cut short, and is
// mapped anew. False when the new card is not there yet.
bool gate_follow(void);
// In a child after fork: no part in the parent's slot.
void gate_reset(void);

// Charges memory to the slice: false when the cap does not allow it.
bool gate_charge(uint64_t bytes);
void gate_charge_anyway(uint64_t bytes);  // what has been taken already
bool gate_over_cap(void);
void gate_release_quota(uint64_t bytes);
uint64_t gate_charged(void);  // what counts against the cap, of all processes of the slice
// Empties the slots of processes that died without giving them back.
void gate_reap_dead(void);
// Lets the kernel say again who has the slot, where the program has closed the file that does.
void gate_keep_place(void);

uint64_t gate_now(void);
// Waits for a word to change, or for a time; shared between processes or not.
void gate_wait(_Atomic uint32_t *word, uint32_t value, uint64_t nanoseconds, bool shared);
void gate_wake(_Atomic uint32_t *word, bool shared);

#endif
