// The process's place in its slice: the mapped files, a slot of its own, and the memory that all processes of the slice
// have been charged for.
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hooks.h"
#include "region.h"

struct gate gate;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int usage_file = -1;

#define CARD "shared/card"

uint64_t gate_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void gate_wait(_Atomic uint32_t *word, uint32_t value, uint64_t nanoseconds, bool shared) {
    struct timespec span = {(time_t)(nanoseconds / 1000000000ull), (long)(nanoseconds % 1000000000ull)};
    syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, value, &span, NULL, 0);
}

void gate_wake(_Atomic uint32_t *word, bool shared) {
    syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

static void *map(const char *folder, const char *name, size_t size, bool writable, int *file) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return NULL;
    *file = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (*file < 0) return NULL;
    void *found = MAP_FAILED;
    if (lseek(*file, 0, SEEK_END) >= (off_t)size)
        found = mmap(NULL, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, *file, 0);
    if (found != MAP_FAILED && *(uint64_t *)found == GATE_MAGIC && ((uint32_t *)found)[2] == GATE_VERSION) return found;
    close(*file);
    return NULL;
}

static struct sigaction before_ours;

// Somebody has cut a file short that all slices of the card can write: this process goes on with pages of its own, and
// without turns, rather than die of its neighbour.
static void on_bus_error(int number, siginfo_t *about, void *machine) {
    uintptr_t at = (uintptr_t)about->si_addr, first = (uintptr_t)gate.card;
    if (gate.card && at >= first && at < first + sizeof *gate.card) {
        mmap(gate.card, sizeof *gate.card, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (gate.slot) gate.slot->turn_timeouts++;
    } else if (before_ours.sa_flags & SA_SIGINFO) {
        before_ours.sa_sigaction(number, about, machine);
    } else if (before_ours.sa_handler != SIG_DFL && before_ours.sa_handler != SIG_IGN) {
        before_ours.sa_handler(number);
    } else {
        signal(SIGBUS, SIG_DFL);  // it strikes again as soon as this returns
    }
}

static void survive_bus_errors(void) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGBUS, &action, &before_ours);
}

static bool map_all(const char *folder) {
    int control_file = -1, card_file = -1;
    gate.control = map(folder, "control", sizeof *gate.control, false, &control_file);
    gate.usage = gate.control ? map(folder, "usage", sizeof *gate.usage, true, &usage_file) : NULL;
    gate.card = gate.usage ? map(folder, CARD, sizeof *gate.card, true, &card_file) : NULL;
    if (control_file >= 0) close(control_file);
    if (card_file >= 0) close(card_file);
    // The file with the slots stays open: to close any descriptor of it gives up the lock.
    return gate.card && gate.control->member < GATE_MEMBERS;
}

// With the lock of the pacing held. The pages change in place, as any thread may be reading them.
bool gate_follow(void) {
    const char *folder = getenv("MILLPOND_GATE");
    int file = -1;
    uint32_t cards = gate.control->cards;
    void *found = folder ? map(folder, CARD, sizeof *gate.card, true, &file) : NULL;
    if (!found) return false;
    close(file);
    gate.member = gate.control->member < GATE_MEMBERS ? gate.control->member : gate.member;
    if (mremap(found, sizeof *gate.card, sizeof *gate.card, MREMAP_MAYMOVE | MREMAP_FIXED, gate.card) == MAP_FAILED) return false;
    gate.cards = cards;
    return true;
}

static int lock_byte(int command, off_t byte, short type, struct flock *lock) {
    *lock = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    do result = fcntl(usage_file, command, lock);
    while (result != 0 && errno == EINTR);
    return result;
}

// Empties a slot whose process is gone or about to go; what it counted stays counted.
static void retire(struct gate_slot *slot) {
    gate.usage->past_launches += slot->launches;
    gate.usage->past_busy_ns += slot->busy_ns;
    gate.usage->past_denials += slot->denials;
    gate.usage->past_unmeasured += slot->unmeasured;
    gate.usage->past_turn_timeouts += slot->turn_timeouts;
    gate.usage->past_waited_ns += slot->waited_ns;
    memset(slot, 0, sizeof *slot);
}

static struct gate_slot *take_slot(void) {
    struct flock lock;
    for (int index = 0; index < GATE_SLOTS; index++) {
        if (lock_byte(F_SETLK, index, F_WRLCK, &lock) != 0) continue;
        struct gate_slot *slot = &gate.usage->slot[index];
        retire(slot);  // whoever had it is dead
        slot->pid = (uint64_t)getpid();
        uint64_t top = gate.usage->slot_top;
        while (top <= (uint64_t)index && !atomic_compare_exchange_weak(&gate.usage->slot_top, &top, index + 1)) continue;
        return slot;
    }
    return NULL;
}

// Threads that still run while the process ends count into nothing.
__attribute__((destructor)) static void leave(void) {
    static struct gate_slot nowhere;
    struct flock lock;
    struct gate_slot *slot = gate.slot;
    if (!slot) return;
    gate.slot = &nowhere;
    retire(slot);
    lock_byte(F_SETLK, slot - gate.usage->slot, F_UNLCK, &lock);
}

