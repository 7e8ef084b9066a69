// Device memory: conserved on each card, and backed by untouched host pages, so that copies really copy.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver_api.h"

#define BUCKETS 4096
#define PITCH 512
#define GRANULARITY (2ull << 20)

uint64_t process_memory_limit(void);

struct allocation {
    struct allocation *next;
    uint64_t key, bytes;
    int context;
    int references, mappings;  // of a handle of cuMemCreate
    CUhandle handle;           // of a mapping
};

static struct allocation *table[BUCKETS];
static CUhandle last_handle = 1;

struct array { uint64_t bytes; int context; };

static struct allocation **find(uint64_t key) {
    struct allocation **link = &table[(key >> 12 ^ key) % BUCKETS];
    while (*link && (*link)->key != key) link = &(*link)->next;
    return link;
}

// The table is the process's own, the shared lock serves it too.
static struct allocation *remember(uint64_t key, uint64_t bytes, int context) {
    struct allocation *made = calloc(1, sizeof *made);
    made->key = key, made->bytes = bytes, made->context = context;
    fake_lock();
    struct allocation **link = find(key);
    made->next = *link;
    *link = made;
    fake_unlock();
    return made;
}

static struct allocation *forget(uint64_t key) {
    fake_lock();
    struct allocation **link = find(key), *found = *link;
    if (found) *link = found->next;
    fake_unlock();
    return found;
}

bool memory_take(int slot, uint64_t bytes) {
    if (slot < 0) return false;
    fake_lock();
    fake_refresh_all();
    struct fake_context *context = &fake->contexts[slot];
    uint64_t capacity = fake->devices[context->device].memory_bytes, limit = process_memory_limit();
    bool fits = fake_device_used(context->device) + bytes <= capacity;
    if (limit) fits &= fake_process_bytes(context->process, context->device) + bytes <= limit;
    if (fits) context->bytes += bytes;
    fake_unlock();
    return fits;
}

void memory_give(int slot, uint64_t bytes) {
    fake_lock();
    if (fake->contexts[slot].used) fake->contexts[slot].bytes -= bytes;
    fake_unlock();
}

CUdeviceptr memory_map(uint64_t bytes) {
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return map == MAP_FAILED ? 0 : (CUdeviceptr)(uintptr_t)map;
}

bool memory_is_there(CUdeviceptr pointer) {
    fake_lock();
    bool found = *find(pointer) != NULL;
    fake_unlock();
    return found;
}

CUresult memory_allocate(CUdeviceptr *pointer, uint64_t bytes) {
    int context = current_context();
    if (context < 0) return INVALID_CONTEXT;
    if (!bytes) return INVALID_VALUE;
    if (!memory_take(context, bytes)) return OUT_OF_MEMORY;
    *pointer = memory_map(bytes);
    remember(*pointer, bytes, context);
    return SUCCESS;
}

static CUresult release(uint64_t pointer) {
    struct allocation *found = forget(pointer);
    if (!found) return INVALID_VALUE;
    memory_give(found->context, found->bytes);
    munmap((void *)(uintptr_t)pointer, found->bytes);
    free(found);
    return SUCCESS;
}

API cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    ENTER("cuMemAlloc_v2");
    CUresult unsafe = unsafe_during_capture();
    return unsafe ? unsafe : memory_allocate(pointer, bytes);
}

API cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned element) {
    ENTER("cuMemAllocPitch_v2");
    (void)element;
    *pitch = (width + PITCH - 1) / PITCH * PITCH;
    return memory_allocate(pointer, *pitch * height);
}

API cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags) {
    ENTER("cuMemAllocManaged");
    (void)flags;
    CUresult result = memory_allocate(pointer, bytes);
    if (!result) fake_self()->uses |= FAKE_USES_MANAGED;
    return result;
}

API cuMemFree_v2(CUdeviceptr pointer) {
    ENTER("cuMemFree_v2");
    return pointer ? release(pointer) : SUCCESS;
}

API cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    ENTER("cuMemAllocAsync");
    CUgraph graph = stream_capture(stream);
    CUresult result = memory_allocate(pointer, bytes);
    if (!result && graph) graph->nodes++;
    return result;
}

API cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, void *pool, CUstream stream) {
    ENTER("cuMemAllocFromPoolAsync");
    return pool ? cuMemAllocAsync(pointer, bytes, stream) : INVALID_VALUE;
}

API cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    ENTER("cuMemFreeAsync");
    (void)stream;
    return release(pointer);
}

static char default_pool;

API cuDeviceGetDefaultMemPool(void **pool, CUdevice device) {
    ENTER("cuDeviceGetDefaultMemPool");
    *pool = &default_pool;
    return visible_device(device) < 0 ? INVALID_DEVICE : SUCCESS;
}

API cuMemPoolCreate(void **pool, const struct pool_properties *properties) {
    ENTER("cuMemPoolCreate");
    (void)properties;
    *pool = malloc(1);
    return SUCCESS;
}

API cuMemPoolDestroy(void *pool) {
    ENTER("cuMemPoolDestroy");
    if (pool != &default_pool) free(pool);
    return SUCCESS;
}

API cuMemGetAllocationGranularity(size_t *granularity, const struct allocation_properties *properties, int option) {
    ENTER("cuMemGetAllocationGranularity");
    (void)properties, (void)option;
    *granularity = GRANULARITY;
    return SUCCESS;
}

API cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags) {
    ENTER("cuMemAddressReserve");
    (void)alignment, (void)wish, (void)flags;
    *pointer = memory_map(bytes);
    return *pointer ? SUCCESS : OUT_OF_MEMORY;
}

API cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
    ENTER("cuMemAddressFree");
    return munmap((void *)(uintptr_t)pointer, bytes) ? INVALID_VALUE : SUCCESS;
}

API cuMemCreate(CUhandle *handle, size_t bytes, const struct allocation_properties *properties, unsigned long long flags) {
    ENTER("cuMemCreate");
    int device = properties ? visible_device(properties->location.id) : -1, context = current_context();
    if (device < 0 || flags || !bytes || bytes % GRANULARITY) return INVALID_VALUE;
    if (context < 0) return INVALID_CONTEXT;
    if (!memory_take(context, bytes)) return OUT_OF_MEMORY;
    *handle = last_handle += 2;  // odd, so that no pointer is like it
    remember(*handle, bytes, context)->references = 1;
    return SUCCESS;
}

// A handle's memory goes when nobody refers to it and it is mapped nowhere.
static CUresult drop(CUhandle handle, int references, int mappings) {
    fake_lock();
    struct allocation *found = *find(handle);
    if (found) found->references -= references, found->mappings -= mappings;
    bool last = found && found->references <= 0 && found->mappings <= 0;
    fake_unlock();
    if (!found) return INVALID_VALUE;
    if (last) {
        forget(handle);
        memory_give(found->context, found->bytes);
        free(found);
    }
    return SUCCESS;
}

API cuMemRelease(CUhandle handle) {
    ENTER("cuMemRelease");
    return drop(handle, 1, 0);
}

API cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUhandle handle, unsigned long long flags) {
    ENTER("cuMemMap");
    if (offset || flags || drop(handle, 0, -1)) return INVALID_VALUE;
    remember(pointer, bytes, -1)->handle = handle;
    return SUCCESS;
}

// May take down several mappings that lie side by side.
API cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
    ENTER("cuMemUnmap");
    for (CUdeviceptr at = pointer; at < pointer + bytes;) {
        struct allocation *mapping = forget(at);
        if (!mapping) return INVALID_VALUE;
        drop(mapping->handle, 0, 1);
        at += mapping->bytes;
        free(mapping);
    }
    return SUCCESS;
}

API cuMemRetainAllocationHandle(CUhandle *handle, void *address) {
    ENTER("cuMemRetainAllocationHandle");
    fake_lock();
    struct allocation *mapping = *find((uint64_t)(uintptr_t)address);
    fake_unlock();
    if (!mapping) return INVALID_VALUE;
    *handle = mapping->handle;
    return drop(*handle, -1, 0);
}

API cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const void *access, size_t count) {
    ENTER("cuMemSetAccess");
    (void)pointer, (void)bytes, (void)access, (void)count;
    return SUCCESS;
}

