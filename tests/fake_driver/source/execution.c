// A device runs one context at a time, in slices, as the driver does by default: contexts with work take equal turns. Of a
// context, streams take turns by the launch.
#include "execution.h"

#define LONGEST_NAP_NS 2000000ull
#define SHORTEST_NAP_NS 20000ull

static struct fake_operation *operation_of(struct fake_context *context, uint64_t sequence) {
    return &context->queue[(sequence - 1) % FAKE_QUEUE];
}

static bool is_done(const struct fake_context *context, uint64_t sequence) {
    return !context->used || sequence <= context->completed || context->queue[(sequence - 1) % FAKE_QUEUE].done;
}

// Where there are more than there is room for, they share the last.
static uint32_t *word_at(struct fake_context *context, uint64_t address) {
    struct fake_word *word = context->words;
    while (word->address && word->address != address && word < context->words + FAKE_WORDS - 1) word++;
    word->address = address;
    return &word->value;
}

// The operation that goes next: of those that are first of their stream and need not wait, one that takes no time, such as
// an event; else by turns. 0 for none.
static uint64_t next_operation(struct fake_context *context) {
    uint64_t seen = 0, best = 0;
    bool legacy = false, blocking = false;
    unsigned left = context->busy_streams, nearest = FAKE_STREAMS;
    for (uint64_t sequence = context->completed + 1; left && sequence <= context->submitted; sequence++) {
        const struct fake_operation *operation = &context->queue[(sequence - 1) % FAKE_QUEUE];
        if (operation->done || seen >> operation->stream & 1) continue;
        seen |= 1ull << operation->stream;
        left--;
        bool held = operation->stream == FAKE_LEGACY ? blocking : operation->blocking && legacy;
        legacy |= operation->stream == FAKE_LEGACY;
        blocking |= operation->blocking;
        if (operation->awaited) held |= !is_done(&fake->contexts[operation->awaited_context], operation->awaited);
        if (operation->word_use == FAKE_AWAITS_WORD) held |= *word_at(context, operation->word) < operation->value;
        if (!held && !operation->remaining_ns) return sequence;
        unsigned after = (unsigned)(operation->stream - context->stream - 1) % FAKE_STREAMS;
        if (!held && after < nearest) nearest = after, best = sequence;
    }
    return best;
}

static bool has_work(int slot, int device) {
    struct fake_context *context = &fake->contexts[slot];
    if (!context->used || context->device != device || context->submitted == context->completed) return false;
    if (!context->running) context->running = next_operation(context);
    return context->running;
}

static int next_context(int after, int device) {
    int top = fake->context_top;
    for (int step = 1; step <= top; step++) {
        int slot = (after + step + top) % top;
        if (has_work(slot, device)) return slot;
    }
    return -1;
}

static void complete(struct fake_context *context, struct fake_operation *operation, uint64_t at) {
    if (operation->event >= 0) {
        struct fake_event *event = &fake->processes[context->process].events[operation->event];
        // An event that was recorded again since tells of its last record only.
        if (event->used && event->sequence == context->running) event->done_ns = at;
    }
    if (operation->word_use == FAKE_WRITES_WORD) *word_at(context, operation->word) = operation->value;
    operation->done = true;
    if (!--context->waiting[operation->stream]) context->busy_streams--;
    context->stream = operation->stream;
    context->running = 0;
    while (context->completed < context->submitted && operation_of(context, context->completed + 1)->done) context->completed++;
}

void fake_execute(int index, uint64_t now) {
    struct fake_device *device = &fake->devices[index];
    uint64_t at = device->advanced_ns;
    if (at > now) return;
    for (;;) {
        if (device->current < 0 || !has_work(device->current, index) || !device->slice_left_ns) {
            device->current = next_context(device->current, index);
            device->slice_left_ns = fake->time_slice_ns;
            if (device->current < 0) break;
            if (device->loaded != device->current) device->switching_ns = device->loaded < 0 ? 0 : fake->switch_ns;
            device->loaded = device->current;
        }
        if (device->switching_ns) {
            uint64_t lost = device->switching_ns < now - at ? device->switching_ns : now - at;
            device->switching_ns -= lost;
            at += lost;
            if (at == now) break;
        }
        struct fake_context *context = &fake->contexts[device->current];
        struct fake_operation *operation = operation_of(context, context->running);
        uint64_t run = operation->remaining_ns;
        if (run > device->slice_left_ns) run = device->slice_left_ns;
        if (run > now - at) run = now - at;
        operation->remaining_ns -= run;
        device->slice_left_ns -= run;
        context->pending_ns -= run;
        device->busy_ns += run;
        fake->processes[context->process].busy_ns[index] += run;
        at += run;
        if (!operation->remaining_ns) complete(context, operation, at);
        else if (at == now) break;
    }
    device->advanced_ns = now;
}

