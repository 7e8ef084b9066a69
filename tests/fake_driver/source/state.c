#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "execution.h"

struct fake_state *fake;
static int state_file = -1;
static int own_slot = -1;
static pid_t own_pid;

#define SWEEP_EVERY_NS 5000000ull

bool fake_attach_file(const char *path) {
    if (fake) return true;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return false;
    struct stat status;
    void *map = MAP_FAILED;
    if (fstat(file, &status) == 0 && (uint64_t)status.st_size == sizeof(struct fake_state))
        map = mmap(NULL, sizeof(struct fake_state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED || ((struct fake_state *)map)->magic != FAKE_MAGIC) {
        close(file);
        return false;
    }
    state_file = file;  // open to the end: closing any descriptor of the file would give up this process's lock
    fake = map;
    return true;
}

void fake_detach_file(void) {
    if (!fake) return;
    munmap(fake, sizeof *fake);
    close(state_file);
    fake = NULL;
}

bool fake_attach(void) {
    const char *path = getenv("MILLPOND_FAKE_DRIVER");
    return path && fake_attach_file(path);
}

#define PATIENCE_NS 20000000ull

// The process of a thread if it is stopped, else 0.
static pid_t stopped_process(pid_t thread) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/status", (int)thread);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    text[length < 0 ? 0 : length] = '\0';
    const char *state = strstr(text, "\nState:\tT"), *process = strstr(text, "\nTgid:\t");
    return state && process ? (pid_t)atoi(process + 7) : 0;
}

// A process that is stopped in the real driver is out of its locks first. Here it is let run until it is.
static void see_to_holder(void) {
    pid_t thread = fake->mutex.__data.__lock & 0x3fffffff;  // futex(2), FUTEX_TID_MASK
    pid_t process = stopped_process(thread);
    if (!process || fake_process_by_pid(process) < 0) return;
    fake->halts_again = thread;
    kill(process, SIGCONT);
}

void fake_lock(void) {
    int result = pthread_mutex_trylock(&fake->mutex);
    while (result == EBUSY || result == ETIMEDOUT) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        uint64_t at = (uint64_t)until.tv_nsec + PATIENCE_NS;
        until.tv_sec += (time_t)(at / 1000000000ull), until.tv_nsec = (long)(at % 1000000000ull);
        result = pthread_mutex_timedlock(&fake->mutex, &until);
        if (result == ETIMEDOUT) see_to_holder();
    }
    if (result == EOWNERDEAD) pthread_mutex_consistent(&fake->mutex);
}

void fake_unlock(void) {
    bool halts = fake->halts_again && fake->halts_again == gettid();
    if (halts) fake->halts_again = 0;
    pthread_mutex_unlock(&fake->mutex);
    if (halts) kill(getpid(), SIGSTOP);
}

uint64_t fake_now(void) {
    if (fake->clock.on) return fake_clock_now();
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void fake_sleep(uint64_t nanoseconds) {
    struct timespec span = {(time_t)(nanoseconds / 1000000000ull), (long)(nanoseconds % 1000000000ull)};
    nanosleep(&span, NULL);
}

void fake_spend(uint64_t nanoseconds) {
    struct timespec span = {0, (long)nanoseconds};
    if (!nanoseconds) return;
    if (fake->clock.on) {
        clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &span, NULL);
        return;
    }
    for (uint64_t end = fake_now() + nanoseconds; fake_now() < end;) continue;
}

// A process holds a lock on one byte of the file for as long as it lives. The kernel gives it up at its death, and
// translates process ids between namespaces when asked who holds it.
static struct flock byte_of(int index, short type) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = index, .l_len = 1};
}

struct fake_process *fake_self(void) {
    if (own_slot >= 0 && own_pid == getpid()) return &fake->processes[own_slot];
    for (int index = 0; index < FAKE_PROCESSES; index++) {
        struct flock lock = byte_of(index, F_WRLCK);
        if (fake->processes[index].used || fcntl(state_file, F_SETLK, &lock) != 0) continue;
        memset(&fake->processes[index], 0, sizeof fake->processes[index]);
        fake->processes[index].used = true;
        fake->processes[index].pid = getpid();
        own_slot = index;
        if (index >= fake->process_top) fake->process_top = index + 1;
        own_pid = getpid();
        return &fake->processes[index];
    }
    return NULL;
}

