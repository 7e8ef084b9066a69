// Functions of the C library that the gate itself stands in front of.
#ifndef GATE_C_LIBRARY_H
#define GATE_C_LIBRARY_H

#include <stdbool.h>

// As the C library defines it; NULL when it does not.
void *c_library_function(const char *name);

// Whether two texts are the same, without the C library.
bool c_library_same(const char *one, const char *other);

#endif
