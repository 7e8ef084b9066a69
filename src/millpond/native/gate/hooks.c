// The gate's functions by number. In a file of its own, as it knows none of their types.
#include "hooks.h"

#define DECLARE(name) extern void name(void);
CUDA_HOOKS(DECLARE) NVML_HOOKS(DECLARE)
#undef DECLARE

gate_function *const gate_hooks[HOOK_COUNT] = {
#define ROW(name) name,
    CUDA_HOOKS(ROW) NVML_HOOKS(ROW)
#undef ROW
};
