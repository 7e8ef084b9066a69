#include "ledger.h"

#include "quota.h"

// An open-addressed table in pages of its own: the program's malloc may be one that allocates device memory. What is
// taken out leaves no trace, as what lies behind it moves up; so a look-up costs the same however many came and went.
static struct charge *table;
static size_t capacity, filled;  // the capacity is a power of two
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define FIRST_CAPACITY 4096

void ledger_reset(void) {
    pthread_mutex_init(&mutex, NULL);
    if (table) munmap(table, capacity * sizeof *table);
    table = NULL;
    capacity = filled = 0;
}

static size_t place_of(uint64_t key) { return (size_t)((key ^ key >> 9) * 0x9e3779b97f4a7c15ull >> 20) & (capacity - 1); }
static size_t behind(size_t at) { return (at + 1) & (capacity - 1); }

// What a context that goes had is handed out again before its entries are known to be gone: of several contexts the latest
// counts. Of handles, which no context has, the earliest does: it is let go of first.
static struct charge *find(uint64_t key) {
    struct charge *found = NULL;
    if (!table || !key) return NULL;
    for (size_t at = place_of(key); table[at].key; at = behind(at))
        if (table[at].key == key && (!found || table[at].context != found->context)) found = &table[at];
    return found;
}

static void insert(struct charge charge) {
    size_t at = place_of(charge.key);
    while (table[at].key) at = behind(at);
    table[at] = charge;
    filled++;
}

// Entries behind the hole move into it as long as their own place is not between it and where they are.
static void take_out(struct charge *entry) {
    size_t hole = (size_t)(entry - table);
    for (size_t at = behind(hole); table[at].key; at = behind(at)) {
        size_t wanted = place_of(table[at].key), mask = capacity - 1;
        if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
        table[hole] = table[at];
        hole = at;
    }
    table[hole].key = 0;
    filled--;
}

static bool grow(void) {
    size_t before = capacity, wanted = before ? before * 2 : FIRST_CAPACITY;
    void *fresh = fresh_pages(wanted * sizeof *table);
    if (!fresh) return false;
    struct charge *old = table;
    table = fresh, capacity = wanted, filled = 0;
    size_t first = 0;  // behind an empty place: those of one key keep their order
    while (old && old[first].key) first++;
    for (size_t count = 0; count < before; count++) {
        const struct charge *charge = &old[(first + count) & (before - 1)];
        if (charge->key) insert(*charge);
    }
    if (old) munmap(old, before * sizeof *old);
    return true;
}

void ledger_add(struct charge charge) {
    pthread_mutex_lock(&mutex);
    // Without room for the entry its memory stays charged until the process ends.
    if (charge.key && (filled * 2 < capacity || grow())) insert(charge);
    pthread_mutex_unlock(&mutex);
}

bool ledger_take(uint64_t key, struct charge *charge) {
    pthread_mutex_lock(&mutex);
    struct charge *found = find(key);
    if (found) {
        *charge = *found;
        take_out(found);
    }
    pthread_mutex_unlock(&mutex);
    return found != NULL;
}

void ledger_count(uint64_t handle, int references, int mappings) {
    uint64_t freed = 0;
    pthread_mutex_lock(&mutex);
    struct charge *found = find(handle);
    if (found) {
        found->references += references;
        found->mappings += mappings;
        if (found->references <= 0 && found->mappings <= 0) {
            freed = found->bytes;
            take_out(found);
        }
    }
    pthread_mutex_unlock(&mutex);
    if (freed) quota_refund(freed);
}

void ledger_drop_context(CUcontext context) {
    pthread_mutex_lock(&mutex);
    for (size_t at = 0; at < capacity;) {
        struct charge *charge = &table[at];
        if (!charge->key || charge->context != context) {
            at++;
            continue;
        }
        quota_refund(charge->bytes);
        take_out(charge);  // the place is another's now, or empty
    }
    pthread_mutex_unlock(&mutex);
}