static uint64_t put(struct fake_queue queue, struct fake_operation operation) {
    struct fake_context *context = &fake->contexts[queue.context];
    fake_lock();
    fake_refresh();
    while (context->submitted - context->completed >= FAKE_QUEUE) {
        fake_unlock();
        fake_sleep(SHORTEST_NAP_NS * 5);
        fake_lock();
        fake_refresh();
    }
    operation.stream = queue.stream;
    operation.blocking = queue.blocking;
    uint64_t sequence = ++context->submitted;
    *operation_of(context, sequence) = operation;
    context->pending_ns += operation.remaining_ns;
    if (!context->waiting[queue.stream]++) context->busy_streams++;
    context->last[queue.stream] = sequence;
    if (queue.blocking) context->blocking |= 1ull << queue.stream;
    return sequence;
}

uint64_t fake_submit(struct fake_queue queue, uint64_t duration_ns, int event) {
    struct fake_context *context = &fake->contexts[queue.context];
    uint64_t sequence = put(queue, (struct fake_operation){.remaining_ns = duration_ns, .event = event});
    if (event >= 0) {
        struct fake_event *record = &fake->processes[context->process].events[event];
        record->sequence = sequence;
        record->context = queue.context;
        record->done_ns = 0;
    } else {
        fake->processes[context->process].launches++;
    }
    fake_execute(context->device, fake->devices[context->device].advanced_ns);
    fake_unlock();
    return sequence;
}

void fake_hold(struct fake_queue queue, int context, uint64_t sequence) {
    int device = fake->contexts[queue.context].device;
    put(queue, (struct fake_operation){.awaited = sequence, .awaited_context = context, .event = -1});
    fake_execute(device, fake->devices[device].advanced_ns);
    fake_unlock();
}

void fake_use_word(struct fake_queue queue, enum fake_word_use use, uint64_t address, uint32_t value) {
    int device = fake->contexts[queue.context].device;
    put(queue, (struct fake_operation){.word_use = use, .word = address, .value = value, .event = -1});
    fake_execute(device, fake->devices[device].advanced_ns);
    fake_unlock();
}

void fake_write_word(int slot, uint64_t address, uint32_t value) {
    struct fake_context *context = &fake->contexts[slot];
    fake_lock();
    fake_refresh();
    *word_at(context, address) = value;
    fake_execute(context->device, fake->devices[context->device].advanced_ns);
    fake_unlock();
}

uint64_t fake_last(struct fake_queue queue) {
    const struct fake_context *context = &fake->contexts[queue.context];
    uint64_t last = 0;
    for (int stream = 0; stream < FAKE_STREAMS; stream++) {
        bool counts = stream == queue.stream || (queue.stream == FAKE_LEGACY && context->blocking >> stream & 1);
        if (counts && context->waiting[stream] && context->last[stream] > last) last = context->last[stream];
    }
    return last;
}

void fake_await(int slot, uint64_t sequence, bool all) {
    struct fake_context *context = &fake->contexts[slot];
    for (;;) {
        fake_lock();
        fake_refresh();
        bool done = !context->used || context->completed >= sequence || (!all && is_done(context, sequence));
        uint64_t nap = 0;
        for (uint64_t ahead = context->completed + 1; !done && ahead <= sequence; ahead++)
            if (!operation_of(context, ahead)->done) nap += operation_of(context, ahead)->remaining_ns;
        fake_unlock();
        if (done) return;
        if (nap > LONGEST_NAP_NS) nap = LONGEST_NAP_NS;
        fake_sleep(nap < SHORTEST_NAP_NS ? SHORTEST_NAP_NS : nap);
    }
}
