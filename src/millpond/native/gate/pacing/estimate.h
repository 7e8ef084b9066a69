// What one launch takes, learnt from spans between events.
#ifndef GATE_ESTIMATE_H
#define GATE_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

struct estimate {
    uint64_t ns;  // 0 while unknown
    // Of readings in a row that were all shorter, or all longer:
    uint64_t longest_shorter_ns, shortest_longer_ns, longer_span_ns;
    unsigned shorter, longer;
    unsigned readings;  // since several in a row last put `ns` right
    uint64_t settled_ns;  // what `ns` was when it last strayed
};

struct reading {
    uint64_t span_ns;
    uint32_t launches;
    bool queued;     // behind the program's own work: nothing but work is in it
    bool shared;     // others may have been on the card
    unsigned parts;  // of such a span, in which others were on the card, one at least was its own; 0: nobody can say
};

bool estimate_is_sure(const struct estimate *estimate);
bool estimate_strays(struct estimate *estimate);  // so far that what was counted by it was wrong; asked once for each time
void estimate_learn(struct estimate *estimate, const struct reading *reading);
// They took so long at least.
void estimate_learn_longer(struct estimate *estimate, const struct reading *reading);

#endif
