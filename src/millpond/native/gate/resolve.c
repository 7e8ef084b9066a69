// Finds the driver's functions, and hands programs the gate's instead: by exported names, dlsym and cuGetProcAddress.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "hooks.h"

typedef void *(*dlsym_function)(void *, const char *);

static const char *const NAMES[CALL_COUNT] = {
#define ROW(name) [HOOK_##name] = #name,
    CUDA_HOOKS(ROW) NVML_HOOKS(ROW) CUDA_CALLS(ROW) NVML_CALLS(ROW)
#undef ROW
};

void *gate_real[CALL_COUNT];
static dlsym_function real_dlsym;

// Versions of dlsym in the C library, by architecture and age.
static dlsym_function find_dlsym(void) {
    static const char *const VERSIONS[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (size_t index = 0; !real_dlsym && index < sizeof VERSIONS / sizeof *VERSIONS; index++)
        real_dlsym = (dlsym_function)dlvsym(RTLD_NEXT, "dlsym", VERSIONS[index]);
    return real_dlsym;
}

static void *library(bool nvml) {
    static void *opened[2];
    if (!opened[nvml]) opened[nvml] = dlopen(nvml ? "libnvidia-ml.so.1" : "libcuda.so.1", RTLD_LAZY);
    return opened[nvml];
}

static CUresult absent(void) { return CUDA_NOT_SUPPORTED; }

void *gate_resolve(int hook) {
    void *from = library(NAMES[hook][0] == 'n');
    void *found = from ? find_dlsym()(from, NAMES[hook]) : NULL;
    // A driver may lack what is newer than itself; a program that calls it all the same is told so.
    return gate_real[hook] = found ? found : (void *)absent;
}

static int hook_named(const char *name) {
    for (int hook = 0; hook < HOOK_COUNT; hook++)
        if (!strcmp(NAMES[hook], name)) return hook;
    return -1;
}

static __attribute__((noinline)) void *hooked(void *handle, const char *name) {
    void *found = find_dlsym()(handle, name);
    int hook = found ? hook_named(name) : -1;
    return hook < 0 ? found : (void *)gate_hooks[hook];
}

// All other names are passed on by a jump, not a call: dlsym looks at its return address to know who asks, and what is
// "next" depends on it.
HOOK __attribute__((optimize("O2"))) void *dlsym(void *handle, const char *name) {
    if ((name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v')) return hooked(handle, name);
    dlsym_function next = LIKELY(real_dlsym) ? real_dlsym : find_dlsym();
    return next(handle, name);
}

#define PER_THREAD_STREAM 2

// The variants of a name that its versions of CUDA brought.
static bool has_variant(const char *name, int variant, int version) {
    if (variant == 4) return version >= 12050;  // only cuCtxCreate got so far
    if (variant == 3) return version >= 11040;
    if (variant == 2 && !strcmp(name, "cuGraphAddNode")) return version >= 12030;
    return variant == 2 ? version >= 3020 : true;
}

// By what the driver answered; where it keeps other addresses than it exports, by the name that it must have meant.
static void *in_front_of(void *found, const char *name, int version, unsigned long long flags) {
    char full[96];
    for (int hook = 0; hook < HOOK_COUNT; hook++)
        if ((gate_real[hook] ? gate_real[hook] : gate_resolve(hook)) == found) return (void *)gate_hooks[hook];
    if (strlen(name) > sizeof full - 16) return found;
    for (int thread = flags & PER_THREAD_STREAM ? 1 : 0; thread >= 0; thread--)
        for (int variant = 4; variant >= 1; variant--) {
            static const char *const SUFFIX[] = {"", "", "_v2", "_v3", "_v4"};
            snprintf(full, sizeof full, "%s%s%s", name, SUFFIX[variant], thread ? "_ptsz" : "");
            int hook = has_variant(name, variant, version) ? hook_named(full) : -1;
            if (hook >= 0 && gate_real[hook] != (void *)absent) return (void *)gate_hooks[hook];
        }
    return found;
}

HOOK CUresult cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
    CUresult result = REAL(cuGetProcAddress_v2)(name, function, version, flags, status);
    if (!result && *function) *function = in_front_of(*function, name, version, flags);
    return result;
}

HOOK CUresult cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    CUresult result = REAL(cuGetProcAddress)(name, function, version, flags);
    if (!result && *function) *function = in_front_of(*function, name, version, flags);
    return result;
}
