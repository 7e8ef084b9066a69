// Lanes lie in blocks that never move, and are found without a lock through an index: open addressing with marks for what
// was taken out. A look-up that misses, as the index changes, is done again with the lock.
#include "lanes.h"

#include <assert.h>
#include <string.h>

#include "hooks.h"

#define BLOCK 64
#define BLOCKS 1024
#define FIRST_INDEX 256

struct index {
    size_t size, used;  // places; those that hold a lane or a mark
    _Atomic(struct lane *) place[];
};

static struct lane *blocks[BLOCKS];
static _Atomic unsigned lane_count, free_count;
static _Atomic(struct index *) current;
static struct lane removed;  // the mark; no key matches it
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread __attribute__((tls_model("initial-exec"))) struct lane *latest;  // that this thread launched on

struct lane *lane_at(unsigned index) { return index < lane_count ? &blocks[index / BLOCK][index % BLOCK] : NULL; }

// The events are the parent's; its child can have no context on which they would mean anything.
void lanes_reset(void) {
    pthread_mutex_init(&mutex, NULL);
    lane_count = free_count = 0;
    current = NULL;
    latest = NULL;
}

// A stream's handle is its own; the default streams are one for each context, or for each thread.
struct key { CUstream stream; CUcontext context; uint64_t thread; };

static struct key key_of(CUstream stream) {
    struct key key = {stream, NULL, 0};
    if (LIKELY((uintptr_t)stream > 2)) return key;
    if (stream == CUDA_STREAM_PER_THREAD) key.thread = (uint64_t)pthread_self();
    else key.stream = NULL;
    key.context = current_context();
    return key;
}

static struct key key_of_lane(const struct lane *lane) {
    bool is_made = (uintptr_t)lane->stream > 2;
    return (struct key){lane->stream, is_made ? NULL : lane->context, lane->thread};
}

static bool matches(const struct lane *lane, const struct key *key) {
    return lane->state == LANE_LIVE && lane->stream == key->stream && lane->thread == key->thread &&
           (!key->context || lane->context == key->context);
}

static size_t place_of(const struct key *key, size_t size) {
    uint64_t mixed = ((uint64_t)key->stream >> 4 ^ (uint64_t)key->context >> 4 ^ key->thread >> 6) * 0x9e3779b97f4a7c15ull;
    return (size_t)(mixed >> 32) & (size - 1);
}

static struct lane *look_up(const struct key *key) {
    struct index *index = atomic_load_explicit(&current, memory_order_acquire);
    if (!index) return NULL;
    for (size_t place = place_of(key, index->size);; place = (place + 1) & (index->size - 1)) {
        struct lane *lane = atomic_load_explicit(&index->place[place], memory_order_acquire);
        if (!lane) return NULL;
        if (lane != &removed && matches(lane, key)) return lane;
    }
}

static void put(struct index *index, struct lane *lane) {
    struct key key = key_of_lane(lane);
    size_t place = place_of(&key, index->size);
    while (index->place[place] && index->place[place] != &removed) place = (place + 1) & (index->size - 1);
    index->used += !index->place[place];
    index->place[place] = lane;
}

static void take_out(struct lane *lane) {
    struct key key = key_of_lane(lane);
    struct index *index = current;
    size_t place = place_of(&key, index->size);
    while (index->place[place] && index->place[place] != lane) place = (place + 1) & (index->size - 1);
    if (index->place[place]) index->place[place] = &removed;
}

// Room for one more. An index that is too small is left where it is, as anybody may be reading it; one with too many marks
// is made anew in place.
static bool make_room(void) {
    struct index *before = current, *after = before;
    size_t live = 0;
    if (before && before->used < before->size / 4 * 3) return true;
    for (unsigned number = 0; number < lane_count; number++) live += lane_at(number)->state == LANE_LIVE;
    if (!before || live > before->size / 2) {
        size_t size = before ? before->size * 2 : FIRST_INDEX;
        if (!(after = fresh_pages(sizeof *after + size * sizeof *after->place))) return false;
        after->size = size;
    } else {
        for (size_t place = 0; place < after->size; place++) after->place[place] = NULL;
        after->used = 0;
    }
    for (unsigned number = 0; number < lane_count; number++)
        if (lane_at(number)->state == LANE_LIVE) put(after, lane_at(number));
    current = after;
    return true;
}

static struct lane *fresh(void) {
    for (unsigned number = 0; free_count && number < lane_count; number++) {
        if (lane_at(number)->state != LANE_FREE) continue;
        free_count--;
        return lane_at(number);
    }
    unsigned count = lane_count, block = count / BLOCK;
    if (block == BLOCKS) return NULL;
    if (count % BLOCK == 0 && !(blocks[block] = fresh_pages(BLOCK * sizeof(struct lane)))) return NULL;
    lane_count = count + 1;
    return &blocks[block][count % BLOCK];
}

// A stream may be launched on while another context is current.
static CUcontext context_of(CUstream stream) {
    CUcontext context = NULL;
    return REAL_AS(cuStreamGetCtx, CUresult(CUstream, CUcontext *))(stream, &context) ? current_context() : context;
}

static struct lane *make(const struct key *key) {
    CUcontext context = key->context ? key->context : context_of(key->stream);
    struct lane *lane = context && make_room() ? fresh() : NULL;
    if (!lane) return NULL;
    memset((char *)lane + offsetof(struct lane, remaining), 0, sizeof *lane - offsetof(struct lane, remaining));
    lane->stream = key->stream;
    lane->context = context;
    lane->thread = key->thread;
    lane->state = LANE_LIVE;
    put(current, lane);
    return lane;
}

