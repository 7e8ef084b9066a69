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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hooks.h"
#include "region.h"

struct gate gate;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int usage_file = -1;  // kept open for its locks, unless the program closes it
static struct stat usage_is;

#define CARD "shared/card"

#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#endif

// As the program was started with it, whatever it makes of its environment.
static struct { char folder[4096]; bool read, gated, required; } settings;

__attribute__((constructor)) static void read_settings(void) {
    const char *folder = getenv("MILLPOND_GATE");
    if (settings.read) return;
    settings.read = true;
    settings.gated = folder;
    settings.required = getenv("MILLPOND_GATE_REQUIRED");
    if (folder && strlen(folder) < sizeof settings.folder) strcpy(settings.folder, folder);
}

static uint64_t namespace_ns;  // by which the clock of the process's time namespace is ahead of the machine's

uint64_t gate_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec - namespace_ns;
}

static uint64_t read_time_namespace(void) {
    char text[128] = "";
    long long seconds = 0, nanoseconds = 0;
    int file = open("/proc/self/timens_offsets", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) > 0) sscanf(text, "monotonic %lld %lld", &seconds, &nanoseconds);
    close(file);
    return (uint64_t)(seconds * 1000000000ll + nanoseconds);
}

void gate_wait(_Atomic uint32_t *word, uint32_t value, uint64_t nanoseconds, bool shared) {
    struct timespec span = {(time_t)(nanoseconds / 1000000000ull), (long)(nanoseconds % 1000000000ull)};
    syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, value, &span, NULL, 0);
}

