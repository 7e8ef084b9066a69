#include "reserves.h"

#include <string.h>

#include "hooks.h"
#include "ledger.h"
#include "quota.h"

#define BLOCK 256
#define BLOCKS 256

struct reserve {
    void *pool;  // NULL for the memory of graphs
    bool host;
    bool ended;  // the pool is destroyed: the driver may not be asked about it, and gives its memory back with the last of it
    uint64_t charged;
    _Atomic unsigned live;  // allocations that are not freed
};

static struct reserve *blocks[BLOCKS], graphs;  // of pools
static _Atomic unsigned pool_count;
static _Atomic bool graphs_used;
static _Atomic CUdevice graphs_device;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void reserves_reset(void) {
    pthread_mutex_init(&mutex, NULL);
    memset(blocks, 0, sizeof blocks);
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

// They never move, as entries of the ledger name them.
static struct reserve *pool_at(unsigned index) { return &blocks[index / BLOCK][index % BLOCK]; }

static struct reserve *find(void *pool) {
    for (unsigned index = 0; index < pool_count; index++)
        if (pool_at(index)->pool == pool && !pool_at(index)->ended) return pool_at(index);
    return NULL;
}

static struct reserve *one_more(void) {
    unsigned block = pool_count / BLOCK;
    if (block == BLOCKS) return NULL;
    if (!blocks[block]) blocks[block] = fresh_pages(BLOCK * sizeof **blocks);
    return blocks[block] ? pool_at(pool_count++) : NULL;
}

static struct reserve *make(void *pool, bool host) {
    struct reserve *place = find(NULL);
    if (!place) place = one_more();
    if (place) *place = (struct reserve){.pool = pool, .host = host};
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

// With the lock held.
static void match(struct reserve *reserve, uint64_t claimed, uint64_t now) {
    uint64_t before = reserve->charged + claimed;
    if (now > before) gate_charge_anyway(now - before);
    else gate_release_quota(before - now);
    reserve->charged = now;
}

struct reserve *reserve_of_graphs(void) { return graphs_used ? &graphs : NULL; }

// A slice is on one card, so whose memory it is does not change.
void reserve_begin_graphs(void) {
    CUdevice device = 0;
    if (graphs_used) return;
    REAL_AS(cuCtxGetDevice, CUresult(CUdevice *))(&device);
    graphs_device = device;
    graphs_used = true;
}

// With the lock held: the pool is no more before anybody else asks about it.
static CUresult end_pool(struct reserve *reserve, pool_function *destroy) {
    uint64_t used = 0;
    if (!reserve->host) pool_attribute(reserve->pool, CUDA_POOL_USED, &used);
    CUresult result = destroy(reserve->pool);
    if (result) return result;
    match(reserve, 0, used);
    reserve->ended = true;
    return result;
}

CUresult reserve_end_pool(void *pool, pool_function *destroy) {
    pthread_mutex_lock(&mutex);
    struct reserve *found = find(pool);
    CUresult result = found ? end_pool(found, destroy) : destroy(pool);
    pthread_mutex_unlock(&mutex);
    return result;
}

// An entry without a charge of its own, whose owner is the reserve.
void reserve_note(struct reserve *reserve, CUdeviceptr pointer) {
    reserve->live++;
    ledger_add((struct charge){.key = pointer, .owner = (uint64_t)reserve});
}

void reserve_refund(const struct charge *charge) {
    if (charge->bytes) quota_refund(charge->bytes);
    else if (charge->owner) ((struct reserve *)charge->owner)->live--;
}

bool reserve_claim(struct reserve *reserve, uint64_t bytes, uint64_t *claimed) {
    *claimed = idle(reserve) >= bytes ? 0 : quota_rounded(bytes, GRANULE);
    return !*claimed || quota_charge_exactly(*claimed);
}

// With the lock held. Whether it has taken more than was claimed.
static bool settle(struct reserve *reserve, uint64_t claimed) {
    uint64_t now = reserve->ended ? reserve->charged : reserved(reserve);
    bool grew = now > reserve->charged + claimed, gone = reserve->ended && !reserve->live;
    match(reserve, claimed, gone ? 0 : now);
    if (gone) *reserve = (struct reserve){0};
    return grew;
}

bool reserve_settle(struct reserve *reserve, uint64_t claimed) {
    pthread_mutex_lock(&mutex);
    bool grew = settle(reserve, claimed);
    pthread_mutex_unlock(&mutex);
    return !grew || !gate_over_cap();
}

// With the lock held: calls a function for each reserve of device memory.
static void for_each(void (*each)(struct reserve *)) {
    for (unsigned index = 0; index < pool_count; index++)
        if (pool_at(index)->pool && !pool_at(index)->host) each(pool_at(index));
    if (graphs_used) each(&graphs);
}

static void settle_one(struct reserve *reserve) { settle(reserve, 0); }

void reserves_settle(void) {
    if (!pool_count && !graphs_used) return;
    pthread_mutex_lock(&mutex);
    for_each(settle_one);
    pthread_mutex_unlock(&mutex);
}

static void trim(struct reserve *reserve) {
    if (!reserve->pool) REAL_AS(cuDeviceGraphMemTrim, CUresult(CUdevice))(graphs_device);
    else if (!reserve->ended) REAL_AS(cuMemPoolTrimTo, CUresult(void *, size_t))(reserve->pool, 0);
    settle(reserve, 0);
}

// Trimming is no part of what a stream captures.
bool reserves_trim(void) {
    uint64_t before = gate_charged();
    if (!pool_count && !graphs_used) return false;
    int mode = exchange_capture_mode(CUDA_CAPTURE_RELAXED);
    pthread_mutex_lock(&mutex);
    for_each(trim);
    pthread_mutex_unlock(&mutex);
    exchange_capture_mode(mode);
    return gate_charged() < before;
}
