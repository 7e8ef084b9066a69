// Finds the driver's functions, and hands programs the gate's instead: by exported names, dlsym and cuGetProcAddress.
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "c_library.h"
#include "hooks.h"

static const char *const NAMES[CALL_COUNT] = {
#define ROW(name) [HOOK_##name] = #name,
    CUDA_HOOKS(ROW) NVML_HOOKS(ROW) CUDA_CALLS(ROW) NVML_CALLS(ROW)
#undef ROW
};

void *gate_real[CALL_COUNT];

typedef void *dlsym_function(void *, const char *);
typedef void *dlvsym_function(void *, const char *, const char *);

static dlsym_function *real_dlsym(void) {
    static dlsym_function *found;
    if (!LIKELY(found != NULL)) found = (dlsym_function *)c_library_function("dlsym");
    return found;
}

static dlvsym_function *real_dlvsym(void) {
    static dlvsym_function *found;
    if (!LIKELY(found != NULL)) found = (dlvsym_function *)c_library_function("dlvsym");
    return found;
}

static void *library(bool nvml) {
    static void *opened[2];
    if (!opened[nvml]) opened[nvml] = dlopen(nvml ? "libnvidia-ml.so.1" : "libcuda.so.1", RTLD_LAZY);
    return opened[nvml];
}

static CUresult absent(void) { return CUDA_NOT_SUPPORTED; }

void *gate_resolve(int hook) {
    void *from = library(NAMES[hook][0] == 'n');
    void *found = from ? real_dlsym()(from, NAMES[hook]) : NULL;
    // A driver may lack what is newer than itself; a program that calls it all the same is told so.
    return gate_real[hook] = found ? found : (void *)absent;
}

static int hook_named(const char *name) {
    for (int hook = 0; hook < HOOK_COUNT; hook++)
        if (c_library_same(NAMES[hook], name)) return hook;
    return -1;
}

// Of another library behind the gate that does as the gate does, or the C library's.
static dlsym_function *next_dlsym(void) {
    static dlsym_function *found;
    if (LIKELY(found != NULL)) return found;
    dlsym_function *real = real_dlsym(), *next = (dlsym_function *)real(RTLD_NEXT, "dlsym");
    return found = next ? next : real;
}

static struct link_map *map_of(const void *address) {
    struct link_map *map = NULL;
    Dl_info about;
    return dladdr1(address, &about, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

// Whether the library with that code was loaded before the gate, so that the gate is what is next for it.
static bool precedes_gate(const void *code) {
    const struct link_map *asker = map_of(code), *map = map_of((const void *)gate_hooks);
    while (map && map != asker) map = map->l_prev;
    return asker && map == asker && asker != map_of((const void *)gate_hooks);
}

static bool may_be_hooked(const char *name) {
    return (name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v');
}

// Whoever asks for the next function of that name comes before the driver, and so does the gate.
static bool driver_has(void *handle, int hook) {
    if (handle != RTLD_NEXT) return real_dlsym()(handle, NAMES[hook]) != NULL;
    return (gate_real[hook] ? gate_real[hook] : gate_resolve(hook)) != (void *)absent;
}

// All other names are passed on by a jump, not a call: the C library looks at its return address to know who asks, and
// what is "next" depends on it. Names like the driver's belong to other libraries too, such as cudaMalloc.
HOOK __attribute__((optimize("O2"))) void *dlsym(void *handle, const char *name) {
    int hook = may_be_hooked(name) ? hook_named(name) : -1;
    if (hook >= 0 && driver_has(handle, hook)) return (void *)gate_hooks[hook];
    return next_dlsym()(handle, name);
}

// One that asks for the next dlsym by its version, as those do that define one themselves, would pass by the gate's: the
// gate's has none.
HOOK __attribute__((optimize("O2"))) void *dlvsym(void *handle, const char *name, const char *version) {
    int hook = may_be_hooked(name) ? hook_named(name) : -1;
    if (hook >= 0 && driver_has(handle, hook)) return (void *)gate_hooks[hook];
    if (handle == RTLD_NEXT && c_library_same(name, "dlsym") && precedes_gate(__builtin_return_address(0))) return (void *)dlsym;
    return real_dlvsym()(handle, name, version);
}

#define PER_THREAD_STREAM 2

// The first version of CUDA with an entry point, where a caller of an older one is given another variant of the name.
static int first_version(const char *full) {
    static const struct { const char *name; int version; } LATER[] = {
        {"cuDevicePrimaryCtxRelease_v2", 11000}, {"cuDevicePrimaryCtxReset_v2", 11000}, {"cuCtxCreate_v3", 11040},
        {"cuGraphInstantiate_v2", 11000}, {"cuGraphInstantiateWithFlags", 11040},
        {"cuGetProcAddress_v2", 12000}, {"cuGraphAddNode_v2", 12030}, {"cuCtxCreate_v4", 12050},
        {"cuCtxSynchronize_v2", 13000}, {"cuGraphAddNode_v3", 13040},
        {"cuMemcpyBatchAsync_v2", 13000}, {"cuMulticastBindMem_v2", 13010}, {"cuMulticastBindAddr_v2", 13010},
    };
    for (size_t index = 0; index < sizeof LATER / sizeof *LATER; index++)
        if (!strcmp(LATER[index].name, full)) return LATER[index].version;
    return strstr(full, "_v2") ? 3020 : 0;
}

// By what the driver answered; where it keeps other addresses than it exports, by the name that it must have meant.
static void *in_front_of(void *found, const char *name, int version, unsigned long long flags) {
    char full[96];
    for (int hook = 0; hook < HOOK_COUNT; hook++)
        if ((gate_real[hook] ? gate_real[hook] : gate_resolve(hook)) == found) return (void *)gate_hooks[hook];
    if (strlen(name) > sizeof full - 16) return found;
    if (version >= 12000 && !strcmp(name, "cuGraphInstantiate")) name = "cuGraphInstantiateWithFlags";
    for (int thread = flags & PER_THREAD_STREAM ? 2 : 0; thread >= 0; thread--)
        for (int variant = 4; variant >= 1; variant--) {
            static const char *const SUFFIX[] = {"", "", "_v2", "_v3", "_v4"};
            static const char *const THREAD[] = {"", "_ptds", "_ptsz"};
            snprintf(full, sizeof full, "%s%s%s", name, SUFFIX[variant], THREAD[thread]);
            int hook = version >= first_version(full) ? hook_named(full) : -1;
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
