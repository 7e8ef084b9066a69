// Device memory: conserved on each card, and backed by untouched host pages, so that copies really copy.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver_api.h"

#define BUCKETS 4096
#define PITCH 512
#define SMALLEST 512

uint64_t process_memory_limit(void);

struct allocation {
    struct allocation *next;
    uint64_t key, bytes;
    int context;
    int references, mappings;  // of a handle of cuMemCreate
    CUhandle handle;           // of a mapping
    struct slab *slab;         // of a small one
    struct pool *pool;
};

static struct allocation *table[BUCKETS];
static _Atomic CUhandle last_handle = 1;

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

uint64_t memory_rounded(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Small allocations share granules, one after the other; a granule is given back with the last of them. Assumed.
struct slab { int context; uint64_t filled; int live; };

static struct slab *last_slab;  // with the shared lock, too

static struct slab *take_from_slab(int context, uint64_t bytes) {
    bytes = memory_rounded(bytes, SMALLEST);
    fake_lock();
    struct slab *slab = last_slab && last_slab->context == context && last_slab->filled + bytes <= GRANULE ? last_slab : NULL;
    if (slab) slab->filled += bytes, slab->live++;
    fake_unlock();
    if (slab || !memory_take(context, GRANULE)) return slab;
    slab = calloc(1, sizeof *slab);
    *slab = (struct slab){context, bytes, 1};
    fake_lock();
    last_slab = slab;
    fake_unlock();
    return slab;
}

static void give_to_slab(struct slab *slab) {
    fake_lock();
    bool last = --slab->live == 0;
    if (last && slab == last_slab) last_slab = NULL;
    fake_unlock();
    if (!last) return;
    memory_give(slab->context, GRANULE);
    free(slab);
}

CUresult memory_allocate(CUdeviceptr *pointer, uint64_t bytes) {
    int context = current_context();
    if (context < 0) return INVALID_CONTEXT;
    if (!bytes) return INVALID_VALUE;
    struct slab *slab = NULL;
    if (bytes <= GRANULE / 2) slab = take_from_slab(context, bytes);
    if (bytes <= GRANULE / 2 ? !slab : !memory_take(context, memory_rounded(bytes, GRANULE))) return OUT_OF_MEMORY;
    *pointer = memory_map(bytes);
    remember(*pointer, bytes, context)->slab = slab;
    return SUCCESS;
}

void pool_give(struct pool *pool, uint64_t bytes);

static CUresult release(uint64_t pointer) {
    struct allocation *found = forget(pointer);
    if (!found) return INVALID_VALUE;
    if (found->pool) pool_give(found->pool, found->bytes);
    else if (found->slab) give_to_slab(found->slab);
    else memory_give(found->context, memory_rounded(found->bytes, GRANULE));
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
    if (!pointer) return SUCCESS;
    CUresult result = release(pointer);
    pools_release();
    return result;
}

CUresult memory_release(CUdeviceptr pointer) { return release(pointer); }

void memory_remember_pooled(CUdeviceptr pointer, uint64_t bytes, int context, struct pool *pool) {
    remember(pointer, bytes, context)->pool = pool;
}

API cuMemGetAllocationGranularity(size_t *granularity, const struct allocation_properties *properties, int option) {
    ENTER("cuMemGetAllocationGranularity");
    (void)properties, (void)option;
    *granularity = GRANULE;
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
    bool of_host = properties && properties->location.type >= 2 && properties->location.type <= 4;
    if ((device < 0 && !of_host) || flags || !bytes || bytes % GRANULE) return INVALID_VALUE;
    if (context < 0) return INVALID_CONTEXT;
    if (!of_host && !memory_take(context, bytes)) return OUT_OF_MEMORY;
    *handle = last_handle += 2;  // odd, so that no pointer is like it
    remember(*handle, of_host ? 0 : bytes, context)->references = 1;
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

API cuMemExportToShareableHandle(int *shared, CUhandle handle, int type, unsigned long long flags) {
    ENTER("cuMemExportToShareableHandle");
    if (type != 1 || flags) return INVALID_VALUE;
    *shared = 1000;  // who holds it nobody sees: it is never closed
    return drop(handle, -1, 0);
}

API cuMulticastBindMem(CUhandle multicast, size_t offset, CUhandle memory, size_t from, size_t bytes, unsigned long long flags) {
    ENTER("cuMulticastBindMem");
    if (from || flags || drop(memory, 0, -1)) return INVALID_VALUE;
    remember(multicast + offset, bytes, -1)->handle = memory;
    return SUCCESS;
}

API cuMulticastUnbind(CUhandle multicast, CUdevice device, size_t offset, size_t bytes) {
    ENTER("cuMulticastUnbind");
    struct allocation *binding = visible_device(device) < 0 || !bytes ? NULL : forget(multicast + offset);
    if (!binding) return INVALID_VALUE;
    CUresult result = drop(binding->handle, 0, 1);
    free(binding);
    return result;
}

struct array_map { int words[14], operation, type; CUhandle handle; uint64_t rest[3]; };

API cuMemMapArrayAsync(const struct array_map *maps, unsigned count, CUstream stream) {
    ENTER("cuMemMapArrayAsync");
    if (stream_context(stream) < 0) return INVALID_CONTEXT;
    for (unsigned index = 0; index < count; index++)
        if (maps[index].operation != 1 || drop(maps[index].handle, 0, -1)) return INVALID_VALUE;
    return SUCCESS;
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
    bytes = memory_rounded(bytes, bytes <= GRANULE / 2 ? SMALLEST : GRANULE);
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

#define LAYERED 0x01
#define CUBEMAP 0x04
#define SPARSE 0x40
#define DEFERRED 0x80

static uint64_t level_bytes(const struct array3d_descriptor *about, unsigned level) {
    uint64_t layers = at_least_one(about->depth);
    uint64_t texels = at_least_one(about->width >> level) * at_least_one(about->height >> level);
    if (about->flags & (SPARSE | DEFERRED)) return 0;  // memory is mapped into it
    if (!(about->flags & (LAYERED | CUBEMAP))) layers = at_least_one(about->depth >> level);
    return texels * layers * element_bytes(about->format, about->channels);
}

API cuArray3DCreate_v2(CUarray *array, const struct array3d_descriptor *about) {
    ENTER("cuArray3DCreate_v2");
    return make_array(array, level_bytes(about, 0));
}

API cuMipmappedArrayCreate(CUarray *array, const struct array3d_descriptor *about, unsigned levels) {
    ENTER("cuMipmappedArrayCreate");
    uint64_t bytes = 0;
    for (unsigned level = 0; level < levels; level++) bytes += level_bytes(about, level);
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

struct ipc_handle { unsigned char bytes[64]; };

// Of what is opened nothing counts as this process's (assumed); there are no bytes of the other's in it.
API cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, struct ipc_handle handle, unsigned flags) {
    ENTER("cuIpcOpenMemHandle_v2");
    (void)handle, (void)flags;
    *pointer = memory_map(GRANULE);
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

// What copies and fills take of the device.
static CUresult spend(uint64_t bytes, CUstream stream) {
    if (stream_context(stream) < 0) return INVALID_CONTEXT;
    if (fake->copy_bytes_per_ms) fake_submit(stream_queue(stream), bytes * 1000000 / fake->copy_bytes_per_ms, -1);
    return SUCCESS;
}

API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER("cuMemcpyDtoDAsync_v2");
    memmove(host(to), host(from), bytes);
    return spend(bytes, stream);
}

API cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    ENTER("cuMemsetD8Async");
    memset(host(to), value, bytes);
    return spend(bytes, stream);
}

API cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer) {
    ENTER("cuPointerGetAttribute");
    if (attribute != 2 || !memory_is_there(pointer)) return INVALID_VALUE;  // the type of memory that the driver knows
    *(unsigned *)value = 2;
    return SUCCESS;
}

API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER("cuMemcpyAsync");
    memmove(host(to), host(from), bytes);
    return memory_is_there(to) && memory_is_there(from) ? spend(bytes, stream) : SUCCESS;
}

