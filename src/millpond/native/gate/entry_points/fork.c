// The child of a fork has no part in its parent's slot, memory or streams.
#include "ledger.h"
#include "pacing/collector.h"

static void forked(void) {
    bool was_gated = gate.slot != NULL;
    gate_reset();
    if (!was_gated) return;  // nothing was launched or charged
    collector_reset();
    ledger_reset();
}

__attribute__((constructor)) static void begin(void) { pthread_atfork(NULL, NULL, forked); }