// Whether it lives, and its number as the caller sees it: 0 for one of a namespace that the caller does not see into.
static bool lives(int index, pid_t *pid) {
    *pid = own_pid;
    if (index == own_slot && own_pid == getpid()) return true;
    struct flock lock = byte_of(index, F_WRLCK);
    if (fcntl(state_file, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return false;
    *pid = lock.l_pid;
    return true;
}

pid_t fake_process_pid(int index) {
    pid_t pid;
    return fake->processes[index].used && lives(index, &pid) ? pid : 0;
}

int fake_process_by_pid(pid_t pid) {
    for (int index = 0; index < fake->process_top; index++)
        if (fake->processes[index].used && fake_process_pid(index) == pid) return index;
    return -1;
}

static void bury(int index) {
    for (int slot = 0; slot < fake->context_top; slot++) {
        struct fake_context *context = &fake->contexts[slot];
        if (context->used && context->process == index) context->used = false;
    }
    fake->host_used -= fake->processes[index].host_bytes;
    fake->processes[index].used = false;
}

static void arrive(struct fake_process *process, uint64_t now) {
    if (!process->transition_ns || process->transition_ns > now) return;
    if (process->next_state == FAKE_LOCKED && process->state == FAKE_RESTORING) {
        fake->host_used -= process->host_bytes;
        process->host_bytes = 0;
    }
    process->state = process->next_state;
    process->transition_ns = 0;
}

void fake_refresh(void) {
    uint64_t now = fake_now();
    bool sweep = now - fake->swept_ns > SWEEP_EVERY_NS;
    if (sweep) fake->swept_ns = now;
    for (int index = 0; index < fake->process_top; index++) {
        struct fake_process *process = &fake->processes[index];
        if (!process->used) continue;
        arrive(process, now);
        pid_t pid;
        if (sweep && !lives(index, &pid)) bury(index);
    }
    for (int device = 0; device < fake->device_count; device++) fake_execute(device, now);
}

void fake_refresh_all(void) {
    fake->swept_ns = 0;
    fake_refresh();
}

uint64_t fake_process_bytes(int process, int device) {
    uint64_t sum = 0;
    enum fake_process_state state = fake->processes[process].state;
    if (state == FAKE_CHECKPOINTED) return 0;
    for (int slot = 0; slot < fake->context_top; slot++) {
        struct fake_context *context = &fake->contexts[slot];
        if (context->used && context->process == process && context->device == device)
            sum += context->overhead_bytes + context->bytes;
    }
    return sum;
}

uint64_t fake_device_used(int device) {
    uint64_t sum = 0;
    for (int process = 0; process < fake->process_top; process++)
        if (fake->processes[process].used) sum += fake_process_bytes(process, device);
    return sum;
}

static bool strikes(struct fake_fault *fault) {
    if (fault->skip) {
        fault->skip--;
        return false;
    }
    if (fault->one_in > 1) {
        fake->seed = fake->seed * 6364136223846793005ull + 1442695040888963407ull;
        if ((fake->seed >> 33) % fault->one_in) return false;
    }
    if (fault->times && --fault->times == 0) fault->call[0] = '\0';
    return true;
}

bool fake_fault(const char *call, pid_t about, int device, int *result) {
    if (!fake->fault_count) return false;
    fake_lock();
    for (int index = 0; index < FAKE_FAULTS; index++) {
        struct fake_fault *fault = &fake->faults[index];
        if (strcmp(fault->call, call) != 0) continue;
        if (fault->pid && fault->pid != about && fault->pid != getpid()) continue;
        if (fault->device >= 0 && fault->device != device) continue;
        struct fake_fault plan = *fault;
        if (!strikes(fault)) continue;
        int target = about ? fake_process_by_pid(about) : -1;
        if (plan.action == FAKE_FAIL_TARGET && target >= 0) fake->processes[target].state = FAKE_FAILED;
        fake_unlock();
        if (plan.action == FAKE_KILL_CALLER) kill(getpid(), SIGKILL);
        if (plan.action == FAKE_KILL_TARGET && about) kill(about, SIGKILL);
        while (plan.action == FAKE_HANG) pause();
        *result = plan.result;
        return true;
    }
    fake_unlock();
    return false;
}
