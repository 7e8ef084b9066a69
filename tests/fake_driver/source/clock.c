// The tests' own time: it stands still while any thread that takes part is awake, and when all rest it is at once the
// earliest instant for which one of them waits. So whoever computes takes no time at all, however long the machine keeps
// the processor from it, and what comes of a gate's reckoning does not depend on the load.
#include "clock.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#define LATE_NS 50000ull  // by which a thread wakes up after its time, as on a machine
#define SETTLING_US 20    // of the machine's time, between two looks at who is awake

static struct fake_clock *shared(void) { return &fake->clock; }

uint64_t fake_clock_now(void) { return __atomic_load_n(&shared()->now_ns, __ATOMIC_ACQUIRE); }

static void wake_due(void) {
    for (int index = 0; index < FAKE_SLEEPERS; index++) {
        struct fake_sleeper *sleeper = &shared()->sleepers[index];
        if (!sleeper->used || !sleeper->asleep || sleeper->until_ns > shared()->now_ns) continue;
        sleeper->asleep = false;
        shared()->awake++;
        sem_post(&sleeper->woken);
    }
}

static void advance(void) {
    uint64_t next = UINT64_MAX;
    if (shared()->awake) return;
    for (int index = 0; index < FAKE_SLEEPERS; index++) {
        struct fake_sleeper *sleeper = &shared()->sleepers[index];
        if (sleeper->used && sleeper->asleep && sleeper->until_ns < next) next = sleeper->until_ns;
    }
    if (next == UINT64_MAX) return;
    if (next > shared()->now_ns) __atomic_store_n(&shared()->now_ns, next, __ATOMIC_RELEASE);
    wake_due();
}

int fake_clock_join(void) {
    int found = 0;
    fake_lock();
    while (found < FAKE_SLEEPERS && shared()->sleepers[found].used) found++;
    if (found == FAKE_SLEEPERS) __builtin_trap();
    struct fake_sleeper *sleeper = &shared()->sleepers[found];
    *sleeper = (struct fake_sleeper){.used = true, .process = getpid()};
    sem_init(&sleeper->woken, 1, 0);
    shared()->awake++;
    fake_unlock();
    return found;
}

void fake_clock_leave(int index) {
    fake_lock();
    shared()->sleepers[index].used = false;
    shared()->awake--;
    advance();
    fake_unlock();
}

void fake_clock_drop(int32_t process) {
    fake_lock();
    for (int index = 0; index < FAKE_SLEEPERS; index++) {
        struct fake_sleeper *sleeper = &shared()->sleepers[index];
        if (!sleeper->used || sleeper->process != process) continue;
        sleeper->used = false;
        shared()->awake -= !sleeper->asleep;
    }
    fake_unlock();
    fake_clock_set_reading(process, false);
}

static int32_t *reader(int32_t process) {
    for (int index = 0; index < FAKE_SLEEPERS; index++)
        if (shared()->readers[index] == process) return &shared()->readers[index];
    return NULL;
}

void fake_clock_set_reading(int32_t process, bool reads) {
    fake_lock();
    int32_t *place = reader(process);
    if (!place && reads && !(place = reader(0))) __builtin_trap();
    if (place) *place = reads ? process : 0;
    fake_unlock();
}

bool fake_clock_reads(int32_t process) {
    fake_lock();
    bool reads = reader(process) != NULL;
    fake_unlock();
    return reads;
}

static bool was_woken(sem_t *woken, int patience_s) {
    struct timespec until;
    int result;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += patience_s;
    do result = patience_s ? sem_timedwait(woken, &until) : sem_wait(woken);
    while (result && errno == EINTR);
    return !result;
}

static bool rest(int index, uint64_t nanoseconds, const volatile uint32_t *word, uint32_t value, int patience_s) {
    struct fake_sleeper *sleeper = &shared()->sleepers[index];
    fake_lock();
    bool rests = !word || *word == value;
    if (rests) {
        sleeper->until_ns = shared()->now_ns + nanoseconds;
        sleeper->wakes = word != NULL;
        sleeper->asleep = true;
        shared()->awake--;
        advance();
    }
    fake_unlock();
    return !rests || was_woken(&sleeper->woken, patience_s);
}

bool fake_clock_rest(int index, uint64_t nanoseconds, const volatile uint32_t *word, uint32_t value, int patience_s) {
    return rest(index, nanoseconds + LATE_NS, word, value, patience_s);
}

bool fake_clock_settle(int patience_s) {
    for (time_t end = time(NULL) + patience_s; time(NULL) <= end; usleep(SETTLING_US)) {
        fake_lock();
        bool settled = shared()->awake <= 1;
        fake_unlock();
        if (settled) return true;
    }
    return false;
}

void fake_clock_spend(int index, uint64_t nanoseconds) { rest(index, nanoseconds, NULL, 0, 0); }

void fake_clock_wake(void) {
    fake_lock();
    uint64_t soon = shared()->now_ns + LATE_NS;
    for (int index = 0; index < FAKE_SLEEPERS; index++) {
        struct fake_sleeper *sleeper = &shared()->sleepers[index];
        if (sleeper->used && sleeper->asleep && sleeper->wakes && sleeper->until_ns > soon) sleeper->until_ns = soon;
    }
    fake_unlock();
}
