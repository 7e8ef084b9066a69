// Memory in the order of streams. A pool takes it from the card in pieces, keeps what is freed, and gives back what is
// above its threshold when the program waits for the card; all of that is the pool's, not the allocations'. One that is
// destroyed is there until all of it is freed.
#include <pthread.h>
#include <stdlib.h>

#include "driver_api.h"

#define POOLS 1024

enum attribute { THRESHOLD = 4, RESERVED, RESERVED_HIGH, USED, USED_HIGH, LOCATION_ID = 11, LOCATION_TYPE };
enum { MANAGED = 2 };  // a type of allocation
enum default_pool { OF_DEVICE, OF_HOST, OF_MANAGED, DEFAULT_POOLS };

struct pool { bool exists, of_host, managed, destroyed; int context; uint64_t reserved, used, threshold; };

CUresult memory_release(CUdeviceptr pointer);
void memory_remember_pooled(CUdeviceptr pointer, uint64_t bytes, int context, struct pool *pool);

static struct pool pools[POOLS] = {
    [OF_DEVICE] = {.exists = true},
    [OF_HOST] = {.exists = true, .of_host = true},
    [OF_MANAGED] = {.exists = true, .managed = true},
};
static struct pool *current = pools;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static bool is_host(int type) { return type >= 2 && type <= 4; }


static bool is_alive(const struct pool *pool) { return pool->reserved && fake->contexts[pool->context].used; }

// Down to what is in use, or as much as is to be kept.
static void trim(struct pool *pool, uint64_t keep) {
    uint64_t least = memory_rounded(pool->used, GRANULE);
    if (keep < least) keep = least;
    if (!is_alive(pool)) pool->reserved = pool->used = 0;
    if (pool->reserved <= keep) return;
    if (!pool->of_host) memory_give(pool->context, pool->reserved - keep);
    pool->reserved = keep;
}

void pools_release(void) {
    pthread_mutex_lock(&mutex);
    for (struct pool *pool = pools; pool < pools + POOLS; pool++)
        if (pool->exists && pool->reserved > pool->threshold) trim(pool, pool->threshold);
    pthread_mutex_unlock(&mutex);
}

static void end_if_free(struct pool *pool) {
    if (!pool->destroyed || pool->used) return;
    trim(pool, 0);
    *pool = (struct pool){0};
}

void pool_give(struct pool *pool, uint64_t bytes) {
    pthread_mutex_lock(&mutex);
    pool->used -= memory_rounded(bytes, 512);
    end_if_free(pool);
    pthread_mutex_unlock(&mutex);
}

static bool grow(struct pool *pool, uint64_t wanted) {
    uint64_t piece = fake->pool_piece_bytes > GRANULE ? fake->pool_piece_bytes : GRANULE;
    uint64_t more = memory_rounded(wanted - pool->reserved, piece);
    if (!pool->of_host && !memory_take(pool->context, more)) return false;
    pool->reserved += more;
    return true;
}

static CUresult allocate(CUdeviceptr *pointer, size_t bytes, struct pool *pool, CUstream stream) {
    struct alloc_node_parameters about = {.bytes = bytes};
    if (stream_context(stream) < 0) return INVALID_CONTEXT;
    if (!bytes || !pool->exists || pool->destroyed) return INVALID_VALUE;
    if (stream_capture(stream)) {
        CUresult result = graph_add_allocation(stream_capture(stream), &about, NULL);
        *pointer = about.pointer;
        return result;
    }
    if (pool->managed) fake_self()->uses |= FAKE_USES_MANAGED;
    pthread_mutex_lock(&mutex);
    if (!is_alive(pool)) pool->context = stream_context(stream), pool->reserved = pool->used = 0;
    uint64_t wanted = pool->used + memory_rounded(bytes, 512);
    bool fits = wanted <= pool->reserved || grow(pool, wanted);
    if (fits) pool->used = wanted;
    pthread_mutex_unlock(&mutex);
    if (!fits) return OUT_OF_MEMORY;
    *pointer = memory_map(bytes);
    memory_remember_pooled(*pointer, bytes, pool->context, pool);
    return SUCCESS;
}

API cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    ENTER("cuMemAllocAsync");
    return allocate(pointer, bytes, current, stream);
}

API cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, struct pool *pool, CUstream stream) {
    ENTER("cuMemAllocFromPoolAsync");
    return pool ? allocate(pointer, bytes, pool, stream) : INVALID_VALUE;
}

API cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    ENTER("cuMemFreeAsync");
    if (!stream_capture(stream)) return memory_release(pointer);
    stream_capture(stream)->nodes++;
    return SUCCESS;
}

API cuDeviceGetDefaultMemPool(struct pool **pool, CUdevice device) {
    ENTER("cuDeviceGetDefaultMemPool");
    *pool = pools;
    return visible_device(device) < 0 ? INVALID_DEVICE : SUCCESS;
}

API cuDeviceGetMemPool(struct pool **pool, CUdevice device) {
    ENTER("cuDeviceGetMemPool");
    *pool = current;
    return visible_device(device) < 0 ? INVALID_DEVICE : SUCCESS;
}

API cuDeviceSetMemPool(CUdevice device, struct pool *pool) {
    ENTER("cuDeviceSetMemPool");
    current = pool;
    return visible_device(device) < 0 ? INVALID_DEVICE : SUCCESS;
}

API cuMemGetDefaultMemPool(struct pool **pool, const struct location *location, int type) {
    ENTER("cuMemGetDefaultMemPool");
    *pool = &pools[type == MANAGED ? OF_MANAGED : is_host(location->type) ? OF_HOST : OF_DEVICE];
    return SUCCESS;
}

API cuMemGetMemPool(struct pool **pool, const struct location *location, int type) {
    ENTER("cuMemGetMemPool");
    CUresult result = cuMemGetDefaultMemPool(pool, location, type);
    if (*pool == pools) *pool = current;
    return result;
}

API cuMemPoolCreate(struct pool **pool, const struct pool_properties *properties) {
    ENTER("cuMemPoolCreate");
    struct pool *free_place = pools;
    pthread_mutex_lock(&mutex);
    while (free_place < pools + POOLS && free_place->exists) free_place++;
    if (free_place < pools + POOLS) {
        *free_place = (struct pool){.exists = true, .of_host = is_host(properties->location.type)};
        free_place->managed = properties->type == MANAGED;
        *pool = free_place;
    }
    pthread_mutex_unlock(&mutex);
    return free_place < pools + POOLS ? SUCCESS : OUT_OF_MEMORY;
}

API cuMemPoolDestroy(struct pool *pool) {
    ENTER("cuMemPoolDestroy");
    if (pool < pools + DEFAULT_POOLS) return INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    trim(pool, 0);
    pool->destroyed = true;
    end_if_free(pool);
    if (current == pool) current = pools;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

API cuMemPoolTrimTo(struct pool *pool, size_t keep) {
    ENTER("cuMemPoolTrimTo");
    if (!pool->exists || pool->destroyed) __builtin_trap();
    pthread_mutex_lock(&mutex);
    trim(pool, keep);
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

API cuMemPoolSetAttribute(struct pool *pool, int attribute, uint64_t *value) {
    ENTER("cuMemPoolSetAttribute");
    if (attribute == THRESHOLD) pool->threshold = *value;
    return SUCCESS;
}

API cuMemPoolGetAttribute(struct pool *pool, int attribute, uint64_t *value) {
    ENTER("cuMemPoolGetAttribute");
    if (!pool->exists || pool->destroyed) __builtin_trap();
    pthread_mutex_lock(&mutex);
    if (!is_alive(pool)) pool->reserved = pool->used = 0;
    pthread_mutex_unlock(&mutex);
    switch (attribute) {
        case THRESHOLD: *value = pool->threshold; break;
        case RESERVED: *value = pool->reserved; break;
        case USED: *value = pool->used; break;
        case LOCATION_ID: *(int *)value = 0; break;
        case LOCATION_TYPE: *(int *)value = pool->of_host ? 2 : 1; break;
        default: return INVALID_VALUE;
    }
    return SUCCESS;
}

PER_THREAD(cuMemAllocAsync);
PER_THREAD(cuMemAllocFromPoolAsync);
PER_THREAD(cuMemFreeAsync);
