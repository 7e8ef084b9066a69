#include "ledger.h"

#include <string.h>
#include <sys/mman.h>

// An open-addressed table in pages of its own: the program's malloc may be one that allocates device memory.
static struct charge *table;
static size_t capacity, filled;  // filled counts what was taken out too
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define FIRST_CAPACITY 4096
#define GONE UINT64_MAX

void ledger_reset(void) {
    pthread_mutex_init(&mutex, NULL);
    if (table) memset(table, 0, capacity * sizeof *table);
    filled = 0;
}

static size_t hash(uint64_t key) { return (size_t)((key ^ key >> 9) * 0x9e3779b97f4a7c15ull >> 20); }

static struct charge *find(uint64_t key) {
    if (!table) return NULL;
    for (size_t at = hash(key) % capacity;; at = (at + 1) % capacity) {
        if (table[at].key == key) return &table[at];
        if (!table[at].key) return NULL;
    }
}

static void insert(struct charge charge) {
    size_t at = hash(charge.key) % capacity;
    while (table[at].key) at = (at + 1) % capacity;
    table[at] = charge;
    filled++;
}

// Twice the places when half are used; what was taken out is left behind.
static bool grow(void) {
    size_t before = capacity, wanted = before ? before * 2 : FIRST_CAPACITY;
    void *fresh = mmap(NULL, wanted * sizeof *table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) return false;
    struct charge *old = table;
    table = fresh, capacity = wanted, filled = 0;
    for (size_t at = 0; at < before; at++)
        if (old[at].key && old[at].key != GONE) insert(old[at]);
    if (old) munmap(old, before * sizeof *old);
    return true;
}

void ledger_add(struct charge charge) {
    pthread_mutex_lock(&mutex);
    // Without room for the entry its memory stays charged until the process ends.
    if (filled * 2 < capacity || grow()) insert(charge);
    pthread_mutex_unlock(&mutex);
}

bool ledger_take(uint64_t key, struct charge *charge) {
    pthread_mutex_lock(&mutex);
    struct charge *found = find(key);
    if (found) {
        *charge = *found;
        found->key = GONE;
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
            found->key = GONE;
        }
    }
    pthread_mutex_unlock(&mutex);
    if (freed) gate_release_quota(freed);
}

static void drop(CUcontext context, uint64_t owner) {
    uint64_t freed = 0;
    pthread_mutex_lock(&mutex);
    for (size_t at = 0; at < capacity; at++) {
        struct charge *charge = &table[at];
        if (!charge->key || charge->key == GONE) continue;
        if (!(context ? charge->context == context : charge->owner == owner)) continue;
        freed += charge->bytes;
        charge->key = GONE;
    }
    pthread_mutex_unlock(&mutex);
    if (freed) gate_release_quota(freed);
}

void ledger_drop_context(CUcontext context) { drop(context, 0); }
void ledger_drop_owner(uint64_t owner) { drop(NULL, owner); }
