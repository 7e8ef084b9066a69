// cuGetProcAddress, from a table of its own: were it to ask dlsym, it would meet whatever a preloaded library put there.
#include <stddef.h>
#include <string.h>

#include "entries.h"

#define PER_THREAD_STREAM 2

typedef void (*entry_point)(void);
#define ENTRY(symbol, base, version) extern void symbol(void);
FAKE_ENTRIES FAKE_PER_THREAD_ENTRIES
#undef ENTRY

int cuGetProcAddress(const char *, void **, int, unsigned long long);
int cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *);

struct entry { const char *base; int version; entry_point function; };

#define ENTRY(symbol, base, version) {base, version, symbol},
static const struct entry PLAIN[] = {FAKE_ENTRIES}, PER_THREAD[] = {FAKE_PER_THREAD_ENTRIES};
#undef ENTRY

static void *newest(const struct entry *table, size_t count, const char *name, int version) {
    const struct entry *best = NULL;
    for (const struct entry *entry = table; entry < table + count; entry++)
        if (!strcmp(entry->base, name) && entry->version <= version && (!best || entry->version > best->version)) best = entry;
    return best ? (void *)best->function : NULL;
}

static void *look_up(const char *name, int version, unsigned long long flags) {
    if (!strcmp(name, "cuGetProcAddress")) return version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
    void *found = flags & PER_THREAD_STREAM ? newest(PER_THREAD, sizeof PER_THREAD / sizeof *PER_THREAD, name, version) : NULL;
    return found ? found : newest(PLAIN, sizeof PLAIN / sizeof *PLAIN, name, version);
}

__attribute__((visibility("default"))) int cuGetProcAddress_v2(const char *name, void **function, int version,
                                                               unsigned long long flags, int *status) {
    *function = look_up(name, version, flags);
    if (status) *status = *function ? 0 : 1;
    return *function ? 0 : 500;
}

__attribute__((visibility("default"))) int cuGetProcAddress(const char *name, void **function, int version,
                                                            unsigned long long flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
