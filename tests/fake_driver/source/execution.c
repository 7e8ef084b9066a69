// A device runs one context at a time, in slices, as the driver does by default: contexts with work take equal turns.
#include "execution.h"

#define LONGEST_NAP_NS 2000000ull
#define SHORTEST_NAP_NS 20000ull

static bool has_work(int slot, int device) {
    struct fake_context *context = &fake->contexts[slot];
    return context->used && context->device == device && context->submitted != context->completed;
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
        if (event->used && event->sequence == context->completed + 1) event->done_ns = at;
    }
    context->completed++;
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
        struct fake_operation *operation = &context->queue[context->completed % FAKE_QUEUE];
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

uint64_t fake_submit(int slot, uint64_t duration_ns, int event) {
    struct fake_context *context = &fake->contexts[slot];
    fake_lock();
    fake_refresh();
    while (context->submitted - context->completed >= FAKE_QUEUE) {
        fake_unlock();
        fake_sleep(SHORTEST_NAP_NS * 5);
        fake_lock();
        fake_refresh();
    }
    context->queue[context->submitted % FAKE_QUEUE] = (struct fake_operation){duration_ns, event, 0};
    context->pending_ns += duration_ns;
    uint64_t sequence = ++context->submitted;
    if (event >= 0) {
        struct fake_event *record = &fake->processes[context->process].events[event];
        record->sequence = sequence;
        record->context = slot;
        record->done_ns = 0;
    } else {
        fake->processes[context->process].launches++;
    }
    fake_execute(context->device, fake->devices[context->device].advanced_ns);
    fake_unlock();
    return sequence;
}

void fake_await(int slot, uint64_t sequence) {
    struct fake_context *context = &fake->contexts[slot];
    for (;;) {
        fake_lock();
        fake_refresh();
        bool done = !context->used || context->completed >= sequence;
        uint64_t nap = 0;
        for (uint64_t ahead = context->completed; !done && ahead < sequence; ahead++)
            nap += context->queue[ahead % FAKE_QUEUE].remaining_ns;
        fake_unlock();
        if (done) return;
        if (nap > LONGEST_NAP_NS) nap = LONGEST_NAP_NS;
        fake_sleep(nap < SHORTEST_NAP_NS ? SHORTEST_NAP_NS : nap);
    }
}
