#include "lanes.h"

#include <string.h>

#include "hooks.h"

#define LANES 128
#define WINDOW 16  // places in which a stream may be found

static struct lane lanes[LANES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

struct lane *lane_at(int index) { return index < LANES ? &lanes[index] : NULL; }

// The events are the parent's; its child can have no context on which they would mean anything.
void lanes_reset(void) {
    pthread_mutex_init(&mutex, NULL);
    memset(lanes, 0, sizeof lanes);
}

// A stream's handle is its own; the default streams are one for each context, or for each thread.
struct key { CUstream stream; CUcontext context; uint64_t thread; };

static CUcontext current_context(void) {
    CUcontext context = NULL;
    return REAL_AS(cuCtxGetCurrent, CUresult(CUcontext *))(&context) ? NULL : context;
}

static struct key key_of(CUstream stream) {
    struct key key = {stream, NULL, 0};
    if (LIKELY((uintptr_t)stream > 2)) return key;
    if (stream == CUDA_STREAM_PER_THREAD) key.thread = (uint64_t)pthread_self();
    else key.stream = NULL;
    key.context = current_context();
    return key;
}

static bool matches(const struct lane *lane, const struct key *key) {
    return lane->state == LANE_LIVE && lane->stream == key->stream && lane->thread == key->thread &&
           (!key->context || lane->context == key->context);
}

static struct lane *look_up(const struct key *key, size_t first) {
    for (size_t step = 0; step < WINDOW; step++)
        if (matches(&lanes[(first + step) % LANES], key)) return &lanes[(first + step) % LANES];
    return NULL;
}

static struct lane *make(const struct key *key, size_t first) {
    CUcontext context = key->context ? key->context : current_context();
    for (size_t step = 0; context && step < WINDOW; step++) {
        struct lane *lane = &lanes[(first + step) % LANES];
        if (lane->state != LANE_FREE) continue;
        memset(lane, 0, sizeof *lane);
        lane->stream = key->stream, lane->context = context, lane->thread = key->thread;
        lane->state = LANE_LIVE;
        return lane;
    }
    return NULL;
}

struct lane *lane_find(CUstream stream) {
    struct key key = key_of(stream);
    uint64_t mixed = ((uint64_t)key.stream >> 4 ^ (uint64_t)key.context >> 4 ^ key.thread >> 6) * 0x9e3779b97f4a7c15ull;
    size_t first = (size_t)(mixed >> 32) % LANES;
    struct lane *lane = look_up(&key, first);
    if (LIKELY(lane != NULL)) return lane;
    pthread_mutex_lock(&mutex);
    lane = look_up(&key, first);
    if (!lane) lane = make(&key, first);
    pthread_mutex_unlock(&mutex);
    return lane;
}

static bool make_event(CUevent *event) {
    return !REAL_AS(cuEventCreate, CUresult(CUevent *, unsigned))(event, CUDA_EVENT_BLOCKING_SYNC);
}

bool lane_is_full(const struct lane *lane) { return lane->made_pairs == UINT32_MAX && !lane->free_pairs; }

int lane_take_pair(struct lane *lane) {
    if (!lane->free_pairs && lane->made_pairs != UINT32_MAX) {
        int fresh = __builtin_ctz(~lane->made_pairs);
        if (!make_event(&lane->start[fresh])) return -1;
        if (!make_event(&lane->end[fresh])) {
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

void lane_give_pair(struct lane *lane, int pair) { lane->free_pairs |= 1u << pair; }

void lane_bury(struct lane *lane) {
    for (int pair = 0; pair < LANE_PAIRS; pair++) {
        if (!(lane->made_pairs & 1u << pair)) continue;
        REAL_AS(cuEventDestroy_v2, CUresult(CUevent))(lane->start[pair]);
        REAL_AS(cuEventDestroy_v2, CUresult(CUevent))(lane->end[pair]);
    }
    lane->state = LANE_FREE;
}

bool lane_record(struct lane *lane, CUevent event) {
    return !REAL_AS(cuEventRecord, CUresult(CUevent, CUstream))(event, lane->stream);
}

// While it does, what is launched is only taken down, and an event of the gate's would become part of it. The driver
// answers with an error where it cannot tell; then nothing is recorded either.
bool lane_captures(CUstream stream) {
    int status = 0;
    return REAL_AS(cuStreamIsCapturing, CUresult(CUstream, int *))(stream, &status) || status;
}
