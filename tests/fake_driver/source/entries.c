// What cuGetProcAddress answers, from a table of its own: were it to ask dlsym, it would meet whatever a preloaded library
// put there.
#include <stddef.h>
#include <string.h>

#include "driver_api.h"
#include "entries.h"

#undef PER_THREAD
#define PER_THREAD_STREAM 2

// What it hands out is what the library exports, or on request ("own_addresses") another address of the same: which of
// them a driver does is its own business.
typedef void (*entry_point)(void);
#define ENTRY(symbol, base, version)                                          \
    extern void symbol(void);                                                 \
    extern void own_##base##_##version(void) __attribute__((visibility("hidden"))); \
    FAKE_ALSO_NAMED("own_" #base "_" #version, symbol);
#define PER_THREAD_ENTRY(symbol, base, version) ENTRY(symbol, base##_ptsz, version)
FAKE_ENTRIES FAKE_PER_THREAD_ENTRIES
#undef ENTRY

struct entry { const char *base; int version; entry_point function, own; };

#define ENTRY(symbol, base, version) {#base, version, symbol, own_##base##_##version},
static const struct entry PLAIN[] = {FAKE_ENTRIES};
#undef PER_THREAD_ENTRY
#define PER_THREAD_ENTRY(symbol, base, version) {#base, version, symbol, own_##base##_ptsz_##version},
static const struct entry PER_THREAD[] = {FAKE_PER_THREAD_ENTRIES};
#undef ENTRY

static void *newest(const struct entry *table, size_t count, const char *name, int version) {
    const struct entry *best = NULL;
    for (const struct entry *entry = table; entry < table + count; entry++)
        if (!strcmp(entry->base, name) && entry->version <= version && (!best || entry->version > best->version)) best = entry;
    bool own = best && fake_attach() && fake->own_addresses;
    return !best ? NULL : own ? (void *)best->own : (void *)best->function;
}

void *entry_address(const char *name, int version, unsigned long long flags) {
    void *found = flags & PER_THREAD_STREAM ? newest(PER_THREAD, sizeof PER_THREAD / sizeof *PER_THREAD, name, version) : NULL;
    return found ? found : newest(PLAIN, sizeof PLAIN / sizeof *PLAIN, name, version);
}
