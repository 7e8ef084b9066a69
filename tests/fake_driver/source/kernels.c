// Modules and launches. A kernel named spin… takes as many nanoseconds of the device as its first parameter, a u64, says;
// any other takes none. One named poke writes to the address that its first parameter is.
#include <stdlib.h>
#include <string.h>

#include "driver_api.h"

struct function { char name[64]; };
struct module { int context; uint64_t bytes; };  // of code, constants and globals

API cuModuleLoadData(struct module **module, const void *image) {
    ENTER("cuModuleLoadData");
    if (!image) return INVALID_VALUE;
    if (current_context() < 0) return INVALID_CONTEXT;
    uint64_t bytes = fake->module_bytes;
    if (!memory_take(current_context(), bytes)) return OUT_OF_MEMORY;
    *module = malloc(sizeof **module);
    **module = (struct module){current_context(), bytes};
    return SUCCESS;
}

API cuModuleLoadDataEx(struct module **module, const void *image, unsigned count, void *options, void **values) {
    (void)count, (void)options, (void)values;
    return cuModuleLoadData(module, image);
}

API cuModuleUnload(struct module *module) {
    ENTER("cuModuleUnload");
    memory_give(module->context, module->bytes);
    free(module);
    return SUCCESS;
}

API cuModuleGetFunction(CUfunction *function, void *module, const char *name) {
    ENTER("cuModuleGetFunction");
    if (!module || strlen(name) >= sizeof (*function)->name) return INVALID_VALUE;
    *function = malloc(sizeof **function);
    strcpy((*function)->name, name);
    return SUCCESS;
}

uint64_t kernel_ns(CUfunction function, void **parameters) {
    if (strncmp(function->name, "spin", 4) != 0 || !parameters) return 0;
    uint64_t nanoseconds;
    memcpy(&nanoseconds, parameters[0], sizeof nanoseconds);
    return nanoseconds;
}

static CUresult launch(CUfunction function, CUstream stream, void **parameters) {
    int context = stream_context(stream);
    if (!function) return INVALID_HANDLE;
    if (context < 0) return INVALID_CONTEXT;
    if (!strcmp(function->name, "poke") && !memory_is_there(*(CUdeviceptr *)parameters[0]))
        process_fault(fake->contexts[context].device);
    uint64_t nanoseconds = kernel_ns(function, parameters);
    CUgraph graph = stream_capture(stream);
    if (graph) {
        graph->kernels_ns += nanoseconds;
        graph->nodes++;
    } else {
        fake_spend(fake->launch_ns);
        fake_submit(stream_queue(stream), nanoseconds, -1);
    }
    return SUCCESS;
}

API cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, CUstream stream, void **parameters, void **extra) {
    ENTER("cuLaunchKernel");
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    return launch(function, stream, parameters);
}

API cuLaunchKernelEx(const struct launch_config *config, CUfunction function, void **parameters, void **extra) {
    ENTER("cuLaunchKernelEx");
    (void)extra;
    return launch(function, config->stream, parameters);
}

API cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, CUstream stream, void **parameters) {
    ENTER("cuLaunchCooperativeKernel");
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared;
    return launch(function, stream, parameters);
}

PER_THREAD(cuLaunchKernel);
PER_THREAD(cuLaunchKernelEx);
PER_THREAD(cuLaunchCooperativeKernel);
