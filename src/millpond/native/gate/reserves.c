#include "reserves.h"

#include <string.h>

#include "hooks.h"
#include "quota.h"

#define POOLS 256

struct reserve {
    void *pool;  // NULL for the memory of graphs
    bool host;
    uint64_t charged;
};

static struct reserve pools[POOLS], graphs;
static unsigned pool_count;
static bool graphs_used;
static CUdevice graphs_device;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void reserves_reset(void) {
    pthread_mutex_init(&mutex, NULL);
    memset(pools, 0, sizeof pools);
    memset(&graphs, 0, sizeof graphs);
    pool_count = 0;
    graphs_used = false;
}

static bool pool_attribute(void *pool, int attribute, uint64_t *value) {
    *value = 0;
    return !REAL_AS(cuMemPoolGetAttribute, CUresult(void *, int, void *))(pool, attribute, value);
}

// A reserve that the driver knows nothing of is gone.
static uint64_t attribute(const struct reserve *reserve, int of_pool, int of_graphs) {
    uint64_t value = 0;
    if (reserve->pool) pool_attribute(reserve->pool, of_pool, &value);
    else REAL_AS(cuDeviceGetGraphMemAttribute, CUresult(CUdevice, int, void *))(graphs_device, of_graphs, &value);
    return value;
}

static uint64_t reserved(const struct reserve *reserve) {
    return attribute(reserve, CUDA_POOL_RESERVED, CUDA_GRAPHS_RESERVED);
}

static uint64_t idle(const struct reserve *reserve) {
    uint64_t used = attribute(reserve, CUDA_POOL_USED, CUDA_GRAPHS_USED), all = reserved(reserve);
    return all > used ? all - used : 0;
}

static bool is_of_host(void *pool) {
    uint64_t location = 0;
    return pool_attribute(pool, CUDA_POOL_LOCATION_TYPE, &location) && cuda_location_is_host((int)location);
}

static struct reserve *find(void *pool) {
    for (unsigned index = 0; index < pool_count; index++)
        if (pools[index].pool == pool) return &pools[index];
    return NULL;
}

static struct reserve *make(void *pool, bool host) {
    struct reserve *place = find(NULL);
    if (!place && pool_count < POOLS) place = &pools[pool_count++];
    if (place) *place = (struct reserve){pool, host, 0};
    return place;
}

struct reserve *reserve_of_pool(void *pool, bool *host) {
    pthread_mutex_lock(&mutex);
    struct reserve *found = find(pool);
    if (!found) found = make(pool, is_of_host(pool));
    *host = found && found->host;
    pthread_mutex_unlock(&mutex);
    return *host ? NULL : found;
}

void reserve_note_host(void *pool) {
    pthread_mutex_lock(&mutex);
    if (!find(pool)) make(pool, true);
    pthread_mutex_unlock(&mutex);
}

// With the lock held. What is allocated from a pool that is destroyed stays, and stays charged.
static void match(struct reserve *reserve, uint64_t claimed, uint64_t now) {
    uint64_t before = reserve->charged + claimed;
    if (now > before) gate_charge_anyway(now - before);
    else gate_release_quota(before - now);
    reserve->charged = now;
}

struct reserve *reserve_of_graphs(void) { return graphs_used ? &graphs : NULL; }

// A slice is on one card, so whose memory it is does not change.
void reserve_begin_graphs(void) {
    if (graphs_used) return;
    REAL_AS(cuCtxGetDevice, CUresult(CUdevice *))(&graphs_device);
    graphs_used = true;
}

void reserve_end_pool(void *pool) {
    uint64_t used = 0;
    pthread_mutex_lock(&mutex);
    struct reserve *found = find(pool);
    if (found) {
        if (!found->host && pool_attribute(pool, CUDA_POOL_USED, &used)) match(found, 0, used);
        *found = (struct reserve){0};
    }
    pthread_mutex_unlock(&mutex);
}

bool reserve_claim(struct reserve *reserve, uint64_t bytes, uint64_t *claimed) {
    *claimed = idle(reserve) >= bytes ? 0 : quota_rounded(bytes, GRANULE);
    return !*claimed || quota_charge_exactly(*claimed);
}

bool reserve_settle(struct reserve *reserve, uint64_t claimed) {
    pthread_mutex_lock(&mutex);
    uint64_t now = reserved(reserve);
    bool grew = now > reserve->charged + claimed;
    match(reserve, claimed, now);
    pthread_mutex_unlock(&mutex);
    return !grew || !gate_over_cap();
}

void reserves_settle(void) {
    for (unsigned index = 0; index < pool_count; index++)
        if (pools[index].pool && !pools[index].host) reserve_settle(&pools[index], 0);
    if (graphs_used) reserve_settle(&graphs, 0);
}

// Trimming is no part of what a stream captures.
bool reserves_trim(void) {
    uint64_t before = gate_charged();
    if (!pool_count && !graphs_used) return false;
    int mode = exchange_capture_mode(CUDA_CAPTURE_RELAXED);
    for (unsigned index = 0; index < pool_count; index++)
        if (pools[index].pool && !pools[index].host) REAL_AS(cuMemPoolTrimTo, CUresult(void *, size_t))(pools[index].pool, 0);
    if (graphs_used) REAL_AS(cuDeviceGraphMemTrim, CUresult(CUdevice))(graphs_device);
    exchange_capture_mode(mode);
    reserves_settle();
    return gate_charged() < before;
}
