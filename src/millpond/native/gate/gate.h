// What all parts of the gate are written with.
#ifndef GATE_H
#define GATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "cuda.h"
#include "layout.h"

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define HOOK __attribute__((visibility("default")))

#endif