API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes, CUstream stream) {
    (void)there, (void)here;
    return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}

API cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, void *attributes, size_t *which,
                          size_t many, CUstream stream) {
    (void)attributes, (void)which, (void)many;
    CUresult result = SUCCESS;
    for (size_t index = 0; !result && index < count; index++) result = cuMemcpyAsync(to[index], from[index], bytes[index], stream);
    return result;
}

struct copy_end { int type; void *host; CUdeviceptr device; CUarray array; };
struct copy2d { size_t x, y; struct copy_end from; size_t pitch, to_x, to_y; struct copy_end to; size_t to_pitch, width, height; };

// Copies nothing, but takes the time.
API cuMemcpy2DAsync_v2(const struct copy2d *copy, CUstream stream) {
    ENTER("cuMemcpy2DAsync_v2");
    return copy->from.type == 2 && copy->to.type == 2 ? spend(copy->width * copy->height, stream) : SUCCESS;
}

API cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream) {
    ENTER("cuMemsetD2D8Async");
    for (size_t row = 0; row < height; row++) memset(host(to + row * pitch), value, width);
    return spend(width * height, stream);
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


PER_THREAD(cuMemcpyDtoDAsync_v2);
PER_THREAD(cuMemsetD8Async);
PER_THREAD(cuMemMapArrayAsync);
