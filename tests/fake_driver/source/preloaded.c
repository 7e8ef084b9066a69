// Loaded before the C library into programs that live in the tests' own time (clock.c): whatever the gate, the pretended
// driver and Python know of time comes from there, and every way to rest leads there.
#include <dlfcn.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

#define EXPORT __attribute__((visibility("default")))
#define SECOND_NS 1000000000ull

static __thread int own = -1;

static bool is_on(void) { return fake_attach() && fake->clock.on; }

static long (*real_syscall(void))(long, ...) {
    static long (*found)(long, ...);
    if (!found) found = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return found;
}

static uint64_t nanoseconds_of(const struct timespec *span) {
    return span ? (uint64_t)span->tv_sec * SECOND_NS + (uint64_t)span->tv_nsec : 3600 * SECOND_NS;
}

static void rest(uint64_t nanoseconds, const volatile uint32_t *word, uint32_t value) {
    if (own < 0) own = fake_clock_join();
    fake_clock_rest(own, nanoseconds, word, value, 0);
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_MONOTONIC || !is_on()) return (int)real_syscall()(SYS_clock_gettime, clock, now);
    uint64_t at = fake_clock_now();
    *now = (struct timespec){(time_t)(at / SECOND_NS), (long)(at % SECOND_NS)};
    return 0;
}

EXPORT int nanosleep(const struct timespec *span, struct timespec *left) {
    if (!is_on()) return (int)real_syscall()(SYS_nanosleep, span, left);
    rest(nanoseconds_of(span), NULL, 0);
    return 0;
}

// By the clock of the process, it is how the pretended driver asks for time that a thread computes.
EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *span, struct timespec *left) {
    bool computes = clock == CLOCK_PROCESS_CPUTIME_ID;
    if ((!computes && clock != CLOCK_MONOTONIC) || !is_on())
        return (int)real_syscall()(SYS_clock_nanosleep, clock, flags, span, left);
    uint64_t nanoseconds = nanoseconds_of(span), now = fake_clock_now();
    if (flags & TIMER_ABSTIME) nanoseconds = nanoseconds > now ? nanoseconds - now : 0;
    if (own < 0) own = fake_clock_join();
    if (computes) fake_clock_spend(own, nanoseconds);
    else rest(nanoseconds, NULL, 0);
    return 0;
}

EXPORT long syscall(long number, ...) {
    long words[6];
    va_list rest_of;
    va_start(rest_of, number);
    for (int index = 0; index < 6; index++) words[index] = va_arg(rest_of, long);
    va_end(rest_of);
    long operation = words[1] & FUTEX_CMD_MASK;
    if (number != SYS_futex || operation > FUTEX_WAKE || !is_on())
        return real_syscall()(number, words[0], words[1], words[2], words[3], words[4], words[5]);
    if (operation == FUTEX_WAKE) fake_clock_wake();
    else rest(nanoseconds_of((const struct timespec *)words[3]), (const uint32_t *)words[0], (uint32_t)words[2]);
    return 0;
}

// A program that waits for the next order takes no part. One whose order is there already does: time that passed while
// it had yet to be read would pass before what was asked for. So it takes part again before it reads, and says until
// then that it does not: who sees that while an order lies there lets no time pass yet.
EXPORT ssize_t read(int file, void *room, size_t size) {
    if (file != STDIN_FILENO || !is_on()) return real_syscall()(SYS_read, file, room, size);
    struct pollfd order = {file, POLLIN, 0};
    if (poll(&order, 1, 0) == 0) {
        fake_clock_set_reading(getpid(), true);
        if (own >= 0) fake_clock_leave(own);
        while (poll(&order, 1, -1) < 0) continue;
        own = fake_clock_join();
        fake_clock_set_reading(getpid(), false);
    }
    if (own < 0) own = fake_clock_join();
    return real_syscall()(SYS_read, file, room, size);
}

struct beginning { void *(*run)(void *); void *argument; int sleeper; };

static void *begin(void *given) {
    struct beginning beginning = *(struct beginning *)given;
    free(given);
    own = beginning.sleeper;
    return beginning.run(beginning.argument);
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    typedef int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    create real = (create)dlsym(RTLD_NEXT, "pthread_create");
    if (!is_on()) return real(thread, attributes, run, argument);
    struct beginning *beginning = malloc(sizeof *beginning);
    *beginning = (struct beginning){run, argument, fake_clock_join()};
    return real(thread, attributes, begin, beginning);
}
