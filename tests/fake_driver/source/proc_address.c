// In a file of its own, as entries.c knows no types of entry points.
#include "driver_api.h"

void *entry_address(const char *name, int version, unsigned long long flags);

API cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
    *function = entry_address(name, version, flags);
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}

API cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
