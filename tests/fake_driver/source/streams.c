// Streams, events and captures.
#include <pthread.h>
#include <stdlib.h>

#include "driver_api.h"

enum capture_mode { CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED };

struct stream {
    int context;
    uint8_t number;
    CUgraph capture;
    bool spoilt, blocking;
    enum capture_mode mode;
    uint32_t host_calls;
    struct stream *next;  // among those that capture
};

struct event {
    int index, context;
    uint64_t context_number;
    bool timed;
};

static struct stream *capturing;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // of those that capture
static __thread enum capture_mode thread_mode;

// The default streams (none, legacy, per thread) are small numbers in place of a pointer.
static struct stream *made(CUstream stream) { return (uintptr_t)stream > 2 ? stream : NULL; }

int stream_context(CUstream stream) { return made(stream) ? stream->context : current_context(); }

static uint8_t next_number(void) {
    static _Atomic unsigned numbers;
    return 1 + numbers++ % (FAKE_STREAMS - 1);
}

struct fake_queue stream_queue(CUstream stream) {
    static __thread uint8_t own;
    if (made(stream)) return (struct fake_queue){stream->context, stream->number, stream->blocking};
    if ((uintptr_t)stream < 2) return (struct fake_queue){current_context(), FAKE_LEGACY, false};
    if (!own) own = next_number();
    return (struct fake_queue){current_context(), own, true};
}

CUgraph stream_capture(CUstream stream) { return made(stream) ? stream->capture : NULL; }

CUresult unsafe_during_capture(void) {
    CUresult result = SUCCESS;
    pthread_mutex_lock(&mutex);
    for (struct stream *stream = capturing; stream; stream = stream->next)
        if (stream->mode == CAPTURE_GLOBAL && thread_mode != CAPTURE_RELAXED)
            stream->spoilt = true, result = CAPTURE_UNSUPPORTED;
    pthread_mutex_unlock(&mutex);
    return result;
}

API cuStreamCreate(CUstream *stream, unsigned flags) {
    ENTER("cuStreamCreate");
    if (current_context() < 0) return INVALID_CONTEXT;
    *stream = calloc(1, sizeof **stream);
    (*stream)->context = current_context();
    (*stream)->number = next_number();
    (*stream)->blocking = !(flags & 1);
    return SUCCESS;
}

API cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    (void)priority;
    return cuStreamCreate(stream, flags);
}

API cuStreamDestroy_v2(CUstream stream) {
    ENTER("cuStreamDestroy_v2");
    if (!made(stream)) return INVALID_HANDLE;
    free(stream);
    return SUCCESS;
}

API cuStreamDestroy(CUstream stream) { return cuStreamDestroy_v2(stream); }

API cuStreamGetCtx(CUstream stream, CUcontext *context) {
    ENTER("cuStreamGetCtx");
    if (stream_context(stream) < 0) return INVALID_CONTEXT;
    *context = &fake->contexts[stream_context(stream)];
    return SUCCESS;
}

static CUresult waited(void) {
    pools_release();
    return process_await_unlocked();
}

static CUresult wait_for(int slot) {
    CUresult unsafe = unsafe_during_capture();
    if (unsafe) return unsafe;
    if (slot < 0) return INVALID_CONTEXT;
    fake_await(slot, fake->contexts[slot].submitted, true);
    return waited();
}

static uint64_t last_of(struct fake_queue queue) {
    fake_lock();
    fake_refresh();
    uint64_t last = fake_last(queue);
    fake_unlock();
    return last;
}

API cuStreamSynchronize(CUstream stream) {
    ENTER("cuStreamSynchronize");
    struct fake_queue queue = stream_queue(stream);
    CUresult unsafe = unsafe_during_capture();
    if (unsafe) return unsafe;
    if (queue.context < 0) return INVALID_CONTEXT;
    uint64_t last;
    for (int streams = 0; streams < FAKE_STREAMS && (last = last_of(queue)); streams++) fake_await(queue.context, last, false);
    return waited();
}