void gate_wake(_Atomic uint32_t *word, bool shared) {
    syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

static int open_file(const char *name, bool writable) {
    char path[sizeof settings.folder + 32];
    snprintf(path, sizeof path, "%s/%s", settings.folder, name);
    int file = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (file < 0 || file > STDERR_FILENO) return file;
    // Of a program that has closed its own: what it says there goes nowhere, and not into the gate's files.
    int moved = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(file);
    return moved;
}

// What the agent wrote at a file's beginning.
static void *map(int file, size_t size, bool writable) {
    if (file < 0 || lseek(file, 0, SEEK_END) < (off_t)size) return NULL;
    void *found = mmap(NULL, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, file, 0);
    if (found != MAP_FAILED && *(uint64_t *)found == GATE_MAGIC && ((uint32_t *)found)[2] == GATE_VERSION) return found;
    if (found != MAP_FAILED) munmap(found, size);
    return NULL;
}

static void *map_named(const char *name, size_t size, bool writable) {
    int file = open_file(name, writable);
    void *found = map(file, size, writable);
    if (file >= 0) close(file);
    return found;
}

// Any neighbour can write over its beginning or cut it short, which is no reason to be refused the card.
static void *map_card(void) {
    size_t size = sizeof *gate.card;
    int file = open_file(CARD, true);
    if (file < 0) return NULL;
    bool whole = lseek(file, 0, SEEK_END) >= (off_t)size || !ftruncate(file, (off_t)size);
    void *found = whole ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    close(file);
    return found == MAP_FAILED ? NULL : found;
}

static struct sigaction before_ours;

// Whether the kernel finds no page there; it is made to read a set of signals, for no purpose that it knows.
static bool is_cut_off(const char *at) {
    return syscall(SYS_rt_sigprocmask, -1, at, NULL, sizeof(uint64_t)) != 0 && errno == EFAULT;
}

// A handler that the program has put before the gate's, and that passes the signal on, does so without the address.
static bool is_of_card(const siginfo_t *about) {
    const char *first = (const char *)gate.card, *end = first + sizeof *gate.card, *at = about->si_addr;
    if (!gate.card) return false;
    return about->si_code > 0 ? at >= first && at < end : is_cut_off(first) || is_cut_off(end - sizeof(uint64_t));
}

// Somebody has cut a file short that all slices of the card can write: this process goes on with pages of its own, and
// without turns, rather than die of its neighbour; before its next batch it makes the file whole, and follows it again.
static void on_bus_error(int number, siginfo_t *about, void *machine) {
    int error = errno;
    if (is_of_card(about)) {
        mmap(gate.card, sizeof *gate.card, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        gate.cards = gate.control->cards - 1;
        if (gate.slot) gate.slot->turn_timeouts++;
    } else if (before_ours.sa_flags & SA_SIGINFO) {
        before_ours.sa_sigaction(number, about, machine);
    } else if (before_ours.sa_handler != SIG_DFL && before_ours.sa_handler != SIG_IGN) {
        before_ours.sa_handler(number);
    } else {
        signal(SIGBUS, SIG_DFL);  // it strikes again as soon as this returns
    }
    errno = error;
}

static void survive_bus_errors(void) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    sigaction(SIGBUS, &action, &before_ours);
}

static void unmap_all(void) {
    if (gate.control) munmap((void *)gate.control, sizeof *gate.control);
    if (gate.usage) munmap(gate.usage, sizeof *gate.usage);
    if (gate.card) munmap(gate.card, sizeof *gate.card);
    gate.control = NULL, gate.usage = NULL, gate.card = NULL;
}

static bool map_all(void) {
    gate.control = map_named("control", sizeof *gate.control, false);
    gate.usage = gate.control ? map(usage_file, sizeof *gate.usage, true) : NULL;
    gate.card = gate.usage ? map_card() : NULL;
    if (gate.card && gate.control->member < GATE_MEMBERS) return true;
    unmap_all();
    return false;
}

// With the lock of the pacing held. The pages change in place, as any thread may be reading them.
bool gate_follow(void) {
    uint32_t cards = gate.control->cards;
    void *found = map_card();
    if (!found) return false;
    gate.member = gate.control->member < GATE_MEMBERS ? gate.control->member : gate.member;
    if (mremap(found, sizeof *gate.card, sizeof *gate.card, MREMAP_MAYMOVE | MREMAP_FIXED, gate.card) == MAP_FAILED) return false;
    gate.cards = cards;
    return true;
}

static int lock_byte(int command, off_t byte, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    do result = fcntl(usage_file, command, &lock);
    while (result != 0 && errno == EINTR);
    return result;
}

// Who has a slot holds two locks. One is the process's, so that the kernel can say whose it is; it goes when the process
// closes any descriptor of the file. The other is the mapping's, and stays for as long as the process lives.
static bool lock_slot(int index) {
    bool locked = !lock_byte(F_OFD_SETLK, GATE_LIVE_LOCK + index, F_WRLCK) || errno == EINVAL;  // of old kernels
    if (locked && !lock_byte(F_SETLK, index, F_WRLCK)) return true;
    if (locked) lock_byte(F_OFD_SETLK, GATE_LIVE_LOCK + index, F_UNLCK);
    return false;
}

// Old C libraries have no function of that name.
static bool look_at(int file, struct stat *about) { return file >= 0 && !syscall(SYS_fstat, file, about); }

static bool is_usage(int file) {
    struct stat about;
    return look_at(file, &about) && about.st_dev == usage_is.st_dev && about.st_ino == usage_is.st_ino;
}

static void close_usage(void) {
    if (is_usage(usage_file)) close(usage_file);
    usage_file = -1;
}

// Programs close all files that they do not know, and open others of the same number.
static bool has_usage_file(void) {
    if (LIKELY(is_usage(usage_file))) return true;
    int file = open_file("usage", true);
    usage_file = is_usage(file) ? file : -1;
    if (file >= 0 && usage_file < 0) close(file);
    return usage_file >= 0 && !lock_byte(F_SETLK, gate.slot - gate.usage->slot, F_WRLCK);
}

void gate_keep_place(void) {
    if (pthread_mutex_trylock(&mutex)) return;
    if (gate.slot) has_usage_file();
    pthread_mutex_unlock(&mutex);
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
    for (int index = 0; index < GATE_SLOTS; index++) {
        if (!lock_slot(index)) continue;
        struct gate_slot *slot = &gate.usage->slot[index];
        retire(slot);  // whoever had it is dead
        slot->pid = (uint64_t)getpid();
        uint64_t top = gate.usage->slot_top;
        while (top <= (uint64_t)index && !atomic_compare_exchange_weak(&gate.usage->slot_top, &top, index + 1)) continue;
        return slot;
    }
    return NULL;
}

// Threads that still run while the process ends count into nothing, or into the slot, which is nobody else's before they
// are gone.
__attribute__((destructor)) static void leave(void) {
    static struct gate_slot nowhere;
    struct gate_slot *slot = gate.slot;
    if (!slot) return;
    gate.slot = &nowhere;
    retire(slot);
    if (is_usage(usage_file)) lock_byte(F_SETLK, slot - gate.usage->slot, F_UNLCK);
}

void gate_reset(void) {
    gate.slot = NULL;
    unmap_all();  // the parent's slot is locked as long as any process has this mapping, or the description behind it
    close_usage();
    pthread_mutex_init(&mutex, NULL);
}

static void say(const char *what, const char *why, const char *outcome) {
    static bool said;
    char text[sizeof settings.folder + 256];
    int length = snprintf(text, sizeof text, "millpond: %s %s%s; %s\n", what, settings.folder, why, outcome);
    if (said || length < 0) return;
    said = true;
    if (write(STDERR_FILENO, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1) < 0) return;
}

#define REFUSED "this program is refused the card"

// With the files of the slice in place a process has its limits or no card; without them, the policy decides.
static struct gate_slot *find_place(void) {
    usage_file = open_file("usage", true);
    bool denied = usage_file < 0 && errno == EACCES;
    bool found = look_at(usage_file, &usage_is) && map_all();
    struct gate_slot *slot = found ? take_slot() : NULL;
    if (slot) return slot;
    unmap_all();
    close_usage();
    if (!found) gate.open = !settings.required;
    const char *why = denied ? ", which this user may not open" : "";
    if (found) say("all places are taken in the slice of", "", REFUSED);
    else say("no gate in", why, gate.open ? "this program shares its card without limits" : REFUSED);
    return NULL;
}

static void attach(void) {
    static bool survives;
    read_settings();
    gate.open = !settings.gated && !settings.required;
    struct gate_slot *slot = settings.gated ? find_place() : NULL;
    if (!slot) return;
    if (!survives) survive_bus_errors();
    survives = true;
    namespace_ns = read_time_namespace();
    gate.cards = gate.control->cards;
    gate.member = gate.control->member;
    gate.slot = slot;
}

bool gate_attach(void) {
    if (gate.open) return false;
    int cancellation = hold_cancellation();
    pthread_mutex_lock(&mutex);
    if (!gate.slot && !gate.open) attach();
    pthread_mutex_unlock(&mutex);
    allow_cancellation(cancellation);
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

static bool is_empty(const struct gate_slot *slot) { return !slot->pid && !slot->used_bytes && !slot->in_flight; }

// Each slot is locked while it is emptied, so that nobody takes it meanwhile.
static void reap_dead(void) {
    for (int index = 0; index < GATE_SLOTS && has_usage_file(); index++) {
        struct gate_slot *slot = &gate.usage->slot[index];
        if (slot == gate.slot || is_empty(slot) || !lock_slot(index)) continue;
        retire(slot);
        lock_byte(F_SETLK, index, F_UNLCK);
        lock_byte(F_OFD_SETLK, GATE_LIVE_LOCK + index, F_UNLCK);
    }
}

void gate_reap_dead(void) {
    pthread_mutex_lock(&mutex);
    if (gate.slot) reap_dead();
    pthread_mutex_unlock(&mutex);
}

// Shows the claim first and then adds up everybody's: of several that claim at once, the last to do so sees all others.
static bool claim(uint64_t bytes, uint64_t cap) {
    struct gate_slot *slot = gate.slot;
    slot->claimed_bytes = bytes;
    bool fits = sum(true) <= cap;
    if (fits) slot->used_bytes += bytes;
    slot->claimed_bytes = 0;
    return fits;
}

#define CLAIM_ATTEMPTS 1000  // beyond which a claim that stands in the way may be a halted process's
#define LOCK_ATTEMPTS 1000   // and a lock
#define LOCK_NAP_NS 500000

// Without it, two that claim the last of a cap together may both be refused; and neither has more than it should.
static bool lock_charges(void) {
    for (int attempt = 0; attempt < LOCK_ATTEMPTS; attempt++) {
        if (!lock_byte(F_SETLK, GATE_CHARGE_LOCK, F_WRLCK)) return true;
        struct timespec span = {0, attempt < LOCK_ATTEMPTS / 10 ? 0 : LOCK_NAP_NS};
        nanosleep(&span, NULL);
    }
    return false;
}

// One process at a time decides what to do at the cap: what the dead held is free, and a claim of another's that comes to
// nothing keeps nobody from what is left.
static bool claim_at_cap(uint64_t bytes, uint64_t cap) {
    int cancellation = hold_cancellation();
    bool fits = false, room = true, locked = has_usage_file() && lock_charges();
    reap_dead();
    for (int attempt = 0; attempt < CLAIM_ATTEMPTS && room && !fits; attempt++) {
        room = sum(false) <= cap - bytes;
        fits = room && claim(bytes, cap);
        if (room && !fits) sched_yield();
    }
    if (locked) lock_byte(F_SETLK, GATE_CHARGE_LOCK, F_UNLCK);
    allow_cancellation(cancellation);
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