static APART struct lane *find_or_make(CUstream stream) {
    struct key key = key_of(stream);
    struct lane *lane = look_up(&key);
    if (LIKELY(lane != NULL)) return lane;
    pthread_mutex_lock(&mutex);
    lane = look_up(&key);
    if (!lane) lane = make(&key);
    pthread_mutex_unlock(&mutex);
    return lane;
}

// Most threads launch on one stream again and again. The default ones are told apart by more than their handles.
struct lane *lane_find(CUstream stream) {
    struct lane *lane = latest;
    bool is_made = (uintptr_t)stream > 2;
    if (LIKELY(is_made && lane && lane->state == LANE_LIVE && lane->stream == stream)) return lane;
    return latest = find_or_make(stream);
}

struct lane *lane_of(CUstream stream) {
    struct key key = {stream, NULL, 0};
    pthread_mutex_lock(&mutex);
    struct lane *lane = look_up(&key);
    pthread_mutex_unlock(&mutex);
    return lane;
}

#define GRAPH_SETS 4096
#define GRAPH_WAYS 4

// Graphs are told apart by their handles. Programs have thousands, which they launch one after the other: of those that
// fall together, the one that was launched longest ago is forgotten.
struct estimate *lane_estimate(struct lane *lane, const void *graph) {
    static struct { const void *graph; uint64_t used; struct estimate estimate; } graphs[GRAPH_SETS][GRAPH_WAYS];
    static uint64_t uses;
    if (!graph) return &lane->estimate;
    size_t set = (size_t)((uint64_t)graph * 0x9e3779b97f4a7c15ull >> 32) % GRAPH_SETS;
    int way = 0;
    for (int other = 0; other < GRAPH_WAYS && graphs[set][way].graph != graph; other++)
        if (graphs[set][other].graph == graph || graphs[set][other].used < graphs[set][way].used) way = other;
    if (graphs[set][way].graph != graph) graphs[set][way].graph = graph, graphs[set][way].estimate = (struct estimate){0};
    graphs[set][way].used = ++uses;
    return &graphs[set][way].estimate;
}

static bool make_event(const struct lane *lane, CUevent *event) {
    bool elsewhere = lane->context != current_context();
    if (elsewhere && REAL_AS(cuCtxPushCurrent_v2, CUresult(CUcontext))(lane->context)) return false;
    bool made = !REAL_AS(cuEventCreate, CUresult(CUevent *, unsigned))(event, 0);
    if (elsewhere) REAL_AS(cuCtxPopCurrent_v2, CUresult(CUcontext *))(NULL);
    return made;
}

static bool is_usable(const struct lane *lane) { return lane->state == LANE_LIVE && !lane->held; }

bool lane_is_full(const struct lane *lane) { return lane->made_pairs == UINT32_MAX && !lane->free_pairs; }

int lane_take_pair(struct lane *lane) {
    if (!is_usable(lane)) return -1;
    if (!lane->free_pairs && lane->made_pairs != UINT32_MAX) {
        int fresh = __builtin_ctz(~lane->made_pairs);
        if (!make_event(lane, &lane->start[fresh])) return -1;
        if (!make_event(lane, &lane->end[fresh])) {
            REAL_AS(cuEventDestroy_v2, CUresult(CUevent))(lane->start[fresh]);
            return -1;
        }
        lane->made_pairs |= 1u << fresh;
        lane->free_pairs |= 1u << fresh;
    }
    if (!lane->free_pairs) return -1;
    int pair = __builtin_ctz(lane->free_pairs);
    lane->free_pairs &= ~(1u << pair);
    return pair;
}

void lane_give_pair(struct lane *lane, int pair) {
    assert(lane->state != LANE_FREE && !(lane->free_pairs & 1u << pair));
    lane->free_pairs |= 1u << pair;
}

static void leave(struct lane *lane, enum lane_state state) {
    pthread_mutex_lock(&mutex);
    if (lane->state == LANE_LIVE) take_out(lane);
    lane->state = state;
    free_count += state == LANE_FREE;
    pthread_mutex_unlock(&mutex);
}

void lane_retire(struct lane *lane) { leave(lane, LANE_DYING); }

void lane_bury(struct lane *lane) {
    assert(lane->state != LANE_FREE && !lane->held && !lane->open && !lane->pending);
    assert(lane->free_pairs == lane->made_pairs);
    for (int pair = 0; pair < LANE_PAIRS; pair++) {
        if (!(lane->made_pairs & 1u << pair)) continue;
        REAL_AS(cuEventDestroy_v2, CUresult(CUevent))(lane->start[pair]);
        REAL_AS(cuEventDestroy_v2, CUresult(CUevent))(lane->end[pair]);
    }
    leave(lane, LANE_FREE);
}

void lane_drop(struct lane *lane) {
    assert(lane->state != LANE_FREE && !lane->open && !lane->pending);
    leave(lane, LANE_FREE);
}

bool lane_record(struct lane *lane, CUevent event) {
    return is_usable(lane) && !REAL_AS(cuEventRecord, CUresult(CUevent, CUstream))(event, lane->stream);
}

bool lane_reached(struct lane *lane, CUevent event) {
    return !is_usable(lane) || REAL_AS(cuEventQuery, CUresult(CUevent))(event) != CUDA_NOT_READY;
}

bool lane_is_idle(struct lane *lane) { return !lane->pending || lane_reached(lane, lane->end[lane->last_pair]); }

// While it does, what is launched is only taken down, and an event of the gate's would become part of it. The driver
// answers with an error where it cannot tell; then nothing is recorded either.
bool lane_captures(CUstream stream) {
    int status = 0;
    return REAL_AS(cuStreamIsCapturing, CUresult(CUstream, int *))(stream, &status) || status;
}