void gate_reset(void) {
    gate.slot = NULL;
    pthread_mutex_init(&mutex, NULL);
}

static void say(const char *what, const char *folder, const char *outcome) {
    static bool said;
    char text[512];
    int length = snprintf(text, sizeof text, "millpond: %s %s; %s\n", what, folder, outcome);
    if (said || length < 0) return;
    said = true;
    if (write(STDERR_FILENO, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1) < 0) return;
}

#define REFUSED "this program is refused the card"

// With the files of the slice in place a process has its limits or no card; without them, the policy decides.
static void find_place(const char *folder) {
    if (!folder || (!gate.card && !map_all(folder))) {
        gate.open = !getenv("MILLPOND_GATE_REQUIRED");
        if (folder) say("no gate in", folder, gate.open ? "this program shares its card without limits" : REFUSED);
        return;
    }
    struct gate_slot *slot = take_slot();
    if (!slot) {
        say("all places are taken in the slice of", folder, REFUSED);
        return;
    }
    static bool survives;
    if (!survives) survive_bus_errors();
    survives = true;
    gate.cards = gate.control->cards;
    gate.member = gate.control->member;
    gate.slot = slot;
}

bool gate_attach(void) {
    if (gate.open) return false;
    const char *folder = getenv("MILLPOND_GATE");
    pthread_mutex_lock(&mutex);
    if (!gate.slot && !gate.open) find_place(folder);
    pthread_mutex_unlock(&mutex);
    return gate.slot != NULL;
}

// Nothing works in a process for which the driver does not start.
HOOK CUresult cuInit(unsigned flags) {
    if (!gate_ready() && !gate.open) return CUDA_SYSTEM_NOT_READY;
    return REAL(cuInit)(flags);
}

static int slot_top(void) { return gate.usage->slot_top < GATE_SLOTS ? (int)gate.usage->slot_top : GATE_SLOTS; }

static uint64_t sum(bool claims) {
    uint64_t bytes = gate.control->uncounted_bytes;
    for (int index = 0, top = slot_top(); index < top; index++) {
        const struct gate_slot *slot = &gate.usage->slot[index];
        bytes += slot->used_bytes + (claims ? slot->claimed_bytes : 0);
    }
    return bytes;
}

// Each slot is locked while it is emptied, so that nobody takes it meanwhile.
void gate_reap_dead(void) {
    struct flock lock;
    for (int index = 0; index < GATE_SLOTS; index++) {
        struct gate_slot *slot = &gate.usage->slot[index];
        if (slot == gate.slot || !slot->pid || lock_byte(F_SETLK, index, F_WRLCK, &lock) != 0) continue;
        retire(slot);
        lock_byte(F_SETLK, index, F_UNLCK, &lock);
    }
}

// Shows the claim first and then adds up everybody's: of several that claim at once, the last to do so sees all others.
static bool claim(uint64_t bytes, uint64_t cap) {
    struct gate_slot *slot = gate.slot;
    slot->claimed_bytes = bytes;
    bool fits = sum(true) <= cap;
    if (fits) slot->used_bytes += bytes;
    slot->claimed_bytes = 0;
    if (fits && slot->used_bytes > slot->peak_bytes) slot->peak_bytes = slot->used_bytes;
    return fits;
}

#define CLAIM_ATTEMPTS 1000  // beyond which a claim that stands in the way may be a halted process's

// One process at a time decides what to do at the cap: what the dead held is free, and a claim of another's that comes to
// nothing keeps nobody from what is left.
static bool claim_at_cap(uint64_t bytes, uint64_t cap) {
    struct flock lock;
    bool fits = false, room = true;
    lock_byte(F_SETLKW, GATE_CHARGE_LOCK, F_WRLCK, &lock);
    gate_reap_dead();
    for (int attempt = 0; attempt < CLAIM_ATTEMPTS && room && !fits; attempt++) {
        room = sum(false) <= cap - bytes;
        fits = room && claim(bytes, cap);
        if (room && !fits) sched_yield();
    }
    lock_byte(F_SETLK, GATE_CHARGE_LOCK, F_UNLCK, &lock);
    return fits;
}

bool gate_charge(uint64_t bytes) {
    uint64_t cap = gate.control->cap_bytes;
    if (!cap) cap = INT64_MAX;
    pthread_mutex_lock(&mutex);
    bool fits = bytes <= cap && (claim(bytes, cap) || claim_at_cap(bytes, cap));
    pthread_mutex_unlock(&mutex);
    return fits;
}

void gate_charge_anyway(uint64_t bytes) {
    if (gate.slot) gate.slot->used_bytes += bytes;
}

bool gate_over_cap(void) {
    uint64_t cap = gate.control->cap_bytes;
    return cap && sum(false) > cap;
}

void gate_release_quota(uint64_t bytes) {
    if (gate.slot) gate.slot->used_bytes -= bytes;
}

uint64_t gate_charged(void) { return sum(false); }