API cuCtxSynchronize(void) {
    ENTER("cuCtxSynchronize");
    return wait_for(current_context());
}

API cuCtxSynchronize_v2(CUcontext context) {
    ENTER("cuCtxSynchronize_v2");
    return wait_for((int)(context - fake->contexts));
}

API cuStreamQuery(CUstream stream) {
    ENTER("cuStreamQuery");
    if (stream_context(stream) < 0) return INVALID_CONTEXT;
    return last_of(stream_queue(stream)) ? NOT_READY : SUCCESS;
}

API cuStreamBeginCapture_v2(CUstream stream, enum capture_mode mode) {
    ENTER("cuStreamBeginCapture_v2");
    if (!made(stream) || stream->capture) return INVALID_VALUE;
    stream->capture = calloc(1, sizeof *stream->capture);
    stream->capture->context = stream->context;
    stream->spoilt = false;
    stream->mode = mode;
    pthread_mutex_lock(&mutex);
    stream->next = capturing;
    capturing = stream;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

API cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    ENTER("cuStreamEndCapture");
    if (!made(stream) || !stream->capture) return INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    for (struct stream **link = &capturing; *link; link = &(*link)->next)
        if (*link == stream) {
            *link = stream->next;
            break;
        }
    pthread_mutex_unlock(&mutex);
    *graph = stream->spoilt ? NULL : stream->capture;
    stream->capture = NULL;
    return *graph ? SUCCESS : CAPTURE_INVALIDATED;
}

API cuStreamIsCapturing(CUstream stream, int *status) {
    ENTER("cuStreamIsCapturing");
    if (!made(stream)) {  // the legacy stream cannot be asked while one that waits for it captures
        bool waits = false;
        pthread_mutex_lock(&mutex);
        for (struct stream *other = capturing; other; other = other->next) waits |= other->blocking && (uintptr_t)stream < 2;
        pthread_mutex_unlock(&mutex);
        *status = 0;
        return waits ? CAPTURE_IMPLICIT : SUCCESS;
    }
    *status = !stream->capture ? 0 : stream->spoilt ? 2 : 1;
    return SUCCESS;
}

API cuThreadExchangeStreamCaptureMode(enum capture_mode *mode) {
    ENTER("cuThreadExchangeStreamCaptureMode");
    enum capture_mode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return SUCCESS;
}

API cuEventCreate(CUevent *event, unsigned flags) {
    ENTER("cuEventCreate");
    struct fake_process *process = fake_self();
    fake_lock();
    int index = 0;
    while (index < FAKE_EVENTS && process->events[index].used) index++;
    if (index < FAKE_EVENTS) process->events[index] = (struct fake_event){.used = true, .context = -1};
    fake_unlock();
    if (index == FAKE_EVENTS) return OUT_OF_MEMORY;
    *event = malloc(sizeof **event);
    int context = current_context();
    **event = (struct event){index, context, context < 0 ? 0 : fake->contexts[context].number, !(flags & 2)};
    return SUCCESS;
}

// The events of a context go with it, and whoever uses one all the same reads memory that is no more.
static struct fake_event *event_of(CUevent event) {
    if (event->context >= 0) {
        const struct fake_context *context = &fake->contexts[event->context];
        if (!context->used || context->number != event->context_number) __builtin_trap();
    }
    return &fake_self()->events[event->index];
}

API cuEventDestroy_v2(CUevent event) {
    ENTER("cuEventDestroy_v2");
    event_of(event)->used = false;
    free(event);
    return SUCCESS;
}

API cuEventRecord(CUevent event, CUstream stream) {
    ENTER("cuEventRecord");
    event_of(event);
    CUgraph graph = stream_capture(stream);
    if (graph) {
        graph->nodes++;
        return SUCCESS;
    }
    if (stream_context(stream) < 0) return INVALID_CONTEXT;
    if (stream_context(stream) != event->context) return INVALID_HANDLE;
    fake_submit(stream_queue(stream), 0, event->index);
    return SUCCESS;
}

API cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    ENTER("cuStreamWaitEvent");
    (void)flags;
    const struct fake_event *record = event_of(event);
    if (stream_context(stream) < 0) return INVALID_CONTEXT;
    if (record->context >= 0 && !stream_capture(stream)) fake_hold(stream_queue(stream), record->context, record->sequence);
    return SUCCESS;
}

static CUresult use_word(CUstream stream, enum fake_word_use use, CUdeviceptr word, uint32_t value) {
    if (stream_context(stream) < 0) return INVALID_CONTEXT;
    fake_use_word(stream_queue(stream), use, word, value);
    return SUCCESS;
}

API cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr word, uint32_t value, unsigned flags) {
    ENTER("cuStreamWaitValue32_v2");
    return flags ? NOT_SUPPORTED : use_word(stream, FAKE_AWAITS_WORD, word, value);
}

API cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr word, uint32_t value, unsigned flags) {
    ENTER("cuStreamWriteValue32_v2");
    return flags ? NOT_SUPPORTED : use_word(stream, FAKE_WRITES_WORD, word, value);
}

struct host_call { void (*function)(void *); void *argument; int context; uint64_t after, word; uint32_t number; };

static void *call_host(void *about) {
    struct host_call call = *(struct host_call *)about;
    free(about);
    fake_await(call.context, call.after, false);
    process_call_host(call.function, call.argument);
    fake_write_word(call.context, call.word, call.number);
    return NULL;
}

// After what is on a stream, which goes on when the function has returned. Of streams that were made, and one at a time of each.
API cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *argument) {
    ENTER("cuLaunchHostFunc");
    pthread_t thread;
    if (!made(stream) || stream->capture) return NOT_SUPPORTED;
    struct host_call *call = malloc(sizeof *call);
    uint64_t word = (uintptr_t)stream;
    uint64_t after = last_of(stream_queue(stream));
    *call = (struct host_call){function, argument, stream->context, after, word, ++stream->host_calls};
    fake_use_word(stream_queue(stream), FAKE_AWAITS_WORD, word, call->number);
    if (pthread_create(&thread, NULL, call_host, call)) return OUT_OF_MEMORY;
    pthread_detach(thread);
    return SUCCESS;
}

API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    (void)flags;
    return cuEventRecord(event, stream);
}

static bool happened(struct fake_event *event) {
    return event->context < 0 || event->done_ns || !fake->contexts[event->context].used;
}

API cuEventQuery(CUevent event) {
    ENTER("cuEventQuery");
    CUresult unsafe = unsafe_during_capture();
    if (unsafe) return unsafe;
    fake_lock();
    fake_refresh();
    bool done = happened(event_of(event));
    fake_unlock();
    return done ? SUCCESS : NOT_READY;
}

API cuEventSynchronize(CUevent event) {
    ENTER("cuEventSynchronize");
    CUresult unsafe = unsafe_during_capture();
    if (unsafe) return unsafe;
    struct fake_event record = *event_of(event);
    if (!happened(&record)) fake_await(record.context, record.sequence, false);
    return waited();
}

API cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    ENTER("cuEventElapsedTime_v2");
    struct fake_event *from = event_of(start), *to = event_of(end);
    if (!start->timed || !end->timed || from->context < 0 || to->context < 0) return INVALID_HANDLE;
    CUresult pending = cuEventQuery(end);
    if (pending) return pending;
    *milliseconds = (float)((double)((int64_t)to->done_ns - (int64_t)from->done_ns) / 1e6);
    return SUCCESS;
}

API cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

PER_THREAD(cuEventRecord);
PER_THREAD(cuEventRecordWithFlags);
PER_THREAD(cuStreamSynchronize);
PER_THREAD(cuStreamQuery);
PER_THREAD(cuStreamWaitEvent);
PER_THREAD(cuStreamIsCapturing);
PER_THREAD(cuStreamBeginCapture_v2);
PER_THREAD(cuStreamEndCapture);
PER_THREAD(cuStreamGetCtx);
