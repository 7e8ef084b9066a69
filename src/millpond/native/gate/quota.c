// The driver puts small allocations together into granules, and rounds others up to whole ones: a slice is charged for
// the granules.
#include "quota.h"

#include "reserves.h"

#define SMALLEST 512

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t small_bytes;  // of all small allocations

void quota_reset(void) {
    pthread_mutex_init(&mutex, NULL);
    small_bytes = 0;
}

uint64_t quota_rounded(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

bool quota_charge_exactly(uint64_t bytes) {
    if (gate_charge(bytes) || (reserves_trim() && gate_charge(bytes))) return true;
    gate.slot->denials++;
    return false;
}

static bool is_small(uint64_t bytes) { return bytes <= GRANULE / 2; }

bool quota_charge(uint64_t bytes) {
    if (bytes > INT64_MAX) return false;
    if (!is_small(bytes)) return quota_charge_exactly(quota_rounded(bytes, GRANULE));
    pthread_mutex_lock(&mutex);
    uint64_t after = small_bytes + quota_rounded(bytes, SMALLEST);
    uint64_t more = quota_rounded(after, GRANULE) - quota_rounded(small_bytes, GRANULE);
    bool fits = !more || quota_charge_exactly(more);
    if (fits) small_bytes = after;
    pthread_mutex_unlock(&mutex);
    return fits;
}

void quota_refund(uint64_t bytes) {
    if (!is_small(bytes)) {
        gate_release_quota(quota_rounded(bytes, GRANULE));
        return;
    }
    pthread_mutex_lock(&mutex);
    uint64_t after = small_bytes - quota_rounded(bytes, SMALLEST);
    uint64_t less = quota_rounded(small_bytes, GRANULE) - quota_rounded(after, GRANULE);
    small_bytes = after;
    pthread_mutex_unlock(&mutex);
    if (less) gate_release_quota(less);
}
