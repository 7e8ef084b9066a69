// The child of a fork has no part in its parent's slot, memory or streams.
#include "contexts.h"
#include "ledger.h"
#include "pacing/collector.h"
#include "quota.h"
#include "reserves.h"

static void forked(void) {
    bool was_gated = gate.slot != NULL;
    gate_reset();
    if (!was_gated) return;  // nothing was launched or charged
    contexts_reset();
    collector_reset();
    ledger_reset();
    quota_reset();
    reserves_reset();
}

__attribute__((constructor)) static void begin(void) { pthread_atfork(NULL, NULL, forked); }
