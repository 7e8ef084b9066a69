// Included before everything else: names the oldest versions of functions that newer C libraries have moved, so that a
// library built with a new one loads with those of old images. All others are older than GLIBC_2.17 by themselves.
#ifndef GATE_GLIBC_VERSIONS_H
#define GATE_GLIBC_VERSIONS_H

#if defined(__x86_64__)
#define OLDEST(name, version) __asm__(".symver " #name "," #name "@" version)
#else
#define OLDEST(name, version) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#endif

OLDEST(dladdr1, "GLIBC_2.3.3");
OLDEST(dlopen, "GLIBC_2.2.5");
OLDEST(pthread_create, "GLIBC_2.2.5");
OLDEST(pthread_detach, "GLIBC_2.2.5");
OLDEST(pthread_join, "GLIBC_2.2.5");
OLDEST(pthread_key_create, "GLIBC_2.2.5");
OLDEST(pthread_mutex_trylock, "GLIBC_2.2.5");
OLDEST(pthread_setcancelstate, "GLIBC_2.2.5");
OLDEST(pthread_setspecific, "GLIBC_2.2.5");
OLDEST(pthread_sigmask, "GLIBC_2.2.5");

#endif
