// The process's place in its slice: the mapped files, a slot of its own, and the memory that all processes of the slice
// have been charged for.
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
    struct stat status;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return NULL;
    *file = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (*file < 0) return NULL;
    void *found = MAP_FAILED;
    if (fstat(*file, &status) == 0 && (size_t)status.st_size >= size)
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

static void say_missing(const char *folder) {
    char text[512];
    int length = snprintf(text, sizeof text, "millpond: no gate in %s; this program shares its card without limits\n", folder);
    if (write(STDERR_FILENO, text, (size_t)length) < 0) return;
}

bool gate_attach(void) {
    if (gate.missing) return false;
    const char *folder = getenv("MILLPOND_GATE");
    pthread_mutex_lock(&mutex);
    if (!gate.slot && !gate.missing) {
        bool mapped = folder && (gate.card || map_all(folder));
        struct gate_slot *slot = mapped ? take_slot() : NULL;
        if (slot) {
            static bool survives;
            if (!survives) survive_bus_errors();
            survives = true;
            gate.cards = gate.control->cards;
            gate.member = gate.control->member;
            gate.slot = slot;
        } else {
            gate.missing = true;
            if (folder) say_missing(folder);
        }
    }
    pthread_mutex_unlock(&mutex);
    return gate.slot != NULL;
}

// Where the policy is to fail closed, the driver does not start for a program whose gate is missing.
HOOK CUresult cuInit(unsigned flags) {
    if (!gate_ready() && getenv("MILLPOND_GATE_REQUIRED")) return CUDA_SYSTEM_NOT_READY;
    return REAL(cuInit)(flags);
}

static uint64_t sum(void) {
    uint64_t bytes = 0;
    for (int index = 0; index < GATE_SLOTS; index++) bytes += gate.usage->slot[index].used_bytes;
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

bool gate_charge(uint64_t bytes) {
    struct flock lock;
    struct gate_slot *slot = gate.slot;
    pthread_mutex_lock(&mutex);
    lock_byte(F_SETLKW, GATE_CHARGE_LOCK, F_WRLCK, &lock);
    uint64_t cap = gate.control->cap_bytes;
    if (!cap) cap = UINT64_MAX;
    if (bytes > cap || sum() > cap - bytes) gate_reap_dead();
    bool fits = bytes <= cap && sum() <= cap - bytes;
    if (fits) {
        slot->used_bytes += bytes;
        if (slot->used_bytes > slot->peak_bytes) slot->peak_bytes = slot->used_bytes;
    } else {
        slot->denials++;
    }
    lock_byte(F_SETLK, GATE_CHARGE_LOCK, F_UNLCK, &lock);
    pthread_mutex_unlock(&mutex);
    return fits;
}

void gate_release_quota(uint64_t bytes) {
    if (gate.slot) gate.slot->used_bytes -= bytes;
}

uint64_t gate_charged(void) { return sum(); }
