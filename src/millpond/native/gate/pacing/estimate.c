// A reading of work that was alone on the card is believed, a little at a time: down faster than up, and faster where nothing
// of the program's own is in it. Beside others a span is longer by what the driver gave them meanwhile, and may seem short
// where its beginning had to wait for them: several readings in a row have to agree.
#include "estimate.h"

#define READINGS 3
#define READINGS_BESIDE 8         // as many have others in them, or began late
#define LONGER_SPAN_NS 30000000ull
#define LONGEST_SLICE_NS 4000000ull  // that the driver lets one have before the next
#define FAR_TIMES 4

bool estimate_is_sure(const struct estimate *estimate) { return estimate->readings > READINGS; }

bool estimate_strays(struct estimate *estimate) {
    uint64_t now = estimate->ns, then = estimate->settled_ns;
    if ((now > then ? now - then : then - now) <= then / 16) return false;
    estimate->settled_ns = now;
    return true;
}

static void learn_shorter(struct estimate *estimate, uint64_t each, unsigned enough) {
    if (!estimate->shorter || each > estimate->longest_shorter_ns) estimate->longest_shorter_ns = each;
    if (++estimate->shorter < enough) return;
    if (estimate->longest_shorter_ns < estimate->ns) estimate->ns = estimate->longest_shorter_ns;
    estimate->shorter = estimate->readings = 0;
}

// What it took at least. Where all together want more than the card, the driver's turns are equal, but each of the others
// may have had one more.
static uint64_t own_part(const struct reading *reading) {
    if (!reading->shared) return reading->span_ns;
    uint64_t before_ns = reading->parts ? (reading->parts - 1) * LONGEST_SLICE_NS : UINT64_MAX;
    return reading->span_ns > before_ns ? (reading->span_ns - before_ns) / reading->parts : 0;
}

// So much longer that one says enough, and is taken for its part: until it is learnt, what is launched is others' loss.
static bool is_far_longer(const struct estimate *estimate, const struct reading *reading) {
    uint64_t part_ns = own_part(reading);
    bool beside = reading->shared && reading->parts > 1;
    return beside && part_ns > LONGEST_SLICE_NS && part_ns > FAR_TIMES * reading->launches * estimate->ns;
}

// Where there is room for all, one of several readings has hardly anything of others in it, and neither has a long span.
void estimate_learn_longer(struct estimate *estimate, const struct reading *reading) {
    uint64_t each = own_part(reading) / reading->launches;
    if (each <= estimate->ns) return;
    bool far = is_far_longer(estimate, reading);
    if (far) estimate->longer = 0, each = reading->span_ns / reading->launches / reading->parts;
    if (!estimate->longer) estimate->longer_span_ns = 0;
    if (!estimate->longer || each < estimate->shortest_longer_ns) estimate->shortest_longer_ns = each;
    estimate->longer_span_ns += reading->span_ns;
    bool enough = ++estimate->longer >= (reading->shared ? READINGS_BESIDE : READINGS);
    if (!far && !enough && (!reading->shared || estimate->longer_span_ns < LONGER_SPAN_NS)) return;
    if (estimate->shortest_longer_ns > estimate->ns) estimate->ns = estimate->shortest_longer_ns;
    estimate->longer = estimate->readings = 0;
}

void estimate_learn(struct estimate *estimate, const struct reading *reading) {
    uint64_t before = estimate->ns, each = reading->span_ns / reading->launches;
    estimate->readings++;
    if (!before) {
        estimate->ns = each ? each : 1;
    } else if (each < before) {
        if (!reading->shared) estimate->ns = before - (before - each) / (reading->queued ? 2 : 8);
        learn_shorter(estimate, each, reading->shared && !reading->queued ? READINGS_BESIDE : READINGS);
        estimate->longer = 0;
    } else {
        if (!reading->shared) estimate->ns = before + (each - before) / 8;
        estimate_learn_longer(estimate, reading);
        estimate->shorter = 0;
    }
}