static uint64_t element_bytes(unsigned format, unsigned channels) {
    uint64_t size = format == 1 || format == 8 ? 1 : format == 2 || format == 9 || format == 0x10 ? 2 : 4;
    return size * channels;
}

static CUresult make_array(CUarray *array, uint64_t bytes) {
    int context = current_context();
    if (context < 0) return INVALID_CONTEXT;
    if (!memory_take(context, bytes)) return OUT_OF_MEMORY;
    *array = malloc(sizeof **array);
    **array = (struct array){bytes, context};
    return SUCCESS;
}

static uint64_t at_least_one(size_t size) { return size ? size : 1; }

API cuArrayCreate_v2(CUarray *array, const struct array_descriptor *about) {
    ENTER("cuArrayCreate_v2");
    return make_array(array, about->width * at_least_one(about->height) * element_bytes(about->format, about->channels));
}

API cuArray3DCreate_v2(CUarray *array, const struct array3d_descriptor *about) {
    ENTER("cuArray3DCreate_v2");
    uint64_t texels = about->width * at_least_one(about->height) * at_least_one(about->depth);
    return make_array(array, texels * element_bytes(about->format, about->channels));
}

API cuMipmappedArrayCreate(CUarray *array, const struct array3d_descriptor *about, unsigned levels) {
    ENTER("cuMipmappedArrayCreate");
    uint64_t bytes = 0;
    for (unsigned level = 0; level < levels; level++)
        bytes += at_least_one(about->width >> level) * at_least_one(about->height >> level) *
                 at_least_one(about->depth >> level) * element_bytes(about->format, about->channels);
    return make_array(array, bytes);
}

API cuArrayDestroy(CUarray array) {
    ENTER("cuArrayDestroy");
    memory_give(array->context, array->bytes);
    free(array);
    return SUCCESS;
}

API cuMipmappedArrayDestroy(CUarray array) { return cuArrayDestroy(array); }

API cuMemGetInfo_v2(size_t *available, size_t *total) {
    ENTER("cuMemGetInfo_v2");
    int slot = current_context();
    if (slot < 0) return INVALID_CONTEXT;
    int device = fake->contexts[slot].device;
    fake_lock();
    fake_refresh_all();
    *total = fake->devices[device].memory_bytes;
    *available = *total - fake_device_used(device);
    fake_unlock();
    return SUCCESS;
}

API cuIpcGetMemHandle(unsigned char handle[64], CUdeviceptr pointer) {
    ENTER("cuIpcGetMemHandle");
    memset(handle, 0, 64);
    memcpy(handle, &pointer, sizeof pointer);
    fake_self()->uses |= FAKE_USES_IPC;
    return SUCCESS;
}

static void *host(CUdeviceptr pointer) { return (void *)(uintptr_t)pointer; }

API cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    ENTER("cuMemcpyHtoD_v2");
    memcpy(host(to), from, bytes);
    return SUCCESS;
}

API cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    ENTER("cuMemcpyDtoH_v2");
    memcpy(to, host(from), bytes);
    return SUCCESS;
}

API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    ENTER("cuMemcpyDtoD_v2");
    memmove(host(to), host(from), bytes);
    return SUCCESS;
}

API cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes) {
    ENTER("cuMemsetD8_v2");
    memset(host(to), value, bytes);
    return SUCCESS;
}

API cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t words) {
    ENTER("cuMemsetD32_v2");
    for (size_t index = 0; index < words; index++) ((unsigned *)host(to))[index] = value;
    return SUCCESS;
}

API cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    ENTER("cuMemHostAlloc");
    (void)flags;
    *pointer = calloc(1, bytes);
    return *pointer ? SUCCESS : OUT_OF_MEMORY;
}

API cuMemAllocHost_v2(void **pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }

API cuMemFreeHost(void *pointer) {
    ENTER("cuMemFreeHost");
    free(pointer);
    return SUCCESS;
}

PER_THREAD(cuMemAllocAsync);
PER_THREAD(cuMemAllocFromPoolAsync);
PER_THREAD(cuMemFreeAsync);
